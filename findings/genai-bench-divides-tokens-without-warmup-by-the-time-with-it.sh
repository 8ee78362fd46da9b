#!/usr/bin/env bash
# genai-bench: with --warmup-ratio and --cooldown-ratio the token throughputs leave out those requests but not their time.
#
# Guessed: requests of warm-up and cool-down and the seconds they took are both left out; on a perfectly even load the
#   ratios change nothing.
# Happens (genai-bench 0.0.5, AggregatedMetricsCollector): tokens are summed over the middle requests only, and divided by the whole
#   duration of the run. 100 equal requests in 10 s, 91 output tokens each: 910 tokens/s without ratios, 728 with 0.1 and 0.1, 546 with
#   0.2 and 0.2: minus 40 %. Input and total throughput likewise. requests_per_second counts all requests, 10.0 in each case,
#   so the same file says 10 requests/s of 91 tokens and 546 tokens/s. Latencies are those of the middle, as meant.
# Why it matters: the options make a server look slower the more carefully it is measured; two runs with different ratios, or one
#   beside another client, are not comparable, and tokens/s per GPU out of these files is low by the sum of the ratios.
# Takes half a minute, 60 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-deps genai-bench==0.0.5
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts numpy==2.3.5 pydantic rich gevent
"$d/v/bin/python" - <<'PY'
import importlib.metadata
from genai_bench.metrics.aggregated_metrics_collector import AggregatedMetricsCollector
from genai_bench.metrics.metrics import RequestLevelMetrics
print("genai-bench", importlib.metadata.version("genai-bench"))
def run(warmup, cooldown):
    collector = AggregatedMetricsCollector()
    for _ in range(100):
        collector.add_single_request_metrics(RequestLevelMetrics(
            ttft=0.1, e2e_latency=1.0, output_latency=0.9, tpot=0.01, output_inference_speed=100, num_input_tokens=1000, num_output_tokens=91,
            total_tokens=1091, input_throughput=1e4, output_throughput=100, num_reasoning_tokens=0))
    collector.aggregate_metrics_data(0.0, 10.0, warmup, cooldown)
    answer = collector.aggregated_metrics
    return answer.requests_per_second, answer.mean_output_throughput_tokens_per_s, answer.mean_input_throughput_tokens_per_s
stated = {(None, None): (10.0, 910.0, 10000.0), (0.1, 0.1): (10.0, 728.0, 8000.0), (0.2, 0.2): (10.0, 546.0, 6000.0)}
for ratios, wanted in stated.items():
    found = run(*ratios)
    print("warm-up, cool-down", ratios, "requests/s", found[0], "output tokens/s", found[1], "input tokens/s", found[2])
    assert all(abs(a - b) < 1e-6 for a, b in zip(found, wanted)), (found, wanted)
print("as stated")
PY
