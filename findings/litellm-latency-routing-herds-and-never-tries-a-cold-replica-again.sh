#!/usr/bin/env bash
# LiteLLM: "latency-based-routing" puts nearly all requests in flight on one replica at a time, and one slow answer excludes a replica for an hour.
#
# Guessed: the average of the last ten answers steers the load, so that equal replicas share it about evenly at any time, and a
#   replica that was slow once, as after a cold start, is tried again soon.
# Happens (litellm 1.110.2, lowest_latency): the lowest average gets each request; requests in flight are not seen, nothing explores.
#   24 users in a closed loop on three equal replicas whose answers take 1 s + 0.1 s for each request in flight there: over
#   the run each replica gets a third, but at any time about 20 of 24 requests are on ONE replica (8 if even), and answers take 2.7 s
#   instead of 1.8: the crowd moves when answers come back. A replica whose first answer took 30 s has an average of 30 s
#   of ONE sample: 1 of 3,000 requests. All samples are forgotten together when the map expires, an hour (ttl) after its first
#   entry, and then it may be tried.
# Why it matters: KV cache and batch of one replica carry the load of three, in turn; a replica added under load, or one that compiled
#   in its first request, stays idle for up to an hour. `lowest_latency_buffer` (0) spreads among replicas within it, but does not bring
#   back the cold one.
# The router's own functions, fed with answers of stated duration; no server. One to three minutes (120 MB of downloads).
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-compile litellm==1.110.2
LITELLM_LOCAL_MODEL_COST_MAP=True "$d/v/bin/python" -W ignore - <<'PY'
import asyncio, collections, datetime, heapq, importlib.metadata, itertools
import litellm
print("litellm", importlib.metadata.version("litellm"))
start = datetime.datetime(2026, 1, 1)
def router():
    made = litellm.Router(routing_strategy="latency-based-routing", model_list=[
        {"model_name": "m", "litellm_params": {"model": "openai/x", "api_base": f"http://127.0.0.1:9/{i}", "api_key": "none"}, "model_info": {"id": f"replica {i}"}} for i in range(3)])
    return made.lowestlatency_logger, made.model_list
async def choose(strategy, replicas):
    return (await strategy.async_get_available_deployments("m", replicas, request_kwargs={"metadata": {}}))["model_info"]["id"]
async def answered(strategy, name, seconds):
    answer = litellm.ModelResponse(usage=litellm.Usage(prompt_tokens=10, completion_tokens=100, total_tokens=110))
    event = {"litellm_params": {"metadata": {"model_group": "m"}, "model_info": {"id": name}}, "stream": False}
    await strategy.async_log_success_event(event, answer, start, start + datetime.timedelta(seconds=seconds))
async def closed_loop(users, answers):
    strategy, replicas = router()
    flying, shares, busiest, latencies, order = collections.Counter(), collections.Counter(), [], [], itertools.count()
    events = [(0.05 * user, next(order), None, 0) for user in range(users)]           # time, order, replica that answers, its seconds
    while len(latencies) < answers:
        now, _, name, seconds = heapq.heappop(events)
        if name:
            flying[name] -= 1; latencies.append(seconds); await answered(strategy, name, seconds)
        name = await choose(strategy, replicas)
        flying[name] += 1; shares[name] += 1
        if len(latencies) > 200: busiest.append(max(flying.values()))
        heapq.heappush(events, (now + 1 + 0.1 * flying[name], next(order), name, 1 + 0.1 * flying[name]))
    return shares, sum(busiest) / len(busiest), sum(latencies) / len(latencies)
async def main():
    shares, busiest, latency = await closed_loop(24, 2000)
    print(f"24 users, three equal replicas: shares {sorted(shares.values())}, busiest replica has {busiest:.1f} of 24 in flight, mean answer {latency:.2f} s (even: 8, 1.80 s)")
    assert min(shares.values()) > 400 and busiest > 16 and latency > 2.3
    strategy, replicas = router()
    sent = collections.Counter()
    for _ in range(3000):
        name = await choose(strategy, replicas)
        await answered(strategy, name, 30.0 if name == "replica 1" else 1.0)
        sent[name] += 1
    print("3,000 requests in turn, the first answer of one replica took 30 s:", dict(sent))
    assert sent["replica 1"] == 1, sent
    print("as stated")
asyncio.run(main())
PY
