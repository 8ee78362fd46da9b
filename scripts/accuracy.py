#!/usr/bin/env python3
"""Writes the tables of docs/accuracy.md about the program's own calibration.

usage: accuracy.py DATA [ROOFCAST]

DATA has validation/measurements*.csv and validation/runs/. ROOFCAST is the program [target/release/roofcast]. The sources' numbers
are those of fits that omit each source in turn, the five numbers use the rows that no fit may see, the long table all rows that judge, of which half also teach a fit; the picture uses the rows that may be
read one by one. The fit starts from the program's own calibration and is not embedded: `roofcast calibrate --teaching … --output crates/roofcast-cost/catalog/calibration/engines.toml` does that.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

from sides import teaches

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/accuracy.md"
PICTURE = ROOT / "docs/curves/accuracy.svg"
END = "<!-- end -->"
FIVE = [
    ("closed_loop", "tpot_ms", "time per output token, closed loop"),
    ("closed_loop", "ttft_ms", "time to first token, closed loop"),
    ("open_loop", "tpot_ms", "time per output token, open loop"),
    ("decode_step", "tpot_ms", "one decode step"),
    ("prefill", "ttft_ms", "first token of one prompt"),
]
OMITTED = [
    ("tpot_ms", "time per output token"),
    ("ttft_ms", "time to first token"),
    ("e2e_ms", "end-to-end latency"),
    ("output_tok_s", "output tokens per second"),
]
COLUMNS = [("n", 1), ("median_ape", 100), ("p90_ape", 100), ("bias", 100), ("in_band", 100), ("groups", 1), ("group_median_ape", 100)]


def said(*words):
    return subprocess.run([str(w) for w in words], check=True, text=True, stdout=subprocess.PIPE).stdout


def five(answer):
    """The five numbers of the accuracy, by row, and with each group counted once."""
    lines = [f"{'rows that no fit saw':<36}{'rows':>6}{'median %':>10}{'p90 %':>8}{'bias %':>8}{'in band %':>11}{'groups':>8}{'median of groups %':>20}"]
    for kind, metric, words in FIVE:
        errors = answer["kinds"][kind]["metrics"][metric]
        n, *shares, groups, of_groups = (errors[key] * scale for key, scale in COLUMNS)
        median, p90, bias, in_band = shares
        lines.append(f"{words:<36}{n:>6}{median:>10.1f}{p90:>8.1f}{bias:>8.1f}{in_band:>11.1f}{groups:>8}{of_groups:>20.1f}")
    return "\n".join(lines)


def sources(left_out):
    """The errors of rows whose source a fit omitted, from the table of all omitted parts."""
    rows = {metric: columns for part, metric, *columns in map(str.split, left_out.strip().splitlines()[1:]) if part == "source"}
    lines = [f"{'rows of a source that the fit omits':<36}{'rows':>7}{'median %':>10}{'p90 %':>8}{'bias %':>8}"]
    for metric, words in OMITTED:
        n, bias, median, p90 = rows[metric]
        lines.append(f"{words:<36}{n:>7}{median:>10}{p90:>8}{bias:>8}")
    return "\n".join(lines)


def unseen(paths, folder):
    """Writes the rows that no fit may see to separate files."""
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            kept = [row for row in rows if not teaches(row)]
        with open(folder / path.name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows.fieldnames)
            writer.writeheader()
            writer.writerows(kept)
        yield folder / path.name


def replayed(roofcast, runs):
    """The tables of all recorded runs, under one header."""
    texts = [said(roofcast, "validate", meta.parent) for meta in sorted(runs.glob("*/meta.json"))]
    return "".join(texts[:1] + [text.split("\n", 1)[1] for text in texts[1:]])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    data = pathlib.Path(sys.argv[1])
    roofcast = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/release/roofcast").resolve()
    validate = [roofcast, "validate", *sorted(data.glob("validation/measurements*.csv"))]
    said(*validate, "--split", "look", "--svg", PICTURE)
    with tempfile.TemporaryDirectory() as folder:
        files = list(unseen(validate[2:], pathlib.Path(folder)))
        unseen_errors = json.loads(said(roofcast, "validate", *files, "--split", "judge", "--json"))
    fit = said(roofcast, "calibrate", "--teaching", *validate[2:])
    numbers, left_out = fit.split("errors of rows whose part of the data was not fitted", 1)
    tables = {
        "sources": sources(left_out),
        "five": five(unseen_errors),
        "judge": said(*validate, "--split", "judge", "--wide"),
        "numbers": numbers,
        "left-out": left_out.strip("\n"),
        "runs": replayed(roofcast, data / "validation/runs"),
    }
    page = PAGE.read_text()
    for name, text in tables.items():
        head, rest = page.split(f"<!-- table: {name} -->", 1)
        page = f"{head}<!-- table: {name} -->\n\n```text\n{text.rstrip()}\n```\n\n{END}{rest.split(END, 1)[1]}"
    PAGE.write_text(page)


main()
