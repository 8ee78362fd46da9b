"""Studies beyond one process: the runs of a sweep over Ray, over processes, or one after the other.

Knows: how runs become tasks, how their results are stored, what happens when a worker is lost. The program defines a run
of a simulation and the format of the whole: workers call ``roofcast simulate --cells``, the driver ``simulate --merge``,
so that the answer has the same bytes as :func:`roofcast.sweep` on one machine. :mod:`roofcast._questions` has the runs of
other verbs.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from roofcast import _native, verbs
from roofcast._ask import Spec, ask, spec_text
from roofcast._document import document
from roofcast._native import Error
from roofcast._questions import Done, questions
from roofcast._questions import document as written
from roofcast.answers import Capacity, Limits, Plan, Sweep, Validation
from roofcast.progress import Progress, shown
from roofcast.study import Study

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    from roofcast._flags import CapacityFlags, LimitsFlags, PlanFlags, SweepFlags, ValidateFlags

    class Spread(TypedDict, total=False):
        """Keywords that spread a study over workers; see :func:`sweep`."""

        executor: Literal["ray", "processes", "serial"]
        cells: str | os.PathLike[str] | None
        batch_size: int | None
        workers: int | None
        pending: int | None
        cell_time_limit_s: float | None
        ray_options: Mapping[str, Any] | None
        progress: bool | Progress | None

    class SpreadSweep(SweepFlags, Spread, total=False):
        """Keywords of a study of simulations."""

    class SpreadPlan(PlanFlags, Spread, total=False):
        """Keywords of a study of plans."""

    class SpreadLimits(LimitsFlags, Spread, total=False):
        """Keywords of a study of limits."""

    class SpreadCapacity(CapacityFlags, Spread, total=False):
        """Keywords of a study of capacities."""

    class SpreadValidate(ValidateFlags, Spread, total=False):
        """Keywords of a study of validations."""


RETRIES = 3
"""Number of times that a batch whose worker was lost is given to another worker."""

ANSWERS: dict[str, type[Any]] = {"plan": Plan, "limits": Limits, "capacity": Capacity, "validate": Validation}
"""Classes of the answers of verbs other than ``simulate``."""


class Asked(Protocol):
    """A study whose questions a worker can answer. Workers receive a copy."""

    def answered(self, numbers: Sequence[int]) -> Done:
        """Answers the questions of these numbers; in a worker."""


@dataclass(frozen=True)
class Runs:
    """A sweep of simulations, whose runs a worker can compute."""

    spec: str | None
    flags: dict[str, Any]
    cell_time_limit_s: float | None

    def answered(self, numbers: Sequence[int]) -> Done:
        """Computes the runs of these numbers; called in a worker."""
        with tempfile.TemporaryDirectory() as folder:
            flags = {
                **self.flags,
                "cells": folder,
                "numbers": list(numbers),
                "threads": 1,
                "cell_time_limit": self.cell_time_limit_s,
            }
            said = json.loads(ask("simulate", spec=self.spec, flags=flags).text)
            return Done({file.name: file.read_bytes() for file in Path(folder).iterdir()}, said["late"])


def work(study: Asked, numbers: Sequence[int]) -> Done:
    """Answers the questions of these numbers; in a worker."""
    return study.answered(numbers)


class Lost(Exception):
    """The loss of a worker, which died before it returned a result."""


class Executor(Protocol):
    """A way to run batches, of which ``width`` may be pending at one time."""

    width: int

    def submit(self, study: Asked, numbers: Sequence[int]) -> None:
        """Submits a batch."""

    def next(self) -> tuple[Sequence[int], Done | Lost]:
        """Waits for the next batch that ends, and returns its numbers and its result."""

    def close(self) -> None:
        """Cancels pending batches and releases the workers."""


class Serial:
    """Executor that runs one batch after the other, in this process."""

    width = 1

    def __init__(self) -> None:
        self._pending: list[tuple[Asked, Sequence[int]]] = []

    def submit(self, study: Asked, numbers: Sequence[int]) -> None:
        self._pending.append((study, numbers))

    def next(self) -> tuple[Sequence[int], Done | Lost]:
        study, numbers = self._pending.pop(0)
        return numbers, work(study, numbers)

    def close(self) -> None:
        self._pending.clear()


class Processes:
    """Executor that runs batches in processes of this machine."""

    def __init__(self, workers: int | None) -> None:
        self._workers = workers or os.cpu_count() or 1
        self.width = 2 * self._workers
        self._work = work
        self._pool: ProcessPoolExecutor | None = None
        self._pending: dict[Future[Done], tuple[Sequence[int], ProcessPoolExecutor]] = {}

    def submit(self, study: Asked, numbers: Sequence[int]) -> None:
        if self._pool is None:
            # Processes are spawned, because a forked one would copy locks of threads that it does not have.
            self._pool = ProcessPoolExecutor(self._workers, mp_context=get_context("spawn"))
        try:
            future = self._pool.submit(self._work, study, numbers)
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)
        self._pending[future] = (numbers, self._pool)

    def next(self) -> tuple[Sequence[int], Done | Lost]:
        future = next(iter(wait(self._pending, return_when=FIRST_COMPLETED).done))
        numbers, pool = self._pending.pop(future)
        try:
            return numbers, future.result()
        except BrokenProcessPool as error:
            # Every batch pending in this pool is lost with it; the next batch starts a new pool.
            self._pool = None if self._pool is pool else self._pool
            return numbers, Lost(str(error))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class Ray:
    """Executor that runs batches as tasks of a Ray cluster: the connected one, else a local one."""

    def __init__(self, workers: int | None, options: Mapping[str, Any]) -> None:
        import ray

        # Ray's own types are incomplete.
        self._ray: Any = ray
        self._began = not self._ray.is_initialized()
        if self._began:
            self._ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        # Ray does not retry lost workers; `run` does, so that progress and limits are equal for every executor.
        self._task = self._ray.remote(**{"num_cpus": 1, "max_retries": 0, **options})(work)
        self.width = 2 * (workers or max(1, int(self._ray.cluster_resources().get("CPU", 1))))
        self._study: tuple[Asked, Any] | None = None
        self._pending: dict[Any, Sequence[int]] = {}

    def submit(self, study: Asked, numbers: Sequence[int]) -> None:
        if self._study is None or self._study[0] is not study:
            # The spec goes to each node once, not with every batch.
            self._study = (study, self._ray.put(study))
        self._pending[self._task.remote(self._study[1], list(numbers))] = numbers

    def next(self) -> tuple[Sequence[int], Done | Lost]:
        (done,), _ = self._ray.wait(list(self._pending), num_returns=1)
        numbers = self._pending.pop(done)
        of = self._ray.exceptions
        lost = (of.WorkerCrashedError, of.ObjectLostError, of.NodeDiedError, of.OutOfMemoryError)
        try:
            found: Done = self._ray.get(done)
            return numbers, found
        except lost as error:
            return numbers, Lost(str(error))
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Error) else error) from None

    def close(self) -> None:
        for task in self._pending:
            self._ray.cancel(task, force=True)
        if self._began:
            self._ray.shutdown()


@overload
def sweep(
    spec: Spec = None, *, over: Mapping[str, Any], verb: Literal["simulate"] = "simulate", **more: Unpack[SpreadSweep]
) -> Sweep: ...
@overload
def sweep(
    spec: Spec = None, *, over: Mapping[str, Any], verb: Literal["plan"], **more: Unpack[SpreadPlan]
) -> Study[Plan]: ...
@overload
def sweep(
    spec: Spec = None, *, over: Mapping[str, Any], verb: Literal["limits"], **more: Unpack[SpreadLimits]
) -> Study[Limits]: ...
@overload
def sweep(
    spec: Spec = None, *, over: Mapping[str, Any], verb: Literal["capacity"], **more: Unpack[SpreadCapacity]
) -> Study[Capacity]: ...
@overload
def sweep(
    spec: verbs.Files, *, over: Mapping[str, Any], verb: Literal["validate"], **more: Unpack[SpreadValidate]
) -> Study[Validation]: ...
def sweep(
    spec: Any = None,
    *,
    over: Mapping[str, Any],
    verb: str = "simulate",
    executor: Literal["ray", "processes", "serial"] = "ray",
    cells: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    pending: int | None = None,
    cell_time_limit_s: float | None = None,
    ray_options: Mapping[str, Any] | None = None,
    progress: bool | Progress | None = None,
    **flags: Any,
) -> Any:
    """One simulation for each combination of values, as :func:`roofcast.sweep`, spread over workers; the same bytes.

    Other values of ``verb`` give a plan, the limits, a capacity or a validation for each combination: a
    :class:`roofcast.study.Study`, whose points have the answers of the function with that name. Keys of ``over`` are
    then keywords of the verb or dotted keys of the spec; the first argument of ``validate`` is its files.

    ``cells`` is a folder where finished runs are stored as Parquet, each under a hash of the version and of everything
    that its answer depends on: a restarted study computes only the missing runs, and a study over more values only the
    new ones. Without it a temporary folder is used. A task has ``batch_size`` runs (by default as many as give each
    worker sixteen tasks), at most ``pending`` tasks are submitted at one time (by default two per worker), and the result
    of a task is written when it arrives, so that the driver does not hold results in memory. The batch of a lost worker
    is given to another, up to three times. A run that takes longer than ``cell_time_limit_s`` seconds is left out; the
    answer is then ``interrupted``. Paths in the spec must exist on every worker. ``workers`` is the number of processes,
    or of CPUs of a local Ray; ``ray_options`` go to ``ray.remote``.

    On Slurm and Kubernetes, without Python: ``roofcast simulate … --shard I/N --cells FOLDER``, then ``--merge``.
    """
    if executor not in ("ray", "processes", "serial"):
        raise Error(f"executor: {executor!r}; accepted: ray, processes, serial")
    if verb != "simulate" and verb not in ANSWERS:
        raise Error(f"verb: {verb!r}; accepted: simulate, {', '.join(ANSWERS)}")
    if executor == "processes" and (line := unguarded()) is not None:
        raise Error(
            f"executor: 'processes', called in line {line} of the script, which each process starts again; accepted: the call "
            'under `if __name__ == "__main__":`, or in a notebook; or executor="serial"'
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(cells if cells is not None else temporary)
        folder.mkdir(parents=True, exist_ok=True)
        how = Workers(executor, workers, ray_options or {}, (batch_size, pending), progress)
        if verb == "simulate":
            return simulations(spec, {**flags, "sweep": verbs.sweeps(over)}, cell_time_limit_s, folder, how)
        study = questions(verb, spec, over, flags, cell_time_limit_s)
        kept = _native.kept(folder).keys()
        missing = [number for number in range(len(study)) if study.key(number) not in kept]
        spread(study, missing, folder, how, len(study))
        return Study(written(study, folder), ANSWERS[verb])


def unguarded() -> int | None:
    """The running line of the main script, if it is not protected by ``if __name__ == "__main__"``; ``None`` if it is.

    A spawned process begins by importing the main script, and would run an unprotected line again."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    frame = inspect.currentframe()
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_globals is vars(main)):
        frame = frame.f_back
    if path is None or frame is None:
        return None
    try:
        script = ast.parse(Path(path).read_text())
    except (OSError, ValueError, SyntaxError):
        return None
    line = frame.f_lineno
    for node in script.body:
        if isinstance(node, ast.If) and node.lineno <= line <= (node.end_lineno or line):
            names = (name.id for name in ast.walk(node.test) if isinstance(name, ast.Name))
            return None if "__name__" in names else line
    return line


@dataclass(frozen=True)
class Workers:
    """Settings of the workers: executor, their number, sizes of batches, and progress."""

    executor: str
    workers: int | None
    ray_options: Mapping[str, Any]
    sizes: tuple[int | None, int | None]
    progress: bool | Progress | None


def simulations(spec: Spec, asked: dict[str, Any], limit: float | None, folder: Path, how: Workers) -> Sweep:
    """Computes the runs of a sweep that ``folder`` lacks, and returns the sweep."""
    whole = {**asked, "cells": folder}
    # Workers may run in another folder, and the keys of runs include the spec's paths, so paths are absolute.
    path, text = spec_text(spec)
    study = Runs(text if path is None else os.path.abspath(path), asked, limit)
    found = json.loads(ask("simulate", spec=study.spec, flags={**whole, "merge": True, "missing": True}).text)
    late = spread(study, found["missing"], folder, how, found["cells"])
    return document(Sweep, ask("simulate", spec=study.spec, flags={**whole, "merge": True, "partial": bool(late)}))


def spread(study: Asked, missing: Sequence[int], folder: Path, how: Workers, total: int) -> list[int]:
    """Has workers compute the missing runs; returns the numbers of the runs that took too long."""
    told, display = shown(how.progress, "runs")
    try:
        if not missing:
            return []
        runner = started(how.executor, how.workers, how.ray_options)
        try:
            return run(study, missing, runner, folder, how.sizes, told, total)
        finally:
            runner.close()
    finally:
        if display is not None:
            display.__exit__(None, None, None)


def started(executor: str, workers: int | None, options: Mapping[str, Any]) -> Executor:
    """Starts the executor of this name."""
    if executor == "ray":
        return Ray(workers, options)
    return Processes(workers) if executor == "processes" else Serial()


def run(
    study: Asked,
    numbers: Sequence[int],
    runner: Executor,
    folder: Path,
    sizes: tuple[int | None, int | None],
    told: Progress | None,
    total: int,
) -> list[int]:
    """Computes the runs ``numbers`` and stores them in ``folder``; returns the numbers of the runs that took too long."""
    batch, pending = sizes
    size = batch or max(1, len(numbers) // (8 * runner.width))
    width = pending or runner.width
    waiting = batches(numbers, size)
    lost: dict[tuple[int, ...], int] = {}
    late: list[int] = []
    out, done = 0, total - len(numbers)
    again: list[Sequence[int]] = []
    while True:
        while out < width:
            following = again.pop() if again else next(waiting, None)
            if following is None:
                break
            runner.submit(study, following)
            out += 1
        if not out:
            return late
        ended, found = runner.next()
        out -= 1
        if isinstance(found, Lost):
            times = lost[tuple(ended)] = lost.get(tuple(ended), 0) + 1
            if times > RETRIES:
                raise Error(f"runs {ended[0]} to {ended[-1]}: {times} workers were lost, the last: {found}")
            again.append(ended)
            continue
        keep(found.files, folder)
        late += found.late
        done += len(ended)
        if told is not None:
            told(done, total)


def batches(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Splits ``numbers`` into batches of ``size``."""
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def keep(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files, each whole or not at all. A file's name is derived from its contents, so workers do not collide."""
    for name, content in files.items():
        part = folder / f".{name}.{os.getpid()}"
        part.write_bytes(content)
        part.replace(folder / name)
