//! vLLM's host tier and the storage below it over a run: tokens by tier, bytes within the links' rates, no tier at size 0.

use super::runs::{conserved, deployment, records, same, served, workloads};
use proptest::prelude::*;
use roofcast::clock::Ticks;
use roofcast::engine::Replica;
use roofcast::fleet::Fleet;
use roofcast::spec::{CostKind, EngineSpec, EvictionPolicy, VllmSpec};
use roofcast::workload::Workload;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";
/// Bytes of a token's KV of Llama-3.1-8B: 32 layers, keys and values, 8 heads of 128 elements of 2 bytes.
const TOKEN: f64 = 32.0 * 2.0 * 8.0 * 128.0 * 2.0;
/// GiB of `tokens` tokens.
fn gib(tokens: u64) -> f64 {
    tokens as f64 * TOKEN / f64::from(1 << 30)
}

fn engine(blocks: u64, host_tokens: u64) -> EngineSpec {
    EngineSpec {
        name: Some("vllm".to_owned()),
        num_gpu_blocks: Some(blocks),
        vllm: VllmSpec { kv_offloading_size: Some(gib(host_tokens)), ..VllmSpec::default() },
        enable_prefix_caching: Some(true),
        cost: CostKind::Limit,
        ..EngineSpec::default()
    }
}

/// A trace of prompts of 1024 tokens, one every second; two equal numbers are one prompt.
fn prompts(numbers: &[u64]) -> Workload {
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.jsonl\" }\n";
    let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
    let line = |(at, n): (usize, &u64)| {
        let ids = [2 * n + 1, 2 * n + 2];
        format!(
            "{{\"timestamp\":{},\"input_length\":1024,\"output_length\":2,\"hash_ids\":{ids:?}}}",
            at * 1000
        )
    };
    let lines: Vec<String> = numbers.iter().enumerate().map(line).collect();
    workload.load("test", |_| Ok::<_, roofcast::Error>(lines.join("\n"))).unwrap();
    workload
}

fn replica(fleet: &Fleet) -> &dyn Replica {
    fleet.replicas[0].as_ref()
}

/// Five prompts of 64 blocks, one after another and then all again, with 160 blocks on the device and 320 on the host:
/// when a prompt comes again, other prompts have pushed it off the device, and the host has all of it. All 1024 tokens
/// are loaded, and the last is computed again. Copies reach 0.8 × 63 GB/s of an H100's PCIe 5 link, less than its
/// host's memory (76.8 GB/s): a load takes 1024 × 131,072 bytes / 50.4 GB/s = 2.663 ms.
#[test]
fn a_host_tier_gives_back_what_left_the_device() {
    let twice: Vec<u64> = (0..5).chain(0..5).collect();
    let fleet = served(&deployment(LLAMA, engine(161, 5 * 1024)), &prompts(&twice), true);
    conserved(&fleet, 10);
    let tally = replica(&fleet).tally();
    assert_eq!((tally.cached_tokens, tally.host_hits), (5 * 1023, 5 * 1023));
    assert_eq!((tally.loaded_tokens, tally.stored_tokens), (5 * 1024, 5 * 1024));
    let load_ms = 1024.0 * TOKEN / 50.4e9 * 1e3;
    assert!((tally.loading.ms() / (5.0 * load_ms) - 1.0).abs() < 1e-6, "{}", tally.loading.ms());
    assert!(tally.spared > Ticks::ZERO);
    // A loaded prompt has its first token after the load and the computation of one token.
    let ttft = |index: usize| {
        let record = &records(&fleet)[index];
        (record.first_token.unwrap().0 - record.sent.0) as f64 / 1e9
    };
    assert!(ttft(5) > load_ms && ttft(5) < ttft(0), "{} {}", ttft(5), ttft(0));
}

/// Without the tier nothing is found again; nor is it with room for four of the five prompts, because the least
/// recently used prompt is always the next one.
#[test]
fn a_tier_that_is_too_small_gives_nothing_in_a_circle() {
    let twice: Vec<u64> = (0..5).chain(0..5).collect();
    for host in [0, 4 * 1024] {
        let fleet = served(&deployment(LLAMA, engine(161, host)), &prompts(&twice), true);
        assert_eq!(replica(&fleet).tally().cached_tokens, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Prompt tokens equal hits of all tiers plus computed tokens, no link exceeds its bandwidth, and every request ends.
    #[test]
    fn tokens_and_bytes_are_conserved(
        workload in workloads(),
        (blocks, host) in (60_u64..400, 16_u64..8000),
        (arc, prompts, asynchronous) in any::<(bool, bool, bool)>(),
        threshold in 0_u32..4,
        storage in prop_oneof![Just(0_u64), 16_u64..8000],
    ) {
        let plain = engine(blocks, host.next_multiple_of(16));
        let spec = EngineSpec {
            vllm: VllmSpec {
                kv_offloading_eviction_policy: arc.then_some(EvictionPolicy::Arc),
                kv_offloading_prompt_only: Some(prompts),
                kv_offloading_store_threshold: Some(if storage > 0 { 0 } else { threshold }),
                kv_storage_size: Some(gib(storage.next_multiple_of(16))),
                kv_storage_read_gb_s: Some(5.0),
                async_scheduling: Some(asynchronous),
                ..plain.vllm.clone()
            },
            ..plain
        };
        let fleet = served(&deployment(LLAMA, spec), &workload, true);
        conserved(&fleet, workload.requests.unwrap());
        let tally = replica(&fleet).tally();
        let seconds = replica(&fleet).clock().seconds();
        prop_assert!(tally.host_hits <= tally.cached_tokens && tally.host_hits <= tally.loaded_tokens);
        prop_assert!(tally.storage_hits <= tally.host_hits);
        prop_assert!(tally.storage_hits <= tally.storage_loaded_tokens);
        prop_assert!(tally.storage_stored_tokens <= tally.stored_tokens);
        prop_assert!(tally.storage_loaded_tokens as f64 * TOKEN <= 5e9 * seconds * (1.0 + 1e-9));
        for tokens in [tally.loaded_tokens, tally.stored_tokens] {
            // Stores of the last step may still be in transfer at the end.
            let last = if tokens == tally.stored_tokens { host + 600 } else { 0 };
            prop_assert!(tokens.saturating_sub(last) as f64 * TOKEN <= 50.4e9 * seconds * (1.0 + 1e-9));
        }
    }

    /// A tier of size 0 equals no tier.
    #[test]
    fn no_size_is_no_tier(workload in workloads(), blocks in 60_u64..400) {
        let plain = engine(blocks, 0);
        let tier = |kv_offloading_size| EngineSpec {
            vllm: VllmSpec { kv_offloading_size, ..plain.vllm.clone() },
            ..plain.clone()
        };
        let [with, without] = [Some(0.0), None].map(tier);
        let [a, b] = [with, without].map(|spec| served(&deployment(LLAMA, spec), &workload, true));
        same(records(&a), records(&b));
    }

    /// Inclusion: the content of a least-recently-used tier is contained in a larger one's, so that requests that do
    /// not overlap find at least as much. The device holds one prompt with its answer, 65 blocks, and no prompt follows
    /// itself, so that every hit is the host's: hits on the device leave the order of the host's chunks as it is.
    #[test]
    fn a_larger_tier_finds_no_less(
        mut order in proptest::collection::vec(0_u64..8, 2..30),
        (few, more) in (1_u64..8, 0_u64..4),
    ) {
        order.dedup();
        let found = |prompts_held: u64| {
            let fleet = served(&deployment(LLAMA, engine(66, prompts_held * 1024)), &prompts(&order), true);
            let tally = replica(&fleet).tally();
            assert_eq!(tally.cached_tokens, tally.host_hits);
            tally.cached_tokens
        };
        prop_assert!(found(few) <= found(few + more));
    }
}

/// Sizes of host tiers are choices of a plan with a price: 64 GiB for each of the replicas at 0.01 dollars a GiB and hour
/// cost 0.64 dollars a replica more than none. An H100 costs 3.99.
#[test]
fn a_plan_chooses_among_sizes_of_a_host_tier() {
    let text = "[workload]\nrequests = 200\nseed = 1\ninput_len = 200\noutput_len = 20\n\
                arrivals = { kind = \"constant\", rate = 4.0 }\nprefix = { length = 2000, count = 20 }\n\
                [slo]\nttft_p99_ms = 2000\n\
                [engine]\nname = \"vllm\"\ncost = \"limit\"\nmax_num_batched_tokens = 8192\n\
                [search]\naccelerators = [\"h100-sxm\"]\nmax_accelerators = 2\nrequests = 200\ntp = [1]\nrouters = [\"round_robin\"]\n\
                kv_offloading_size = [0, 64]\nhost_memory_price = 0.01\n";
    let spec = roofcast::Spec::parse("plan.toml", text).unwrap();
    let catalog = roofcast::Catalog::embedded().unwrap();
    let question = roofcast::plan::PlanQuestion { exhaustive: true, ..Default::default() };
    let found = roofcast::plan::plan(&spec, &super::support::model(LLAMA), catalog, &question).unwrap();
    assert_eq!(found.ranked.len(), 4, "{:?}", found.left_out);
    for choice in &found.ranked {
        let gib = choice.host_tier_gib.unwrap_or(0.0);
        let dollars = choice.count as f64 * (3.99 + 0.01 * gib);
        assert!((choice.cost_per_hour.unwrap() - dollars).abs() < 1e-9, "{choice:?}");
        let own = choice.spec["engine"]["vllm"]["kv_offloading_size"].as_float();
        assert_eq!(own, Some(gib));
    }
    let best = found.best.unwrap();
    assert_eq!((best.count, best.host_tier_gib), (1, None));
}

/// The circle of five prompts, with a host tier for two of them and storage for all five: every prompt is found again,
/// most of it in storage. Tokens of all tiers and computed tokens are the prompts' tokens.
///
/// Storage reads 2 GB/s after 1 ms: a prompt of 1024 tokens that lies there alone takes 1 ms + 1024 × 131,072 bytes / 2
/// GB/s = 68.11 ms to the host, and 2.66 ms from there to the device.
#[test]
fn storage_gives_back_what_left_the_host() {
    let twice: Vec<u64> = (0..5).chain(0..5).collect();
    let spec = EngineSpec {
        vllm: VllmSpec {
            kv_storage_size: Some(gib(5 * 1024)),
            kv_storage_read_gb_s: Some(2.0),
            kv_storage_write_gb_s: Some(1.0),
            kv_storage_latency_ms: Some(1.0),
            ..engine(161, 2 * 1024).vllm.clone()
        },
        ..engine(161, 2 * 1024)
    };
    let fleet = served(&deployment(LLAMA, spec), &prompts(&twice), true);
    conserved(&fleet, 10);
    let tally = replica(&fleet).tally();
    assert_eq!((tally.cached_tokens, tally.host_hits, tally.storage_hits), (5 * 1023, 5 * 1023, 5 * 1023));
    assert_eq!((tally.storage_loaded_tokens, tally.storage_stored_tokens), (5 * 1024, 5 * 1024));
    let read_ms = 1.0 + 1024.0 * TOKEN / 2e9 * 1e3;
    assert!(
        (tally.storage_loading.ms() / (5.0 * read_ms) - 1.0).abs() < 1e-6,
        "{}",
        tally.storage_loading.ms()
    );
    let load_ms = 1024.0 * TOKEN / 50.4e9 * 1e3;
    let ttft = |index: usize| {
        let record = &records(&fleet)[index];
        (record.first_token.unwrap().0 - record.sent.0) as f64 / 1e9
    };
    let rest = ttft(5) - read_ms - load_ms;
    assert!((0.0..20.0).contains(&rest), "{} {read_ms} {load_ms}", ttft(5));
}

/// Storage for four of five prompts in a circle gives nothing: the least recently used prompt is always the next one.
/// Storage of size 0 equals no storage.
#[test]
fn storage_that_is_too_small_gives_nothing_in_a_circle() {
    let twice: Vec<u64> = (0..5).chain(0..5).collect();
    for tokens in [0, 4 * 1024] {
        let spec = EngineSpec {
            vllm: VllmSpec { kv_storage_size: Some(gib(tokens)), ..engine(161, 1024).vllm.clone() },
            ..engine(161, 1024)
        };
        let fleet = served(&deployment(LLAMA, spec), &prompts(&twice), true);
        let tally = replica(&fleet).tally();
        assert_eq!((tally.cached_tokens, tally.storage_loaded_tokens), (0, 0), "{tokens}");
    }
}

/// Without asynchronous scheduling the circle of five prompts is loaded and counted as with it: all 1024 tokens of a
/// prompt are loaded, and the last is computed again.
#[test]
fn both_loops_compute_the_last_loaded_token() {
    let twice: Vec<u64> = (0..5).chain(0..5).collect();
    let plain = engine(161, 5 * 1024);
    let vllm = VllmSpec { async_scheduling: Some(false), ..plain.vllm.clone() };
    let spec = EngineSpec { vllm, ..plain };
    let fleet = served(&deployment(LLAMA, spec), &prompts(&twice), true);
    conserved(&fleet, 10);
    let tally = replica(&fleet).tally();
    assert_eq!((tally.cached_tokens, tally.host_hits), (5 * 1023, 5 * 1023));
    assert_eq!((tally.loaded_tokens, tally.stored_tokens), (5 * 1024, 5 * 1024));
}
