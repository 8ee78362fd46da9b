//! Metadata of a GGUF file as the keys of a `config.json`.
//!
//! Knows: llama.cpp's names of architectures and keys that differ from Hugging Face's, latents in both of its forms
//! (heads as they are, or absorbed into one head as wide as the latent), and state spaces. Knows nothing about files.
//!
//! Source: `gguf/constants.py` of the Python package gguf 0.19.0; `convert_hf_to_gguf.py` of llama.cpp
//! (`DeepseekV2Model`, `MambaModel`, `Mamba2Model`, `JambaModel`).

use super::Header;
use serde_json::{Map, Value, json};

/// Value of `expert_gating_func` for a sigmoid, with which DeepSeek-V3 chooses experts; V2 has a softmax.
const SIGMOID: u64 = 2;

/// Keys of the `config.json` that describes the model of `header`.
pub(super) fn translated(architecture: &str, header: &Header) -> Map<String, Value> {
    let get = |key: &str| header.metadata.get(&format!("{architecture}.{key}"));
    let mut config = Map::new();
    config.insert("model_type".into(), json!(model_type(architecture)));
    for (ours, theirs) in KEYS {
        if let Some(value) = get(theirs) {
            config.insert((*ours).into(), value.clone());
        }
    }
    let count = |key: &str| get(key).and_then(Value::as_u64);
    match architecture {
        "deepseek2" => latents(&mut config, count),
        "mamba" | "mamba2" | "jamba" => state_spaces(&mut config, architecture, header, count),
        _ => {}
    }
    config
}

/// Sets the widths of latent attention. Newer files have the width of an absorbed head under `key_length`, and the
/// width of a head's key under `key_length_mla`.
fn latents(config: &mut Map<String, Value>, count: impl Fn(&str) -> Option<u64>) {
    if count("expert_gating_func") == Some(SIGMOID) {
        config.insert("model_type".into(), json!("deepseek_v3"));
    }
    let width = |own: &str, plain: &str| count(own).or_else(|| count(plain));
    let rope = count("rope.dimension_count");
    let key = width("attention.key_length_mla", "attention.key_length");
    let value = width("attention.value_length_mla", "attention.value_length");
    config.remove("head_dim");
    config.remove("num_key_value_heads");
    let widths = [
        ("qk_rope_head_dim", rope),
        ("qk_nope_head_dim", key.zip(rope).map(|(key, rope)| key.saturating_sub(rope))),
        ("v_head_dim", value),
    ];
    let known = widths.into_iter().filter_map(|(key, width)| Some((key.to_owned(), json!(width?))));
    config.extend(known);
}

/// Dimensions of state spaces, and of Jamba the layers that have attention or experts.
fn state_spaces(
    config: &mut Map<String, Value>,
    architecture: &str,
    header: &Header,
    count: impl Fn(&str) -> Option<u64>,
) {
    let inner = count("ssm.inner_size");
    let rank = count("ssm.time_step_rank");
    let expand = inner.zip(count("embedding_length")).map(|(inner, hidden)| inner / hidden.max(1));
    let mut set = |key: &str, value: Option<u64>| {
        if let Some(value) = value {
            config.insert(key.to_owned(), json!(value));
        }
    };
    set("state_size", count("ssm.state_size"));
    set("conv_kernel", count("ssm.conv_kernel"));
    set("expand", expand);
    match architecture {
        "mamba" => {
            set("intermediate_size", inner);
            set("time_step_rank", rank);
        }
        "mamba2" => {
            set("num_heads", rank);
            set("head_dim", inner.zip(rank).map(|(inner, heads)| inner / heads.max(1)));
            set("n_groups", count("ssm.group_count"));
        }
        _ => {
            set("mamba_d_state", count("ssm.state_size"));
            set("mamba_d_conv", count("ssm.conv_kernel"));
            set("mamba_expand", expand);
            set("mamba_dt_rank", rank);
            let layers = count("block_count").unwrap_or(0);
            let heads = header.metadata.get("jamba.attention.head_count_kv").and_then(Value::as_array);
            let heads: Vec<u64> = heads.into_iter().flatten().filter_map(Value::as_u64).collect();
            let attends: Vec<u64> = (0..).zip(&heads).filter(|(_, n)| **n > 0).map(|(at, _)| at).collect();
            let routes: Vec<u64> = (0..layers).filter(|at| has(header, *at, "ffn_gate_inp")).collect();
            set("num_key_value_heads", heads.iter().copied().find(|heads| *heads > 0));
            for (name, at) in [("attn", attends), ("expert", routes)] {
                let period = match at.as_slice() {
                    [first, second, ..] => Some(second - first),
                    [_] => Some(layers),
                    [] => None,
                };
                set(&format!("{name}_layer_offset"), at.first().copied());
                set(&format!("{name}_layer_period"), period);
            }
        }
    }
    if architecture != "jamba" {
        config.remove("num_attention_heads");
        config.remove("num_key_value_heads");
    }
    if architecture == "mamba2" {
        config.remove("intermediate_size");
    }
}

/// True if layer `layer` of the file has a matrix of this name.
fn has(header: &Header, layer: u64, tensor: &str) -> bool {
    let name = format!("blk.{layer}.{tensor}.weight");
    header.tensors.iter().any(|stored| stored.name == name)
}

/// Keys of a `config.json` and their GGUF names without the architecture's prefix.
const KEYS: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
    ("sliding_window", "attention.sliding_window"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("n_shared_experts", "expert_shared_count"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("kv_lora_rank", "attention.kv_lora_rank"),
    ("q_lora_rank", "attention.q_lora_rank"),
];

/// Hugging Face's `model_type` of an architecture that llama.cpp spells differently.
pub(super) fn model_type(architecture: &str) -> &str {
    match architecture {
        "qwen2moe" => "qwen2_moe",
        "qwen3moe" => "qwen3_moe",
        "qwen2vl" => "qwen2_vl",
        "qwen3vl" => "qwen3_vl_text",
        "qwen3vlmoe" => "qwen3_vl_moe_text",
        "phi2" => "phi",
        "hunyuan-dense" => "hunyuan_v1_dense",
        "hunyuan-moe" => "hunyuan_v1_moe",
        "ernie4_5-moe" => "ernie4_5_moe",
        "exaone-moe" => "exaone_moe",
        "glm4moe" => "glm4_moe",
        "minimax-m2" => "minimax_m2",
        "mistral3" => "ministral3",
        "bailingmoe" => "bailing_moe",
        "bailingmoe2" => "bailing_moe_v2",
        "gptneox" => "gpt_neox",
        "gpt-oss" => "gpt_oss",
        "gemma3" => "gemma3_text",
        "command-r" => "cohere",
        "deepseek2" => "deepseek_v2",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Stored, config};
    use super::*;
    use crate::model::config::read;
    use crate::units::Bytes;

    fn header(metadata: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> Header {
        let stored = |(name, shape): &(&str, &[u64])| Stored {
            name: (*name).to_owned(),
            dtype: "f16".to_owned(),
            shape: shape.to_vec(),
            elements: shape.iter().product(),
            bytes: Bytes(2 * shape.iter().product::<u64>()),
        };
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        Header { metadata, tensors: tensors.iter().map(stored).collect() }
    }

    fn parameters(metadata: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> u64 {
        let config = config("x.gguf", &header(metadata, tensors)).unwrap();
        read("x", "x.gguf", &config).unwrap().parameters().total
    }

    /// DeepSeek-V2-Lite has heads of 128 + 64 and values of 128 over a latent of 512; newer files also state the
    /// absorbed head of 576. The maker's file has 15,706,484,224 parameters.
    #[test]
    fn latents_are_read_in_both_forms() {
        let common = [
            ("general.architecture", json!("deepseek2")),
            ("deepseek2.block_count", json!(27)),
            ("deepseek2.embedding_length", json!(2048)),
            ("deepseek2.feed_forward_length", json!(10_944)),
            ("deepseek2.attention.head_count", json!(16)),
            ("deepseek2.attention.kv_lora_rank", json!(512)),
            ("deepseek2.rope.dimension_count", json!(64)),
            ("deepseek2.expert_count", json!(64)),
            ("deepseek2.expert_used_count", json!(6)),
            ("deepseek2.expert_shared_count", json!(2)),
            ("deepseek2.expert_feed_forward_length", json!(1408)),
            ("deepseek2.leading_dense_block_count", json!(1)),
        ];
        let old = [
            ("deepseek2.attention.head_count_kv", json!(16)),
            ("deepseek2.attention.key_length", json!(192)),
            ("deepseek2.attention.value_length", json!(128)),
        ];
        let new = [
            ("deepseek2.attention.head_count_kv", json!(1)),
            ("deepseek2.attention.key_length", json!(576)),
            ("deepseek2.attention.value_length", json!(512)),
            ("deepseek2.attention.key_length_mla", json!(192)),
            ("deepseek2.attention.value_length_mla", json!(128)),
        ];
        let ends: [(&str, &[u64]); 2] =
            [("token_embd.weight", &[102_400, 2048]), ("output.weight", &[102_400, 2048])];
        assert_eq!(parameters(&[&common[..], &old[..]].concat(), &ends), 15_706_484_224);
        assert_eq!(parameters(&[&common[..], &new[..]].concat(), &ends), 15_706_484_224);
    }

    /// Mamba-130M: 24 layers of 768, inner width 1536, states of 16, rank 48, a tied table of 50,280 rows:
    /// 129,135,360 parameters. Mamba-2 of the same width has 24 heads of 64 and states of 128: 128,989,632.
    #[test]
    fn state_spaces_are_read() {
        let header_of = |architecture: &str, more: &[(&str, u64)]| {
            let mut metadata = vec![("general.architecture".to_owned(), json!(architecture))];
            let common = [
                ("block_count", 24),
                ("embedding_length", 768),
                ("feed_forward_length", 0),
                ("attention.head_count", 0),
                ("ssm.conv_kernel", 4),
                ("ssm.inner_size", 1536),
            ];
            let keys = common.iter().chain(more);
            metadata.extend(keys.map(|(key, value)| (format!("{architecture}.{key}"), json!(value))));
            let metadata: Vec<(&str, Value)> =
                metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
            let rows = if architecture == "mamba" { 50_280 } else { 50_288 };
            parameters(&metadata, &[("token_embd.weight", &[rows, 768])])
        };
        assert_eq!(header_of("mamba", &[("ssm.state_size", 16), ("ssm.time_step_rank", 48)]), 129_135_360);
        let second = [("ssm.state_size", 128), ("ssm.time_step_rank", 24), ("ssm.group_count", 1)];
        assert_eq!(header_of("mamba2", &second), 128_989_632);
    }
}
