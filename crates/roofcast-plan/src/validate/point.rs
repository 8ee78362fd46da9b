//! The forecast of one measured point: a single step from its price, anything longer from a simulated run.
//!
//! Knows: the traffic that each kind of measurement stands for. Knows nothing about errors over many rows.

use crate::measurement::settings::{Pattern, RowSettings, SHAREGPT_TOKENS, Spread};
use crate::measurement::{Lengths, Measurement, MeasurementKind, Metrics, TpotMean};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{CostKind, FleetSpec, LinkKind, Spec};
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::{Arrivals, Length, LengthKind, Workload};
use roofcast_cost::cost::{self, Cost, Utilization};
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::memory::Memory;
use roofcast_cost::timing::Timing;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::batch::{Batch, Seen};
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::shares::BottleneckShares;
use roofcast_facts::units::Picoseconds;
use roofcast_sim::engine::price::StepPrices;
use roofcast_sim::fleet::Ingest;
use roofcast_sim::simulate::{RunOptions, simulate};
use std::sync::Arc;

/// Number of requests in a closed loop for each one in flight, as InferenceX and vLLM's sweeps send them.
const WAVES: u64 = 10;
/// Most users of a point; with this number, each user still sends two requests.
const MOST_USERS: u64 = 100_000;
/// Most requests of a point; means have converged with this number.
const MOST_REQUESTS: u64 = 4000;

/// A forecast, with the run from which it follows.
pub(crate) struct Forecast {
    /// Forecast metrics.
    pub(crate) metrics: Metrics,
    /// Breakdown of the forecast's time.
    pub(crate) parts: TimeBreakdown,
    timing: Timing,
    server: Option<Ingest>,
    /// Results of the simulated run; `None` if the forecast is a single step.
    run: Option<Run>,
}

/// Breakdown of a forecast's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeBreakdown {
    /// Number of steps in the run; 1 for a single step.
    pub steps: u64,
    /// Mean number of requests that run in a step.
    pub running: f64,
    /// Milliseconds from a request's arrival at an idle server until the request is in the engine's queue.
    pub server_ms: f64,
    /// Fractions of the engine's time by bottleneck; the remainder to 1 is idle, or transfers KV cache.
    pub shares: BottleneckShares<f64>,
}

/// Results of a simulated run.
#[derive(Debug, Clone)]
struct Run {
    summary: RunSummary,
    steps: u64,
    running: f64,
    shares: BottleneckShares<f64>,
}

/// The forecast metrics of `row`, on the deployment of `forecaster`.
pub fn forecast(row: &Measurement, forecaster: &Forecaster) -> Result<Metrics> {
    forecast_near(row, forecaster, None).map(|forecast| forecast.metrics)
}

/// The forecast of `row`, with the run from which it follows. `near` is a forecast of the row and deployment with other
/// coefficients; its run is reused if the coefficients change no step.
pub(crate) fn forecast_near(
    row: &Measurement,
    forecaster: &Forecaster,
    near: Option<&Forecast>,
) -> Result<Forecast> {
    let timing = match near {
        Some(near) => {
            let model = Arc::clone(&near.timing.model);
            Timing::new(&forecaster.deployment, model, Arc::clone(&forecaster.coefficients))
        }
        None => forecaster.timing(CostKind::Forecast),
    };
    if row.kind == MeasurementKind::DecodeStep {
        let (metrics, parts) = step(row, &forecaster.deployment, &timing)?;
        return Ok(Forecast { metrics, parts, timing, server: None, run: None });
    }
    let load = RowTraffic::of(row, &forecaster.deployment)?;
    // Pools have separate prices of steps.
    let server = Ingest::of(forecaster, CostKind::Forecast);
    let same =
        near.filter(|near| row.pools.is_none() && near.timing.equals(&timing) && near.server == server);
    let run = match same.and_then(|near| near.run.clone()) {
        Some(run) => run,
        None => load.simulate(forecaster)?,
    };
    let metrics = load.figures(row, &run.summary);
    let prompt = load.input.mean() as u64;
    let server_ms = server.as_ref().map_or(0.0, |server| server.alone(prompt).ms());
    let parts = TimeBreakdown { steps: run.steps, running: run.running, server_ms, shares: run.shares };
    Ok(Forecast { metrics, parts, timing, server, run: Some(run) })
}

/// The time of one step of the row's batch.
fn step(row: &Measurement, deployment: &Deployment, timing: &Timing) -> Result<(Metrics, TimeBreakdown)> {
    let context = context(row)?;
    let batch = row.concurrency.unwrap_or(1);
    let mut price = StepPrices::new(timing.clone());
    let reaches = price.reaches().to_vec();
    let rank = batch.div_ceil(deployment.parallelism.replicas);
    let within: Vec<u64> = reaches.iter().map(|reach| rank * context.min(*reach)).collect();
    let seen = Seen { all: rank * context, within: &within };
    let (_, shares) = price.mixed(rank, seen, &[]);
    let decode = price.decode(rank);
    let ms = Ticks::from(decode.time(seen)).ms();
    let per_second = batch as f64 * 1e3 / ms;
    let metrics = Metrics { tpot_ms: Some(ms), output_tok_s: Some(per_second), ..Metrics::default() };
    let shares = of_whole(as_f64(shares), shares.total() as f64);
    Ok((metrics, TimeBreakdown { steps: 1, running: batch as f64, server_ms: 0.0, shares }))
}

fn as_f64(parts: BottleneckShares<u64>) -> BottleneckShares<f64> {
    parts.map(|part| part as f64)
}

/// Each part divided by `whole`.
fn of_whole(parts: BottleneckShares<f64>, whole: f64) -> BottleneckShares<f64> {
    parts.scaled(whole.max(f64::MIN_POSITIVE).recip())
}

/// Context of a sequence halfway through its output, in tokens; steps may be timed from an empty cache, like
/// llama-bench's `tg`.
fn context(row: &Measurement) -> Result<u64> {
    let prompt = row.input.map(Lengths::mean).or((row.kind == MeasurementKind::DecodeStep).then_some(0.0));
    let halfway = || Some((prompt? + row.output?.mean() / 2.0) as u64);
    row.context.or_else(halfway).ok_or_else(|| missing(row, "input_len and output_len"))
}

fn missing(row: &Measurement, what: &str) -> Error {
    Error::field(row.kind.name(), what, "missing", "rows with token counts")
}

/// Refuses a static batch that exceeds memory, because the engine would run a smaller batch, which is another
/// measurement.
pub(super) fn check_batch(row: &Measurement, deployment: &Deployment) -> Result<()> {
    let Some((batch, context)) = row.batch().zip(context(row).ok()) else { return Ok(()) };
    let fits = Memory::of(deployment).sequences(context).saturating_mul(deployment.parallelism.replicas);
    if batch <= fits {
        return Ok(());
    }
    let accepted = format!("at most {fits}, which the memory holds of {context} tokens each");
    Err(Error::field(row.kind.name(), "concurrency", batch, accepted))
}

/// Tokens of the shortest request that is consistent with the row's `lengths`.
fn shortest(row: &Measurement, lengths: Lengths) -> u64 {
    match row.settings.lengths {
        Spread::Sharegpt => SHAREGPT_TOKENS[0],
        Spread::Uniform if lengths.min == lengths.max => 1,
        Spread::Uniform | Spread::Fixed => lengths.min.max(1),
    }
}

/// Limits of the row's times; no mean and no median can be lower.
#[derive(Debug, Clone, PartialEq)]
pub struct RowLimits {
    /// Limits with links as every view shows them: all operators and transfers one after another.
    pub(crate) whole: Metrics,
    /// Limits of memory and arithmetic only, because engines may overlap the links, with tokens that all choose the same
    /// experts, because prompts of one text nearly do; nothing can be faster.
    pub least: Metrics,
}

/// Limits of the row's times. If requests may queue, the number of sequences that decode together is unknown, so the
/// step has only one sequence, the shortest that the row may contain.
pub fn limits(row: &Measurement, deployment: &Deployment) -> RowLimits {
    let Ok(context) = context(row) else {
        return RowLimits { whole: Metrics::default(), least: Metrics::default() };
    };
    let shortest_of = |lengths: Option<Lengths>| lengths.map_or(0, |lengths| shortest(row, lengths));
    let (batch, context) = match row.batch() {
        Some(batch) => (batch, context),
        None => (1, row.context.unwrap_or(shortest_of(row.input) + shortest_of(row.output) / 2)),
    };
    let both = |batch: &Batch| [cost::limit, cost::bound].map(|of| of(deployment, batch, Utilization::FULL));
    let step = both(&Batch::decode(batch, context));
    // A static batch has its first token when all its prompts are computed.
    let prompts = if row.kind.is_static() { row.concurrency.unwrap_or(1) } else { 1 };
    // Prompts of disaggregated rows are computed by another pool.
    let prompt = row.input.filter(|_| row.pools.is_none());
    // Shared prompt tokens may be in the prefix cache.
    let cached = if row.may_hit() { u64::MAX } else { row.prefix().map_or(0, |prefix| prefix.length) };
    let uncached = |input| shortest(row, input).saturating_sub(cached).max(1);
    let prompt = prompt.map(|input| both(&Batch::prefill(prompts, uncached(input))));
    let after = shortest_of(row.output).saturating_sub(1) as f64;
    let metrics = |of: fn(&[Cost; 2]) -> Picoseconds| {
        let step = of(&step).ms();
        let prompt = prompt.as_ref().map(|prompt| of(prompt).ms());
        Metrics {
            ttft_ms: prompt,
            tpot_ms: Some(step),
            e2e_ms: prompt.map(|p| p + after * step),
            output_tok_s: None,
            total_tok_s: None,
        }
    };
    RowLimits {
        whole: metrics(|[limit, _]| limit.limit_with_communication),
        least: metrics(|[_, bound]| bound.limit),
    }
}

/// Link for KV transfers between pools, which rows do not record: NVLink if the node spans a rack, else the network
/// between nodes, or PCIe through the host if there is no network.
fn link(chip: &Accelerator) -> LinkKind {
    /// Number of accelerators of a rack that forms one node.
    const RACK: u64 = 32;
    if chip.node_size >= RACK {
        LinkKind::Nvlink
    } else if chip.network.is_some() {
        LinkKind::Network
    } else {
        LinkKind::Pcie
    }
}

/// Number of requests in flight, or that arrive at once; `context` is the mean number of tokens of a request.
fn users(row: &Measurement, deployment: &Deployment, context: u64) -> Result<u64> {
    let users = match (row.kind, row.concurrency) {
        (MeasurementKind::OfflineMaxThroughput | MeasurementKind::BurstAllAtOnce, None)
            if let Some(sent) = row.num_prompts() =>
        {
            sent
        }
        (MeasurementKind::BurstAllAtOnce, None) => return Err(missing(row, "concurrency or num_prompts")),
        (MeasurementKind::ClosedLoop | MeasurementKind::Disaggregated, None) => {
            return Err(missing(row, "concurrency"));
        }
        (MeasurementKind::OfflineMaxThroughput, None) => {
            let seats = deployment.seats().min(Memory::of(deployment).sequences(context));
            (2 * seats * deployment.parallelism.replicas).clamp(1, MOST_REQUESTS)
        }
        (_, n) => n.unwrap_or(1),
    };
    if users > MOST_USERS {
        return Err(Error::field(row.kind.name(), "concurrency", users, format!("at most {MOST_USERS}")));
    }
    Ok(users)
}

/// The traffic that a row stands for.
struct RowTraffic {
    /// Number of requests in flight, or that arrive at once.
    users: u64,
    requests: u64,
    workload: Workload,
    fleet: FleetSpec,
    input: Lengths,
    output: Lengths,
}

impl RowTraffic {
    fn of(row: &Measurement, deployment: &Deployment) -> Result<RowTraffic> {
        match &row.workload {
            Some(workload) => RowTraffic::carried(row, workload),
            None => RowTraffic::described(row, deployment),
        }
    }

    /// The load that the row carries.
    fn carried(row: &Measurement, workload: &Workload) -> Result<RowTraffic> {
        let lengths = |lengths: Option<Lengths>| lengths.unwrap_or(Lengths { min: 1, max: 1 });
        workload.check(&row.id)?;
        Ok(RowTraffic {
            users: row.concurrency.unwrap_or(1),
            requests: workload.total(),
            workload: workload.clone(),
            fleet: FleetSpec::default(),
            input: lengths(row.input),
            output: lengths(row.output),
        })
    }

    /// The load that follows from the row's kind, lengths and settings.
    fn described(row: &Measurement, deployment: &Deployment) -> Result<RowTraffic> {
        let input = row.input.ok_or_else(|| missing(row, "input_len"))?;
        let single = matches!(row.kind, MeasurementKind::Prefill | MeasurementKind::PrefillBatch);
        let output = if single { Some(Lengths { min: 1, max: 1 }) } else { row.output };
        let output = output.ok_or_else(|| missing(row, "output_len"))?;
        let users = users(row, deployment, (input.mean() + output.mean()) as u64)?;
        let requests = match row.kind {
            MeasurementKind::ClosedLoop | MeasurementKind::Disaggregated => {
                let sent = row.settings.num_prompts.unwrap_or(users * WAVES).max(users);
                sent.min(MOST_REQUESTS.max(users * 2))
            }
            MeasurementKind::OpenLoop => row.settings.num_prompts.unwrap_or(1000).min(MOST_REQUESTS),
            _ => users,
        };
        let arrivals = match (row.kind, row.request_rate) {
            (MeasurementKind::OpenLoop, Some(rate)) => match row.settings.pattern {
                Pattern::Poisson => Arrivals::Poisson { rate },
                Pattern::Constant => Arrivals::Constant { rate },
                Pattern::Gamma(burstiness) => Arrivals::Gamma { rate, burstiness },
            },
            // A client without a rate sends as fast as its limit on requests in flight permits: a closed loop.
            (MeasurementKind::OpenLoop, None) if row.concurrency.is_none() => {
                return Err(missing(row, "request_rate or concurrency"));
            }
            _ => Arrivals::ClosedLoop {
                concurrency: users,
                think_s: None,
                ramp_s: None,
                turn_round_s: row.return_s(),
            },
        };
        let cap = row.concurrency.or(row.settings.max_concurrency);
        let capped = cap.filter(|_| row.kind == MeasurementKind::OpenLoop && row.request_rate.is_some());
        let length = |l: Lengths| match (l, row.settings.lengths) {
            (_, Spread::Sharegpt) => {
                let [mu, sigma] = RowSettings::sharegpt_lengths(l.mean());
                let [min, max] = SHAREGPT_TOKENS.map(Some);
                Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max })
            }
            (Lengths { min, max }, Spread::Uniform) if min == max => {
                Length::Drawn(LengthKind::Uniform { min: 1, max: (2 * max).saturating_sub(1).max(1) })
            }
            (Lengths { min, max }, _) if min == max => Length::Tokens(max),
            (Lengths { min, max }, _) => Length::Drawn(LengthKind::Uniform { min, max }),
        };
        let prefix = row.prefix();
        let shared = prefix.map_or(0, |prefix| prefix.length);
        let own_lengths = Lengths { min: input.min - shared, max: input.max - shared };
        let workload = Workload {
            images: None,
            adapters: None,
            requests: Some(requests),
            seed: 0,
            arrivals,
            input_len: length(own_lengths),
            output_len: length(output),
            prefix,
            priorities: Vec::new(),
            classes: Vec::new(),
            max_tokens: None,
            max_concurrency: capped,
            recorded: None,
        };
        let fleet = row.pools.clone().map_or_else(FleetSpec::default, |[prefill, decode]| FleetSpec {
            prefill: Some(prefill),
            decode: Some(decode),
            link: Some(link(&deployment.accelerator)),
            ..FleetSpec::default()
        });
        Ok(RowTraffic { users, requests, workload, fleet, input, output })
    }

    fn simulate(&self, forecaster: &Forecaster) -> Result<Run> {
        let mut priced = forecaster.clone();
        priced.deployment.engine.cost = CostKind::Forecast;
        let spec =
            Spec { workload: Some(self.workload.clone()), fleet: self.fleet.clone(), ..Spec::default() };
        let run = simulate(&priced, &spec, "row", RunOptions { leap: true, ..RunOptions::default() })?;
        let summary = run.summary;
        let activity = run.activity;
        let time = run.time;
        if summary.completed < self.requests {
            let longest = self.input.max + self.output.max;
            return Err(Error::field(
                "row",
                "input_len + output_len",
                longest,
                "what model and KV cache hold",
            ));
        }
        let shares = BottleneckShares {
            memory: time.memory_s,
            compute: time.compute_s,
            communication: time.communication_s,
            host: time.host_s,
            server: time.server_s,
            overlapped: time.overlapped_s,
        };
        let shares = of_whole(shares, time.busy_s() + time.idle_s);
        Ok(Run { summary, steps: activity.steps, running: activity.mean_running, shares })
    }

    /// Metrics of the run, as the statistics that the row's kind reports.
    fn figures(&self, row: &Measurement, s: &RunSummary) -> Metrics {
        let average = |m: &roofcast_ask::summary::Statistics| if row.median { m.median } else { m.mean };
        let whole = s.duration * 1e3;
        let seconds = s.duration.max(1e-12);
        let output = s.total_output_tokens as f64 / seconds;
        let total = (s.total_input_tokens + s.total_output_tokens) as f64 / seconds;
        let served = !matches!(row.kind, MeasurementKind::Prefill | MeasurementKind::PrefillBatch);
        // A static batch has its first token when its last prompt is computed.
        let batch = row.kind.is_static();
        let (ttft, tpot, e2e) = if batch {
            let first = if self.users == 1 { s.ttft.mean } else { s.ttft.p99.max(s.ttft.mean) };
            (first, (whole - first) / (self.output.mean() - 1.0).max(1.0), whole)
        } else {
            let tpot = match row.tpot_mean {
                TpotMean::Requests => average(&s.tpot),
                TpotMean::Tokens => s.itl.mean,
            };
            (average(&s.ttft), tpot, average(&s.e2el))
        };
        // Sources that time prefill and decode separately count only the tokens of the decode phase.
        let phases = row.kind == MeasurementKind::StaticBatchPhases;
        let output = if phases { self.users as f64 * 1e3 / tpot } else { output };
        Metrics {
            ttft_ms: Some(ttft),
            tpot_ms: Some(tpot).filter(|_| served),
            e2e_ms: Some(e2e),
            output_tok_s: Some(output),
            total_tok_s: Some(total),
        }
    }
}
