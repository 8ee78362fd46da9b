#!/usr/bin/env bash
# SkyServe: a load 5 % above the replicas' target gets its replica after an hour, not after the delay of five minutes: one quiet minute starts the count anew.
#
# Guessed: a target of 1 request/s for each replica, a window of 60 s and an upscale delay of 300 s mean that a load that stays
#   above the target gets its replica after about five minutes, with some noise.
# Happens (skypilot 0.14.1, RequestRateAutoscaler, its defaults): a tick every 20 s rounds up requests of the last 60 s; 15 ticks in a
#   row must ask for more than there is. A tick that asks for what there is sets the count to 0. With Poisson arrivals on one
#   replica of 1 request/s, median of 60 runs (9 of 10 runs): 5.3 minutes (5.7) at 1.5 times the target, 7 (14) at 1.2, 20 (55) at
#   1.1, 68 (216) at 1.05. Four replicas at 1.05: 24 (61). The 15th tick alone decides how many are ordered.
# Why it matters: overload by a tenth is what fills a queue without end, and LLM replicas take minutes more to load. The delay that
#   one sets is a lower bound; what one gets depends on load over target and on its variance. Set the target 20 to 30 % low.
# The autoscaler's file runs as it is, with stubs for logging and the database, on a made-up clock. Takes half a minute, 5 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-deps skypilot==0.14.1
"$d/v/bin/python" - <<'PY'
import ast, importlib.metadata, logging, random, statistics, sys, types
from pathlib import Path
package = Path(importlib.metadata.distribution("skypilot").locate_file("sky/serve"))
print("skypilot", importlib.metadata.version("skypilot"))
logging.disable(logging.CRITICAL)
def module(name, **keys):
    made = types.ModuleType(name); made.__dict__.update(keys); sys.modules[name] = made
    if "." in name: setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], made)
    return made
module("sky"); module("sky.sky_logging", init_logger=logging.getLogger); module("sky.jobs"); module("sky.jobs.state"); module("sky.serve")
constants = module("sky.serve.constants")
for node in ast.parse((package / "constants.py").read_text()).body:
    if isinstance(node, ast.Assign) and node.targets[0].id.startswith(("AUTOSCALER", "INITIAL")):
        exec(compile(ast.Module([node], []), "constants.py", "exec"), constants.__dict__)
module("sky.serve.serve_state"); module("sky.serve.serve_utils", DEFAULT_UPDATE_MODE=None, UpdateMode=types.SimpleNamespace(ROLLING=1))
autoscalers = module("autoscalers")
exec(compile((package / "autoscalers.py").read_text(), "autoscalers.py", "exec"), autoscalers.__dict__)
clock = [0.0]
autoscalers.time = types.SimpleNamespace(time=lambda: clock[0])
spec = types.SimpleNamespace(min_replicas=1, max_replicas=100, num_overprovision=None, target_qps_per_replica=1.0, upscale_delay_seconds=None, downscale_delay_seconds=None)
def minutes(rate, replicas, seed):
    draws, scaler, start = random.Random(seed), autoscalers.RequestRateAutoscaler("service", spec), 1000.0
    scaler.target_num_replicas, clock[0], arrival = replicas, start, start
    while scaler.target_num_replicas == replicas:
        clock[0] += constants.AUTOSCALER_DEFAULT_DECISION_INTERVAL_SECONDS
        arrivals = []
        while arrival < clock[0]:
            arrivals.append(arrival); arrival += draws.expovariate(rate)
        scaler.collect_request_information({"timestamps": arrivals})
        scaler._set_target_num_replicas_with_hysteresis()
    return (clock[0] - start) / 60
assert autoscalers.RequestRateAutoscaler("service", spec).scale_up_threshold == 15
#         rate, replicas: bounds of the median, in minutes
stated = {(2.0, 1): (5, 6), (1.5, 1): (5, 7), (1.2, 1): (5.4, 10), (1.1, 1): (12, 35), (1.05, 1): (40, 120), (4.2, 4): (14, 40)}
for (rate, replicas), (low, high) in stated.items():
    times = sorted(minutes(rate, replicas, seed) for seed in range(60))
    print(f"{rate} requests/s on {replicas} replica(s) of 1/s: one more after {statistics.median(times):.1f} minutes (median), {times[53]:.1f} (9 of 10 runs)")
    assert low <= statistics.median(times) <= high, (rate, replicas, times)
print("as stated")
PY
