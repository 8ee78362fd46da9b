#!/usr/bin/env bash
# httpx: a request costs several times as much CPU with 1,000 requests in flight as with 10, so that a load generator on it measures itself.
#
# Guessed: an asynchronous client's CPU for each request is about the same at any concurrency; 1,000 users that wait half a second for each
#   answer are 2,000 requests/s, or what one core gives at the cost of a request.
# Happens (httpx 0.28.1, httpcore 1.0.9, limits lifted, connections open already): each arrival and each end walks all connections and
#   requests of the pool. CPU of the client for each request, in two runs: 1.3 to 1.4 ms with 10 in flight, 8 to 13 with 100, 10 to 17
#   with 1,000; aiohttp 3.14.3 beside it: 0.1 to 0.2 ms with 10 as with 1,000.
# Why it matters: clients of OpenAI and Anthropic, LiteLLM and most load generators in Python stand on httpx. With 1,000 users one
#   process of this client ends at 60 to 100 requests/s; what is above waits in the client, and is reported as the server's time to
#   first token. Split users over processes of at most some tens, and compare with a server that answers at once.
# Takes a minute, 20 MB. Ratios of CPU time are compared, never wall-clock time.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check httpx==0.28.1 httpcore==1.0.9 aiohttp==3.14.3
"$d/v/bin/python" - <<'PY'
import asyncio, importlib.metadata, multiprocessing, time
import aiohttp, httpx
for package in ("httpx", "httpcore", "aiohttp"): print(package, importlib.metadata.version(package))
def serve(ready):
    async def handle(reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.5)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError): pass
        finally: writer.close()
    async def main():
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=4096)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(main())
here, there = multiprocessing.Pipe()
server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
server.start()
url = f"http://127.0.0.1:{here.recv()}/"
async def milliseconds(get, users, requests):
    """CPU of this process for a request, over connections that are open already."""
    async def round_of(count):
        left = [count]
        async def user():
            while left[0] > 0:
                left[0] -= 1
                await get()
        await asyncio.gather(*(user() for _ in range(users)))
    await round_of(users)
    start = time.process_time()
    await round_of(requests)
    return 1e3 * (time.process_time() - start) / requests
async def main():
    cost = {}
    for users in (10, 100, 1000):
        requests = max(100, users)
        async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)) as client:
            async def get(): (await client.get(url)).raise_for_status()
            cost["httpx", users] = await milliseconds(get, users, requests)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async def get():
                async with session.get(url) as answer: await answer.read()
            cost["aiohttp", users] = await milliseconds(get, users, requests)
        print(f"{users} in flight: httpx {cost['httpx', users]:.2f} ms of CPU a request, aiohttp {cost['aiohttp', users]:.2f} ms")
    assert cost["httpx", 1000] > 3 * cost["httpx", 10], cost
    assert cost["aiohttp", 1000] < 2 * cost["aiohttp", 10], cost
    assert cost["httpx", 1000] > 5 * cost["aiohttp", 1000], cost
asyncio.run(main())
print("as stated")
PY
