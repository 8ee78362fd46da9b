//! Configs that were bent at random: changed numbers, types, keys and nesting lead to an answer or an error, in bounded
//! time.

use proptest::prelude::*;
use roofcast::model::config;
use roofcast::{Catalog, testing};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Values that replace a value of the config.
fn bent() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(1)),
        Just(json!(0.5)),
        Just(json!(1e300)),
        Just(json!(u64::MAX)),
        Just(json!(16_777_216)),
        Just(json!("auto")),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([1, 0, "full_attention", null])),
        Just(json!({"no_op": 3, "head_dim": 1, "kda_layers": [1]})),
        (0..100_000_u64).prop_map(|n| json!(n)),
        proptest::collection::vec(0..5_u64, 0..80).prop_map(|list| json!(list)),
    ]
}

/// Keys that turn a config of one family into another's, wherever they are.
const KEYS: &[&str] = &[
    "attention_chunk_size",
    "attn_layer_period",
    "attn_res_block_size",
    "block_configs",
    "compress_ratios",
    "enable_moe_block",
    "expert_dtype",
    "expert_layer_period",
    "full_attention_interval",
    "hc_mult",
    "head_dim",
    "hidden_size",
    "hidden_size_per_layer_input",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "indexer_types",
    "kv_lora_rank",
    "layer_types",
    "layers_block_type",
    "linear_attn_config",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "mamba_num_heads",
    "model_type",
    "layer_group_size",
    "mixer_types",
    "moe_latent_size",
    "moe_layers_enum",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_kv_shared_layers",
    "o_groups",
    "q_lora_rank",
    "quantization_config",
    "sliding_window",
    "sparse_attention_config",
    "ssm_state_size",
    "text_config",
    "vocab_size",
];

/// One change: a key, of the config or new, and its new value.
#[derive(Debug, Clone)]
enum Change {
    Set(usize, Value),
    Add(usize, Value),
    Remove(usize),
    Nest(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<usize>(), bent()).prop_map(|(k, v)| Change::Set(k, v)),
        3 => (any::<usize>(), bent()).prop_map(|(k, v)| Change::Add(k, v)),
        2 => any::<usize>().prop_map(Change::Remove),
        1 => any::<usize>().prop_map(Change::Nest),
    ]
}

/// The object that has the dimensions: the text part if there is one, else the config.
fn inner(config: &mut Value) -> Option<&mut Map<String, Value>> {
    let nested = config.get("text_config").is_some_and(Value::is_object);
    if nested { config["text_config"].as_object_mut() } else { config.as_object_mut() }
}

fn apply(config: &mut Value, change: &Change) {
    let Some(map) = inner(config).filter(|m| !m.is_empty()) else { return };
    let key = |n: usize, map: &Map<String, Value>| map.keys().nth(n % map.len()).cloned().unwrap();
    match change {
        Change::Set(n, value) => {
            let key = key(*n, map);
            map.insert(key, value.clone());
        }
        Change::Add(n, value) => {
            map.insert(KEYS[n % KEYS.len()].to_owned(), value.clone());
        }
        Change::Remove(n) => {
            let key = key(*n, map);
            map.remove(&key);
        }
        Change::Nest(n) => {
            let key = key(*n, map);
            let value = map.remove(&key).unwrap();
            map.insert(key.clone(), json!({ key: value }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bent_configs_end_soon(entry in any::<usize>(), changes in proptest::collection::vec(change(), 1..6)) {
        let models = Catalog::embedded().unwrap().models().unwrap();
        let mut bent = models[entry % models.len()].config.clone();
        changes.iter().for_each(|c| apply(&mut bent, c));
        let start = Instant::now();
        testing::config(&bent.to_string());
        prop_assert!(start.elapsed() < Duration::from_secs(20), "{bent}");
    }

    #[test]
    fn cut_and_spliced_texts_end_soon(entry in any::<usize>(), at in any::<usize>(), word in "NaN|-?Infinity|\\PC{0,4}") {
        let models = Catalog::embedded().unwrap().models().unwrap();
        let mut text = models[entry % models.len()].config.to_string();
        let at = (0..=at % text.len()).rev().find(|i| text.is_char_boundary(*i)).unwrap();
        text.insert_str(at, &word);
        testing::config(&text);
        testing::config(&text[..at]);
    }
}

fn refusal(config: &Value) -> String {
    config::parse("test", "config.json", &config.to_string()).unwrap_err().to_string()
}

#[test]
fn absurd_models_are_refused_by_key() {
    let llama = json!({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 128, "vocab_size": 100});
    let with = |key: &str, value: Value| {
        let mut config = llama.clone();
        config[key] = value;
        refusal(&config)
    };
    let cases = [
        ("num_hidden_layers", json!(10_000)),
        ("num_hidden_layers", json!(1_u64 << 60)),
        ("hidden_size", json!(0)),
        ("hidden_size", json!(-64)),
        ("hidden_size", json!(1e30)),
        ("intermediate_size", json!("wide")),
        ("vocab_size", Value::Null),
        ("num_key_value_heads", json!(3)),
        ("num_kv_shared_layers", json!(2)),
        ("compress_ratios", json!([4])),
        ("hybrid_override_pattern", json!("M*-")),
        ("block_configs", json!([{}, {}])),
        ("attn_type_list", json!([2, 1])),
        ("layer_types", json!(["linear_attention", "full_attention"])),
        ("layer_types", json!(["retention", "full_attention"])),
        ("lru_width", json!(4)),
    ];
    for (key, value) in cases {
        let message = with(key, value);
        let named = if message.contains("linear_num_value_heads") { "linear_num_value_heads" } else { key };
        assert!(message.starts_with("config.json: `") && message.contains(named), "{key}: {message}");
    }
    let wide = json!({"model_type": "llama", "hidden_size": 16_777_216, "num_attention_heads": 1,
        "num_hidden_layers": 2000, "intermediate_size": 16_777_216, "vocab_size": 16_777_216});
    assert!(refusal(&wide).contains("10^15"));
}

#[test]
fn a_deep_or_long_text_is_refused() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(config::parse("test", "config.json", &deep).is_err());
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(65 << 20));
    let message = config::parse("test", "config.json", &long).unwrap_err().to_string();
    assert!(message.contains("at most"), "{message}");
}

#[test]
fn a_million_patterns_are_refused() {
    let ignore: Vec<String> = (0..100_000).map(|n| format!("*{n}*")).collect();
    let config = json!({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2048,
        "intermediate_size": 128, "vocab_size": 100,
        "quantization_config": {"quant_method": "fp8", "ignore": ignore}});
    assert!(refusal(&config).contains("100000 patterns"));
    let groups: Map<String, Value> = (0..1000)
        .map(|n| {
            (n.to_string(), json!({"targets": [n.to_string()], "weights": {"num_bits": 8, "type": "int"}}))
        })
        .collect();
    let config = json!({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 128, "vocab_size": 100,
        "quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}});
    assert!(refusal(&config).contains("1000 groups"));
}
