"""Studies over processes and over a real Ray of two workers: results equal one process's byte for byte, whichever workers are lost."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow.parquet
import pytest
import ray
import ray.cloudpickle
import roofcast
from roofcast import distributed
from roofcast.distributed import Done, Lost, sweep

LOAD = {"requests": 100, "rate": 4}
OVER = {"max_num_seqs": [4, 16, 64], "scheduler": ["vllm", "orca"], "seed": [1, 2]}


@pytest.fixture(scope="module")
def whole():
    """The sweep in one process, to compare with."""
    return roofcast.sweep(**LOAD, over=OVER).json


@pytest.fixture(scope="module")
def cluster():
    """A local Ray cluster of two workers."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def kept(folder) -> int:
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))


def test_the_bytes_of_one_process_by_ray(whole, cluster, tmp_path):
    heard = []
    answer = sweep(**LOAD, over=OVER, cells=tmp_path, batch_size=2, progress=lambda *told: heard.append(told))
    assert answer.json == whole
    assert kept(tmp_path) == 12
    assert heard == [(2 * (n + 1), 12) for n in range(6)]
    # All runs are stored, so no worker is asked.
    assert sweep(**LOAD, over=OVER, cells=tmp_path, executor="serial", progress=heard.append).json == whole
    assert len(heard) == 6


def test_the_bytes_of_one_process_by_processes(whole, cli):
    assert sweep(**LOAD, over=OVER, executor="processes", workers=2, batch_size=5).json == whole
    sweeps = [f"--sweep={name}={','.join(map(str, values))}" for name, values in OVER.items()]
    assert whole == cli("simulate", "--requests=100", "--rate=4", *sweeps, "--json")


def test_the_space_may_change(tmp_path):
    few = {**OVER, "seed": [2]}
    sweep(**LOAD, over=few, cells=tmp_path, executor="serial")
    assert kept(tmp_path) == 6
    heard = []
    # The keys are in another order and there are more values: six runs are already stored.
    other = {"seed": [1, 2, 3], "scheduler": ["orca", "vllm"], "max_num_seqs": [4, 16, 64]}
    found = sweep(**LOAD, over=other, cells=tmp_path, executor="serial", batch_size=1, progress=lambda *t: heard.append(t))
    assert heard == [(done, 18) for done in range(7, 19)]
    assert found.json == roofcast.sweep(**LOAD, over=other).json
    # Another load makes another spec, so no run is stored.
    assert sweep(requests=101, rate=4, over=few, cells=tmp_path, executor="serial").points[0].requests == 101
    assert kept(tmp_path) == 24


def dies_once(study, numbers):
    """Work that kills its worker at the first batch with run 3."""
    flag = Path(study.flags["set"]["dies"])
    study = distributed.Runs(study.spec, {k: v for k, v in study.flags.items() if k != "set"}, None)
    if 3 in numbers and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return distributed_work(study, numbers)


distributed_work = distributed.work
# Ray's workers cannot import the tests, so functions are pickled by value.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("executor", ["ray", "processes"])
def test_a_lost_worker_is_replaced(executor, whole, cluster, tmp_path):
    study = distributed.Runs(None, {**LOAD, "sweep": roofcast.verbs.sweeps(OVER), "set": {"dies": tmp_path / "flag"}}, None)
    runner = distributed.started(executor, 2, {})
    if executor == "ray":
        runner._task = ray.remote(num_cpus=1, max_retries=0)(dies_once)
    else:
        runner._work = dies_once
    folder = tmp_path / "cells"
    folder.mkdir()
    try:
        late = distributed.run(study, range(12), runner, folder, (2, None), None, 12)
    finally:
        runner.close()
    assert (tmp_path / "flag").exists() and late == [] and kept(folder) == 12
    assert sweep(**LOAD, over=OVER, cells=folder, executor="serial").json == whole


class Never:
    """Executor whose workers always die; records the largest number of pending batches."""

    width = 3

    def __init__(self):
        self.pending, self.most = [], 0

    def submit(self, study, numbers):
        self.pending.append(numbers)
        self.most = max(self.most, len(self.pending))

    def next(self):
        return self.pending.pop(0), Lost("killed")


def test_workers_that_always_die_end_the_study_and_few_batches_are_pending(tmp_path):
    runner = Never()
    with pytest.raises(roofcast.Error, match="4 workers were lost"):
        distributed.run(distributed.Runs(None, {}, None), range(100), runner, tmp_path, (1, None), None, 100)
    assert runner.most == 3


class Backwards(Never):
    """Executor whose last submitted batch ends first."""

    def next(self):
        return self.pending.pop(), Done({}, [])


def test_results_are_taken_in_order_of_completion(tmp_path):
    heard = []
    runner = Backwards()
    distributed.run(distributed.Runs(None, {}, None), range(7), runner, tmp_path, (2, None), lambda *t: heard.append(t), 7)
    # Of the batches 01, 23 and 45 the last ends first, then 6, which takes its place, then 23 and 01.
    assert heard == [(2, 7), (3, 7), (5, 7), (7, 7)] and runner.most == 3


def test_a_driver_that_is_killed_begins_where_it_was(whole, tmp_path):
    script = f"""
        import os, signal
        from roofcast.distributed import sweep
        def listen(done, total):
            if done >= 4:
                os.kill(os.getpid(), signal.SIGKILL)
        sweep(**{LOAD!r}, over={OVER!r}, cells={str(tmp_path)!r}, executor="serial", batch_size=2, progress=listen)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert died.returncode == -signal.SIGKILL and kept(tmp_path) == 4
    heard = []
    found = sweep(**LOAD, over=OVER, cells=tmp_path, executor="serial", batch_size=8, progress=lambda *t: heard.append(t))
    assert found.json == whole and heard == [(12, 12)]


def test_a_run_that_takes_too_long_is_left_out(tmp_path):
    over = {"requests": [10, 5_000_000]}
    found = sweep(rate=4, no_leap=True, over=over, cells=tmp_path, executor="serial", cell_time_limit_s=4)
    assert found.interrupted and [point.values for point in found.points] == [[10]]


def test_an_unknown_executor_is_named():
    with pytest.raises(roofcast.Error, match="accepted: ray, processes, serial"):
        sweep(over={"tp": [1]}, executor="dask")


PLAN = {
    "requests": 100,
    "hardware": ["h100-sxm"],
    "max_accelerators": 2,
    "set": {"search.max_num_batched_tokens": [2048], "search.tp": [1]},
}
RATES = {"rate": [2, 4], "search.min_accelerators": [1, 2]}


def test_plans_by_ray_are_those_of_one_process_each(cluster, tmp_path):
    heard = []
    found = sweep(**PLAN, verb="plan", over=RATES, cells=tmp_path, batch_size=1, progress=lambda *told: heard.append(told))
    assert found.sweep == ["rate", "search.min_accelerators"] and not found.interrupted
    assert [point.values for point in found.points] == [[2, 1], [2, 2], [4, 1], [4, 2]]
    assert heard == [(done, 4) for done in range(1, 5)] and kept(tmp_path) == 4
    one = roofcast.plan(**{**PLAN, "set": {**PLAN["set"], "search.min_accelerators": 2}}, rate=4)
    assert found.points[3].answer.to_dict() == one.to_dict() and found.points[3].answer.best.count >= 2
    # Stored runs are not computed again, and this process by itself produces equal bytes.
    again = sweep(**PLAN, verb="plan", over=RATES, cells=tmp_path, executor="serial", progress=heard.append)
    assert len(heard) == 4 and again.json == found.json
    assert sweep(**PLAN, verb="plan", over=RATES, executor="serial").json == found.json


def test_limits_and_capacity_over_flags_and_keys(tmp_path):
    machine = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "executor": "serial", "cells": tmp_path}
    found = sweep(**machine, verb="limits", over={"batch": "1..4:x2", "context": [1024, 2048]})
    assert [point.values for point in found.points] == [[b, c] for b in (1, 2, 4) for c in (1024, 2048)]
    for point in found.points:
        batch, context = point.values
        one = roofcast.limits(model="llama-3.1-8b", hardware="h100-sxm", batch=batch, context=context)
        assert point.answer == one
    table = pyarrow.table(found.table())
    assert table.num_rows == 6 and table.column("batch").to_pylist() == [1, 1, 2, 2, 4, 4]
    assert table.column("decode.forecast_ms").to_pylist() == [p.answer.decode.forecast_ms for p in found.points]
    rooms = sweep(**machine, verb="capacity", over={"engine.gpu_memory_utilization": [0.5, 0.9]})
    low, high = (point.answer.kv_tokens for point in rooms.points)
    assert low < high and "2 answers over engine.gpu_memory_utilization" in repr(rooms)
    with pytest.raises(roofcast.Error, match="with batch = 0: "):
        sweep(**machine, verb="limits", over={"batch": [0]})
    with pytest.raises(roofcast.Error, match="accepted: one of the two"):
        sweep(**machine, verb="limits", batch=1, over={"batch": [1]})
    with pytest.raises(roofcast.Error, match="accepted: simulate, plan"):
        sweep(**machine, verb="bench", over={"batch": [1]})


def test_an_answer_is_kept_for_what_is_in_the_files(tmp_path):
    rows, cells = tmp_path / "rows.csv", tmp_path / "cells"
    text = (Path("examples") / "measured.csv").read_text()
    rows.write_text(text)
    heard = []
    asked = {"verb": "validate", "executor": "serial", "cells": cells, "batch_size": 1, "progress": lambda *told: heard.append(told)}
    over = {"group": ["h100", "vllm"]}
    found = sweep(rows, over=over, **asked)
    assert [p.answer for p in found.points] == [roofcast.validate(rows, group=g) for g in over["group"]]
    assert len(heard) == 2
    sweep(rows, over=over, **asked)
    assert len(heard) == 2
    # Another row makes another question.
    rows.write_text(text + text.splitlines(keepends=True)[-1])
    assert sweep(rows, over=over, **asked).points[0].answer.rows == found.points[0].answer.rows + 1
    assert len(heard) == 4


def test_a_plan_that_takes_too_long_is_left_out(tmp_path):
    spec = {
        "model": {"name": "llama-3.1-8b"},
        "workload": {"arrivals": {"kind": "poisson", "rate": 5.0}, "input_len": 500, "output_len": 100},
        "slo": {"ttft_p99_ms": 2000},
        "search": {"accelerators": ["h100-sxm"], "max_accelerators": 1, "max_num_batched_tokens": [2048]},
    }
    over = {"search.requests": [100, 10_000_000]}
    found = sweep(spec, verb="plan", over=over, executor="serial", cells=tmp_path, cell_time_limit_s=10)
    assert found.interrupted and [point.values for point in found.points] == [[100]]


def test_a_script_that_each_process_would_start_again_is_told(tmp_path):
    study = 'sweep(requests=50, over={"rate": [1, 2]}, executor="processes", workers=2)'
    script = tmp_path / "study.py"
    script.write_text(f"print('begun')\nfrom roofcast.distributed import sweep\n{study}\n")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 1 and run.stdout == "begun\n"
    assert "called in line 3 of the script" in run.stderr and 'if __name__ == "__main__":' in run.stderr
    guarded = f"from roofcast.distributed import sweep\nif __name__ == '__main__':\n    print(len({study}.points))\n"
    script.write_text(guarded)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert (run.returncode, run.stdout) == (0, "2\n"), run.stderr
