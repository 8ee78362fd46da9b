//! Leaps of the engine that identifies every block: with a host tier, storage, adapters, priorities, bounded and
//! held prompts the steps that are taken at once give the answers of single steps.

use super::runs::{conserved, deployment, records, same, same_over_time, served, workloads};
use proptest::prelude::*;
use roofcast::Deployment;
use roofcast::fleet::Fleet;
use roofcast::spec::{CostKind, EngineSpec, EvictionPolicy, QueuePolicy, VllmSpec};
use roofcast::workload::{Adapters, Workload};

/// GiB of `tokens` tokens of Llama-3.1-8B's KV, 131,072 bytes each.
fn gib(tokens: u64) -> f64 {
    tokens as f64 * 131_072.0 / f64::from(1 << 30)
}

/// Runs of equal requests on a replica that takes every step singly and on one that leaps, compared in every counter.
pub(super) fn compare(deployment: &Deployment, workload: &Workload) -> Fleet {
    let [mut stepping, mut leaping] = [false, true].map(|leap| served(deployment, workload, leap));
    same_over_time(&mut stepping, &mut leaping);
    same(records(&stepping), records(&leaping));
    conserved(&leaping, workload.requests.unwrap());
    let [a, b] = [&stepping, &leaping].map(|fleet| format!("{:?}", fleet.replicas[0].tally()));
    assert_eq!(a, b);
    leaping
}

/// A host tier, perhaps with storage below it.
fn tiers() -> impl Strategy<Value = VllmSpec> {
    let sizes = (16_u64..8000, prop_oneof![3 => Just(0_u64), 1 => 16_u64..8000]);
    (sizes, any::<(bool, bool)>(), 0_u32..4).prop_map(|((host, storage), (arc, prompts), threshold)| {
        VllmSpec {
            kv_offloading_size: Some(gib(host.next_multiple_of(16))),
            kv_offloading_eviction_policy: arc.then_some(EvictionPolicy::Arc),
            kv_offloading_prompt_only: Some(prompts),
            kv_offloading_store_threshold: Some(if storage > 0 { 0 } else { threshold }),
            kv_storage_size: Some(gib(storage.next_multiple_of(16))),
            ..VllmSpec::default()
        }
    })
}

fn adapters() -> impl Strategy<Value = VllmSpec> {
    (1_u64..5, 0_u64..5).prop_map(|(most, host)| VllmSpec {
        enable_lora: Some(true),
        max_loras: Some(most),
        max_cpu_loras: Some(most + host),
        ..VllmSpec::default()
    })
}

fn bounded() -> impl Strategy<Value = VllmSpec> {
    (20_u64..200)
        .prop_map(|tokens| VllmSpec { long_prefill_token_threshold: Some(tokens), ..VllmSpec::default() })
}

fn held() -> impl Strategy<Value = VllmSpec> {
    (2_u64..12).prop_map(|steps| VllmSpec { prefill_schedule_interval: Some(steps), ..VllmSpec::default() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_by_block_is_stepping(
        workload in workloads(),
        vllm in prop_oneof![4 => tiers(), 2 => adapters(), 1 => bounded(), 1 => held(), 1 => Just(VllmSpec::default())],
        (blocks, seqs, caching) in (60_u64..400, 1_u64..40, any::<bool>()),
        (asynchronous, limit, drawn) in any::<(bool, bool, bool)>(),
    ) {
        let tiered = vllm.kv_offloading_size.is_some();
        let adapted = vllm.enable_lora == Some(true);
        let ordered = !tiered && (!adapted || drawn);
        let spec = EngineSpec {
            num_gpu_blocks: Some(blocks),
            max_num_seqs: Some(seqs),
            enable_prefix_caching: Some(caching || tiered),
            policy: if ordered { QueuePolicy::Priority } else { QueuePolicy::Fcfs },
            cost: if limit { CostKind::Limit } else { CostKind::Forecast },
            vllm: VllmSpec { async_scheduling: Some(asynchronous), ..vllm },
            ..EngineSpec::default()
        };
        let workload = Workload {
            adapters: adapted.then_some(Adapters { count: 6, share: 0.7, skew: 1.0 }),
            priorities: if ordered { vec![1.0, 2.0, 1.0] } else { Vec::new() },
            ..workload
        };
        // gpt-oss-20b has layers with a window of 128 tokens.
        let name = if drawn && !adapted && !tiered { "openai/gpt-oss-20b" } else { "meta-llama/Llama-3.1-8B-Instruct" };
        compare(&deployment(name, spec), &workload);
    }
}
