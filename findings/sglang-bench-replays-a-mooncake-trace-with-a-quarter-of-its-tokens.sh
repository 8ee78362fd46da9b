#!/usr/bin/env bash
# SGLang's benchmark: `--dataset-name mooncake` keeps a trace's times and output lengths but not its input lengths: a quarter of the tokens is sent.
#
# Guessed: a replay of Mooncake's rows builds prompts of input_length tokens out of hash_ids, 512 tokens an id, as the trace defines
#   them; what is simplified is the text.
# Happens (sglang 0.5.23, get_mooncake_request_over_time): input_length is never read. Each id becomes its decimal digits and
#   128 times "hi", about 130 tokens; a sentence of 8 words ends the prompt. A row of 14 ids and 6,758
#   tokens becomes 1,832 by Mistral's tokenizer (27 %); a row of 513 tokens (two ids) 281 (55 %), since a last block counts as
#   a whole one. Prefix sharing is kept, times are kept, output_length is kept, so that prompt to output goes from 13.5 to 3.7.
# Why it matters: "SGLang serves the Mooncake conversation trace at its own pace on N GPUs" is a statement about a load with
#   a quarter of the prefill and of the KV cache; hit rates in tokens are those of other blocks. Beside a simulator or
#   another client that replays input_length the result is several times too good.
# The function out of the wheel (40 MB), run on its own. About half a minute.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" download -q --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: --python-version 3.11 -d "$d" sglang==0.5.23
"$d/v/bin/pip" install -q --disable-pip-version-check mistral-common==1.13.1
"$d/v/bin/python" - "$d"/sglang-0.5.23*.whl <<'PY'
import ast, asyncio, os, sys, time, types, zipfile
from typing import AsyncGenerator, Dict, List
import mistral_common
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
source = zipfile.ZipFile(sys.argv[1]).read("sglang/benchmark/datasets/mooncake.py").decode()
print("sglang 0.5.23; the file reads input_length:", "input_length" in source)
assert "input_length" not in source
tekken = Tekkenizer.from_file(os.path.join(os.path.dirname(mistral_common.__file__), "data", "tekken_240911.json"))
class Tokenizer:
    def encode(self, text): return tekken.encode(text, bos=False, eos=False)
    def apply_chat_template(self, messages, **_): return "".join(f"[INST]{m['content']}[/INST]" for m in messages)
node = next(n for n in ast.parse(source).body if isinstance(n, ast.AsyncFunctionDef) and n.name == "get_mooncake_request_over_time")
space = {"List": List, "Dict": Dict, "AsyncGenerator": AsyncGenerator, "PreTrainedTokenizerBase": object, "time": time, "asyncio": asyncio,
         "DatasetRow": lambda **keys: types.SimpleNamespace(**keys)}
exec(compile(ast.Module([node], []), "mooncake.py", "exec"), space)
rows = [{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": list(range(14))},
        {"timestamp": 1, "input_length": 513, "output_length": 10, "hash_ids": [0, 14]},
        {"timestamp": 2, "input_length": 7322, "output_length": 490, "hash_ids": [0] + list(range(15, 29))}]
async def replay():
    return [row async for row in space["get_mooncake_request_over_time"](list(rows), Tokenizer(), 0.0, 1)]
sent = asyncio.run(replay())
for row, request in zip(rows, sent):
    print(f"trace {row['input_length']:5} in, {row['output_length']:3} out; sent {request.prompt_len:5} in, {request.output_len:3} out: {100 * request.prompt_len / row['input_length']:.0f} %")
assert [request.output_len for request in sent] == [500, 10, 490]
assert [request.prompt_len for request in sent] == [1832, 281, 1971], [request.prompt_len for request in sent]
print("as stated")
PY
