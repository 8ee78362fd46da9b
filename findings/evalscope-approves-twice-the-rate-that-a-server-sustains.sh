#!/usr/bin/env bash
# EvalScope: its search for the highest rate within an SLO selects 21 requests/s for a server that serves 10: each rate is tried for two seconds.
#
# Guessed: `--sla-auto-tune --sla-variable rate` finds the highest arrival rate at which the SLO holds; beyond what the server can serve,
#   its queue grows and p99 of time to first token fails.
# Happens (evalscope 1.14.1): a rate of R is tried with 2 R requests unless --sla-number-multiplier says otherwise, whatever R is: two
#   seconds. A server of 16 slots and answers of 1.6 s, 10 requests/s, is asked 2 seconds at 21/s, and the last of 42 requests waits less
#   than the 2 s of `p99_ttft <= 2s`. With 20 seconds a rate (--sla-number-multiplier 20) the same search selects 9 to 11.
# Why it matters: the selected rate is what one plans replicas with. The error grows with the SLO: the run must be long against the wait
#   that the SLO allows and against an answer, or the queue that decides has not formed. p99 of 42 requests is their slowest.
# The server is a timer, no GPU. Takes six minutes, most of it for the second search, 1.2 GB.
set -euo pipefail
d=$(mktemp -d); trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check "evalscope[perf]==1.14.1"
cat > "$d/server.py" <<'PY'
import asyncio, json, pathlib, sys
slots = asyncio.Semaphore(16)
def chunk(value):
    line = f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()
    return f"{len(line):x}\r\n".encode() + line + b"\r\n"
async def handle(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))
            async with slots:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                for token in range(16):
                    await asyncio.sleep(0.1)
                    choice = {"index": 0, "delta": {"role": "assistant", "content": "word "}, "finish_reason": "length" if token == 15 else None}
                    writer.write(chunk({"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}))
                    await writer.drain()
                usage = {"prompt_tokens": 4, "completion_tokens": 16, "total_tokens": 20}
                writer.write(chunk({"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage}) + chunk("[DONE]") + b"0\r\n\r\n")
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError): pass
    finally: writer.close()
async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
    pathlib.Path(sys.argv[1]).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()
asyncio.run(main())
PY
"$d/v/bin/python" "$d/server.py" "$d/port" & server=$!
until [ -s "$d/port" ]; do sleep 0.1; done
seq -f 'question number %g please' 4000 > "$d/questions.txt"
"$d/v/bin/python" -c 'import importlib.metadata; print("evalscope", importlib.metadata.version("evalscope"))'
selected() { # arguments -> the selected rate
  "$d/v/bin/evalscope" perf --url "http://127.0.0.1:$(cat "$d/port")/v1/chat/completions" --model m --api openai --stream \
    --dataset line_by_line --dataset-path "$d/questions.txt" --max-tokens 16 --no-test-connection --outputs-dir "$d/out" --sleep-interval 1 \
    --rate 4 --sla-auto-tune --sla-variable rate --sla-num-runs 1 --sla-params '[{"p99_ttft": "<=2s"}]' "$@" > "$d/log" 2>&1 || { cat "$d/log"; exit 1; }
  grep -E 'p99_ttft <= 2000 ms' "$d/log" | tail -1 | awk -F '│' '{ print $3 + 0 }'
}
short=$(selected); echo "two seconds a rate (default): $short requests/s selected; the server serves 10"
long=$(selected --sla-number-multiplier 20); echo "twenty seconds a rate: $long requests/s selected"
[ "$short" -ge 18 ] && [ "$long" -le 13 ] && echo "as stated"
