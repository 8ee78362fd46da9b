//! Simulates a workload on an engine in virtual time, and reports the results.
//!
//! Knows: the replicas of a deployment, the sums of their counts, and whether the offered load exceeded their
//! capacity. Latencies as clients see them are in [`results`].

mod beside;
mod provision;
mod sums;

use crate::bands::Bands;
use crate::error::{Error, Result};
pub(crate) use crate::fleet::results::OfferedLoad;
use crate::fleet::results::{Results, Sample};
use crate::fleet::{Admission, Fleet, QueueOrder};
use crate::forecaster::Forecaster;
use crate::record::Record;
use crate::scheduler::config::PrefixCaching;
use crate::spec::{CostKind, KvLayout, QueuePolicy, SchedulerKind, Spec};
use crate::summary::RunSummary;
use crate::timeline::Timeline;
use crate::timeline::series::{Series, SeriesPoint};
use crate::timeline::trace::EventTrace;
use crate::units::{Bytes, Picoseconds};
use crate::workload::{Traffic, Workload};
pub use beside::{TpotComparison, TpotVerdict};
pub use provision::{FleetUse, PoolUse, ScalingUse, TransferUse, has_pools, pool, uncounted};
use provision::{Provision, Requests};
use serde::Serialize;

/// Options of a run: speed, recorded data and early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// Simulate equal steps at once; this does not change the results.
    pub leap: bool,
    /// Keep a record for each request.
    pub records: bool,
    /// Keep each replica's levels over time.
    pub series: bool,
    /// Maximum number of step and request events to keep, over all replicas.
    pub trace: Option<u64>,
    /// End the run when the bound on a 99th percentile is certain to be missed. Such a run reports only on its
    /// requests until then.
    pub end_when_missed: bool,
}

/// A run and its results.
#[derive(Debug, Clone, Serialize)]
pub struct Simulation {
    /// Cost model of a step.
    pub cost: CostKind,
    /// True if the run was interrupted; the other fields then count the requests that had ended.
    pub interrupted: bool,
    /// Requests that came.
    pub requests: u64,
    /// Requests that no engine with these settings could serve.
    pub refused: u64,
    /// Requests turned away because the queue was too long.
    pub rejected: u64,
    /// Latencies and throughput as clients see them, by vLLM's keys.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Resolved settings of the engine.
    pub settings: ReportedSettings,
    /// Work of the engines, over all replicas.
    pub activity: Activity,
    /// Use of the KV cache.
    pub kv_cache: CacheUse,
    /// Seconds of the replicas' time by bottleneck, summed over the replicas.
    pub time: TimeShares,
    /// Limit of a decode step, in milliseconds, at the mean batch and context of the run; of a microbatch if several
    /// pipeline stages work at one time.
    pub limit_tpot_ms: f64,
    /// Cost and energy.
    pub expense: Expense,
    /// The serving replicas, and KV transfers between them.
    pub fleet: FleetUse,
    /// The offered load, and whether it exceeded the capacity.
    pub load: OfferedLoad,
    /// Recorded sessions that ended, if the traffic has sessions.
    pub sessions: Option<RecordedSessions>,
    /// True if the run ended before its last request because a bound of the SLO was certain to be missed.
    #[serde(skip)]
    pub ended_early: bool,
    /// Error bands of the means; `None` if steps are priced at the limit.
    pub bands: Option<Bands>,
    /// Latencies of every completed request.
    #[serde(skip)]
    pub latencies: [(&'static str, Sample); 3],
    /// One record for each request, if records were kept.
    #[serde(skip)]
    pub records: Vec<Record>,
    /// Levels over time of each replica, at common intervals, if they were kept.
    #[serde(skip)]
    pub series: Vec<Vec<SeriesPoint>>,
    /// First events of each replica, if they were kept.
    #[serde(skip)]
    pub traces: Vec<EventTrace>,
}

/// An engine's settings with every default filled in, by vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReportedSettings {
    /// The scheduling policy.
    pub scheduler: SchedulerKind,
    /// The order of the queue.
    pub policy: QueuePolicy,
    /// Maximum number of requests that run at one time.
    pub max_num_seqs: u64,
    /// Token budget of a step, over all data-parallel ranks.
    pub max_num_batched_tokens: u32,
    /// Maximum tokens of a request, prompt and output.
    pub max_model_len: u32,
    /// True if a prompt may be split over steps (chunked prefill).
    pub enable_chunked_prefill: bool,
    /// True if blocks are found again by their content (prefix cache).
    pub enable_prefix_caching: bool,
    /// True if equal steps were simulated at once, which does not change the results.
    pub leap: bool,
}

/// Work of the engines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Activity {
    /// Steps.
    pub steps: u64,
    /// Mean number of running requests in a step.
    pub mean_running: f64,
    /// Maximum number of running requests in a step of one replica.
    pub max_running: u64,
    /// Maximum number of waiting requests at one replica.
    pub max_waiting: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Tokens computed.
    pub scheduled_tokens: u64,
    /// Tokens of preempted requests that were computed again.
    pub recomputed_tokens: u64,
    /// Tokens moved to the host's memory and back.
    pub swapped_tokens: u64,
    /// Tokens found in the prefix cache.
    pub cached_tokens: u64,
    /// Tokens computed for rows of a static batch whose request had ended.
    pub idle_tokens: u64,
    /// Drafts verified.
    pub drafted_tokens: u64,
    /// Drafts that were rejected.
    pub rejected_tokens: u64,
}

/// Use of the KV cache of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheUse {
    /// Blocks that requests can hold.
    pub blocks: u64,
    /// Tokens of a block.
    pub block_size: u64,
    /// Number of groups of layers that each take blocks for the tokens, as in vLLM when some layers have a sliding
    /// window.
    pub groups: u64,
    /// Maximum number of held blocks.
    pub max_blocks: u64,
    /// Mean fraction of the blocks that were held, over steps.
    pub mean_usage: f64,
    /// Mean fraction of the held room without a token, over steps.
    pub internal_fragmentation: f64,
    /// Mean fraction of the free room outside its longest gap, over attempts to admit; 0 for a cache of equal blocks.
    pub external_fragmentation: f64,
    /// Attempts that failed although enough room was free in total.
    pub scattered_refusals: u64,
    /// Mean external fragmentation at these attempts.
    pub scattered_fragmentation: f64,
    /// Use of block tables, if the spec names a layout.
    pub tables: Option<Tables>,
    /// Use of the host's memory, if it is a tier of the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostUse>,
}

/// Use of the host's memory as a tier of the cache, over all replicas.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HostUse {
    /// Tokens that the host pool of one replica holds.
    pub tokens: u64,
    /// Share of the tokens of admitted requests that were found on the device.
    pub device_hit_rate: f64,
    /// Share that was loaded from the host.
    pub host_hit_rate: f64,
    /// Tokens loaded from the host.
    pub loaded_tokens: u64,
    /// Bytes loaded, over all ranks.
    pub loaded_bytes: Bytes,
    /// Tokens copied to the host.
    pub stored_tokens: u64,
    /// Bytes copied to the host, over all ranks.
    pub stored_bytes: Bytes,
    /// Tokens evicted from the device that the host did not have; `None` if every token is offered to the host first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_tokens: Option<u64>,
    /// Seconds from the start of a load to its end, queues on the link included: sum over loads.
    pub loading_s: f64,
    /// Seconds that computing the loaded tokens would have added to steps.
    pub spared_s: f64,
}

/// HBM traffic and transfers of block tables for the decodes of a step, on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tables {
    /// Layout of a request's tokens in memory.
    pub layout: KvLayout,
    /// Bytes that a layer with full attention reads.
    pub read_bytes: f64,
    /// Bytes that the host sends to each device.
    pub sent_bytes: f64,
}

/// Recorded sessions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RecordedSessions {
    /// Sessions whose last answer came.
    pub completed: u64,
    /// Seconds from a session's first turn to its last answer, waits included: mean.
    pub mean_task_s: f64,
    /// Median.
    pub median_task_s: f64,
    /// 90th percentile.
    pub p90_task_s: f64,
}

/// Seconds by bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TimeShares {
    /// Bound by memory bandwidth.
    pub memory_s: f64,
    /// Bound by arithmetic.
    pub compute_s: f64,
    /// Bound by links.
    pub communication_s: f64,
    /// Bound by the host and kernel launches.
    pub host_s: f64,
    /// Spent moving KV caches between device and host.
    pub swap_s: f64,
    /// Idle.
    pub idle_s: f64,
}

impl TimeShares {
    /// Seconds that are not idle.
    pub fn busy_s(&self) -> f64 {
        self.memory_s + self.compute_s + self.communication_s + self.host_s + self.swap_s
    }

    fn plus(self, other: TimeShares) -> TimeShares {
        TimeShares {
            memory_s: self.memory_s + other.memory_s,
            compute_s: self.compute_s + other.compute_s,
            communication_s: self.communication_s + other.communication_s,
            host_s: self.host_s + other.host_s,
            swap_s: self.swap_s + other.swap_s,
            idle_s: self.idle_s + other.idle_s,
        }
    }
}

/// Cost and energy of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Expense {
    /// Dollars per hour of all accelerators, if the price is known.
    pub dollars_per_hour: Option<f64>,
    /// Dollars per million output tokens of the run.
    pub dollars_per_million_output_tokens: Option<f64>,
    /// Joules: board power over busy time and a fifth of it over idle time, if the power is known.
    pub joules: Option<f64>,
    /// Joules per output token.
    pub joules_per_output_token: Option<f64>,
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

/// As [`simulate`], but ends early when `watch` returns false; `watch` is called now and then with the number of
/// ended requests and the number of all requests.
pub fn simulate_while(
    forecaster: &Forecaster,
    spec: &Spec,
    place: &str,
    options: RunOptions,
    watch: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Simulation> {
    let missing =
        || Error::field(place, "workload", "missing", "[workload] with arrivals, input_len and output_len");
    let workload = spec.workload.as_ref().ok_or_else(missing)?;
    let mut traffic = Traffic::new(workload, place)?;
    let requests = Requests { context: mean_context(workload), shared: traffic.shares_prompts() };
    let provision = Provision::resolve(forecaster, &spec.fleet, requests, place)?;
    let mut replicas = provision.replicas(workload.seed, options.leap)?;
    let count = replicas.len() as u64;
    replicas.iter_mut().for_each(|replica| *replica.timeline() = timeline(count, options));
    let engine = &forecaster.deployment.engine;
    let ranking = QueueOrder::new(engine, workload.seed);
    // With a cap on concurrency, a client waits for answers, so that it does not send at the offered rate.
    let paced = workload.arrivals.rate().filter(|_| workload.max_concurrency.is_none());
    let open = paced.map(|_| traffic.total());
    let mut results = Results::new(spec.slo, options.records, open).judged_from(workload.arrivals.ramped());
    if options.end_when_missed {
        results = results.ending_when_missed(traffic.total());
    }
    let mut fleet = Fleet::new(replicas, provision.router(workload.seed), ranking, results);
    fleet.counts_prefixes = provision.serving.config.prefixes != PrefixCaching::Unknown;
    fleet.admission = Admission::of(engine, fleet.replicas.len());
    fleet.servers = provision.ingest();
    if let Some(pools) = provision.pools(workload.seed, place)? {
        fleet = fleet.apart(pools);
    }
    if let Some(scaling) = provision.autoscaler() {
        fleet = fleet.scaled(scaling);
    }
    let total = traffic.total();
    fleet.serve_while(&mut traffic, &mut |ended| watch(ended, total))?;
    let config = &provision.serving.config;
    let settings = ReportedSettings {
        scheduler: config.scheduler,
        policy: config.queue,
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: config.max_num_batched_tokens,
        max_model_len: config.max_model_len,
        enable_chunked_prefill: config.enable_chunked_prefill,
        enable_prefix_caching: config.prefixes != PrefixCaching::Unknown,
        leap: options.leap,
    };
    Ok(Simulation { sessions: sessions(traffic.tasks()), ..sums::report(&provision, settings, fleet) })
}

/// Times of the sessions that ended.
fn sessions(tasks: &[Picoseconds]) -> Option<RecordedSessions> {
    let times = Sample::from_iter(tasks.iter().copied()).statistics();
    let [mean_task_s, median_task_s, p90_task_s] = [times.mean, times.median, times.p90].map(|ms| ms / 1e3);
    let completed = tasks.len() as u64;
    (completed > 0).then_some(RecordedSessions { completed, mean_task_s, median_task_s, p90_task_s })
}

/// The timeline that each of `replicas` records; the events are divided evenly.
fn timeline(replicas: u64, options: RunOptions) -> Option<Box<Timeline>> {
    let trace = options.trace.map(|most| EventTrace::new(most / replicas));
    let series = options.series.then(Series::default);
    (trace.is_some() || series.is_some()).then(|| Box::new(Timeline { series, trace }))
}

/// Mean number of tokens of a request when half of its output is generated.
fn mean_context(workload: &Workload) -> u64 {
    (workload.input_mean() + workload.output_mean() / 2.0) as u64
}
