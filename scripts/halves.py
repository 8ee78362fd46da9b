#!/usr/bin/env python3
"""Halves of the points that theory-against-practice.sh measured: halves.py FOLDER, then halves.py FOLDER verdict

The first writes, of the median of each point's repeats, fit.csv and check-{decode,prefill}.csv: neighbours by length and
users fall into different halves. The second prints each forecast of the other half beside what was measured, and exits
with 1 where a median error is above its bound."""

import csv
import pathlib
import statistics
import sys

BOUNDS = {"decode": ("tpot_ms", 0.15), "prefill": ("ttft_ms", 0.20)}


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def medians(folder, what, metric):
    """Points in order of users and length, each with its metric alone: the median of the repeats."""
    repeats = {}
    for path in sorted(folder.glob(f"{what}-*[0-9].csv")):
        for row in rows_of(path):
            repeats.setdefault((int(row["concurrency"]), int(row["input_len"])), []).append(row)
    points = []
    for (users, length), rows in sorted(repeats.items()):
        values = sorted(float(row[metric]) for row in rows)
        kept = {**rows[0], "ttft_ms": "", "tpot_ms": "", "e2e_ms": "", metric: statistics.median(values)}
        points.append({**kept, "id": f"{what}-{users}x{length}", "source": "llama.cpp here"})
        print(f"{what}, users: {users}, prompt: {length}, {metric}: " + ", ".join(f"{v:.1f}" for v in values))
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
        median = statistics.median(map(abs, errors)) if errors else float("inf")
        good &= median <= bound
        most = max(map(abs, errors), default=float("inf"))
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
