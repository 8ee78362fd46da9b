#!/usr/bin/env python3
"""Halves of the points that theory-against-practice.sh measured: halves.py FOLDER, then halves.py FOLDER verdict

The first command writes the median of each point's repeats to fit.csv and check-{decode,prefill}.csv: points that are
neighbours by length and users go to different files. The second prints each forecast of the check points with the
measured value, and exits with 1 if a median error is above its bound."""

import csv
import json
import pathlib
import statistics
import sys

KINDS = {"decode": "decode_step", "prefill": "prefill"}
BOUNDS = {"decode": ("tpot_ms", 0.15), "prefill": ("ttft_ms", 0.20)}


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def held(folder):
    """For each file, the fraction of the time in which the server's thread ran, of the time in which it ran or waited for a processor."""
    shares = {}
    for line in (folder / "waits.txt").read_text(encoding="utf-8").splitlines():
        name, ran, waited, _, ran_then, waited_then, _ = line.split()
        ran, waited = int(ran_then) - int(ran), int(waited_then) - int(waited)
        shares[name] = ran / max(ran + waited, 1)
    return shares


def measured(path, what):
    """Times of a run: of a prompt by itself, or of a step. A step is the mean gap between tokens, without the first and last
    three of an answer, in which prompts of other users are computed."""
    summary = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    if what == "prefill":
        return summary["mean_ttft_ms"]
    middle = summary["itl_by_position"][3:-3]
    return sum(p["gaps"] * p["mean_ms"] for p in middle) / sum(p["gaps"] for p in middle)


def medians(folder, what, metric):
    """Points in order of users and length, each with only its metric: the median of the repeats. The time in which other work
    held the processor is subtracted from each, as in `hardware measure`."""
    shares, repeats = held(folder), {}
    for path in sorted(folder.glob(f"{what}-*x*.csv")):
        for row in rows_of(path):
            value = measured(path, what)
            point = (int(row["concurrency"]), int(row["input_len"]))
            repeats.setdefault(point, []).append((value * shares[path.stem], value, row))
    points = []
    for (users, length), found in sorted(repeats.items()):
        own = sorted(value for value, _, _ in found)
        clock = sorted(value for _, value, _ in found)
        blank = {"ttft_ms": "", "tpot_ms": "", "e2e_ms": "", "source": "llama.cpp here"}
        kept = {"id": f"{what}-{users}x{length}", "kind": KINDS[what], metric: statistics.median(own)}
        points.append({**found[0][2], **blank, **kept})
        shown = [", ".join(f"{value:.1f}" for value in values) for values in (own, clock)]
        print(f"{what}, users: {users}, prompt: {length}, ms: {shown[0]} (by the clock: {shown[1]})")
    return points


def halve(folder):
    fit = []
    for what, (metric, _) in BOUNDS.items():
        points = medians(folder, what, metric)
        lengths = sorted({int(p["input_len"]) for p in points})
        users = sorted({int(p["concurrency"]) for p in points})
        place = lambda p: lengths.index(int(p["input_len"])) + users.index(int(p["concurrency"]))
        fit += [p for p in points if place(p) % 2 == 0]
        write(folder / f"check-{what}.csv", [p for p in points if place(p) % 2 == 1])
    write(folder / "fit.csv", fit)


def verdict(folder):
    good = True
    for what, (metric, bound) in BOUNDS.items():
        errors = []
        for row in rows_of(folder / f"{what}-rows.csv"):
            if row["left_out"]:
                print(f"{row['id']}: left out: {row['left_out']}")
                continue
            measured, forecast, limit = (float(row[f"{metric}_{of}"]) for of in ("measured", "forecast", "limit"))
            errors.append(forecast / measured - 1)
            print(f"{row['id']}: measured {measured:.1f} ms, forecast {forecast:.1f} ({errors[-1]:+.1%}), limit {limit:.1f}")
        if not errors:
            print(f"{what}: no point has a forecast")
            good = False
            continue
        median, most = statistics.median(map(abs, errors)), max(map(abs, errors))
        good &= median <= bound
        print(f"{what}: off by {median:.1%} in the median, {most:.1%} at most; at most {bound:.0%} wanted in the median")
    return good


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    if sys.argv[2:] == ["verdict"]:
        sys.exit(0 if verdict(folder) else 1)
    halve(folder)


main()
