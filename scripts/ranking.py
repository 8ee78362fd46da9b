#!/usr/bin/env python3
"""Writes the quality of a plan's first choices on measured sweeps into docs/plan.md.

usage: ranking.py DATA [ROOFCAST]

DATA has validation/measurements.csv and validation/disaggregated.csv. ROOFCAST is the program [target/release/roofcast].
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/plan.md"
START, END = "<!-- table: ranking -->", "<!-- end of the ranking -->"


def main():
    data = pathlib.Path(sys.argv[1]) / "validation"
    roofcast = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/release/roofcast").resolve()
    words = ["validate", data / "measurements.csv", data / "disaggregated.csv", "--ranking"]
    said = subprocess.run([str(w) for w in [roofcast, *words]], check=True, text=True, stdout=subprocess.PIPE).stdout
    # Keeps two sentences and the tables of sides and of skipped rows; the command shows single sweeps.
    parts = said.strip().split("\n\n")
    kept = [part for part in parts if not part.startswith("sweep ")]
    head, rest = PAGE.read_text().split(START, 1)
    text = "\n\n".join(kept)
    PAGE.write_text(f"{head}{START}\n\n```text\n{text}\n```\n\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
