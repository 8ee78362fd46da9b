//! Keys that a config.json omits, which follow from its `model_type`: the defaults of transformers' class.
//!
//! Knows: which keys of a file stand for an omitted one. Defaults are known to [`super::architecture`]; what keys mean
//! is known to the reader.

use super::architecture::{Architecture, architecture};
use crate::model::keys::text_part;
use serde_json::{Map, Value};

/// Groups of names for the same number: a file that has one name of a group omits none of the others.
const SYNONYMS: [&[&str]; 11] = [
    &["num_hidden_layers", "n_layer", "num_layers", "n_layers"],
    &["num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"],
    &[
        "num_experts_per_tok",
        "experts_per_token",
        "num_experts_per_token",
        "moe_top_k",
        "moe_topk",
        "moe_k",
        "top_k_experts",
    ],
    &["moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size"],
    &[
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
        "share_expert_dim",
        "share_expert_dims",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
    ],
    &["sliding_window", "sliding_window_size"],
    &["num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", "multi_query_group_num"],
    &["head_dim", "kv_channels", "attention_head_dim", "d_kv"],
    &[
        "max_position_embeddings",
        "n_positions",
        "seq_length",
        "n_ctx",
        "max_sequence_length",
        "max_seq_len",
        "model_max_length",
    ],
    &[
        "first_k_dense_replace",
        "moe_layer_start_index",
        "num_dense_layers",
        "moe_layers_enum",
        "mlp_layer_types",
    ],
    &[
        "intermediate_size",
        "dense_intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "ffn_size",
        "block_ff_dim",
    ],
];

/// Dimensions that a file of its own states: one without them is damaged. Nested text parts may omit them.
const DIMENSIONS: [&str; 11] = [
    "hidden_size",
    "n_embd",
    "d_model",
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "vocab_size",
];

/// Keys that decide the kinds of mixers, where no word of theirs says so.
const MIXER_KEYS: [&str; 9] = [
    "attn_type_list",
    "block_configs",
    "layer_group_size",
    "layers_block_type",
    "layer_types",
    "linear_attn_config",
    "max_window_layers",
    "sparse_attention_config",
    "use_sliding_window",
];

/// Key, and a class of its `model_type` that has no such part: the linear attention of Ling 2.5 has the type of Ling 3's
/// and no convolution.
const OF_ONE_CLASS: (&str, &str) = ("short_conv_kernel_size", "BailingMoeV2_5ForCausalLM");

/// Fills in the keys that `config` omits, and returns their names.
pub(super) fn fill(config: &mut Value) -> Vec<String> {
    let type_of = |map: &Map<String, Value>| map.get("model_type").and_then(Value::as_str).map(str::to_owned);
    let Some(outer) = config.as_object().cloned() else { return Vec::new() };
    let whole = type_of(&outer).and_then(|name| architecture(&name));
    let text = whole.as_ref().and_then(Architecture::text).map(str::to_owned);
    let Some(part) = text_part(config) else {
        let Some(map) = config.as_object_mut() else { return Vec::new() };
        tie(map, &outer, whole.as_ref());
        let row = text.and_then(|name| architecture(&name)).or(whole);
        return row.map_or_else(Vec::new, |row| fill_part(map, &Map::new(), &row, false));
    };
    tie(part, &outer, whole.as_ref());
    let row = type_of(part).or(text).and_then(|name| architecture(&name));
    // Of a composite that transformers lacks, the outer keys hold for the text part, too.
    let beside = if whole.is_some() { Map::new() } else { outer };
    row.map_or_else(Vec::new, |row| fill_part(part, &beside, &row, true))
}

/// Ties the weights of a text part as the model around it says, by key or by default: the part's own key counts
/// after the outer key.
fn tie(part: &mut Map<String, Value>, outer: &Map<String, Value>, whole: Option<&Architecture>) {
    const KEY: &str = "tie_word_embeddings";
    let stated = outer.get(KEY).filter(|value| value.is_boolean());
    let default = whole.and_then(|row| row.default(KEY)).filter(|_| !part.contains_key(KEY));
    if let Some(tied) = stated.or(default) {
        part.insert(KEY.to_owned(), tied.clone());
    }
}

/// Fills in the keys of one object by `row`. Keys of `outer` count as present.
fn fill_part(
    part: &mut Map<String, Value>,
    outer: &Map<String, Value>,
    row: &Architecture,
    all: bool,
) -> Vec<String> {
    let stated: Vec<String> = part.keys().chain(outer.keys()).cloned().collect();
    let has = |key: &str| stated.iter().any(|name| name == key);
    let classes = part.get("architectures").and_then(Value::as_array);
    let is_other_class = classes.is_some_and(|names| names.contains(&OF_ONE_CLASS.1.into()));
    // A list of layers with experts says which layers have none; a number says nothing about the first ones.
    let lists_experts = part.get("moe_layer_freq").is_some_and(Value::is_array);
    let mut filled = Vec::new();
    let mut insert = |key: &str, value: Value| {
        filled.push(key.to_owned());
        part.insert(key.to_owned(), value);
    };
    for (key, value) in row.defaults() {
        // Two keys of one class are two numbers (MiniMax-M3's widths of dense MLPs and of experts).
        let synonyms = SYNONYMS.iter().filter(|group| group.contains(&key)).flat_map(|group| group.iter());
        let synonyms = synonyms.filter(|name| row.default(name).is_none());
        let aliases = row.aliases().filter(|(_, of)| *of == key).map(|(alias, _)| alias);
        let is_given = has(key)
            || synonyms.copied().chain(aliases).any(has)
            || key == OF_ONE_CLASS.0 && is_other_class
            || key == "first_k_dense_replace" && lists_experts;
        if !is_given && (all || !DIMENSIONS.contains(&key)) {
            insert(key, value.clone());
        }
    }
    let layers = SYNONYMS[0].iter().find_map(|key| part.get(*key).or_else(|| outer.get(*key))?.as_u64());
    for (key, list) in
        row.lists(layers.and_then(|n| usize::try_from(n).ok()).filter(|n| *n < 4096).unwrap_or(0))
    {
        if !list.is_empty() && !stated.iter().any(|name| name == key || decides(name, key)) {
            filled.push(key.to_owned());
            part.insert(key.to_owned(), list.into());
        }
    }
    filled
}

/// True if `key` decides which layers have which part, so that the default of `list` does not hold.
fn decides(key: &str, list: &str) -> bool {
    let is = |words: &[&str]| key.split('_').any(|word| words.contains(&word));
    // Layers for drafts, and Gemma 3n's sparsity of activations.
    if is(&["mtp", "sparsity"]) {
        return false;
    }
    let ffn = is(&["moe", "dense", "sparse", "mlp", "expert", "experts"]) && key != "sparse_attention_config";
    match list {
        "mlp_layer_types" => {
            ffn && is(&[
                "freq", "replace", "step", "interval", "period", "layers", "offset", "enum", "index", "types",
            ])
        }
        _ => {
            let places = ["pattern", "interval", "period", "idxs", "indices", "ratios", "every"];
            !ffn && (is(&places) || MIXER_KEYS.contains(&key))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::architecture::rows;
    use super::super::parse;
    use super::fill;
    use serde_json::{Value, json};

    /// Types whose name two architectures share (Grok 2's "git"), or whose class counts what no checkpoint has:
    /// LongCat's zero experts.
    const APART: [&str; 2] = ["git", "longcat_flash"];

    /// The config of a class's default model, with all its keys.
    fn whole(name: &str, layers: Option<u64>) -> Value {
        let mut config = json!({ "text_config": { "model_type": name } });
        fill(&mut config);
        let mut text = config["text_config"].take();
        if let (Some(layers), true) = (layers, text.get("num_hidden_layers").is_some()) {
            text = json!({ "text_config": { "model_type": name, "num_hidden_layers": layers } });
            fill(&mut text);
            text = text["text_config"].take();
        }
        text
    }

    #[test]
    fn default_models_have_the_parameters_of_their_class() {
        let mut read = 0;
        for (name, row) in rows().filter(|(name, _)| !APART.contains(name)) {
            let (Some(own), Ok(model)) =
                (row.parameters(), parse(name, name, &whole(name, None).to_string()))
            else {
                continue;
            };
            let total = model.parameters().total;
            assert!(own.abs_diff(total) * 1000 <= own, "{name}: {total} for {own}");
            read += 1;
        }
        assert!(read > 100, "{read}");
    }

    /// A config without a key whose value is the default gives an equal model or is refused, alone and as a nested text part.
    #[test]
    fn a_key_of_default_value_says_nothing() {
        for (name, row) in rows() {
            let config = whole(name, Some(6));
            let text =
                |part: &Value| [part.clone(), json!({ "text_config": part })].map(|form| form.to_string());
            let Ok(model) = parse(name, name, &text(&config)[0]) else { continue };
            for key in row.defaults().map(|(key, _)| key).chain(row.lists(0).map(|(key, _)| key)) {
                // A file of other layers than the class's states their number.
                if key == "num_hidden_layers" {
                    continue;
                }
                let mut without = config.clone();
                without.as_object_mut().unwrap().remove(key);
                for form in text(&without) {
                    let Ok(other) = parse(name, name, &form) else { continue };
                    assert_eq!(other.parameters(), model.parameters(), "{name} without {key}");
                    assert_eq!(other.layers, model.layers, "{name} without {key}");
                }
            }
        }
    }

    #[test]
    fn experts_that_are_named_are_counted() {
        let dense = json!({
            "model_type": "nobody_knows", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 128, "vocab_size": 100, "num_experts_per_tok": 4,
        });
        let message = parse("m", "config.json", &dense.to_string()).unwrap_err().to_string();
        assert!(
            message.contains("config.json: `n_routed_experts` is missing") && message.contains("accepted"),
            "{message}"
        );
    }

    /// DeepSeek-V3 has its first 3 layers without experts where a file omits their number and says that every later one has
    /// experts; MiniMax-M3's dense MLPs are 12,288 wide beside experts of 3,072.
    #[test]
    fn a_key_beside_another_is_filled_in() {
        let deepseek = json!({
            "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
            "vocab_size": 129_280, "moe_layer_freq": 1,
        });
        assert_eq!(parse("m", "m", &deepseek.to_string()).unwrap().parameters().total, 671_026_419_200);
        let mut minimax = whole("minimax_m3_vl_text", Some(6));
        minimax.as_object_mut().unwrap().remove("mlp_layer_types");
        minimax["first_k_dense_replace"] = json!(3);
        let total = |config: &Value| parse("m", "m", &config.to_string()).unwrap().parameters().total;
        let stated = total(&minimax);
        assert_eq!(minimax.as_object_mut().unwrap().remove("dense_intermediate_size"), Some(json!(12_288)));
        assert_eq!(total(&minimax), stated);
    }

    /// The outer key counts: a nested part of Qwen3-VL-MoE ties its weights where the whole does not.
    #[test]
    fn the_outer_key_ties() {
        let tied = |outer: Value| {
            let mut config = json!({ "model_type": "qwen3_vl_moe", "tie_word_embeddings": outer });
            config["text_config"] = json!({ "model_type": "qwen3_vl_moe_text", "tie_word_embeddings": true });
            parse("m", "config.json", &config.to_string()).unwrap().tied
        };
        assert_eq!([tied(json!(false)), tied(json!(true)), tied(Value::Null)], [false, true, true]);
    }
}
