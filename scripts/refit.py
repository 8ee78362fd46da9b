#!/usr/bin/env python3
"""Fits without whole sources, models and accelerators, each fit anew, and writes into docs/accuracy.md how far it is from them.

usage: refit.py DATA [ROOFCAST [PROTOCOL...]]

DATA has validation/measurements*.csv. ROOFCAST is the program [target/release/roofcast]. A PROTOCOL is source, model or accelerator [all].
A fit sees the rows that may teach one (sides.py) and are not of the part that is left out; a part of fewer than FEWEST rows is not
left out. Errors are added up by kind over all parts: those of single rows are not kept.
"""
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile

from sides import teaches

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/accuracy.md"
START, END = "<!-- table: left-out -->", "<!-- end -->"
PROTOCOLS = {"source": "source", "model": "model", "accelerator": "hardware"}
METRICS = ("tpot_ms", "ttft_ms", "e2e_ms", "output_tok_s", "total_tok_s")
FEWEST = 10


def called(*words):
    subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def errors(path, found):
    """Adds the absolute errors in percent by kind and metric."""
    for row in read(path):
        for metric in METRICS:
            measured, forecast = row[f"{metric}_measured"], row[f"{metric}_forecast"]
            if measured and forecast and float(measured) > 0:
                error = 100 * abs(float(forecast) / float(measured) - 1)
                found.setdefault((row["kind"], metric), []).append(error)


def left_out(roofcast, rows, column, folder):
    """Errors of every part by the fit without it."""
    parts, found = {}, {}
    for row in rows:
        parts.setdefault(row[column], []).append(row)
    for part, inside in sorted(parts.items()):
        if len(inside) < FEWEST:
            continue
        kept = write(folder / "kept.csv", [row for row in rows if row[column] != part and teaches(row)])
        out = write(folder / "out.csv", inside)
        called(roofcast, "calibrate", kept, "--out", folder / "fit.toml")
        called(roofcast, "validate", out, "--calibration", folder / "fit.toml", "--per-row", folder / "rows.csv")
        errors(folder / "rows.csv", found)
    return found


def cell(values):
    if len(values) < FEWEST:
        return ""
    return f"{statistics.median(values):.1f} / {statistics.quantiles(values, n=10, method='inclusive')[-1]:.1f}"


def main():
    if len(sys.argv) < 2 or any(word not in PROTOCOLS for word in sys.argv[3:]):
        sys.exit(__doc__)
    roofcast = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/release/roofcast").resolve()
    rows = [row for path in sorted(pathlib.Path(sys.argv[1]).glob("validation/measurements*.csv")) for row in read(path)]
    names = sys.argv[3:] or list(PROTOCOLS)
    with tempfile.TemporaryDirectory() as folder:
        tables = {name: left_out(roofcast, rows, PROTOCOLS[name], pathlib.Path(folder)) for name in names}
    lines = [f"{'kind':<24}{'metric':<14}" + "".join(f"{name:>16}" for name in names)]
    for key in sorted({key for table in tables.values() for key in table}):
        cells = [cell(table.get(key, [])) for table in tables.values()]
        if any(cells):
            lines.append(f"{key[0]:<24}{key[1]:<14}" + "".join(f"{text:>16}" for text in cells))
    head, rest = PAGE.read_text().split(START, 1)
    text = "\n".join(lines)
    PAGE.write_text(f"{head}{START}\n\n```text\n{text}\n```\n\n{END}{rest.split(END, 1)[1]}")


main()
