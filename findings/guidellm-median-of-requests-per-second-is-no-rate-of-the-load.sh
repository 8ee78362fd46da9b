#!/usr/bin/env bash
# GuideLLM: median and percentiles of "requests per second" and "output tokens per second" measure the gaps between events, not the load.
#
# Guessed: the mean of requests_per_second is requests over time, and its median is close to it under a steady load.
# Happens (guidellm 0.8.1, DistributionSummary.rate_distribution_from_timings): each event gets the rate 1 / (half of the gaps beside it),
#   weighted by that time. The mean is right. Poisson events at 10/s: mean 10.0, but median 7.6, p99 45, standard deviation 10,
#   however long the run is and however steady the load: by theory the median is 2 / 2.674 = 0.748 of the mean, p99 2 / 0.436 = 4.6 times.
#   Tokens come in bursts, one a step: 64 sequences, a step of 20 ms whose 64 tokens arrive within 2 ms: mean 3,200 tokens/s, median
#   438 (a seventh), p99 32,000.
# Why it matters: the console shows the mean, the report (JSON, CSV) all of them; "p50 output tokens per second" out of a report
#   understates a server by a quarter to several times, more the larger the batch is; percentiles of throughput there say nothing of dips.
# Takes half a minute, 40 MB (no torch: only the statistics are imported).
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-deps guidellm==0.8.1
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts numpy==2.3.5 pydantic==2.13.4 pydantic-settings pyyaml loguru
"$d/v/bin/python" -W ignore - <<'PY'
import importlib.metadata
import numpy as np
from guidellm.schemas.base.statistics import DistributionSummary
print("guidellm", importlib.metadata.version("guidellm"))
def show(name, times):
    rate = DistributionSummary.rate_distribution_from_timings(list(times))
    print(f"{name}: mean {rate.mean:.1f} median {rate.median:.1f} p99 {rate.percentiles.p99:.1f} standard deviation {rate.std_dev:.1f}")
    return rate
poisson = show("Poisson, 10 requests/s, 20,000 requests", np.cumsum(np.random.default_rng(1).exponential(0.1, 20000)))
assert abs(poisson.mean - 10) < 0.3 and abs(poisson.median / poisson.mean - 0.748) < 0.03 and 4.1 < poisson.percentiles.p99 / poisson.mean < 5.1
bursts = show("64 sequences, steps of 20 ms", [0.020 * step + 0.002 * sequence / 64 for step in range(1000) for sequence in range(64)])
assert abs(bursts.mean - 3200) < 32 and abs(bursts.median - 438) < 10 and bursts.percentiles.p99 > 30000
print("as stated")
PY
