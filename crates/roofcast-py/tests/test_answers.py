"""Answers equal the documents that the program prints, and their fields are the documents' keys."""

import dataclasses
import json

import pytest
import roofcast
from roofcast._document import Part

LLAMA = {"model": "llama-3.1-8b", "hardware": "h100-sxm"}
LLAMA_FLAGS = ["--model=llama-3.1-8b", "--hardware=h100-sxm"]
QUICK = {"requests": 200, "rate": 8}
QUICK_FLAGS = ["--requests=200", "--rate=8"]
DEEPSEEK = {"model": "deepseek-ai/DeepSeek-V3", "hardware": "h200-sxm", "count": 8}
DEEPSEEK_FLAGS = ["--model=deepseek-ai/DeepSeek-V3", "--hardware=h200-sxm", "--count=8"]

CASES = {
    "limits": (lambda: roofcast.limits(**LLAMA, batch=64), ["limits", *LLAMA_FLAGS, "--batch=64"]),
    "limits of experts": (lambda: roofcast.limits(**DEEPSEEK), ["limits", *DEEPSEEK_FLAGS]),
    "limits sweep": (
        lambda: roofcast.limits_sweep(**LLAMA, over={"batch": range(1, 4)}),
        ["limits", *LLAMA_FLAGS, "--sweep=batch=1..3"],
    ),
    "limits compare": (
        lambda: roofcast.limits_compare(**LLAMA, kind="attention", batch=8),
        ["limits", *LLAMA_FLAGS, "--compare=attention", "--batch=8"],
    ),
    "intensity": (
        lambda: roofcast.intensity(**LLAMA, rows=4096, columns=14336),
        ["limits", *LLAMA_FLAGS, "--intensity=4096x14336"],
    ),
    "capacity": (
        lambda: roofcast.capacity(**LLAMA, users=500, explain=True),
        ["capacity", *LLAMA_FLAGS, "--users=500", "--explain"],
    ),
    "capacity that does not fit": (
        lambda: roofcast.capacity(**{**DEEPSEEK, "count": 1}),
        ["capacity", *DEEPSEEK_FLAGS[:2], "--count=1"],
    ),
    "simulate": (lambda: roofcast.simulate(**QUICK), ["simulate", *QUICK_FLAGS]),
    "simulate at the limit": (
        lambda: roofcast.simulate(**QUICK, cost="limit", no_leap=True, enable_prefix_caching=True),
        ["simulate", *QUICK_FLAGS, "--cost=limit", "--no-leap", "--enable-prefix-caching"],
    ),
    "simulate pools": (
        lambda: roofcast.simulate("examples/fleet-pools.toml", requests=200),
        ["simulate", "examples/fleet-pools.toml", "--requests=200"],
    ),
    "simulate autoscale": (
        lambda: roofcast.simulate("examples/fleet-autoscale.toml", requests=200),
        ["simulate", "examples/fleet-autoscale.toml", "--requests=200"],
    ),
    "simulate gaps": (
        lambda: roofcast.simulate("examples/kv-layouts.toml", requests=100),
        ["simulate", "examples/kv-layouts.toml", "--requests=100"],
    ),
    "sweep": (
        lambda: roofcast.sweep(**QUICK, over={"tp": [1, 2], "enable_prefix_caching": [False, True]}),
        ["simulate", *QUICK_FLAGS, "--sweep=tp=1,2", "--sweep=enable-prefix-caching=false,true"],
    ),
    "plan": (lambda: roofcast.plan(requests=300), ["plan", "--requests=300"]),
    "plan without an answer": (
        lambda: roofcast.plan(requests=300, ttft_p99="1ms", hardware="h100-sxm"),
        ["plan", "--requests=300", "--ttft-p99=1ms", "--hardware=h100-sxm"],
    ),
    "validate": (lambda: roofcast.validate("examples/measured.csv"), ["validate", "examples/measured.csv"]),
    "calibrate": (lambda: roofcast.calibrate("examples/measured.csv"), ["calibrate", "examples/measured.csv"]),
    "calibrate rows": (
        lambda: roofcast.calibrate(["examples/measured.csv"]),
        ["calibrate", "examples/measured.csv"],
    ),
    "model": (lambda: roofcast.Model("llama-3.1-8b"), ["catalog", "llama-3.1-8b"]),
    "accelerator": (lambda: roofcast.Accelerator("h100"), ["catalog", "h100"]),
    "torus": (lambda: roofcast.Accelerator("tpu-v5e"), ["catalog", "tpu-v5e"]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_documents_are_the_same_bytes(case, cli):
    ask, arguments = CASES[case]
    answer = ask()
    assert answer.json == cli(*arguments, "--json")
    document = answer.to_dict()
    assert answer.schema == document.pop("schema")
    same(answer, document, type(answer).__name__)


def same(value, document, place):
    """Asserts that each field has the value of the document's key of its name, and that no key lacks a field."""
    if isinstance(value, Part):
        names = {field.name for field in dataclasses.fields(value)}
        missing = set(document) - names
        assert not missing, f"{place}: add fields for {sorted(missing)} to its dataclass"
        for name in names & set(document):
            same(getattr(value, name), document[name], f"{place}.{name}")
        # The error for an absent key names the field.
        assert all(not getattr(value, name) for name in names - set(document)), place
    elif isinstance(value, (list, tuple)):
        assert len(value) == len(document), place
        for index, (one, other) in enumerate(zip(value, document, strict=True)):
            same(one, other, f"{place}[{index}]")
    elif isinstance(value, dict):
        assert list(value) == list(document), place
        for key in value:
            same(value[key], document[key], f"{place}.{key}")
    else:
        assert value == document, place


def test_a_spec_is_a_path_a_text_or_a_dict(tmp_path):
    spec = {
        "model": {"name": "llama-3.1-8b"},
        "hardware": {"accelerator": "h100-sxm", "count": 2},
        "parallelism": {"tp": 2, "pp": None},
    }
    text = '[model]\nname = "llama-3.1-8b"\n[hardware]\naccelerator = "h100-sxm"\ncount = 2\n[parallelism]\ntp = 2\n'
    path = tmp_path / "spec.toml"
    path.write_text(text)
    by_flags = roofcast.limits(**LLAMA, count=2, tp=2)
    for one in (spec, text, path, str(path)):
        assert roofcast.limits(one).json == by_flags.json
    # Keywords override the spec, and a dict of settings becomes `--set`.
    assert roofcast.limits(spec, tp=1).parallelism.tp == 1
    kept = roofcast.capacity(spec, set={"engine.gpu_memory_utilization": 0.5})
    assert kept.engine.gpu_memory_utilization == 0.5


def test_a_deployment_asks_its_verbs():
    deployment = roofcast.Deployment(**LLAMA, tp=2, count=2)
    assert deployment.limits(batch=8).json == roofcast.limits(**LLAMA, tp=2, count=2, batch=8).json
    assert deployment.capacity().json == roofcast.capacity(**LLAMA, tp=2, count=2).json
    assert deployment.simulate(**QUICK).json == roofcast.simulate(**LLAMA, tp=2, count=2, **QUICK).json
    assert "tp = 2" in deployment.toml
    assert repr(deployment).startswith("Deployment(model='llama-3.1-8b'")
    with pytest.raises(roofcast.Error):
        roofcast.Deployment(model="llama-3.1-8b")


def test_models_and_accelerators_are_values_of_flags():
    model, chip = roofcast.Model("llama-3.1-8b"), roofcast.Accelerator("h100-sxm")
    # KV bytes per token: 32 layers × 2 (K and V) × 8 heads × 128 dimensions × 2 bytes.
    assert model.kv_bytes_per_token == 32 * 2 * 8 * 128 * 2
    found = roofcast.limits(model=model, hardware=chip)
    assert (found.model, found.hardware) == (model.id, chip.id)
    # A step reads every weight except the embedding, of which one row is looked up, and the cache of 4,096 tokens.
    read = model.weight_bytes - 2 * model.parameters.embedding + 2 * 4096 + 4096 * model.kv_bytes_per_token
    assert found.decode.limit_ms == pytest.approx(read / chip.bandwidth_bytes_per_s * 1e3, rel=1e-4)


def test_answers_are_not_changed_and_compare():
    one, other = (roofcast.limits(**LLAMA) for _ in range(2))
    assert one == other and one.decode == other.decode and one != roofcast.limits(**LLAMA, batch=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.decode.limit_ms = 0.0
    assert json.loads(one.json)["decode"]["limit_ms"] == one.decode.limit_ms
    assert repr(one.decode.terms).startswith("Terms(weights_ms=")
