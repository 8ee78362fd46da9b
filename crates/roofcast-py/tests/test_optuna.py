"""The objective function, with the real Optuna."""

import optuna
import pytest
import roofcast
from roofcast.optuna import objective

LOAD = {"requests": 200, "rate": 8}
DOLLARS = "expense.dollars_per_million_output_tokens"


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_a_grid_finds_the_least():
    space = {"max_num_seqs": [4, 16, 64], "scheduler": ["vllm", "orca"]}
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(space))
    study.optimize(objective(space=space, values="p99_e2el_ms", **LOAD), n_trials=6)
    all_of_them = roofcast.sweep(**LOAD, over=space)
    assert study.best_value == min(point.p99_e2el_ms for point in all_of_them.points)
    best = min(all_of_them.points, key=lambda point: point.p99_e2el_ms)
    assert [study.best_params[name] for name in space] == best.values
    assert "TTFT p50" in study.best_trial.user_attrs["roofcast"]


def test_ranges_several_values_and_what_is_refused():
    space = {"gpu_memory_utilization": (0.1, 0.9), "max_num_seqs": (1, 64), "tp": [1, 3]}
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=optuna.samplers.RandomSampler(seed=1))
    ask = objective(space=space, values=[DOLLARS, lambda run: run.output_throughput], **LOAD)
    study.optimize(ask, n_trials=12)
    states = {trial.state.name for trial in study.trials}
    # Three ranks cannot divide Llama's 32 heads, and a tenth of the memory does not hold the weights.
    assert states == {"COMPLETE", "PRUNED"}
    for trial in study.trials:
        if trial.params["tp"] == 3:
            assert trial.state.name == "PRUNED" and "tp" in trial.user_attrs["roofcast"]
        assert 0.1 <= trial.params["gpu_memory_utilization"] <= 0.9
    best = study.best_trials[0]
    again = roofcast.simulate(**LOAD, **best.params)
    assert best.values == [again.expense.dollars_per_million_output_tokens, again.output_throughput]
