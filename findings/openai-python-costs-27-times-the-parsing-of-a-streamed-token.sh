#!/usr/bin/env bash
# openai (Python): each streamed chunk costs about 27 times the JSON parsing that it needs; one core of a client ends near 12,000 tokens/s.
#
# Guessed: the SDK's events and typed objects make a chunk about three times as dear as json.loads of its line.
# Happens (openai 3.57.0, a chat completion of 20,000 chunks of the smallest usual form, from memory, no network): 81 us of CPU a chunk by
#   the synchronous and 83 by the asynchronous client, 3.0 us by splitting lines and json.loads, 4.1 us by httpx's iter_lines and
#   json.loads (one core of a 2020s server; the ratios hardly depend on it): 27 times.
# Why it matters: 256 users at 50 tokens/s are 12,800 chunks/s, more than a core of that client reads. A load generator in one process
#   on this SDK then measures itself: chunks wait in the socket, time per token and TTFT grow with the client's backlog,
#   and the server looks saturated. Servers that join tokens into a chunk look faster for the same reason. Read raw lines,
#   use several processes, or watch the client's CPU.
# Takes about a minute, 20 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check openai==3.57.0 httpx==0.28.1
"$d/v/bin/python" -W ignore - <<'PY'
import asyncio, json, time
import httpx, openai
print("openai", openai.__version__, "httpx", httpx.__version__)
CHUNKS = 20000
line = "data: " + json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                              "choices": [{"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}]}) + "\n\n"
body = [line.encode()] * CHUNKS + [b"data: [DONE]\n\n"]
class Both(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __iter__(self): yield from body
    async def __aiter__(self):
        for part in body: yield part
respond = lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Both())
async def arespond(request): return respond(request)
ask = {"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True}
def content(text): return bool(text.startswith("data: ") and text != "data: [DONE]" and json.loads(text[6:])["choices"][0]["delta"].get("content"))
def lines(): return sum(content(text) for part in body for text in part.decode().split("\n"))
def httpx_lines():
    with httpx.Client(transport=httpx.MockTransport(respond)) as client, client.stream("POST", "http://127.0.0.1/v1", json=ask) as response:
        return sum(content(text) for text in response.iter_lines())
def sdk():
    client = openai.OpenAI(base_url="http://127.0.0.1/v1", api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(respond)))
    return sum(bool(chunk.choices[0].delta.content) for chunk in client.chat.completions.create(**ask))
def async_sdk():
    async def count():
        client = openai.AsyncOpenAI(base_url="http://127.0.0.1/v1", api_key="none", http_client=httpx.AsyncClient(transport=httpx.MockTransport(arespond)))
        return sum([bool(chunk.choices[0].delta.content) async for chunk in await client.chat.completions.create(**ask)])
    return asyncio.run(count())
def cost(read):
    best = float("inf")
    for _ in range(3):
        began = time.process_time(); seen = read(); best = min(best, time.process_time() - began)
        assert seen == CHUNKS, seen
    return best / CHUNKS * 1e6
costs = {name: cost(read) for name, read in {"json.loads of lines": lines, "httpx iter_lines": httpx_lines, "openai": sdk, "openai, asynchronous": async_sdk}.items()}
for name, microseconds in costs.items():
    print(f"{name:22} {microseconds:6.1f} us of CPU a chunk, {microseconds / costs['json.loads of lines']:4.1f} x, {1e6 / microseconds:9,.0f} chunks/s of a core")
ratio = costs["openai, asynchronous"] / costs["json.loads of lines"]
assert 12 < ratio < 60 and 12 < costs["openai"] / costs["json.loads of lines"] < 60 and costs["httpx iter_lines"] < 4 * costs["json.loads of lines"], costs
print("as stated")
PY
