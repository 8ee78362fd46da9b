//! The engine driven by arriving requests behaves as the engine of a simulation.

use super::runs::{deployment, records, served};
use super::sglang;
use proptest::prelude::*;
use roofcast::Forecaster;
use roofcast::clock::Ticks;
use roofcast::engine::online::{Done, Event, Online, OnlineRequest};
use roofcast::record::Record;
use roofcast::spec::{CostKind, EngineSpec, QueuePolicy, SchedulerKind, VllmSpec};
use roofcast::workload::{Arrivals, Length, LengthKind, Prefix, Prompt, Request, Traffic, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";

/// Converts a request to tokens: a shared segment has the segment's tokens, all other tokens are unique to the request.
fn asked(number: u64, request: &Request) -> OnlineRequest {
    let shared = match &request.prompt {
        Prompt::Shared { segment, length } => (*segment, *length),
        _ => (0, 0),
    };
    let own = |position: u32| (1 << 31) + (number as u32) * 4096 + position;
    let token = |position: u32| {
        if position < shared.1 { shared.0 * 4096 + position } else { own(position) }
    };
    OnlineRequest {
        number,
        at: Ticks::from(request.at),
        prompt: (0..request.input_len).map(token).collect(),
        output: (request.input_len..request.input_len + request.output_len).map(own).collect(),
        max_tokens: request.max_tokens.unwrap_or(request.output_len).into(),
        ignore_eos: request.max_tokens.is_none(),
        priority: request.priority.into(),
        transferred: 0,
        adapter: 0,
        id_slot: None,
    }
}

/// Fate of a request: times of its first and last token, number of preemptions, cached tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Life {
    first: Ticks,
    end: Ticks,
    tokens: u64,
    preemptions: u64,
    cached: u64,
}

/// Drives an engine as a server does: requests that arrive during a step are handed over before the next step.
fn driven(
    online: &mut Online,
    mut coming: Vec<OnlineRequest>,
    aborted: impl Fn(u64, u64) -> bool,
) -> Vec<Life> {
    let mut lives = vec![Life::default(); coming.len()];
    coming.reverse();
    let mut events = Vec::new();
    let mut here = BTreeMap::new();
    loop {
        while coming.last().is_some_and(|next| online.is_empty() || next.at <= online.clock()) {
            let next = coming.pop().unwrap();
            if !online.serves(&next) {
                continue;
            }
            here.insert(next.number, 0);
            online.arrive(&next);
        }
        let Some(done) = online.step(&mut events) else { break };
        for event in events.drain(..) {
            match event {
                Event::Admitted { number, cached, resumed: false, .. } => {
                    lives[number as usize].cached = cached
                }
                Event::Admitted { .. } => {}
                Event::Preempted { number } => lives[number as usize].preemptions += 1,
                Event::Sampled { number, tokens } => {
                    let life = &mut lives[number as usize];
                    life.first = if life.tokens == 0 { done.end } else { life.first };
                    life.tokens += tokens;
                    life.end = done.end;
                }
                Event::Finished { number } => _ = here.remove(&number),
            }
        }
        let levels = online.levels();
        assert_eq!(levels.running + levels.waiting, here.len() as u64);
        let leaving: Vec<u64> =
            here.keys().copied().filter(|n| aborted(*n, lives[*n as usize].tokens)).collect();
        for number in leaving {
            assert!(online.abort(number) && !online.abort(number));
            here.remove(&number);
        }
    }
    assert!(here.is_empty() && online.levels().blocks == 0);
    lives
}

fn engines() -> impl Strategy<Value = EngineSpec> {
    (9_u64..60, 1_u64..40, 16_u64..300, any::<bool>(), 0..4).prop_map(
        |(blocks, seqs, budget, caching, kind)| EngineSpec {
            scheduler: Some(SchedulerKind::Vllm),
            num_gpu_blocks: Some(blocks),
            max_num_seqs: Some(seqs.min(budget)),
            max_num_batched_tokens: Some(budget),
            enable_prefix_caching: Some(caching),
            policy: if kind == 1 { QueuePolicy::Priority } else { QueuePolicy::Fcfs },
            vllm: VllmSpec {
                async_scheduling: (kind == 2).then_some(false),
                long_prefill_token_threshold: (kind == 3).then_some(20),
                ..VllmSpec::default()
            },
            ..EngineSpec::default()
        },
    )
}

/// Requests of up to 120 + 60 tokens for caches of 128 tokens and more: nearly all are served, and preemptions are
/// frequent.
fn workloads() -> impl Strategy<Value = Workload> {
    let prefix = (1_u64..60, 1_u64..4, 0.0_f64..1.0).prop_map(|(length, count, share)| Prefix {
        length,
        count,
        share,
        skew: 0.0,
    });
    (1_u64..40, any::<u64>(), 1.0_f64..300.0, proptest::option::of(prefix)).prop_map(
        |(requests, seed, rate, prefix)| Workload {
            requests: Some(requests),
            seed,
            arrivals: Arrivals::Poisson { rate },
            input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 60 }),
            output_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 60 }),
            prefix,
            images: None,
            adapters: None,
            priorities: vec![1.0, 1.0],
            classes: Vec::new(),
            max_tokens: None,
            max_concurrency: None,
            recorded: None,
        },
    )
}

fn all(workload: &Workload) -> Vec<OnlineRequest> {
    let mut traffic = Traffic::new(workload, "test").unwrap();
    std::iter::from_fn(|| traffic.next()).zip(0..).map(|(request, number)| asked(number, &request)).collect()
}

/// SGLang's engines, over page sizes, both loops, mixed chunks, retraction and priorities.
fn sglang_engines() -> impl Strategy<Value = EngineSpec> {
    sglang::specs(150..900).prop_map(|spec| {
        let ranked = spec.policy == QueuePolicy::Sjf;
        EngineSpec { policy: if ranked { QueuePolicy::Priority } else { QueuePolicy::Fcfs }, ..spec }
    })
}

/// Asserts that requests with real tokens, handed over as they arrive, meet the fate that a simulation forecasts, to
/// the tick.
fn simulated(engine: EngineSpec, workload: &Workload) -> Result<(), TestCaseError> {
    let deployment = deployment(MODEL, engine);
    let mut online =
        Online::new(&Forecaster::embedded(deployment.clone()).unwrap(), 1000, workload.seed).unwrap();
    let lives = driven(&mut online, all(workload), |_, _| false);
    let fleet = served(&deployment, workload, false);
    let forecast = |r: &Record| {
        let ended = r.first_token.map(|first| (first, r.finished));
        (ended, r.output_len, r.preemptions, r.cached_tokens)
    };
    let lived = |l: &Life| {
        (
            (l.tokens > 0).then(|| (l.first.picoseconds(), l.end.picoseconds())),
            l.tokens,
            l.preemptions,
            l.cached,
        )
    };
    let forecast: Vec<_> = records(&fleet).iter().map(forecast).collect();
    prop_assert_eq!(forecast, lives.iter().map(lived).collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn online_is_simulated(engine in engines(), workload in workloads()) {
        simulated(engine, &workload)?;
    }

    #[test]
    fn sglang_online_is_simulated(engine in sglang_engines(), workload in workloads(), bound in proptest::option::of(1_u64..200)) {
        simulated(engine, &Workload { max_tokens: bound, ..workload })?;
    }

    /// Aborted requests leave nothing behind: the others get all their tokens, and every block is free at the end.
    #[test]
    fn aborted_requests_leave_nothing_behind(engine in prop_oneof![engines(), sglang_engines()], workload in workloads(), every in 1_u64..4) {
        let deployment = deployment(MODEL, engine);
        let mut online = Online::new(&Forecaster::embedded(deployment).unwrap(), 1000, 0).unwrap();
        let coming = all(&workload);
        let served = |a: &OnlineRequest| online.serves(a);
        let lengths: Vec<u64> = coming.iter().map(|a| if served(a) { a.output.len() as u64 } else { 0 }).collect();
        let leaves = |number: u64, tokens: u64| number.is_multiple_of(every) && tokens >= number % 7;
        let lives = driven(&mut online, coming, leaves);
        for (number, (life, length)) in (0_u64..).zip(lives.iter().zip(&lengths)) {
            prop_assert!(life.tokens == *length || (number.is_multiple_of(every) && life.tokens <= *length));
        }
    }
}

/// A second turn repeats the first turn's prompt and answer. Of 40 + 24 tokens, 63 were computed (the last generated
/// token never is), which fill 3 blocks of 16: 48 tokens are found. SGLang's tree finds all 63.
#[test]
fn answers_are_found_in_the_next_turns_prompt() {
    let turn = |number, at, prompt: Vec<u32>, output: std::ops::Range<u32>| OnlineRequest {
        number,
        at: Ticks::from(roofcast::units::Picoseconds(at)),
        prompt: Arc::from(prompt),
        output: output.collect(),
        max_tokens: 10,
        ignore_eos: false,
        priority: 0,
        transferred: 0,
        adapter: 0,
        id_slot: None,
    };
    let coming =
        vec![turn(0, 0, (0..40).collect(), 40..64), turn(1, 10_000_000_000_000, (0..80).collect(), 80..90)];
    let cached = |engine| {
        let lives = driven(&mut online(engine), coming.clone(), |_, _| false);
        lives.iter().map(|l| l.cached).collect::<Vec<_>>()
    };
    assert_eq!(cached(EngineSpec::default()), [0, 48]);
    assert_eq!(cached(EngineSpec { name: Some("sglang".into()), ..EngineSpec::default() }), [0, 63]);
}

fn online(engine: EngineSpec) -> Online {
    Online::new(&Forecaster::embedded(deployment(MODEL, engine)).unwrap(), 1000, 0).unwrap()
}

fn ten_tokens(number: u64, prompt: u32) -> OnlineRequest {
    OnlineRequest {
        number,
        at: Ticks::ZERO,
        prompt: (0..prompt).collect(),
        output: (0..10).collect(),
        max_tokens: 10,
        ignore_eos: false,
        priority: 0,
        transferred: 0,
        adapter: 0,
        id_slot: None,
    }
}

/// A prompt of 1000 tokens whose KV cache another instance computed computes only its last token here: 1 + 9 decoded
/// are 10 tokens, against 1009 without the transfer, and its first token is earlier.
#[test]
fn what_came_from_elsewhere_is_not_computed() {
    let run = |transferred: u64| {
        let mut online = online(EngineSpec::default());
        let mut events = Vec::new();
        online.arrive(&OnlineRequest { transferred, ..ten_tokens(0, 1000) });
        let mut tokens = 0;
        let mut first = None;
        while let Some(done) = online.step(&mut events) {
            tokens += done.tokens;
            first = first.or(events.iter().any(|e| matches!(e, Event::Sampled { .. })).then_some(done.end));
        }
        (tokens, first.unwrap())
    };
    let (own, given) = (run(0), run(1000));
    assert_eq!((own.0, given.0), (1009, 10));
    assert!(given.1 < own.1, "{given:?} after {own:?}");
}

/// Two requests with equal tokens, one after the other: the second finds the first's blocks only if both use one
/// adapter.
#[test]
fn adapters_share_no_blocks() {
    let cached = |adapters: [u32; 2]| {
        let mut online = online(EngineSpec::default());
        let mut events = Vec::new();
        for (number, adapter) in (0..).zip(adapters) {
            online.arrive(&OnlineRequest { adapter, ..ten_tokens(number, 64) });
            while online.step(&mut events).is_some() {}
        }
        let admitted = |event: &Event| match *event {
            Event::Admitted { number: 1, cached, .. } => Some(cached),
            _ => None,
        };
        events.iter().find_map(admitted).unwrap()
    };
    // 64 tokens are four blocks of 16; the last block is computed again because of its last token.
    assert_eq!([[0, 0], [3, 3], [0, 3], [2, 3]].map(cached), [48, 48, 0, 0]);
}

/// Two requests that arrive together after a pause are both in the first step. With asynchronous scheduling the first
/// step's results arrive with the decision of the second.
#[test]
fn requests_at_once_are_in_one_step() {
    let second = Ticks::from(roofcast::units::Picoseconds(1_000_000_000_000));
    for ahead in [None, Some(false)] {
        let mut online = online(EngineSpec {
            vllm: VllmSpec { async_scheduling: ahead, ..VllmSpec::default() },
            ..EngineSpec::default()
        });
        online.arrive(&OnlineRequest { at: second, ..ten_tokens(0, 64) });
        assert_eq!(online.clock(), second);
        online.arrive(&OnlineRequest { at: second, ..ten_tokens(1, 64) });
        if ahead.is_none() {
            assert_eq!(online.step(&mut Vec::new()).unwrap(), Done { end: second, tokens: 0 });
        }
        // Three blocks of the second request's 64 tokens are the first's, so 64 + 16 tokens are computed.
        assert_eq!(online.step(&mut Vec::new()).unwrap().tokens, 80);
        assert!(online.clock() > second);
    }
}

/// With one slot for adapters, requests for a second adapter wait, while requests for the first adapter and without an
/// adapter run.
#[test]
fn adapters_wait_for_a_slot() {
    let vllm = VllmSpec { enable_lora: Some(true), ..VllmSpec::default() };
    let mut online = online(EngineSpec { vllm, ..EngineSpec::default() });
    for (number, adapter) in [(0, 1), (1, 2), (2, 1), (3, 0)] {
        online.arrive(&OnlineRequest { adapter, ..ten_tokens(number, 8) });
    }
    let mut events = Vec::new();
    online.step(&mut events).unwrap();
    let admitted = |event: &Event| match *event {
        Event::Admitted { number, .. } => Some(number),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(admitted).collect::<Vec<_>>(), [0, 2, 3]);
    while online.step(&mut events).is_some() {}
    assert_eq!(events.iter().filter_map(admitted).collect::<Vec<_>>(), [0, 2, 3, 1]);
}

/// For each rank of an adapter, a layer of Llama-3.1-8B has 81,920 inputs and outputs: q and o 4096 + 4096, k and v
/// 4096 + 1024, gate, up and down 4096 + 14,336. With rank 16 in 32 layers these are 41.9 million weights, 83.9 MB,
/// which take 25.04 µs to read at 3.35 TB/s, once for each adapter in a step; 1000 tokens compute 83.9 GFLOP, which
/// takes 84.8 µs at 989.4 TFLOP/s. The first step of each adapter waits until it is read from storage at 10 GB/s and
/// copied at 0.8 × 63 GB/s.
#[test]
fn adapters_take_time() {
    let vllm = VllmSpec { enable_lora: Some(true), max_loras: Some(2), ..VllmSpec::default() };
    let time = |adapters: &[u32], prompt: u32| {
        let mut online =
            online(EngineSpec { cost: CostKind::Limit, vllm: vllm.clone(), ..EngineSpec::default() });
        for (number, adapter) in (0..).zip(adapters) {
            online.arrive(&OnlineRequest { adapter: *adapter, ..ten_tokens(number, prompt) });
        }
        while online.step(&mut Vec::new()).is_some() {}
        online.clock().picoseconds().seconds()
    };
    let weights = 81_920.0 * 16.0 * 32.0;
    let (reading, computing) = (2.0 * weights / 3.35e12, 2.0 * weights / 989.4e12);
    let load = 2.0 * weights / 10e9 + 2.0 * weights / 50.4e9;
    // One step computes all prompts, then each request decodes in nine steps.
    for (adapters, prompt, expected) in [
        (&[1][..], 8, 10.0 * reading + load),
        (&[1, 0], 8, 10.0 * reading + load),
        (&[1, 1], 8, 10.0 * reading + load),
        (&[1, 2], 8, 20.0 * reading + 2.0 * load),
        (&[1], 1000, 1000.0 * computing + 9.0 * reading + load),
    ] {
        let without = vec![0; adapters.len()];
        let longer = time(adapters, prompt) - time(&without, prompt);
        assert!((longer / expected - 1.0).abs() < 1e-6, "{adapters:?}: {longer} for {expected}");
    }
}

/// An engine without requests empties its prefix cache on demand; an engine with requests does not.
#[test]
fn a_cache_is_emptied_on_demand() {
    let mut online = online(EngineSpec::default());
    let mut events = Vec::new();
    online.arrive(&ten_tokens(0, 64));
    online.step(&mut events).unwrap();
    assert!(!online.flush());
    while online.step(&mut events).is_some() {}
    assert!(online.flush());
    events.clear();
    online.arrive(&ten_tokens(1, 64));
    while online.step(&mut events).is_some() {}
    assert!(events.contains(&Event::Admitted { number: 1, cached: 0, loaded: 0, resumed: false }));
    assert_eq!(online.levels().blocks, 0);
}
