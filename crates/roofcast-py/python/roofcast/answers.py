"""Answers of the verbs, as dataclasses: keys of the documents of ``--json``.

Times end in ``_ms`` (milliseconds) or ``_s`` (seconds), sizes in ``_bytes``, rates in ``_per_s`` or ``_tok_s`` (tokens a
second); shares and errors are fractions of 1, money is in US dollars.

Written by ``UPDATE_TYPES=1 cargo test -p roofcast-cli --lib schemas`` from the structs that answer; do not edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from roofcast._document import Document, Part


@dataclass(init=False, repr=False, eq=False)
class Activity(Part):
    """Work of the engines, summed over replicas."""

    steps: int
    """Number of steps."""

    mean_running: float
    """Mean number of running requests in a step."""

    max_running: int
    """Most running requests in a step of one replica."""

    max_waiting: int
    """Most waiting requests at one replica."""

    preemptions: int
    """Number of preemptions."""

    scheduled_tokens: int
    """Number of computed tokens."""

    recomputed_tokens: int
    """Number of tokens that preempted requests recomputed."""

    swapped_tokens: int
    """Number of tokens moved to host memory and back by swapping."""

    cached_tokens: int
    """Number of prompt tokens found in the prefix cache."""

    idle_tokens: int
    """Number of tokens computed for rows of a static batch whose requests had ended."""

    drafted_tokens: int
    """Number of drafts that were verified."""

    rejected_tokens: int
    """Number of drafts that were rejected."""


@dataclass(init=False, repr=False, eq=False)
class AdapterCost(Part):
    """Cost of LoRA adapters in the decode step, in addition to the step's own."""

    adapters: int
    """Number of adapters in the step: ``max_loras``, or one for each sequence of a data-parallel rank if these are
    fewer."""

    max_lora_rank: int
    """Rank with which they are computed."""

    bytes: int
    """Bytes of one adapter on one rank."""

    limit_ms: float
    """Time added to the step at the limit: FLOPs or bytes of the adapters."""

    forecast_ms: float
    """Time added to the step as forecast, with the kernels that the adapters launch."""

    load_ms: float
    """Time to copy one adapter from the host to the device, for which a step waits."""


@dataclass(init=False, repr=False, eq=False)
class AdapterUse(Part):
    """Use of LoRA adapters, over all replicas."""

    adapters: int
    """Number of different adapters that requests may name."""

    max_loras: int
    """Most adapters whose requests run at one time on a replica."""

    adapter_bytes: int
    """Bytes of one adapter on one rank."""

    loads: int
    """Number of copies of an adapter from the host to the device."""

    reads: int
    """Number of adapters among them that were not on the host either, and were first read from storage."""

    loading_s: float
    """Seconds for which steps waited for loads."""

    computing_s: float
    """Seconds that the kernels of adapters added to steps."""

    waits: int
    """Number of admissions of requests that other requests overtook because other adapters were in use."""

    mean_wait_s: float | None
    """Mean seconds from the first time that such a request was overtaken to its admission; ``None`` without waits."""


@dataclass(init=False, repr=False, eq=False)
class AddedTimes(Part):
    """Times that a forecast adds outside operators."""

    small_kernels_ms: float
    """Time of norms, rotary embeddings, cache writes, activations, routing and sampling."""

    launches_ms: float
    """Exposed launch time."""

    host_ms: float
    """Exposed host time of a step."""

    server_ms: float
    """Time for which a step waits for the server's messages to clients."""

    links_ms: float
    """Exposed time of messages between ranks."""


@dataclass(init=False, repr=False, eq=False)
class AgainstApi(Part):
    """The best deployment against an API's prices."""

    input: float
    """The API's dollars per million prompt tokens."""

    output: float
    """The API's dollars per million output tokens."""

    cached: float | None
    """The API's dollars per million prompt tokens that it has in its cache; ``None`` if they cost the price of
    others."""

    api_dollars_per_request: float
    """The API's dollars per request of the load, on average."""

    requests_per_s: float
    """Requests per second of the load."""

    beats: bool
    """True if the deployment costs less than the API under the load."""

    from_requests_per_s: float
    """Requests per second at which the two cost as much; above, the deployment costs less."""

    reached: bool | None
    """True if the deployment meets the SLO at that rate; ``None`` if nobody tried so high a rate."""


@dataclass(init=False, repr=False, eq=False)
class AllReduce(Part):
    """Times of one all-reduce by one algorithm."""

    algorithm: str
    """Name of the algorithm: ``ring``, ``tree``, ``nodes``, or ``torus`` with its axes."""

    bandwidth_ms: float
    """Time of the bytes at the link's bandwidth, which is the limit."""

    latency_ms: float
    """Number of hops times the link's latency."""


@dataclass(init=False, repr=False, eq=False)
class Alternative(Part):
    """One setting with its forecasts."""

    name: str
    """Name of the setting, as in ``naive``."""

    decode_ms: float
    """Time of a decode step."""

    attention_ms: float
    """Time of attention kernels within the decode step, without their launches."""

    prefill_ms: float
    """Time of a prompt."""


@dataclass(init=False, repr=False, eq=False)
class AtSpeed(Part):
    """The cheapest replica whose users have a speed."""

    tok_s: float
    """Least output tokens per second of one user."""

    curve: str
    """Name of the point's curve."""

    point: CurvePoint
    """The replica with the most users that keep the speed."""


@dataclass(init=False, repr=False, eq=False)
class Bands(Part):
    """Bands of a forecast: each contains the forecast, and the measured value in eight cases of ten."""

    evidence: Literal["nothing", "family", "architecture", "accelerator", "engine"]
    """Depth of evidence: how much of the deployment has been measured."""

    rests_on: str
    """Sentence that names the measurements behind the forecast."""

    load: Literal["step", "prompt", "closed_loop", "at_once", "open_loop", "disaggregated"]
    """Class of the measured loads whose errors the bands have: ``closed_loop`` for users, ``open_loop`` for requests
    at a rate, ``at_once`` for requests that all arrive at one time, ``prompt`` for prompts without further tokens,
    ``disaggregated`` for pools."""

    ttft_ms: Span
    """Mean time to first token, in ms."""

    tpot_ms: Span | None
    """Mean time per output token, in ms; ``None`` if no request has two tokens."""

    e2el_ms: Span
    """Mean end-to-end latency, in ms."""

    output_tok_s: Span | None
    """Output tokens per second; ``None`` if the load fixes the throughput."""


@dataclass(init=False, repr=False, eq=False)
class Basis(Part):
    """Measurement or assumption that an operator's time is based on."""

    evidence: Literal["nothing", "family", "architecture", "accelerator", "engine"]
    """Depth of evidence: how similar the measured kernel is."""

    exact: bool
    """True if exactly this operator's shape was timed."""

    kernel: str
    """Name of the kernel, as in ``vllm 0.31.0 deepgemm, h100-sxm``."""

    in_place_of: str | None = None
    """Name of the kernel that the engine's rule names, if its measured times are implausible beside those of other
    kernels on the chip, so that ``kernel`` counts in its place."""


@dataclass(init=False, repr=False, eq=False)
class Bounded(Part):
    """A bounded percentile of a run, with its bound."""

    metric: str
    """Name of the metric, as in ``TTFT``."""

    percentile: str
    """Name of the percentile, as in ``p90``."""

    ms: float
    """Simulated value in milliseconds."""

    most_ms: float
    """Bound in milliseconds."""

    over_seeds: tuple[float, float] | None
    """Lowest and highest value over five seeds; ``None`` if the deployment does not have the required probability."""

    interval: tuple[float, float] | None
    """80 % interval in milliseconds, from the simulations that give the deployment's probability; ``None`` without a
    probability, and if the load is not sustained in more than a tenth of the draws."""


@dataclass(init=False, repr=False, eq=False)
class CacheUse(Part):
    """Use of the KV cache of one replica."""

    blocks: int
    """Number of blocks that requests can hold."""

    block_size: int
    """Tokens per block."""

    groups: int
    """Number of groups of layers that have separate blocks, as in vLLM if some layers have a sliding window."""

    max_blocks: int
    """Most blocks that were held at one time."""

    mean_usage: float
    """Mean fraction of the blocks that were held, over steps."""

    internal_fragmentation: float
    """Mean fraction of the held token slots without a token, over steps."""

    external_fragmentation: float
    """Mean fraction of the free room outside its longest gap, over attempts to admit; 0 for a cache of equal blocks."""

    scattered_refusals: int
    """Number of attempts to admit that failed although the total free room was sufficient."""

    scattered_fragmentation: float
    """Mean external fragmentation over these failed attempts."""

    tables: Tables | None
    """Use of block tables; ``None`` unless the spec names a layout."""

    host: HostUse | None = None
    """Use of the host tier; absent without one."""


@dataclass(init=False, repr=False, eq=False)
class Carbon(Part):
    """Emissions of a run."""

    grams: float
    """Grams of CO2 equivalent: kWh of the accelerators × PUE × grams per kWh of the grid."""

    grams_per_million_output_tokens: float | None
    """Grams of CO2 equivalent per million output tokens; ``None`` without output tokens."""

    grid_g_per_kwh: float
    """Grams of CO2 equivalent per kWh of the grid."""

    pue: float
    """Power usage effectiveness: energy of the site over energy of its machines."""


@dataclass(init=False, repr=False, eq=False)
class ChangedDeployment(Part):
    """A deployment on the existing accelerators, with one setting changed."""

    change: str
    """Text of the change, as keys of the spec."""

    meets: bool
    """True if the alternative meets the SLO."""

    because: str | None
    """Text of the reason if it misses the SLO."""

    ttft_p99_ms: float
    """99th percentile of the time to first token in milliseconds."""

    tpot_p99_ms: float
    """99th percentile of the time per output token in milliseconds."""

    e2el_ms: float
    """Mean end-to-end latency in milliseconds."""

    output_tok_s: float
    """Output tokens per second."""

    gain: float
    """Fraction by which answers are faster than now: mean end-to-end latency now over the alternative's, less 1."""


@dataclass(init=False, repr=False, eq=False)
class CheckpointFiles(Part):
    """Tensors in the checkpoint's files, and their differences from the model."""

    bytes: int
    """Size of all tensors."""

    types: list[CheckpointType]
    """Tensors by type."""

    differences: list[Difference]
    """Differences from the config."""


@dataclass(init=False, repr=False, eq=False)
class CheckpointType(Part):
    """The tensors of one type in a checkpoint."""

    dtype: str
    """Name of the type in the files."""

    tensors: int
    """Number of tensors."""

    elements: int
    """Number of elements."""

    bytes: int
    """Size of the tensors."""


@dataclass(init=False, repr=False, eq=False)
class Choice(Part):
    """One simulated deployment, with its results under the workload."""

    accelerator: str
    """Catalog id of the accelerator of the decode replicas."""

    count: int
    """Total number of accelerators."""

    tp: int
    """Tensor-parallel degree of the decode replicas."""

    pp: int
    """Number of pipeline stages."""

    ep: int
    """Number of expert-parallel ranks."""

    attention_dp: int
    """Number of data-parallel ranks of attention."""

    replicas: int
    """Number of replicas that decode; they also compute prompts unless prefill is disaggregated."""

    prefill: PoolChoice | None
    """Pool of replicas that only compute prompts; ``None`` unless prefill is disaggregated."""

    beside: PoolChoice | None
    """Pool of replicas on another accelerator that also serve whole requests; ``None`` without one."""

    weights: str
    """Weight format."""

    kv: str
    """Format of the KV cache."""

    engine: str
    """Name of the engine, as in ``vllm``."""

    router: str
    """Name of the router policy."""

    enable_chunked_prefill: bool
    """True if prompts may be split over steps (chunked prefill)."""

    enable_prefix_caching: bool
    """True if blocks are found by their content (prefix cache)."""

    num_speculative_tokens: int | None
    """Number of draft tokens per step; ``None`` without drafts."""

    max_num_batched_tokens: int
    """Token budget of a step."""

    max_num_seqs: int
    """Most requests that run at one time."""

    batch: float
    """Mean number of running requests in a step of one replica."""

    max_batch: int
    """Number of requests of full length that fit in the memory of one replica."""

    tpot_ms: float
    """Mean time per output token in milliseconds."""

    tpot_p99_ms: float
    """99th percentile of the time per output token in milliseconds."""

    ttft_ms: float
    """Mean time to first token in milliseconds."""

    ttft_p99_ms: float
    """99th percentile of the time to first token in milliseconds."""

    e2el_ms: float
    """Mean end-to-end latency in milliseconds."""

    e2el_p99_ms: float
    """99th percentile of the end-to-end latency in milliseconds."""

    itl_p99_ms: float
    """99th percentile of the gaps between tokens in milliseconds."""

    limit: Times
    """Times of a decode step and of a prefill at the hardware's limits."""

    forecast: Times
    """Times of a decode step and of a prefill by the chosen cost model."""

    bound: str
    """Bottleneck of most of the busy time: ``memory``, ``compute``, ``communication``, ``host``, or ``server`` for
    the messages of the engine's server."""

    stage: Literal["memory", "limit", "estimate", "simulation"]
    """The stage that judged the deployment."""

    evidence: Literal["nothing", "family", "architecture", "accelerator", "engine"] | None
    """Measurements that support the forecast of step times; ``None`` at the limit."""

    kernels: Timed | None
    """Measured kernel times on which the forecast of step times is based; ``None`` if no kernel with this format was
    measured, and at the limit."""

    bounds: list[Bounded]
    """Every bound of the SLO, with the run's value."""

    headroom: Headroom | None
    """The metric that is nearest to its bound, with the remaining fraction of the bound; ``None`` without bounds."""

    chance: float | None
    """Probability of meeting the SLO, from simulations at quantiles of the band of step times; ``None`` at the
    limit, without bounds, and if a better deployment with equal objective has the required probability."""

    max_requests_per_s: float | None
    """Highest rate in requests per second at which the deployment meets the SLO in simulations; ``None`` if it was
    not searched."""

    utilization: float | None
    """Offered rate divided by the highest rate."""

    output_tok_s: float
    """Output tokens per second at the offered load."""

    output_tok_s_per_accelerator: float
    """Output tokens per second per accelerator, at the offered load."""

    interactivity_tok_s: float
    """Mean output tokens per second of one request."""

    cost_per_hour: float | None
    """Dollars per hour; ``None`` if the catalog has no price."""

    cost_per_million_tokens: float | None
    """Dollars per million output tokens, at the offered load."""

    cost_per_request: float | None
    """Dollars per request, at the offered load; ``None`` if the catalog has no price."""

    joules_per_token: float | None
    """Joules per output token, at the offered load and the simulation's mean power; ``None`` if the catalog has no
    power."""

    prefill_per_decode: float
    """Ratio of prefill to decode replicas of this shape that balances the two, if prefill and decode were
    disaggregated."""

    bands: Bands | None
    """Bands of the means; ``None`` at the limit."""

    spec: dict[str, Any]
    """Keys to add to the plan's spec, as TOML, so that ``roofcast simulate`` repeats the proof."""

    host_tier_gib: float | None = None
    """GiB of host memory in which each engine also keeps KV cache (``kv_offloading_size``); absent without a host
    tier."""

    lifted_by: str | None = None
    """Flag of the engine that lifts the bottleneck; absent if no flag does."""

    classes: list[ClassCost] | None = None
    """For each class of requests, its part of the cost; empty without classes."""

    grams_co2e_per_million_tokens: float | None = None
    """Grams of CO2 equivalent per million output tokens; absent without ``hardware.grid_g_per_kwh``."""


@dataclass(init=False, repr=False, eq=False)
class Citation(Part):
    """Public document that supports figures of an entry."""

    of: str
    """Keys of the entry that the document supports."""

    url: str
    """Web address of the document."""


@dataclass(init=False, repr=False, eq=False)
class ClassBound(Part):
    """A bound of a class of requests."""

    name: str
    """Name of the class."""

    requests: int
    """Number of requests of the class; without any, its bounds are not judged and their values are 0."""

    metric: str
    """Name of the metric, as in ``TTFT``."""

    percentile: str
    """Name of the percentile, as in ``p90``."""

    ms: float
    """Simulated value in milliseconds."""

    most_ms: float
    """Bound in milliseconds."""

    over_seeds: tuple[float, float] | None
    """Lowest and highest value over five seeds; ``None`` if the deployment does not have the required probability."""

    interval: tuple[float, float] | None
    """80 % interval in milliseconds, from the simulations that give the deployment's probability; ``None`` without a
    probability, and if the load is not sustained in more than a tenth of the draws."""


@dataclass(init=False, repr=False, eq=False)
class ClassCost(Part):
    """The part of a deployment's cost that a class of requests has."""

    name: str
    """Name of the class."""

    share: float
    """Share of the cost: prompts by the time in which they are computed alone, output tokens by their part of a
    decode step."""

    dollars_per_request: float | None
    """Dollars per request of the class, at the offered load; ``None`` if the catalog has no price."""


@dataclass(init=False, repr=False, eq=False)
class ClassExpense(Part):
    """The part of a run's cost that a class has: prompts cost the time in which they are computed alone, less what a
    prefix cache had, and output tokens their part of a decode step of the mean batch, at the class's mean lengths.
    Time in which machines wait is divided likewise."""

    share: float
    """Share of the run's cost."""

    dollars_per_hour: float | None
    """Dollars per hour; ``None`` if a price is unknown."""

    dollars_per_request: float | None
    """Dollars per request of the class; ``None`` if a price is unknown."""

    dollars_per_million_output_tokens: float | None
    """Dollars per million output tokens of the class; ``None`` if a price is unknown."""


@dataclass(init=False, repr=False, eq=False)
class ClassResults(Part):
    """Results of one class of requests."""

    name: str
    """Name of the class."""

    requests: int
    """Number of requests of the class that arrived."""

    refused: int
    """Number of requests of the class that no engine with these settings could serve."""

    rejected: int
    """Number of requests of the class that a queue limit or a rate limit rejected."""

    slo: Slo
    """Latency bounds of the class."""

    good: int | None
    """Number of requests that met every bound of the class; ``None`` if the class has none."""

    duration: float
    """Seconds from the first request to the last token."""

    completed: int
    """Number of requests that got all their tokens."""

    failed: int
    """Number of requests that did not complete."""

    total_input_tokens: int
    """Prompt tokens of completed requests."""

    total_output_tokens: int
    """Output tokens of completed requests."""

    request_throughput: float
    """Completed requests per second."""

    request_goodput: float | None
    """Completed requests per second within every bound of the SLO; ``None`` without bounds."""

    output_throughput: float
    """Output tokens per second."""

    total_token_throughput: float
    """Prompt and output tokens per second."""

    mean_ttft_ms: float | None
    """Mean in milliseconds of the time to the first token; ``None`` without values."""

    median_ttft_ms: float | None
    """Median in milliseconds of the time to the first token; ``None`` without values."""

    std_ttft_ms: float | None
    """Standard deviation in milliseconds of the time to the first token; ``None`` without values."""

    p50_ttft_ms: float | None
    """Median in milliseconds of the time to the first token; ``None`` without values."""

    p90_ttft_ms: float | None
    """90th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p95_ttft_ms: float | None
    """95th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p99_ttft_ms: float | None
    """99th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p999_ttft_ms: float | None
    """99.9th percentile in milliseconds of the time to the first token; ``None`` without values."""

    mean_tpot_ms: float | None
    """Mean in milliseconds of the time per output token after the first; ``None`` without values."""

    median_tpot_ms: float | None
    """Median in milliseconds of the time per output token after the first; ``None`` without values."""

    std_tpot_ms: float | None
    """Standard deviation in milliseconds of the time per output token after the first; ``None`` without values."""

    p50_tpot_ms: float | None
    """Median in milliseconds of the time per output token after the first; ``None`` without values."""

    p90_tpot_ms: float | None
    """90th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p95_tpot_ms: float | None
    """95th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p99_tpot_ms: float | None
    """99th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p999_tpot_ms: float | None
    """99.9th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    mean_itl_ms: float | None
    """Mean in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    median_itl_ms: float | None
    """Median in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    std_itl_ms: float | None
    """Standard deviation in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p50_itl_ms: float | None
    """Median in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    p90_itl_ms: float | None
    """90th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p95_itl_ms: float | None
    """95th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p99_itl_ms: float | None
    """99th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p999_itl_ms: float | None
    """99.9th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    mean_e2el_ms: float | None
    """Mean in milliseconds of the time from arrival to the last token; ``None`` without values."""

    median_e2el_ms: float | None
    """Median in milliseconds of the time from arrival to the last token; ``None`` without values."""

    std_e2el_ms: float | None
    """Standard deviation in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p50_e2el_ms: float | None
    """Median in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p90_e2el_ms: float | None
    """90th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p95_e2el_ms: float | None
    """95th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p99_e2el_ms: float | None
    """99th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p999_e2el_ms: float | None
    """99.9th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    expense: ClassExpense
    """The class's part of what the run costs."""

    adapter: str | None = None
    """LoRA adapter that the class names; absent if it names none."""


@dataclass(init=False, repr=False, eq=False)
class Communication(Part):
    """Messages of one forward pass on its busiest rank."""

    all_reduces: int
    """Number of all-reduces of the residual stream, in all layers."""

    message_bytes: int
    """Bytes of one all-reduce."""

    all_reduce_ms: float
    """Time of the all-reduces at the links' bandwidth, which is their limit."""

    all_to_all_ms: float
    """Time to send tokens to experts on other ranks and their results back."""

    pipeline_ms: float
    """Time to send activations from pipeline stage to stage."""

    latency_ms: float
    """Hops of every message times the latency of a link. Not part of the limit."""


@dataclass(init=False, repr=False, eq=False)
class Compared(Part):
    """One metric, measured and replayed; errors are predicted/measured − 1."""

    mean_measured: float
    """Mean of the measured values."""

    mean_predicted: float
    """Mean of the forecast values."""

    mean_error: float
    """Forecast over measured mean, minus 1."""

    p50_measured: float
    """Median of the measured values."""

    p50_predicted: float
    """Median of the forecast values."""

    p50_error: float
    """Forecast over measured median, minus 1."""

    p99_measured: float
    """99th percentile of the measured values."""

    p99_predicted: float
    """99th percentile of the forecast values."""

    p99_error: float
    """Forecast over measured 99th percentile, minus 1."""


@dataclass(init=False, repr=False, eq=False)
class Cost(Part):
    """The cost of one forward pass."""

    limit_ms: float
    """Limit without messages between ranks."""

    limit_with_communication_ms: float
    """Limit plus the time of messages between ranks, without overlap."""

    forecast_ms: float
    """Forecast time of the pass."""

    forecast_band_ms: tuple[float, float]
    """Band of the forecast: 10th to 90th percentile."""

    forecast_source: str
    """Name of the calibration and measurements behind the forecast."""

    forecast_evidence: Literal["nothing", "family", "architecture", "accelerator", "engine"] | None
    """Depth of evidence behind the forecast; ``None`` for a limit."""

    bound: Literal["memory", "compute", "communication"]
    """Bottleneck of the limit: the resource with the largest part of its time."""

    forecast_bound: str
    """Bottleneck of the forecast: ``memory``, ``compute``, ``communication``, ``host``, or ``server`` if the
    server's messages to clients take longer than the device."""

    terms: Terms
    """Time of each total at its own rate."""

    mfu: float
    """Model FLOPs utilization of a pass that reaches the limit."""

    mbu: float
    """Model bandwidth utilization of a pass that reaches the limit."""

    intensity: float
    """Arithmetic intensity: FLOPs per byte."""

    communication: Communication
    """Messages between ranks."""

    operators: list[OperatorCost]
    """The operators, in order of execution."""

    beside: AddedTimes
    """Times that the forecast adds outside operators; all zero for a limit."""

    lifted_by: str | None = None
    """Flag of the engine that lifts the forecast's bottleneck; absent if no flag does."""

    all_reduces_rest_on: Basis | None = None
    """Measurement behind the forecast of all-reduces; absent for a limit, and if there are none or none were timed."""


@dataclass(init=False, repr=False, eq=False)
class CriticalBatch(Part):
    """Tokens in a step from which on linear layers are compute-bound."""

    weight_bits: int
    """Bits per weight."""

    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of the arithmetic."""

    batch: float
    """Critical number of tokens: peak / bandwidth × (weight bytes / 2 FLOPs)."""


@dataclass(init=False, repr=False, eq=False)
class Current(Part):
    """The current deployment, and alternatives to it."""

    count: int
    """Total number of accelerators."""

    accelerator: str
    """Catalog id of the accelerator."""

    cost_per_hour: float | None
    """Dollars per hour; ``None`` if the catalog has no price."""

    measured: Metrics
    """Measured figures of the run."""

    forecast: Metrics
    """Forecast figures before calibration."""

    limit: Metrics
    """Figures at the hardware's limits."""

    slower: float
    """Factor of measured over forecast step times."""

    notes: list[str]
    """Sentences on how the run was read, and on a factor that is far from 1."""

    now: ChangedDeployment
    """Results under the plan's workload, with the fitted factor."""

    changes: list[ChangedDeployment]
    """Results of single changes, the best first."""


@dataclass(init=False, repr=False, eq=False)
class Curve(Part):
    """One curve."""

    name: str
    """Name: the accelerator, with format, engine or parallelism if curves differ in these: ``h100-sxm, fp8``."""

    accelerator: str
    """Catalog id of the accelerator."""

    usd_per_hour: float | None
    """Dollars per hour for one accelerator; ``None`` if the catalog has no price."""

    points: list[CurvePoint]
    """Pareto front of output tokens per accelerator and interactivity, and the best point; in order of descending
    interactivity."""

    best: CurvePoint | None
    """The point with the most output tokens per accelerator that meets the SLO, found by bisection over users;
    ``None`` if no point meets it."""


@dataclass(init=False, repr=False, eq=False)
class CurvePoint(Part):
    """Results of one simulated replica under a closed loop of users."""

    users: int
    """Number of users of the replica, each with one request in flight."""

    count: int
    """Number of accelerators of the replica."""

    tp: int
    """Tensor-parallel degree."""

    pp: int
    """Number of pipeline stages."""

    ep: int
    """Number of expert-parallel ranks."""

    attention_dp: int
    """Number of data-parallel ranks of attention."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    engine: str
    """Name of the engine, as in ``vllm``."""

    interactivity_tok_s: float
    """Mean output tokens per second of one user while an answer is generated: 1000 / TPOT."""

    output_tok_s: float
    """Output tokens per second of the replica in steady state."""

    output_tok_s_per_accelerator: float
    """Output tokens per second per accelerator."""

    tpot_ms: float
    """Mean time per output token in milliseconds."""

    tpot_p99_ms: float
    """99th percentile of the time per output token in milliseconds."""

    limit_tpot_ms: float
    """Mean time per output token at the hardware's limits in milliseconds."""

    ttft_ms: float
    """Mean time to first token in milliseconds."""

    ttft_p99_ms: float
    """99th percentile of the time to first token in milliseconds."""

    e2el_ms: float
    """Mean end-to-end latency in milliseconds."""

    cost_per_million_tokens: float | None
    """Dollars per million output tokens; ``None`` if the catalog has no price."""

    joules_per_token: float | None
    """Joules per output token, at the simulation's mean power; ``None`` if the catalog has no power."""

    bound: str
    """Bottleneck of most of the busy time: ``memory``, ``compute``, ``communication``, ``host`` or ``server``."""

    missed: str | None
    """Text of the SLO bound that the point misses; ``None`` if it meets the SLO."""

    evidence: Literal["nothing", "family", "architecture", "accelerator", "engine"] | None
    """Measurements that support the forecast of step times; ``None`` at the limit."""

    kernels: Timed | None
    """Measured kernel times on which the forecast of step times is based; ``None`` if no kernel with this format was
    measured, and at the limit."""

    bands: Bands | None
    """Bands of the means; ``None`` at the limit."""

    grams_co2e_per_million_tokens: float | None = None
    """Grams of CO2 equivalent per million output tokens; absent without ``hardware.grid_g_per_kwh``."""


@dataclass(init=False, repr=False, eq=False)
class Degree(Part):
    """Decode step at one degree of tensor parallelism."""

    tp: int
    """Number of accelerators over which each layer is sharded."""

    limit_ms: float
    """Limit without messages between ranks."""

    communication_ms: float
    """Time of the messages between ranks."""

    bound: Literal["memory", "compute", "communication"]
    """Bottleneck of the step."""


@dataclass(init=False, repr=False, eq=False)
class Difference(Part):
    """Difference between file and config in one place."""

    place: str
    """Layer number, or ``outside the layers``."""

    config: int
    """Parameters there, according to the config."""

    file: int
    """Values there, according to the file."""

    tensors: list[str]
    """The file's tensors there, with their shapes."""


@dataclass(init=False, repr=False, eq=False)
class EngineSettings(Part):
    """Settings of an engine with defaults filled in. Answers show the sizes of a step, the memory fraction and the
    layout."""

    max_num_seqs: int
    """Sequences that run at one time; in vLLM on each data-parallel rank, see ``seats``."""

    max_num_batched_tokens: int
    """Most tokens that one step computes."""

    block_size: int
    """Tokens of a KV block."""

    max_cudagraph_capture_size: int
    """Tokens of the largest step with prompts that a captured CUDA graph covers; 0 if only decodes are captured."""

    gpu_memory_utilization: float
    """Fraction of the device memory that the engine may use."""

    kv_layout: Literal["paged", "flashinfer", "vattention", "contiguous"] | None = None
    """Layout of the KV cache, if reads of block tables are to be counted."""


@dataclass(init=False, repr=False, eq=False)
class ErrorStatistics(Part):
    """Numbers of rows, and errors, of a set of rows."""

    rows: int
    """Number of rows in the set."""

    predicted: int
    """Number of rows that have a forecast."""

    metrics: dict[str, Errors]
    """Errors by metric."""


@dataclass(init=False, repr=False, eq=False)
class Errors(Part):
    """Errors of one metric."""

    n: int
    """Number of rows."""

    median_ape: float
    """Median of the absolute errors."""

    p90_ape: float
    """90th percentile of the absolute errors."""

    bias: float
    """Median of the signed errors: positive if the forecast is too high."""

    in_band: float
    """Fraction of the rows whose measured value is within the forecast's band, 10th to 90th percentile."""

    kept_at_80: float
    """Fraction of the rows that keep the bound which their forecast's band gives a chance of 80 %: the 80th
    percentile of a time, the 20th of a throughput."""

    kept_at_90: float
    """Fraction of the rows that keep the bound which their forecast's band gives a chance of 90 %."""

    groups: int
    """Number of groups among these rows."""

    group_median_ape: float
    """Median over groups of each group's median absolute error; a group counts once, regardless of its number of
    rows."""

    group_p90_ape: float
    """90th percentile over groups of each group's median absolute error."""


@dataclass(init=False, repr=False, eq=False)
class Expense(Part):
    """Cost and energy of the run."""

    dollars_per_hour: float | None
    """Dollars per hour of all accelerators; ``None`` if a price is unknown."""

    dollars_per_million_output_tokens: float | None
    """Dollars per million output tokens of the run; ``None`` if a price is unknown."""

    joules: float | None
    """Energy in joules: 0.18 of the board power at all times, and the energy of the bytes read and of the FLOPs, at
    most the board power while busy; ``None`` if the power is unknown."""

    watts: float | None
    """Mean watts of all accelerators; ``None`` if the power is unknown."""

    joules_per_output_token: float | None
    """Joules per output token, at the mean power; ``None`` if the power is unknown."""

    carbon: Carbon | None = None
    """Emissions; absent without ``hardware.grid_g_per_kwh``, or if the power is unknown."""


@dataclass(init=False, repr=False, eq=False)
class ExpertsTouched(Part):
    """Routed experts of one layer that a decode step reads."""

    count: int
    """Number of experts of the layer."""

    per_token: int
    """Number of experts that a token chooses."""

    distinct: float
    """Number of distinct experts that the batch reads, if tokens choose evenly and independently."""

    least_ms: float
    """Limit of the step without messages if all tokens choose the same experts, as tokens of one text may: no step
    of this batch is faster."""


@dataclass(init=False, repr=False, eq=False)
class FailureUse(Part):
    """Failures of replicas in a run."""

    count: int
    """Number of failures."""

    retried: int
    """Number of times that a request of a failed replica was sent again."""

    lost: int
    """Number of requests that failed with their replica."""

    down_s: float
    """Seconds in which replicas were down, summed over replicas."""

    availability: float
    """Fraction of the run in which a replica was up, on average over replicas."""


@dataclass(init=False, repr=False, eq=False)
class FirstWave(Part):
    """Results of the first request of each user, if all users begin at once."""

    completed: int
    """Number of these requests that were completed."""

    good: int | None
    """Number of these requests that met the SLO; ``None`` without an SLO."""

    mean_ttft_ms: float
    """Mean time to first token in milliseconds."""


@dataclass(init=False, repr=False, eq=False)
class FleetUse(Part):
    """The replicas of a run, by pool."""

    accelerators: int
    """Number of accelerators of all replicas."""

    prefill: PoolUse | None
    """Replicas that only compute prompts; ``None`` unless prefill is disaggregated."""

    serving: PoolUse
    """All other replicas."""

    beside: PoolUse | None
    """Replicas on other accelerators that also serve whole requests; ``None`` without them."""

    transfers: TransferUse | None
    """KV transfers from prefill to decode replicas; ``None`` without pools."""

    autoscale: ScalingUse | None
    """Number of replicas over time; ``None`` without autoscaling."""

    prefixes: FoundPrefixes | None
    """Prompt tokens found in the prefix caches of chosen replicas; ``None`` if the router had no choice."""

    failures: FailureUse | None = None
    """Failures of replicas; absent without ``fleet.failures``."""

    oracle: OracleHits | None = None
    """Prompt tokens that an oracle would find; absent if it was not asked, or for a run with too many blocks."""


@dataclass(init=False, repr=False, eq=False)
class FlopsPerDollar(Part):
    """Peak 16-bit operations that a dollar buys."""

    accelerator: str
    """Catalog id of the accelerator."""

    usd_per_hour: float
    """Dollars per hour."""

    flops_per_dollar: float
    """Peak FLOP/s × 3600 / price."""


@dataclass(init=False, repr=False, eq=False)
class FoundInterval(Part):
    """80 % interval of the largest value that meets the SLO: the largest values at the ends of the band of step
    times."""

    step_factors: tuple[float, float]
    """10th and 90th percentile of measured over forecast step times."""

    low: float | None
    """The largest value with the slowest steps of the band; ``None`` if no value meets the SLO."""

    high: float | None
    """The largest value with the fastest steps of the band; ``None`` if no value meets the SLO."""

    at_least: bool
    """True if ``high`` is the upper end of the range, so that larger values may meet the SLO as well."""


@dataclass(init=False, repr=False, eq=False)
class FoundPoint(Part):
    """A value and its verdict."""

    value: float
    """The value."""

    meets_slo: bool
    """True if the value meets the SLO."""

    because: str | None
    """Reason why the SLO is missed."""

    bounds: list[Bounded]
    """Each bound with the run's value. If the run ended early because a bound was certain to be missed, the value
    covers the requests until then."""

    classes: list[ClassBound] | None = None
    """Bounds of classes of requests with the run's values; empty without classes."""


@dataclass(init=False, repr=False, eq=False)
class FoundPrefixes(Part):
    """Prompt tokens that were in the prefix caches of replicas when the router chose one."""

    prompt_tokens: int
    """Prompt tokens of all requests."""

    found_tokens: int
    """Prompt tokens that were in the cache of the chosen replica."""

    most_tokens: int
    """Prompt tokens that were in the cache with the longest match; the difference to ``found_tokens`` is the
    router's regret."""


@dataclass(init=False, repr=False, eq=False)
class GroupErrors(Part):
    """A group of rows and its errors."""

    group: str
    """Model, accelerator, engine and weights."""

    rows: int
    """Number of rows in the set."""

    predicted: int
    """Number of rows that have a forecast."""

    metrics: dict[str, Errors]
    """Errors by metric."""


@dataclass(init=False, repr=False, eq=False)
class Headroom(Part):
    """Distance to the nearest bound."""

    metric: str
    """Name of the metric, as in ``TTFT``, or ``goodput``."""

    percentile: str | None
    """The percentile, as in ``p99``; ``None`` for a goodput."""

    share: float
    """Remaining fraction of the bound."""


@dataclass(init=False, repr=False, eq=False)
class HostLink(Part):
    """Link between an accelerator and the memory of its host."""

    kind: str
    """Kind of link, as in ``pcie5``, ``nvlink-c2c``."""

    bytes_per_s: float
    """Bytes per second in one direction."""

    memory_bytes_per_s: float | None = None
    """One accelerator's part of the bandwidth of the host's memory in bytes per second, reads and writes together;
    unbounded if absent."""


@dataclass(init=False, repr=False, eq=False)
class HostUse(Part):
    """Use of the host tier, over all replicas."""

    tokens: int
    """Number of tokens that the host pool of one replica holds."""

    device_hit_rate: float
    """Fraction of the tokens of admitted requests that were found on the device."""

    host_hit_rate: float
    """Fraction of the tokens of admitted requests that were loaded from the host, without those that came from
    storage."""

    loaded_tokens: int
    """Number of tokens loaded from the host."""

    loaded_bytes: int
    """Bytes loaded from the host, over all ranks."""

    stored_tokens: int
    """Number of tokens copied to the host."""

    stored_bytes: int
    """Bytes copied to the host, over all ranks."""

    loading_s: float
    """Seconds from the start of a load to its end, including queueing for the link; summed over loads."""

    spared_s: float
    """Seconds that recomputation of the loaded tokens would have added to steps."""

    dropped_tokens: int | None = None
    """Number of tokens evicted from the device without a copy on the host; absent if every token is first offered to
    the host."""

    storage: StorageUse | None = None
    """Use of the storage below the host; absent without it."""


@dataclass(init=False, repr=False, eq=False)
class HourlyPrice(Part):
    """Price of one accelerator for one hour."""

    usd_per_hour: float
    """Dollars per accelerator and hour, on demand."""

    date: str
    """Month of the price, ``YYYY-MM``."""

    source: str
    """Web address of the price."""


@dataclass(init=False, repr=False, eq=False)
class ImageCost(Part):
    """Cost of an image or a video."""

    tokens: int
    """Number of tokens that it adds to a prompt."""

    patches: int
    """Number of patches that the encoder computes."""

    frame_pairs: int
    """Number of pairs of frames, whose patches attend to each other alone; 1 of an image."""

    weight_bytes: int
    """Bytes of the encoder's weights on one rank."""

    cache_bytes: int
    """Bytes of its tokens in the encoder's cache, until the prompt has passed them."""

    limit_ms: float
    """Limit of the encoder's time."""

    forecast_ms: float
    """Forecast of the encoder's time, for which a step with it waits."""


@dataclass(init=False, repr=False, eq=False)
class ImageUse(Part):
    """Images of every request, and the time of their encoder."""

    count: int
    """Number of images or videos of a request."""

    tokens: int
    """Number of tokens that each adds to a prompt."""

    patches: int
    """Number of patches of each."""

    encoder_ms: float
    """Milliseconds for which a step waits for the encoder of one of them."""


@dataclass(init=False, repr=False, eq=False)
class IntensityPoint(Part):
    """Arithmetic intensity of a linear layer at one batch."""

    batch: int
    """Rows of the batch."""

    flops_per_byte: float
    """FLOPs per byte, activations included: 2·B·n·k / (n·k·w + B·(n + k)·a)."""

    bound: Literal["memory", "compute", "communication"]
    """Bottleneck on this chip."""


@dataclass(init=False, repr=False, eq=False)
class Job(Part):
    """An offline job."""

    requests: int
    """Number of requests."""

    within_s: float
    """Seconds until the deadline."""


@dataclass(init=False, repr=False, eq=False)
class KvCache(Part):
    """Comparison of keeping the KV cache with recomputing it."""

    cached_ms: float
    """Time of a decode step that reads the cache."""

    recomputed_ms: float
    """Time of a decode step without a cache: the whole context passes through the model again."""

    kv_flops_share: float
    """Fraction of a token's GEMM FLOPs that compute its keys and values: 1/6 for d_ff = 4 d, in kipply's
    calculation."""

    break_even_context: int
    """Context in tokens from which on the cache is faster at this batch."""


@dataclass(init=False, repr=False, eq=False)
class Launch(Part):
    """The command that starts one replica with one engine."""

    role: Literal["replica", "prefill", "decode", "beside"]
    """Role of the replicas that the command starts."""

    replicas: int
    """Number of replicas to start."""

    engine: str
    """Name of the engine, as in ``vllm``."""

    nodes: int
    """Number of nodes per replica."""

    command: str | None
    """The command, on the first node if there are several; ``None`` if the engine cannot start this deployment."""

    on_others: str | None
    """The command on each other node: ``LEADER`` is the first node's address, ``RANK`` the node's number from 1.
    ``None`` with one node."""

    note: str | None
    """The reason why there is no command."""

    assumed: list[str] | None = None
    """Keys of the spec that the forecast assumes and that no command sets, because servers choose them by
    themselves."""


@dataclass(init=False, repr=False, eq=False)
class LeftOut(Part):
    """A reason, and the number of deployments that were skipped for this reason."""

    reason: str
    """Text of the reason."""

    count: int
    """Number of deployments."""


@dataclass(init=False, repr=False, eq=False)
class LeftOutErrors(Part):
    """Relative errors of one metric, as fractions of the measured value."""

    n: int
    """Number of rows."""

    bias: float
    """Median of the signed errors."""

    median_ape: float
    """Median of the absolute errors."""

    p90_ape: float
    """90th percentile of the absolute errors."""


@dataclass(init=False, repr=False, eq=False)
class LimitsCompared(Part):
    """Forecast of the step with one setting."""

    name: str
    """Name of the setting."""

    forecast_ms: float
    """Forecast of the step in milliseconds."""


@dataclass(init=False, repr=False, eq=False)
class LimitsPoint(Part):
    """The decode step at one combination of values."""

    values: list[Any]
    """Values of the point, one for each swept key."""

    limit_ms: float
    """Limit of the step in milliseconds, without communication."""

    weights_ms: float
    """Time to read the weights at peak bandwidth."""

    kv_ms: float
    """Time to read the KV cache at peak bandwidth."""

    flops_ms: float
    """Time of the FLOPs at peak rate."""

    communication_ms: float
    """Time of the messages over the slowest link."""

    limit_with_communication_ms: float
    """Limit plus communication, without overlap."""

    forecast_ms: float
    """Forecast of the step."""

    forecast_band_ms: tuple[float, float]
    """80 % interval of the forecast."""

    bound: Literal["memory", "compute", "communication"]
    """Bottleneck of the step."""

    tokens_per_s: float
    """Tokens per second at the limit, including communication over links."""

    forecast_tokens_per_s: float
    """Tokens per second at the forecast."""

    mfu: float
    """Fraction of peak FLOP/s at the limit."""

    mbu: float
    """Fraction of peak bandwidth at the limit."""

    tokens: int
    """Tokens of a sequence of the step."""

    fits: bool
    """True if memory holds the KV cache of the step's sequences."""

    usd_per_million_tokens: float | None = None
    """Dollars per million tokens at the forecast throughput; absent if the accelerator has no price."""

    evicted_tokens_per_step: float | None = None
    """Mean KV tokens per step that finished requests free; absent without ``--output-len``."""

    compared: list[LimitsCompared] | None = None
    """Forecasts with each setting of the kind given to ``--compare``."""


@dataclass(init=False, repr=False, eq=False)
class Link(Part):
    """Link between the accelerators of a node."""

    kind: str
    """Kind of link, as in ``nvlink4``, ``pcie4``, ``ici``."""

    topology: Literal["switch", "ring", "mesh", "torus", "pcie", "host"]
    """Topology of the link."""

    bytes_per_s: float
    """Bytes per second in one direction, per accelerator; on a torus per link."""

    latency_s: float
    """Latency of an empty message, in seconds."""

    axes: int | None
    """Number of axes of a torus."""

    wraps: int | None
    """Chips along an axis of a torus at which the axis closes to a ring; if absent, every axis is a ring."""


@dataclass(init=False, repr=False, eq=False)
class Manifest(Part):
    """One file for a cluster."""

    kind: str
    """Name of the cluster software: ``kubernetes``, ``llm-d`` or ``dynamo``."""

    text: str | None
    """Text of the file in YAML; ``None`` if this software cannot start the deployment."""

    note: str | None
    """The reason why there is no file."""


@dataclass(init=False, repr=False, eq=False)
class MeasuredStart(Part):
    """The memory terms in an engine's log, compared with the forecast."""

    terms: list[TermComparison]
    """Terms of the log, each with its forecast."""

    unexplained_bytes: float | None = None
    """Bytes of the log's budget that no term of the log explains."""


@dataclass(init=False, repr=False, eq=False)
class MemoryOption(Part):
    """Variant of a catalog entry with another memory size; all other figures are the entry's."""

    id: str
    """Lower-case id, as in ``m4-max-64gb``."""

    name: str
    """The maker's name."""

    aliases: list[str]
    """Further ids of the variant."""

    memory_bytes: int
    """Nominal memory in bytes, as the maker counts it."""

    usable_bytes: int
    """Memory in bytes that the driver reports to a program."""


@dataclass(init=False, repr=False, eq=False)
class Metrics(Part):
    """Metrics of a point, measured or forecast: times in ms, and tokens per second of the whole deployment."""

    ttft_ms: float | None
    """Time to first token, in ms."""

    tpot_ms: float | None
    """Time per output token after the first, in ms."""

    e2e_ms: float | None
    """End-to-end latency, in ms."""

    output_tok_s: float | None
    """Output tokens per second."""

    total_tok_s: float | None
    """Prompt and output tokens per second."""


@dataclass(init=False, repr=False, eq=False)
class Near(Part):
    """A deployment that misses the SLO, or that the user asked about by name."""

    deployment: str
    """Description of the deployment."""

    count: int
    """Total number of accelerators."""

    cost_per_hour: float | None
    """Dollars per hour; ``None`` if the catalog has no price."""

    stage: Literal["memory", "limit", "estimate", "simulation"] | None
    """The stage that judged the deployment; ``None`` if it was not judged."""

    reason: str
    """Text of the result."""

    factor: float | None
    """Found value over accepted value; ``None`` if the deployment meets the SLO or does not run."""

    meets_at_requests_per_s: float | None = None
    """Rate in requests per second at which the deployment meets the SLO, the first of a few that are tried; of the
    nearest miss of a search in which none meets it."""

    meets_at_users: int | None = None
    """Number of users at which the deployment meets the SLO, where the load has users."""


@dataclass(init=False, repr=False, eq=False)
class Network(Part):
    """Network between nodes."""

    kind: str
    """Kind of network, as in ``infiniband-ndr``."""

    bytes_per_s: float
    """Bytes per second in one direction, per accelerator."""

    latency_s: float
    """Latency of an empty message, in seconds."""


@dataclass(init=False, repr=False, eq=False)
class Number(Part):
    """One fitted number of one engine."""

    engine: str
    """Name of the engine, as in ``vllm``, with the versions if they are not the newest: ``vllm before 0.14.0
    (2026-01)``."""

    name: str
    """Name of the number, as in ``small_kernel``."""

    us: float
    """Fitted value that forecasts use, in microseconds."""

    prior: float
    """Published or separately measured value, in microseconds."""

    least: float
    """Lower bound in microseconds."""

    most: float
    """Upper bound in microseconds."""

    rows: int
    """Number of rows whose forecast depends on the number."""


@dataclass(init=False, repr=False, eq=False)
class OfferedLoad(Part):
    """Verdict on overload: did more requests arrive than could be served?"""

    offered_per_s: float | None
    """Arrival rate in requests per second; ``None`` in a closed loop. Of conversations the rate at which turns are
    sent, under overload the rate at which they would be if none waited."""

    overloaded: bool
    """True if the queue or the number of requests in flight grew for as long as requests arrived."""

    stable_per_s: float | None
    """Requests per second that were answered while the queue grew: the largest stable rate."""

    too_short_below: int | None
    """Number of requests that would make such a run long enough for a verdict; ``None`` if this run was."""


@dataclass(init=False, repr=False, eq=False)
class OperatorCost(Part):
    """Cost of one operator, summed over all layers that have it."""

    name: str
    """Kind of operator, as in ``qkv_proj``."""

    family: Literal["gemm", "attention", "indexer", "moe", "embedding", "elementwise"]
    """Family of the operator."""

    layers: int
    """Number of layers with this operator."""

    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of the arithmetic."""

    flops: int
    """FLOPs of the pass."""

    weight_bytes: int
    """Bytes of weights read."""

    kv_bytes: int
    """Bytes of KV cache read and written."""

    intensity: float
    """Arithmetic intensity: FLOPs per byte."""

    bound: Literal["memory", "compute", "communication"]
    """Bottleneck at the limit."""

    limit_ms: float
    """Limit of the operator."""

    forecast_ms: float
    """Forecast time of the operator's kernels."""

    share: float
    """Efficiency: limit over forecast."""

    on_host: bool | None = None
    """True if weights or cache lie in the host's memory."""

    rests_on: Basis | None = None
    """Measurement or assumption behind the forecast; absent for a limit alone."""


@dataclass(init=False, repr=False, eq=False)
class OracleHits(Part):
    """Prompt tokens that prefix caches found in a run, and the most that any router and eviction could find."""

    capacity_tokens: int
    """Tokens of the oracle's cache: the caches of all replicas, with the tiers below."""

    prompt_tokens: int
    """Prompt tokens of all requests."""

    found_tokens: int
    """Prompt tokens found when requests were first admitted."""

    most_tokens: int
    """Prompt tokens that the oracle finds."""


@dataclass(init=False, repr=False, eq=False)
class OverTime(Part):
    """Replicas of a deployment over time, with their cost."""

    interval_s: float
    """Length of an interval in seconds."""

    startup_s: float
    """Seconds from the start of a replica until it accepts requests."""

    confidence: float
    """Probability with which step times are at most ``slower`` times the forecast, as the plan requires it."""

    slower: float
    """Factor on the forecast's step times in all simulations of the schedule."""

    accelerators_each: int
    """Number of accelerators of one replica."""

    peak_accelerators: int
    """Most accelerators that accept requests at one time."""

    mean_accelerators: float
    """Mean number of accelerators that are up, including start-up and last answers."""

    accelerator_hours: float
    """Accelerator-hours for the whole load."""

    constant_accelerator_hours: float
    """Accelerator-hours of the plan's best deployment, which is always up."""

    dollars: float | None
    """Dollars for ``accelerator_hours``; ``None`` if the catalog has no price."""

    meets: bool
    """True if the requests of every interval meet the SLO in one simulation of the whole load."""

    intervals: list[ScheduleInterval]
    """The intervals, in order of time."""


@dataclass(init=False, repr=False, eq=False)
class OversizedRequests(Part):
    """Requests that take more tokens than a full bucket holds, so that no wait admits them."""

    requests: int
    """Number of the requests."""

    smallest: int
    """Tokens of the smallest of the requests: its prompt and its bound on output."""

    burst: float
    """Most tokens that the bucket holds which rejected the first of the requests."""

    key: str
    """Key of the bucket's size."""


@dataclass(init=False, repr=False, eq=False)
class Parallelism(Part):
    """Degrees of parallelism, all at least one."""

    tp: int
    """Degree of tensor parallelism."""

    pp: int
    """Number of pipeline stages."""

    ep: int
    """Number of expert-parallel ranks, at most ``tp × attention_dp``."""

    attention_dp: int
    """Degree of attention data parallelism within a replica."""

    replicas: int
    """Number of independent replicas."""


@dataclass(init=False, repr=False, eq=False)
class Parameters(Part):
    """Parameter counts of a model, without multi-token-prediction layers and vision towers."""

    total: int
    """Number of all weights; tied weights are counted once."""

    active: int
    """Parameters that one token reads: all except routed experts that it does not choose, and except an untied input
    embedding, of which it reads one row. Makers count this way: gpt-oss-20b 3.6B, Nemotron-3-Nano 3.2B. lm_head
    counts; in dense models all parameters are active."""

    embedding: int
    """Parameters of the input embedding."""

    lm_head: int
    """Parameters of lm_head; if tied, equal to the embedding and not counted twice in ``total``."""


@dataclass(init=False, repr=False, eq=False)
class Point(Part):
    """One run of a sweep: the value of each swept key, and the run's answer."""

    values: list[Any]
    """Values of the point, one for each swept key."""

    model: str
    """Id of the served model."""

    hardware: str
    """Id of the accelerator."""

    count: int
    """Total number of accelerators."""

    parallelism: Parallelism
    """Degrees of parallelism, and replicas."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of everything that is not quantized."""

    engine: EngineSettings
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool
    """True for nominal memory without any reserve."""

    assumptions: list[str]
    """Assumptions for settings that the input does not contain, one sentence each."""

    cost: Literal["limit", "forecast"]
    """Cost model of a step."""

    interrupted: bool
    """True if the run was interrupted; the other fields then count only the requests that had ended."""

    requests: int
    """Number of requests that arrived."""

    refused: int
    """Number of requests that no engine with these settings could serve."""

    rejected: int
    """Number of requests that a queue limit or a rate limit rejected."""

    overflowed: int
    """Number of running requests that ended with an error because llama.cpp's shared KV cache overflowed."""

    duration: float
    """Seconds from the first request to the last token."""

    completed: int
    """Number of requests that got all their tokens."""

    failed: int
    """Number of requests that did not complete."""

    total_input_tokens: int
    """Prompt tokens of completed requests."""

    total_output_tokens: int
    """Output tokens of completed requests."""

    request_throughput: float
    """Completed requests per second."""

    request_goodput: float | None
    """Completed requests per second within every bound of the SLO; ``None`` without bounds."""

    output_throughput: float
    """Output tokens per second."""

    total_token_throughput: float
    """Prompt and output tokens per second."""

    mean_ttft_ms: float | None
    """Mean in milliseconds of the time to the first token; ``None`` without values."""

    median_ttft_ms: float | None
    """Median in milliseconds of the time to the first token; ``None`` without values."""

    std_ttft_ms: float | None
    """Standard deviation in milliseconds of the time to the first token; ``None`` without values."""

    p50_ttft_ms: float | None
    """Median in milliseconds of the time to the first token; ``None`` without values."""

    p90_ttft_ms: float | None
    """90th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p95_ttft_ms: float | None
    """95th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p99_ttft_ms: float | None
    """99th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p999_ttft_ms: float | None
    """99.9th percentile in milliseconds of the time to the first token; ``None`` without values."""

    mean_tpot_ms: float | None
    """Mean in milliseconds of the time per output token after the first; ``None`` without values."""

    median_tpot_ms: float | None
    """Median in milliseconds of the time per output token after the first; ``None`` without values."""

    std_tpot_ms: float | None
    """Standard deviation in milliseconds of the time per output token after the first; ``None`` without values."""

    p50_tpot_ms: float | None
    """Median in milliseconds of the time per output token after the first; ``None`` without values."""

    p90_tpot_ms: float | None
    """90th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p95_tpot_ms: float | None
    """95th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p99_tpot_ms: float | None
    """99th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p999_tpot_ms: float | None
    """99.9th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    mean_itl_ms: float | None
    """Mean in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    median_itl_ms: float | None
    """Median in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    std_itl_ms: float | None
    """Standard deviation in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p50_itl_ms: float | None
    """Median in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    p90_itl_ms: float | None
    """90th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p95_itl_ms: float | None
    """95th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p99_itl_ms: float | None
    """99th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p999_itl_ms: float | None
    """99.9th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    mean_e2el_ms: float | None
    """Mean in milliseconds of the time from arrival to the last token; ``None`` without values."""

    median_e2el_ms: float | None
    """Median in milliseconds of the time from arrival to the last token; ``None`` without values."""

    std_e2el_ms: float | None
    """Standard deviation in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p50_e2el_ms: float | None
    """Median in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p90_e2el_ms: float | None
    """90th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p95_e2el_ms: float | None
    """95th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p99_e2el_ms: float | None
    """99th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p999_e2el_ms: float | None
    """99.9th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    settings: ReportedSettings
    """Resolved settings of the engine."""

    activity: Activity
    """Work of the engines, summed over replicas."""

    kv_cache: CacheUse
    """Use of the KV cache."""

    time: TimeShares
    """Seconds of the replicas' time by bottleneck, summed over replicas."""

    bound: str
    """Bottleneck of most of the busy time: ``memory``, ``compute``, ``communication``, ``host``, or ``server`` for
    the messages of the engine's server."""

    limit_tpot_ms: float
    """Limit of a decode step in milliseconds, at the mean batch and context of the run; of a microbatch if several
    pipeline stages work at one time."""

    expense: Expense
    """Cost and energy."""

    fleet: FleetUse
    """Replicas of the fleet, and KV transfers between them."""

    load: OfferedLoad
    """The offered load, and the verdict on overload."""

    sessions: RecordedSessions | None
    """Recorded sessions that ended; ``None`` if the traffic has no sessions."""

    bands: Bands | None
    """Bands of the means, whose ranges the errors of ``sampling`` widen; ``None`` if steps are priced at the limit."""

    sampling: SamplingErrors
    """Errors of the means and 99th percentiles, because a run has only so many requests."""

    oversized: OversizedRequests | None = None
    """The rejected requests that take more tokens than a full bucket of the rate limit holds; absent without any."""

    lifted_by: str | None = None
    """Flag of the engine that lifts the bottleneck; absent if no flag does."""

    preemption: PreemptionCosts | None = None
    """Costs of a preemption, either way; absent without preemptions, and of engines that have one way alone."""

    images: ImageUse | None = None
    """Images of every request; absent if prompts are text."""

    adapters: AdapterUse | None = None
    """Use of LoRA adapters; absent if none are served."""

    first_wave: FirstWave | None = None
    """Results of the first request of each user, if all users of a closed loop begin at once."""

    classes: list[ClassResults] | None = None
    """Results of each class of requests; empty without classes."""

    measured: TpotComparison | None = None
    """Comparison of the forecast TPOT with the one of ``--measured-tpot``."""


@dataclass(init=False, repr=False, eq=False)
class PoolChoice(Part):
    """One pool of a deployment."""

    accelerator: str
    """Catalog id of the accelerator."""

    replicas: int
    """Number of replicas in the pool."""

    tp: int
    """Tensor-parallel degree."""

    pp: int
    """Number of pipeline stages."""

    ep: int
    """Number of expert-parallel ranks."""

    attention_dp: int
    """Number of data-parallel ranks of attention."""


@dataclass(init=False, repr=False, eq=False)
class PoolUse(Part):
    """Use of the replicas of one pool."""

    accelerator: str
    """Catalog id of the accelerator."""

    replicas: int
    """Number of replicas in the pool."""

    accelerators_each: int
    """Number of accelerators of each replica."""

    busy: float
    """Fraction of the replicas' time in which they computed."""

    blocks: int
    """Number of KV blocks of each replica."""

    dollars_per_hour: float | None
    """Dollars per hour of all replicas while they are up; ``None`` if the price is unknown."""

    joules: float | None
    """Joules: 0.18 of the board power at all times, and the energy of the bytes read and of the FLOPs, at most the
    board power while busy; ``None`` if the power is unknown."""


@dataclass(init=False, repr=False, eq=False)
class PreemptionCosts(Part):
    """Times of one mean preemption."""

    tokens: int
    """Mean tokens of a preempted request."""

    swap_ms: float
    """Milliseconds to copy its KV cache to the host and back, block by block and layer by layer."""

    recompute_ms: float
    """Milliseconds to compute its tokens again as a prompt."""


@dataclass(init=False, repr=False, eq=False)
class Pruned(Part):
    """Number of deployments that each stage ruled out."""

    memory: int
    """Deployments that do not fit in memory."""

    limit: int
    """Deployments whose limit misses the SLO."""

    estimate: int
    """Deployments whose steady state misses the SLO."""


@dataclass(init=False, repr=False, eq=False)
class Quality(Part):
    """The effect of one format."""

    format: str
    """Name of the format, as in ``fp8``."""

    of: str
    """Subject of the format: ``weights``, or ``kv`` for the KV cache."""

    note: str
    """The measured effect, or a note that no measurement is known."""

    source: str | None
    """Author of the measurement; ``None`` without a measurement."""

    url: str | None
    """Web address of the source."""


@dataclass(init=False, repr=False, eq=False)
class Rank(Part):
    """Division of one rank's memory."""

    budget_bytes: int
    """Bytes that the engine may use."""

    weight_bytes: int
    """Bytes of the rank's weights."""

    activation_bytes: int
    """Bytes of activations at their peak."""

    runtime_bytes: int
    """Bytes of runtime and communication buffers."""

    state_bytes: int
    """Bytes of recurrent states in memory of their own: SGLang's pool, and llama.cpp's slots; 0 for other engines,
    which page states with the KV cache."""

    free_bytes: int
    """Bytes that no other process occupies when the engine starts."""

    kv_bytes: int
    """Bytes that remain for KV."""

    short_by_bytes: int
    """Bytes that are missing if weights and reserves alone do not fit, or if the engine requests more than is free."""

    adapter_bytes: int | None = None
    """Bytes of the buffers of LoRA adapters; absent if none are served."""

    host_bytes: int | None = None
    """Bytes of the rank's weights and cache in the host's memory; absent if all are on the accelerator."""


@dataclass(init=False, repr=False, eq=False)
class RecordedSessions(Part):
    """Recorded sessions that ended in a run."""

    completed: int
    """Number of sessions whose last answer arrived."""

    mean_task_s: float
    """Mean seconds from a session's first turn to its last answer, including waits."""

    median_task_s: float
    """Median of the seconds from a session's first turn to its last answer."""

    p90_task_s: float
    """90th percentile of the seconds from a session's first turn to its last answer."""


@dataclass(init=False, repr=False, eq=False)
class Refusal(Part):
    """Reason why an engine does not start, with settings that would help."""

    needed_bytes: int
    """KV bytes that one request of ``max_model_len`` tokens needs on the rank with the least room."""

    available_bytes: int
    """Bytes available for KV."""

    short_by_bytes: int
    """Bytes that are missing if weights and reserves alone do not fit, or if the engine requests more than is free."""

    budget_bytes: int
    """Bytes that the engine requests."""

    free_bytes: int
    """Bytes that no other process holds."""

    longest: int
    """Longest request in tokens with which the engine would start; 0 if it would not start with any."""

    gpu_memory_utilization: float | None
    """Nearest ``gpu_memory_utilization``, in steps of 0.01, with which the engine would start: the largest that is
    free if too much is requested, else the smallest that suffices; ``None`` if there is none up to 0.99."""

    max_num_seqs: int | None
    """Largest ``max_num_seqs`` with which the engine would start; ``None`` if fewer sequences do not help."""


@dataclass(init=False, repr=False, eq=False)
class Replay(Part):
    """Errors of the replay of one run."""

    name: str
    """Name of the run."""

    metrics: RunMetrics
    """Errors by metric; times are measured from the queueing of a request."""


@dataclass(init=False, repr=False, eq=False)
class ReportedSettings(Part):
    """An engine's settings with every default filled in, by vLLM's names."""

    scheduler: Literal["static", "orca", "vllm-v0", "vllm", "sarathi", "splitfuse", "lightllm", "sglang", "llama.cpp", "tensorrt-llm", "tensorrt-llm-max-utilization"]
    """The scheduling policy."""

    policy: Literal["fcfs", "priority", "sjf"]
    """The order of the queue."""

    max_num_seqs: int
    """Most requests that run at one time."""

    max_num_batched_tokens: int
    """Token budget of a step, over all data-parallel ranks."""

    max_model_len: int
    """Most tokens of a request, prompt and output together."""

    enable_chunked_prefill: bool
    """True if a prompt may be split over steps (chunked prefill)."""

    enable_prefix_caching: bool
    """True if blocks are found by their content (prefix cache)."""

    leap: bool
    """True if equal steps were simulated at once, which does not change the results."""


@dataclass(init=False, repr=False, eq=False)
class Ridge(Part):
    """Ridge point of a dtype."""

    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of the arithmetic."""

    flops_per_byte: float
    """Peak FLOP/s over bandwidth in bytes/s."""


@dataclass(init=False, repr=False, eq=False)
class RunMetrics(Part):
    """Errors of each metric of a run."""

    ttft_ms: Compared
    """Time to first token."""

    tpot_ms: Compared
    """Time per output token after the first."""

    e2e_ms: Compared
    """End-to-end latency."""


@dataclass(init=False, repr=False, eq=False)
class SamplingError(Part):
    """Error of the mean of one metric, and the interval of its 99th percentile."""

    mean: float
    """Share of the mean within which the means of 8 of 10 such runs are."""

    p99_ms: tuple[float, float]
    """Ends of the interval in which the 99th percentile of 8 of 10 such runs is, in milliseconds."""

    p99_open: bool
    """True if the upper end is the largest value of the run, which others may exceed."""

    requests_for_p99: int | None
    """Number of requests of a run whose 99th percentile is within a tenth; ``None`` if this one's is."""


@dataclass(init=False, repr=False, eq=False)
class SamplingErrors(Part):
    """Sampling errors of the metrics of a request; ``None`` of a metric with fewer than about 40 values, and of one
    that has not settled."""

    ttft: SamplingError | None
    """Error of the time to first token."""

    tpot: SamplingError | None
    """Error of the time per output token."""

    e2el: SamplingError | None
    """Error of the end-to-end latency."""

    unsettled: list[str]
    """Metrics (``ttft``, ``tpot``, ``e2el``) that change over the run by more than chance: all under overload and
    where an autoscaler started replicas, else those whose batches have a trend or begin otherwise than they go on."""


@dataclass(init=False, repr=False, eq=False)
class ScalingUse(Part):
    """Starts and stops of replicas in a run."""

    replica_seconds: float
    """Seconds that replicas were up, including start-up, summed over replicas."""

    mean_replicas: float
    """Mean number of replicas over the run."""

    max_replicas: int
    """Most replicas that were up at one time."""

    started: int
    """Number of replica starts after the initial ones."""

    stopped: int
    """Number of replica stops."""


@dataclass(init=False, repr=False, eq=False)
class ScheduleInterval(Part):
    """Replicas and results of one interval."""

    from_s: float
    """Start of the interval in seconds."""

    to_s: float
    """End of the interval in seconds; of the last interval the time of the last arrival."""

    requests: int
    """Number of requests that arrive in the interval."""

    alone: int | None
    """Fewest replicas that serve the interval's requests alone within the SLO; 0 without requests, ``None`` if the
    most replicas of the search do not suffice."""

    replicas: int
    """Number of replicas that accept requests in the interval."""

    meets: bool
    """True if the interval's requests meet the SLO in the simulation of the whole load."""

    bounds: list[Bounded]
    """Each bound of the SLO, with its value for the interval's requests."""


@dataclass(init=False, repr=False, eq=False)
class Skipped(Part):
    """Rows that were omitted for one reason."""

    reason: str
    """Reason why the rows were omitted."""

    rows: int
    """Number of rows."""


@dataclass(init=False, repr=False, eq=False)
class Slo(Part):
    """Bounds on latencies, and on the fraction of good requests."""

    ttft_p99_ms: float | None
    """Bound on the TTFT p99 in milliseconds."""

    tpot_p99_ms: float | None
    """Bound on the TPOT p99 in milliseconds."""

    e2el_p99_ms: float | None
    """Bound on the E2EL p99 in milliseconds."""

    goodput: float | None
    """Least fraction of requests that meet every bound; ``None`` if each bound is of a percentile."""

    ttft_p50_ms: float | None = None
    """Bound on the TTFT p50 in milliseconds."""

    ttft_p90_ms: float | None = None
    """Bound on the TTFT p90 in milliseconds."""

    ttft_p95_ms: float | None = None
    """Bound on the TTFT p95 in milliseconds."""

    ttft_p999_ms: float | None = None
    """Bound on the TTFT p99.9 in milliseconds."""

    tpot_p50_ms: float | None = None
    """Bound on the TPOT p50 in milliseconds."""

    tpot_p90_ms: float | None = None
    """Bound on the TPOT p90 in milliseconds."""

    tpot_p95_ms: float | None = None
    """Bound on the TPOT p95 in milliseconds."""

    tpot_p999_ms: float | None = None
    """Bound on the TPOT p99.9 in milliseconds."""

    e2el_p50_ms: float | None = None
    """Bound on the E2EL p50 in milliseconds."""

    e2el_p90_ms: float | None = None
    """Bound on the E2EL p90 in milliseconds."""

    e2el_p95_ms: float | None = None
    """Bound on the E2EL p95 in milliseconds."""

    e2el_p999_ms: float | None = None
    """Bound on the E2EL p99.9 in milliseconds."""

    itl_p50_ms: float | None = None
    """Bound on the ITL p50 in milliseconds."""

    itl_p90_ms: float | None = None
    """Bound on the ITL p90 in milliseconds."""

    itl_p95_ms: float | None = None
    """Bound on the ITL p95 in milliseconds."""

    itl_p99_ms: float | None = None
    """Bound on the ITL p99 in milliseconds."""

    itl_p999_ms: float | None = None
    """Bound on the ITL p99.9 in milliseconds."""


@dataclass(init=False, repr=False, eq=False)
class SmallestCount(Part):
    """The smallest number of accelerators of one kind that holds the model."""

    accelerator: str
    """Catalog id of the accelerator."""

    count: int
    """Number of accelerators."""

    weights: str
    """Weight format."""


@dataclass(init=False, repr=False, eq=False)
class SmallestTopology(Part):
    """The smallest topology that holds weights and batch."""

    count: int
    """Number of accelerators."""

    tp: int
    """Tensor-parallel degree."""

    pp: int
    """Pipeline stages."""

    decode_bound: Literal["memory", "compute", "communication"]
    """Bottleneck of a decode step of the batch on this topology."""

    shape: list[int] | None = None
    """Lengths of the axes of a torus slice, in chips; absent without a torus."""


@dataclass(init=False, repr=False, eq=False)
class Span(Part):
    """10th and 90th percentile of one metric, around its forecast."""

    factors: tuple[float, float]
    """10th and 90th percentile of the ratio measured / forecast."""

    range: tuple[float, float]
    """The forecast times ``factors``, widened by the sampling error of a simulation, in the metric's unit."""


@dataclass(init=False, repr=False, eq=False)
class Split(Part):
    """The side that is shown, and the number of rows on each side."""

    shown: Literal["look", "judge", "all"]
    """Side of the split that is shown."""

    look: int
    """Number of rows that may be read one by one."""

    judge: int
    """Number of judging rows, which may be read only in aggregate."""


@dataclass(init=False, repr=False, eq=False)
class Start(Part):
    """Memory figures that one engine reports."""

    max_model_len: int
    """Longest request in tokens."""

    weight_bytes: int
    """Bytes of weights on the fullest rank."""

    kv_bytes: int
    """Bytes for KV on the rank with the least room."""

    kv_tokens: int
    """Number of tokens that fit in the cache of one engine."""

    max_concurrency: float
    """Number of requests of ``max_model_len`` tokens that fit at one time."""

    refusal: Refusal | None
    """Reason why the engine does not start; ``None`` if it starts."""

    max_running_requests: int | None = None
    """Most requests, of any length, that run at one time, if a pool of recurrent states limits them."""


@dataclass(init=False, repr=False, eq=False)
class StartPart(Part):
    """One part of a start."""

    part: str
    """Name of the part."""

    seconds: float
    """Seconds of the part."""

    source: str
    """Address of the log from which the seconds are; empty for bytes over a rate."""


@dataclass(init=False, repr=False, eq=False)
class Startup(Part):
    """Time of a start."""

    seconds: float
    """Seconds in all."""

    bytes: int
    """Bytes of weights that one node reads."""

    bytes_per_s: float
    """Bytes per second at which they are read."""

    first_s: float
    """Seconds in addition on the first start, whose kernels are not compiled yet."""

    parts: list[StartPart]
    """The parts of ``seconds``."""


@dataclass(init=False, repr=False, eq=False)
class StorageUse(Part):
    """Use of the storage below the host tier, over all replicas."""

    tokens: int
    """Number of tokens that the storage of one replica holds."""

    hit_rate: float
    """Fraction of the tokens of admitted requests that came from storage."""

    loaded_tokens: int
    """Number of tokens copied to the host."""

    loaded_bytes: int
    """Bytes copied to the host, over all ranks."""

    stored_tokens: int
    """Number of tokens copied from the host."""

    stored_bytes: int
    """Bytes copied from the host, over all ranks."""

    loading_s: float
    """Seconds from the start of a copy to the host to its end, including queueing; summed over copies."""


@dataclass(init=False, repr=False, eq=False)
class Tables(Part):
    """HBM traffic and host transfers of block tables for the decodes of one step, on average."""

    layout: Literal["paged", "flashinfer", "vattention", "contiguous"]
    """Layout of the KV cache in memory."""

    read_bytes: float
    """Bytes of block tables that one layer with full attention reads."""

    sent_bytes: float
    """Bytes of block tables that the host sends to each device."""


@dataclass(init=False, repr=False, eq=False)
class TensorParallel(Part):
    """Degrees beyond which tensor parallelism does not shorten a step."""

    compute_bound_width: float
    """Highest degree at which a compute-bound layer is not link-bound: d_ff × link rate / peak, with both directions
    of every axis in use."""

    memory_bound_width: float
    """Highest degree at which a memory-bound layer is not link-bound: d_ff × link rate / (batch × memory bandwidth),
    over one axis."""

    degrees: list[Degree]
    """Decode step at each valid degree."""

    useful_tp: int
    """Highest degree at which messages take no longer than the rest of the step."""


@dataclass(init=False, repr=False, eq=False)
class TensorRow(Part):
    """One kind of tensor, summed over all layers that have it."""

    tensor: str
    """Module path within the layer."""

    operator: str
    """Operator that reads the tensor."""

    layers: int
    """Number of layers with such a tensor; 1 outside the layers."""

    copies: int
    """Copies within a layer, such as the number of experts."""

    shape: tuple[int, int]
    """Output and input dimensions."""

    format: str
    """Number format."""

    bits: float
    """Stored bits per weight, scales included."""

    parameters: int
    """Parameters of all copies and layers."""

    bytes: int
    """Bytes of all copies and layers."""

    flops_per_token: int
    """GEMM FLOPs per token: two per weight, counting only the experts that a token chooses; 0 for embedding tables
    and vectors."""


@dataclass(init=False, repr=False, eq=False)
class TermComparison(Part):
    """One term, measured and forecast, in bytes, tokens, or hundredths of a request."""

    term: Literal["budget", "weights", "activations", "runtime", "graphs", "kv", "kv-tokens", "concurrency"]
    """Term that is compared."""

    measured: float
    """Figure in the log."""

    forecast: float
    """Figure of the forecast."""


@dataclass(init=False, repr=False, eq=False)
class Terms(Part):
    """Time of each total at its own rate, as if it were alone. The times overlap, so they are not a partition of the
    limit."""

    weights_ms: float
    """Bytes of all weights over the bandwidth."""

    kv_ms: float
    """Bytes of KV cache over the bandwidth."""

    flops_ms: float
    """FLOPs over the peak rates of their dtypes."""

    communication_ms: float
    """Bytes of all messages over the rate of the slowest link."""


@dataclass(init=False, repr=False, eq=False)
class TimeShares(Part):
    """Seconds of the replicas' time, by bottleneck."""

    memory_s: float
    """Seconds bound by memory bandwidth."""

    compute_s: float
    """Seconds bound by arithmetic."""

    communication_s: float
    """Seconds bound by links."""

    host_s: float
    """Seconds bound by the host: its work, kernel launches, and whole steps that last as long as the engine's loop."""

    server_s: float
    """Seconds bound by the server: whole steps that last as long as its messages to clients."""

    overlapped_s: float
    """Seconds among ``host_s`` and ``server_s`` in which accelerators compute; no part of the sum."""

    swap_s: float
    """Seconds for moving KV cache between device and host, and for loading LoRA adapters."""

    idle_s: float
    """Seconds without work."""

    reading_s: float
    """Seconds that the bytes of weights and KV cache take at full bandwidth, by mean steps; no part of the sum."""

    arithmetic_s: float
    """Seconds that the FLOPs take at the peak rates, by mean steps; no part of the sum."""


@dataclass(init=False, repr=False, eq=False)
class Timed(Part):
    """Engine, version and accelerator of the kernel tables behind a forecast."""

    engine: str
    """Name of the engine whose kernels were timed."""

    version: str
    """Newest version of the engine among the kernel times."""

    accelerator: str
    """Catalog id of the accelerator on which the kernels were timed."""


@dataclass(init=False, repr=False, eq=False)
class Times(Part):
    """Times of a decode step and of a prefill by one cost model."""

    tpot_ms: float
    """Time per output token at the offered load in milliseconds."""

    prefill_ms: float
    """Time of one long prompt alone in milliseconds."""


@dataclass(init=False, repr=False, eq=False)
class TpotComparison(Part):
    """A measured mean TPOT with forecast, limit and verdict."""

    tpot_ms: float
    """Measured mean TPOT in milliseconds."""

    forecast_ms: float
    """Forecast mean TPOT in milliseconds."""

    band_ms: tuple[float, float] | None
    """10th and 90th percentile of the forecast in milliseconds; ``None`` if steps are priced at the limit."""

    limit_ms: float
    """Limit of the TPOT in milliseconds, at the mean batch and context of the run."""

    over_forecast: float
    """Measured over forecast TPOT."""

    over_limit: float
    """Measured TPOT over its limit."""

    verdict: Literal["below_limit", "fast", "as_forecast", "slow"]
    """Verdict on the measured TPOT."""


@dataclass(init=False, repr=False, eq=False)
class TransferUse(Part):
    """KV transfers between replicas in a run."""

    count: int
    """Number of KV transfers."""

    mean_ms: float
    """Mean time of a KV transfer on the link in milliseconds, which transfers from one replica to several share."""

    alone_ms: float
    """Mean time of a KV transfer in milliseconds if each had the link alone."""


@dataclass(init=False, repr=False, eq=False)
class WhatIf(Part):
    """A change, and its effect on the best deployment."""

    change: str
    """Text of the change."""

    meets: bool
    """True if the best deployment still meets the SLO after the change."""

    because: str
    """Text of the margin, or of the reason if the SLO is missed."""

    chance: float | None
    """Probability of meeting the SLO, from the bands of forecasts; ``None`` if the forecast misses the SLO, and at
    the limit."""

    replicas: int | None
    """Number of replicas with which the SLO is met; ``None`` if it is met already, or with none of the numbers that
    were tried."""


@dataclass(init=False, repr=False, eq=False)
class Limits(Document):
    """Limits and forecasts of one decode step of the batch, and of one prompt."""

    model: str
    """Id of the served model."""

    hardware: str
    """Id of the accelerator."""

    count: int
    """Total number of accelerators."""

    parallelism: Parallelism
    """Degrees of parallelism, and replicas."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of everything that is not quantized."""

    engine: EngineSettings
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool
    """True for nominal memory without any reserve."""

    assumptions: list[str]
    """Assumptions for settings that the input does not contain, one sentence each."""

    batch: int
    """Sequences in the decode step."""

    context: int
    """Tokens of context of each sequence."""

    prompt: int
    """Tokens of the prompt."""

    mfu_limit: float
    """Fraction of peak FLOP/s that counts as reachable."""

    mbu_limit: float
    """Fraction of peak bandwidth that counts as reachable."""

    fits: bool
    """True if weights and the batch fit in memory; the times are valid in either case."""

    decode: Cost
    """Cost of one decode step of the batch."""

    decode_tokens_per_s: float
    """Output tokens per second of the deployment, at the limit with messages between ranks."""

    decode_forecast_tokens_per_s: float
    """Output tokens per second of the deployment, by the forecast."""

    prefill: Cost
    """Cost of one prompt."""

    prefill_tokens_per_s: float
    """Prompt tokens per second of the deployment, at the limit with messages between ranks."""

    prefill_forecast_tokens_per_s: float
    """Prompt tokens per second of the deployment, by the forecast."""

    ridge: list[Ridge]
    """Ridge point of each dtype: FLOPs per byte at which compute and memory take equal time."""

    critical_batch: list[CriticalBatch]
    """Tokens in a step from which on a weight format is compute-bound."""

    all_reduce: list[AllReduce]
    """One all-reduce of the decode step, by algorithm."""

    tensor_parallel: TensorParallel
    """Degrees beyond which tensor parallelism does not shorten a step."""

    experts: ExpertsTouched | None
    """Experts that the decode step reads; ``None`` for dense models."""

    kv_cache: KvCache
    """Cost of keeping the KV cache compared with recomputing it."""

    adapters: AdapterCost | None = None
    """Cost of LoRA adapters; absent if none are served."""

    image: ImageCost | None = None
    """Cost of the image, or the video, of ``--image``."""


@dataclass(init=False, repr=False, eq=False)
class LimitsSweep(Document):
    """Steps over the values of keys; the deployment is the one at the first values."""

    sweep: list[str]
    """Swept keys."""

    points: list[LimitsPoint]
    """Step at each combination of values."""

    interrupted: bool
    """True if points are missing because Ctrl-C or SIGTERM came before they were computed."""

    model: str | None = None
    """Id of the served model."""

    hardware: str | None = None
    """Id of the accelerator."""

    count: int | None = None
    """Total number of accelerators."""

    parallelism: Parallelism | None = None
    """Degrees of parallelism, and replicas."""

    weights: str | None = None
    """Format of the weights."""

    kv: str | None = None
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"] | None = None
    """Dtype of everything that is not quantized."""

    engine: EngineSettings | None = None
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str | None = None
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool | None = None
    """True for nominal memory without any reserve."""

    assumptions: list[str] | None = None
    """Assumptions for settings that the input does not contain, one sentence each."""

    skipped: list[str] | None = None
    """Values at which there is no such deployment, each with the reason."""


@dataclass(init=False, repr=False, eq=False)
class LimitsCompare(Document):
    """The step and the prompt with each setting of a kind."""

    model: str
    """Id of the served model."""

    hardware: str
    """Id of the accelerator."""

    count: int
    """Total number of accelerators."""

    parallelism: Parallelism
    """Degrees of parallelism, and replicas."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of everything that is not quantized."""

    engine: EngineSettings
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool
    """True for nominal memory without any reserve."""

    assumptions: list[str]
    """Assumptions for settings that the input does not contain, one sentence each."""

    comparison: Literal["attention", "launches", "kernels", "layouts"]
    """Kind of the settings, as given to ``--compare``."""

    batch: int
    """Sequences in the decode step."""

    context: int
    """Tokens of context of each sequence."""

    prompt: int
    """Tokens of the prompt."""

    alternatives: list[Alternative]
    """Forecasts with each setting."""


@dataclass(init=False, repr=False, eq=False)
class Intensity(Document):
    """Arithmetic intensity of one layer over the batch size."""

    hardware: str
    """Id of the accelerator."""

    rows: int
    """Rows of the layer's weights."""

    columns: int
    """Columns of the layer's weights."""

    weights: str
    """Format of the weights."""

    points: list[IntensityPoint]
    """Intensity at each batch size."""


@dataclass(init=False, repr=False, eq=False)
class Capacity(Document):
    """Capacity: the sequences and tokens that fit in memory, and the memory of everything else."""

    model: str
    """Id of the served model."""

    hardware: str
    """Id of the accelerator."""

    count: int
    """Total number of accelerators."""

    parallelism: Parallelism
    """Degrees of parallelism, and replicas."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of everything that is not quantized."""

    engine: EngineSettings
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool
    """True for nominal memory without any reserve."""

    assumptions: list[str]
    """Assumptions for settings that the input does not contain, one sentence each."""

    context: int
    """Requested tokens of context of each sequence."""

    batch: int
    """Requested number of sequences."""

    oversubscription: float
    """Users per sequence in memory."""

    fits: bool
    """True if the weights fit and leave room for the batch of the question: it is at most ``max_batch``."""

    short_by_bytes: int
    """Bytes that are missing on the fullest accelerator for the weights and the batch of the question; 0 if both
    fit, and where requests are bounded by the pool of recurrent states."""

    parameters: Parameters
    """Parameter counts."""

    weight_bytes: int
    """Bytes of the weights of one replica."""

    kv_bytes_per_token: int
    """Bytes that the last token of the context adds to a sequence's KV cache."""

    kv_bytes_per_sequence: int
    """Bytes of the KV cache of one sequence of the whole context."""

    compute_bytes_per_token: int
    """Bytes of llama.cpp's compute buffer on one accelerator per token of context, in addition to the KV cache."""

    kv_tokens: int
    """KV-cache tokens that fit in accelerator memory, over the whole deployment."""

    max_batch: int
    """Number of sequences of the context that fit at one time."""

    longest_context: int
    """Longest single sequence in tokens, at most the model's maximum."""

    users: int
    """Number of users that the deployment serves, over-subscription included."""

    deployments_for_users: int | None
    """Number of deployments that serve the users of the question."""

    min_accelerators: int | None
    """Fewest accelerators whose total memory holds the weights and the batch of the question, beyond the sizes that
    do not."""

    smallest_topology: SmallestTopology | None
    """The smallest deployment of this chip that holds weights and batch, with its actual sharding."""

    in_stages: SmallestTopology | None
    """The deployment's accelerators divided into pipeline stages, if that holds the batch of the question while the
    deployment itself cannot hold one sequence."""

    ranks: list[Rank]
    """Memory of the busiest accelerator of each pipeline stage."""

    startup: Startup
    """Time of a replica's start, with weights from a network volume."""

    host_kv_tokens: int | None = None
    """KV-cache tokens that fit in the host tier, in addition to ``kv_tokens``; absent without a host tier."""

    storage_kv_tokens: int | None = None
    """KV tokens that storage below the host tier holds; absent without storage."""

    start: Start | None = None
    """The engine's start-up report, by the rules of each engine; absent unless ``engine.max_model_len``,
    ``hardware.memory_used_gib`` or a command is given."""

    measured: MeasuredStart | None = None
    """Comparison with the log of ``--measured-log``."""

    tensors: list[TensorRow] | None = None
    """Tensors of the model, with ``--explain``."""

    checkpoint: CheckpointFiles | None = None
    """Contents of the files of the checkpoint, with ``--explain``."""


@dataclass(init=False, repr=False, eq=False)
class Simulation(Document):
    """Forecast of the metrics that a benchmark client would measure under a load."""

    model: str
    """Id of the served model."""

    hardware: str
    """Id of the accelerator."""

    count: int
    """Total number of accelerators."""

    parallelism: Parallelism
    """Degrees of parallelism, and replicas."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of everything that is not quantized."""

    engine: EngineSettings
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool
    """True for nominal memory without any reserve."""

    assumptions: list[str]
    """Assumptions for settings that the input does not contain, one sentence each."""

    cost: Literal["limit", "forecast"]
    """Cost model of a step."""

    interrupted: bool
    """True if the run was interrupted; the other fields then count only the requests that had ended."""

    requests: int
    """Number of requests that arrived."""

    refused: int
    """Number of requests that no engine with these settings could serve."""

    rejected: int
    """Number of requests that a queue limit or a rate limit rejected."""

    overflowed: int
    """Number of running requests that ended with an error because llama.cpp's shared KV cache overflowed."""

    duration: float
    """Seconds from the first request to the last token."""

    completed: int
    """Number of requests that got all their tokens."""

    failed: int
    """Number of requests that did not complete."""

    total_input_tokens: int
    """Prompt tokens of completed requests."""

    total_output_tokens: int
    """Output tokens of completed requests."""

    request_throughput: float
    """Completed requests per second."""

    request_goodput: float | None
    """Completed requests per second within every bound of the SLO; ``None`` without bounds."""

    output_throughput: float
    """Output tokens per second."""

    total_token_throughput: float
    """Prompt and output tokens per second."""

    mean_ttft_ms: float | None
    """Mean in milliseconds of the time to the first token; ``None`` without values."""

    median_ttft_ms: float | None
    """Median in milliseconds of the time to the first token; ``None`` without values."""

    std_ttft_ms: float | None
    """Standard deviation in milliseconds of the time to the first token; ``None`` without values."""

    p50_ttft_ms: float | None
    """Median in milliseconds of the time to the first token; ``None`` without values."""

    p90_ttft_ms: float | None
    """90th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p95_ttft_ms: float | None
    """95th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p99_ttft_ms: float | None
    """99th percentile in milliseconds of the time to the first token; ``None`` without values."""

    p999_ttft_ms: float | None
    """99.9th percentile in milliseconds of the time to the first token; ``None`` without values."""

    mean_tpot_ms: float | None
    """Mean in milliseconds of the time per output token after the first; ``None`` without values."""

    median_tpot_ms: float | None
    """Median in milliseconds of the time per output token after the first; ``None`` without values."""

    std_tpot_ms: float | None
    """Standard deviation in milliseconds of the time per output token after the first; ``None`` without values."""

    p50_tpot_ms: float | None
    """Median in milliseconds of the time per output token after the first; ``None`` without values."""

    p90_tpot_ms: float | None
    """90th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p95_tpot_ms: float | None
    """95th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p99_tpot_ms: float | None
    """99th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    p999_tpot_ms: float | None
    """99.9th percentile in milliseconds of the time per output token after the first; ``None`` without values."""

    mean_itl_ms: float | None
    """Mean in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    median_itl_ms: float | None
    """Median in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    std_itl_ms: float | None
    """Standard deviation in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p50_itl_ms: float | None
    """Median in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None`` without
    values."""

    p90_itl_ms: float | None
    """90th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p95_itl_ms: float | None
    """95th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p99_itl_ms: float | None
    """99th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    p999_itl_ms: float | None
    """99.9th percentile in milliseconds of the gap between streamed chunks, over all gaps of all requests; ``None``
    without values."""

    mean_e2el_ms: float | None
    """Mean in milliseconds of the time from arrival to the last token; ``None`` without values."""

    median_e2el_ms: float | None
    """Median in milliseconds of the time from arrival to the last token; ``None`` without values."""

    std_e2el_ms: float | None
    """Standard deviation in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p50_e2el_ms: float | None
    """Median in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p90_e2el_ms: float | None
    """90th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p95_e2el_ms: float | None
    """95th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p99_e2el_ms: float | None
    """99th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    p999_e2el_ms: float | None
    """99.9th percentile in milliseconds of the time from arrival to the last token; ``None`` without values."""

    settings: ReportedSettings
    """Resolved settings of the engine."""

    activity: Activity
    """Work of the engines, summed over replicas."""

    kv_cache: CacheUse
    """Use of the KV cache."""

    time: TimeShares
    """Seconds of the replicas' time by bottleneck, summed over replicas."""

    bound: str
    """Bottleneck of most of the busy time: ``memory``, ``compute``, ``communication``, ``host``, or ``server`` for
    the messages of the engine's server."""

    limit_tpot_ms: float
    """Limit of a decode step in milliseconds, at the mean batch and context of the run; of a microbatch if several
    pipeline stages work at one time."""

    expense: Expense
    """Cost and energy."""

    fleet: FleetUse
    """Replicas of the fleet, and KV transfers between them."""

    load: OfferedLoad
    """The offered load, and the verdict on overload."""

    sessions: RecordedSessions | None
    """Recorded sessions that ended; ``None`` if the traffic has no sessions."""

    bands: Bands | None
    """Bands of the means, whose ranges the errors of ``sampling`` widen; ``None`` if steps are priced at the limit."""

    sampling: SamplingErrors
    """Errors of the means and 99th percentiles, because a run has only so many requests."""

    oversized: OversizedRequests | None = None
    """The rejected requests that take more tokens than a full bucket of the rate limit holds; absent without any."""

    lifted_by: str | None = None
    """Flag of the engine that lifts the bottleneck; absent if no flag does."""

    preemption: PreemptionCosts | None = None
    """Costs of a preemption, either way; absent without preemptions, and of engines that have one way alone."""

    images: ImageUse | None = None
    """Images of every request; absent if prompts are text."""

    adapters: AdapterUse | None = None
    """Use of LoRA adapters; absent if none are served."""

    first_wave: FirstWave | None = None
    """Results of the first request of each user, if all users of a closed loop begin at once."""

    classes: list[ClassResults] | None = None
    """Results of each class of requests; empty without classes."""

    measured: TpotComparison | None = None
    """Comparison of the forecast TPOT with the one of ``--measured-tpot``."""


@dataclass(init=False, repr=False, eq=False)
class Sweep(Document):
    """Runs over all combinations of the values of keys."""

    sweep: list[str]
    """Swept dotted keys; ``spec`` first if several spec files are compared."""

    interrupted: bool
    """True if values are missing because Ctrl-C came before their runs had ended."""

    points: list[Point]
    """Runs in the order of the combinations, the last key varying fastest."""

    skipped: list[str] | None = None
    """Values at which there is no such deployment, each with the reason."""


@dataclass(init=False, repr=False, eq=False)
class Found(Document):
    """The largest value of a key that meets the SLO, by bisection."""

    model: str
    """Id of the served model."""

    hardware: str
    """Id of the accelerator."""

    count: int
    """Total number of accelerators."""

    parallelism: Parallelism
    """Degrees of parallelism, and replicas."""

    weights: str
    """Format of the weights."""

    kv: str
    """Format of the KV cache."""

    activations: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4"]
    """Dtype of everything that is not quantized."""

    engine: EngineSettings
    """Settings of the engine by vLLM's names, with defaults filled in."""

    convention: str
    """Counting rules: ``default``, or ``seed-003`` for nominal memory without any reserve."""

    ideal: bool
    """True for nominal memory without any reserve."""

    assumptions: list[str]
    """Assumptions for settings that the input does not contain, one sentence each."""

    slo: Slo
    """Bounds to meet."""

    key: str
    """The dotted key of the spec."""

    low: float
    """Lower end of the range."""

    high: float
    """Upper end of the range."""

    best: float | None
    """The largest value that meets the SLO."""

    at_least: bool
    """True if the upper end meets the SLO, so that larger values may meet it as well."""

    missed: FoundPoint | None
    """The smallest value above ``best`` that misses the SLO."""

    simulations: int
    """Number of simulations."""

    interrupted: bool
    """True if the search was stopped."""

    points: list[FoundPoint]
    """Values in the order in which they were tried."""

    interval: FoundInterval | None = None
    """80 % interval of ``best``; absent at the limit."""


@dataclass(init=False, repr=False, eq=False)
class Plan(Document):
    """A plan: the deployments that meet the SLO, best first."""

    model: str
    """Id of the served model."""

    cost: Literal["limit", "forecast"]
    """Cost by which steps are priced: the limit or the forecast."""

    considered: int
    """Number of deployments in the search."""

    pruned: Pruned
    """Numbers of deployments that were ruled out without a simulation, by stage."""

    simulated: int
    """Number of simulated deployments."""

    dearer: int
    """Number of deployments that were skipped because their objective is worse than the best one's."""

    feasible: int
    """Number of simulated deployments that met the SLO."""

    missed: int
    """Number of simulated deployments that missed the SLO."""

    requests: int
    """Number of requests in a simulation."""

    confidence: float
    """Required probability of meeting the SLO."""

    confident: bool
    """True if the best deployment has the required probability; otherwise the best is the most likely one."""

    interrupted: bool
    """True if the search was stopped before it ended."""

    at_least: float | None
    """Lower bound of the objective over all deployments that meet the SLO, for a search that was stopped."""

    unjudged: int
    """Number of unjudged deployments whose objective is at most the best one's, for a search that was stopped."""

    assumptions: list[str]
    """Assumptions about the best deployment; about the model if no deployment met the SLO."""

    best: Choice | None
    """The deployment with the lowest objective among the ones with the required probability; ``None`` if no
    deployment met the SLO."""

    cheaper: list[Choice]
    """Deployments with a lower objective that meet the SLO in the forecast, but with less than the required
    probability."""

    pareto: list[Choice]
    """Pareto front over objective, TPOT and TTFT, in order of ascending objective."""

    pareto_throughput: list[Choice]
    """Pareto front over output tokens per second per accelerator and interactivity, in order of descending tokens."""

    by_accelerator: list[Choice]
    """For each accelerator the deployment with the lowest objective, in order of ascending objective."""

    ranked: list[Choice]
    """All deployments that met the SLO in the forecast, best first; the ones with the required probability precede
    the others."""

    nearest: list[Near]
    """The nearest misses, if no deployment met the SLO."""

    not_searched: list[str]
    """Accelerators outside the search: if the search lists accelerators, other ones with a price; else accelerators
    without a price."""

    minimise: Literal["cost_per_hour", "cost_per_million_tokens", "accelerators", "energy"]
    """Objective by which deployments are ranked: the number of accelerators if the requested one is known of none."""

    unpriced: list[str]
    """Accelerators of the search without the price or power that the requested objective needs."""

    left_out: list[LeftOut]
    """Reasons for skipped deployments, each with a count."""

    not_apart: list[str]
    """Engines that were not considered for disaggregation, each with the reason; empty if disaggregation was not
    requested."""

    smallest: list[SmallestCount]
    """For each accelerator, the smallest number that holds the model and one request."""

    what_if: list[WhatIf]
    """Effects of changes on the best deployment."""

    why: list[Near]
    """Results of the deployments that the user asked about by name."""

    launch: list[Launch]
    """Commands that start the best deployment with its engine, one for each pool."""

    manifests: list[Manifest]
    """Manifests that start the best deployment on clusters."""

    quality: list[Quality]
    """Measured effects of the considered formats on quality."""

    flops_per_dollar: list[FlopsPerDollar]
    """Peak arithmetic per dollar, by accelerator."""

    spec: str | None
    """The spec of the best deployment, with which ``roofcast simulate`` repeats its simulation."""

    bench: str | None
    """The command that measures the best deployment where it runs; it reads ``spec`` from best.toml."""

    over_time: OverTime | None = None
    """Replicas of the best deployment over time, if ``search.interval_s`` asks for them."""

    against_api: AgainstApi | None = None
    """The best deployment against an API's prices, if ``search.against_api`` asks for it."""

    without_pools: Near | None = None
    """If the best deployment is disaggregated, the best one that is not: with its chance if it meets the SLO, else
    with the reason."""

    current: Current | None = None
    """The deployment that runs now, if a measured run was given."""

    job: Job | None = None
    """The offline job whose rate is the load, if one was given."""

    removed: list[str] | None = None
    """Names of files of an earlier plan in the folder of ``--launch-dir`` that were removed, because this plan does
    not write them."""


@dataclass(init=False, repr=False, eq=False)
class Curves(Document):
    """Curves of output tokens per second per accelerator against output tokens per second of one user."""

    model: str
    """Id of the served model."""

    cost: Literal["limit", "forecast"]
    """Cost by which steps are priced: the limit or the forecast."""

    load: str
    """Requests that users send, in words."""

    slo: str
    """The SLO in words."""

    curves: list[Curve]
    """The curves, in the order of the search."""

    at_speed: list[AtSpeed]
    """The cheapest replica for each minimum speed of a user, found by bisection over users."""

    left_out: list[str]
    """Accelerators without a curve, each with the reason."""

    simulated: int
    """Number of simulations."""

    interrupted: bool
    """True if the simulations were stopped before all were done."""


@dataclass(init=False, repr=False, eq=False)
class Validation(Document):
    """Errors of forecasts against measurements."""

    rows: int
    """Number of rows in the set."""

    predicted: int
    """Number of rows that have a forecast."""

    metrics: dict[str, Errors]
    """Errors by metric."""

    skipped: list[Skipped]
    """Rows that were omitted, by reason."""

    kinds: dict[str, ErrorStatistics]
    """Errors by kind of measurement."""

    sources: dict[str, ErrorStatistics]
    """Errors by source."""

    engines: dict[str, ErrorStatistics]
    """Errors by engine."""

    hardware: dict[str, ErrorStatistics]
    """Errors by accelerator."""

    groups: list[GroupErrors]
    """Errors by group, the worst first."""

    drafts: list[str]
    """Rows of disaggregated pools that probably ran with speculative decoding, which rows do not declare: their
    steps are faster than the limit, or than the forecast by a factor of at least 1.7. Rows faster than the limit
    have no forecast; the others count like all rows."""

    split: Split
    """The side of the split that is shown, and the number of rows on each side."""

    refused: list[str]
    """Reasons for refused rows, each with its file and line."""

    notes: list[str]
    """Sentences on how results of clients were read."""

    runs: list[Replay]
    """Recorded runs, replayed with their own arrivals, settings and KV blocks."""

    interrupted: bool
    """True if rows are missing because Ctrl-C came before they were forecast."""


@dataclass(init=False, repr=False, eq=False)
class Calibration(Document):
    """Fitted times of engines, and their errors on held-out rows."""

    rows: int
    """Number of rows in the files; the next field counts the rows that the fit uses."""

    interrupted: bool
    """True if Ctrl-C or SIGTERM came before the fit was done; then the other keys are empty, and no file is written."""

    notes: list[str]
    """Sentences on how results of clients were read."""

    numbers: list[Number]
    """Fitted numbers."""

    left_out: dict[str, dict[str, LeftOutErrors]]
    """Errors on held-out rows, by the way of choosing the rows that are held out, then by metric."""


@dataclass(init=False, repr=False, eq=False)
class Accelerator(Document):
    """One accelerator of the catalog. Rates are dense (no sparsity) and per second; sizes are in bytes."""

    id: str
    """Lower-case id, as in ``h100-sxm``."""

    name: str
    """The maker's name."""

    aliases: list[str]
    """Further ids of the accelerator."""

    vendor: str
    """``nvidia``, ``amd``, ``intel``, ``google``, ``aws``, ``apple`` or ``cpu``."""

    architecture: str
    """Generation, as in ``hopper``."""

    memory_bytes: int
    """Nominal memory in bytes, as the maker counts it."""

    usable_bytes: int
    """Memory in bytes that the driver reports to a program; where CPU and GPU share memory, the part that the system
    grants to the GPU."""

    bandwidth_bytes_per_s: float
    """Memory bandwidth in bytes per second."""

    node_size: int
    """Number of accelerators that ``link`` joins into one node."""

    host_speed: float
    """Single-thread speed of the usual host as a multiple of a DGX H100 host's speed."""

    power_w: float | None
    """Board power in watts."""

    notes: str
    """Remarks on the figures, for readers of the catalog."""

    peak_flops: dict[str, float]
    """Dense peak FLOP/s per dtype."""

    link: Link | None
    """Link within a node."""

    network: Network | None
    """Network between nodes."""

    price: HourlyPrice | None
    """On-demand price."""

    sources: list[Citation]
    """Sources of the figures."""

    vllm_small_batches: bool | None = None
    """True if vLLM gives the chip its default batch for small memory regardless of the real memory size: the A100,
    by its name, and chips that share the host's memory, for which NVML reports none."""

    memory_options: list[MemoryOption] | None = None
    """Variants of the machine with other memory sizes. Present only in catalog files, because ``expanded`` turns
    each variant into an entry."""

    sustained_bandwidth: float | None = None
    """Highest measured fraction of the bandwidth at which kernels read large arrays; absent if nobody published it."""

    multiprocessors: int | None = None
    """Number of streaming multiprocessors of a GPU, each of which needs at least one thread block to be busy; for
    Apple's chips, the number of GPU cores."""

    fp16_accumulate_flops: float | None = None
    """Peak FLOP/s of 16-bit GEMMs that accumulate in 16 bits, if it differs from the peak with accumulation in 32
    bits."""

    in_band_ecc: bool | None = None
    """True if ECC bits are stored among the data (GDDR6 with ECC), where they occupy one byte of 16 of memory and
    bandwidth."""

    sustained_flops: dict[str, float] | None = None
    """FLOP/s per dtype of large GEMMs at the clock that the board power sustains, if it was measured; tables of
    kernels timed in short bursts, or on zeros, have higher rates."""

    host_link: HostLink | None = None
    """Link to the host's memory, if it is another link than ``link``."""


@dataclass(init=False, repr=False, eq=False)
class Model(Document):
    """A model's entry as a JSON document."""

    id: str
    """Hugging Face id."""

    aliases: list[str]
    """Other names of the entry."""

    source: str
    """URL of the config."""

    family: str
    """``model_type`` of the config."""

    parameters: Parameters | None
    """Parameter counts."""

    weights: str
    """Formats of the weights as published."""

    weight_bytes: int | None
    """Size of the weights as published."""

    max_context: int | None
    """Largest context that the model allows, in tokens."""

    kv: str | None
    """Format of the checkpoint's KV cache."""

    kv_bytes_per_token: int | None
    """Size of the KV cache of one token in that format at 4,096 tokens."""

    published_parameters: int | None
    """Exact total that the maker publishes."""

    published_total: str | None
    """Total as the maker prints it, as in ``122B``."""

    published_active: str | None
    """Active parameters as the maker prints them, as in ``10B``."""

    read_as: str | None
    """Interpretation of a name that differs from the entry's id; ``None`` if the names are equal."""

    config: Any
    """Config by Hugging Face's keys."""
