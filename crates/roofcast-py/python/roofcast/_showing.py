"""Headlines, rows and notebook tables of answers.

Knows: the keys that a reader sees first. ``answers`` has all keys, and is generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from roofcast._document import JSON, headline_of, rows_of, shown_of
from roofcast.answers import (
    Accelerator,
    Calibration,
    Capacity,
    Choice,
    CurvePoint,
    Curves,
    Found,
    Intensity,
    Limits,
    LimitsCompare,
    LimitsSweep,
    Model,
    Plan,
    Simulation,
    Sweep,
    Validation,
)

Rows = Sequence[Mapping[str, JSON]]


class Served(Protocol):
    """An answer about a deployment."""

    @property
    def model(self) -> str | None: ...
    @property
    def hardware(self) -> str | None: ...
    @property
    def count(self) -> int | None: ...


def _served(answer: Served) -> str:
    return f"{answer.model} on {answer.count} × {answer.hardware}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} ms"


@headline_of.register(Limits)
def _(answer: Limits) -> str:
    decode, prefill = answer.decode, answer.prefill
    return (
        f"{_served(answer)}: decode of {answer.batch} takes {decode.limit_with_communication_ms:.3g} ms at the "
        f"limit, forecast {decode.forecast_ms:.3g} ms; a prompt of {answer.prompt} tokens "
        f"{prefill.limit_with_communication_ms:.3g} ms, forecast {prefill.forecast_ms:.3g} ms"
    )


@rows_of.register(Limits)
def _(answer: Limits) -> Rows:
    """Every operator of both phases."""
    whole = answer.to_dict()
    return [{"phase": phase, **row} for phase in ("decode", "prefill") for row in whole[phase]["operators"]]


@headline_of.register(LimitsSweep)
def _(answer: LimitsSweep) -> str:
    return f"{_served(answer)}: {len(answer.points)} values of {', '.join(answer.sweep)}"


@headline_of.register(Sweep)
def _(answer: Sweep) -> str:
    return f"{len(answer.points)} runs over {', '.join(answer.sweep)}"


@rows_of.register(LimitsSweep)
@rows_of.register(Sweep)
def _(answer: LimitsSweep | Sweep) -> Rows:
    """One row for each combination, with its values under the names of the swept keys."""
    document = answer.to_dict()
    keys, points = document["sweep"], document["points"]
    return [{**dict(zip(keys, row.pop("values"), strict=True)), **row} for row in points]


@headline_of.register(LimitsCompare)
def _(answer: LimitsCompare) -> str:
    return f"{_served(answer)}: {len(answer.alternatives)} settings of {answer.comparison}"


@rows_of.register(LimitsCompare)
def _(answer: LimitsCompare) -> Rows:
    """One row for each setting."""
    return list(answer.to_dict()["alternatives"])


@headline_of.register(Intensity)
def _(answer: Intensity) -> str:
    return f"{answer.rows} × {answer.columns} in {answer.weights} on {answer.hardware}"


@rows_of.register(Intensity)
def _(answer: Intensity) -> Rows:
    """One row for each batch size."""
    return list(answer.to_dict()["points"])


@headline_of.register(Capacity)
def _(answer: Capacity) -> str:
    if not answer.fits:
        return f"{_served(answer)}: does not fit, short by {answer.short_by_bytes / 1e9:.1f} GB"
    return f"{_served(answer)}: {answer.kv_tokens} KV tokens, {answer.max_batch} sequences of {answer.context} tokens"


@headline_of.register(Simulation)
def _(answer: Simulation) -> str:
    if not answer.completed:
        return f"{_served(answer)}: no request was served"
    overload = ", overloaded" if answer.load.overloaded else ""
    return (
        f"{_served(answer)}: {answer.request_throughput:.3g} requests/s, {answer.output_throughput:.4g} output tok/s, "
        f"TTFT p50 {_ms(answer.p50_ttft_ms)} p99 {_ms(answer.p99_ttft_ms)}, "
        f"TPOT p50 {_ms(answer.p50_tpot_ms)} p99 {_ms(answer.p99_tpot_ms)}{overload}"
    )


@headline_of.register(Found)
def _(answer: Found) -> str:
    missed = f", {answer.missed.value:.6g} misses it" if answer.missed else ""
    best = "none" if answer.best is None else f"{answer.best:.6g}"
    return f"{_served(answer)}: largest {answer.key} that keeps the SLO {best}{missed}"


@headline_of.register(Plan)
def _(answer: Plan) -> str:
    best = answer.best
    if best is None:
        told = "no deployment had met the SLO when it was stopped" if answer.interrupted else "no deployment meets the SLO"
        return f"{answer.model}: {told}"
    cost = "no price" if best.cost_per_hour is None else f"{best.cost_per_hour:.4g} dollars an hour"
    return (
        f"{answer.model}: {best.count} × {best.accelerator}, tp {best.tp}, {best.replicas} replicas, "
        f"{best.weights} weights: {cost}"
    )


@rows_of.register(Plan)
def _(answer: Plan) -> Rows:
    """The deployments that meet the SLO, best first."""
    return [{k: v for k, v in row.items() if k != "spec"} for row in answer.to_dict()["ranked"]]


@shown_of.register(Plan)
def _(answer: Plan) -> Rows:
    """The columns that distinguish deployments, and their costs; if none meets the SLO, the deployments that came nearest."""
    if not answer.ranked:
        return [{"deployment": near.deployment, "why": near.reason, "$/h": near.cost_per_hour} for near in answer.nearest]
    return [
        {
            "accelerators": f"{choice.count} × {choice.accelerator}",
            "as": f"{choice.replicas} × {_cut(choice)}",
            "formats": f"{choice.weights} / {choice.kv}",
            "engine": choice.engine,
            "$/h": choice.cost_per_hour,
            "$/M tokens": choice.cost_per_million_tokens,
            "TTFT p99 ms": choice.ttft_p99_ms,
            "TPOT p99 ms": choice.tpot_p99_ms,
            "chance": choice.chance,
            "output tok/s": choice.output_tok_s,
        }
        for choice in answer.ranked
    ]


@headline_of.register(Curves)
def _(answer: Curves) -> str:
    return f"{answer.model}: {len(answer.curves)} curves, {answer.load}; SLO: {answer.slo}"


@rows_of.register(Curves)
def _(answer: Curves) -> Rows:
    """One row for each point of all curves."""
    curves = answer.to_dict()["curves"]
    return [{"curve": curve["name"], **point} for curve in curves for point in curve["points"]]


@shown_of.register(Curves)
def _(answer: Curves) -> Rows:
    """The best point of each curve."""
    best = [(curve.name, curve.best) for curve in answer.curves]
    return [
        {
            "curve": name,
            "as": _cut(point),
            "users": point.users,
            "tok/s/user": point.interactivity_tok_s,
            "tok/s/GPU": point.output_tok_s_per_accelerator,
            "$/M tokens": point.cost_per_million_tokens,
            "J/token": point.joules_per_token,
            "TTFT p99 ms": point.ttft_p99_ms,
            "TPOT p99 ms": point.tpot_p99_ms,
        }
        for name, point in best
        if point is not None
    ]


def _cut(of: Choice | CurvePoint) -> str:
    """The parallelism of a replica, as in ``tp 4 pp 2``."""
    others = (("pp", of.pp), ("dp", of.attention_dp), ("ep", of.ep))
    return " ".join([f"tp {of.tp}", *(f"{name} {degree}" for name, degree in others if degree > 1)])


@headline_of.register(Validation)
def _(answer: Validation) -> str:
    return f"{answer.predicted} of {answer.rows} rows forecast"


@rows_of.register(Validation)
def _(answer: Validation) -> Rows:
    """One row for each metric of each part of the report."""
    report = answer.to_dict()
    parts = [("all", report)]
    for kind in ("kinds", "sources", "engines", "hardware"):
        parts += report[kind].items()
    parts += [(group["group"], group) for group in report["groups"]]
    return [{"part": name, "metric": metric, **e} for name, part in parts for metric, e in part["metrics"].items()]


@headline_of.register(Calibration)
def _(answer: Calibration) -> str:
    return f"{answer.rows} rows, {len(answer.numbers)} numbers"


@rows_of.register(Calibration)
def _(answer: Calibration) -> Rows:
    return list(answer.to_dict()["numbers"])


@headline_of.register(Model)
def _(answer: Model) -> str:
    parameters = "unknown" if answer.parameters is None else f"{answer.parameters.total / 1e9:.4g}e9"
    size = "" if answer.weight_bytes is None else f", {answer.weight_bytes / 1e9:.4g} GB"
    return f"{answer.id}: {parameters} parameters, {answer.weights}{size}"


@headline_of.register(Accelerator)
def _(answer: Accelerator) -> str:
    return f"{answer.name}: {answer.memory_bytes / 1e9:.4g} GB, {answer.bandwidth_bytes_per_s / 1e12:.3g} TB/s"
