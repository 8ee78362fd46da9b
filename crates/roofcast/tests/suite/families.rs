//! Model families, in addition to the real configs: published totals from the keys of their `config.json`, and their
//! work by hand.

use crate::support::model;
use roofcast::batch::Batch;
use roofcast::cost::{OperatorCost, Utilization, limit};
use roofcast::model::{Family, Mixer, Model, config};
use roofcast::precision::KvFormat;
use roofcast::{
    Catalog, Deployment, deployment::DeploymentOptions, memory, parallelism::RequestedParallelism,
};
use serde_json::{Value, json};
use std::sync::Arc;

fn read(config: &Value) -> Model {
    config::parse("test", "config.json", &config.to_string()).unwrap()
}

/// Exact totals of LFM2-1.2B and mamba-130m, as their model pages on Hugging Face print them.
#[test]
fn totals_that_are_published_exactly() {
    let lfm2 = json!({"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "block_ff_dim": 12288, "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0, "conv_L_cache": 3, "conv_bias": false, "vocab_size": 65536,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14]});
    assert_eq!(read(&lfm2).parameters().total, 1_170_340_608);
    // Six layers attend, with 2 · 8 · 64 elements a token; ten keep two inputs of 2048 channels.
    assert_eq!(read(&lfm2).kv_bytes_per_token(KvFormat::BF16, 100).0, 6 * 1024 * 2);
    assert_eq!(read(&lfm2).kv_bytes_per_sequence(KvFormat::BF16, 100).0, 100 * 12_288 + 10 * 4096 * 2);
    let mamba = json!({"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16,
        "conv_kernel": 4, "expand": 2, "intermediate_size": 1536, "time_step_rank": 48, "vocab_size": 50280});
    assert_eq!(read(&mamba).parameters().total, 129_135_360);
    assert_eq!(read(&mamba).kv_bytes_per_token(KvFormat::BF16, 100).0, 0);
}

/// Totals within 6 % of the figure in the name, active parameters within 15 %, in billions; the keys are from the
/// makers' files.
#[test]
fn totals_of_names() {
    let kda: Vec<u64> = (1..27).filter(|l| l % 4 != 0).collect();
    let kimi = json!({"model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256,
        "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024, "moe_layer_freq": 1,
        "first_k_dense_replace": 1, "vocab_size": 163840, "model_max_length": 1048576,
        "linear_attn_config": {"kda_layers": kda, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128,
            "num_heads": 32, "short_conv_kernel_size": 4}});
    let jamba = json!({"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 16,
        "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
        "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
        "vocab_size": 65536});
    let bamba = json!({"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2,
        "attn_layer_indices": [9, 18, 27], "vocab_size": 128256});
    let kinds: Vec<&str> = (0..40).map(|l| if l % 10 == 5 { "attention" } else { "mamba" }).collect();
    let granite = json!({"model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768,
        "shared_intermediate_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_local_experts": 72, "num_experts_per_tok": 10, "mamba_n_heads": 128,
        "mamba_d_head": "auto", "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2,
        "layer_types": kinds, "tie_word_embeddings": true, "vocab_size": 100352});
    let falcon = json!({"model_type": "falcon_h1", "hidden_size": 1024, "intermediate_size": 2048,
        "num_hidden_layers": 36, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
        "mamba_d_conv": 4, "vocab_size": 32784});
    let ernie = json!({"model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size": 12288,
        "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4, "moe_num_experts": 64,
        "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
        "moe_layer_interval": 1, "tie_word_embeddings": true, "vocab_size": 103424});
    let sliding: Vec<&str> =
        (0..45).map(|l| if l % 4 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let routed: Vec<String> = (3..45).map(|l| l.to_string()).collect();
    let step = json!({"model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264,
        "num_hidden_layers": 45, "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128,
        "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
        "use_head_wise_attn_gate": true, "sliding_window": 512, "layer_types": sliding,
        "moe_layers_enum": routed.join(","), "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280,
        "share_expert_dim": 1280, "use_moe_router_bias": true, "vocab_size": 128896});
    let lightning: Vec<u64> = (0..80).map(|l| u64::from(l % 8 == 7)).collect();
    let minimax = json!({"model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": lightning,
        "shared_intermediate_size": 0, "vocab_size": 200064});
    let cases = [
        ("MiniMax-M1, 456B with 45.9B active", minimax, 456.0, 45.9),
        ("Kimi-Linear-48B-A3B", kimi, 48.0, 3.0),
        ("Jamba-v0.1, 52B with 12B active", jamba, 52.0, 12.0),
        ("Bamba-9B-v1, 9.78B", bamba, 9.78, 9.78),
        ("granite-4.0-h-small, 32B-A9B", granite, 32.0, 9.0),
        ("Falcon-H1-0.5B, 521M", falcon, 0.521, 0.521),
        ("ERNIE-4.5-21B-A3B", ernie, 21.0, 3.0),
        ("Step-3.5-Flash, 196B with 11B active", step, 196.0, 11.0),
    ];
    for (name, config, total, active) in cases {
        agree(name, &read(&config), total, active, 0);
    }
}

/// Totals of catalog entries. Qwen3-Next has 3.6B active parameters with lm_head; the figure in its name counts neither
/// embedding nor lm_head.
#[test]
fn totals_of_names_in_the_catalog() {
    for (name, total, active) in [
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 109.0, 17.0),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400.0, 17.0),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 80.0, 3.0),
    ] {
        let model = model(name);
        let apart = if name.contains("Next") { model.parameters().lm_head } else { 0 };
        agree(name, &model, total, active, apart);
    }
}

fn agree(name: &str, model: &Model, total: f64, active: f64, apart: u64) {
    let p = model.parameters();
    let off = |count: u64, figure: f64| (count as f64 / 1e9 / figure - 1.0).abs();
    assert!(off(p.total, total) <= 0.06, "{name}: {} parameters", p.total);
    assert!(off(p.active - apart, active) <= 0.15, "{name}: {} active", p.active);
}

/// gemma-4-E2B: 2.3B effective parameters by its model card, which is the total without the table of per-layer inputs.
/// 20 of 35 layers keep no keys and have an MLP of twice the width.
#[test]
fn per_layer_inputs_and_shared_caches() {
    let local: Vec<&str> =
        (0..35).map(|l| if l % 5 == 4 { "full_attention" } else { "sliding_attention" }).collect();
    let gemma = json!({"model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144,
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
        "global_head_dim": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": true, "sliding_window": 512,
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "layer_types": local,
        "vocab_size": 262144, "enable_moe_block": false});
    let model = read(&gemma);
    let table = 262_144 * 35 * 256;
    let effective = (model.parameters().total - table) as f64 / 1e9;
    assert!((effective / 2.3 - 1.0).abs() <= 0.02, "{effective}");
    // Of the first 15 layers 3 are global, with one head of 512, and 12 see 512 tokens, with one head of 256.
    assert_eq!(model.kv_elements_per_sequence(1000), 3 * 1000 * 1024 + 12 * 512 * 512);
    assert_eq!(model.kv_elements_per_token(1000), 3 * 1024);
}

/// gemma-3n-E4B-it: 6.87B in its text part (7.85B on its model page, with about 0.3B of vision and 0.68B of audio); 15
/// of 35 layers use the caches of earlier layers.
#[test]
fn alternating_streams() {
    let local: Vec<&str> =
        (0..35).map(|l| if l % 5 == 4 { "full_attention" } else { "sliding_attention" }).collect();
    let gemma = json!({"model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": vec![16384; 35],
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "num_kv_shared_layers": 15, "sliding_window": 512, "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144, "laurel_rank": 64, "altup_num_inputs": 4, "layer_types": local,
        "vocab_size": 262400});
    let model = read(&gemma);
    let total = model.parameters().total as f64 / 1e9;
    assert!((total / 6.87 - 1.0).abs() <= 0.01, "{total}");
    // Of the first 20 layers 4 are global.
    assert_eq!(model.kv_elements_per_token(1000), 4 * 1024);
}

/// A model from an architecture search: a block may lack attention or FFN, or have a single matrix instead. Hidden size
/// 4096, 32 heads of 128.
#[test]
fn searched_blocks_by_hand() {
    let whole = json!({"attention": {"no_op": false, "replace_with_linear": false, "n_heads_in_group": 8},
        "ffn": {"no_op": false, "replace_with_linear": false, "ffn_mult": 2.5}});
    let linear = json!({"attention": {"replace_with_linear": true}, "ffn": {"no_op": true}});
    let config = json!({"model_type": "nemotron-nas", "hidden_size": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 2, "vocab_size": 1000, "block_configs": [whole, linear]});
    let model = read(&config);
    // 2 · 2.5 · 4096 / 3 = 6826, rounded up to 6912; 4 KV heads of 128: 1024 elements a token.
    let attention = 2 * 4096 * 4096 + 2 * 512 * 4096;
    let first = attention + 3 * 4096 * 6912 + 2 * 4096;
    assert_eq!(model.parameters().total, 2 * 1000 * 4096 + 4096 + first + 4096 * 4096 + 4096);
    assert_eq!(model.kv_elements_per_token(77), 1024);
    assert!(matches!(model.layers[1].mixer, Mixer::None));
}

/// LongCat: a block is two layers of attention and MLP, with experts parallel to the first. Hidden size 8, 2 heads,
/// low-rank projections of rank 4; 2 of 6 experts compute nothing, so 3 choices compute 2 experts on average.
#[test]
fn zero_experts_by_hand() {
    let longcat = json!({"model_type": "longcat_flash", "hidden_size": 8, "ffn_hidden_size": 16,
        "expert_ffn_hidden_size": 3, "num_layers": 1, "num_attention_heads": 2, "q_lora_rank": 4, "kv_lora_rank": 4,
        "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "n_routed_experts": 4, "zero_expert_num": 2,
        "moe_topk": 3, "vocab_size": 10});
    let model = read(&longcat);
    let attention = 8 * 4 + 4 + 4 * 2 * 6 + 8 * 6 + 4 + 4 * 2 * 8 + 2 * 4 * 8;
    let (layer, expert) = (attention + 2 * 8 + 3 * 8 * 16, 3 * 8 * 3);
    let p = model.parameters();
    assert_eq!(p.total, 2 * layer + 6 * 8 + 6 + 4 * expert + 2 * 10 * 8 + 8);
    assert_eq!(p.total - p.embedding - p.active, 2 * expert);
    assert_eq!(model.kv_elements_per_token(100), 2 * 6);
    let said = "a token computes 2 of its 3 experts on average: 2 of 6 compute nothing";
    assert!(model.assumptions.iter().any(|a| a == said), "{:?}", model.assumptions);
}

/// LongCat's n-gram tables: 2 hashes for each n of 2 and 3 give 4 tables, with 5 times the vocabulary of 10 plus 1, 3,
/// 5 and 7 rows, each 8/4 wide and projected to 8. With LongCat-Flash-Lite's sizes they have the 31.4B of its paper.
#[test]
fn tables_of_ngrams_by_hand() {
    let mut longcat = json!({"model_type": "longcat_flash", "hidden_size": 8, "ffn_hidden_size": 16,
        "expert_ffn_hidden_size": 3, "num_layers": 1, "num_attention_heads": 2, "q_lora_rank": 4, "kv_lora_rank": 4,
        "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "n_routed_experts": 4, "zero_expert_num": 2,
        "moe_topk": 3, "vocab_size": 10});
    let without = read(&longcat).parameters();
    longcat["model_type"] = "longcat_flash_ngram".into();
    for (key, value) in [("ngram_vocab_size_ratio", 5), ("emb_split_num", 2), ("emb_neighbor_num", 3)] {
        longcat[key] = value.into();
    }
    let with = read(&longcat).parameters();
    let (tables, projections) = ((51 + 53 + 55 + 57) * 2, 4 * 8 * 2);
    assert_eq!(with.embedding - without.embedding, tables);
    assert_eq!(with.total - without.total, tables + projections);
    assert_eq!(with.active - without.active, projections);
    for (key, value) in [
        ("hidden_size", 3072),
        ("vocab_size", 131_072),
        ("ngram_vocab_size_ratio", 78),
        ("emb_split_num", 4),
        ("emb_neighbor_num", 4),
    ] {
        longcat[key] = value.into();
    }
    let lite = read(&longcat).parameters().embedding - 131_072 * 3072;
    assert_eq!((lite as f64 / 1e8).round(), 314.0);
    // A number of tables that does not divide the width is refused.
    longcat["emb_neighbor_num"] = 8.into();
    let told = config::parse("m", "config.json", &longcat.to_string()).unwrap_err().to_string();
    assert!(told.contains("emb_neighbor_num"), "{told}");
}

/// Step3: the queries of 2 heads of 4 are computed from a vector of rank 6 with a norm; there is one key and value
/// head.
#[test]
fn queries_of_a_rank_by_hand() {
    let mut step = json!({"model_type": "step3_text", "hidden_size": 8, "intermediate_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_attention_groups": 1, "head_dim": 4, "share_q_dim": 6,
        "moe_layers_enum": [1], "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 3,
        "share_expert_dim": 3, "vocab_size": 10});
    let model = read(&step);
    let attention = 8 * 6 + 6 + 6 * 8 + 2 * 8 * 4 + 8 * 8;
    let experts = 4 * 8 + 5 * 3 * 8 * 3;
    assert_eq!(model.parameters().total, 2 * (attention + 2 * 8) + 3 * 8 * 16 + experts + 2 * 10 * 8 + 8);
    assert_eq!(model.kv_elements_per_token(100), 2 * 2 * 4);
    step.as_object_mut().unwrap().remove("share_q_dim");
    assert_eq!(read(&step).parameters().total, model.parameters().total - 2 * (8 * 6 + 6 + 6 * 8 - 8 * 8));
}

/// GPT-Neo 125M by its parts, with the total of its model page: q, k and v have no bias, and every other layer sees 256
/// tokens.
#[test]
fn local_layers_of_gpt_neo() {
    let neo = model("EleutherAI/gpt-neo-125m");
    let layer = 4 * 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768;
    assert_eq!(neo.parameters().total, (50_257 + 2048) * 768 + 12 * layer + 2 * 768);
    assert_eq!(neo.kv_elements_per_sequence(1000), 6 * 2 * 768 * (1000 + 256));
}

/// Olmo-Hybrid: 24 gated delta nets with 30 heads of 96 and 192, with projections, gates and convolutions as in
/// Qwen3-Next; 8 layers with 30 heads of 128 and norms over all heads. OLMo-1's norms have no weights.
#[test]
fn olmos_by_hand() {
    let mlp = 3 * 3840 * 11_008 + 2 * 3840;
    let delta = 3840 * (2 * 2880 + 2 * 5760 + 60) + 5760 * 3840 + 4 * (2 * 2880 + 5760) + 60 + 192;
    let attention = 4 * 3840 * 3840 + 2 * 3840;
    let hybrid = model("allenai/Olmo-Hybrid-7B").parameters().total;
    assert_eq!(hybrid, 24 * (delta + mlp) + 8 * (attention + mlp) + 2 * 100_352 * 3840 + 3840);
    let layer = 4 * 2048 * 2048 + 3 * 2048 * 8192;
    assert_eq!(model("allenai/OLMo-1B-hf").parameters().total, 16 * layer + 50_304 * 2048);
}

/// Ring-flash-linear: the last of eight layers attends (4 KV heads of 128), seven keep 32 states of 128 · 128 in fp32.
#[test]
fn layers_in_groups() {
    let ring = model("inclusionAI/Ring-flash-linear-2.0");
    assert_eq!(ring.kv_elements_per_token(100), 4 * 2 * 4 * 128);
    assert_eq!(
        ring.kv_bytes_per_sequence(KvFormat::BF16, 100).0,
        4 * 1024 * 2 * 100 + 28 * 32 * 128 * 128 * 4
    );
    let attends = |l: &usize| matches!(ring.layers[*l].mixer, Mixer::Attention(_));
    assert_eq!((0..32).filter(attends).collect::<Vec<_>>(), [7, 15, 23, 31]);
    let mut other = json!({"model_type": "bailing_moe_linear", "hidden_size": 8, "intermediate_size": 16,
        "num_hidden_layers": 5, "layer_group_size": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": 10});
    // Whole groups of two, and the remaining layer.
    let attends =
        read(&other).layers.iter().map(|l| matches!(l.mixer, Mixer::Attention(_))).collect::<Vec<_>>();
    assert_eq!(attends, [false, true, false, true, true]);
    // With short convolutions the linear attention is Ling 3.0's.
    other["short_conv_kernel_size"] = json!(4);
    assert!(read(&other).layers.iter().step_by(2).take(2).all(|l| matches!(l.mixer, Mixer::Kda(_))));
}

/// Laguna: layers with 2 and 4 query heads on 2 KV heads of 4, a gate per head, norms on queries and keys; a dense
/// layer, then 4 experts with a correction bias each and a shared expert.
#[test]
fn heads_a_layer_by_hand() {
    let laguna = json!({"model_type": "laguna", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_attention_heads_per_layer": [2, 4], "num_key_value_heads": 2, "head_dim": 4,
        "gating": "per-head", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 3,
        "shared_expert_intermediate_size": 3, "mlp_layer_types": ["dense", "sparse"], "sliding_window": 6,
        "layer_types": ["full_attention", "sliding_attention"], "vocab_size": 10});
    // For each head q and o have 32 each and the gate 8; k and v have 2 · 64, norms 2 · 4 + 2 · 8.
    let attention = |heads: u64| heads * (32 + 32 + 8) + 128 + 8 + 16;
    let dense = 3 * 8 * 16;
    let experts = 4 * 8 + 4 + 4 * 3 * 8 * 3 + 3 * 8 * 3;
    let model = read(&laguna);
    assert_eq!(model.parameters().total, attention(2) + dense + attention(4) + experts + 2 * 10 * 8 + 8);
    // Each of the two layers keeps 2 · 2 · 4 elements a token, the second for at most 6 tokens.
    assert_eq!(model.kv_elements_per_sequence(100), 16 * (100 + 6));
    // `true` is a gate per head, any other word a gate per element.
    let total = |gating: Value| {
        let mut other = laguna.clone();
        other["gating"] = gating;
        read(&other).parameters().total
    };
    assert_eq!(total(json!(true)), model.parameters().total);
    assert_eq!(total(json!("per-element")), model.parameters().total + (2 + 4) * (4 - 1) * 8);
}

/// Seed-OSS has biases on q, k and v, and a separate config key for o's bias; Muse has a gate for each element and four
/// norms.
#[test]
fn biases_and_gates_by_hand() {
    let config = |model_type: &str| {
        json!({"model_type": model_type, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 10})
    };
    let (matrices, mlp, outer) = (64 + 32 + 32 + 64, 3 * 8 * 16, 2 * 10 * 8 + 8);
    let mut seed = config("seed_oss");
    seed["attention_bias"] = json!(true);
    assert_eq!(read(&seed).parameters().total, matrices + (8 + 4 + 4) + mlp + 2 * 8 + outer);
    seed["attention_out_bias"] = json!(true);
    assert_eq!(read(&seed).parameters().total, matrices + (8 + 4 + 4 + 8) + mlp + 2 * 8 + outer);
    assert_eq!(read(&config("muse_glimmer_text")).parameters().total, matrices + 64 + mlp + 4 * 8 + outer);
}

/// EXAONE's pattern of letters: of 8 layers, `LLLG` gives two with full attention; one KV head of 4 keeps 8 elements a
/// token.
#[test]
fn windows_by_letters() {
    let config = |pattern: &str| {
        json!({"model_type": "exaone4", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 8,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "sliding_window": 5,
            "sliding_window_pattern": pattern, "vocab_size": 10})
    };
    assert_eq!(read(&config("LLLG")).kv_elements_per_sequence(100), 8 * (6 * 5 + 2 * 100));
    for bad in ["", "LLLX"] {
        let error = config::parse("test", "config.json", &config(bad).to_string()).unwrap_err().to_string();
        assert!(error.contains("sliding_window_pattern") && error.contains("L and G"), "{error}");
    }
}

/// Hunyuan lists a value for each layer: equal values are accepted, different ones are refused with the key.
#[test]
fn a_figure_for_every_layer() {
    let config = |topk: Value, shared: Value| {
        json!({"model_type": "hunyuan_v1_moe", "hidden_size": 8, "intermediate_size": 3, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "num_experts": 4, "moe_topk": topk,
            "num_shared_expert": shared, "moe_intermediate_size": [3, 3], "vocab_size": 10})
    };
    let model = read(&config(json!([2, 2]), json!([1, 1])));
    // Attention 192 and two norms of 4, norms 16, router 32, four experts of 72, one shared expert of 72.
    assert_eq!(model.parameters().total, 2 * (192 + 8 + 16 + 32 + 4 * 72 + 72) + 2 * 10 * 8 + 8);
    assert_eq!(model.parameters().total, read(&config(json!(2), json!(1))).parameters().total);
    let uneven = config(json!([2, 1]), json!(1)).to_string();
    let error = config::parse("test", "config.json", &uneven).unwrap_err().to_string();
    assert!(error.contains("moe_topk"), "{error}");
}

/// The operators of one family in a step on an H100, summed over all layers.
fn works(name: &str, batch: &Batch, family: Family) -> Vec<OperatorCost> {
    let chip = Arc::new(Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap().clone());
    let d = Deployment::resolve(model(name), chip, &DeploymentOptions::default()).unwrap();
    limit(&d, batch, Utilization::FULL).operators.into_iter().filter(|o| o.family == family).collect()
}

fn flops(works: &[OperatorCost]) -> u128 {
    works.iter().map(|w| w.flops.0).sum()
}

fn kv_bytes(works: &[OperatorCost]) -> u64 {
    works.iter().map(|w| w.kv_bytes.0).sum()
}

/// Qwen3-Next: 36 of 48 layers have 32 states of 128 · 128 in fp32 and 3 inputs of 8192 channels; 12 have 16 heads of 256
/// with 2 KV heads.
#[test]
fn the_work_of_a_hybrid_by_hand() {
    let name = "Qwen/Qwen3-Next-80B-A3B-Instruct";
    let decode = works(name, &Batch::decode(2, 1000), Family::Attention);
    let state = 32 * 128 * 128;
    // Per token 6 operations for each state element and 2 · 4 taps for each channel; attention 4 · 16 · 256 for each
    // pair of query and key.
    let linear = 36 * 2 * (6 * state + 8 * 8192);
    let attention = 12 * 2 * 1000 * 4 * 16 * 256;
    assert_eq!(flops(&decode), linear + attention);
    // States are read and written; attention reads 2 · 2 · 256 elements for each of 1000 tokens.
    let (bytes, kv) = (u64::try_from(state).unwrap() * 4 + 3 * 8192 * 2, 1000 * 1024 * 2);
    assert_eq!(kv_bytes(&decode), 2 * (36 * 2 * bytes + 12 * kv));
    // A prompt of 5 writes each state once: five tokens' operations, one state's bytes.
    let prompt = works(name, &Batch::prefill(1, 5), Family::Attention);
    assert_eq!(flops(&prompt), 36 * 5 * (6 * state + 8 * 8192) + 12 * 15 * 4 * 16 * 256);
    assert_eq!(kv_bytes(&prompt), 36 * bytes + 12 * 5 * 1024 * 2);
}

/// DeepSeek-V3.2 at 10,000 tokens: 61 layers read the best 2048 tokens, with absorbed MLA, and score all 10,000.
#[test]
fn the_work_of_an_indexer_by_hand() {
    let name = "deepseek-ai/DeepSeek-V3.2";
    let attention = works(name, &Batch::decode(1, 10_000), Family::Attention);
    assert_eq!(flops(&attention), 61 * 2048 * 2 * 128 * (2 * 512 + 64));
    assert_eq!(kv_bytes(&attention), 61 * 2048 * 576 * 2);
    let index = works(name, &Batch::decode(1, 10_000), Family::Indexer);
    assert_eq!(flops(&index), 61 * 10_000 * 2 * 64 * 128);
    assert_eq!(kv_bytes(&index), 61 * 10_000 * 132);
    // At a context below the number of chosen tokens, all tokens are read.
    let short = works(name, &Batch::decode(1, 1000), Family::Attention);
    assert_eq!(kv_bytes(&short), 61 * 1000 * 576 * 2);
    // GLM-5.3: only 21 of 78 layers score.
    let shared = works("zai-org/GLM-5.3-FP8", &Batch::decode(1, 10_000), Family::Indexer);
    assert_eq!(kv_bytes(&shared), 21 * 10_000 * 132);
    // GLM-5.3-Flash: 11 of 45 layers attend, and score one key for every four tokens, with 32 heads.
    let name = "zai-org/GLM-5.3-Flash";
    let pooled = works(name, &Batch::decode(1, 10_000), Family::Indexer);
    assert_eq!((flops(&pooled), kv_bytes(&pooled)), (11 * 2500 * 2 * 32 * 128, 11 * 2500 * 132));
    assert_eq!(model(name).kv_bytes_per_token(KvFormat::BF16, 1000).0, 11 * (512 * 2 + 132 / 4));
}

/// MiniMax-M3 at 10,000 tokens: 3 layers read all, 57 read 16 blocks of 128, and score 4 heads of 128 over 16-bit keys.
#[test]
fn the_work_of_block_choice_by_hand() {
    let name = "MiniMaxAI/MiniMax-M3";
    let attention = works(name, &Batch::decode(1, 10_000), Family::Attention);
    assert_eq!(kv_bytes(&attention), (3 * 10_000 + 57 * 2048) * 2 * 4 * 128 * 2);
    assert_eq!(flops(&attention), (3 * 10_000 + 57 * 2048) * 4 * 64 * 128);
    let index = works(name, &Batch::decode(1, 10_000), Family::Indexer);
    assert_eq!((flops(&index), kv_bytes(&index)), (57 * 10_000 * 2 * 4 * 128, 57 * 10_000 * 128 * 2));
}

/// DeepSeek-V4-Flash at 8192 tokens: 2 layers with only a window, 21 with the best 512 of 2048 compressed entries, 20
/// with all of their 64.
#[test]
fn the_work_of_compressed_entries_by_hand() {
    let name = "deepseek-ai/DeepSeek-V4-Flash";
    let attention = works(name, &Batch::decode(1, 8192), Family::Attention);
    let pairs = 2 * 128 + 21 * (128 + 512) + 20 * (128 + 64);
    assert_eq!(flops(&attention), pairs * 4 * 64 * 512);
    // Compressor states are read and written: 2 · 4 · (8 · 1280) and 2 · 4 · (128 · 512) bytes. The step that completes
    // a window also writes the new entry, in addition to reading 512.
    let state = 21 * 2 * 4 * 8 * 1280 + 20 * 2 * 4 * 128 * 512;
    let rows = 2 * 128 + 21 * (128 + 513) + 20 * (128 + 64);
    // vLLM keeps vectors in 8 bits.
    assert_eq!(kv_bytes(&attention), rows * 512 + 2 * state);
    let index = works(name, &Batch::decode(1, 8192), Family::Indexer);
    assert_eq!((flops(&index), kv_bytes(&index)), (21 * 2048 * 2 * 64 * 128, 21 * 2048 * 132));
}

/// Llama 4 Scout: 36 of 48 layers attend within chunks of 8192. At 10,000 tokens a decode reads 1808 tokens of its
/// chunk.
#[test]
fn the_work_of_chunks_by_hand() {
    let name = "meta-llama/Llama-4-Scout-17B-16E-Instruct";
    let decode = works(name, &Batch::decode(1, 10_000), Family::Attention);
    assert_eq!(kv_bytes(&decode), (36 * 1808 + 12 * 10_000) * 2 * 8 * 128 * 2);
    assert_eq!(flops(&decode), (36 * 1808 + 12 * 10_000) * 4 * 40 * 128);
    assert_eq!(model(name).kv_elements_per_sequence(10_000), (36 * 8192 + 12 * 10_000) * 2048);
}

/// Tensor parallelism divides states by heads, but neither index keys nor latents.
#[test]
fn shares_of_what_is_kept() {
    let on = |name: &str, tp: u64, ideal: bool| {
        let chip = Arc::new(Catalog::embedded().unwrap().accelerator("h200-sxm").unwrap().clone());
        let parallelism = RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() };
        let d = Deployment::resolve(
            model(name),
            chip,
            &DeploymentOptions { parallelism, ideal, ..DeploymentOptions::default() },
        );
        memory::sequence_bytes(&d.unwrap(), 0, 800).0
    };
    // Qwen3-Next over 8 ranks: 4 of 32 value heads and an eighth of the channels in 36 layers; one of 2 KV heads in 12.
    let state = (32 * 128 * 128 * 4 + 3 * 8192 * 2) / 8;
    assert_eq!(on("Qwen/Qwen3-Next-80B-A3B-Instruct", 8, false), 36 * state + 12 * 800 * 512 * 2);
    assert_eq!(on("deepseek-ai/DeepSeek-V3.2", 8, false), 61 * 800 * (576 * 2 + 132));
    assert_eq!(on("deepseek-ai/DeepSeek-V3.2", 8, true), 61 * 100 * (576 * 2 + 132));
}
