//! Helpers for tests of the engine: random workloads and schedulers, stepping and leaping runs, and comparisons of
//! two runs.

use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::Forecaster;
use roofcast::clock::Ticks;
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::engine;
use roofcast::fleet::results::Results;
use roofcast::fleet::{Fleet, QueueOrder};
use roofcast::parallelism::RequestedParallelism;
use roofcast::record::Record;
use roofcast::router::{Router, Routing};
use roofcast::scheduler::config::EngineConfig;
use roofcast::spec::{
    CostKind, EngineSpec, KvLayout, PreemptionMode, QueuePolicy, ReservationKind, SchedulePolicy,
    SchedulerKind, SglangSpec, Slo, TensorrtLlmSpec, VllmSpec,
};
use roofcast::timeline::series::{Series, SeriesPoint, together};
use roofcast::timeline::trace::{EventTrace, TraceEvent};
use roofcast::timeline::{Segment, Timeline};
use roofcast::workload::{Arrivals, Length, LengthKind, Prefix, Traffic, Workload};
use std::sync::Arc;

pub(super) fn deployment(name: &str, engine: EngineSpec) -> Deployment {
    resolved(name, engine).unwrap()
}

/// The deployment, or the reason why the engine has not these settings.
pub(super) fn resolved(name: &str, engine: EngineSpec) -> roofcast::Result<Deployment> {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
    Deployment::resolve(model(name), accelerator, &options)
}

/// The deployment with attention data parallelism over `ranks`.
pub(super) fn spread(deployment: Deployment, ranks: u64) -> Deployment {
    let parallelism =
        RequestedParallelism { tp: Some(1), attention_dp: Some(ranks), ..RequestedParallelism::default() };
    deployment.varied(|options| options.parallelism = parallelism).unwrap()
}

/// A replica of `deployment` for requests of 1000 tokens without common prefixes.
pub(super) fn replica(
    deployment: &Deployment,
    seed: u64,
    leap: bool,
) -> roofcast::Result<Box<dyn engine::Replica>> {
    let forecaster = Forecaster::embedded(deployment.clone())?;
    engine::replica(&forecaster, EngineConfig::resolve(deployment, 1000, false)?, 1000, seed, leap)
}

pub(super) fn served(deployment: &Deployment, workload: &Workload, leap: bool) -> Fleet {
    let spec = &deployment.engine;
    let mut replica = replica(deployment, workload.seed, leap).unwrap();
    let mut timeline = Timeline::default();
    (timeline.series, timeline.trace) = (Some(Series::default()), Some(EventTrace::new(u64::MAX)));
    *replica.timeline() = Some(Box::new(timeline));
    let results = Results::new(Slo::default(), true, None);
    let router = Router::new(Routing::RoundRobin, 0);
    let mut fleet = Fleet::new(vec![replica], router, QueueOrder::new(spec, workload.seed), results);
    fleet.serve(&mut Traffic::new(workload, "test").unwrap()).unwrap();
    fleet
}

pub(super) fn records(fleet: &Fleet) -> &[Record] {
    fleet.results.records.as_ref().unwrap()
}

/// Asserts that two runs have equal records; fails with the first difference.
pub(super) fn same(ours: &[Record], theirs: &[Record]) {
    assert_eq!(ours.len(), theirs.len());
    if let Some((a, b)) = ours.iter().zip(theirs).find(|(a, b)| a != b) {
        panic!("{}\n{}", a.to_line(), b.to_line());
    }
}

/// Asserts that nothing is lost, nothing ends twice, and every token is accounted for.
pub(super) fn conserved(fleet: &Fleet, requests: u64) {
    let (records, replica) = (records(fleet), &fleet.replicas[0]);
    assert!(records.iter().map(|r| r.id).eq(0..requests));
    assert_eq!(fleet.results.completed + fleet.results.refused, requests);
    let served = |r: &Record| r.first_token.map_or(0, |_| r.input_len + r.output_len - 1);
    let tally = replica.tally();
    assert_eq!(
        tally.scheduled_tokens + tally.cached_tokens,
        records.iter().map(served).sum::<u64>()
            + tally.recomputed_tokens
            + tally.idle_tokens
            + tally.rejected_tokens
    );
    for record in records.iter().filter(|r| r.first_token.is_some()) {
        let first = record.first_token.unwrap();
        assert!(record.sent < first && first <= record.finished, "{}", record.to_line());
    }
    assert!(replica.is_empty());
}

/// The recorded timeline: gauges over time, the phases of requests, and the steps.
pub(super) fn shown(fleet: &mut Fleet) -> (Vec<SeriesPoint>, Vec<(Ticks, TraceEvent)>, Vec<Segment>) {
    let end = fleet.replicas[0].clock();
    let timeline = fleet.replicas[0].timeline().take().unwrap();
    let points = together(vec![timeline.series.unwrap()], end).remove(0);
    let (events, cut) = timeline.trace.unwrap().close();
    assert!(cut.is_none() && events.is_sorted_by_key(|(at, _)| *at));
    let mut phases: Vec<_> = events
        .iter()
        .copied()
        .filter(|(_, e)| !matches!(e, TraceEvent::Steps(_) | TraceEvent::Idle))
        .collect();
    // Events at equal times are in the order of recording, which may differ, so they are sorted by their text.
    phases.sort_by_cached_key(|(at, event)| (*at, format!("{event:?}")));
    let steps = events.into_iter().filter_map(|(_, event)| match event {
        TraceEvent::Steps(segment) => Some(segment),
        _ => None,
    });
    (points, phases, steps.collect())
}

/// Asserts that a leap shows the values of its steps: numbers of running and waiting requests are exact; tokens and
/// blocks rise steadily within the leap.
pub(super) fn same_over_time(stepping: &mut Fleet, leaping: &mut Fleet) {
    let ((a, phases, steps), (b, same_phases, leaps)) = (shown(stepping), shown(leaping));
    assert_eq!(phases, same_phases);
    assert!(steps.windows(2).chain(leaps.windows(2)).all(|pair| pair[0].end <= pair[1].start));
    let sum = |all: &[Segment], of: fn(&Segment) -> u64| all.iter().map(of).sum::<u64>();
    for of in [|s: &Segment| s.steps, |s: &Segment| s.output_tokens, |s: &Segment| s.prefill_tokens] {
        assert_eq!(sum(&steps, of), sum(&leaps, of));
    }
    assert_eq!(a.len(), b.len());
    let most = steps.iter().map(|s| s.running).max().unwrap_or(0) as f64;
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(
            (a.start_ms, a.end_ms, a.running, a.waiting),
            (b.start_ms, b.end_ms, b.running, b.waiting)
        );
        assert_eq!(a.preemptions, b.preemptions);
        assert!(a.running >= 0.0 && a.waiting >= 0.0 && a.blocks >= -1e-6, "{a:?}");
        // A straight line differs from a sequence's staircase by at most a block, and by another if the staircase rises
        // in the last step; the sum is rounded to blocks.
        assert!((a.blocks - b.blocks).abs() <= 2.0 * most + 1.0, "{a:?} {b:?}");
    }
}

pub(super) fn workloads() -> impl Strategy<Value = Workload> {
    let arrivals = prop_oneof![
        (1.0_f64..200.0).prop_map(|rate| Arrivals::Poisson { rate }),
        (1.0_f64..50.0, 0.1_f64..3.0).prop_map(|(rate, burstiness)| Arrivals::Gamma { rate, burstiness }),
        (1_u64..30, proptest::option::of(0.01_f64..1.0)).prop_map(|(concurrency, think_s)| {
            Arrivals::ClosedLoop { concurrency, think_s, ramp_s: None, turn_round_s: None }
        }),
        (1_u64..12, 1_u64..6).prop_map(|(concurrency, turns)| Arrivals::Sessions {
            rate: None,
            concurrency: Some(concurrency),
            turns: Length::Tokens(turns),
            think_s: Some(0.05),
        }),
    ];
    let prefix = (1_u64..200, 1_u64..5, 0.0_f64..1.0).prop_map(|(length, count, share)| Prefix {
        length,
        count,
        share,
        skew: 0.0,
    });
    let sizes = (1_u64..80, any::<u64>(), 1_u64..600, 1_u64..300);
    let cap = proptest::option::weighted(0.2, 1_u64..12);
    (arrivals, sizes, proptest::option::of(prefix), cap).prop_map(
        |(arrivals, (requests, seed, input, output), prefix, cap)| Workload {
            requests: Some(requests),
            seed,
            input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: input }),
            output_len: Length::Drawn(LengthKind::Uniform { min: 1, max: output }),
            prefix,
            images: None,
            adapters: None,
            priorities: Vec::new(),
            classes: Vec::new(),
            max_tokens: None,
            max_concurrency: cap.filter(|_| arrivals.rate().is_some()),
            recorded: None,
            arrivals,
        },
    )
}

/// Settings of TensorRT-LLM that hold prompts back.
fn holding(seqs: u64, flag: bool, reservation: usize) -> TensorrtLlmSpec {
    TensorrtLlmSpec {
        batch_wait_timeout_iters: (reservation > 0).then_some(seqs),
        batch_wait_max_tokens_ratio: (reservation > 0).then_some(0.05),
        disable_overlap_scheduler: Some(flag),
        attention_dp_enable_balance: Some(reservation != 1),
        attention_dp_time_out_iters: Some(seqs),
    }
}

pub(super) fn schedulers() -> impl Strategy<Value = EngineSpec> {
    use SchedulerKind::*;
    // vLLM's and SGLang's have more settings than the others, and are drawn more often.
    let kinds: Vec<SchedulerKind> = SchedulerKind::ALL.into_iter().chain([Vllm, Vllm, Sglang]).collect();
    let sizes = (60_u64..400, 1_u64..40, 40_u64..700, any::<bool>(), 0_usize..3, 0_usize..3);
    (proptest::sample::select(kinds), sizes).prop_map(|(scheduler, sizes)| {
        let (blocks, seqs, budget, flag, order, reservation) = sizes;
        let plain = matches!(scheduler, Vllm | Splitfuse);
        let reserves = matches!(scheduler, Static | Orca);
        let size = match scheduler {
            Vllm => [1, 8, 16][order],
            Lightllm => 1,
            Sglang if flag => 1,
            _ => 16,
        };
        let found = scheduler == Sglang && flag;
        let polled = scheduler == Sglang && reservation > 0 && order == 1;
        let paced = matches!(scheduler, TensorrtLlm | TensorrtLlmMaxUtilization);
        EngineSpec {
            scheduler: Some(scheduler),
            num_gpu_blocks: Some(if size == 1 { blocks * 16 } else { blocks }),
            block_size: Some(size),
            max_num_seqs: Some(seqs),
            max_num_batched_tokens: plain.then_some(budget),
            enable_chunked_prefill: (scheduler == Vllm).then_some(flag),
            enable_prefix_caching: if scheduler == Vllm { Some(order > 0) } else { found.then_some(true) },
            sglang: SglangSpec {
                schedule_policy: if found && order == 0 { SchedulePolicy::Lpm } else { SchedulePolicy::Fcfs },
                scheduler_recv_interval: polled.then_some(seqs),
                ..SglangSpec::default()
            },
            scheduler_reserve_full_isl: plain.then_some(!flag),
            policy: [QueuePolicy::Fcfs, QueuePolicy::Fcfs, QueuePolicy::Sjf][order],
            vllm: VllmSpec {
                preemption_mode: match scheduler {
                    VllmV0 if flag => PreemptionMode::Swap,
                    _ => PreemptionMode::Recompute,
                },
                swap_space: (scheduler == VllmV0).then_some(0.05),
                ..VllmSpec::default()
            },
            reservation: match reservation {
                1 if reserves => ReservationKind::Pow2,
                2 if reserves => ReservationKind::Oracle,
                _ => ReservationKind::Max,
            },
            max_model_len: (reserves || scheduler == LlamaCpp).then_some(900),
            tensorrt_llm: if paced { holding(seqs, flag, reservation) } else { TensorrtLlmSpec::default() },
            kv_layout: match reservation {
                1 if scheduler != LlamaCpp => Some(KvLayout::Paged),
                2 if scheduler != LlamaCpp => Some(KvLayout::Flashinfer),
                _ => None,
            },
            cost: if flag { CostKind::Forecast } else { CostKind::Limit },
            ..EngineSpec::default()
        }
    })
}
