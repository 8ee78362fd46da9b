//! Simulates a workload on an engine in virtual time, and reports the results.
//!
//! Knows: the replicas of a deployment, the sums of their counters, and whether the offered load exceeded their
//! capacity. Knows nothing about scheduling. Latencies as clients see them are in [`results`].

mod adapters;
mod beside;
mod classes;
mod energy;
mod fleet_use;
mod images;
mod preemption;
mod provision;
mod refused;
mod shares;
mod sums;

pub use crate::engine::price::PriceBook;
pub use crate::fleet::OversizedRequests;
pub use crate::fleet::results::{FirstWave, OfferedLoad};
use crate::fleet::results::{Results, Sample};
use crate::fleet::{Fleet, KvEvents, Oracle, QueueOrder, Watch};
use crate::scheduler::config::PrefixCaching;
use crate::timeline::series::{Series, SeriesPoint};
use crate::timeline::{Timeline, trace::EventTrace};
pub use adapters::AdapterUse;
pub use beside::{TpotComparison, TpotVerdict};
pub use classes::{ClassExpense, ClassResults};
pub use fleet_use::{FailureUse, FleetUse, PoolUse, ScalingUse, TransferUse};
pub use images::ImageUse;
pub use preemption::PreemptionCosts;
pub use provision::pool;
use provision::{Provision, Requests};
pub use refused::{has_pools, uncounted};
use roofcast_ask::carbon::Grid;
use roofcast_ask::sampling::SamplingErrors;
use roofcast_ask::spec::{CostKind, KvLayout, QueuePolicy, SchedulerKind, Spec};
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::{Traffic, Workload};
use roofcast_cost::bands::{self, Bands};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::record::Record;
use roofcast_facts::units::Bytes;
use serde::Serialize;
pub use shares::TimeShares;
pub use sums::Expense;

/// Options of a run: speed, recorded data and early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// True to simulate equal steps at once, which does not change the results.
    pub leap: bool,
    /// True to keep a record of each request.
    pub records: bool,
    /// True to keep each replica's levels over time.
    pub series: bool,
    /// Most events of steps and requests to keep, over all replicas; `None` to keep none.
    pub trace: Option<u64>,
    /// True to end the run when the bound on a 99th percentile is certain to be missed. Such a run reports only the
    /// requests until then.
    pub end_when_missed: bool,
    /// True to compare the prompt tokens that caches find with an oracle's; not for disaggregated prefill and decode.
    pub oracle: bool,
}

/// A simulated run and its results.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Simulation {
    /// Cost model of a step.
    pub cost: CostKind,
    /// True if the run was interrupted; the other fields then count only the requests that had ended.
    pub interrupted: bool,
    /// Number of requests that arrived.
    pub requests: u64,
    /// Number of requests that no engine with these settings could serve.
    pub refused: u64,
    /// Number of requests that a queue limit or a rate limit rejected.
    pub rejected: u64,
    /// The rejected requests that take more tokens than a full bucket of the rate limit holds; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversized: Option<OversizedRequests>,
    /// Number of running requests that ended with an error because llama.cpp's shared KV cache overflowed.
    pub overflowed: u64,
    /// Latencies and throughput as clients see them, by vLLM's keys.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Resolved settings of the engine.
    pub settings: ReportedSettings,
    /// Work of the engines, summed over replicas.
    pub activity: Activity,
    /// Use of the KV cache.
    pub kv_cache: CacheUse,
    /// Seconds of the replicas' time by bottleneck, summed over replicas.
    pub time: TimeShares,
    /// Bottleneck of most of the busy time: `memory`, `compute`, `communication`, `host`, or `server` for the messages of the
    /// engine's server.
    pub bound: &'static str,
    /// Flag of the engine that lifts the bottleneck; absent if no flag does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// Costs of a preemption, either way; `None` without preemptions, and of engines that have one way alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionCosts>,
    /// Limit of a decode step in milliseconds, at the mean batch and context of the run; of a microbatch if several
    /// pipeline stages work at one time.
    pub limit_tpot_ms: f64,
    /// Cost and energy.
    pub expense: Expense,
    /// Replicas of the fleet, and KV transfers between them.
    pub fleet: FleetUse,
    /// The offered load, and the verdict on overload.
    pub load: OfferedLoad,
    /// Images of every request; `None` if prompts are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<ImageUse>,
    /// Use of LoRA adapters; `None` if none are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterUse>,
    /// Results of the first request of each user, if all users of a closed loop begin at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wave: Option<FirstWave>,
    /// Results of each class of requests; empty without classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassResults>,
    /// Recorded sessions that ended; `None` if the traffic has no sessions.
    pub sessions: Option<RecordedSessions>,
    /// True if the run ended before its last request because an SLO bound was certain to be missed.
    #[serde(skip)]
    pub ended_early: bool,
    /// Bands of the means, whose ranges the errors of `sampling` widen; `None` if steps are priced at the limit.
    pub bands: Option<Bands>,
    /// Errors of the means and 99th percentiles, because a run has only so many requests.
    pub sampling: SamplingErrors,
    /// Latencies of all completed requests, by name of the metric.
    #[serde(skip)]
    pub latencies: [(&'static str, Sample); 3],
    /// One record for each request; empty if records were not kept.
    #[serde(skip)]
    pub records: Vec<Record>,
    /// Levels over time of each replica, at common intervals; empty if they were not kept.
    #[serde(skip)]
    pub series: Vec<Vec<SeriesPoint>>,
    /// First events of each replica; empty if they were not kept.
    #[serde(skip)]
    pub traces: Vec<EventTrace>,
}

/// An engine's settings with every default filled in, by vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportedSettings {
    /// The scheduling policy.
    pub scheduler: SchedulerKind,
    /// The order of the queue.
    pub(crate) policy: QueuePolicy,
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// Token budget of a step, over all data-parallel ranks.
    pub max_num_batched_tokens: u32,
    /// Most tokens of a request, prompt and output together.
    pub max_model_len: u32,
    /// True if a prompt may be split over steps (chunked prefill).
    pub enable_chunked_prefill: bool,
    /// True if blocks are found by their content (prefix cache).
    pub enable_prefix_caching: bool,
    /// True if equal steps were simulated at once, which does not change the results.
    pub(crate) leap: bool,
}

/// Work of the engines, summed over replicas.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Activity {
    /// Number of steps.
    pub steps: u64,
    /// Mean number of running requests in a step.
    pub mean_running: f64,
    /// Most running requests in a step of one replica.
    pub max_running: u64,
    /// Most waiting requests at one replica.
    pub(crate) max_waiting: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Number of computed tokens.
    pub scheduled_tokens: u64,
    /// Number of tokens that preempted requests recomputed.
    pub recomputed_tokens: u64,
    /// Number of tokens moved to host memory and back by swapping.
    pub swapped_tokens: u64,
    /// Number of prompt tokens found in the prefix cache.
    pub cached_tokens: u64,
    /// Number of tokens computed for rows of a static batch whose requests had ended.
    pub idle_tokens: u64,
    /// Number of drafts that were verified.
    pub drafted_tokens: u64,
    /// Number of drafts that were rejected.
    pub rejected_tokens: u64,
}

/// Use of the KV cache of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheUse {
    /// Number of blocks that requests can hold.
    pub blocks: u64,
    /// Tokens per block.
    pub block_size: u64,
    /// Number of groups of layers that have separate blocks, as in vLLM if some layers have a sliding window.
    pub groups: u64,
    /// Most blocks that were held at one time.
    pub max_blocks: u64,
    /// Mean fraction of the blocks that were held, over steps.
    pub mean_usage: f64,
    /// Mean fraction of the held token slots without a token, over steps.
    pub internal_fragmentation: f64,
    /// Mean fraction of the free room outside its longest gap, over attempts to admit; 0 for a cache of equal blocks.
    pub external_fragmentation: f64,
    /// Number of attempts to admit that failed although the total free room was sufficient.
    pub scattered_refusals: u64,
    /// Mean external fragmentation over these failed attempts.
    pub(crate) scattered_fragmentation: f64,
    /// Use of block tables; `None` unless the spec names a layout.
    pub tables: Option<Tables>,
    /// Use of the host tier; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostUse>,
}

/// Use of the host tier, over all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostUse {
    /// Number of tokens that the host pool of one replica holds.
    pub tokens: u64,
    /// Fraction of the tokens of admitted requests that were found on the device.
    pub device_hit_rate: f64,
    /// Fraction of the tokens of admitted requests that were loaded from the host, without those that came from storage.
    pub host_hit_rate: f64,
    /// Number of tokens loaded from the host.
    pub loaded_tokens: u64,
    /// Bytes loaded from the host, over all ranks.
    pub loaded_bytes: Bytes,
    /// Number of tokens copied to the host.
    pub stored_tokens: u64,
    /// Bytes copied to the host, over all ranks.
    pub stored_bytes: Bytes,
    /// Number of tokens evicted from the device without a copy on the host; `None` if every token is first offered to
    /// the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_tokens: Option<u64>,
    /// Seconds from the start of a load to its end, including queueing for the link; summed over loads.
    pub loading_s: f64,
    /// Seconds that recomputation of the loaded tokens would have added to steps.
    pub spared_s: f64,
    /// Use of the storage below the host; `None` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageUse>,
}

/// Use of the storage below the host tier, over all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StorageUse {
    /// Number of tokens that the storage of one replica holds.
    pub tokens: u64,
    /// Fraction of the tokens of admitted requests that came from storage.
    pub hit_rate: f64,
    /// Number of tokens copied to the host.
    pub loaded_tokens: u64,
    /// Bytes copied to the host, over all ranks.
    pub loaded_bytes: Bytes,
    /// Number of tokens copied from the host.
    pub stored_tokens: u64,
    /// Bytes copied from the host, over all ranks.
    pub stored_bytes: Bytes,
    /// Seconds from the start of a copy to the host to its end, including queueing; summed over copies.
    pub loading_s: f64,
}

/// HBM traffic and host transfers of block tables for the decodes of one step, on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tables {
    /// Layout of the KV cache in memory.
    pub(crate) layout: KvLayout,
    /// Bytes of block tables that one layer with full attention reads.
    pub read_bytes: f64,
    /// Bytes of block tables that the host sends to each device.
    pub sent_bytes: f64,
}

/// Recorded sessions that ended in a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordedSessions {
    /// Number of sessions whose last answer arrived.
    pub completed: u64,
    /// Mean seconds from a session's first turn to its last answer, including waits.
    pub mean_task_s: f64,
    /// Median of the seconds from a session's first turn to its last answer.
    pub median_task_s: f64,
    /// 90th percentile of the seconds from a session's first turn to its last answer.
    pub p90_task_s: f64,
}

/// Runs the workload of `spec` on `deployment`; `place` names the spec in errors.
pub fn simulate(
    forecaster: &Forecaster,
    spec: &Spec,
    place: &str,
    options: RunOptions,
) -> Result<Simulation> {
    simulate_while(forecaster, spec, place, options, &mut |_, _| true)
}

/// Like [`simulate`], but ends early when `go_on` returns false, which gets the numbers of ended and of all requests.
pub fn simulate_while(
    forecaster: &Forecaster,
    spec: &Spec,
    place: &str,
    options: RunOptions,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Simulation> {
    simulate_priced(forecaster, spec, (place, &PriceBook::default()), options, go_on)
}

/// Like [`simulate_while`], with the prices of steps that `prices` has, to which it adds the ones that it computes.
pub fn simulate_priced(
    forecaster: &Forecaster,
    spec: &Spec,
    (place, prices): (&str, &PriceBook),
    options: RunOptions,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Simulation> {
    let missing =
        || Error::field(place, "workload", "missing", "[workload] with arrivals, input_len and output_len");
    let workload = spec.workload.as_ref().ok_or_else(missing)?;
    let (workload, images) = &images::sized(workload, &forecaster.deployment, place)?;
    adapters::check(workload, &forecaster.deployment, place)?;
    roofcast_ask::deployment::support::check_answers(place, &forecaster.deployment.model, workload)?;
    let mut traffic = Traffic::new(workload, place)?;
    let requests =
        Requests { context: mean_context(workload), shared: traffic.shares_prompts(), images: *images };
    let provision = Provision::resolve(forecaster, &spec.fleet, requests, place)?;
    let delay = provision.event_delay(place)?;
    let mut replicas = provision.replicas(workload.seed, options.leap && delay.is_none(), prices)?;
    let count = replicas.len() as u64;
    replicas.iter_mut().for_each(|replica| *replica.timeline() = timeline(count, options));
    let ranking = QueueOrder::new(&forecaster.deployment.engine, workload.seed);
    // With a bound on concurrency a client waits for answers, so that it does not send at the offered rate.
    let conversations = workload.arrivals.conversations();
    let paced = workload.arrivals.rate().is_some() || conversations.is_some();
    let open = (paced && workload.max_concurrency.is_none()).then(|| traffic.total());
    let mut results = Results::new(spec.slo, options.records, open).judged_from(workload.arrivals.ramped());
    results =
        results.in_batches(traffic.total()).with_first_wave(workload.arrivals.first_wave(traffic.total()));
    results = results.of_conversations(conversations).by_class(workload.classes.iter().map(|c| c.slo));
    if options.end_when_missed {
        results = results.ending_when_missed(traffic.total());
    }
    let block = u64::from(provision.serving.config.block_size);
    let watch = Watch {
        events: delay.map(|delay| KvEvents::new(delay, block, &mut replicas)),
        oracle: (options.oracle && provision.prefill.is_none()).then(|| Oracle::new(block)),
        counts_prefixes: provision.serving.config.prefixes != PrefixCaching::Unknown,
        ..Watch::default()
    };
    let classes: Vec<&str> = workload.classes.iter().map(|class| class.name.as_str()).collect();
    let delivery = provision.delivery((workload.seed, &classes), place)?;
    let life = provision.life(workload.seed, place)?;
    let mut fleet = Fleet::new(replicas, provision.router(workload.seed), ranking, results);
    fleet = fleet.with(delivery, life, watch);
    let total = traffic.total();
    fleet.serve_while(&mut traffic, &mut |ended| go_on(ended, total))?;
    let config = &provision.serving.config;
    let settings = ReportedSettings {
        scheduler: config.scheduler,
        policy: config.queue,
        max_num_seqs: config.max_num_seqs * config.engines(),
        max_num_batched_tokens: config.max_num_batched_tokens.saturating_mul(config.engines() as u32),
        max_model_len: config.max_model_len,
        enable_chunked_prefill: config.enable_chunked_prefill,
        enable_prefix_caching: config.prefixes != PrefixCaching::Unknown,
        leap: options.leap,
    };
    let by_class = std::mem::take(&mut fleet.results.classes);
    let class = bands::class(workload, traffic.total());
    let run = sums::report(&provision, settings, (workload.adapter_count(), class), fleet);
    let grid = Grid::of(&spec.hardware).zip(run.expense.joules);
    let carbon = grid.map(|(grid, joules)| grid.emitted(joules, run.expense.joules_per_output_token));
    let expense = Expense { carbon, ..run.expense.owned(spec.hardware.usd_per_kwh) };
    let images = images.map(|images| ImageUse::of(forecaster, images, run.cost)).transpose()?;
    let run = Simulation { sessions: sums::sessions(traffic.tasks()), images, expense, ..run };
    let classes = classes::results(&workload.classes, &by_class, &provision, &run);
    Ok(Simulation { classes, ..run })
}

/// The timeline that each of `replicas` replicas records; the events are divided evenly.
fn timeline(replicas: u64, options: RunOptions) -> Option<Box<Timeline>> {
    let trace = options.trace.map(|most| EventTrace::new(most / replicas));
    let series = options.series.then(Series::default);
    (trace.is_some() || series.is_some()).then(|| Box::new(Timeline { series, trace, ..Timeline::default() }))
}

/// Mean number of tokens of a request when half of its output is generated.
fn mean_context(workload: &Workload) -> u64 {
    (workload.input_mean() + workload.output_mean() / 2.0) as u64
}
