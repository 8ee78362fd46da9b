#!/usr/bin/env bash
# LangChain: adding up a streamed tool call costs CPU in proportion to the square of its length, and soon more than the server's tokens take.
#
# Guessed: adding a chunk of four characters to a message costs the same at the start of an answer and at its end, for text and for the
#   arguments of a tool call.
# Happens (langchain-core 1.8.3, `message = message + chunk`, as its guide to streamed tool calls does): each sum parses all arguments so
#   far as JSON, character by character in Python. A chunk costs 0.1 ms in the mean of 250 tokens of arguments, 0.4 to 0.5 in the mean of
#   2,000, and in proportion more beyond: 4 ms for the last of 10,000. A chunk of text costs 0.01 ms at either length.
# Why it matters: agents write files through tool calls. At 10,000 tokens of arguments one stream of 100 tokens/s takes 40 % of a core, three
#   take one, and what waits for the client looks like the server's time per token. Gather chunks in a list and add them once.
# Takes ten seconds, 20 MB. Ratios of CPU time are compared.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check langchain-core==1.8.3
"$d/v/bin/python" - <<'PY'
import importlib.metadata, json, time
from langchain_core.messages import AIMessageChunk
print("langchain-core", importlib.metadata.version("langchain-core"))
def pieces(tokens):
    text = json.dumps({"path": "a.py", "content": "line of code = 1; " * (tokens * 4 // 18)})
    return [text[at : at + 4] for at in range(0, len(text), 4)]
def call(piece, name=None): return AIMessageChunk(content="", tool_call_chunks=[dict(name=name, args=piece, id=name and "1", index=0)])
def text(piece, name=None): return AIMessageChunk(content=piece)
def microseconds(chunk, tokens):
    """CPU for a token, the mean over the whole answer."""
    message, chunks = chunk("", "write"), [chunk(piece) for piece in pieces(tokens)]
    start = time.process_time()
    for added in chunks: message = message + added
    spent = time.process_time() - start
    if chunk is call: assert message.tool_calls[0]["args"]["path"] == "a.py", message.tool_calls
    return 1e6 * spent / len(chunks)
microseconds(call, 100), microseconds(text, 100)
cost = {(chunk.__name__, tokens): min(microseconds(chunk, tokens) for _ in range(2)) for chunk in (call, text) for tokens in (250, 2000)}
for (kind, tokens), spent in cost.items(): print(f"{kind} of {tokens} tokens: {spent:.0f} us of CPU a token")
assert cost["call", 2000] > 3 * cost["call", 250], cost
assert cost["text", 2000] < 2 * cost["text", 250], cost
PY
echo "as stated"
