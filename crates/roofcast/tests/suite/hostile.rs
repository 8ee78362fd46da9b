//! Malformed input: configs and specs with keys removed, changed or cut off. Nothing panics or takes long; errors name
//! the key or file.

use proptest::prelude::*;
use roofcast::record::{RecordFormat, Records};
use roofcast::{Spec, model::config, testing};
use serde_json::{Value, json};

/// Changes of keys that affect the model, to possible and impossible values.
fn changes() -> impl Strategy<Value = Vec<(usize, Value)>> {
    let value = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!("x")),
        Just(json!([])),
        Just(json!([0, 1, "full_attention"])),
        Just(json!({})),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        (0..300_u64).prop_map(|n| json!(n)),
    ];
    proptest::collection::vec((0..KEYS.len(), value), 1..6)
}

const KEYS: [&str; 44] = [
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "sliding_window",
    "layer_types",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "first_k_dense_replace",
    "moe_layer_freq",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_topk",
    "index_n_heads",
    "index_head_dim",
    "compress_ratios",
    "linear_num_value_heads",
    "linear_attn_config",
    "hybrid_override_pattern",
    "ssm_state_size",
    "block_configs",
    "quantization_config",
    "text_config",
    "torch_dtype",
    "attention_chunk_size",
    "sparse_attention_config",
    "num_kv_shared_layers",
    "hc_mult",
    "moe_latent_size",
    "mixer_types",
    "sparse_config",
    "layer_group_size",
    "short_conv_kernel_size",
];

const TYPES: [&str; 15] = [
    "llama",
    "qwen3_moe",
    "qwen3_next",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "gpt_oss",
    "nemotron_h",
    "gemma4_text",
    "llama4_text",
    "kimi_linear",
    "falcon",
    "bailing_hybrid",
    "hy_v4",
    "minicpm_sala",
];

fn base(model_type: &str) -> Value {
    json!({
        "model_type": model_type, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 128,
    })
}

/// Two thousand patterns over two thousand layers would take seconds at every resolution, so such configs are refused.
#[test]
fn patterns_without_end_are_refused() {
    let mut config = base("llama");
    config["num_hidden_layers"] = json!(2048);
    let patterns: Vec<String> = (0..2000).map(|i| format!("re:.*a.*b{i}.*c")).collect();
    config["quantization_config"] = json!({"quant_method": "fp8", "modules_to_not_convert": patterns});
    let error = config::read("m", "m.json", &config).unwrap_err().to_string();
    assert!(error.starts_with("m.json: `quantization_config` is 4096000 patterns"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_config_panics(kind in 0..TYPES.len(), changes in changes(), cut in 0..1000_usize) {
        let mut config = base(TYPES[kind]);
        for (key, value) in changes {
            config[KEYS[key]] = value;
        }
        let text = config.to_string();
        testing::config(&text);
        let cut = text.char_indices().map(|(i, _)| i).nth(cut).unwrap_or(text.len());
        testing::config(&text[..cut]);
        // Errors name the file.
        if let Err(error) = config::parse("m", "m.json", &text) {
            prop_assert!(error.to_string().contains("m.json"), "{error}");
        }
    }

    #[test]
    fn no_records_panic(from in 0..400_usize, length in 0..40_usize, with in "(?s).{0,12}", table in any::<bool>()) {
        let (lines, rows) =
            (include_str!("../../../../fuzz/corpus/records/lines"), include_str!("../../../../fuzz/corpus/records/table"));
        let (text, format) = if table { (rows, RecordFormat::Csv) } else { (lines, RecordFormat::JsonLines) };
        let at = |n: usize| text.char_indices().map(|(i, _)| i).nth(n).unwrap_or(text.len());
        let changed = format!("{}{with}{}", &text[..at(from)], &text[at(from + length)..]);
        testing::records(&changed);
        // Errors name file and line.
        if let Some(Err(error)) = Records::new("r", changed.as_bytes(), format).find(Result::is_err) {
            prop_assert!(error.to_string().starts_with("r:"), "{error}");
        }
    }
}

proptest! {
    // A spec that stays valid is planned, which takes half a second; `scripts/test-random` and the fuzzer draw others.
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spec_panics(from in 0..600_usize, length in 0..40_usize, with in "\\PC{0,12}") {
        let text = include_str!("../../../../examples/plan-70b.toml");
        let at = |n: usize| text.char_indices().map(|(i, _)| i).nth(n).unwrap_or(text.len());
        let changed = format!("{}{with}{}", &text[..at(from)], &text[at(from + length)..]);
        testing::spec(&changed);
        if let Err(error) = Spec::parse("s.toml", &changed) {
            prop_assert!(error.to_string().starts_with("s.toml"), "{error}");
        }
    }
}
