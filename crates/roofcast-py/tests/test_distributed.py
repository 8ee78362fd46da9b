"""Studies over processes and a real Ray of two workers: the bytes of one process, whatever is lost on the way."""

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
    """One process."""
    return roofcast.sweep(**LOAD, over=OVER).json


@pytest.fixture(scope="module")
def cluster():
    """A local Ray of two workers."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def kept(folder) -> int:
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))


def test_the_bytes_of_one_process_by_ray(whole, cluster, tmp_path):
    heard = []
    answer = sweep(**LOAD, over=OVER, cells=tmp_path, batch=2, progress=lambda *told: heard.append(told))
    assert answer.json == whole
    assert kept(tmp_path) == 12
    assert heard == [(2 * (n + 1), 12) for n in range(6)]
    # All of them are there: no worker is asked.
    assert sweep(**LOAD, over=OVER, cells=tmp_path, executor="serial", progress=heard.append).json == whole
    assert len(heard) == 6


def test_the_bytes_of_one_process_by_processes(whole, cli):
    assert sweep(**LOAD, over=OVER, executor="processes", workers=2, batch=5).json == whole
    sweeps = [f"--sweep={name}={','.join(map(str, values))}" for name, values in OVER.items()]
    assert whole == cli("simulate", "--requests=100", "--rate=4", *sweeps, "--json")


def test_the_space_may_change(tmp_path):
    few = {**OVER, "seed": [2]}
    sweep(**LOAD, over=few, cells=tmp_path, executor="serial")
    assert kept(tmp_path) == 6
    heard = []
    # Another order of keys and more values: six runs are the same as before.
    other = {"seed": [1, 2, 3], "scheduler": ["orca", "vllm"], "max_num_seqs": [4, 16, 64]}
    found = sweep(**LOAD, over=other, cells=tmp_path, executor="serial", batch=1, progress=lambda *t: heard.append(t))
    assert heard == [(done, 18) for done in range(7, 19)]
    assert found.json == roofcast.sweep(**LOAD, over=other).json
    # Another load is another spec.
    assert sweep(requests=101, rate=4, over=few, cells=tmp_path, executor="serial").points[0].requests == 101
    assert kept(tmp_path) == 24


def dies_once(study, numbers):
    """A worker that is killed at its first batch with run 3."""
    flag = Path(study.flags["set"]["dies"])
    study = distributed.Study(study.spec, {k: v for k, v in study.flags.items() if k != "set"}, None)
    if 3 in numbers and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return distributed_work(study, numbers)


distributed_work = distributed.work
# Workers of Ray do not import tests.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("executor", ["ray", "processes"])
def test_a_lost_worker_is_replaced(executor, whole, cluster, tmp_path):
    study = distributed.Study(None, {**LOAD, "sweep": roofcast.verbs.sweeps(OVER), "set": {"dies": tmp_path / "flag"}}, None)
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
    """Workers that always die, and what was pending at most."""

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
        distributed.run(distributed.Study(None, {}, None), range(100), runner, tmp_path, (1, None), None, 100)
    assert runner.most == 3


class Backwards(Never):
    """Workers whose last batch ends first."""

    def next(self):
        return self.pending.pop(), Done({}, [])


def test_results_are_taken_in_order_of_completion(tmp_path):
    heard = []
    runner = Backwards()
    distributed.run(distributed.Study(None, {}, None), range(7), runner, tmp_path, (2, None), lambda *t: heard.append(t), 7)
    # Of 01 23 45 the last ends first, then 6, which took its place, then 23 and 01.
    assert heard == [(2, 7), (3, 7), (5, 7), (7, 7)] and runner.most == 3


def test_a_driver_that_is_killed_begins_where_it_was(whole, tmp_path):
    script = f"""
        import os, signal
        from roofcast.distributed import sweep
        def listen(done, total):
            if done >= 4:
                os.kill(os.getpid(), signal.SIGKILL)
        sweep(**{LOAD!r}, over={OVER!r}, cells={str(tmp_path)!r}, executor="serial", batch=2, progress=listen)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert died.returncode == -signal.SIGKILL and kept(tmp_path) == 4
    heard = []
    found = sweep(**LOAD, over=OVER, cells=tmp_path, executor="serial", batch=8, progress=lambda *t: heard.append(t))
    assert found.json == whole and heard == [(12, 12)]


def test_a_run_that_takes_too_long_is_left_out(tmp_path):
    over = {"requests": [10, 5_000_000]}
    found = sweep(rate=4, no_leap=True, over=over, cells=tmp_path, executor="serial", cell_time_limit_s=0.5)
    assert found.interrupted and [point.values for point in found.points] == [[10]]


def test_a_refused_run_is_named():
    with pytest.raises(roofcast.Error, match=r"with .*tp = 3"):
        sweep(over={"tp": [1, 3]}, executor="serial", **LOAD)
    with pytest.raises(roofcast.Error, match="accepted: ray, processes, serial"):
        sweep(over={"tp": [1]}, executor="dask")
