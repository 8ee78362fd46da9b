#!/usr/bin/env bash
# MLPerf LoadGen: with token latencies, an answer of one token has a negative time per output token, a mean of years, and passes the target.
#
# Guessed: an answer of one token has no time per output token and is left out of its statistics, or counts as 0; its token counts in
#   the throughput.
# Happens (mlcommons-loadgen 6.0.17, Server scenario, use_token_latencies): such an answer stays among the values, as minus 0.01 to 5 ms, so
#   that percentiles come out negative, and the mean is an unsigned sum: 60 answers of one token have a mean of
#   307,445,734,560,690,000 ns, 2^64 / 60, that is 9.7 years. "Performance constraints satisfied" is Yes, "Completed tokens per second"
#   0.00 (the token of such an answer does not count); the detail log, not the summary, has an error for each ("Number of tokens
#   need to be greater than 1"). Half of the answers with one token, half with 11 at 10 ms each: mean 4.5 ms, where every
#   answer that has such a time took 10.
# Why it matters: in workloads with yes/no answers, classifiers or early stops the percentiles of the time per token, by which the run
#   is judged, are diluted with negative values: with 99 % such answers a server as slow as one likes meets its TPOT.
# A stub answers after stated times. 1 MB, about 15 seconds.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check mlcommons-loadgen==6.0.17
cat > "$d/t.py" <<'PY'
import array, heapq, importlib.metadata, re, sys, threading, time
from pathlib import Path
import mlperf_loadgen as loadgen
print("mlcommons-loadgen", importlib.metadata.version("mlcommons-loadgen"))
def run(folder, answer):
    """Runs 60 requests; answer(n) gives seconds to the first token, to the end, and the tokens of the n-th."""
    folder = Path(folder); folder.mkdir()
    queue, changed, ended, count = [], threading.Condition(), [], [0]
    text = array.array("B", [0] * 4); address = text.buffer_info()[0]
    def issue(samples):
        now = time.perf_counter()
        for sample in samples:
            count[0] += 1
            first, last, tokens = answer(count[0])
            with changed:
                heapq.heappush(queue, (now + first, 0, sample.id, tokens)); heapq.heappush(queue, (now + last, 1, sample.id, tokens)); changed.notify()
    def serve():
        while not ended:
            with changed:
                wait = queue[0][0] - time.perf_counter() if queue else 0.05
                if wait > 0: changed.wait(wait); continue
                _, last, sample, tokens = heapq.heappop(queue)
            (loadgen.QuerySamplesComplete if last else loadgen.FirstTokenComplete)([loadgen.QuerySampleResponse(sample, address, 4, tokens)])
    thread = threading.Thread(target=serve); thread.start()
    system, library = loadgen.ConstructSUT(issue, lambda: None), loadgen.ConstructQSL(100, 100, lambda _: None, lambda _: None)
    settings, log = loadgen.TestSettings(), loadgen.LogSettings()
    settings.scenario, settings.mode = loadgen.TestScenario.Server, loadgen.TestMode.PerformanceOnly
    settings.server_target_qps, settings.min_duration_ms, settings.min_query_count = 20, 2000, 60
    settings.use_token_latencies, settings.ttft_latency, settings.tpot_latency = True, 200_000_000, 100_000_000
    output = loadgen.LogOutputSettings(); output.outdir, output.copy_summary_to_stdout = str(folder), False
    log.log_output, log.enable_trace = output, False
    loadgen.StartTestWithLogSettings(system, library, settings, log)
    ended.append(True); thread.join(); loadgen.DestroyQSL(library); loadgen.DestroySUT(system)
    summary, detail = (folder / "mlperf_log_summary.txt").read_text(), (folder / "mlperf_log_detail.txt").read_text()
    value = lambda name: float(re.search(re.escape(name) + r" *(?:\(ns\))? *: *(-?[\d.]+)", summary).group(1))
    passed = "Performance constraints satisfied : Yes" in summary
    found = {name: value(name) for name in ("Mean Time per Output Token", "Min Time per Output Token", "50.00 percentile time to output token", "99.00 percentile time to output token", "Completed tokens per second")}
    for name, number in found.items(): print(f"  {name}: {number:,.0f}")
    print("  passed:", passed, " errors in the detail log:", detail.count("Number of tokens need to be greater than 1"), " in the summary:", summary.count("greater than 1"))
    return found, passed, count[0]
print("60 answers of one token:")
found, passed, count = run(sys.argv[1] + "/one", lambda n: (0.05, 0.051, 1))
assert passed and found["Mean Time per Output Token"] > 1e17 and found["99.00 percentile time to output token"] < 0 and found["Completed tokens per second"] == 0
print("half of one token, half of 11 tokens at 10 ms:")
found, passed, count = run(sys.argv[1] + "/half", lambda n: (0.05, 0.051, 1) if n % 2 else (0.05, 0.15, 11))
assert passed and found["Min Time per Output Token"] < 0 and 3e6 < found["Mean Time per Output Token"] < 6e6
print("all of 11 tokens:")
usual, passed, count = run(sys.argv[1] + "/usual", lambda n: (0.05, 0.15, 11))
assert passed and 9e6 < usual["50.00 percentile time to output token"] < 12e6
print("as stated")
PY
"$d/v/bin/python" "$d/t.py" "$d"
