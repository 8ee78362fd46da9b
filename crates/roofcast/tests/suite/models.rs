//! Parameters and KV of the catalog's models against what their makers publish.

use crate::support::{catalog, model};
use roofcast::model::config;

#[test]
fn totals_equal_the_published_ones() {
    let mut checked = 0;
    for entry in catalog().models() {
        let (Ok(model), Some(published)) =
            (config::read(&entry.id, "catalog", &entry.config), entry.published_parameters)
        else {
            continue;
        };
        assert_eq!(model.parameters().total, published, "{}", entry.id);
        checked += 1;
    }
    assert!(checked > 80, "only {checked} models have a published total");
}

#[test]
fn kv_bytes_per_token_by_hand() {
    // 2 (k, v) · layers · KV heads · head width · bytes.
    assert_eq!(model("meta-llama/Llama-3.1-8B").kv_elements_per_token(4096) * 2, 2 * 32 * 8 * 128 * 2); // 131,072
    assert_eq!(model("huggyllama/llama-13b").kv_elements_per_token(2048) * 2, 819_200);
    assert_eq!(model("huggyllama/llama-65b").kv_elements_per_token(2048) * 2, 2_621_440);
    assert_eq!(model("meta-llama/Meta-Llama-3-70B").kv_elements_per_token(8192), 163_840);
    // MLA: 61 · (512 + 64) · 2 bytes.
    assert_eq!(model("deepseek-ai/DeepSeek-V3").kv_elements_per_token(4096) * 2, 70_272);
}

#[test]
fn windows_cap_what_a_sequence_keeps() {
    // gpt-oss-20b: 12 of 24 layers see 128 tokens; 8 KV heads of 64: 1024 elements a token and layer.
    let model = model("openai/gpt-oss-20b");
    assert_eq!(model.kv_elements_per_token(100), 24 * 1024);
    assert_eq!(model.kv_elements_per_token(4096), 12 * 1024);
    assert_eq!(model.kv_elements_per_sequence(4096), 12 * 1024 * (4096 + 128));
}
