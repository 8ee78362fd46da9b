#!/usr/bin/env bash
# vLLM Semantic Router's fleet simulator: a GPU is offered 100 times what its own profile can serve, and no request waits.
#
# Guessed: at twice the throughput that a GPU's profile states the simulated queue grows without end, as it does in the package's formula
#   for the number of GPUs.
# Happens (vllm-sr-sim 0.1.0.dev20260713123629, Fleet with one A100_80GB of its catalog, prompts of 2,000 tokens, answers of 500):
#   profile.throughput says 7.6 requests/s, which is 128 slots over 16.8 s of service. In the simulation a request holds one of the 128
#   slots for its service time divided by 128, so that the GPU serves 128 × 7.6 = 970/s. At 0.5, 2, 32 and 100 times 7.6/s nobody waits
#   a millisecond, p99 of TTFT is 35 to 128 ms, and "served" is what was offered.
# Why it matters: "what if" runs of a fleet, its routers and its SLO compliance show no queue at any load worth asking about; only the analytic
#   part of a report limits the number of GPUs. Check a simulator of capacity at twice what it says it can serve: it must fail there.
# Takes half a minute, 1 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-deps vllm-sr-sim==0.1.0.dev20260713123629
"$d/v/bin/python" - <<'PY'
import importlib.metadata, random
from fleet_sim import A100_80GB, Fleet, FleetConfig, PoolConfig, Request
print("vllm-sr-sim", importlib.metadata.version("vllm-sr-sim"))
context, prompt, output = 8192, 2000, 500
slots, stated = A100_80GB.n_slots(context), A100_80GB.throughput(context, prompt, output)
service = A100_80GB.service_time(prompt, output, context)
print(f"{A100_80GB.name}: {slots} slots, {service:.1f} s a request, so {stated:.1f} requests/s")
assert slots == 128 and abs(stated - slots / service) < 1e-9
for times in (0.5, 2, 32, 100):
    draws, now, load = random.Random(0), 0.0, []
    for number in range(4000):
        now += draws.expovariate(times * stated)
        load.append((now, Request(req_id=number, arrival_time=now, l_in=prompt, l_out=output)))
    seen = Fleet(FleetConfig(pools=[PoolConfig(pool_id="one", gpu=A100_80GB, n_gpus=1, max_ctx=context)])).run(load)
    offered, served, wait, ttft = 4000 / now, seen.throughput(), seen.p99_queue_wait_ms(), seen.p99_ttft_ms()
    print(f"{times} times that: offered {offered:.1f}/s, served {served:.1f}/s, p99 of waiting {wait:.1f} ms, of TTFT {ttft:.0f} ms")
    # a queue that serves 7.6/s of 760/s keeps the last of 4,000 requests waiting for 520 s
    assert served > 0.9 * offered and wait < 1 and ttft < 200, (times, served, wait, ttft)
print("as stated")
PY
