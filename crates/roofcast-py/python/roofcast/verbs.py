"""The verbs: what a machine allows, what fits, what an engine does, what to deploy, how good the forecasts are.

Each takes a spec (the path of a TOML file, its text or a dict; none is the verb's default) and keywords, which are the
program's flags with underscores for dashes and win over the spec. ``roofcast VERB --help`` lists them with units; so does
the type of the keywords. An error says what was found and what is accepted: :class:`roofcast.Error`.

The lock of the interpreter is released while they work, and Ctrl-C ends them. ``progress`` is called with what is done and
all there is to do; ``None`` shows a bar on a terminal and in a notebook, ``False`` nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from roofcast._ask import Spec, ask
from roofcast._document import document
from roofcast._native import Error
from roofcast.answers import (
    Calibration,
    Capacity,
    Curves,
    Found,
    Intensity,
    Limits,
    LimitsCompare,
    LimitsSweep,
    Plan,
    Simulation,
    Sweep,
    Validation,
)
from roofcast.progress import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roofcast._flags import (
        CalibrateFlags,
        CapacityFlags,
        IntensityFlags,
        LimitsFlags,
        LoadFlags,
        PlanFlags,
        SimulateFlags,
        SweepFlags,
        ValidateFlags,
    )

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One file, or several."""


def limits(spec: Spec = None, **flags: Unpack[LimitsFlags]) -> Limits:
    """What the machine's limits allow: the times of one decode step of ``batch`` sequences of ``context`` tokens, and of one
    prompt, by operator; what binds them; the ridge, the critical batch and the useful width of tensor parallelism.

    >>> limits(model="llama-3.1-8b", hardware="h100-sxm", batch=64).decode.bound
    'memory'
    """
    return document(Limits, ask("limits", spec=spec, flags=flags, picture=True))


def limits_sweep(spec: Spec = None, *, over: Mapping[str, Any], **flags: Unpack[LimitsFlags]) -> LimitsSweep:
    """The step over values: ``over={"batch": range(1, 513)}``, or ``{"batch": "1..512:x2"}`` as the program writes it; of batch,
    context, prefill, tp, position or keys of the spec, of several for each combination, the last fastest."""
    if not over:
        raise Error("over: no keys; accepted: batch, context, prefill, tp, position, or a key of the spec")
    asked = {**flags, "sweep": sweeps(over)}
    return document(LimitsSweep, ask("limits", spec=spec, flags=asked, picture=True))


def limits_compare(
    spec: Spec = None,
    *,
    kind: Literal["attention", "launches", "kernels", "layouts"],
    **flags: Unpack[LimitsFlags],
) -> LimitsCompare:
    """The forecast step with each setting of a kind: attention backends, launches, kernels of quantized weights, layouts of
    the KV cache."""
    return document(LimitsCompare, ask("limits", spec=spec, flags={**flags, "compare": kind}))


def intensity(spec: Spec = None, *, rows: int, columns: int, **flags: Unpack[IntensityFlags]) -> Intensity:
    """FLOPs a byte of one layer of ``rows`` × ``columns`` against batch, and what binds."""
    asked = {**flags, "intensity": f"{rows}x{columns}"}
    return document(Intensity, ask("limits", spec=spec, flags=asked, picture=True))


def capacity(spec: Spec = None, **flags: Unpack[CapacityFlags]) -> Capacity:
    """What fits: parameters, bytes of weights and KV cache, sequences, the longest context, the smallest topology, users.

    ``fits`` is false where it does not; that is an answer, not an error. ``explain=True`` adds every tensor.
    """
    return document(Capacity, ask("capacity", spec=spec, flags=flags))


def simulate(
    spec: Spec = None,
    *,
    records: bool = False,
    progress: bool | Progress | None = None,
    time_limit_s: float | None = None,
    **flags: Unpack[SimulateFlags],
) -> Simulation:
    """What a benchmark client would measure of the deployment under the load: latencies in ms, throughput, preemptions.

    ``records=True`` keeps every request for :meth:`Simulation.records`. After ``time_limit_s`` seconds the run ends, and is
    of the requests that had ended (``interrupted``).
    """
    answer = ask(
        "simulate",
        spec=spec,
        flags=flags,
        picture=True,
        records=records,
        progress=progress,
        unit="requests",
        time_limit_s=time_limit_s,
    )
    return document(Simulation, answer)


def sweep(
    spec: Spec = None,
    *,
    over: Mapping[str, Any],
    progress: bool | Progress | None = None,
    **flags: Unpack[SweepFlags],
) -> Sweep:
    """One simulation for each combination of values: ``over={"tp": [1, 2], "rate": [4, 8, 16]}``, the last key fastest; on
    the cores of this machine. :func:`roofcast.distributed.sweep` spreads more over many machines, and resumes."""
    asked = {**flags, "sweep": sweeps(over)}
    answer = ask("simulate", spec=spec, flags=asked, picture=True, progress=progress, unit="runs")
    return document(Sweep, answer)


def find(
    spec: Spec = None,
    *,
    key: str,
    low: float,
    high: float,
    progress: bool | Progress | None = None,
    **flags: Unpack[LoadFlags],
) -> Found:
    """The largest value of a key from ``low`` to ``high`` that keeps the SLO, by bisection: ``key="users"``, ``"rate"``,
    ``"max-num-seqs"``, ``"max-num-batched-tokens"`` or another with numbers. ``best`` is ``None`` where none does."""
    asked = {**flags, "find": f"{key}={low}..{high}"}
    answer = ask("simulate", spec=spec, flags=asked, progress=progress, unit="simulations")
    return document(Found, answer)


def plan(
    spec: Spec = None,
    *,
    progress: bool | Progress | None = None,
    time_limit_s: float | None = None,
    **flags: Unpack[PlanFlags],
) -> Plan:
    """What to deploy: the cheapest deployments that meet the SLO under the load, proven by simulation, with launch commands.

    ``best`` is ``None`` where none does; that is an answer, not an error. After ``time_limit_s`` seconds it is the best so far, and
    the plan is ``interrupted``.
    """
    answer = ask(
        "plan",
        spec=spec,
        flags=flags,
        picture=True,
        progress=progress,
        unit="simulations",
        time_limit_s=time_limit_s,
    )
    return document(Plan, answer)


def curves(
    spec: Spec = None,
    *,
    progress: bool | Progress | None = None,
    time_limit_s: float | None = None,
    **flags: Unpack[PlanFlags],
) -> Curves:
    """Output tokens/s of an accelerator against those of one user: a curve for each accelerator of the search, over the number
    of users of a replica, with the most load that keeps the SLO, and what a token costs there."""
    answer = ask(
        "plan",
        spec=spec,
        flags={**flags, "curve": True},
        picture=True,
        progress=progress,
        unit="simulations",
        time_limit_s=time_limit_s,
    )
    return document(Curves, answer)


def validate(
    files: Files, *, progress: bool | Progress | None = None, **flags: Unpack[ValidateFlags]
) -> Validation:
    """How far forecasts lie from measured points (.csv), benchmark results (.json, .jsonl) and recorded runs (folders)."""
    answer = ask("validate", several(files), flags=flags, progress=progress, unit="rows")
    return document(Validation, answer)


def calibrate(
    files: Files, *, progress: bool | Progress | None = None, **flags: Unpack[CalibrateFlags]
) -> Calibration:
    """Fits a calibration to measured points and kernel times, judged on what it has not seen; ``output`` writes it as TOML."""
    answer = ask("calibrate", several(files), flags=flags, progress=progress, unit="phases")
    return document(Calibration, answer)


def several(files: Files) -> Sequence[str | os.PathLike[str]]:
    """One file as a list of one."""
    return [files] if isinstance(files, (str, os.PathLike)) else files


def sweeps(over: Mapping[str, Any]) -> list[str]:
    """``--sweep`` of every key: values of Python, or text as the program has it (``1..32:x2``)."""
    return [f"{name}={values if isinstance(values, str) else ','.join(map(_value, _listed(values)))}" for name, values in over.items()]


def _listed(values: Any) -> Iterable[Any]:
    return values if isinstance(values, Iterable) else [values]


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
