#!/usr/bin/env bash
# Ray Serve: with its defaults the router for prefix caches sends every prompt that opens with the same system prompt to one of four replicas.
#
# Guessed: a router that weighs prefix caches against load keeps four replicas about equally busy, whether prompts share their opening
#   or not.
# Happens (ray 2.60.0, PrefixCacheAffinityRouter, 12 users, 48 requests of half a second): prompts that share nothing are spread. Prompts
#   that share a system prompt of 29 % of their text all go to one replica: 48, 0, 0, 0. A match of a tenth of the text decides, and
#   imbalanced_threshold, the difference of queues from which load counts, is infinite by default. With imbalanced_threshold = 5 all
#   four serve; Ray's default router is beside it.
# Why it matters: a system prompt, tools or a few-shot opening are shared by all of an application's requests, and it is for them that one
#   turns this router on. The fleet has the throughput of one replica until that one's max_ongoing_requests are in flight; time to
#   first token, not utilization, shows it first.
# Takes two minutes, 250 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check "ray[serve]==2.60.0"
export RAY_USAGE_STATS_ENABLED=0 RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S=5 RAY_SERVE_MAX_QUEUE_LENGTH_RESPONSE_DEADLINE_S=5
"$d/v/bin/python" - <<'PY'
import asyncio, collections, logging, threading
import ray
from ray import serve
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import PrefixCacheAffinityRouter
from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve.config import RequestRouterConfig
print("ray", ray.__version__)
class Prompt:
    def __init__(self, prompt): self.prompt = prompt
ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
logging.getLogger("ray.serve").setLevel(logging.ERROR)
def started(name, router, settings):
    config = RequestRouterConfig(request_router_class=router, request_router_kwargs=settings)
    @serve.deployment(num_replicas=4, max_ongoing_requests=100, ray_actor_options={"num_cpus": 0}, request_router_config=config)
    class Model:
        async def __call__(self, request):
            await asyncio.sleep(0.5)
            return str(serve.get_replica_context().replica_id)
    return serve.run(Model.bind(), name=name, route_prefix=None)
def served(handle, prompts, users):
    """Requests of each replica, the most first."""
    left, lock, replicas = iter(prompts), threading.Lock(), []
    def user():
        while True:
            with lock: prompt = next(left, None)
            if prompt is None: return
            replicas.append(handle.remote(Prompt(prompt)).result())
    threads = [threading.Thread(target=user) for _ in range(users)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    counts = sorted(collections.Counter(replicas).values(), reverse=True)
    return counts + [0] * (4 - len(counts))
system = "You are the assistant of a bank. " * 30
questions = [f"{i} asks: " + f"what is the rate of account {i}? " * 80 for i in range(48)]
print(f"share of the system prompt: {len(system) / len(system + questions[10]):.0%}")
share = {}
for name, router, settings in (
    ("default-router", PowerOfTwoChoicesRequestRouter, {}),
    ("prefix-router", PrefixCacheAffinityRouter, {}),
    ("prefix-router-threshold-5", PrefixCacheAffinityRouter, {"imbalanced_threshold": 5}),
):
    handle = started(name, router, settings)
    served(handle, ["A first prompt opens the connections."] * 8, 1)
    for load, opening in (("nothing shared", ""), ("a shared system prompt", system)):
        counts = served(handle, [opening + question for question in questions], 12)
        share[name, load] = counts[0] / sum(counts)
        print(f"{name}, {load}: {counts}", flush=True)
    serve.delete(name)
assert share["prefix-router", "a shared system prompt"] == 1.0, share
assert share["prefix-router", "nothing shared"] < 0.7, share
assert share["default-router", "a shared system prompt"] < 0.5, share
assert share["prefix-router-threshold-5", "a shared system prompt"] < 0.8, share
serve.shutdown(); ray.shutdown()
print("as stated")
PY
