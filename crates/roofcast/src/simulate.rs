//! A workload through an engine in virtual time, and what came of it.
//!
//! Knows: which replicas a deployment has, what their counts add up to, and whether the load was more than they can
//! carry. What clients saw is in [`results`].

mod provision;
mod sums;

use crate::bands::Bands;
use crate::error::{Error, Result};
pub use crate::fleet::results::OfferedLoad;
use crate::fleet::results::{Results, Sample};
use crate::fleet::{Admission, Fleet, Ranking};
use crate::forecaster::Forecaster;
use crate::record::Record;
use crate::scheduler::config::Prefixes;
use crate::spec::{CostKind, KvLayout, QueuePolicy, SchedulerKind, Spec};
use crate::summary::Summary;
use crate::timeline::Timeline;
use crate::timeline::series::{Point, Series};
use crate::timeline::trace::Trace;
use crate::workload::{Traffic, Workload};
pub use provision::{FleetUse, PoolUse, ScalingUse, Transfers, has_pools, pool, uncounted};
use provision::{Provision, Requests};
use serde::Serialize;

/// What is kept of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Take equal steps at once; the results are the same without.
    pub leap: bool,
    /// Keep a record for each request.
    pub records: bool,
    /// Keep each replica's levels over time.
    pub series: bool,
    /// Keep so many events of steps and requests, all replicas together.
    pub trace: Option<u64>,
    /// End when the 99th percentile of a bound of the SLO is missed for certain. What such a run reports is of its
    /// requests up to then.
    pub end_when_missed: bool,
}

/// A run and what came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Simulation {
    /// What a step was priced at.
    pub cost: CostKind,
    /// Whether the run was interrupted; what follows counts the requests that had ended.
    pub interrupted: bool,
    /// Requests that came.
    pub requests: u64,
    /// Requests that no engine with these settings could serve.
    pub refused: u64,
    /// Requests turned away because too much was queued.
    pub rejected: u64,
    /// What clients saw, in vLLM's keys.
    #[serde(flatten)]
    pub summary: Summary,
    /// What the spec's engine came to.
    pub settings: Settings,
    /// What the engines did, all replicas together.
    pub activity: Activity,
    /// What the KV cache was used for.
    pub kv_cache: CacheUse,
    /// What the replicas' time went to, in seconds of all of them together.
    pub time: TimeShares,
    /// A decode step at the mean batch and context of the run, at the limit; of a microbatch where stages work on several.
    pub limit_tpot_ms: f64,
    /// Dollars and joules.
    pub expense: Expense,
    /// What served, and what went from one to the other.
    pub fleet: FleetUse,
    /// Whether more came than could be served.
    pub load: OfferedLoad,
    /// Whether the run ended before its last request because a bound of the SLO was missed for certain.
    #[serde(skip)]
    pub ended_early: bool,
    /// What the means may turn out to be; none at the limit.
    pub bands: Option<Bands>,
    /// Every completed request's latencies.
    #[serde(skip)]
    pub latencies: [(&'static str, Sample); 3],
    /// One for each request, where they were kept.
    #[serde(skip)]
    pub records: Vec<Record>,
    /// Each replica's levels over the same intervals, where they were kept.
    #[serde(skip)]
    pub series: Vec<Vec<Point>>,
    /// Each replica's first events, where they were kept.
    #[serde(skip)]
    pub traces: Vec<Trace>,
}

/// An engine's settings with every default filled in, by vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Settings {
    /// The scheduling policy.
    pub scheduler: SchedulerKind,
    /// The order of the queue.
    pub policy: QueuePolicy,
    /// Requests that run at once.
    pub max_num_seqs: u64,
    /// Tokens of a step, of all data-parallel ranks together.
    pub max_num_batched_tokens: u32,
    /// The longest request that is served, prompt and output.
    pub max_model_len: u32,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Whether blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Whether the run leapt; the results are the same without.
    pub leap: bool,
}

/// What the engines did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Activity {
    /// Steps.
    pub steps: u64,
    /// Requests running in a step, in the mean.
    pub mean_running: f64,
    /// The most in a step of one replica.
    pub max_running: u64,
    /// The most waiting at one replica.
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
    /// Of these, the drafts that were rejected.
    pub rejected_tokens: u64,
}

/// What the KV cache was used for, of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CacheUse {
    /// Blocks that requests can hold.
    pub blocks: u64,
    /// Tokens of a block.
    pub block_size: u64,
    /// Groups of layers that take a block each for the same tokens, as vLLM's do where some have a window.
    pub groups: u64,
    /// The most that were held.
    pub max_blocks: u64,
    /// Share of the blocks held, in the mean over steps.
    pub mean_usage: f64,
    /// Share of the held room that no token stood in, in the mean over steps.
    pub internal_fragmentation: f64,
    /// Share of the free room outside its longest gap, in the mean over attempts to admit; 0 where blocks are alike.
    pub external_fragmentation: f64,
    /// Attempts that failed though enough was free in sum.
    pub scattered_refusals: u64,
    /// The share at these.
    pub scattered_fragmentation: f64,
    /// What finds blocks, where the spec names a layout.
    pub tables: Option<Tables>,
}

/// What finds the blocks of the decodes of a step, in the mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tables {
    /// How tokens lie in memory.
    pub layout: KvLayout,
    /// Bytes that a layer reads that sees the whole context.
    pub read_bytes: f64,
    /// Bytes that the host sends to each device.
    pub sent_bytes: f64,
}

/// Seconds by what bound them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TimeShares {
    /// Memory bandwidth.
    pub memory_s: f64,
    /// Arithmetic.
    pub compute_s: f64,
    /// Links.
    pub communication_s: f64,
    /// Host and launches.
    pub host_s: f64,
    /// Moving caches between device and host.
    pub swap_s: f64,
    /// Nothing to do.
    pub idle_s: f64,
}

impl TimeShares {
    /// With something to do.
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

/// What the run took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Expense {
    /// Dollars per hour of all accelerators, where the price is known.
    pub dollars_per_hour: Option<f64>,
    /// Dollars per million output tokens of the run.
    pub dollars_per_million_output_tokens: Option<f64>,
    /// Board power over busy time and a fifth of it over idle time, where it is known.
    pub joules: Option<f64>,
    /// Of these, per output token.
    pub joules_per_output_token: Option<f64>,
}

/// Share of the board power that an idle accelerator takes. An assumption, of the size of the idle power of data-centre
/// GPUs with their clocks up.
const IDLE_POWER: f64 = 0.2;

/// Runs the workload of `spec` on `deployment`; `place` names the spec in errors.
pub fn simulate(forecaster: &Forecaster, spec: &Spec, place: &str, options: Options) -> Result<Simulation> {
    simulate_while(forecaster, spec, place, options, &mut |_, _| true)
}

/// The same, which ends early where `watch` says no; it hears now and then how many requests have ended, of how many.
pub fn simulate_while(
    forecaster: &Forecaster,
    spec: &Spec,
    place: &str,
    options: Options,
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
    let engine = &forecaster.deployment.options.engine;
    let ranking = Ranking::new(engine, workload.seed);
    // A client with a cap waits for answers: what it sends is not what was offered.
    let paced = workload.arrivals.rate().filter(|_| workload.max_concurrency.is_none());
    let open = paced.map(|_| traffic.total());
    let mut results = Results::new(spec.slo, options.records, open);
    if options.end_when_missed {
        results = results.ending_when_missed(traffic.total());
    }
    let mut fleet = Fleet::new(replicas, provision.router(workload.seed), ranking, results);
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
    let settings = Settings {
        scheduler: config.scheduler,
        policy: config.queue,
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: config.max_num_batched_tokens,
        max_model_len: config.max_model_len,
        enable_chunked_prefill: config.enable_chunked_prefill,
        enable_prefix_caching: config.prefixes != Prefixes::Unknown,
        leap: options.leap,
    };
    Ok(sums::report(&provision, settings, fleet))
}

/// What one of `replicas` keeps over time; events are shared out evenly.
fn timeline(replicas: u64, options: Options) -> Option<Box<Timeline>> {
    let trace = options.trace.map(|most| Trace::new(most / replicas));
    let series = options.series.then(Series::default);
    (trace.is_some() || series.is_some()).then(|| Box::new(Timeline { series, trace }))
}

/// Tokens of a request half way through its output, in the mean.
fn mean_context(workload: &Workload) -> u64 {
    (workload.input_mean() + workload.output_mean() / 2.0) as u64
}
