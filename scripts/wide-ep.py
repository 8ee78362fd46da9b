#!/usr/bin/env python3
"""Holds forecasts of wide expert parallelism to published figures: decode and prefill throughput of DeepSeek-V3 by source, and
DeepEP's exchanges.

usage: wide-ep.py DATA ROOFCAST

DATA has validation/features/wide_ep.csv and a2a_latency.csv, ROOFCAST is the program. Each deployment is rebuilt as its row
states it; what rows do not state is a line of WHY. Nothing is adjusted to a row.
"""
import csv
import json
import pathlib
import subprocess
import sys

MODEL = "deepseek-ai/DeepSeek-V3"
LAYERS = 58  # with experts
BAR = 0.15

# LMSYS, "Deploying DeepSeek with PD disaggregation and large-scale expert parallelism on 96 H100 GPUs" (lmsys.org/blog/2025-05-05-large-scale-ep):
# tokens per second of a node of eight, prompts of 2000 tokens, two-batch overlap, 256 requests a rank of decode.
LMSYS = [("prefill", "h100-sxm", 32, 52_300 / 8), ("decode", "h100-sxm", 72, 22_300 / 8)]

WHY = [
    "decode: all ranks have equally many requests, at the mean of their contexts; experts are balanced, as no skew is stated",
    "prefill: 32 prompts a rank in flight, in vLLM's default steps of 8192 tokens; DeepEP's normal kernels, without overlap under vLLM",
    "`vllm_gb200`: rows of a GB200 state no batch; not rebuilt. `llmd_wideep_b200`: nor does its row",
    "`deepseek_online`: a day's average, with idle hours and prefixes found in a cache; not judged by the bar",
    "`lmsys_sglang`: 256 decodes and prefill steps of 16,384 tokens a rank are not verified; contexts of 2050 tokens for decode",
]  # fmt: skip


def rows(data, name):
    with (data / "validation/features" / name).open() as file:
        found = list(csv.DictReader(file))
    for row in found:
        row["set"] = dict(part.strip().partition("=")[::2] for part in row.get("settings", "").split(";"))
    return found


def ask(program, words):
    run = subprocess.run([program, *(str(word) for word in words), "--json"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def deployment(chip, ranks, engine, more):
    ranked = ["--tp", 1, "--ep", ranks, "--attention-dp", ranks, "--count", ranks]
    return ["--model", MODEL, "--hardware", chip, "--engine", engine, *ranked, *more]


def decode(program, chip, ranks, engine, each, context, more=()):
    """Milliseconds of a step of `each` decodes a rank."""
    flags = ["--all2all-backend", "deepep_low_latency", "--enable-dbo", *more]
    words = ["limits", *deployment(chip, ranks, engine, flags), "--batch", ranks * each, "--context", context]
    return ask(program, words)["decode"]["forecast_ms"]


def prefill(program, chip, ranks, engine, tokens, more=()):
    """Prompt tokens per second of a rank."""
    flags = ["--all2all-backend", "deepep_high_throughput", *more]
    load = ["--input-len", tokens, "--output-len", 1, "--requests", 1000 * ranks, "--concurrency", 32 * ranks]
    answer = ask(program, ["simulate", *deployment(chip, ranks, engine, flags), *load])
    return answer["total_input_tokens"] / answer["duration"] / ranks


def published(data, program):
    """Source, deployment, published and forecast tokens per second of one accelerator, and true if the bar counts."""
    for row in rows(data, "wide_ep.csv"):
        settings, chip = row["set"], row["hardware"]
        ranks = int(row["ep"] or 0)
        if row["source"] in ("vllm_wideep_h200", "vllm_gb200") and chip == "h200-sxm":
            if settings["role"] == "prefill":
                real = float(settings.get("in_tok_s_per_gpu") or settings["tok_s_per_gpu"])
                found = prefill(program, chip, ranks, "vllm", int(row["input_len"]))
                yield row["source"], f"prefill, {ranks} × {chip}", real, found, True
            else:
                each = int(settings.get("requests_per_rank", 256))
                context = int(row["input_len"]) + int(row["output_len"]) // 2
                real = float(settings.get("out_tok_s_per_gpu") or settings["tok_s_per_gpu"])
                step = decode(program, chip, ranks, "vllm", each, context, ["--enable-eplb"])
                yield row["source"], f"decode, {ranks} × {chip}", real, each / step * 1e3, True
        elif row["source"] == "deepseek_online" and settings["role"] == "decode":
            real = float(settings["tok_s_per_node"]) / 8
            slow, fast = (float(rate) for rate in settings["user_tok_s"].split("-"))
            each = round(real / ((slow + fast) / 2))
            more = ["--enable-eplb", "--num-redundant-experts", 32, "--dbo-decode-token-threshold", 2]
            step = decode(program, "h800-sxm", ranks, "vllm", each, int(settings["mean_kv_len"]), more)
            yield row["source"], f"decode, {ranks} × h800-sxm, {each} a rank", real, each / step * 1e3, False
    for role, chip, ranks, real in LMSYS:
        if role == "prefill":
            found = prefill(program, chip, ranks, "sglang", 2000, ["--enable-dbo", "--chunked-prefill-size", 16_384 * ranks, "--num-gpu-blocks", 131_072 * ranks])
        else:
            found = 256 / decode(program, chip, ranks, "sglang", 256, 2050) * 1e3
        yield "lmsys_sglang", f"{role}, {ranks} × {chip}", real, found, True


def exchanges(data, program):
    """Ranks, and published and forecast µs of dispatch and combination of 128 tokens by DeepEP's low-latency kernels."""
    for row in rows(data, "a2a_latency.csv"):
        if row["library"] != "DeepEP v1" or row["kernel"] != "low latency":
            continue
        ranks, each = int(row["ep"]), int(row["tokens_per_rank"])
        flags = deployment("h800-sxm", ranks, "vllm", ["--all2all-backend", "deepep_low_latency"])
        answer = ask(program, ["limits", *flags, "--batch", ranks * each, "--context", 1000])
        found = answer["decode"]["beside"]["links_ms"] / LAYERS * 1e3
        yield ranks, float(row["dispatch_us"]) + float(row["combine_us"]), found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    print("| source | deployment | published tok/s an accelerator | forecast | error |")
    print("|---|---|---|---|---|")
    near, counted = 0, 0
    for source, what, real, found, judged in published(data, program):
        near, counted = near + (judged and abs(found / real - 1) <= BAR), counted + judged
        print(f"| {source} | {what} | {real:,.0f} | {found:,.0f} | {found / real - 1:+.0%} |", flush=True)
    print(f"\n{near} of {counted} within {BAR:.0%}.\n")
    print("| ranks | DeepEP's low-latency dispatch and combination, 128 tokens, published µs | forecast | error |")
    print("|---|---|---|---|")
    for ranks, real, found in exchanges(data, program):
        print(f"| {ranks} | {real:.0f} | {found:.0f} | {found / real - 1:+.0%} |", flush=True)
    print()
    for why in WHY:
        print(f"* {why}.")


if __name__ == "__main__":
    main()
