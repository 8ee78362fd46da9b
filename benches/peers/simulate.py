#!/usr/bin/env python3
"""Requests per CPU-second of `roofcast simulate` beside inference-lab 1.0.0, in alternating runs of one session.

    cargo install inference-lab --version 1.0.0
    cargo build --release --locked
    benches/peers/simulate.py

Prints, for each workload, the medians of CPU time (user + system, whole process) and their ratio. A second table has
settings that inference-lab lacks (a host tier, agents, adapters, drafts, priorities, ranks, replicas, plans), each
beside the same run without the setting; `--features` prints it alone, without the peer.
"""
import argparse, os, pathlib, statistics, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = {"input_len": (6.9, 0.7), "output_len": (5.3, 0.8)}
WORKLOADS = {
    "Poisson 20/s": {"rate": 20.0},
    "Poisson 30/s (overload)": {"rate": 30.0},
    "Poisson 2/s": {"rate": 2.0},
    "256 users, 1k/1k": {"users": 256, "length": 1024},
}
HEAD = '[model]\nname = "meta-llama/Llama-3.1-8B-Instruct"\n[hardware]\naccelerator = "h100-sxm"\n'
LOAD = "[workload]\nrequests = {requests}\ninput_len = 500\noutput_len = 200\n"
PACE = 'arrivals = {{ kind = "poisson", rate = {rate} }}\n'
AGENTS = (
    "[workload]\nrequests = {requests}\ninput_len = 2000\noutput_len = 200\n"
    'arrivals = {{ kind = "sessions", rate = 1, turns = 10, think_s = 5 }}\n'
)
EXPERTS = '[model]\nname = "deepseek-ai/DeepSeek-V3"\n[hardware]\naccelerator = "h200-sxm"\n'
SEARCH = (
    '[model]\nname = "{model}"\n[search]\naccelerators = ["h200-sxm", "b200-sxm"]\nmax_accelerators = {most}\n'
    "[slo]\nttft_p99_ms = 3000\ntpot_p99_ms = 50\n"
    '[workload]\narrivals = {{ kind = "poisson", rate = 20 }}\ninput_len = 2048\noutput_len = 512\n'
)
TEN = LOAD.format(requests=10_000) + PACE.format(rate=10)
# A setting, the verb, the spec without the setting, and the spec with it.
FEATURES = {
    "drafts": ("simulate", HEAD + TEN, HEAD + "[engine.speculative]\nnum_speculative_tokens = 3\nacceptance_rate = 0.7\n"
               "draft_cost = 0.02\n" + TEN),
    "16 adapters, 4 at a time": ("simulate", HEAD + TEN, HEAD + "[engine]\nenable_lora = true\nmax_loras = 4\n" + TEN
                                 + "adapters = { count = 16, share = 0.7, skew = 1.0 }\n"),
    "priorities": ("simulate", HEAD + TEN, HEAD + '[engine]\npolicy = "priority"\n' + TEN + "priorities = [1, 2, 1]\n"),
    "held prompts": ("simulate", HEAD + TEN, HEAD + "[engine]\nprefill_schedule_interval = 4\n" + TEN),
    "host tier, agents": ("simulate", HEAD + AGENTS.format(requests=10_000),
                          HEAD + "[engine]\nkv_offloading_size = 64\n" + AGENTS.format(requests=10_000)),
    "1,000 replicas": ("simulate", HEAD + LOAD.format(requests=100_000) + PACE.format(rate=10),
                       HEAD + "[parallelism]\nreplicas = 1000\n" + LOAD.format(requests=100_000) + PACE.format(rate=10_000)),
    "8 ranks, vLLM": ("simulate", EXPERTS + "[parallelism]\ntp = 8\n" + LOAD.format(requests=3000) + PACE.format(rate=10),
                      EXPERTS + "[parallelism]\ntp = 1\nattention_dp = 8\nep = 8\n" + LOAD.format(requests=3000)
                      + PACE.format(rate=10)),
    "8 ranks, SGLang": ("simulate", EXPERTS + '[parallelism]\ntp = 8\n[engine]\nname = "sglang"\n'
                        + LOAD.format(requests=3000) + PACE.format(rate=10),
                        EXPERTS + '[parallelism]\ntp = 1\nattention_dp = 8\nep = 8\n[engine]\nname = "sglang"\n'
                        + LOAD.format(requests=3000) + PACE.format(rate=10)),
    "plan, 64 accelerators over 16": ("plan", SEARCH.format(model="deepseek-ai/DeepSeek-V3", most=16),
                                      SEARCH.format(model="deepseek-ai/DeepSeek-V3", most=64)),
    "plan, 32, disaggregated": ("plan", SEARCH.format(model="deepseek-ai/DeepSeek-V3", most=32),
                                SEARCH.format(model="deepseek-ai/DeepSeek-V3", most=32).replace(
                                    "max_accelerators", "disaggregated = true\nmax_accelerators")),
}


def cpu_seconds(command):
    """CPU time of one run, which must succeed; a plan may have no answer (4)."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) not in (0, 4):
        sys.exit(f"{' '.join(map(str, command))}: status {code}\n{error}")
    return usage.ru_utime + usage.ru_stime


def ours(workload, requests, folder):
    """Our spec of a workload: the common one with its own [workload]."""
    text = (HERE / "simulate.toml").read_text().split("[workload]")[0]
    text += f"[workload]\nrequests = {requests}\nseed = 42\n[workload.arrivals]\n"
    if "rate" in workload:
        text += f'kind = "poisson"\nrate = {workload["rate"]}\n'
        for name, (mu, sigma) in LENGTHS.items():
            text += f'[workload.{name}]\nkind = "lognormal"\nmu = {mu}\nsigma = {sigma}\n'
    else:
        text += f'kind = "closed_loop"\nconcurrency = {workload["users"]}\n'
        for name in LENGTHS:
            text += f'[workload.{name}]\nkind = "fixed"\nvalue = {workload["length"]}\n'
    path = pathlib.Path(folder) / "ours.toml"
    path.write_text(text)
    return path


def theirs(workload, requests, folder):
    """The same for inference-lab."""
    text = f"num_requests = {requests}\nseed = 42\n"
    if "rate" in workload:
        text += f'arrival_pattern = "poisson"\narrival_rate = {workload["rate"]}\n'
        for name, (mu, sigma) in LENGTHS.items():
            text += f'[{name}_dist]\ntype = "lognormal"\nmean = {mu}\nstd_dev = {sigma}\n'
    else:
        text += f'arrival_pattern = "closed_loop"\nnum_concurrent_users = {workload["users"]}\n'
        for name in LENGTHS:
            text += f'[{name}_dist]\ntype = "fixed"\nvalue = {workload["length"]}\n'
    path = pathlib.Path(folder) / "theirs.toml"
    path.write_text(text)
    return path


def features(roofcast, runs):
    """The second table."""
    print(f"{'setting':<30} {'without/CPU-s':>14} {'with/CPU-s':>12} {'ratio':>8}")
    for name, (verb, *texts) in FEATURES.items():
        with tempfile.TemporaryDirectory() as folder:
            specs = [pathlib.Path(folder) / f"{at}.toml" for at in range(2)]
            for spec, text in zip(specs, texts):
                spec.write_text(text)
            pairs = [[cpu_seconds([roofcast, verb, spec]) for spec in specs] for _ in range(runs)]
        without, with_it = (statistics.median(column) for column in zip(*pairs))
        print(f"{name:<30} {without:>14.3f} {with_it:>12.3f} {with_it / without:>8.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roofcast", default=HERE.parents[1] / "target/release/roofcast")
    parser.add_argument("--inference-lab", default="inference-lab")
    parser.add_argument("--requests", type=int, default=100_000, help="of ours; the peer gets a tenth in all but the first")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--features", action="store_true", help="only the second table")
    args = parser.parse_args()
    if args.features:
        return features(args.roofcast, args.runs)
    print(f"{'workload':<26} {'roofcast/CPU-s':>16} {'inference-lab/CPU-s':>20} {'ratio':>8}")
    for index, (name, workload) in enumerate(WORKLOADS.items()):
        few = args.requests if index == 0 else args.requests // 10
        with tempfile.TemporaryDirectory() as folder:
            mine = [args.roofcast, "simulate", ours(workload, args.requests, folder)]
            peer = [args.inference_lab, "-q", "-c", HERE / "inference-lab.toml", "-w", theirs(workload, few, folder)]
            pairs = [(cpu_seconds(mine), cpu_seconds(peer)) for _ in range(args.runs)]
        us, them = (statistics.median(column) for column in zip(*pairs))
        us, them = args.requests / us, few / them
        print(f"{name:<26} {us:>16,.0f} {them:>20,.0f} {us / them:>8.0f}")
    features(args.roofcast, args.runs)


if __name__ == "__main__":
    main()
