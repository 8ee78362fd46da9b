#!/usr/bin/env python3
"""What `roofcast bench` costs and how far it is from the truth, against a server with an exact schedule.

    cargo build --release --locked -p roofcast-cli --bin roofcast --example schedule
    benches/peers/bench.py

Prints, for each load, the CPU time of the whole client per 1,000 streamed tokens, the mean errors of TTFT and ITL, the client's lag,
and its start-up: a run of one request that nobody answers. The errors are against what the server kept by its own clock, from reading a
request to writing a token; how late it read is still part of them. Peers measured so:
SGLang's Rust client 0.0115 CPU-s per 1,000 tokens, vllm bench 0.023, aiperf 0.159.
"""
import argparse, json, os, pathlib, subprocess, sys, tempfile, time, urllib.request

LOADS = {
    "1 stream, 10 ms": {"streams": 1, "rounds": 8, "ttft": 100, "itl": 10, "tokens": 128},
    "1 stream, 50 ms": {"streams": 1, "rounds": 2, "ttft": 100, "itl": 50, "tokens": 128},
    "32 streams, 10 ms": {"streams": 32, "rounds": 8, "ttft": 100, "itl": 10, "tokens": 128},
    "256 streams, 10 ms": {"streams": 256, "rounds": 4, "ttft": 100, "itl": 10, "tokens": 128},
    "1,000 streams, 10 ms, one core": {"streams": 1000, "rounds": 2, "ttft": 1000, "itl": 10, "tokens": 256, "core": 0},
    "4,000 streams, 200 ms, one core": {"streams": 4000, "rounds": 2, "ttft": 1000, "itl": 200, "tokens": 64, "core": 0},
}


def measured(command):
    """CPU time and output of one run."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
        error = child.stderr.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 3):
            sys.exit(f"{' '.join(map(str, command))}: exit {code}\n{error}")
        out.seek(0)
        return usage.ru_utime + usage.ru_stime, json.load(out)


def ready(port):
    """Waits until the server listens."""
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/kept", timeout=1)
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the server does not listen")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="target/release", type=pathlib.Path)
    parser.add_argument("--port", default=18790, type=int)
    arguments = parser.parse_args()
    print(f"{'load':34} {'CPU-s/1k':>9} {'TTFT error':>11} {'ITL error':>10} {'lag p99':>9}")
    for name, load in LOADS.items():
        words = [str(arguments.port), str(load["ttft"]), str(load["itl"])]
        server = subprocess.Popen([arguments.target / "examples/schedule", *words])
        try:
            ready(arguments.port)
            pinned = ["taskset", "-c", str(load["core"])] if "core" in load else []
            cpu, answer = measured(
                [*pinned, arguments.target / "roofcast", "bench", "--url", f"http://127.0.0.1:{arguments.port}", "--model", "m"]
                + ["--concurrency", str(load["streams"]), "--requests", str(load["streams"] * load["rounds"])]
                + ["--input-len", "100", "--output-len", str(load["tokens"]), "--assume-tokens", "--json"]
            )
            kept = json.load(urllib.request.urlopen(f"http://127.0.0.1:{arguments.port}/kept"))
        finally:
            server.kill()
            server.wait()
        tokens = answer["total_output_tokens"]
        ttft, itl = answer["mean_ttft_ms"] - kept["mean_ttft_ms"], answer["mean_itl_ms"] - kept["mean_itl_ms"]
        lag = answer["client"]["lag_ms_p99"]
        print(f"{name:34} {cpu * 1000 / tokens:9.5f} {ttft:8.2f} ms {itl:7.3f} ms {lag:6.1f} ms")
    nobody = [arguments.target / "roofcast", "bench", "--url", "http://127.0.0.1:1", "--model", "m", "--requests", "1"]
    starts = []
    for _ in range(21):
        before = time.perf_counter()
        measured([*nobody, "--assume-tokens", "--json"])
        starts.append(time.perf_counter() - before)
    print(f"start-up {sorted(starts)[10] * 1000:.1f} ms (median of 21)")


if __name__ == "__main__":
    main()
