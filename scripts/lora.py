#!/usr/bin/env python3
"""Holds `simulate` to published speeds with LoRA adapters: ours against published, by row.

usage: lora.py DATA ROOFCAST

DATA has validation/features/lora_overhead.csv, ROOFCAST is the program. Each row's load is rebuilt as it states it: as many users as
adapters are in the batch, whose requests draw from as many adapters. What rows do not state is a line of WHY. Nothing is adjusted to a row.
"""
import csv
import json
import pathlib
import subprocess
import sys

WHY = [
    "the page names no concurrency: a batch with 8 adapters has at least 8 requests",
    "the page names two machines, H200 and p5 (H100): both are simulated",
    "the first version's kernels were not those of later ones: a forecast has one set of kernels",
    "the page has no row without adapters: what adapters add is ours alone",
]


def simulate(program, row, chip, adapters):
    """Tokens per second of one request after its first, and median TTFT in ms."""
    prompt, answer = (word.split()[0] for word in row["dataset"].split(","))
    words = [program, "simulate", "--json", "--model", row["model"], "--hardware", chip, "--tp", row["tp"], "--engine", "vllm"]
    words += ["--engine-version", row["engine_version"].split()[0].removesuffix("rc3"), "--input-len", prompt, "--output-len", answer]
    words += ["--users", row["adapters_in_batch"], "--requests", 200]
    if adapters:
        words += ["--enable-lora", "--max-loras", row["max_loras"], "--max-lora-rank", row["rank"], "--adapters", row["adapters_in_batch"]]
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    answer = json.loads(run.stdout)
    return 1e3 / answer["mean_tpot_ms"], answer["median_ttft_ms"]


def main(data, program):
    with (pathlib.Path(data) / "validation/features/lora_overhead.csv").open() as file:
        found = list(csv.DictReader(file))
    print("version          chip      tok/s  ours  without    TTFT ms  ours  without")
    for row in found:
        for chip in ("h200", "h100-sxm"):
            (speed, ttft), (base, first) = (simulate(program, row, chip, adapters) for adapters in (True, False))
            measured, reached = float(row["output_tok_s"]), float(row["ttft_ms"])
            print(f"{row['engine_version']:16} {chip:8} {measured:6.0f} {speed:5.0f} {base:8.0f} {reached:10.0f} {ttft:5.0f} {first:8.0f}")
    print(*WHY, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
