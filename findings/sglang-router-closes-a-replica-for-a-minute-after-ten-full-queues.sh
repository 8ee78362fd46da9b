#!/usr/bin/env bash
# sglang-router: two replicas whose queues are full for two seconds mean a minute of 503 from the router, with both replicas idle.
#
# Guessed: a replica's 429 (queue full) says "later": the router tries the other one, hands the 429 to the client if that is full, too,
#   and goes on as soon as there is room. Circuit breakers count broken replicas.
# Happens (sglang-router 0.3.2, its defaults): a 429 counts as a failure of the circuit breaker, like 503, which SGLang itself gives
#   with --max-queued-requests; each request is tried up to 5 times more, so that four requests make the 20 failures that close
#   two replicas. From then on every request is answered at once with 503 "all circuits open", for 60 s, whatever the replicas say.
#   vllm-router 0.1.17 does the same with 503, and keeps its replicas with 429: there requests succeed 0.2 s after the queues have room.
# Why it matters: a bound on the queue is the usual means to keep latency under overload. Behind these routers a burst that fills it for
#   two seconds costs a minute of the whole fleet, and a single full replica sends its load to the others for a minute, which fills
#   them. Size the bound or set --disable-circuit-breaker; measure overload through the router, not at the engine.
# Takes a minute and a half, 60 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check sglang-router==0.3.2 vllm-router==0.1.17
cd "$d" && "$d/v/bin/python" - <<'PY'
import asyncio, importlib.metadata, json, socket, subprocess, sys, time
for package in ("sglang-router", "vllm-router"): print(package, importlib.metadata.version(package))
def free_port():
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); return s.getsockname()[1]
MODEL = json.dumps({"object": "list", "data": [{"id": "m"}], "model_path": "m", "served_model_name": "m", "model_id": "m"}).encode()
ANSWER = json.dumps({"id": "x", "object": "text_completion", "created": 1, "model": "m", "choices": [{"index": 0, "text": "t", "finish_reason": "stop"}]}).encode()
class Replica:
    """An engine that answers at once, or says that its queue is full."""
    status, tries = 200, 0
    async def handle(self, reader, writer):
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                lines = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(lines[0].split(":")[1]) if lines else 0)
                asked = "/v1/completions" in head.split("\r\n")[0]
                self.tries += asked
                status, body = (self.status, ANSWER if self.status == 200 else b'{"error":"queue full"}') if asked else (200, MODEL)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, IndexError): pass
        finally: writer.close()
async def ask(port):
    body = b'{"model":"m","prompt":"hello","max_tokens":1}'
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return int(answer.split()[1])
async def trial(module, status):
    """Answers while both replicas are full, and seconds without service after that."""
    replicas, port = [Replica(), Replica()], free_port()
    servers = [await asyncio.start_server(replica.handle, "127.0.0.1", 0) for replica in replicas]
    urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    router = subprocess.Popen([sys.executable, "-m", f"{module}.launch_router", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port",
        str(free_port()), "--policy", "round_robin", "--worker-urls", *urls], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                if await ask(port) == 200: break
            except OSError: pass
            await asyncio.sleep(0.25)
        for replica in replicas: replica.status, replica.tries = status, 0
        full = [await ask(port) for _ in range(6)]
        tries = sum(replica.tries for replica in replicas)
        for replica in replicas: replica.status = 200
        start = time.monotonic()
        while await ask(port) != 200 and time.monotonic() - start < 80: await asyncio.sleep(0.5)
        lost = time.monotonic() - start
        print(f"{module}, queues full ({status}): six requests are {tries} tries, answered {full}; room again: service after {lost:.1f} s")
        return lost
    finally:
        router.terminate(); router.wait()
        for server in servers: server.close()
async def main():
    cases = [("sglang_router", 429), ("sglang_router", 503), ("vllm_router", 429), ("vllm_router", 503)]
    lost = await asyncio.gather(*(trial(*case) for case in cases))
    assert all(50 < seconds < 70 for case, seconds in zip(cases, lost) if case != ("vllm_router", 429)), lost
    assert lost[2] < 5, lost
asyncio.run(main())
print("as stated")
PY
