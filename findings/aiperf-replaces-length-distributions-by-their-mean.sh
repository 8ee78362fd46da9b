#!/usr/bin/env bash
# aiperf: lognormal, multimodal and empirical input and output lengths are accepted and documented, and every request gets their mean.
#
# Guessed: `isl: {points: [{value: 128, weight: 50}, {value: 8192, weight: 50}]}` in a benchmark's YAML makes half of the prompts 128 tokens
#   long and half 8,192; `{mean: 512, median: 200}` draws from that lognormal distribution.
# Happens (aiperf 0.13.0): the synthetic dataset takes `expected_value` of the distribution, and the key `stddev` if it has one, which only
#   the normal one has; the distributions' own sample() is called for no length. So each prompt of the first has 4,160 tokens, each
#   of the second 512, whatever the median; outputs likewise (max_tokens); `min` and `max` are not applied. Pairs in
#   `sequence_distribution` are read in the same way: mean and stddev of each pair.
# Why it matters: the mix is what queues, preemptions, chunked prefill and tail latencies depend on, and one asks for it to see them.
#   A run of equal requests instead has the same tokens/s of load and none of its variance; TTFT p99 of 4,160 tokens for all is
#   neither that of the short nor of the long.
# The package's own classes and methods, without the rest of the client. Takes half a minute, 10 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-compile --no-deps aiperf==0.13.0
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts numpy==2.3.5 pydantic==2.13.4
"$d/v/bin/python" - <<'PY'
import ast, collections, importlib, importlib.metadata, logging, math, random, statistics, sys, types
from pathlib import Path
import numpy as np
from pydantic import TypeAdapter
print("aiperf", importlib.metadata.version("aiperf"))
folder = Path(importlib.metadata.distribution("aiperf").locate_file("aiperf"))
for name in ("aiperf", "aiperf.config"):                       # packages without their __init__, which imports the whole client
    sys.modules[name] = types.ModuleType(name); sys.modules[name].__path__ = [str(folder / Path(*name.split(".")[1:]))]
distributions = importlib.import_module("aiperf.config.distributions")
def take(path, name, method=None):
    """A class or function of a file, or one method as a function, compiled on its own."""
    node = next(n for n in ast.parse((folder / path).read_text()).body if getattr(n, "name", "") == name)
    if method: node = next(n for n in node.body if getattr(n, "name", "") == method)
    space = {"np": np, "math": math, "random": random, "_logger": logging.getLogger()}
    exec("from __future__ import annotations\n" + ast.unparse(node), space)
    return space[method or name]
Generator = take("common/random_generator.py", "RandomGenerator")
lengths_of = take("dataset/composer/base.py", "BaseDatasetComposer", "_get_turn_sequence_lengths")
bound = take("dataset/composer/base.py", "BaseDatasetComposer", "_set_max_tokens")
deviation_of = take("dataset/composer/synthetic.py", "_stddev_int")
prompt_length = take("dataset/generator/prompt.py", "PromptGenerator", "calculate_num_tokens")
def requests(distribution, count=2000):
    composer = types.SimpleNamespace(_turn_sequence_cache={}, _seq_distribution=None, _num_special_tokens=0, _max_tokens_rng=Generator(2, _internal=True),
                                     _synthetic_prompts=types.SimpleNamespace(isl=distribution, osl=distribution), _osl_distribution=lambda: distribution)
    generator = types.SimpleNamespace(_length_rng=Generator(1, _internal=True))
    prompts, outputs = [], []
    for number in range(count):
        prompts.append(prompt_length(generator, lengths_of(composer, number)[0], deviation_of(distribution)))
        turn = types.SimpleNamespace(max_tokens=None)
        bound(composer, turn); outputs.append(turn.max_tokens)
    return prompts, outputs
read = TypeAdapter(distributions.SamplingDistribution).validate_python
cases = {"empirical, half 128 and half 8192": ({"points": [{"value": 128, "weight": 50}, {"value": 8192, "weight": 50}]}, 4160),
         "lognormal, mean 512, median 200": ({"mean": 512, "median": 200}, 512),
         "two peaks": ({"peaks": [{"mean": 100, "stddev": 10, "weight": 50}, {"mean": 3000, "stddev": 100, "weight": 50}]}, 1550)}
for name, (config, mean) in cases.items():
    distribution = read(config)
    draws = Generator(3, _internal=True)
    own = [distribution.sample_int(draws) for _ in range(2000)]
    prompts, outputs = requests(distribution)
    print(f"{name} ({type(distribution).__name__}): its own sample() has standard deviation {statistics.pstdev(own):.0f}; "
          f"prompts sent {dict(collections.Counter(prompts))}, max_tokens {dict(collections.Counter(outputs))}")
    assert statistics.pstdev(own) > 100 and set(prompts) == {mean} and set(outputs) == {mean}, (name, set(prompts), set(outputs))
normal, _ = requests(read({"mean": 512, "stddev": 50}))
print(f"normal, 512 and 50: standard deviation of prompts {statistics.pstdev(normal):.0f}")
assert 45 < statistics.pstdev(normal) < 55
print("as stated")
PY
