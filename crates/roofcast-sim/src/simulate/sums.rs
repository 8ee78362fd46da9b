//! Sums over a run: combines the counters of its replicas into one answer.
//!
//! Knows: the means and fractions that follow from counts of steps, blocks and times. Knows nothing about the course of
//! the run.

use super::adapters;
use super::energy;
use super::fleet_use::{self, ScalingUse};
use super::preemption;
use super::provision::{Provision, ResolvedPool};
use super::{
    Activity, CacheUse, HostUse, RecordedSessions, ReportedSettings, Simulation, StorageUse, Tables,
    TimeShares,
};
use crate::engine::Replica;
use crate::fleet::Fleet;
use crate::fleet::results::{OfferedLoad, Sample};
use crate::scheduler::config::EngineConfig;
use crate::tally::{Mean, Tally};
use crate::timeline::series::together;
use roofcast_ask::carbon::Carbon;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::kv_cache::tier::HostTier;
use roofcast_ask::spec::KvLayout;
use roofcast_ask::summary::RunSummary;
use roofcast_cost::bands::{Bands, ForecastMeans};
use roofcast_cost::coefficients::Load;
use roofcast_cost::cost::{self, Utilization};
use roofcast_facts::batch::Batch;
use roofcast_facts::clock::Ticks;
use roofcast_facts::shares::BottleneckShares;
use roofcast_facts::units::{Bytes, Picoseconds};
use serde::Serialize;
use std::borrow::Cow;
use std::ops::Range;

/// Cost and energy of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expense {
    /// Dollars per hour of all accelerators; `None` if a price is unknown.
    pub dollars_per_hour: Option<f64>,
    /// Dollars per million output tokens of the run; `None` if a price is unknown.
    pub dollars_per_million_output_tokens: Option<f64>,
    /// Energy in joules: 0.18 of the board power at all times, and the energy of the bytes read and of the FLOPs, at most the board
    /// power while busy; `None` if the power is unknown.
    pub joules: Option<f64>,
    /// Mean watts of all accelerators; `None` if the power is unknown.
    pub watts: Option<f64>,
    /// Joules per output token, at the mean power; `None` if the power is unknown.
    pub joules_per_output_token: Option<f64>,
    /// Emissions; `None` without `hardware.grid_g_per_kwh`, or if the power is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carbon: Option<Carbon>,
}

pub(super) fn report(
    provision: &Provision,
    settings: ReportedSettings,
    (named, class): (u64, Load),
    mut fleet: Fleet,
) -> Simulation {
    let ResolvedPool { forecaster, config, .. } = &provision.serving;
    let itl =
        fleet.replicas.iter().skip(1).fold(fleet.replicas[0].tally().itl.clone(), |mut all, replica| {
            all.merge(&replica.tally().itl);
            all
        });
    let end = fleet.replicas.iter().map(|r| r.clock()).max().unwrap_or_default();
    let timelines = fleet.replicas.iter_mut().filter_map(|r| r.timeline().take());
    let (series, traces): (Vec<_>, Vec<_>) = timelines.map(|t| (t.series, t.trace)).unzip();
    let summary = fleet.results.summary(&itl);
    let up = |index| fleet.life.scaling.as_ref().map_or(end, |scaling| scaling.lasted(index));
    let replicas = fleet.replicas.iter_mut().enumerate();
    let mut times: Vec<TimeShares> =
        replicas.map(|(index, replica)| time(replica.as_mut(), up(index))).collect();
    let tallies: Vec<Cow<Tally>> = fleet.replicas.iter().map(|r| r.tally()).collect();
    let tallies: Vec<&Tally> = tallies.iter().map(Cow::as_ref).collect();
    for (pool, replicas) in provision.sides(times.len()) {
        energy::count(&pool.forecaster.deployment, &tallies[replicas.clone()], &mut times[replicas]);
    }
    let used = fleet_use::used(provision, &fleet, &times, summary.duration);
    // Take batch and cache use from the serving pool: the decode replicas, or the first of two kinds.
    let serving = &tallies[provision.servers(tallies.len())];
    let decoding = activity(serving);
    let tokens: u128 = serving.iter().map(|t| t.token_steps).sum();
    let mean_tokens = ratio(tokens as f64, decoding.steps as f64);
    let limit_tpot_ms = limit_tpot_ms(&forecaster.deployment, &decoding, mean_tokens);
    let ended_early = fleet.results.missed();
    let load = fleet.results.load();
    let steady = !load.overloaded && used.autoscale.is_none_or(|scaling| scaling.started == 0);
    let sampling = fleet.results.sampling(&summary, steady);
    let errors = [sampling.ttft, sampling.tpot, sampling.e2el].map(|error| error.map_or(0.0, |e| e.mean));
    let bands = bands(provision, &summary, (&load, class), limit_tpot_ms);
    let time = times.iter().copied().fold(TimeShares::default(), TimeShares::plus);
    Simulation {
        sessions: None,
        classes: Vec::new(),
        images: None,
        adapters: adapters::used(&forecaster.deployment, &tallies, named),
        bands: bands.map(|bands| bands.widened(errors)),
        sampling,
        cost: config.cost,
        settings,
        interrupted: fleet.results.interrupted,
        requests: fleet.results.judged,
        refused: fleet.results.refused,
        rejected: fleet.results.rejected,
        oversized: fleet.delivery.rate_limit.as_ref().and_then(|limit| limit.oversized.clone()),
        overflowed: fleet.results.overflowed,
        activity: activity(&tallies),
        kv_cache: cache_use(config, serving, mean_tokens),
        bound: time.bound(),
        lifted_by: time.lifted_by(&forecaster.deployment),
        time,
        preemption: preemption::costs(provision, &decoding),
        limit_tpot_ms,
        expense: expense(provision, &summary, &times, used.autoscale),
        fleet: used,
        load,
        first_wave: fleet.results.first_wave(),
        ended_early,
        summary,
        latencies: fleet.results.latencies(),
        records: fleet.results.records.take().unwrap_or_default(),
        series: together(series.into_iter().flatten().collect(), end),
        traces: traces.into_iter().flatten().collect(),
    }
}

/// Statistics of the durations of ended sessions; `None` without sessions.
pub(super) fn sessions(tasks: &[Picoseconds]) -> Option<RecordedSessions> {
    let times = Sample::from_iter(tasks.iter().copied()).statistics();
    let [mean_task_s, median_task_s, p90_task_s] = [times.mean, times.median, times.p90].map(|ms| ms / 1e3);
    let completed = tasks.len() as u64;
    (completed > 0).then_some(RecordedSessions { completed, mean_task_s, median_task_s, p90_task_s })
}

/// The bands of a run. If all requests were served, the load sets the throughput. The band of times to first token
/// comes from the replicas that compute prompts.
fn bands(
    provision: &Provision,
    summary: &RunSummary,
    (load, class): (&OfferedLoad, Load),
    limit_tpot_ms: f64,
) -> Option<Bands> {
    let set = load.offered_per_s.is_some() && !load.overloaded;
    let means = ForecastMeans {
        ttft_ms: summary.ttft.mean,
        tpot_ms: summary.tpot.figure(|tpot| tpot.mean),
        limit_tpot_ms,
        e2el_ms: summary.e2el.mean,
        output_tok_s: (!set).then(|| summary.output_throughput()),
        load: if provision.prefill.is_some() { Load::Disaggregated } else { class },
    };
    let bands_of = |pool: &ResolvedPool| Bands::of(&pool.forecaster.coefficients, pool.config.cost, &means);
    let serving = bands_of(&provision.serving)?;
    match (provision.elsewhere(), &provision.beside) {
        (Some(prompts), _) => Some(serving.with_prompts(bands_of(prompts)?)),
        (None, Some(beside)) => Some(serving.with_beside(bands_of(beside)?)),
        (None, None) => Some(serving),
    }
}

/// Limit of TPOT in milliseconds: of a decode step at the mean batch and context of the run, which verifies the mean number
/// of drafts, over the mean number of tokens that a sequence gains in it, one and the accepted drafts. The
/// drafter's own time is left out.
fn limit_tpot_ms(deployment: &Deployment, activity: &Activity, mean_tokens: f64) -> f64 {
    let context = ratio(mean_tokens, activity.mean_running).round().max(1.0) as u64;
    let batch = activity.mean_running.round().max(1.0) as u64;
    let decoded = activity.mean_running * activity.steps as f64;
    let drafts = ratio(activity.drafted_tokens as f64, decoded);
    let ms = |drafts: u64| {
        let batch = Batch::verify(batch * deployment.parallelism.replicas, context, drafts);
        cost::limit(deployment, &batch, Utilization::FULL).limit_with_communication.ms()
    };
    let between =
        if drafts > 0.0 { drafts.fract() * (ms(drafts as u64 + 1) - ms(drafts as u64)) } else { 0.0 };
    let accepted = activity.drafted_tokens.saturating_sub(activity.rejected_tokens) as f64;
    let gained = 1.0 + ratio(accepted, decoded);
    (ms(drafts as u64) + between) / gained
}

fn activity(tallies: &[&Tally]) -> Activity {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(|t| of(t)).sum::<u64>();
    let peak = |of: fn(&Tally) -> u64| tallies.iter().map(|t| of(t)).max().unwrap_or(0);
    let steps = sum(|t| t.steps);
    Activity {
        steps,
        mean_running: ratio(sum(|t| t.running_steps) as f64, steps as f64),
        max_running: peak(|t| t.running_peak),
        max_waiting: peak(|t| t.waiting_peak),
        preemptions: sum(|t| t.preemptions),
        scheduled_tokens: sum(|t| t.scheduled_tokens),
        recomputed_tokens: sum(|t| t.recomputed_tokens),
        swapped_tokens: sum(|t| t.swapped_tokens),
        cached_tokens: sum(|t| t.cached_tokens),
        idle_tokens: sum(|t| t.idle_tokens),
        drafted_tokens: sum(|t| t.drafted_tokens),
        rejected_tokens: sum(|t| t.rejected_tokens),
    }
}

fn cache_use(config: &EngineConfig, tallies: &[&Tally], mean_tokens: f64) -> CacheUse {
    let steps: u64 = tallies.iter().map(|t| t.steps).sum();
    let mean =
        |of: fn(&Tally) -> u128| ratio(tallies.iter().map(|t| of(t)).sum::<u128>() as f64, steps as f64);
    let slack = mean(|t| t.slack_steps);
    let spread = ratio(tallies.iter().map(|t| t.spread_steps).sum::<i128>() as f64, steps as f64);
    let held_tokens = mean_tokens + spread - mean(|t| t.shared_steps) + slack;
    let block_size = u64::from(config.block_size);
    let gaps = |of: fn(&Tally) -> Mean| tallies.iter().map(|t| of(t)).fold(Mean::default(), Mean::and);
    let scattered = gaps(|t| t.scattered);
    CacheUse {
        blocks: config.blocks * config.engines(),
        block_size,
        groups: config.groups.count(),
        max_blocks: tallies.iter().map(|t| t.blocks_peak).max().unwrap_or(0),
        mean_usage: held_tokens / (config.blocks * config.engines() * block_size) as f64,
        internal_fragmentation: ratio(slack, held_tokens),
        external_fragmentation: gaps(|t| t.attempts).value(),
        scattered_refusals: scattered.count,
        scattered_fragmentation: scattered.value(),
        tables: config.layout.map(|layout| tables(layout, config, tallies)),
        host: config.host.map(|host| host_use(config, host, tallies)),
    }
}

/// Use of a host tier. The tokens of a request are the ones that were found and the ones computed before it decodes.
fn host_use(config: &EngineConfig, host: HostTier, tallies: &[&Tally]) -> HostUse {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(|t| of(t)).sum::<u64>();
    let seconds = |of: fn(&Tally) -> Ticks| tallies.iter().map(|t| of(t).seconds()).sum::<f64>();
    let cached = sum(|t| t.cached_tokens);
    let hits = sum(|t| t.host_hits);
    let admitted = (cached + sum(|t| t.scheduled_tokens) - sum(|t| t.decoding_steps)) as f64;
    let loaded_tokens = sum(|t| t.loaded_tokens);
    let stored_tokens = sum(|t| t.stored_tokens);
    let bytes = |tokens: u64| Bytes::from_f64(tokens as f64 * host.token_bytes);
    let below = [sum(|t| t.storage_hits), sum(|t| t.storage_loaded_tokens), sum(|t| t.storage_stored_tokens)];
    let offers_all = config.by_block.as_ref().is_some_and(|settings| settings.offload.is_some());
    HostUse {
        tokens: host.tokens * config.engines(),
        device_hit_rate: ratio((cached - hits) as f64, admitted),
        host_hit_rate: ratio((hits - below[0]) as f64, admitted),
        loaded_tokens,
        loaded_bytes: bytes(loaded_tokens),
        stored_tokens,
        stored_bytes: bytes(stored_tokens),
        dropped_tokens: (!offers_all).then(|| sum(|t| t.dropped_tokens)),
        loading_s: seconds(|t| t.loading),
        spared_s: seconds(|t| t.spared),
        storage: host.storage.map(|storage| StorageUse {
            tokens: storage.tokens * config.engines(),
            hit_rate: ratio(below[0] as f64, admitted),
            loaded_tokens: below[1],
            loaded_bytes: bytes(below[1]),
            stored_tokens: below[2],
            stored_bytes: bytes(below[2]),
            loading_s: seconds(|t| t.storage_loading),
        }),
    }
}

fn tables(layout: KvLayout, config: &EngineConfig, tallies: &[&Tally]) -> Tables {
    let steps: u64 = tallies.iter().map(|t| t.decode_steps).sum();
    let sequences = tallies.iter().map(|t| u128::from(t.decoding_steps)).sum();
    let blocks = tallies.iter().map(|t| t.spanned_blocks).sum();
    let longest = u128::from(config.max_model_len.div_ceil(config.block_size));
    let mean = |bytes: u128| ratio(bytes as f64, steps as f64);
    Tables {
        layout,
        read_bytes: mean(layout.read(sequences, blocks)),
        sent_bytes: mean(layout.sent(sequences, blocks, longest)),
    }
}

/// Time of a replica by bottleneck, over the `up` ticks that it was up.
fn time(replica: &mut dyn Replica, up: Ticks) -> TimeShares {
    let shares = replica.shares();
    let busy = shares.total() + replica.tally().swapping;
    let BottleneckShares { memory, compute, communication, host, server, overlapped } = shares;
    TimeShares {
        memory_s: memory.seconds(),
        compute_s: compute.seconds(),
        communication_s: communication.seconds(),
        host_s: host.seconds(),
        server_s: server.seconds(),
        overlapped_s: overlapped.seconds(),
        swap_s: replica.tally().swapping.seconds(),
        reading_s: 0.0,
        arithmetic_s: 0.0,
        idle_s: (up - busy).seconds(),
    }
}

fn expense(
    provision: &Provision,
    summary: &RunSummary,
    times: &[TimeShares],
    scaling: Option<ScalingUse>,
) -> Expense {
    let accelerators = |index: usize| provision.accelerators(index) as f64;
    // Replicas with autoscaling are paid for only while they are up.
    let paid = |replicas: Range<usize>| -> f64 {
        scaling.map_or_else(|| replicas.map(accelerators).sum(), |s| accelerators(0) * s.mean_replicas)
    };
    let powered = |(pool, replicas): (&ResolvedPool, Range<usize>)| {
        let watts = pool.chip().watts()?;
        Some(replicas.map(|index| accelerators(index) * times[index].joules(watts)).sum::<f64>())
    };
    let sides = || provision.sides(times.len()).into_iter();
    let priced = |(pool, replicas): (&ResolvedPool, _)| {
        Some(pool.chip().price.as_ref()?.usd_per_hour * paid(replicas))
    };
    let dollars_per_hour: Option<f64> = sides().map(priced).sum();
    let joules: Option<f64> = sides().map(powered).sum();
    let lasted = times.iter().map(|t| t.busy_s() + t.idle_s).fold(0.0, f64::max);
    let watts = joules.filter(|_| lasted > 0.0).map(|joules| joules / lasted);
    let tokens = summary.total_output_tokens as f64;
    let per_token = |total: f64| (tokens > 0.0).then(|| total / tokens);
    Expense {
        dollars_per_hour,
        dollars_per_million_output_tokens: dollars_per_hour
            .and_then(|d| per_token(d * summary.duration / 3600.0 * 1e6)),
        joules,
        watts,
        joules_per_output_token: watts.and_then(|watts| per_token(watts * summary.duration)),
        carbon: None,
    }
}

impl Expense {
    /// Expense of accelerators that are owned and cost `per_kwh` dollars per kWh; without it, of rented ones.
    pub(super) fn owned(self, per_kwh: Option<f64>) -> Expense {
        /// Joules of a kilowatt-hour.
        const JOULES_PER_KWH: f64 = 3.6e6;
        let Some(per_joule) = per_kwh.map(|usd| usd / JOULES_PER_KWH) else { return self };
        Expense {
            dollars_per_hour: self.watts.map(|watts| watts * 3600.0 * per_joule),
            dollars_per_million_output_tokens: self
                .joules_per_output_token
                .map(|each| each * 1e6 * per_joule),
            ..self
        }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
