#!/usr/bin/env bash
# Runpod's worker: with N jobs at once it starts at most about N jobs a second, and a change of N by one waits until the batch is empty.
#
# Guessed: concurrency 8 and jobs of 0.3 s give 8 / 0.3 = 27 jobs/s less some overhead; a concurrency_modifier that goes from 8 to 7
#   takes one job less from then on.
# Happens (runpod 1.12.0, serverless JobScaler): a worker that is full looks again a second later, so that slots that become free in that
#   second stay empty: 8 jobs/s, 30 % of the slots in work. With jobs of 2 s on average (exponential) 76 % of them. To change
#   the concurrency it takes no job until all jobs have ended: between 7 and 8 every ten looks half of the slots are in work.
# Why it matters: behind the handler is an engine with continuous batching; its batch is what this loop leaves of it. Short answers
#   (embeddings, classifiers, a hundred tokens) are bounded by the loop at N a second however fast the GPU; a modifier
#   that follows the load, as the documentation shows one, empties the batch at each step. Keep N fixed and above what the engine runs at once.
# The worker's own loop with a source of jobs that never lacks any and a handler that sleeps. Takes a minute and a half, 150 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check runpod==1.12.0
"$d/v/bin/python" - <<'PY'
import asyncio, importlib.metadata, random, time
from runpod.serverless.modules.rp_logger import RunPodLogger
from runpod.serverless.modules.rp_scale import JobScaler
print("runpod", importlib.metadata.version("runpod"))
RunPodLogger().set_level("ERROR")
def trial(seconds_of_a_job, concurrency, length=15.0):
    """Jobs that ended in a second, and the mean share of eight slots in work."""
    ended, running, samples, made = [], 0, [], 0
    async def fetch(session, wanted):
        nonlocal made
        await asyncio.sleep(0.01)
        made += wanted
        return [{"id": str(number), "input": {}} for number in range(made - wanted, made)]
    async def handle(session, config, job):
        nonlocal running
        running += 1
        await asyncio.sleep(seconds_of_a_job())
        running -= 1
        ended.append(time.monotonic())
    async def none(session):
        await asyncio.sleep(0.5)
        return []
    scaler = JobScaler({"jobs_fetcher": fetch, "jobs_handler": handle, "stop_signals_fetcher": none, "concurrency_modifier": concurrency})
    async def watch():
        end = time.monotonic() + length
        while time.monotonic() < end:
            samples.append(running)
            await asyncio.sleep(0.02)
        scaler.kill_worker()
        return end
    async def both(): return (await asyncio.gather(scaler.run(), watch()))[1]
    end = asyncio.run(both())
    return sum(at < end for at in ended) / length, sum(samples) / len(samples) / 8
draws, looks = random.Random(1), 0
def wavering(current):
    global looks
    looks += 1
    return 8 if looks // 10 % 2 == 0 else 7
rate, share = trial(lambda: 0.3, lambda current: 8)
print(f"jobs of 0.3 s, 8 at once: {rate:.1f} a second where 26.7 are possible; {share:.0%} of the slots in work")
assert 6.5 < rate < 9.5 and share < 0.4, (rate, share)
rate, steady = trial(lambda: draws.expovariate(0.5), lambda current: 8)
print(f"jobs of 2 s on average, 8 at once: {rate:.1f} a second where 4 are possible; {steady:.0%}")
rate, share = trial(lambda: draws.expovariate(0.5), wavering)
print(f"the same between 7 and 8 at once: {rate:.1f} a second where 3.75 are possible; {share:.0%}")
assert 0.65 < steady < 0.9 and share < steady - 0.12, (steady, share)
print("as stated")
PY
