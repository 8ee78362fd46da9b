//! Recurrent layers of a GGUF file as the keys of a `config.json`: state spaces, delta nets, short convolutions.
//!
//! Knows: how llama.cpp states them: an inner width, a number of heads as the rank of time steps, and layers without
//! heads of keys and values. Knows nothing about attention.
//!
//! Source: `convert_hf_to_gguf.py` of llama.cpp (`MambaModel`, `Mamba2Model`, `JambaModel`, `NemotronHModel`,
//! `GraniteHybridModel`, `FalconH1Model`, `Qwen3NextModel`, `KimiLinearModel`, `LFM2Model`).

use super::metadata::{Config, Metadata};
use serde_json::json;

/// Sets the keys of recurrent layers.
pub(super) fn translate(config: &mut Config, metadata: &Metadata) {
    match metadata.architecture {
        "mamba" | "mamba2" => mamba(config, metadata),
        "jamba" => jamba(config, metadata),
        "nemotron_h" | "nemotron_h_moe" => nemotron(config, metadata),
        "granitehybrid" => granite(config, metadata),
        "falcon-h1" => {
            config.set("mamba_d_ssm", metadata.count("ssm.inner_size"));
            heads(config, metadata);
        }
        "qwen3next" | "qwen35" | "qwen35moe" => delta_nets(config, metadata),
        "kimi-linear" => kimi(config, metadata),
        "lfm2" | "lfm2moe" => {
            config.set("conv_L_cache", metadata.count("shortconv.l_cache"));
            config
                .set("full_attn_idxs", metadata.list("attention.head_count_kv").map(|list| positive(&list)));
            // The width in the file is already the rounded one.
            config.set("block_auto_adjust_ff_dim", Some(false));
        }
        _ => {}
    }
}

/// Layers whose number is above zero.
fn positive(list: &[u64]) -> Vec<u64> {
    (0..).zip(list).filter(|(_, number)| **number > 0).map(|(layer, _)| layer).collect()
}

/// Width of a head: the inner width over the number of heads.
fn head_width(metadata: &Metadata) -> Option<u64> {
    let heads = metadata.count("ssm.time_step_rank").filter(|heads| *heads > 0)?;
    metadata.count("ssm.inner_size").map(|inner| inner / heads)
}

/// Inner width over the hidden width.
fn expand(metadata: &Metadata) -> Option<u64> {
    let hidden = metadata.count("embedding_length").filter(|hidden| *hidden > 0)?;
    metadata.count("ssm.inner_size").map(|inner| inner / hidden)
}

/// Sets Mamba-2's dimensions under the keys that Bamba, Granite and Falcon-H1 have.
fn heads(config: &mut Config, metadata: &Metadata) {
    config.set("mamba_n_heads", metadata.count("ssm.time_step_rank"));
    config.set("mamba_d_head", head_width(metadata));
    config.set("mamba_d_state", metadata.count("ssm.state_size"));
    config.set("mamba_d_conv", metadata.count("ssm.conv_kernel"));
    config.set("mamba_n_groups", metadata.count("ssm.group_count"));
    config.set("mamba_expand", expand(metadata));
}

fn mamba(config: &mut Config, metadata: &Metadata) {
    config.remove("num_attention_heads");
    config.remove("num_key_value_heads");
    config.set("state_size", metadata.count("ssm.state_size"));
    config.set("conv_kernel", metadata.count("ssm.conv_kernel"));
    config.set("expand", expand(metadata));
    if metadata.architecture == "mamba" {
        config.set("intermediate_size", metadata.count("ssm.inner_size"));
        config.set("time_step_rank", metadata.count("ssm.time_step_rank"));
    } else {
        config.remove("intermediate_size");
        config.set("num_heads", metadata.count("ssm.time_step_rank"));
        config.set("head_dim", head_width(metadata));
        config.set("n_groups", metadata.count("ssm.group_count"));
    }
}

fn jamba(config: &mut Config, metadata: &Metadata) {
    config.set("mamba_d_state", metadata.count("ssm.state_size"));
    config.set("mamba_d_conv", metadata.count("ssm.conv_kernel"));
    config.set("mamba_expand", expand(metadata));
    config.set("mamba_dt_rank", metadata.count("ssm.time_step_rank"));
    let attends = positive(&metadata.list("attention.head_count_kv").unwrap_or_default());
    let period = match attends.as_slice() {
        [first, second, ..] => Some(second - first),
        [_] => Some(metadata.layers),
        [] => None,
    };
    config.set("attn_layer_offset", attends.first().copied());
    config.set("attn_layer_period", period);
}

/// Sets Nemotron-H's pattern: a layer has attention, an MLP or experts, or a state space.
fn nemotron(config: &mut Config, metadata: &Metadata) {
    config.set("mamba_num_heads", metadata.count("ssm.time_step_rank"));
    config.set("mamba_head_dim", head_width(metadata));
    config.set("ssm_state_size", metadata.count("ssm.state_size"));
    config.set("n_groups", metadata.count("ssm.group_count"));
    config.set("conv_kernel", metadata.count("ssm.conv_kernel"));
    let (Some(kv_heads), Some(widths)) =
        (metadata.list("attention.head_count_kv"), metadata.list("feed_forward_length"))
    else {
        return;
    };
    let mlp = if metadata.count("expert_count").unwrap_or(0) > 0 { 'E' } else { '-' };
    let layers = kv_heads.iter().zip(&widths).take(metadata.layers as usize);
    let letter = |(heads, width): (&u64, &u64)| match (*heads > 0, *width > 0) {
        (true, _) => '*',
        (false, true) => mlp,
        (false, false) => 'M',
    };
    config.set("hybrid_override_pattern", Some(layers.map(letter).collect::<String>()));
    // Every layer has one part alone, and the pattern says which.
    config.remove("moe_layers");
}

fn granite(config: &mut Config, metadata: &Metadata) {
    heads(config, metadata);
    let Some(list) = metadata.list("attention.head_count_kv") else { return };
    let kind = |heads: &u64| if *heads > 0 { "attention" } else { "mamba" };
    let kinds: Vec<&str> = list.iter().take(metadata.layers as usize).map(kind).collect();
    config.set("layer_types", Some(kinds));
}

fn delta_nets(config: &mut Config, metadata: &Metadata) {
    config.set("linear_conv_kernel_dim", metadata.count("ssm.conv_kernel"));
    config.set("linear_key_head_dim", metadata.count("ssm.state_size"));
    config.set("linear_num_key_heads", metadata.count("ssm.group_count"));
    config.set("linear_num_value_heads", metadata.count("ssm.time_step_rank"));
    config.set("linear_value_head_dim", head_width(metadata));
    config.set("full_attention_interval", metadata.count("full_attention_interval"));
}

fn kimi(config: &mut Config, metadata: &Metadata) {
    let Some(list) = metadata.list("attention.head_count_kv") else { return };
    // The list of a config.json numbers layers from 1.
    let layers = (1..).zip(&list).filter(|(_, heads)| **heads == 0).map(|(layer, _)| layer);
    let linear = json!({
        "kda_layers": layers.collect::<Vec<u64>>(),
        "num_heads": metadata.count("attention.head_count"),
        "head_dim": metadata.count("kda.head_dim"),
        "short_conv_kernel_size": metadata.count("ssm.conv_kernel"),
    });
    config.set("linear_attn_config", Some(linear));
}
