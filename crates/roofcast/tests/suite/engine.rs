//! The engine: leaping is stepping, counting is vLLM block by block, and nothing is lost.

use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::cost::{Utilization, cost};
use roofcast::deployment::{Deployment, Options};
use roofcast::engine;
use roofcast::fleet::{Fleet, Ranking};
use roofcast::operator::Batch;
use roofcast::record::Record;
use roofcast::router::{Router, Routing};
use roofcast::simulate::{self, results::Results};
use roofcast::spec::{
    CostKind, EngineSpec, PreemptionMode, QueuePolicy, ReservationKind, SchedulerKind, Slo,
};
use roofcast::workload::{Arrivals, Length, LengthKind, Prefix, Traffic, Workload};
use std::sync::Arc;

fn deployment(name: &str, engine: EngineSpec) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    Deployment::resolve(model(name), accelerator, &Options { engine, ..Options::default() }).unwrap()
}

fn served(deployment: &Deployment, workload: &Workload, leap: bool) -> Fleet {
    let spec = &deployment.options.engine;
    let replica = engine::replica(deployment, 1000, false, leap).unwrap();
    let results = Results::new(Slo::default(), true, None);
    let router = Router::new(Routing::RoundRobin, 0);
    let mut fleet = Fleet::new(vec![replica], router, Ranking::new(spec, workload.seed), results);
    fleet.serve(&mut Traffic::new(workload, "test").unwrap()).unwrap();
    fleet
}

fn records(fleet: &Fleet) -> &[Record] {
    fleet.results.records.as_ref().unwrap()
}

/// The first record in which two runs differ.
fn same(ours: &[Record], theirs: &[Record]) {
    assert_eq!(ours.len(), theirs.len());
    if let Some((a, b)) = ours.iter().zip(theirs).find(|(a, b)| a != b) {
        panic!("{}\n{}", a.to_line(), b.to_line());
    }
}

/// Nothing is lost, nothing ends twice, every token is paid for.
fn conserved(fleet: &Fleet, requests: u64) {
    let (records, replica) = (records(fleet), &fleet.replicas[0]);
    assert!(records.iter().map(|r| r.id).eq(0..requests));
    assert_eq!(fleet.results.completed + fleet.results.refused, requests);
    let served = |r: &Record| r.first_token.map_or(0, |_| r.input_len + r.output_len - 1);
    let tally = replica.tally();
    assert_eq!(
        tally.scheduled_tokens + tally.cached_tokens,
        records.iter().map(served).sum::<u64>() + tally.recomputed_tokens + tally.idle_tokens
    );
    for record in records.iter().filter(|r| r.first_token.is_some()) {
        let first = record.first_token.unwrap();
        assert!(record.sent < first && first <= record.finished, "{}", record.to_line());
    }
    assert!(replica.is_empty());
}

fn workloads() -> impl Strategy<Value = Workload> {
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
        },
    )
}

fn schedulers() -> impl Strategy<Value = EngineSpec> {
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
            _ => 16,
        };
        EngineSpec {
            scheduler,
            num_gpu_blocks: Some(if size == 1 { blocks * 16 } else { blocks }),
            block_size: Some(size),
            max_num_seqs: Some(seqs),
            max_num_batched_tokens: plain.then_some(budget),
            enable_chunked_prefill: (scheduler == Vllm).then_some(flag),
            enable_prefix_caching: (scheduler == Vllm).then_some(order > 0),
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
            cost: if flag { CostKind::Forecast } else { CostKind::Limit },
            ..EngineSpec::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping(workload in workloads(), spec in schedulers(), windowed in any::<bool>()) {
        let name = if windowed { "openai/gpt-oss-20b" } else { "meta-llama/Llama-3.1-8B-Instruct" };
        let deployment = deployment(name, spec);
        let stepping = served(&deployment, &workload, false);
        let leaping = served(&deployment, &workload, true);
        same(records(&stepping), records(&leaping));
        conserved(&leaping, workload.requests.unwrap());
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, a.preemptions, a.scheduled_tokens), (b.steps, b.preemptions, b.scheduled_tokens));
        prop_assert_eq!((a.token_steps, a.running_steps, a.blocks_peak), (b.token_steps, b.running_steps, b.blocks_peak));
        prop_assert_eq!((&a.itl, &a.decodes, a.waiting_peak), (&b.itl, &b.decodes, b.waiting_peak));
        prop_assert_eq!((a.idle, a.swapping, a.mixed), (b.idle, b.swapping, b.mixed));
    }

    /// The engine that counts takes the decisions of the scheduler that is held to vLLM's own traces, with and without a
    /// prefix cache. A threshold beyond every prompt changes nothing, but makes it run block by block.
    #[test]
    fn counting_is_vllm_block_by_block(workload in workloads(), spec in schedulers(), caching in any::<bool>()) {
        let spec = EngineSpec { scheduler: SchedulerKind::Vllm, policy: QueuePolicy::Fcfs, reservation: ReservationKind::Max,
            preemption_mode: PreemptionMode::Recompute, enable_prefix_caching: Some(caching), ..spec };
        let asked = EngineSpec { long_prefill_token_threshold: Some(1 << 20), ..spec.clone() };
        let name = "meta-llama/Llama-3.1-8B-Instruct";
        let counted = served(&deployment(name, spec), &workload, true);
        let blocks = served(&deployment(name, asked), &workload, true);
        let cached = |fleet: &Fleet| fleet.replicas[0].tally().cached_tokens;
        prop_assert_eq!(cached(&counted), cached(&blocks));
        conserved(&blocks, workload.requests.unwrap());
        prop_assert_eq!(records(&counted).len(), records(&blocks).len());
        for (a, b) in records(&counted).iter().zip(records(&blocks)) {
            // A preempted request whose last piece is one token is a decode here and a piece there: the same work, whose
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
    for (name, chip, tp) in [
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", 1),
        ("deepseek-ai/DeepSeek-V3", "h200-sxm", 8),
        ("openai/gpt-oss-120b", "h100-sxm", 2),
    ] {
        let text = format!(
            "[model]\nname = \"{name}\"\n[hardware]\naccelerator = \"{chip}\"\n[parallelism]\ntp = {tp}\n\
             [engine]\ncost = \"limit\"\n[workload]\nrequests = 1\ninput_len = 1000\noutput_len = 200\n\
             arrivals = {{ kind = \"constant\", rate = 1.0 }}\n"
        );
        let spec = roofcast::Spec::parse("test", &text).unwrap();
        let accelerator = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let deployment = Deployment::resolve(model(name), accelerator, &Options::of(&spec)).unwrap();
        let one = |batch: Batch| cost(&deployment, &batch, Utilization::FULL).limit_with_communication.ms();
        let prompt = one(Batch::prefill(1, 1000));
        // The second token is computed with 1001 tokens of context, the last of the 200 with 1199.
        let decodes: f64 = (1001..=1199).map(|context| one(Batch::decode(1, context))).sum();
        let options = simulate::Options { leap: true, records: false };
        let run = simulate::simulate(&deployment, &spec, "test", options).unwrap().summary;
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-6;
        assert!(close(run.ttft.mean, prompt), "{name}: {} against {prompt}", run.ttft.mean);
        assert!(close(run.e2el.mean, prompt + decodes), "{name}: {} {}", run.e2el.mean, prompt + decodes);
        assert!(close(run.tpot.mean, decodes / 199.0), "{name}");
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
            let replica = |_| engine::replica(&deployment, 1000, false, leap).unwrap();
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
