#!/usr/bin/env python3
"""Writes crates/roofcast/tests/data/judge.csv: some 500 of the public rows that judge the cost model.

usage: judge.py DATA

DATA has validation/measurements*.csv. src/validate/split.rs defines the rows that judge. From each combination of kind, source, accelerator and engine
the script takes four fifths of the square root of the number of rows, at least one: the rows whose ids have the smallest hashes. So large
sweeps do not outweigh small sources, and nobody chooses rows.
"""
import csv
import math
import pathlib
import sys

from sides import fnv1a, judges

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/roofcast/tests/data/judge.csv"
STRATUM = ("kind", "source", "hardware", "engine")
# These columns locate a figure in its source; the data folder's own table has them by the row's id.
LEFT_OUT = ("url_or_path", "licence")
# Keys of the column `settings` that change a forecast.
SETTINGS = (
    "num_prompts", "level_requests", "arrivals", "dataset", "lengths", "flags", "variant", "client", "note", "backends",
    "max_num_seqs", "max_running_requests", "max_batch_size", "max_num_batched_tokens", "max_num_tokens",
    "chunked_prefill_size", "max_model_len", "max_seq_len", "gpu_memory_utilization", "gpu_mem_util", "mem_fraction_static",
    "enable_prefix_caching", "prefix_caching", "chunked_prefill", "enable_chunked_prefill", "async_scheduling",
    "max_cudagraph_capture_size", "stream_interval", "enforce_eager", "served",
)  # fmt: skip


def compact(row):
    """The row with only the settings that are read, and without the columns that locate it in its source."""
    parts = (part.strip() for part in row.get("settings", "").split(";"))
    kept = ";".join(part for part in parts if part.partition("=")[0].strip() in SETTINGS)
    return {**{key: value for key, value in row.items() if key not in LEFT_OUT}, "settings": kept}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    strata = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("validation/measurements*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            for row in filter(judges, csv.DictReader(file)):
                strata.setdefault(tuple(row[key] for key in STRATUM), []).append(compact(row))
    chosen = []
    for _, rows in sorted(strata.items()):
        rows.sort(key=lambda row: fnv1a(row["id"]))
        chosen += rows[: max(1, int(0.8 * math.sqrt(len(rows))))]
    with open(OUT, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, chosen[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(chosen)
    print(f"{len(chosen)} rows of {len(strata)} strata")


main()
