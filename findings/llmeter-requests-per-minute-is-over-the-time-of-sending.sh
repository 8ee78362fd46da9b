#!/usr/bin/env bash
# LLMeter: requests and input tokens per minute are divided by the time between the first and the last sending, many times too high where each user sends one request.
#
# Guessed: requests_per_minute is the number of requests over the duration of the run, at least for the closed loop that LLMeter runs.
# Happens (llmeter 0.2.0): count x 60 / (last request's start - first request's start). Twenty users with one request each, which is what
#   LoadTest runs for any level from 10 users on unless told otherwise (min_requests_per_client 1, min_requests_per_run 10), all start
#   within milliseconds: a server that takes 0.5 s to answer, and has answered 20 requests in 0.52 s, 2,300 a minute, was reported at
#   75,000, and its input tokens likewise. One user and ten requests: 10/9 of the truth. Output tokens per minute and
#   output_tps are over the run's duration and right, so input and output of one result do not fit each other.
# Why it matters: LoadTest draws throughput over users from it; the curve rises without a knee because the error grows with the users.
# A stub that sleeps instead of a server. Takes half a minute, 20 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-compile --no-deps llmeter==0.2.0 jmespath==1.1.0 tqdm==4.70.1 universal-pathlib==0.3.10 \
  fsspec==2026.1.0 pathlib-abc==0.5.2 boto3==1.44.8 botocore==1.44.8 s3transfer==0.19.3 python-dateutil==2.9.0.post0 six==1.17.0 urllib3==2.8.0
cat > "$d/t.py" <<'PY'
import asyncio, importlib.metadata, time
from llmeter.endpoints.base import Endpoint
from llmeter.runner import Runner
class Sleeper(Endpoint):
    def __init__(self): super().__init__("sleeper", "model", "none")
    @staticmethod
    def create_payload(*_, **__): return {}
    @Endpoint.llmeter_invoke
    def invoke(self, payload):
        time.sleep(0.5); return payload
    def process_raw_response(self, raw_response, start_t, response):
        response.response_text, response.num_tokens_input, response.num_tokens_output = "x", 10, 5
async def main():
    print("llmeter", importlib.metadata.version("llmeter"))
    ratios = {}
    for users, each in ((1, 10), (5, 2), (20, 1)):
        result = await Runner(endpoint=Sleeper()).run(payload={"a": 1}, clients=users, n_requests=each, progress_bar_stats={})
        stats, true = result.stats, 60 * result.total_requests / result.total_test_time
        ratios[users] = stats["requests_per_minute"] / true
        print(f"{users} users x {each}: {result.total_requests} requests in {result.total_test_time:.2f} s = {true:.0f}/min; reported {stats['requests_per_minute']:.0f}/min; "
              f"tokens/min in {stats['average_input_tokens_per_minute']:.0f} out {stats['average_output_tokens_per_minute']:.0f} (10 and 5 a request)")
        assert abs(stats["average_output_tokens_per_minute"] / (5 * true) - 1) < 0.1
    assert 1.05 < ratios[1] < 1.2 and ratios[20] > 3, ratios
    print("as stated")
asyncio.run(main())
PY
"$d/v/bin/python" "$d/t.py" 2> "$d/bars" > "$d/out" || { cat "$d/bars" "$d/out"; exit 1; }
tr '\r' '\n' < "$d/out" | grep -aoE '(llmeter 0|[0-9]+ users x|as stated).*'
