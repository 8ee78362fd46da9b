#!/usr/bin/env python3
"""Requests per CPU-second of `roofcast simulate` beside inference-lab 1.0.0, in alternating runs of one session.

    cargo install inference-lab --version 1.0.0
    cargo build --release --locked
    benches/peers/simulate.py

Prints, for each workload, the medians of CPU time (user + system, whole process) and their ratio.
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


def cpu_seconds(command):
    """CPU time of one run, which must succeed."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {status}\n{error}")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roofcast", default=HERE.parents[1] / "target/release/roofcast")
    parser.add_argument("--inference-lab", default="inference-lab")
    parser.add_argument("--requests", type=int, default=100_000, help="of ours; the peer gets a tenth in all but the first")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
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


if __name__ == "__main__":
    main()
