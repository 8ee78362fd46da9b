#!/usr/bin/env python3
"""Holds `simulate` to published runs with host tiers and routers by cache: gains of TTFT and hit rates, by source.

usage: tiers.py DATA ROOFCAST

DATA has validation/features/*.csv, ROOFCAST is the program. Each source's load is rebuilt as its rows state it; what they do not
state is a line of WHY. Nothing is adjusted to a row: the table is printed as it comes. Rows are not shown one by one.
"""
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

BLOCK = 16  # tokens of a block of the traces written here, as in vLLM's timed_trace
GAP_S = 600  # between two stages, so that a stage begins when the one before has drained

WHY = [
    ("llmd_agentic_cephfs", "not reached: the model keeps recurrent states, which a host tier does not hold here"),
    ("do_dynamo_rr_vs_kv", "not reached: lengths of prompts and answers are not stated"),
    ("hicache_h800", "without the rows of the remote store; the server's memory fraction is not stated: the engine's own"),
    ("llmd_routing_73cap", "`load` and `precise` routers; stages of 20-50 s are taken as 30 s each; without `estimated`, `random`"),
    ("llmd_tiered_qwen32", "all rates; the host tier holds the stated tokens; llm-d's scorers with equal weights, as the guide has them"),
]  # fmt: skip


def rows(data, name, source):
    with (data / "validation/features" / name).open() as file:
        found = [row for row in csv.DictReader(file) if row["source"] == source]
    for row in found:
        row["set"] = dict(part.strip().partition("=")[::2] for part in row["settings"].split(";"))
    return found


def simulate(program, trace, flags):
    """Records of the trace's requests, in its order, and the answer."""
    with tempfile.TemporaryDirectory() as folder:
        path, records = pathlib.Path(folder) / "load.jsonl", pathlib.Path(folder) / "records.jsonl"
        path.write_text("\n".join(json.dumps(line) for line in trace) + "\n")
        words = [program, "simulate", "--workload", path, "--records", records, "--json", *flags]
        run = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stderr)
        return [json.loads(line) for line in records.read_text().splitlines()], json.loads(run.stdout)


def shared_prefixes(settings, stages, output):
    """Stages of (rate, seconds) over prompts in groups with a system prompt each; and the stage of each request."""
    groups, each = int(settings["groups"]), int(settings["prompts_per_group"])
    system, question = (int(settings[key]) // BLOCK for key in ("system_prompt", "question"))
    draw = random.Random(1)
    prompts = [(group, number) for group in range(groups) for number in range(each)]
    draw.shuffle(prompts)
    lines, stage_of, at, turn = [], [], 0.0, 0
    for stage, (rate, seconds) in enumerate(stages):
        end = at + seconds
        while (at := at + draw.expovariate(rate)) < end:
            group, number = prompts[turn % len(prompts)]
            turn += 1
            own = groups * system + (group * each + number) * question
            ids = [*range(group * system, (group + 1) * system), *range(own, own + question)]
            lines.append({"timestamp": at, "input_length": BLOCK * len(ids), "output_length": output, "hash_ids": ids})
            stage_of.append(stage)
        at = end + GAP_S
    return lines, stage_of


def ttft_by(records, keys):
    """Mean TTFT in ms by key."""
    sums = {}
    for record, key in zip(records, keys, strict=True):
        sums.setdefault(key, []).append(record["first_token_ms"] - record["sent_ms"])
    return {key: statistics.fmean(values) for key, values in sums.items()}


def qwen32(settings, kv_tokens):
    return [
        *("--model", "Qwen/Qwen3-32B", "--hardware", "h100-sxm", "--tp", 2, "--engine", "vllm", "--weights", "bf16"),
        *("--replicas", 8, "--router", "llm_d", "--set", f"engine.num_gpu_blocks={kv_tokens // BLOCK + 1}"),
        *(word for key, value in settings.items() for word in ("--set", f"fleet.routing.{key}={value}")),
    ]


def tiered(data, program):
    """Gains of TTFT by rate, measured and forecast."""
    found = rows(data, "tiers.csv", "llmd_tiered_qwen32")
    settings = found[0]["set"]
    rates = sorted({float(row["request_rate"]) for row in found})
    lines, stages = shared_prefixes(settings, [(rate, 60) for rate in rates], 256)
    token = 64 * 2 * 8 * 128 * 2  # bytes of Qwen3-32B: layers, keys and values, heads, elements, bytes
    gib = int(settings["cpu_kv_tokens_total"]) / 8 * token / 2**30
    weights = {"prefix_cache_weight": 1.0, "queue_weight": 1.0, "kv_cache_utilization_weight": 1.0}
    flags = qwen32(weights, int(settings["gpu_kv_tokens_total"]) // 8)
    tier = ["--set", "fleet.routing.host_prefix_cache_weight=1.0", "--kv-offloading-size", gib]
    runs = [ttft_by(simulate(program, lines, flags + more)[0], stages) for more in ([], tier)]
    gains = []
    for stage, rate in enumerate(rates):
        at = [row for row in found if float(row["request_rate"]) == rate]
        [without] = [float(row["ttft_ms"]) for row in at if row["set"]["tier"] == "hbm only"]
        [with_tier] = [float(row["ttft_ms"]) for row in at if row["set"]["tier"] != "hbm only"]
        gains.append((without / with_tier, runs[0][stage] / runs[1][stage]))
    return gains, []


def routed(data, program):
    """Gains of TTFT of the precise router over load alone, by rate."""
    found = rows(data, "routing.csv", "llmd_routing_73cap")
    settings = found[0]["set"]
    of = {key: {float(r["request_rate"]): float(r["ttft_ms"]) for r in found if r["set"]["router"] == key} for key in ("load", "precise")}  # fmt: skip
    rates = sorted(of["load"].keys() & of["precise"].keys())
    lines, stages = shared_prefixes(settings, [(15.0, 50), *((rate, 30) for rate in rates)], 1000)
    kv = int(settings["kv_tokens_per_replica"])
    runs = [ttft_by(simulate(program, lines, qwen32(more, kv))[0], stages) for more in ({"prefix_cache_weight": 0.0}, {})]
    return [(of["load"][rate] / of["precise"][rate], runs[0][n + 1] / runs[1][n + 1]) for n, rate in enumerate(rates)], []


def hicache(data, program):
    """Gains of TTFT of the host tier by round, and hit rates of both in percent."""
    found = [r for r in rows(data, "tiers.csv", "hicache_h800") if "mooncake" not in r["set"]["tier"]]
    clients, rounds, new = 80, 10, 2048 // 512
    lines, keys = [], []
    for number in range(rounds):
        for client in range(clients):
            ids = list(range(client * rounds * new, client * rounds * new + new * (number + 1)))
            # 16 a second within a round; at most 4 at one time, so that a round begins when the one before has drained.
            lines.append({"timestamp": 1000 * (number * clients + client) / 16, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids})  # fmt: skip
            keys.append(number + 1)
    flags = [
        *("--model", "Qwen/Qwen3-235B-A22B", "--hardware", "h800-sxm", "--tp", 8, "--weights", "bf16", "--engine", "sglang"),
        *("--set", "engine.page_size=64", "--max-concurrency", 4),
    ]
    tier = ["--enable-hierarchical-cache", "--hicache-size", 30]
    ttft, hits = [], []
    for more in ([], tier):
        records = simulate(program, lines, flags + more)[0]
        ttft.append(ttft_by(records, keys))
        shares = {}
        for record, key in zip(records, keys, strict=True):
            shares.setdefault(key, []).append(100 * record.get("cached_tokens", 0) / record["input_len"])
        hits.append({key: statistics.fmean(values) for key, values in shares.items()})
    gains, rates = [], []
    measured = {(r["set"]["tier"] == "hbm only", int(r["set"]["round"])): r for r in found}
    for number in range(1, rounds + 1):
        without, with_tier = (measured[(alone, number)] for alone in (True, False))
        gains.append((float(without["ttft_ms"]) / float(with_tier["ttft_ms"]), ttft[0][number] / ttft[1][number]))
        rates += [(float(row["set"]["hit_rate_pct"]), hit[number]) for row, hit in ((without, hits[0]), (with_tier, hits[1]))]
    return gains, rates


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    print("| source | gains of TTFT | measured, median | forecast, median | within 20 % | hit rates | off, median | within 3 points |")
    print("|---|---|---|---|---|---|---|---|")
    for source, check in [("llmd_tiered_qwen32", tiered), ("llmd_routing_73cap", routed), ("hicache_h800", hicache)]:
        gains, rates = check(data, program)
        middle = [statistics.median(pair[side] for pair in gains) for side in (0, 1)]
        near = sum(abs(forecast / real - 1) <= 0.2 for real, forecast in gains)
        off = [abs(forecast - real) for real, forecast in rates]
        of_rates = [len(off), f"{statistics.median(off):.1f} points", f"{sum(o <= 3 for o in off)} of {len(off)}"] if off else ["none stated", "", ""]  # fmt: skip
        cells = [source, len(gains), *(f"{value:.2f} ×" for value in middle), f"{near} of {len(gains)}", *of_rates]
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
    print()
    for source, why in WHY:
        print(f"* `{source}`: {why}.")


if __name__ == "__main__":
    main()
