#!/usr/bin/env bash
# Mistral's tokenizers up to v7 put the tools before the last question: each turn of a chat prefills them again, and with v2 and v3 the system prompt too.
#
# Guessed: system prompt and tools stand first, so that each turn's prompt extends the last one, and a prefix cache has all of it but
#   the new answer and question: about 95 % of a chat with 2,800 tokens of tools.
# Happens (mistral-common 1.13.1, the v2, v3 and v7 vocabularies in its wheel): [AVAILABLE_TOOLS] is written in front of the last user
#   message, wherever that is, and in v2 and v3 the system prompt is part of the last user message. The second turn of the chat below shares
#   1 token of its 3,493 with the first turn (v3), or 244 of 3,514, the system prompt (v7); the fifth 583 of 4,075 and 826 of 4,096. Steps
#   of an agent after one question extend the prompt as guessed: it is the question that moves the tools.
# Why it matters: an engine's prefix cache is asked about this order. A chat with tools has a hit rate of 8 to 20 % where the same chat
#   with a template that keeps them in front has 95 %, so prompts cost five to ten times as much, and a router by prefix finds no
#   replica. Size such chats by what the tokenizer's version shares, apart from the steps of agents.
# Takes half a minute, 60 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check "mistral-common[sentencepiece]==1.13.1"
"$d/v/bin/python" - <<'PY'
import importlib.metadata, json
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
print("mistral-common", importlib.metadata.version("mistral-common"))
text = {"type": "string"}
tools = [{"type": "function", "function": {
    "name": f"tool_{i}", "description": "Reads rows of a table and returns those that meet a condition, at most as many as asked for.",
    "parameters": {"type": "object", "required": ["table"], "properties": {
        key: {**text, "description": f"the {key} of the rows to read"} for key in ("table", "column", "condition", "order")}}}} for i in range(20)]
system = {"role": "system", "content": "You are a helpful analyst. " * 40}
def question(turn): return {"role": "user", "content": f"Question {turn}: how many rows are there? " * 10}
def answer(turn): return {"role": "assistant", "content": f"There are {turn} rows in the table. " * 10}
def call(step):
    called = {"id": f"call{step:05d}", "type": "function", "function": {"name": "tool_3", "arguments": json.dumps({"table": "t"})}}
    return {"role": "assistant", "content": "", "tool_calls": [called]}
def result(step): return {"role": "tool", "tool_call_id": f"call{step:05d}", "name": "tool_3", "content": "row, " * 50}
def shared(tokenizer, grow):
    """Tokens of each prompt after the first, and how many of them begin the prompt before it."""
    messages, before, rows = [system, question(0)], None, []
    for turn in range(5):
        tokens = tokenizer.encode_chat_completion(ChatCompletionRequest.from_openai(messages=messages, tools=tools)).tokens
        if before is not None:
            same = next((i for i, (a, b) in enumerate(zip(before, tokens)) if a != b), len(before))
            rows.append((len(tokens), same))
        before = tokens
        messages += grow(turn)
    return rows
kinds = {"v2": MistralTokenizer.v2(), "v3": MistralTokenizer.v3(is_tekken=True), "v7": MistralTokenizer.v7()}
stated = {"v2": ((3514, 1), (4096, 583)), "v3": ((3493, 1), (4075, 583)), "v7": ((3514, 244), (4096, 826))}
for name, tokenizer in kinds.items():
    chat = shared(tokenizer, lambda turn: [answer(turn), question(turn + 1)])
    agent = shared(tokenizer, lambda step: [call(step), result(step)])
    rate = sum(same for _, same in chat) / sum(tokens for tokens, _ in chat)
    print(f"{name}: turns of a chat, (tokens, shared with the turn before): {chat}, in all {rate:.0%}")
    print(f"{name}: steps of an agent after one question: {agent}")
    assert (chat[0], chat[-1]) == stated[name] and 0.05 < rate < 0.25, chat
    assert all(same > 0.95 * tokens for tokens, same in agent), agent
print("as stated")
PY
