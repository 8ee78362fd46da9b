//! Metadata of a GGUF file as the keys of a `config.json`.
//!
//! Knows: llama.cpp's keys that differ from Hugging Face's in name alone, and biases and layers with experts by their
//! tensors. Attention is translated by [`super::attention`], recurrent layers by [`super::recurrent`]. Knows nothing
//! about files.
//!
//! Source: `gguf/constants.py` of the Python package gguf 0.19.0; `convert_hf_to_gguf.py` and `src/llama-model.cpp` of
//! llama.cpp.

use super::metadata::{Config, Metadata};
use super::{attention, recurrent};
use crate::error::Result;
use serde_json::{Map, Value};

/// Keys of the `config.json` of type `model_type` that describes the model of `metadata`.
pub(super) fn translated(metadata: &Metadata, model_type: &str) -> Result<Map<String, Value>> {
    let mut config = Config(Map::new());
    config.set("model_type", Some(model_type));
    for (ours, theirs) in KEYS {
        config.set(ours, metadata.get(theirs).cloned());
    }
    config.set("num_hidden_layers", metadata.get("block_count").map(|_| metadata.layers));
    config.set("torch_dtype", Some("float16"));
    let rows = metadata.shape("token_embd.weight").and_then(|shape| shape.first().copied());
    config.set("vocab_size", rows);
    config.set("tie_word_embeddings", Some(metadata.shape("output.weight").is_none()));
    widths(&mut config, metadata);
    experts(&mut config, metadata);
    biases(&mut config, metadata);
    attention::translate(&mut config, metadata)?;
    recurrent::translate(&mut config, metadata);
    habits(&mut config, metadata);
    Ok(config.0)
}

/// Sets the width of the MLP: one number, or a list if layers differ. Layers without an MLP have a width of 0.
fn widths(config: &mut Config, metadata: &Metadata) {
    let Some(mut list) = metadata.list("feed_forward_length") else { return };
    list.truncate(metadata.layers as usize);
    let widest = list.iter().copied().max().unwrap_or(0);
    if list.iter().all(|width| *width == widest || *width == 0) {
        config.set("intermediate_size", Some(widest));
    } else {
        config.set("intermediate_size", Some(list));
    }
}

/// Sets the layers with experts, by the routers among the tensors, and the width of the shared expert.
fn experts(config: &mut Config, metadata: &Metadata) {
    if metadata.count("expert_count").unwrap_or(0) == 0 {
        return;
    }
    let routed = metadata.layers_with("ffn_gate_inp.weight");
    if !routed.is_empty() && (routed.len() as u64) < metadata.layers {
        config.set("moe_layers", Some(routed.clone()));
    }
    config.set("share_expert_dim", metadata.count("expert_shared_feed_forward_length").filter(|n| *n > 0));
    let bias = routed.first().is_some_and(|layer| metadata.has(*layer, "exp_probs_b.bias"));
    config.set("use_routing_bias", Some(true).filter(|_| bias));
}

/// Sets the biases of attention, by the tensors.
fn biases(config: &mut Config, metadata: &Metadata) {
    let all = ["attn_q.bias", "attn_output.bias"].iter().all(|name| metadata.has(0, name));
    config.set("attention_bias", Some(true).filter(|_| all));
}

/// Sets keys that one type alone has.
fn habits(config: &mut Config, metadata: &Metadata) {
    let kv_heads = metadata.count("attention.head_count_kv");
    match metadata.architecture {
        "falcon" => {
            config.set("num_kv_heads", kv_heads);
            config.set("new_decoder_architecture", kv_heads.map(|heads| heads > 1));
        }
        "starcoder" => config.set("multi_query", kv_heads.map(|heads| heads == 1)),
        "chatglm" => {
            config.set("multi_query_group_num", kv_heads);
            config.set("add_qkv_bias", Some(metadata.has(0, "attn_qkv.bias")));
        }
        // The file has the width of both halves of the gated MLP.
        "qwen" => {
            config.set("intermediate_size", metadata.count("feed_forward_length").map(|width| width / 2))
        }
        "llama4" => config.set("intermediate_size_mlp", metadata.count("feed_forward_length")),
        "gemma4" => config.set("enable_moe_block", metadata.count("expert_count").map(|count| count > 0)),
        "gemma3n" => {
            config.set("altup_num_inputs", metadata.count("altup.num_inputs"));
            config.set(
                "laurel_rank",
                metadata.shape("blk.0.laurel_l.weight").and_then(|shape| shape.first().copied()),
            );
        }
        "step35" => config.set("use_head_wise_attn_gate", Some(metadata.has(0, "attn_gate.weight"))),
        _ => {}
    }
    let per_layer = metadata.count("embedding_length_per_layer_input").filter(|width| *width > 0);
    let rows = metadata.shape("per_layer_token_embd.weight").and_then(|shape| shape.first().copied());
    config.set("vocab_size_per_layer_input", per_layer.and(rows));
    config.set(
        "hidden_size_per_layer_input",
        per_layer.or(Some(0).filter(|_| metadata.architecture == "gemma4")),
    );
}

/// Keys of a `config.json` and their GGUF names without the architecture's prefix.
const KEYS: &[(&str, &str)] = &[
    ("num_nextn_predict_layers", "nextn_predict_layers"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("v_head_dim", "attention.value_length"),
    ("swa_head_dim", "attention.key_length_swa"),
    ("swa_v_head_dim", "attention.value_length_swa"),
    ("num_kv_shared_layers", "attention.shared_kv_layers"),
    ("max_position_embeddings", "context_length"),
    ("sliding_window", "attention.sliding_window"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("n_shared_experts", "expert_shared_count"),
    ("moe_latent_size", "moe_latent_size"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("interleave_moe_layer_step", "interleave_moe_layer_step"),
    ("kv_lora_rank", "attention.kv_lora_rank"),
    ("q_lora_rank", "attention.q_lora_rank"),
    ("index_n_heads", "attention.indexer.head_count"),
    ("index_head_dim", "attention.indexer.key_length"),
    ("index_topk", "attention.indexer.top_k"),
];
