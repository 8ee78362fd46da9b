"""The verbs as functions: limits, capacity, simulation, plan, validation and calibration.

Each accepts a spec (the path of a TOML file, its text or a dict; ``None`` is the verb's default) and keywords, which are
the program's flags with underscores for dashes and override the spec. ``roofcast VERB --help`` lists them with units; so
does the type of the keywords. Invalid input raises :class:`roofcast.Error` with the value found and the accepted values.

The interpreter's lock is released while a verb works, and Ctrl-C ends the verb. ``progress`` is called with the number of
finished parts and their total; ``None`` shows a bar on a terminal and in a notebook, ``False`` shows nothing.
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
    """Limits and forecasts of one decode step of ``batch`` sequences of ``context`` tokens, and of one prompt, by
    operator; their bottlenecks; the ridge point, the critical batch and the useful degree of tensor parallelism.

    >>> limits(model="llama-3.1-8b", hardware="h100-sxm", batch=64).decode.bound
    'memory'
    """
    return document(Limits, ask("limits", spec=spec, flags=flags, picture=True))


def limits_sweep(spec: Spec = None, *, over: Mapping[str, Any], **flags: Unpack[LimitsFlags]) -> LimitsSweep:
    """The step for each value of ``over``, as in ``{"batch": range(1, 513)}`` or ``{"batch": "1..512:x2"}`` in the
    program's syntax. Keys are batch, context, prefill, tp, position or keys of the spec; of several keys, every
    combination of values, the last key varying fastest."""
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
    """The forecast of the step with each setting of a kind: attention backends, launches, kernels for quantized weights,
    layouts of the KV cache."""
    return document(LimitsCompare, ask("limits", spec=spec, flags={**flags, "compare": kind}))


def intensity(spec: Spec = None, *, rows: int, columns: int, **flags: Unpack[IntensityFlags]) -> Intensity:
    """FLOPs per byte of one layer of ``rows`` × ``columns`` over the batch size, and the bottleneck."""
    asked = {**flags, "intensity": f"{rows}x{columns}"}
    return document(Intensity, ask("limits", spec=spec, flags=asked, picture=True))


def capacity(spec: Spec = None, **flags: Unpack[CapacityFlags]) -> Capacity:
    """Memory of a deployment: parameters, bytes of weights and KV cache, the sequences, context and users that fit, and the
    smallest topology.

    If the deployment does not fit, ``fits`` is false; this is an answer, not an error. ``explain=True`` adds every tensor.
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
    """Forecasts the metrics that a benchmark client would measure under the load: latencies in ms, throughput, preemptions.

    ``records=True`` keeps every request for :meth:`Simulation.records`. After ``time_limit_s`` seconds the run ends early:
    the answer covers the requests completed until then, and is ``interrupted``.
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
    """One simulation for each combination of values, as in ``over={"tp": [1, 2], "rate": [4, 8, 16]}``, the last key
    varying fastest, on the cores of this machine. :func:`roofcast.distributed.sweep` uses many machines, and can resume."""
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
    """Finds the largest value of a key from ``low`` to ``high`` that meets the SLO, by bisection: ``key="users"``,
    ``"rate"``, ``"max-num-seqs"``, ``"max-num-batched-tokens"`` or another key with numbers. ``best`` is ``None`` if no
    value does."""
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
    """Finds the cheapest deployments that meet the SLO under the load, proven by simulation, with launch commands.

    ``best`` is ``None`` if none meets the SLO; this is an answer, not an error. After ``time_limit_s`` seconds the search
    ends: ``best`` is the best deployment found until then, and the plan is ``interrupted``.
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
    """Curves of output tokens/s per accelerator against output tokens/s of one user: one for each accelerator of the
    search, over the number of users of a replica, with the highest load that meets the SLO and its cost per token."""
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
    """Errors of forecasts against measured points (.csv), benchmark results (.json, .jsonl) and recorded runs (folders)."""
    answer = ask("validate", several(files), flags=flags, progress=progress, unit="rows")
    return document(Validation, answer)


def calibrate(
    files: Files, *, progress: bool | Progress | None = None, **flags: Unpack[CalibrateFlags]
) -> Calibration:
    """Fits a calibration to measured points and kernel times, and evaluates it on held-out rows; ``output`` writes it
    as TOML."""
    answer = ask("calibrate", several(files), flags=flags, progress=progress, unit="phases")
    return document(Calibration, answer)


def several(files: Files) -> Sequence[str | os.PathLike[str]]:
    """The files as a sequence, also if only one is given."""
    return [files] if isinstance(files, (str, os.PathLike)) else files


def sweeps(over: Mapping[str, Any]) -> list[str]:
    """The value of ``--sweep`` for every key, from Python values, or from text in the program's syntax (``1..32:x2``)."""
    return [f"{name}={values if isinstance(values, str) else ','.join(map(_value, _listed(values)))}" for name, values in over.items()]


def _listed(values: Any) -> Iterable[Any]:
    return values if isinstance(values, Iterable) else [values]


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
