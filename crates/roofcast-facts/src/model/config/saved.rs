//! Names that transformers 5 gives to keys and layers when it saves a config, turned into the names of the makers'
//! files.
//!
//! Knows: renamed keys and kinds of layers. Knows nothing about what they mean: the reader reads the makers' names.
//!
//! Source: `configuration_*.py` of transformers 5.24, whose `__post_init__` turn the makers' keys into its own.

use super::architecture::architecture;
use super::habits::habits;
use crate::model::keys::text_part;
use serde_json::{Map, Value, json};

/// Keys of a whole text model.
const TEXT_MODEL: [&str; 4] = ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"];

/// Drops a nested text part beside the keys of a whole text model, which transformers makes of nothing but defaults
/// where a maker's file of a known type is flat (Step-3.7).
pub(super) fn without_second_text(config: &mut Value) {
    let states = |key: &&str| config.get(*key).is_some_and(|value| !value.is_null());
    let known = config.get("model_type").and_then(Value::as_str).is_some_and(|name| habits(name).is_some());
    let whole = known && TEXT_MODEL.iter().all(states);
    if let Some(map) = config.as_object_mut().filter(|_| whole) {
        map.retain(|key, value| key != "text_config" || !value.is_object());
    }
}

/// Turns saved names into the makers' in the text part of `config`.
pub(super) fn rename(config: &mut Value) {
    let outer_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let part = match text_part(config) {
        Some(part) => part,
        None => match config.as_object_mut() {
            Some(map) => map,
            None => return,
        },
    };
    let name = part.get("model_type").and_then(Value::as_str).unwrap_or(&outer_type).to_owned();
    aliases(part, &name);
    kinds(part, &name);
    ratios(part);
    block_index(part);
    delta_attention(part);
    unsaved(part, &name);
}

/// Adds keys of the makers' files that transformers' class has as rules of its code: twice the KV heads, one token less than
/// the saved window, and sinks in MiMo-V2's windowed layers (`modeling_mimo_v2_flash.py`), one shared expert in Hunyuan's MLPs
/// (`modeling_hunyuan_v1_moe.py`).
fn unsaved(part: &mut Map<String, Value>, name: &str) {
    match name {
        "hunyuan_v1_moe" => drop(part.entry("num_shared_expert").or_insert(1.into())),
        "mimo_v2_flash" => {
            let count = |key: &str| part.get(key).and_then(Value::as_u64);
            // The makers' own name of the window, which transformers keeps.
            if let Some(window) = count("sliding_window_size") {
                part.insert("sliding_window".to_owned(), window.into());
                return;
            }
            let is_saved = part.contains_key("layer_types") && !part.contains_key("hybrid_layer_pattern");
            if let (true, Some(heads), Some(window)) =
                (is_saved, count("num_key_value_heads"), count("sliding_window"))
            {
                part.insert("swa_num_key_value_heads".to_owned(), heads.saturating_mul(2).into());
                part.insert("sliding_window".to_owned(), window.saturating_sub(1).into());
                part.insert("add_swa_attention_sink_bias".to_owned(), true.into());
            }
        }
        _ => {}
    }
}

/// Copies keys that only transformers' class names to the names that the reader knows.
fn aliases(part: &mut Map<String, Value>, name: &str) {
    let Some(row) = architecture(name) else { return };
    for (key, known) in row.renamed() {
        if let Some(value) = part.get(key).filter(|_| !part.contains_key(known)).cloned() {
            part.insert(known.to_owned(), value);
        }
    }
}

/// Kinds of layers: transformers names every recurrence linear attention.
fn kinds(part: &mut Map<String, Value>, name: &str) {
    let blocks = part.get_mut("layers_block_type").and_then(Value::as_array_mut);
    for kind in blocks.into_iter().flatten() {
        match kind.as_str() {
            Some("linear_attention") => *kind = "mamba".into(),
            Some("full_attention") => *kind = "attention".into(),
            _ => {}
        }
    }
    let Some(list) = part.get("layer_types").and_then(Value::as_array) else { return };
    let is = |kind: &Value, name: &str| kind.as_str() == Some(name);
    match name {
        "granitemoehybrid" => {
            let named = list
                .iter()
                .map(|kind| if is(kind, "linear_attention") { "mamba".into() } else { kind.clone() });
            let named = named.collect();
            part.insert("layer_types".to_owned(), named);
        }
        // The makers' list, which transformers keeps beside its own, comes first.
        "minimax" => {
            let softmax: Value =
                list.iter().map(|kind| Value::from(u64::from(!is(kind, "linear_attention")))).collect();
            part.entry("attn_type_list").or_insert(softmax);
            part.remove("layer_types");
        }
        _ => {}
    }
}

/// DeepSeek-V4's ratios of compression, one a layer, from the kinds of layers and a ratio for each kind.
fn ratios(part: &mut Map<String, Value>) {
    let Some(kinds) = part.get("layer_types").and_then(Value::as_array) else { return };
    let compressed = |kind: &Value| {
        kind.as_str().is_some_and(|kind| {
            kind.ends_with("compressed_attention") || kind.ends_with("compressed_sparse_attention")
        })
    };
    if part.contains_key("compress_ratios") || !kinds.iter().any(compressed) {
        return;
    }
    let rates = part.get("compress_rates");
    let rate = |kind: &Value| match (kind.as_str().and_then(|kind| rates?.get(kind)), kind.as_str()) {
        (Some(rate), _) => rate.clone(),
        (None, Some("compressed_sparse_attention")) => 4.into(),
        (None, Some("heavily_compressed_attention")) => 128.into(),
        (None, Some("sliding_attention")) => 0.into(),
        (None, _) => kind.clone(),
    };
    let ratios = kinds.iter().map(rate).collect();
    part.insert("compress_ratios".to_owned(), ratios);
    part.remove("layer_types");
}

/// MiniMax-M3's index of blocks.
fn block_index(part: &mut Map<String, Value>) {
    let Some(kinds) = part.get("layer_types").and_then(Value::as_array) else { return };
    let sparse: Vec<Value> =
        kinds.iter().map(|kind| u64::from(kind.as_str() == Some("minimax_m3_sparse")).into()).collect();
    if part.contains_key("sparse_attention_config") || !sparse.contains(&1.into()) {
        return;
    }
    let saved_value = |key: &str| part.get(key).cloned().unwrap_or_default();
    let index = json!({
        "sparse_num_index_heads": saved_value("index_n_heads"), "sparse_index_dim": saved_value("index_head_dim"),
        "sparse_topk_blocks": saved_value("index_topk_blocks"), "sparse_block_size": saved_value("index_block_size"),
        "sparse_attention_freq": sparse,
    });
    part.insert("sparse_attention_config".to_owned(), index);
}

/// Dimensions of Kimi's delta attention, and of Ling 3's, whose gate has full rank in transformers.
fn delta_attention(part: &mut Map<String, Value>) {
    if part.contains_key("linear_attn_config") || !part.contains_key("linear_num_heads") {
        return;
    }
    let saved_value = |key: &str| part.get(key).cloned().unwrap_or_default();
    if part.contains_key("layer_group_size") {
        let width = saved_value("linear_head_dim");
        part.insert("head_dim".to_owned(), width);
        part.entry("no_kda_lora").or_insert(true.into());
        return;
    }
    let linear = json!({
        "num_heads": saved_value("linear_num_heads"), "head_dim": saved_value("linear_head_dim"),
        "short_conv_kernel_size": saved_value("linear_conv_kernel_dim"),
    });
    part.insert("linear_attn_config".to_owned(), linear);
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::model::Mixer;
    use serde_json::Value;

    /// Pairs of a maker's config and the config that transformers saves for it, with changed dimensions.
    const PAIRS: &str = include_str!("../../../tests/data/saved.jsonl");

    #[test]
    fn saved_configs_are_the_makers_models() {
        for line in PAIRS.lines() {
            let pair: Value = serde_json::from_str(line).unwrap();
            let read = |form: &str| parse("m", form, &pair[form].to_string()).unwrap();
            let [maker, saved] = ["maker", "saved"].map(read);
            let name = &pair["maker"]["model_type"];
            assert_eq!(saved.parameters(), maker.parameters(), "{name}");
            assert_eq!(saved.layers, maker.layers, "{name}");
            assert_eq!((saved.tied, saved.vocab), (maker.tied, maker.vocab), "{name}");
        }
        assert!(PAIRS.lines().count() >= 12);
    }

    /// MiMo-V2-Flash: a window of 128 tokens, which the class saves as 129 and keeps. Ling 3 with 8 layers in groups of 6: the
    /// sixth alone has softmax attention, by the class's list.
    #[test]
    fn what_the_class_saves_beside_the_makers_keys() {
        let mimo = serde_json::json!({
            "model_type": "mimo_v2_flash", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "vocab_size": 512,
            "hybrid_layer_pattern": [0, 1], "layer_types": ["full_attention", "sliding_attention"],
            "sliding_window": 129, "sliding_window_size": 128, "mlp_layer_types": ["dense", "dense"]
        });
        let model = parse("m", "m", &mimo.to_string()).unwrap();
        assert!(matches!(&model.layers[1].mixer, Mixer::Attention(windowed) if windowed.window == Some(128)));
        let kinds = |kind: &str, count: usize| vec![Value::from(kind); count];
        let listed =
            [kinds("linear_attention", 5), kinds("full_attention", 1), kinds("linear_attention", 2)].concat();
        let ling = serde_json::json!({
            "model_type": "bailing_hybrid", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8,
            "vocab_size": 512, "layer_group_size": 6, "layer_types": listed, "head_dim": 64, "linear_head_dim": 128,
            "linear_num_heads": 8, "linear_conv_kernel_dim": 4
        });
        let model = parse("m", "m", &ling.to_string()).unwrap();
        let softmax: Vec<bool> =
            model.layers.iter().map(|layer| matches!(layer.mixer, Mixer::Latent(_))).collect();
        assert_eq!(softmax, [false, false, false, false, false, true, false, false]);
    }

    /// MiMo-V2-Flash as its class saves it: a windowed layer has twice the 4 KV heads of a full one, each of 192 + 128
    /// values, a window of 129 − 1 tokens and 16 sinks. Hunyuan's layers have one shared expert of the same width.
    #[test]
    fn rules_of_a_class_count_as_keys() {
        let mimo = serde_json::json!({
            "model_type": "mimo_v2_flash", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "vocab_size": 512,
            "sliding_window": 129, "layer_types": ["full_attention", "sliding_attention"],
            "mlp_layer_types": ["dense", "sparse"], "n_routed_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 384
        });
        let model = parse("m", "m", &mimo.to_string()).unwrap();
        let full = 1024 * (16 * 192 + 4 * (192 + 128) + 16 * 128);
        let windowed = 1024 * (16 * 192 + 8 * (192 + 128) + 16 * 128) + 16;
        let dense = 3 * 1024 * 2816;
        let sparse = 8 * 3 * 1024 * 384 + 1024 * 8 + 8;
        let others = 5 * 1024 + 2 * 512 * 1024;
        assert_eq!(model.parameters().total, full + windowed + dense + sparse + others);
        let hunyuan = serde_json::json!({
            "model_type": "hunyuan_v1_moe", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 1,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 96, "vocab_size": 512, "num_experts": 8,
            "moe_topk": 2, "tie_word_embeddings": true
        });
        let attention = 1024 * (16 + 2 * 4 + 16) * 96 + 2 * 96;
        let experts = 9 * 3 * 1024 * 2816 + 8 * 1024;
        let model = parse("m", "m", &hunyuan.to_string()).unwrap();
        assert_eq!(model.parameters().total, attention + experts + 3 * 1024 + 512 * 1024);
    }
}
