#!/usr/bin/env python3
"""Fits without whole parts of the data, and writes into docs/accuracy.md how far the tables of what was left out are from that.

usage: refit.py DATA [ROOFCAST [PART...]]

DATA is as accuracy.py has it. ROOFCAST is the program [target/release/roofcast]. A PART is an accelerator and a weight format, as in h200-sxm/fp8; where none is
given, those of PARTS. The runs that accuracy.py fits beside the points are in neither fit; both start from ROOFCAST's own calibration, which has seen the part.
"""
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/accuracy.md"
START, END = "<!-- table: refit -->\n\n```text\n", "\n```\n\n<!-- end of the refits -->"
PARTS = ["h200-sxm/fp8", "b200-sxm/nvfp4", "gb10/nvfp4"]
FILES = ["measurements-2.csv", "measurements.csv"]
METRICS = ["tpot_ms", "ttft_ms", "output_tok_s"]
FEWEST = 30


def called(*words):
    subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def split(data, part, folder):
    """The files of `data` in two: without the part, and the part alone."""
    accelerator, _, weights = part.partition("/")
    both = ([], [])
    for name in FILES:
        all_rows = rows(data / name)
        inside = [[], []]
        for row in all_rows:
            inside[row["hardware"] == accelerator and row["weights"] == weights].append(row)
        for index, (kept, paths) in enumerate(zip(inside, both)):
            path = folder / f"{index}-{name}"
            with open(path, "w", newline="") as file:
                writer = csv.DictWriter(file, all_rows[0].keys())
                writer.writeheader()
                writer.writerows(kept)
            paths.append(path)
    if not any(rows(path) for path in both[1]):
        sys.exit(f"refit.py: no row of {part}; accepted: ACCELERATOR/WEIGHTS as in {', '.join(FILES)}")
    return both


def errors(path):
    """Absolute errors in percent by row and metric, with the row's kind."""
    found = {}
    for row in rows(path):
        for metric in METRICS:
            measured, forecast = row[f"{metric}_measured"], row[f"{metric}_forecast"]
            if measured and forecast:
                found[row["id"], metric] = (row["kind"], 100 * abs(float(forecast) / float(measured) - 1))
    return found


def spread(values):
    return f"{statistics.median(values):.1f} / {statistics.quantiles(values, n=10)[-1]:.1f}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    data = pathlib.Path(sys.argv[1])
    roofcast = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/release/roofcast").resolve()
    validation, kernels = data / "validation", ["--kernels", data / "kernels/tables"]
    lines = [f"{'part':<16}{'kind':<26}{'metric':<14}{'rows':>4}{'from slopes':>16}{'fitted again':>16}"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        table = folder / "slopes.csv"
        whole = [validation / f for f in FILES]
        words = ["--leave-out", "accelerator-format", "--per-row", table, "--out", folder / "all.toml"]
        called(roofcast, "calibrate", *whole, *kernels, *words)
        slopes = errors(table)
        for part in sys.argv[3:] or PARTS:
            kept, out = split(validation, part, folder)
            called(roofcast, "calibrate", *kept, *kernels, "--out", folder / "part.toml")
            called(roofcast, "validate", *out, "--calibration", folder / "part.toml", "--per-row", folder / "part.csv")
            again = errors(folder / "part.csv")
            keys = sorted({(kind, metric) for (_, metric), (kind, _) in again.items()})
            for kind, metric in keys:
                both = [(slopes[k][1], again[k][1]) for k in again if k in slopes and (again[k][0], k[1]) == (kind, metric)]
                if len(both) >= FEWEST:
                    left, right = zip(*both)
                    lines.append(f"{part:<16}{kind:<26}{metric:<14}{len(both):>4}{spread(left):>16}{spread(right):>16}")
    head, rest = PAGE.read_text().split(START, 1)
    PAGE.write_text(f"{head}{START}" + "\n".join(lines) + END + rest.split(END, 1)[1])


main()
