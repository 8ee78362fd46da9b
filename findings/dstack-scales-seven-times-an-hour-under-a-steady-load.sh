#!/usr/bin/env bash
# dstack: a steady Poisson load between two sizes scales a service up or down seven times an hour: the delays are pauses after a change, not how long a load must last.
#
# Guessed: with scale_down_delay 600 s (default) a replica goes when the load has been low for ten minutes, with scale_up_delay 300 s one
#   comes when it has been high for five, so that a steady load hardly changes anything. (The description says "minimum time between a
#   scaling event and the next decision", and that is meant literally.)
# Happens (dstack 0.22.5, RPSAutoscaler, its defaults): each look rounds up the requests of the last 60 s; if the last change of size is longer ago than
#   the delay, ONE look decides, up or down. Poisson requests at 9.5/s with a target of 1/s: the count of a minute (570 +- 24) is above
#   600 or below 541 in one look of five, so a change waits as soon as it may: 7 changes an hour for ever, replicas going
#   between 9, 10 and 11, and up to a tenth of the time (9.1/s: more than a quarter) fewer replicas than the load needs.
# Why it matters: each change loads or drops a model, minutes of a GPU, and a cold KV cache; the neighbour SkyServe errs the other way
#   with delays of the same names (see the finding). A longer window calms it: with 300 s 0.7 changes an hour.
# The autoscaler's own class on a made-up clock, a look every 10 s. Takes half a minute, 17 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-compile --no-deps dstack==0.22.5
"$d/v/bin/python" - <<'PY'
import collections, datetime, importlib.metadata, math, random, sys, types
from pathlib import Path
package = Path(importlib.metadata.distribution("dstack").locate_file("dstack/_internal"))
print("dstack", importlib.metadata.version("dstack"))
# the class's file as it is; stubs for the modules it imports
clock = [datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)]
common = types.ModuleType("dstack._internal.utils.common"); common.get_current_datetime = lambda: clock[0]
class Generic:
    def __class_getitem__(cls, _): return cls
for name, keys in {"dstack": {}, "dstack._internal": {}, "dstack._internal.utils": {"common": common}, "dstack._internal.core": {}, "dstack._internal.core.models": {},
                   "dstack._internal.core.models.configurations": {"DEFAULT_SCALING_WINDOW": 60, "ScalingSpec": object}, "dstack._internal.core.models.resources": {"Range": Generic},
                   "dstack._internal.proxy": {}, "dstack._internal.proxy.gateway": {}, "dstack._internal.proxy.gateway.schemas": {},
                   "dstack._internal.proxy.gateway.schemas.stats": {"PerWindowStats": dict}}.items():
    sys.modules[name] = types.ModuleType(name); sys.modules[name].__dict__.update(keys)
sys.modules["dstack._internal.utils.common"] = common
configurations = (package / "core/models/configurations.py").read_text()
assert "DEFAULT_SCALING_WINDOW = 60" in configurations
space = {"__name__": "autoscalers"}
exec(compile((package / "server/services/services/autoscalers.py").read_text(), "autoscalers.py", "exec"), space)
def run(rate, window, hours=24, seed=1):
    draws, start, need = random.Random(seed), clock[0], rate
    scaler = space["RPSAutoscaler"](min_replicas=1, max_replicas=100, target=1.0, window=window, scale_up_delay=300, scale_down_delay=600)
    replicas, changed, changes, short, looks, arrival, recent = math.ceil(rate), None, 0, 0, 0, 0.0, collections.deque()
    for now in range(10, hours * 3600, 10):
        clock[0] = start + datetime.timedelta(seconds=now)
        while arrival < now:
            recent.append(arrival); arrival += draws.expovariate(rate)
        while recent and recent[0] < now - window: recent.popleft()
        if now < window: continue
        wanted = scaler.get_desired_count(replicas, {window: types.SimpleNamespace(requests=len(recent))}, changed)
        if wanted != replicas: replicas, changed, changes = wanted, clock[0], changes + 1
        looks += 1; short += replicas < need
    return changes / hours, short / looks
for rate, window, low, high in ((9.5, 60, 6, 8), (9.1, 60, 6, 8.5), (19.5, 60, 6, 8.5), (9.5, 300, 0, 2)):
    changes, short = run(rate, window)
    print(f"{rate} requests/s, window {window} s: {changes:.1f} changes an hour, {100 * short:.0f} % of the time fewer replicas than the load needs")
    assert low <= changes <= high, (rate, window, changes)
print("as stated")
PY
