//! Attention of a GGUF file as the keys of a `config.json`: windows, heads that differ between layers, latents.
//!
//! Knows: latents in both of llama.cpp's forms (heads as they are, or absorbed into one head as wide as the latent), and
//! which layers have windows where the file does not say. Knows nothing about recurrent layers.
//!
//! Source: `convert_hf_to_gguf.py` (`DeepseekV2Model`, `Gemma4Model`) and `src/llama-model.cpp` (`set_swa_pattern`) of
//! llama.cpp.

use super::metadata::{Config, Metadata};
use crate::error::Result;

/// Value of `expert_gating_func` for a sigmoid, with which DeepSeek-V3 chooses experts; V2 has a softmax.
const SIGMOID: u64 = 2;

/// Layers of a period, of which the last has full attention, by llama.cpp's name of the architecture.
const PERIODS: [(&str, u64); 9] = [
    ("gemma2", 2),
    ("gpt-oss", 2),
    ("gemma3n", 5),
    ("gemma3", 6),
    ("cohere2", 4),
    ("exaone4", 4),
    ("exaone-moe", 4),
    ("olmo2", 4),
    ("afmoe", 4),
];

/// Tokens of a chunk of Llama 4's attention, which the file does not state.
const LLAMA4_CHUNK: u64 = 8192;

/// Sets the keys of attention.
pub(super) fn translate(config: &mut Config, metadata: &Metadata) -> Result<()> {
    let slides = windows(config, metadata);
    heads(config, metadata, slides.as_deref().unwrap_or_default())?;
    if metadata.count("attention.kv_lora_rank").is_some() {
        latents(config, metadata);
    }
    if metadata.architecture == "deepseek2" && metadata.count("expert_gating_func") == Some(SIGMOID) {
        config.set("model_type", Some("deepseek_v3"));
    }
    // Gemma 4's layers of full attention have no value projection where values are the keys.
    let full = (0..metadata.layers).rfind(|layer| slides.as_ref().is_some_and(|s| !s[*layer as usize]));
    let paired = full.is_some_and(|layer| {
        metadata.architecture == "gemma4"
            && metadata.has(layer, "attn_k.weight")
            && !metadata.has(layer, "attn_v.weight")
    });
    config.set("attention_k_eq_v", Some(true).filter(|_| paired));
    Ok(())
}

/// Sets the kind of each layer, and returns which layers have a window, if some have.
fn windows(config: &mut Config, metadata: &Metadata) -> Option<Vec<bool>> {
    if metadata.architecture == "llama4" {
        config.set("attention_chunk_size", Some(LLAMA4_CHUNK));
        config.remove("sliding_window");
        return None;
    }
    // llama.cpp gives Phi-3 no window, whatever the file says.
    if metadata.architecture == "phi3" {
        config.remove("sliding_window");
        return None;
    }
    metadata.count("attention.sliding_window").filter(|window| *window > 0)?;
    let key = "attention.sliding_window_pattern";
    let known = PERIODS.iter().find(|(name, _)| *name == metadata.architecture).map(|(_, period)| *period);
    let layers = 0..metadata.layers;
    let slides: Vec<bool> = match (metadata.list(key), metadata.count(key).or(known)) {
        (Some(list), _) => list.iter().take(metadata.layers as usize).map(|slides| *slides > 0).collect(),
        // The first layer of a period of SmallThinker has full attention.
        (None, None) if metadata.architecture == "smallthinker" => {
            layers.map(|layer| !layer.is_multiple_of(4)).collect()
        }
        (None, Some(period)) => layers.map(|layer| !(layer + 1).is_multiple_of(period.max(1))).collect(),
        (None, None) => return None,
    };
    let kind = |slides: &bool| if *slides { "sliding_attention" } else { "full_attention" };
    config.set("layer_types", Some(slides.iter().map(kind).collect::<Vec<_>>()));
    Some(slides)
}

/// Sets the numbers of heads, which may differ between layers with a window and others. Layers without
/// attention have none.
fn heads(config: &mut Config, metadata: &Metadata, slides: &[bool]) -> Result<()> {
    let names = [
        ("attention.head_count", "num_attention_heads", "swa_num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads", "swa_num_key_value_heads"),
    ];
    for (theirs, ours, sliding) in names {
        let Some(list) = metadata.list(theirs) else { continue };
        let heads_of = |local: bool| {
            let layers = list.iter().take(metadata.layers as usize).enumerate();
            let mut heads = layers
                .filter(|(layer, heads)| **heads > 0 && slides.get(*layer).copied().unwrap_or(false) == local)
                .map(|(_, heads)| *heads);
            let first = heads.next();
            match heads.find(|heads| Some(*heads) != first) {
                Some(other) => Err(metadata.bad(
                    theirs,
                    format!("{} and {other}, different in layers of one kind", first.unwrap_or(0)),
                    "one value for all layers of a kind",
                )),
                None => Ok(first),
            }
        };
        let local = heads_of(true)?;
        config.set(ours, heads_of(false)?.or(local));
        config.set(sliding, local);
    }
    Ok(())
}

/// Sets the widths of latent attention. Newer files have the width of an absorbed head under `key_length`, and the
/// width of a head's key under `key_length_mla`.
fn latents(config: &mut Config, metadata: &Metadata) {
    let width = |own: &str, plain: &str| metadata.count(own).or_else(|| metadata.count(plain));
    let rope = metadata.count("rope.dimension_count");
    let key = width("attention.key_length_mla", "attention.key_length");
    let heads = metadata.count("attention.head_count").filter(|heads| *heads > 0);
    let even = metadata.count("embedding_length").zip(heads).map(|(hidden, heads)| hidden / heads);
    config.remove("head_dim");
    config.remove("num_key_value_heads");
    config.set("qk_rope_head_dim", rope);
    config.set("qk_nope_head_dim", key.zip(rope).map(|(key, rope)| key.saturating_sub(rope)));
    config.set("v_head_dim", width("attention.value_length_mla", "attention.value_length").or(even));
}
