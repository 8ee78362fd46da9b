//! The engine: leaping is stepping, counting is vLLM block by block, and nothing is lost.

use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::Forecaster;
use roofcast::batch::Batch;
use roofcast::cost::{Utilization, limit};
use roofcast::deployment::{Deployment, Options};
use roofcast::engine;
use roofcast::engine::clock::Ticks;
use roofcast::engine::config::{EngineConfig, Reservation};
use roofcast::fleet::results::Results;
use roofcast::fleet::{Fleet, Ranking};
use roofcast::parallelism::RequestedParallelism;
use roofcast::record::Record;
use roofcast::router::{Router, Routing};
use roofcast::simulate;
use roofcast::spec::{
    CostKind, EngineSpec, KvLayout, PreemptionMode, QueuePolicy, ReservationKind, SchedulePolicy,
    SchedulerKind, Slo,
};
use roofcast::timeline::series::{Point, Series, together};
use roofcast::timeline::trace::{Event, Trace};
use roofcast::timeline::{Segment, Timeline};
use roofcast::workload::{Arrivals, Length, LengthKind, Prefix, Traffic, Workload};
use std::sync::Arc;

pub(super) fn deployment(name: &str, engine: EngineSpec) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    Deployment::resolve(model(name), accelerator, &Options { engine, ..Options::default() }).unwrap()
}

/// The same with data-parallel attention.
fn spread(deployment: Deployment, ranks: u64) -> Deployment {
    let parallelism =
        RequestedParallelism { tp: Some(1), attention_dp: Some(ranks), ..RequestedParallelism::default() };
    let options = Options { parallelism, ..deployment.options };
    Deployment::resolve(deployment.model, deployment.accelerator, &options).unwrap()
}

/// A replica of `deployment` for requests of 1000 tokens without common prompts.
fn replica(deployment: &Deployment, seed: u64, leap: bool) -> roofcast::Result<Box<dyn engine::Replica>> {
    let forecaster = Forecaster::embedded(deployment.clone())?;
    engine::replica(&forecaster, EngineConfig::resolve(deployment, 1000, false)?, 1000, seed, leap)
}

pub(super) fn served(deployment: &Deployment, workload: &Workload, leap: bool) -> Fleet {
    let spec = &deployment.options.engine;
    let mut replica = replica(deployment, workload.seed, leap).unwrap();
    let timeline = Timeline { series: Some(Series::default()), trace: Some(Trace::new(u64::MAX)) };
    *replica.timeline() = Some(Box::new(timeline));
    let results = Results::new(Slo::default(), true, None);
    let router = Router::new(Routing::RoundRobin, 0);
    let mut fleet = Fleet::new(vec![replica], router, Ranking::new(spec, workload.seed), results);
    fleet.serve(&mut Traffic::new(workload, "test").unwrap()).unwrap();
    fleet
}

pub(super) fn records(fleet: &Fleet) -> &[Record] {
    fleet.results.records.as_ref().unwrap()
}

/// The first record in which two runs differ.
pub(super) fn same(ours: &[Record], theirs: &[Record]) {
    assert_eq!(ours.len(), theirs.len());
    if let Some((a, b)) = ours.iter().zip(theirs).find(|(a, b)| a != b) {
        panic!("{}\n{}", a.to_line(), b.to_line());
    }
}

/// Nothing is lost, nothing ends twice, every token is paid for.
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

/// What was kept over time: levels, the phases of requests and the steps.
fn shown(fleet: &mut Fleet) -> (Vec<Point>, Vec<(Ticks, Event)>, Vec<Segment>) {
    let end = fleet.replicas[0].clock();
    let timeline = fleet.replicas[0].timeline().take().unwrap();
    let points = together(vec![timeline.series.unwrap()], end).remove(0);
    let (events, cut) = timeline.trace.unwrap().close();
    assert!(cut.is_none() && events.is_sorted_by_key(|(at, _)| *at));
    let mut phases: Vec<_> =
        events.iter().copied().filter(|(_, e)| !matches!(e, Event::Steps(_) | Event::Idle)).collect();
    // Those of the same time come in the order in which they were told.
    phases.sort_by_cached_key(|(at, event)| (*at, format!("{event:?}")));
    let steps = events.into_iter().filter_map(|(_, event)| match event {
        Event::Steps(segment) => Some(segment),
        _ => None,
    });
    (points, phases, steps.collect())
}

/// A leap shows what its steps show: who runs and waits is exact; tokens and blocks within it rise steadily.
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
        // A straight line is off a sequence's stairs by a block, and by another where it rises within the last step;
        // the whole is rounded to blocks.
        assert!((a.blocks - b.blocks).abs() <= 2.0 * most + 1.0, "{a:?} {b:?}");
    }
}

pub(super) fn workloads() -> impl Strategy<Value = Workload> {
    let arrivals = prop_oneof![
        (1.0_f64..200.0).prop_map(|rate| Arrivals::Poisson { rate }),
        (1.0_f64..50.0, 0.1_f64..3.0).prop_map(|(rate, burstiness)| Arrivals::Gamma { rate, burstiness }),
        (1_u64..30, proptest::option::of(0.01_f64..1.0))
            .prop_map(|(concurrency, think_s)| Arrivals::ClosedLoop { concurrency, think_s }),
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
    (arrivals, sizes, proptest::option::of(prefix)).prop_map(
        |(arrivals, (requests, seed, input, output), prefix)| Workload {
            requests: Some(requests),
            seed,
            arrivals,
            input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: input }),
            output_len: Length::Drawn(LengthKind::Uniform { min: 1, max: output }),
            prefix,
            priorities: Vec::new(),
            max_tokens: None,
        },
    )
}

pub(super) fn schedulers() -> impl Strategy<Value = EngineSpec> {
    use SchedulerKind::*;
    let kinds = [
        Static,
        Orca,
        VllmV0,
        Vllm,
        Vllm,
        Vllm,
        Sarathi,
        Splitfuse,
        Lightllm,
        Sglang,
        Sglang,
        LlamaCpp,
        TensorrtLlm,
        TensorrtLlmMaxUtilization,
    ];
    let sizes = (60_u64..400, 1_u64..40, 40_u64..700, any::<bool>(), 0_usize..3, 0_usize..3);
    (proptest::sample::select(kinds.to_vec()), sizes).prop_map(|(scheduler, sizes)| {
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
        let paced = matches!(scheduler, TensorrtLlm | TensorrtLlmMaxUtilization);
        EngineSpec {
            scheduler,
            num_gpu_blocks: Some(if size == 1 { blocks * 16 } else { blocks }),
            block_size: Some(size),
            max_num_seqs: Some(seqs),
            max_num_batched_tokens: plain.then_some(budget),
            enable_chunked_prefill: (scheduler == Vllm).then_some(flag),
            enable_prefix_caching: if scheduler == Vllm { Some(order > 0) } else { found.then_some(true) },
            schedule_policy: if found && order == 0 { SchedulePolicy::Lpm } else { SchedulePolicy::Fcfs },
            scheduler_reserve_full_isl: plain.then_some(!flag),
            policy: [QueuePolicy::Fcfs, QueuePolicy::Fcfs, QueuePolicy::Sjf][order],
            preemption_mode: match scheduler {
                VllmV0 if flag => PreemptionMode::Swap,
                _ => PreemptionMode::Recompute,
            },
            swap_space: Some(0.05),
            reservation: match reservation {
                1 if reserves => ReservationKind::Pow2,
                2 if reserves => ReservationKind::Oracle,
                _ => ReservationKind::Max,
            },
            max_model_len: (reserves || scheduler == LlamaCpp).then_some(900),
            scheduler_recv_interval: (scheduler == Sglang && reservation > 0 && order == 1).then_some(seqs),
            batch_wait_timeout_iters: (paced && reservation > 0).then_some(seqs),
            batch_wait_max_tokens_ratio: (paced && reservation > 0).then_some(0.05),
            disable_overlap_scheduler: paced.then_some(flag),
            attention_dp_enable_balance: paced.then_some(reservation != 1),
            attention_dp_time_out_iters: paced.then_some(seqs),
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

/// A row of a static batch computes on after its request has ended, but has no more room than it reserved.
#[test]
fn an_ended_row_holds_no_more_than_its_room() {
    // Blocks of 16; prompts of a token. One output of a token reserves 1 + 1, a block; one of 45 reserves 1 + 64, five.
    let spec = EngineSpec {
        scheduler: SchedulerKind::Static,
        reservation: ReservationKind::Pow2,
        block_size: Some(16),
        ..EngineSpec::default()
    };
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\n";
    let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
    let two = "arrival_s,input_len,output_len\n0,1,1\n0,1,45\n";
    workload.load("test", |_| Ok::<_, roofcast::Error>(two.to_owned())).unwrap();
    let fleet = served(&deployment("meta-llama/Llama-3.1-8B-Instruct", spec), &workload, true);
    let tally = fleet.replicas[0].tally();
    // 44 steps with 1 to 44 tokens each: Σ min(c, 16) = 120 + 29 × 16 and Σ c = 990.
    assert_eq!(tally.token_steps, 120 + 464 + 990);
    // Room without tokens: Σ (16 − c) over c < 16 = 120, and 44 × 80 − 990.
    assert_eq!(tally.slack_steps, 120 + 2530);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping(workload in workloads(), spec in schedulers(), windowed in any::<bool>(), ranks in 1_u64..4) {
        let name = if windowed { "openai/gpt-oss-20b" } else { "meta-llama/Llama-3.1-8B-Instruct" };
        let block_size = u128::from(spec.block_size.unwrap());
        let deployment = spread(deployment(name, spec), ranks);
        let mut stepping = served(&deployment, &workload, false);
        let mut leaping = served(&deployment, &workload, true);
        same_over_time(&mut stepping, &mut leaping);
        same(records(&stepping), records(&leaping));
        conserved(&leaping, workload.requests.unwrap());
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, a.preemptions, a.scheduled_tokens), (b.steps, b.preemptions, b.scheduled_tokens));
        prop_assert_eq!((a.token_steps, a.running_steps, a.blocks_peak), (b.token_steps, b.running_steps, b.blocks_peak));
        prop_assert_eq!((&a.itl, &a.decodes, a.waiting_peak), (&b.itl, &b.decodes, b.waiting_peak));
        prop_assert_eq!((a.idle, a.swapping, a.mixed), (b.idle, b.swapping, b.mixed));
        prop_assert_eq!((a.attempts, a.scattered, a.cached_tokens), (b.attempts, b.scattered, b.cached_tokens));
        prop_assert_eq!((a.shared_steps, a.slack_steps), (b.shared_steps, b.slack_steps));
        prop_assert_eq!((a.decoding_steps, a.spanned_blocks, a.spread_steps), (b.decoding_steps, b.spanned_blocks, b.spread_steps));
        // What is in blocks and is left empty in them is at most what was held, whoever shares it.
        let most = u128::from(b.steps * b.blocks_peak) * block_size;
        prop_assert!((b.token_steps + b.slack_steps) as i128 + b.spread_steps <= (most + b.shared_steps) as i128);
    }

    /// The engine that counts takes the decisions of the scheduler that is held to vLLM's own traces, with and without a
    /// prefix cache. A threshold beyond every prompt changes nothing, but makes it run block by block.
    #[test]
    fn counting_is_vllm_block_by_block(workload in workloads(), spec in schedulers(), caching in any::<bool>()) {
        let spec = EngineSpec { scheduler: SchedulerKind::Vllm, policy: QueuePolicy::Fcfs, reservation: ReservationKind::Max,
            preemption_mode: PreemptionMode::Recompute, schedule_policy: SchedulePolicy::Fcfs, enable_prefix_caching: Some(caching), kv_layout: None,
            scheduler_recv_interval: None, batch_wait_timeout_iters: None, batch_wait_max_tokens_ratio: None, disable_overlap_scheduler: None, attention_dp_enable_balance: None,
            attention_dp_time_out_iters: None, ..spec };
        let asked = EngineSpec { long_prefill_token_threshold: Some(1 << 20), ..spec.clone() };
        let name = "meta-llama/Llama-3.1-8B-Instruct";
        let mut counted = served(&deployment(name, spec), &workload, true);
        let mut blocks = served(&deployment(name, asked), &workload, true);
        prop_assert_eq!(shown(&mut counted).1.len(), shown(&mut blocks).1.len());
        let cached = |fleet: &Fleet| {
            let tally = fleet.replicas[0].tally();
            (tally.cached_tokens, tally.shared_steps)
        };
        prop_assert_eq!(cached(&counted), cached(&blocks));
        conserved(&blocks, workload.requests.unwrap());
        prop_assert_eq!(records(&counted).len(), records(&blocks).len());
        for (a, b) in records(&counted).iter().zip(records(&blocks)) {
            // A preempted request whose last chunk is one token is a decode here and a chunk there: the same work, whose
            // time per token of context is rounded to a tick (1/256 ps) in one of them: up to 20 ps a step of milliseconds.
            let near = |a: roofcast::units::Picoseconds, b: roofcast::units::Picoseconds| a.0.abs_diff(b.0) <= 1 + a.0 / 1_000_000_000;
            let first = a.first_token.zip(b.first_token).is_none_or(|(a, b)| near(a, b));
            prop_assert!(first && near(a.finished, b.finished) && a.preemptions == b.preemptions
                && a.cached_tokens == b.cached_tokens,
                "{}\n{}", a.to_line(), b.to_line());
        }
    }
}

/// One request alone takes the limit of its prompt, and that of a decode at every context from there on.
#[test]
fn one_request_is_the_limits() {
    for (name, chip, tp, layout) in [
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", 1, ""),
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", 1, "kv_layout = \"flashinfer\"\nblock_size = 1\n"),
        ("deepseek-ai/DeepSeek-V3", "h200-sxm", 8, "kv_layout = \"paged\"\n"),
        ("openai/gpt-oss-120b", "h100-sxm", 2, ""),
        ("openai/gpt-oss-120b", "h100-sxm", 2, "kv_layout = \"paged\"\n"),
    ] {
        let text = format!(
            "[model]\nname = \"{name}\"\n[hardware]\naccelerator = \"{chip}\"\n[parallelism]\ntp = {tp}\n\
             [engine]\n{layout}cost = \"limit\"\n[workload]\nrequests = 1\ninput_len = 1000\noutput_len = 200\n\
             arrivals = {{ kind = \"constant\", rate = 1.0 }}\n"
        );
        let spec = roofcast::Spec::parse("test", &text).unwrap();
        let accelerator = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let deployment = Deployment::resolve(model(name), accelerator, &Options::of(&spec)).unwrap();
        let one = |batch: Batch| limit(&deployment, &batch, Utilization::FULL).limit_with_communication.ms();
        let prompt = one(Batch::prefill(1, 1000));
        // The second token is computed with 1001 tokens of context, the last of the 200 with 1199.
        let decodes: f64 = (1001..=1199).map(|context| one(Batch::decode(1, context))).sum();
        let options = simulate::Options { leap: true, ..Default::default() };
        let run =
            simulate::simulate(&Forecaster::embedded(deployment.clone()).unwrap(), &spec, "test", options)
                .unwrap()
                .summary;
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-6;
        assert!(close(run.ttft.mean, prompt), "{name}: {} against {prompt}", run.ttft.mean);
        assert!(close(run.e2el.mean, prompt + decodes), "{name}: {} {}", run.e2el.mean, prompt + decodes);
        assert!(close(run.tpot.mean, decodes / 199.0), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A steady batch at the limit is what `limits` says of it, however it is shared: each round of `users` sequences takes a
    /// decode step of the batch, pipeline stages and data-parallel ranks included. And no forecast of it is faster.
    #[test]
    fn a_steady_batch_is_the_limits(
        shape in prop::sample::select(vec![
            ("meta-llama/Llama-3.1-8B-Instruct", [1, 1, 1, 1]),
            ("meta-llama/Llama-3.1-8B-Instruct", [2, 2, 1, 1]),
            ("meta-llama/Llama-3.1-70B-Instruct", [4, 1, 1, 1]),
            ("meta-llama/Llama-3.1-70B-Instruct", [1, 4, 1, 1]),
            ("Qwen/Qwen3-30B-A3B", [4, 1, 4, 1]),
            ("Qwen/Qwen3-30B-A3B", [1, 2, 1, 1]),
            ("deepseek-ai/DeepSeek-V3", [8, 1, 8, 1]),
            ("deepseek-ai/DeepSeek-V3", [1, 1, 8, 8]),
            ("openai/gpt-oss-120b", [2, 1, 1, 1]),
        ]),
        users in 1_u64..70,
    ) {
        let (name, [tp, pp, ep, attention_dp]) = shape;
        let text = |cost: &str| format!(
            "[model]\nname = \"{name}\"\n[hardware]\naccelerator = \"b200-sxm\"\n[parallelism]\ntp = {tp}\npp = {pp}\nep = {ep}\n\
             attention_dp = {attention_dp}\n[engine]\ncost = \"{cost}\"\n[workload]\nrequests = {users}\ninput_len = 20\n\
             output_len = 30\narrivals = {{ kind = \"closed_loop\", concurrency = {users} }}\n"
        );
        let run = |cost: &str| {
            let spec = roofcast::Spec::parse("test", &text(cost)).unwrap();
            let accelerator = Arc::new(catalog().accelerator("b200-sxm").unwrap().clone());
            let deployment = Deployment::resolve(model(name), accelerator, &Options::of(&spec)).unwrap();
            let forecaster = Forecaster::embedded(deployment).unwrap();
            let options = simulate::Options { leap: true, ..Default::default() };
            (simulate::simulate(&forecaster, &spec, "test", options).unwrap().summary, forecaster)
        };
        let (at_limit, forecaster) = run("limit");
        // All 70 · 20 prompt tokens fit a step, so that all decode from 21 tokens of context to 49.
        let step = |context| {
            let batch = Batch::decode(users, context);
            limit(&forecaster.deployment, &batch, Utilization::FULL).limit_with_communication.ms()
        };
        let expected = (21..=49).map(step).sum::<f64>() / 29.0;
        prop_assert!(
            (at_limit.tpot.mean / expected - 1.0).abs() < 1e-5,
            "{name} tp {tp} pp {pp} ep {ep} dp {attention_dp}, {users} users: {} against {expected}", at_limit.tpot.mean
        );
        let (forecast, _) = run("forecast");
        prop_assert!(forecast.tpot.mean >= expected * (1.0 - 1e-9));
        prop_assert!(forecast.ttft.mean >= at_limit.ttft.mean);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// However many replicas and whoever chooses: nothing is lost, and leaping is stepping.
    #[test]
    fn fleets_lose_nothing(workload in workloads(), replicas in 2_usize..5, kind in 0_usize..5, spec in schedulers()) {
        use Routing::*;
        let routing = [RoundRobin, LeastLoaded, PowerOfTwo, PrefixAware, SessionSticky][kind];
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let serve = |leap: bool| {
            let replica = |_| replica(&deployment, workload.seed, leap).unwrap();
            let results = Results::new(Slo::default(), true, None);
            let ranking = Ranking::new(&deployment.options.engine, workload.seed);
            let router = Router::new(routing, workload.seed);
            let mut fleet = Fleet::new((0..replicas).map(replica).collect(), router, ranking, results);
            fleet.serve(&mut Traffic::new(&workload, "test").unwrap()).unwrap();
            fleet
        };
        let (stepping, leaping) = (serve(false), serve(true));
        same(records(&stepping), records(&leaping));
        prop_assert!(records(&leaping).iter().map(|r| r.id).eq(0..workload.requests.unwrap()));
        prop_assert!(leaping.replicas.iter().all(|r| r.is_empty()));
        let steps = |fleet: &Fleet| fleet.replicas.iter().map(|r| r.tally().steps).collect::<Vec<_>>();
        prop_assert_eq!(steps(&stepping), steps(&leaping));
    }
}

/// Seed 004: where B requests of P prompt and G output tokens are always generating, B (P + G)/G tokens of KV leave the
/// cache with every step. Each request holds P + G − 1 tokens at its end: its last one is never computed.
#[test]
fn a_batch_evicts_its_share_of_the_cache_every_step() {
    for (batch, prompt, output) in [(32_u64, 1024_u64, 512_u64), (43, 8192, 512), (16, 100, 900)] {
        let spec =
            EngineSpec { num_gpu_blocks: Some(1 << 20), max_num_seqs: Some(batch), ..EngineSpec::default() };
        let workload = Workload {
            requests: Some(batch * 40),
            seed: 1,
            arrivals: Arrivals::ClosedLoop { concurrency: batch, think_s: None },
            input_len: Length::Tokens(prompt),
            output_len: Length::Tokens(output),
            prefix: None,
            priorities: Vec::new(),
            max_tokens: None,
        };
        let fleet = served(&deployment("meta-llama/Llama-3.1-8B-Instruct", spec), &workload, true);
        let tally = fleet.replicas[0].tally();
        let evicted = (batch * 40 * (prompt + output - 1)) as f64 / tally.decode_steps as f64;
        let formula = (batch * (prompt + output)) as f64 / output as f64;
        // Prompts are computed beside decodes, in steps in which their own request does not generate yet: at most a step
        // for each of the G that it takes, and one for each token of the budget that the prompts of a wave fill.
        let prefills = (batch * prompt).div_ceil(8192) as f64;
        let most = 1.0 + (1.0 + prefills) / output as f64;
        assert!(
            evicted <= formula * 1.001 && evicted * most >= formula * 0.999,
            "{evicted} {formula} {most}"
        );
    }
}

/// A server of prompts and one of outputs, each alone: what one takes in a second over what the other does is
/// B·t_prefill/(G·t_step).
#[test]
fn servers_of_prompts_for_one_that_generates() {
    for (batch, prompt, output) in [(32_u64, 8192_u64, 512_u64), (8, 2048, 256)] {
        let spec = EngineSpec {
            max_num_seqs: Some(batch),
            enable_prefix_caching: Some(true),
            cost: CostKind::Limit,
            ..EngineSpec::default()
        };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let rate = |concurrency: u64, input_len: u64, output_len: u64, cached: u64| {
            let prefix = Prefix { length: cached, count: 1, share: 1.0, skew: 0.0 };
            let workload = Workload {
                requests: Some(batch * 20),
                seed: 1,
                arrivals: Arrivals::ClosedLoop { concurrency, think_s: None },
                input_len: Length::Tokens(input_len),
                output_len: Length::Tokens(output_len),
                prefix: (cached > 0).then_some(prefix),
                priorities: Vec::new(),
                max_tokens: None,
            };
            (batch * 20) as f64 / served(&deployment, &workload, true).results.end.seconds()
        };
        // The one that generates finds all of a prompt but a block in its prefix cache.
        let (prefill, generate) = (rate(2, prompt, 1, 0), rate(batch, 16, output, prompt - 16));
        let limit =
            |batch: &Batch| limit(&deployment, batch, Utilization::FULL).limit_with_communication.seconds();
        let t_prefill = limit(&Batch::prefill(1, prompt));
        let t_step = limit(&Batch::decode(batch, prompt + output / 2));
        let formula = batch as f64 * t_prefill / (output as f64 * t_step);
        let found = generate / prefill;
        // The one that generates also computes a block of each prompt, in one step of G, and the prefix once in twenty
        // waves: less than a percent of its time.
        assert!((found / formula - 1.0).abs() < 0.01, "{found} {formula}");
    }
}

/// The defaults that the book gives are the engine's.
#[test]
fn the_books_defaults_are_the_engines() {
    use SchedulerKind::*;
    let kinds = [
        ("vllm", Vllm),
        ("vllm-v0", VllmV0),
        ("sarathi", Sarathi),
        ("splitfuse", Splitfuse),
        ("tensorrt-llm", TensorrtLlm),
        ("tensorrt-llm-max-utilization", TensorrtLlmMaxUtilization),
        ("sglang", Sglang),
        ("lightllm", Lightllm),
        ("llama.cpp", LlamaCpp),
        ("orca", Orca),
        ("static", Static),
    ];
    let book = include_str!("../../../../docs/engine.md");
    for (name, scheduler) in kinds {
        let spec = EngineSpec { scheduler, ..EngineSpec::default() };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let (config, _) = EngineConfig::resolve(&deployment, 1000, false).unwrap();
        let budget = match config.max_num_batched_tokens {
            u32::MAX => "any".to_owned(),
            tokens => tokens.to_string(),
        };
        let takes = match config.reservation {
            Reservation::Grow => "what it computes",
            Reservation::Prompt => "prompt",
            Reservation::Oracle => "prompt and output",
            Reservation::Bound => "prompt and `max_tokens`",
            Reservation::Pow2 | Reservation::Max => "the longest",
        };
        let row = format!(
            "| `{name}` | {} | {budget} | {} | {} | {} | {takes} | {} |",
            config.block_size,
            config.max_num_seqs,
            if config.enable_chunked_prefill { "yes" } else { "no" },
            if config.scheduler_reserve_full_isl { "all known tokens" } else { "the first chunk" },
            (config.watermark_blocks as f64 / config.blocks as f64 * 100.0).round() / 100.0,
        );
        assert!(book.contains(&row), "docs/engine.md has not: {row}");
    }
}

/// Whatever is combined either serves and loses nothing, or is refused with the key that does not fit.
#[test]
fn every_combination_serves_or_is_refused() {
    use SchedulerKind::*;
    let schedulers = [
        Static,
        Orca,
        VllmV0,
        Vllm,
        Sarathi,
        Splitfuse,
        Lightllm,
        Sglang,
        LlamaCpp,
        TensorrtLlm,
        TensorrtLlmMaxUtilization,
    ];
    let layouts = [
        None,
        Some(KvLayout::Paged),
        Some(KvLayout::Flashinfer),
        Some(KvLayout::Vattention),
        Some(KvLayout::Contiguous),
    ];
    let workload = Workload {
        requests: Some(12),
        seed: 1,
        arrivals: Arrivals::ClosedLoop { concurrency: 6, think_s: None },
        input_len: Length::Tokens(300),
        output_len: Length::Tokens(40),
        prefix: Some(Prefix { length: 200, count: 2, share: 1.0, skew: 0.0 }),
        priorities: Vec::new(),
        max_tokens: None,
    };
    let (mut served_by, mut refused) = (Vec::new(), 0);
    for case in 0..schedulers.len() * layouts.len() * 3 * 3 * 2 * 2 {
        let pick = |stride: usize, of: usize| case / stride % of;
        let (scheduler, layout) = (schedulers[pick(36, 11)], layouts[pick(396, 5)]);
        let spec = EngineSpec {
            scheduler,
            kv_layout: layout,
            reservation: [ReservationKind::Max, ReservationKind::Pow2, ReservationKind::Oracle][pick(1, 3)],
            enable_prefix_caching: [None, Some(false), Some(true)][pick(3, 3)],
            preemption_mode: [PreemptionMode::Recompute, PreemptionMode::Swap][pick(9, 2)],
            schedule_policy: [SchedulePolicy::Fcfs, SchedulePolicy::Lpm][pick(18, 2)],
            max_model_len: Some(2048),
            ..EngineSpec::default()
        };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        match EngineConfig::resolve(&deployment, 1000, false) {
            Ok(_) => {
                conserved(&served(&deployment, &workload, true), 12);
                served_by.push((format!("{scheduler:?}"), layout.map_or("", KvLayout::name)));
            }
            Err(error) => {
                let text = error.to_string();
                let named = "kv_layout reservation enable_prefix_caching preemption_mode schedule_policy";
                assert!(named.split(' ').any(|key| text.contains(&format!("`{key}`"))), "{text}");
                refused += 1;
            }
        }
    }
    served_by.dedup();
    served_by.sort();
    served_by.dedup();
    // By layout: all eleven as they are; ten with tables, of which llama.cpp has none; four by pages of memory; three in
    // one piece.
    let by = |name: &str| served_by.iter().filter(|(_, layout)| *layout == name).count();
    assert_eq!(["", "paged", "flashinfer", "vattention", "contiguous"].map(by), [11, 10, 10, 4, 3]);
    assert!(refused > 1000, "{refused}");
}

/// Where `max_num_seqs` run, a leap goes on beyond the steps at which requests are received. `leaping_is_stepping`
/// found this case.
#[test]
fn a_leap_receives_requests_when_a_step_does() {
    let spec = EngineSpec {
        scheduler: SchedulerKind::Sglang,
        max_num_seqs: Some(4),
        num_gpu_blocks: Some(60),
        block_size: Some(16),
        scheduler_recv_interval: Some(4),
        reservation: ReservationKind::Max,
        kv_layout: Some(KvLayout::Paged),
        ..EngineSpec::default()
    };
    let workload = Workload {
        requests: Some(15),
        seed: 10_694_838_971_084_512_550,
        arrivals: Arrivals::Gamma { rate: 26.494155524085862, burstiness: 2.1266636373016587 },
        input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 32 }),
        output_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 31 }),
        prefix: None,
        priorities: Vec::new(),
        max_tokens: None,
    };
    let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
    let (stepping, leaping) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
    same(records(&stepping), records(&leaping));
}
