//! SGLang's policy: leaping equals stepping for all of its scheduler's features, nothing is lost, every token of the
//! pool is free at the end.

use super::polling::{STEP_MS, near, second};
use super::runs::{conserved, deployment, records, same, same_over_time, served, workloads};
use proptest::prelude::*;
use roofcast::scheduler::sglang::{
    ForwardMode, HiCache, NewRequest, Rules, Scheduler, ServerArgs, Step, Submission,
};
use roofcast::spec::{CostKind, EngineSpec, QueuePolicy, SchedulePolicy, SchedulerKind, SglangSpec};
use roofcast::spec::{RetractionPolicy, WritePolicy};
use roofcast::workload::request::Run;

/// Specs over page sizes, both loops, mixed chunks, whole prompts, retraction, priorities and polling.
pub(super) fn specs(pools: std::ops::Range<u64>) -> impl Strategy<Value = EngineSpec> {
    let sizes = (pools, 1_u64..40, 0_usize..4, 0_usize..3, 0_usize..4);
    let flags = any::<[bool; 6]>();
    (sizes, flags, 0.02_f64..1.2).prop_map(|((pool, seqs, page, order, chunk), flags, conservativeness)| {
        let [overlap, mixed, radix, forecast, old, polled] = flags;
        let page = [1, 4, 16, 64][page];
        let policy = [QueuePolicy::Fcfs, QueuePolicy::Fcfs, QueuePolicy::Sjf][order];
        EngineSpec {
            name: Some("sglang".to_owned()),
            version: Some(if old { "0.5.18" } else { "0.5.23" }.to_owned()),
            scheduler: Some(SchedulerKind::Sglang),
            num_gpu_blocks: Some(pool / page),
            block_size: Some(page),
            max_num_seqs: Some(seqs),
            sglang: SglangSpec {
                chunked_prefill_size: Some([-1, 64, 192, 512][chunk]),
                max_prefill_tokens: Some(300),
                enable_mixed_chunk: Some(mixed),
                schedule_conservativeness: Some(conservativeness),
                prefill_max_requests: (chunk == 2).then_some(3),
                disable_radix_cache: Some(!radix),
                disable_overlap_schedule: Some(!overlap),
                retraction_policy: Some(if old {
                    RetractionPolicy::Priority
                } else {
                    RetractionPolicy::Length
                }),
                schedule_policy: if order == 1 && radix { SchedulePolicy::Lpm } else { SchedulePolicy::Fcfs },
                disable_priority_preemption: (order == 2).then_some(forecast),
                scheduler_recv_interval: (polled && policy == QueuePolicy::Fcfs && !(order == 1 && radix))
                    .then_some(4),
                ..SglangSpec::default()
            },
            policy,
            cost: if forecast { CostKind::Forecast } else { CostKind::Limit },
            ..EngineSpec::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping(workload in workloads(), spec in specs(900..4000), bound in proptest::option::of(1_u64..600), windowed in any::<bool>(), tier in tiers()) {
        let workload = roofcast::workload::Workload { max_tokens: bound, ..workload };
        let name = if windowed { "openai/gpt-oss-20b" } else { "meta-llama/Llama-3.1-8B-Instruct" };
        let tier = tier.filter(|_| !windowed && spec.sglang.disable_radix_cache != Some(true));
        let spec = EngineSpec {
            sglang: SglangSpec {
                enable_hierarchical_cache: tier.map(|_| true),
                hicache_ratio: tier.map(|(pages,
                _)| pages as f64 / 40.0),
                hicache_write_policy: tier.map(|(_,
                policy)| policy),
                ..spec.sglang.clone()
            },
            ..spec
        };
        let deployment = deployment(name, spec);
        let mut stepping = served(&deployment, &workload, false);
        let mut leaping = served(&deployment, &workload, true);
        same_over_time(&mut stepping, &mut leaping);
        same(records(&stepping), records(&leaping));
        conserved(&leaping, workload.requests.unwrap());
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, a.preemptions, a.scheduled_tokens), (b.steps, b.preemptions, b.scheduled_tokens));
        prop_assert_eq!((a.token_steps, a.running_steps, a.blocks_peak), (b.token_steps, b.running_steps, b.blocks_peak));
        prop_assert_eq!((&a.itl, &a.decodes, a.waiting_peak), (&b.itl, &b.decodes, b.waiting_peak));
        prop_assert_eq!((a.idle, a.mixed, a.cached_tokens), (b.idle, b.mixed, b.cached_tokens));
        prop_assert_eq!((a.shared_steps, a.slack_steps, a.spanned_blocks), (b.shared_steps, b.slack_steps, b.spanned_blocks));
        prop_assert_eq!((a.recomputed_tokens, a.idle_tokens, a.decoding_steps), (b.recomputed_tokens, b.idle_tokens, b.decoding_steps));
        prop_assert_eq!((a.loaded_tokens, a.stored_tokens, a.dropped_tokens), (b.loaded_tokens, b.stored_tokens, b.dropped_tokens));
        prop_assert_eq!(a.swapping, b.swapping);
        // Every token of an answer except the first has a gap before it.
        let gaps: u64 = records(&leaping).iter().filter(|r| r.first_token.is_some()).map(|r| r.output_len - 1).sum();
        prop_assert_eq!(b.itl.count(), gaps);
    }
}

fn requests() -> impl Strategy<Value = Vec<(u64, NewRequest)>> {
    let one = (0_u64..60, 1_u64..90, 0_u32..4, 0_u64..60, 1_u64..50, 0_u64..60, any::<bool>(), 0_i64..30);
    proptest::collection::vec(one, 1..60).prop_map(|all| {
        let mut at = 0;
        let each = all.into_iter().enumerate();
        each.map(|(index, (gap, own, segment, shared, output, more, ignore_eos, priority))| {
            at += gap / 20;
            let own_segment = 100 + 2 * index as u32;
            let parts = [
                Run { segment, start: 0, length: shared },
                Run { segment: own_segment, start: 0, length: own },
            ];
            let arrival = NewRequest {
                prompt: parts.into_iter().filter(|run| run.length > 0).collect(),
                output_segment: own_segment + 1,
                output_tokens: None,
                max_new_tokens: if ignore_eos { output } else { output + more },
                output_len: output,
                ignore_eos,
                priority: (priority > 0).then_some(priority),
            };
            (at, arrival)
        })
        .collect()
    })
}

/// A host tier of few or many pages.
fn tiers() -> impl Strategy<Value = Option<(u64, WritePolicy)>> {
    let policies =
        [WritePolicy::WriteThrough, WritePolicy::WriteThroughSelective, WritePolicy::WriteBack].map(Just);
    proptest::option::of((1_u64..100, proptest::strategy::Union::new(policies)))
}

fn configs() -> impl Strategy<Value = ServerArgs> {
    let sizes = (320_u64..900, 2_u64..24, 0_usize..4, 0_usize..4, proptest::option::of(1_u64..4));
    (sizes, any::<[bool; 8]>(), 0.01_f64..1.5, tiers()).prop_map(
        |((pool, rows, page, chunk, most), flags, conservativeness, tier)| {
            let page_size = [1, 2, 16, 64][page];
            let [lpm, mixed, radix, priority, low, still, overlap, by_priority] = flags;
            let chunked_prefill_size = [None, Some(64), Some(128), Some(256)][chunk];
            ServerArgs {
                // SGLang accepts priorities only with the policy fcfs.
                schedule_policy: if lpm && !priority { SchedulePolicy::Lpm } else { SchedulePolicy::Fcfs },
                schedule_conservativeness: conservativeness,
                max_total_tokens: pool,
                max_running_requests: rows,
                max_prefill_tokens: 200,
                chunked_prefill_size,
                enable_mixed_chunk: mixed && chunked_prefill_size.is_some(),
                page_size,
                disable_radix_cache: !radix,
                enable_priority_scheduling: priority,
                schedule_low_priority_values_first: low,
                priority_scheduling_preemption_threshold: 3,
                disable_priority_preemption: still,
                retraction_policy: if by_priority {
                    RetractionPolicy::Priority
                } else {
                    RetractionPolicy::Length
                },
                prefill_max_requests: most,
                disable_overlap_schedule: !overlap,
                hicache: tier
                    .filter(|_| radix)
                    .map(|(pages, write_policy)| HiCache { host_tokens: pages * page_size, write_policy }),
                rules: Rules::NEWEST,
                records: true,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every request ends with all its tokens, in both loops and with every setting; the pool is the sum of free,
    /// cached and held tokens; new requests are blocked only while `batch_is_full` is set; and at the end everything
    /// is free or evictable.
    #[test]
    fn nothing_is_lost(config in configs(), requests in requests()) {
        let mut scheduler = Scheduler::new(config.clone());
        let pool = config.max_total_tokens - config.max_total_tokens % config.page_size;
        let (mut next, mut done, mut sampled) = (0, vec![false; requests.len()], vec![0; requests.len()]);
        let mut pending: Option<Box<Step>> = None;
        let mut under_way: [Vec<u64>; 2] = Default::default();
        let mut loaded = 0;
        let fits = |a: &NewRequest| {
            let input: u64 = a.prompt.iter().map(|run| run.length).sum();
            input + a.max_new_tokens + 2 * config.page_size + 2 < pool
        };
        let requests: Vec<_> = requests.into_iter().filter(|(_, a)| fits(a)).collect();
        for index in 0..40_000_u64 {
            while requests.get(next).is_some_and(|(at, _)| *at <= index) {
                prop_assert_eq!(scheduler.add(requests[next].1.clone()), next);
                next += 1;
            }
            // Copies to the host take two iterations, loads take three.
            while under_way[0].first().is_some_and(|at| at + 2 <= index) {
                under_way[0].remove(0);
                scheduler.stored();
            }
            while under_way[1].first().is_some_and(|at| at + 3 <= index) {
                under_way[1].remove(0);
                scheduler.loaded();
            }
            let step = scheduler.schedule();
            loaded += step.loads.iter().map(|(_, _, tokens)| tokens).sum::<u64>();
            let [available, evictable] = scheduler.kv();
            prop_assert!(available + evictable <= pool && available % config.page_size == 0);
            prop_assert!(step.extends.len() as u64 + step.decodes <= config.max_running_requests.min(config.max_total_tokens / 2));
            prop_assert!(step.extends.iter().all(|e| e.new > 0));
            prop_assert_eq!(step.rows.len() as u64, step.decodes);
            prop_assert!(scheduler.full() || !scheduler.blocked());
            let nothing = step.kind == ForwardMode::Idle;
            let results = if config.disable_overlap_schedule { Some(step) } else { pending.replace(step) };
            if let Some(step) = results {
                let rows = step.rows.clone();
                let results = scheduler.process(&step);
                scheduler.recycle(step);
                results.sampled.iter().for_each(|id| sampled[*id] += 1);
                prop_assert!(results.decoded <= rows.len() as u64);
                for id in results.finished {
                    prop_assert!(!std::mem::replace(&mut done[id], true), "{} ends twice", id);
                }
            }
            for submission in scheduler.take_moves().submitted {
                match submission {
                    Submission::Store(tokens) => {
                        prop_assert!(tokens > 0);
                        under_way[0].push(index);
                    }
                    Submission::Load(tokens) => {
                        loaded -= tokens;
                        under_way[1].push(index);
                    }
                }
            }
            prop_assert_eq!(loaded, 0, "what is loaded is handed to the link in the same pass");
            if let Some([free, ..]) = scheduler.host() {
                prop_assert!(free <= config.hicache.unwrap().host_tokens && free % config.page_size == 0);
            }
            let copies = under_way.iter().any(|under_way| !under_way.is_empty());
            if nothing && next == requests.len() && scheduler.in_flight() == 0 && !copies {
                break;
            }
            prop_assert!(index + 1 < 40_000, "{} wait for ever", scheduler.in_flight());
        }
        prop_assert!(done[..requests.len()].iter().all(|done| *done));
        // Each request has its first token once, and once more after each retraction.
        prop_assert!(sampled[..requests.len()].iter().all(|times| *times > 0));
        let [available, evictable] = scheduler.kv();
        prop_assert_eq!((available + evictable, scheduler.protected()), (pool, 0));
        prop_assert!(config.disable_radix_cache != (evictable > 0) || evictable == 0);
    }
}

/// In the overlap loop a batch is decided while another runs, so a new request waits one batch longer than in the plain
/// loop.
#[test]
fn the_overlap_loop_decides_a_batch_ahead() {
    let plain = EngineSpec {
        scheduler: Some(SchedulerKind::Sglang),
        sglang: SglangSpec { disable_overlap_schedule: Some(true), ..SglangSpec::default() },
        ..EngineSpec::default()
    };
    let overlap = EngineSpec {
        sglang: SglangSpec { disable_overlap_schedule: None, ..plain.sglang.clone() },
        ..plain.clone()
    };
    let wait = |leap| (second(overlap.clone(), 0.006, leap) - second(plain.clone(), 0.006, leap)) / STEP_MS;
    near(wait(true), 1.0);
    assert_eq!(wait(true), wait(false));
}

/// A pool of 1000 tokens and one row. The second request has higher priority and was never a candidate: preemption for
/// it counts only its bound, 98 tokens, which is free. The one row that decodes together with prompts still counts in
/// that pass, so that 900 + 98 + 1 tokens do not fit in 1000 - 1. Nothing runs then, and the next pass admits the
/// request.
#[test]
fn a_pass_that_preempts_all_and_admits_none_is_followed_by_another() {
    for (overlap, leap) in [(false, false), (false, true), (true, false), (true, true)] {
        let engine = EngineSpec {
            scheduler: Some(SchedulerKind::Sglang),
            num_gpu_blocks: Some(1000),
            max_num_seqs: Some(1),
            sglang: SglangSpec {
                enable_mixed_chunk: Some(true),
                disable_priority_preemption: Some(false),
                disable_overlap_schedule: Some(!overlap),
                ..SglangSpec::default()
            },
            policy: QueuePolicy::Sjf,
            cost: CostKind::Limit,
            ..EngineSpec::default()
        };
        let keys = "[workload]\nmax_tokens = 600\narrivals = { kind = \"trace\", path = \"t.csv\" }\n";
        let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
        let two = "arrival_s,input_len,output_len\n0,10,200\n0.05,900,8\n";
        workload.load("test", |_| Ok::<_, roofcast::Error>(two.to_owned())).unwrap();
        let fleet = served(&deployment("meta-llama/Llama-3.1-8B-Instruct", engine), &workload, leap);
        let [first, second] = records(&fleet) else { panic!("two requests") };
        assert_eq!((first.preemptions, second.preemptions), (1, 0));
        assert!(second.finished < first.finished);
        conserved(&fleet, 2);
    }
}

/// Five different prompts of 1000 tokens, one after another and then all again, with a device pool of 2500 tokens and a
/// host pool of 5251. The device holds two and a half prompts, so without a host tier the first prompts of the second
/// round are lost; with it they are on the host. Every token of a prompt is loaded except the last, which has to be
/// computed.
#[test]
fn a_host_tier_keeps_what_leaves_the_device() {
    let engine = EngineSpec {
        scheduler: Some(SchedulerKind::Sglang),
        num_gpu_blocks: Some(2500),
        cost: CostKind::Limit,
        ..EngineSpec::default()
    };
    let tiered = EngineSpec {
        sglang: SglangSpec {
            enable_hierarchical_cache: Some(true),
            hicache_ratio: Some(2.1),
            ..engine.sglang.clone()
        },
        ..engine.clone()
    };
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.jsonl\" }\n";
    let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
    let lines: Vec<String> = (0..10)
        .map(|i| {
            let ids = [i % 5 * 2 + 1, i % 5 * 2 + 2];
            format!(
                "{{\"timestamp\":{},\"input_length\":1000,\"output_length\":2,\"hash_ids\":{ids:?}}}",
                i * 1000
            )
        })
        .collect();
    workload.load("test", |_| Ok::<_, roofcast::Error>(lines.join("\n"))).unwrap();
    let loaded = |engine: EngineSpec| {
        let fleet = served(&deployment("meta-llama/Llama-3.1-8B-Instruct", engine), &workload, true);
        let tally = fleet.replicas[0].tally();
        (tally.cached_tokens, tally.loaded_tokens, tally.swapping > roofcast::clock::Ticks::ZERO)
    };
    assert_eq!(loaded(engine), (0, 0, false));
    let (cached, loaded, waited) = loaded(tiered);
    assert_eq!((cached, loaded, waited), (5 * 999, 5 * 999, true));
}
