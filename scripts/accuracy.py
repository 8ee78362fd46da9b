#!/usr/bin/env python3
"""Fits the embedded calibration again and writes the tables of docs/accuracy.md.

usage: accuracy.py DATA [ROOFCAST]

DATA has kernels/tables/ in the layout of AIConfigurator's database, validation/measurements*.csv and validation/runs/. ROOFCAST is the program [target/release/roofcast];
the calibration it was built with gives the start and keeps what is not in DATA.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALIBRATION = ROOT / "crates/roofcast/catalog/calibration/serving.toml"
PAGE = ROOT / "docs/accuracy.md"
PICTURE = ROOT / "docs/curves/accuracy.svg"


PROTOCOLS = {
    "group": "group",
    "engine-accelerator": "engine on an accelerator",
    "model": "model",
    "accelerator-format": "weight format on an accelerator",
    "accelerator": "accelerator",
}


def said(*words):
    return subprocess.run([str(w) for w in words], check=True, text=True, stdout=subprocess.PIPE).stdout


def between(text, start, end):
    return text.split(start, 1)[1].split(end, 1)[0]


def aligned(text):
    """Its lines of several columns without those of single groups, as narrow as they go."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if " | " not in line]
    rows = [row for row in rows if len(row) > 2]
    most = max(len(row) for row in rows)
    rows = [row for row in rows if len(row) == most]
    widths = [max(len(row[i]) for row in rows) for i in range(most)]
    left = [not re.match(r"[+-]?\d", rows[1][i]) for i in range(most)]
    cells = [[c.ljust(w) if l else c.rjust(w) for c, w, l in zip(row, widths, left)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)


def protocols(answer):
    """Median and 90th percentile of each kind's errors by what was left out, a line a metric."""
    cells, kinds = {}, ("loop", "step", "prefill", "batch", "phases", "throughput", "burst")
    for words in PROTOCOLS.values():
        for line in between(answer, f"every {words} left out in turn\n", "left out because").splitlines():
            row = re.split(r"\s{2,}", line.strip())
            if len(row) == 7 and any(kind in row[0] for kind in kinds) and " | " not in row[0]:
                cells.setdefault((row[0], row[1], row[2]), []).append(f"{row[3]} / {row[4]}")
    lines = ["  ".join(["part", "metric", "rows", *PROTOCOLS])]
    lines += ["  ".join([*key, *found]) for key, found in cells.items() if len(found) == len(PROTOCOLS)]
    return "\n".join(lines)


FIVE = [
    ("closed_loop", "tpot_ms", "time per output token, closed loop"),
    ("closed_loop", "ttft_ms", "time to first token, closed loop"),
    ("open_loop", "tpot_ms", "time per output token, open loop"),
    ("decode_step", "tpot_ms", "one decode step"),
    ("prefill", "ttft_ms", "first token of one prompt"),
]


def five(answer):
    """Five numbers with a whole weight format on an accelerator left out, and how many points their bands hold."""
    part = between(answer, "every weight format on an accelerator left out in turn\n", "left out because")
    rows = {tuple(row[:2]): row for row in (re.split(r"\s{2,}", line.strip()) for line in part.splitlines()) if len(row) == 7}
    lines = ["without its format on its chip  rows  median %  p90 %  in band %"]
    lines += ["  ".join([words, *(rows[kind, metric][i] for i in (2, 3, 4, 6))]) for kind, metric, words in FIVE]
    return "\n".join(lines)


def main():
    data = pathlib.Path(sys.argv[1])
    roofcast = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/release/roofcast").resolve()
    runs = data / "validation/runs"
    files = sorted(runs.glob("profile_*"))
    new = CALIBRATION.with_suffix(".new")
    files += sorted(data.glob("validation/measurements*.csv"))
    tables = ["--kernels", data / "kernels/tables"]
    answer = said(roofcast, "calibrate", *files, *tables, "--leave-out", "all", "--out", new)
    new.replace(CALIBRATION)
    points = [file for file in files if file.suffix == ".csv"]
    said(roofcast, "validate", *points, "--calibration", CALIBRATION, "--svg", PICTURE)
    replayed = [said(roofcast, "validate", "--calibration", CALIBRATION, meta.parent) for meta in sorted(runs.glob("*/meta.json"))]
    tables = {
        "five": five(answer),
        "kernels": between(answer, "was not fitted\n", " rows are not modelled"),
        "in-sample": between(answer, "fitted to every group\n", "left out because"),
        "protocols": protocols(answer),
        "runs": "".join([replayed[0]] + [text.split("\n", 1)[1] for text in replayed[1:]]),
    }
    for name, words in PROTOCOLS.items():
        tables[f"left-out {name}"] = between(answer, f"every {words} left out in turn\n", "left out because")
    page = PAGE.read_text()
    for name, text in tables.items():
        head, rest = page.split(f"<!-- table: {name} -->", 1)
        page = f"{head}<!-- table: {name} -->\n\n```text\n{aligned(text)}\n```\n\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    PAGE.write_text(page)


main()
