"""Answers of the verbs, as dataclasses.

Fields are the keys of the documents that ``--json`` prints; ``docs/json.md`` defines each. Times end in ``_ms``
(milliseconds) or ``_s`` (seconds), sizes in ``_bytes``, rates in ``_per_s`` or ``_tok_s`` (tokens a second); shares and
errors are fractions of 1, money is in US dollars.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from roofcast._document import JSON, Document, Part, _keep, read
from roofcast._native import Table

Band = tuple[float, float]
"""A band: the 10th and 90th percentile of a value."""


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} ms"


def _swept(document: dict[str, JSON]) -> list[dict[str, JSON]]:
    """The points of a sweep as flat dicts, with each swept value under the name of its key."""
    keys, points = document["sweep"], document["points"]
    return [{**dict(zip(keys, row.pop("values"), strict=True)), **row} for row in points]


@dataclass(init=False, repr=False, eq=False)
class Parallelism(Part):
    """Degrees of parallelism; their product over ``ep`` and ``attention_dp`` is the count of accelerators."""

    tp: int
    pp: int
    ep: int
    attention_dp: int
    replicas: int


@dataclass(init=False, repr=False, eq=False)
class Served(Document):
    """The head of an answer about a deployment: model, hardware, parallelism, formats and engine."""

    model: str
    hardware: str
    count: int
    parallelism: Parallelism
    weights: str
    kv: str
    activations: str
    engine: dict[str, Any]
    convention: str
    ideal: bool
    assumptions: list[str]

    def headline(self) -> str:
        return f"{self.model} on {self.count} × {self.hardware}"


@dataclass(init=False, repr=False, eq=False)
class Terms(Part):
    """Times of a forward pass by resource: its total work over the peak rate of each. The times overlap."""

    weights_ms: float
    kv_ms: float
    flops_ms: float
    communication_ms: float


@dataclass(init=False, repr=False, eq=False)
class Communication(Part):
    """Communication of a forward pass, over the slowest link."""

    all_reduces: int
    message_bytes: int
    all_reduce_ms: float
    all_to_all_ms: float
    pipeline_ms: float
    latency_ms: float


@dataclass(init=False, repr=False, eq=False)
class Basis(Part):
    """Evidence for an operator's time: how close the measured hardware is, if this exact shape was timed, and the kernel."""

    evidence: str
    exact: bool
    kernel: str


@dataclass(init=False, repr=False, eq=False)
class Operator(Part):
    """One operator of a forward pass, summed over its layers; ``intensity`` is in FLOPs per byte."""

    name: str
    family: str
    layers: int
    dtype: str
    flops: int
    weight_bytes: int
    kv_bytes: int
    intensity: float
    bound: str
    limit_ms: float
    forecast_ms: float
    share: float
    rests_on: Basis | None = None


@dataclass(init=False, repr=False, eq=False)
class Beside(Part):
    """Times of a forecast in addition to its operators."""

    small_kernels_ms: float
    launches_ms: float
    host_ms: float
    links_ms: float


@dataclass(init=False, repr=False, eq=False)
class Cost(Part):
    """A forward pass: its limit, its forecast and its bottleneck."""

    limit_ms: float
    limit_with_communication_ms: float
    forecast_ms: float
    forecast_band_ms: Band
    forecast_source: str
    bound: str
    terms: Terms
    mfu: float
    mbu: float
    intensity: float
    communication: Communication
    operators: list[Operator]
    beside: Beside


@dataclass(init=False, repr=False, eq=False)
class Ridge(Part):
    """Ridge point: the arithmetic intensity at which compute and memory take equal time."""

    dtype: str
    flops_per_byte: float


@dataclass(init=False, repr=False, eq=False)
class CriticalBatch(Part):
    """Critical batch: tokens in a step from which weights of this number of bits are compute-bound."""

    weight_bits: int
    dtype: str
    batch: float


@dataclass(init=False, repr=False, eq=False)
class AllReduce(Part):
    """One all-reduce of the decode step."""

    algorithm: str
    bandwidth_ms: float
    latency_ms: float


@dataclass(init=False, repr=False, eq=False)
class Degree(Part):
    """The decode step at a degree of tensor parallelism."""

    tp: int
    limit_ms: float
    communication_ms: float
    bound: str


@dataclass(init=False, repr=False, eq=False)
class TensorParallel(Part):
    """The degrees of tensor parallelism at which it still shortens the step."""

    compute_bound_width: float
    memory_bound_width: float
    degrees: list[Degree]
    useful_tp: int


@dataclass(init=False, repr=False, eq=False)
class Experts(Part):
    """Number of experts of a layer, and of distinct experts that the decode step reads."""

    count: int
    per_token: int
    distinct: float


@dataclass(init=False, repr=False, eq=False)
class KvCacheLimit(Part):
    """Work that a KV cache saves."""

    cached_ms: float
    recomputed_ms: float
    kv_flops_share: float
    break_even_context: int


@dataclass(init=False, repr=False, eq=False)
class Limits(Served):
    """Limits and forecasts of one decode step of the batch, and of one prompt."""

    batch: int
    context: int
    prompt: int
    mfu_limit: float
    mbu_limit: float
    fits: bool
    decode: Cost
    decode_tokens_per_s: float
    prefill: Cost
    prefill_tokens_per_s: float
    ridge: list[Ridge]
    critical_batch: list[CriticalBatch]
    all_reduce: list[AllReduce]
    tensor_parallel: TensorParallel
    experts: Experts | None
    kv_cache: KvCacheLimit

    def headline(self) -> str:
        decode, prefill = self.decode, self.prefill
        return (
            f"{super().headline()}: decode of {self.batch} takes {decode.limit_with_communication_ms:.3g} ms at the "
            f"limit, forecast {decode.forecast_ms:.3g} ms; a prompt of {self.prompt} tokens "
            f"{prefill.limit_with_communication_ms:.3g} ms, forecast {prefill.forecast_ms:.3g} ms"
        )

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """Every operator of both phases."""
        whole = self.to_dict()
        return [{"phase": phase, **row} for phase in ("decode", "prefill") for row in whole[phase]["operators"]]


@dataclass(init=False, repr=False, eq=False)
class LimitsPoint(Part):
    """The step at one combination of values, which has one value for each key."""

    values: list[Any]
    limit_ms: float
    weights_ms: float
    kv_ms: float
    flops_ms: float
    communication_ms: float
    limit_with_communication_ms: float
    forecast_ms: float
    forecast_band_ms: Band
    bound: str
    tokens_per_s: float
    forecast_tokens_per_s: float
    mfu: float
    mbu: float
    fits: bool
    usd_per_million_tokens: float | None = None
    evicted_tokens_per_step: float | None = None


@dataclass(init=False, repr=False, eq=False)
class LimitsSweep(Served):
    """Steps over the values of keys; the head describes the deployment at the first values."""

    sweep: list[str]
    points: list[LimitsPoint]
    interrupted: bool

    def headline(self) -> str:
        return f"{super().headline()}: {len(self.points)} values of {', '.join(self.sweep)}"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each combination, with its values under the names of the swept keys."""
        return _swept(self.to_dict())


@dataclass(init=False, repr=False, eq=False)
class Alternative(Part):
    """Forecasts with one setting; ``attention_ms`` is the time of the attention kernels in the decode step, without
    launches."""

    name: str
    decode_ms: float
    attention_ms: float
    prefill_ms: float


@dataclass(init=False, repr=False, eq=False)
class LimitsCompare(Served):
    """The step with each setting of a kind."""

    comparison: str
    batch: int
    context: int
    prompt: int
    alternatives: list[Alternative]

    def headline(self) -> str:
        return f"{super().headline()}: {len(self.alternatives)} settings of {self.comparison}"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each setting."""
        rows: Sequence[Mapping[str, JSON]] = self.to_dict()["alternatives"]
        return rows


@dataclass(init=False, repr=False, eq=False)
class IntensityPoint(Part):
    """FLOPs per byte of one layer at one batch size, including inputs and outputs, and the bottleneck."""

    batch: int
    flops_per_byte: float
    bound: str


@dataclass(init=False, repr=False, eq=False)
class Intensity(Document):
    """The arithmetic intensity of one layer of ``rows`` × ``columns`` over the batch size."""

    hardware: str
    rows: int
    columns: int
    weights: str
    points: list[IntensityPoint]

    def headline(self) -> str:
        return f"{self.rows} × {self.columns} in {self.weights} on {self.hardware}"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each batch size."""
        rows: Sequence[Mapping[str, JSON]] = self.to_dict()["points"]
        return rows


@dataclass(init=False, repr=False, eq=False)
class Parameters(Part):
    """Parameter counts; for a model with experts, ``active`` counts the parameters that one token uses."""

    total: int
    active: int
    embedding: int
    lm_head: int


@dataclass(init=False, repr=False, eq=False)
class Topology(Part):
    """The smallest deployment that fits; ``shape`` is the shape of its slice of a torus."""

    count: int
    tp: int
    pp: int
    decode_bound: str
    shape: list[int] | None = None


@dataclass(init=False, repr=False, eq=False)
class Rank(Part):
    """Memory of the fullest accelerator of a pipeline stage."""

    budget_bytes: int
    weight_bytes: int
    activation_bytes: int
    runtime_bytes: int
    state_bytes: int
    free_bytes: int
    kv_bytes: int
    short_by_bytes: int


@dataclass(init=False, repr=False, eq=False)
class Capacity(Served):
    """Capacity: the sequences and tokens that fit in memory, and the memory of everything else."""

    context: int
    batch: int
    oversubscription: float
    fits: bool
    short_by_bytes: int
    parameters: Parameters
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_per_sequence: int
    kv_tokens: int
    max_batch: int
    longest_context: int
    users: int
    ranks: list[Rank]
    host_kv_tokens: int | None = None
    storage_kv_tokens: int | None = None
    deployments_for_users: int | None = None
    min_accelerators: int | None = None
    smallest_topology: Topology | None = None
    in_stages: Topology | None = None
    compute_bytes_per_token: int = 0
    start: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    tensors: list[dict[str, Any]] | None = None
    checkpoint: dict[str, Any] | None = None

    def headline(self) -> str:
        if not self.fits:
            return f"{super().headline()}: does not fit, short by {self.short_by_bytes / 1e9:.1f} GB"
        return f"{super().headline()}: {self.kv_tokens} KV tokens, {self.max_batch} sequences of {self.context} tokens"


@dataclass(init=False, repr=False, eq=False)
class Span(Part):
    """Band of a mean: factors of measured over forecast, and the range of values that they give."""

    factors: Band
    range: Band


@dataclass(init=False, repr=False, eq=False)
class Bands(Part):
    """Bands of a forecast: the 10th and 90th percentile of the measured values that are expected for it."""

    evidence: str
    rests_on: str
    ttft_ms: Span
    tpot_ms: Span
    e2el_ms: Span
    output_tok_s: Span | None = None


@dataclass(init=False, repr=False, eq=False)
class Activity(Part):
    """Activity of the engines: steps, tokens, preemptions."""

    steps: int
    mean_running: float
    max_running: int
    max_waiting: int
    preemptions: int
    scheduled_tokens: int
    recomputed_tokens: int
    swapped_tokens: int
    cached_tokens: int
    idle_tokens: int
    drafted_tokens: int
    rejected_tokens: int


@dataclass(init=False, repr=False, eq=False)
class StorageUse(Part):
    """Use of storage below the host as a tier of the KV cache; the hit rate is a fraction."""

    tokens: int
    hit_rate: float
    loaded_tokens: int
    loaded_bytes: int
    stored_tokens: int
    stored_bytes: int
    loading_s: float


@dataclass(init=False, repr=False, eq=False)
class HostUse(Part):
    """Use of the host's memory as a tier of the KV cache; hit rates are fractions."""

    tokens: int
    device_hit_rate: float
    host_hit_rate: float
    loaded_tokens: int
    loaded_bytes: int
    stored_tokens: int
    stored_bytes: int
    loading_s: float
    spared_s: float
    dropped_tokens: int | None = None
    storage: StorageUse | None = None


@dataclass(init=False, repr=False, eq=False)
class KvCacheUse(Part):
    """Blocks of the KV cache; usage and fragmentation are fractions."""

    blocks: int
    block_size: int
    groups: int
    max_blocks: int
    mean_usage: float
    internal_fragmentation: float
    external_fragmentation: float
    scattered_refusals: int
    scattered_fragmentation: float
    tables: dict[str, Any] | None = None
    host: HostUse | None = None


@dataclass(init=False, repr=False, eq=False)
class Expense(Part):
    """Cost and energy; ``None`` if the accelerator has no price or power."""

    dollars_per_hour: float | None = None
    dollars_per_million_output_tokens: float | None = None
    joules: float | None = None
    joules_per_output_token: float | None = None


@dataclass(init=False, repr=False, eq=False)
class Pool(Part):
    """Replicas of one kind, and the fraction of time in which they compute."""

    accelerator: str
    replicas: int
    accelerators_each: int
    busy: float
    blocks: int
    dollars_per_hour: float | None
    joules: float | None


@dataclass(init=False, repr=False, eq=False)
class Transfers(Part):
    """KV caches transferred from prefill to decode replicas."""

    count: int
    mean_ms: float


@dataclass(init=False, repr=False, eq=False)
class Autoscale(Part):
    """Replicas that autoscaling started and stopped."""

    replica_seconds: float
    mean_replicas: float
    max_replicas: int
    started: int
    stopped: int


@dataclass(init=False, repr=False, eq=False)
class FoundPrefixes(Part):
    """Prompt tokens found in the prefix caches of the replicas that the router chose; `most_tokens` counts the best
    replica's."""

    prompt_tokens: int
    found_tokens: int
    most_tokens: int


@dataclass(init=False, repr=False, eq=False)
class Fleet(Part):
    """The replicas that served requests, by pool."""

    accelerators: int
    serving: Pool
    prefill: Pool | None = None
    beside: Pool | None = None
    transfers: Transfers | None = None
    autoscale: Autoscale | None = None
    prefixes: FoundPrefixes | None = None


@dataclass(init=False, repr=False, eq=False)
class Sessions(Part):
    """Recorded sessions that were completed: seconds from the first turn to the last answer."""

    completed: int
    mean_task_s: float
    median_task_s: float
    p90_task_s: float


@dataclass(init=False, repr=False, eq=False)
class Load(Part):
    """Requests per second that arrive and that are answered, and if the queue grows."""

    overloaded: bool
    offered_per_s: float | None = None
    stable_per_s: float | None = None
    too_short_below: int | None = None


@dataclass(init=False, repr=False, eq=False)
class Simulation(Served):
    """Forecast of the metrics that a benchmark client would measure, by vLLM's keys."""

    cost: str
    interrupted: bool
    requests: int
    refused: int
    rejected: int
    duration: float
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    output_throughput: float
    total_token_throughput: float
    mean_ttft_ms: float | None
    median_ttft_ms: float | None
    std_ttft_ms: float | None
    p50_ttft_ms: float | None
    p90_ttft_ms: float | None
    p95_ttft_ms: float | None
    p99_ttft_ms: float | None
    p999_ttft_ms: float | None
    mean_tpot_ms: float | None
    median_tpot_ms: float | None
    std_tpot_ms: float | None
    p50_tpot_ms: float | None
    p90_tpot_ms: float | None
    p95_tpot_ms: float | None
    p99_tpot_ms: float | None
    p999_tpot_ms: float | None
    mean_itl_ms: float | None
    median_itl_ms: float | None
    std_itl_ms: float | None
    p50_itl_ms: float | None
    p90_itl_ms: float | None
    p95_itl_ms: float | None
    p99_itl_ms: float | None
    p999_itl_ms: float | None
    mean_e2el_ms: float | None
    median_e2el_ms: float | None
    std_e2el_ms: float | None
    p50_e2el_ms: float | None
    p90_e2el_ms: float | None
    p95_e2el_ms: float | None
    p99_e2el_ms: float | None
    p999_e2el_ms: float | None
    settings: dict[str, Any]
    activity: Activity
    kv_cache: KvCacheUse
    time: dict[str, float]
    limit_tpot_ms: float
    expense: Expense
    fleet: Fleet
    load: Load
    sessions: Sessions | None
    request_goodput: float | None = None
    bands: Bands | None = None
    measured: dict[str, Any] | None = None

    def headline(self) -> str:
        if not self.completed:
            return f"{super().headline()}: no request was served"
        overload = ", overloaded" if self.load.overloaded else ""
        return (
            f"{super().headline()}: {self.request_throughput:.3g} requests/s, {self.output_throughput:.4g} output tok/s, "
            f"TTFT p50 {_ms(self.p50_ttft_ms)} p99 {_ms(self.p99_ttft_ms)}, "
            f"TPOT p50 {_ms(self.p50_tpot_ms)} p99 {_ms(self.p99_tpot_ms)}{overload}"
        )

    def records(self) -> Table:
        """Every request as Arrow, if ``simulate(…, records=True)`` kept them; times are in ms since the start of the run."""
        if self._records is None:
            raise AttributeError("records were not kept: simulate(…, records=True)")
        return self._records


@dataclass(init=False, repr=False, eq=False)
class Point(Simulation):
    """One run of a sweep: a simulation, and the value of each swept key."""

    values: list[Any] = field(default_factory=list)


@dataclass(init=False, repr=False, eq=False)
class Sweep(Document):
    """The runs of a sweep, one for every combination of the values of its keys."""

    sweep: list[str]
    interrupted: bool
    points: list[Point]

    def headline(self) -> str:
        return f"{len(self.points)} runs over {', '.join(self.sweep)}"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each run; the swept keys are the first columns."""
        return _swept(self.to_dict())


@dataclass(init=False, repr=False, eq=False)
class Found(Served):
    """The largest value of a key that meets the SLO, the smallest tried value above it, which misses the SLO, and every
    value that was tried."""

    slo: dict[str, float | None]
    key: str
    low: float
    high: float
    best: float | None
    at_least: bool
    missed: dict[str, Any] | None
    simulations: int
    interrupted: bool
    points: list[dict[str, Any]]

    def headline(self) -> str:
        missed = f", {self.missed['value']:.6g} misses it" if self.missed else ""
        best = "none" if self.best is None else f"{self.best:.6g}"
        return f"{super().headline()}: largest {self.key} that keeps the SLO {best}{missed}"


A = TypeVar("A", bound=Document)


@dataclass(frozen=True)
class Answered(Generic[A]):
    """One answer of a study, and the value of each swept key."""

    values: list[Any]
    answer: A


class Study(Document, Generic[A]):
    """Answers of one verb, one for every combination of the values of some keys.

    ``sweep`` are the keys, ``interrupted`` says whether some took too long and are left out. ``points`` are read from the
    document one by one, when they are asked for.
    """

    sweep: list[str]
    interrupted: bool
    points: Sequence[Answered[A]]

    def __init__(self, text: str, cls: type[A]) -> None:
        head, *lines = text.splitlines()
        keys = json.loads(head + "]}")
        points = _Points([line.rstrip(",") for line in lines[:-1] if line], cls)
        for name, value in (("sweep", keys["sweep"]), ("interrupted", keys["interrupted"]), ("points", points)):
            object.__setattr__(self, name, value)
        _keep(self, text, None, None)

    def headline(self) -> str:
        return f"{len(self.points)} answers over {', '.join(self.sweep)}"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Study) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each answer, without its lists; the swept keys are the first columns."""
        points = self.to_dict()["points"]
        return [
            {
                **dict(zip(self.sweep, point["values"], strict=True)),
                **{k: v for k, v in point["answer"].items() if not isinstance(v, list) and k not in ("schema", *self.sweep)},
            }
            for point in points
        ]


class _Points(Sequence[Answered[A]]):
    """A lazy list of answers, each parsed from its line of a study's document when it is used."""

    def __init__(self, lines: list[str], cls: type[A]) -> None:
        self._lines, self._cls = lines, cls

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Answered[A]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Answered[A]]: ...
    def __getitem__(self, index: int | slice) -> Answered[A] | Sequence[Answered[A]]:
        if isinstance(index, slice):
            return _Points(self._lines[index], self._cls)
        point = json.loads(self._lines[index])
        return Answered(point["values"], read(self._cls, json.dumps(point["answer"], ensure_ascii=False)))


@dataclass(init=False, repr=False, eq=False)
class Phases(Part):
    """Cost of a token and of a long prompt at one price."""

    tpot_ms: float
    prefill_ms: float


@dataclass(init=False, repr=False, eq=False)
class Headroom(Part):
    """The metric nearest to its bound, and its distance from the bound as a fraction of the bound."""

    metric: str
    share: float
    percentile: str | None = None


@dataclass(init=False, repr=False, eq=False)
class Bounded(Part):
    """A simulated percentile and its bound."""

    metric: str
    percentile: str
    ms: float
    most_ms: float
    over_seeds: list[float] | None = None


@dataclass(init=False, repr=False, eq=False)
class Choice(Part):
    """A deployment that meets the SLO, with the figures of its simulation; costs in dollars."""

    accelerator: str
    count: int
    tp: int
    pp: int
    ep: int
    attention_dp: int
    replicas: int
    prefill: dict[str, Any] | None
    beside: dict[str, Any] | None
    weights: str
    kv: str
    engine: str
    router: str
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    num_speculative_tokens: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    batch: float
    max_batch: int
    tpot_ms: float
    tpot_p99_ms: float
    ttft_ms: float
    ttft_p99_ms: float
    e2el_ms: float
    e2el_p99_ms: float
    itl_p99_ms: float
    limit: Phases
    forecast: Phases
    bound: str
    stage: str
    evidence: str | None
    kernels: dict[str, str] | None
    bounds: list[Bounded]
    headroom: Headroom | None
    chance: float | None
    max_requests_per_s: float | None
    utilization: float | None
    output_tok_s: float
    output_tok_s_per_accelerator: float
    interactivity_tok_s: float
    cost_per_hour: float | None
    cost_per_million_tokens: float | None
    joules_per_token: float | None
    prefill_per_decode: float | None
    bands: Bands | None
    spec: dict[str, Any]
    host_tier_gib: float | None = None


@dataclass(init=False, repr=False, eq=False)
class Near(Part):
    """A deployment that does not meet the SLO, and the reason: ``factor`` is the value found over the value allowed."""

    deployment: str
    count: int
    cost_per_hour: float | None
    stage: str
    reason: str
    factor: float | None


@dataclass(init=False, repr=False, eq=False)
class Launch(Part):
    """The command that starts an engine; ``command`` is ``None`` if no command starts this deployment, for the reason
    in ``note``."""

    role: str
    replicas: int
    engine: str
    nodes: int = 1
    command: str | None = None
    on_others: str | None = None
    note: str | None = None


@dataclass(init=False, repr=False, eq=False)
class WhatIf(Part):
    """A changed bound or load, and if the best deployment still meets the SLO."""

    change: str
    meets: bool
    because: str
    chance: float | None = None
    replicas: int | None = None


@dataclass(init=False, repr=False, eq=False)
class Plan(Document):
    """A plan: the deployments that meet the SLO, best first; ``best`` is ``None`` if none does."""

    model: str
    cost: str
    minimise: str
    considered: int
    pruned: dict[str, int]
    simulated: int
    dearer: int
    feasible: int
    requests: int
    confidence: float
    confident: bool
    interrupted: bool
    at_least: float | None
    unjudged: int
    assumptions: list[str]
    best: Choice | None
    cheaper: list[Choice]
    pareto: list[Choice]
    pareto_throughput: list[Choice]
    by_accelerator: list[Choice]
    ranked: list[Choice]
    nearest: list[Near]
    not_searched: list[str]
    left_out: list[dict[str, Any]]
    not_apart: list[str]
    smallest: list[dict[str, Any]]
    what_if: list[WhatIf]
    why: list[Near]
    launch: list[Launch]
    manifests: list[dict[str, Any]]
    quality: list[dict[str, str | None]]
    flops_per_dollar: list[dict[str, Any]]
    spec: str | None
    bench: str | None
    current: dict[str, Any] | None = None
    removed: list[str] | None = None
    over_time: dict[str, Any] | None = None

    def headline(self) -> str:
        best = self.best
        if best is None:
            told = "no deployment had met the SLO when it was stopped" if self.interrupted else "no deployment meets the SLO"
            return f"{self.model}: {told}"
        cost = "no price" if best.cost_per_hour is None else f"{best.cost_per_hour:.4g} dollars an hour"
        return (
            f"{self.model}: {best.count} × {best.accelerator}, tp {best.tp}, {best.replicas} replicas, "
            f"{best.weights} weights: {cost}"
        )

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """The deployments that meet the SLO, best first."""
        return [{k: v for k, v in row.items() if k != "spec"} for row in self.to_dict()["ranked"]]

    def _shown(self) -> Sequence[Mapping[str, JSON]]:
        """The columns that distinguish deployments, and their costs; if none meets the SLO, the deployments that came
        nearest."""
        if not self.ranked:
            return [{"deployment": near.deployment, "why": near.reason, "$/h": near.cost_per_hour} for near in self.nearest]
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
            for choice in self.ranked
        ]


@dataclass(init=False, repr=False, eq=False)
class CurvePoint(Part):
    """One replica under a number of users, in steady state; ``missed`` is the bound of the SLO that it misses."""

    users: int
    count: int
    tp: int
    pp: int
    ep: int
    attention_dp: int
    weights: str
    kv: str
    engine: str
    interactivity_tok_s: float
    output_tok_s: float
    output_tok_s_per_accelerator: float
    tpot_ms: float
    tpot_p99_ms: float
    limit_tpot_ms: float
    ttft_ms: float
    ttft_p99_ms: float
    e2el_ms: float
    cost_per_million_tokens: float | None
    joules_per_token: float | None
    bound: str
    missed: str | None
    evidence: str | None
    kernels: dict[str, str] | None
    bands: Bands | None


@dataclass(init=False, repr=False, eq=False)
class Curve(Part):
    """The Pareto front of one accelerator, the highest speed for a user first; ``best`` is the point of the highest
    load that meets the SLO."""

    name: str
    accelerator: str
    usd_per_hour: float | None
    points: list[CurvePoint]
    best: CurvePoint | None


@dataclass(init=False, repr=False, eq=False)
class Curves(Document):
    """Curves of output tokens/s per accelerator against output tokens/s of one user."""

    model: str
    cost: str
    load: str
    slo: str
    curves: list[Curve]
    left_out: list[str]
    simulated: int
    interrupted: bool

    def headline(self) -> str:
        return f"{self.model}: {len(self.curves)} curves, {self.load}; SLO: {self.slo}"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each point of all curves."""
        curves = self.to_dict()["curves"]
        return [{"curve": curve["name"], **point} for curve in curves for point in curve["points"]]

    def _shown(self) -> Sequence[Mapping[str, JSON]]:
        """The best point of each curve."""
        best = [(curve.name, curve.best) for curve in self.curves]
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


@dataclass(init=False, repr=False, eq=False)
class Errors(Part):
    """Errors of one metric, as fractions: medians of abs(forecast/measured − 1) and of forecast/measured − 1 (``bias``)."""

    n: int
    median_ape: float
    p90_ape: float
    bias: float
    in_band: float
    kept_at_80: float
    kept_at_90: float
    groups: int
    group_median_ape: float
    group_p90_ape: float


@dataclass(init=False, repr=False, eq=False)
class Errored(Part):
    """Number of rows, number of rows with a forecast, and their errors by metric."""

    rows: int
    predicted: int
    metrics: dict[str, Errors]


@dataclass(init=False, repr=False, eq=False)
class Group(Errored):
    """Rows of one model, accelerator, engine and weight format."""

    group: str


@dataclass(init=False, repr=False, eq=False)
class Report(Errored):
    """Errors by kind, source, engine, accelerator and group."""

    skipped: list[dict[str, Any]]
    kinds: dict[str, Errored]
    sources: dict[str, Errored]
    engines: dict[str, Errored]
    hardware: dict[str, Errored]
    groups: list[Group]
    drafts: list[str]


def _error_rows(report: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """One row for each metric of each part of a report."""
    parts = [("all", report)]
    for kind in ("kinds", "sources", "engines", "hardware"):
        parts += report[kind].items()
    parts += [(group["group"], group) for group in report["groups"]]
    return [{"part": name, "metric": metric, **e} for name, part in parts for metric, e in part["metrics"].items()]


@dataclass(init=False, repr=False, eq=False)
class Validation(Document):
    """Errors of forecasts against measurements."""

    rows: int
    predicted: int
    metrics: dict[str, Errors]
    skipped: list[dict[str, Any]]
    kinds: dict[str, Errored]
    sources: dict[str, Errored]
    engines: dict[str, Errored]
    hardware: dict[str, Errored]
    groups: list[Group]
    drafts: list[str]
    split: dict[str, Any]
    refused: list[str]
    runs: list[dict[str, Any]]
    interrupted: bool

    def headline(self) -> str:
        return f"{self.predicted} of {self.rows} rows forecast"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        """One row for each metric of each part."""
        return _error_rows(self.to_dict())


@dataclass(init=False, repr=False, eq=False)
class Number(Part):
    """One fitted time of an engine in microseconds, with its prior and bounds, and the number of rows that it affects."""

    engine: str
    name: str
    us: float
    prior: float
    least: float
    most: float
    rows: int


@dataclass(init=False, repr=False, eq=False)
class LeftOut(Part):
    """Errors of one metric on held-out rows, as fractions of the measured value."""

    n: int
    bias: float
    median_ape: float
    p90_ape: float


@dataclass(init=False, repr=False, eq=False)
class Calibration(Document):
    """A calibration: the fitted times that an engine adds to its kernels, and the errors on held-out sources, models
    and accelerators."""

    rows: int
    interrupted: bool
    numbers: list[Number]
    left_out: dict[str, dict[str, LeftOut]]

    def headline(self) -> str:
        return f"{self.rows} rows, {len(self.numbers)} numbers"

    def _rows(self) -> Sequence[Mapping[str, JSON]]:
        return list(self.to_dict()["numbers"])
