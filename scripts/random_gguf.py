#!/usr/bin/env python3
"""Writes a GGUF file of random weights in the shape of Qwen2.5-0.5B: random_gguf.py OUT.gguf {f16,q8_0,q4_0}

The speed of a server does not depend on the values of its weights. The tokenizer has bytes, and common words as one token
each; every other token is a number, so that any sampled token is text."""

import sys

import gguf
import numpy as np

LAYERS, HIDDEN, HEADS, KV_HEADS, INNER, VOCABULARY = 24, 896, 14, 2, 4864, 151936
HEAD = HIDDEN // HEADS
# The words of which roofcast bench makes prompts.
WORDS = """the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would
other into has more her two like him see time could no make than first been its who now people my made over did down
only way find use may water long little very after words called just where most know get through back much before go
good new write our used me man too any day same right look think also around another came come work three word must
because does part""".split()
FORMATS = {
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}


def byte_letters():
    """GPT-2's letters for the 256 bytes: printable bytes are themselves, the others are letters from code point 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tokens():
    """Tokens and merges of a vocabulary in which a word with the space before it becomes one token, letter by letter."""
    letters = byte_letters()
    known, merges = ["<end>", *letters], []
    seen = set(known)
    for word in WORDS:
        start = letters[0x20]
        for letter in word:
            if start + letter not in seen:
                seen.add(start + letter)
                known.append(start + letter)
                merges.append(f"{start} {letter}")
            start += letter
    return known + [f"<{n}>" for n in range(len(known), VOCABULARY)], merges


def header(writer, file_type):
    writer.add_file_type(file_type)
    writer.add_context_length(32768)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    known, merges = tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(known)
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (VOCABULARY - 1))
    writer.add_token_merges(merges)
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)


def tensors(writer, kind):
    draw = np.random.default_rng(0)

    def matrix(name, rows, columns):
        values = draw.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)

    def constant(name, length, value):
        writer.add_tensor(name, np.full(length, value, np.float32))

    matrix("token_embd", VOCABULARY, HIDDEN)
    constant("output_norm.weight", HIDDEN, 1)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        constant(f"{block}.attn_norm.weight", HIDDEN, 1)
        constant(f"{block}.ffn_norm.weight", HIDDEN, 1)
        for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            matrix(f"{block}.attn_{name}", rows, HIDDEN)
            constant(f"{block}.attn_{name}.bias", rows, 0)
        matrix(f"{block}.attn_output", HIDDEN, HEADS * HEAD)
        matrix(f"{block}.ffn_gate", INNER, HIDDEN)
        matrix(f"{block}.ffn_up", INNER, HIDDEN)
        matrix(f"{block}.ffn_down", HIDDEN, INNER)


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in FORMATS:
        sys.exit(__doc__)
    kind, file_type = FORMATS[sys.argv[2]]
    writer = gguf.GGUFWriter(sys.argv[1], "qwen2")
    header(writer, file_type)
    tensors(writer, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
