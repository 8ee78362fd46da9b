//! The invariants of the cost model, over random models, machines and batches. A failing case is printed with its seed.

use crate::support::catalog;
use proptest::prelude::*;
use roofcast::batch::Batch;
use roofcast::cost::{Utilization, cost, limit};
use roofcast::deployment::DeploymentOptions;
use roofcast::memory::{self, Memory};
use roofcast::model::{OperatorKind, config};
use roofcast::parallelism::RequestedParallelism;
use roofcast::units::{ByteRate, Bytes, FlopRate};
use roofcast::{Deployment, Forecaster, Model};
use serde_json::json;
use std::sync::Arc;

const CHIPS: [&str; 6] = ["h100-sxm", "rtx-4090", "mi300x", "tpu-v5e", "v100-32gb", "l40s"];

/// A random dense, expert or latent-attention model.
fn models() -> impl Strategy<Value = Arc<Model>> {
    let sizes = (1..12_u64, 0..4_u32, 0..4_u32, 1..8_u64, 0..3_u8, any::<bool>());
    sizes.prop_map(|(layers, heads, groups, width, kind, tied)| {
        let heads = 8_u64 << heads;
        let mut config = json!({
            "model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": heads >> groups.min(3), "head_dim": 64, "hidden_size": 64 * heads,
            "intermediate_size": 256 * width, "vocab_size": 1000 * width, "tie_word_embeddings": tied,
        });
        let more = match kind {
            0 => json!({}),
            1 => json!({"model_type": "qwen3_moe", "num_experts": 8 * width, "num_experts_per_tok": 2, "moe_intermediate_size": 128}),
            _ => json!({"model_type": "deepseek_v3", "kv_lora_rank": 64 * width, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}),
        };
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Arc::new(config::read("random", "random", &config).unwrap())
    })
}

fn deployments() -> impl Strategy<Value = Deployment> {
    (models(), 0..CHIPS.len(), 0..4_u32).prop_map(|(model, chip, tp)| {
        let chip = Arc::new(catalog().accelerator(CHIPS[chip]).unwrap().clone());
        let parallelism = RequestedParallelism { tp: Some(1 << tp), ..RequestedParallelism::default() };
        Deployment::resolve(model, chip, &DeploymentOptions { parallelism, ..DeploymentOptions::default() })
            .unwrap()
    })
}

fn batches() -> impl Strategy<Value = Batch> {
    (1..300_u64, 1..9000_u64, any::<bool>()).prop_map(|(n, tokens, decode)| {
        if decode { Batch::decode(n, tokens) } else { Batch::prefill(n, tokens) }
    })
}

/// The deployment on an accelerator with scaled memory bandwidth and compute rate.
fn faster(d: &Deployment, memory: f64, compute: f64) -> Deployment {
    let mut chip = (*d.accelerator).clone();
    chip.bandwidth_bytes_per_s = ByteRate(chip.bandwidth_bytes_per_s.0 * memory);
    for rate in chip.peak_flops.values_mut() {
        *rate = FlopRate(rate.0 * compute);
    }
    d.on(Arc::new(chip)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_forecast_beats_its_limit(d in deployments(), batch in batches()) {
        let cost = cost(&Forecaster::embedded(d.clone()).unwrap(), &batch, Utilization::FULL);
        prop_assert!(cost.forecast >= cost.limit_with_communication);
        prop_assert!(cost.limit_with_communication >= cost.limit);
    }

    #[test]
    fn a_faster_machine_is_never_slower(d in deployments(), batch in batches(), m in 1.0..4.0_f64, c in 1.0..4.0_f64) {
        let before = cost(&Forecaster::embedded(d.clone()).unwrap(), &batch, Utilization::FULL);
        let after = cost(&Forecaster::embedded(faster(&d, m, c)).unwrap(), &batch, Utilization::FULL);
        prop_assert!(after.limit <= before.limit);
        prop_assert!(after.forecast <= before.forecast);
    }

    #[test]
    fn the_limit_lies_between_its_longest_term_and_their_sum(d in deployments(), batch in batches()) {
        let c = cost(&Forecaster::embedded(d.clone()).unwrap(), &batch, Utilization::FULL);
        // Each term of an operator is rounded to a picosecond.
        let slack = 1e-9 * 10_000.0;
        let longest = c.terms.flops.ms().max((c.terms.weights + c.terms.kv).ms());
        prop_assert!(c.limit.ms() >= longest - slack, "{} < {longest}", c.limit.ms());
        prop_assert!(c.limit.ms() <= (c.terms.flops + c.terms.weights + c.terms.kv).ms() + slack);
    }

    #[test]
    fn more_work_never_takes_less(d in deployments(), n in 1..200_u64, context in 1..8000_u64) {
        let time = |n, context| cost(&Forecaster::embedded(d.clone()).unwrap(), &Batch::decode(n, context), Utilization::FULL).limit;
        prop_assert!(time(n + 1, context) >= time(n, context));
        prop_assert!(time(n, context + 1) >= time(n, context));
    }

    #[test]
    fn a_prompt_in_one_piece_has_the_flops_of_its_tokens(model in models(), tokens in 1..200_u64) {
        // Prefill of P tokens and P decodes at contexts 1 to P do equal GEMM and attention work per layer, if attention
        // stores separate keys and values; lm_head runs once against P times.
        let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let d = Deployment::resolve(model, chip, &DeploymentOptions::default()).unwrap();
        let latent = d.model.layers.iter().any(|l| matches!(l.mixer, roofcast::model::Mixer::Latent(_)));
        let flops = |batch: &Batch| {
            let step = limit(&d, batch, Utilization::FULL);
            step.operators.iter().filter(|o| o.name != OperatorKind::LmHead).map(|o| o.flops.0).sum::<u128>()
        };
        let whole = flops(&Batch::prefill(1, tokens));
        let steps: u128 = (1..=tokens).map(|t| flops(&Batch::decode(1, t))).sum();
        if latent { prop_assert!(whole <= steps) } else { prop_assert_eq!(whole, steps) }
    }

    #[test]
    fn sharing_conserves_weights(model in models(), tp in 0..4_u32) {
        let chip = || Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let of = |tp, ideal| {
            let parallelism = RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() };
            Deployment::resolve(Arc::clone(&model), chip(), &DeploymentOptions { parallelism, ideal, ..DeploymentOptions::default() }).unwrap()
        };
        let (one, many) = (of(1, false), of(1 << tp, false));
        prop_assert_eq!(one.weight_bytes, many.weight_bytes);
        prop_assert_eq!(one.weight_bytes, Bytes(2 * model.parameters().total));
        let held: Bytes = many.stages.iter().map(|s| s.weight_bytes).sum();
        prop_assert!(held * (1 << tp) >= many.weight_bytes);
        let ideal: Bytes = of(1 << tp, true).stages.iter().map(|s| s.weight_bytes).sum();
        prop_assert!(ideal <= held);
    }

    #[test]
    fn what_fits_fits(d in deployments(), context in 1..8000_u64) {
        let sequences = Memory::of(&d).sequences(context);
        let rank = Memory::of(&d).ranks()[0];
        let padded = context.next_multiple_of(d.engine.block_size);
        prop_assert!(memory::sequence_bytes(&d, 0, padded) * sequences <= rank.kv_bytes);
        prop_assert!(memory::sequence_bytes(&d, 0, padded) * (sequences + 1) > rank.kv_bytes);
    }
}
