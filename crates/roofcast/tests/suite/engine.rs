//! The engine: leaping equals stepping, counting blocks equals vLLM's block by block, and nothing is lost.

use super::runs::{
    conserved, deployment, records, replica, resolved, same, same_over_time, schedulers, served, spread,
    workloads,
};
use super::support::accepted;
use proptest::prelude::*;
use roofcast::fleet::results::Results;
use roofcast::fleet::{Fleet, QueueOrder};
use roofcast::router::{Router, Routing};
use roofcast::scheduler::config::{EngineConfig, Reservation};
use roofcast::spec::{
    EngineSpec, KvLayout, PreemptionMode, QueuePolicy, ReservationKind, RoutingSpec, SchedulePolicy,
    SchedulerKind, SglangSpec, Slo, TensorrtLlmSpec, VllmSpec,
};
use roofcast::workload::{Arrivals, Length, LengthKind, Prefix, Traffic, Workload};

/// A row of a static batch computes on after its request has ended, but keeps no more memory than it reserved.
#[test]
fn an_ended_row_holds_no_more_than_its_room() {
    // Blocks of 16, prompts of one token. An output of one token reserves 1 + 1 tokens, a block; an output of 45
    // reserves 1 + 64, five blocks.
    let spec = EngineSpec {
        scheduler: Some(SchedulerKind::Static),
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
    // The short row has 44 steps with 1 to 44 tokens, of which its block holds 16: Σ min(c, 16) = 120 + 29 × 16; the
    // long row Σ c = 990.
    assert_eq!(tally.token_steps, 120 + 464 + 990);
    // Reserved room without tokens: Σ (16 − c) over c < 16 = 120, and 44 × 80 − 990.
    assert_eq!(tally.slack_steps, 120 + 2530);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Ranks of the two models with experts are engines of their own under vLLM and SGLang.
    #[test]
    fn leaping_is_stepping(
        workload in workloads(),
        spec in schedulers(),
        name in proptest::sample::select(vec![
            "meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b", "Qwen/Qwen3-30B-A3B",
        ]),
        ranks in 1_u64..4,
    ) {
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
        prop_assert_eq!(&a.itl, &b.itl);
        prop_assert_eq!((&a.decodes, a.waiting_peak), (&b.decodes, b.waiting_peak));
        prop_assert_eq!((a.idle, a.swapping, a.mixed), (b.idle, b.swapping, b.mixed));
        prop_assert_eq!((a.attempts, a.scattered, a.cached_tokens), (b.attempts, b.scattered, b.cached_tokens));
        prop_assert_eq!((a.shared_steps, a.slack_steps), (b.shared_steps, b.slack_steps));
        prop_assert_eq!((a.decoding_steps, a.spanned_blocks, a.spread_steps), (b.decoding_steps, b.spanned_blocks, b.spread_steps));
        // The empty room in held blocks is at most the held room, also with shared prefixes.
        let most = u128::from(b.steps * b.blocks_peak) * block_size;
        prop_assert!((b.token_steps + b.slack_steps) as i128 + b.spread_steps <= (most + b.shared_steps) as i128);
    }

    /// The engine that only counts blocks takes the decisions of vLLM's own scheduler, which conformance compares with
    /// recordings, and gives equal times to the last tick: with and without steps decided ahead, with and without a
    /// prefix cache, by the rules of both versions.
    #[test]
    fn counting_is_vllms_scheduler(
        workload in workloads(),
        spec in schedulers(),
        caching in any::<bool>(),
        ahead in any::<bool>(),
        newest in any::<bool>(),
        (budget, chunked, whole) in (40_u64..600, any::<bool>(), any::<bool>()),
    ) {
        let spec = EngineSpec {
            scheduler: Some(SchedulerKind::Vllm),
            version: Some(if newest { "0.33.0" } else { "0.32.0" }.to_owned()),
            policy: QueuePolicy::Fcfs,
            reservation: ReservationKind::Max,
            vllm: VllmSpec {
                async_scheduling: Some(ahead),
                ..VllmSpec::default()
            },
            sglang: SglangSpec::default(),
            enable_prefix_caching: Some(caching),
            kv_layout: None,
            tensorrt_llm: TensorrtLlmSpec::default(),
            max_num_batched_tokens: Some(budget),
            enable_chunked_prefill: Some(chunked),
            scheduler_reserve_full_isl: Some(whole),
            ..spec
        };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let mut decided = served(&deployment, &workload, false);
        let mut counted = served(&deployment, &workload, true);
        same(records(&decided), records(&counted));
        same_over_time(&mut decided, &mut counted);
        conserved(&decided, workload.requests.unwrap());
        conserved(&counted, workload.requests.unwrap());
        let (a, b) = (decided.replicas[0].tally(), counted.replicas[0].tally());
        let (a, b) = (format!("{a:#?}"), format!("{b:#?}"));
        let differs = a.lines().zip(b.lines()).find(|(a, b)| a != b);
        prop_assert!(a == b, "{differs:?}");
    }
}

/// Seven sequences decode, so 93 of the budget's 100 tokens are left, and a prompt of 94, which may not be split,
/// waits. All seven end with one step. The next step, decided before their results, has 100 tokens: 94 for this prompt,
/// and one for a prompt of one token that arrived meanwhile.
#[test]
fn an_end_leaves_budget_before_its_results_are_there() {
    let spec = EngineSpec {
        scheduler: Some(SchedulerKind::Vllm),
        version: Some("0.33.0".to_owned()),
        max_num_batched_tokens: Some(100),
        max_num_seqs: Some(10),
        enable_chunked_prefill: Some(false),
        vllm: VllmSpec { async_scheduling: Some(true), ..VllmSpec::default() },
        ..EngineSpec::default()
    };
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\n";
    let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
    let nine = format!("arrival_s,input_len,output_len\n{}0.02,94,5\n0.04,1,5\n", "0,1,30\n".repeat(7));
    workload.load("test", |_| Ok::<_, roofcast::Error>(nine.clone())).unwrap();
    let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
    let (decided, counted) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
    same(records(&decided), records(&counted));
    let first = |id: usize| records(&counted)[id].first_token;
    assert_eq!(first(7), first(8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any number of replicas and any router nothing is lost, and leaping equals stepping.
    #[test]
    fn fleets_lose_nothing(workload in workloads(), replicas in 2_usize..5, kind in 0_usize..9, spec in schedulers()) {
        use Routing::*;
        let routing = [RoundRobin, LeastLoaded, PowerOfTwo, PrefixAware, SessionSticky, DynamoKv, LlmD, CacheAware, Kvaware][kind];
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let serve = |leap: bool| {
            let replica = |_| replica(&deployment, workload.seed, leap).unwrap();
            let results = Results::new(Slo::default(), true, None);
            let ranking = QueueOrder::new(&deployment.engine, workload.seed);
            let router = Router::new(routing, workload.seed).weighing_caches(RoutingSpec::default(), 16);
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

/// Tests walk the list of schedulers, so that it must have every name that a spec can have.
#[test]
fn the_list_of_schedulers_is_whole() {
    let mut names = SchedulerKind::ALL.map(SchedulerKind::name).map(str::to_owned).to_vec();
    names.sort();
    assert_eq!(accepted(&serde_json::from_str::<SchedulerKind>("\"?\"").unwrap_err()), names);
}

/// The defaults in the book are the engine's.
#[test]
fn the_books_defaults_are_the_engines() {
    let book = include_str!("../../../../docs/engine.md");
    for scheduler in SchedulerKind::ALL {
        let name = scheduler.name();
        let spec = EngineSpec { scheduler: Some(scheduler), ..EngineSpec::default() };
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

/// Layouts of the cache that a spec may choose; `None` for the scheduler's own.
const LAYOUTS: [Option<KvLayout>; 5] = [
    None,
    Some(KvLayout::Paged),
    Some(KvLayout::Flashinfer),
    Some(KvLayout::Vattention),
    Some(KvLayout::Contiguous),
];

/// Every combination of settings either serves and loses nothing, or is refused with the key that does not fit.
#[test]
fn every_combination_serves_or_is_refused() {
    let schedulers = SchedulerKind::ALL;
    let arrivals =
        Arrivals::ClosedLoop { concurrency: 6, think_s: None, ramp_s: None, turn_round_s: Some(0.0) };
    let workload = Workload {
        requests: Some(12),
        seed: 1,
        arrivals,
        input_len: Length::Tokens(300),
        output_len: Length::Tokens(40),
        prefix: Some(Prefix { length: 200, count: 2, share: 1.0, skew: 0.0 }),
        images: None,
        adapters: None,
        priorities: Vec::new(),
        classes: Vec::new(),
        max_tokens: None,
        max_concurrency: None,
        recorded: None,
    };
    let (mut served_by, mut refused) = (Vec::new(), 0);
    for case in 0..schedulers.len() * LAYOUTS.len() * 3 * 3 * 2 * 2 {
        let pick = |stride: usize, of: usize| case / stride % of;
        let (scheduler, layout) =
            (schedulers[pick(36, schedulers.len())], LAYOUTS[pick(36 * schedulers.len(), LAYOUTS.len())]);
        let spec = EngineSpec {
            scheduler: Some(scheduler),
            kv_layout: layout,
            reservation: [ReservationKind::Max, ReservationKind::Pow2, ReservationKind::Oracle][pick(1, 3)],
            enable_prefix_caching: [None, Some(false), Some(true)][pick(3, 3)],
            vllm: VllmSpec {
                preemption_mode: [PreemptionMode::Recompute, PreemptionMode::Swap][pick(9, 2)],
                ..VllmSpec::default()
            },
            sglang: SglangSpec {
                schedule_policy: [SchedulePolicy::Fcfs, SchedulePolicy::Lpm][pick(18, 2)],
                ..SglangSpec::default()
            },
            max_model_len: Some(2048),
            ..EngineSpec::default()
        };
        let configured = resolved("meta-llama/Llama-3.1-8B-Instruct", spec)
            .and_then(|deployment| EngineConfig::resolve(&deployment, 1000, false).map(|_| deployment));
        match configured {
            Ok(deployment) => {
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
    // Schedulers by layout: eleven with the default; ten with block tables, which llama.cpp lacks; four with pages of
    // memory; three contiguous.
    let by = |name: &str| served_by.iter().filter(|(_, layout)| *layout == name).count();
    assert_eq!(["", "paged", "flashinfer", "vattention", "contiguous"].map(by), [11, 10, 10, 4, 3]);
    assert!(refused > 1000, "{refused}");
}

/// While `max_num_seqs` requests run, a leap continues past the steps at which requests are received. The test
/// `leaping_is_stepping` found this case.
#[test]
fn a_leap_receives_requests_when_a_step_does() {
    let spec = EngineSpec {
        scheduler: Some(SchedulerKind::Sglang),
        max_num_seqs: Some(4),
        num_gpu_blocks: Some(60),
        block_size: Some(16),
        sglang: SglangSpec { scheduler_recv_interval: Some(4), ..SglangSpec::default() },
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
        images: None,
        adapters: None,
        priorities: Vec::new(),
        classes: Vec::new(),
        max_tokens: None,
        max_concurrency: None,
        recorded: None,
    };
    let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
    let (stepping, leaping) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
    same(records(&stepping), records(&leaping));
}
