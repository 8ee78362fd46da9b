//! Parameters and KV of the catalog's models against what their makers publish.

use crate::support::{catalog, model};
use roofcast::model::config;

#[test]
fn totals_equal_the_published_ones() {
    let mut checked = 0;
    for entry in catalog().models() {
        let model = config::read(&entry.id, "catalog", &entry.config).unwrap();
        let Some(published) = entry.published_parameters else {
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

/// The real Gemma 3 270M in Q4_K_M holds 169,246,720 values in q8_0 (34/32 B), 63,406,080 in q5_0 (22/32), 23,592,960 in
/// q4_k (144/256), 11,796,480 in q6_k (210/256) and 55,936 in f32, by its header: 246,587,904 bytes. (640 columns do not
/// fill blocks of 256, so most tensors fall back.)
#[test]
fn q4_k_m_is_what_llama_cpp_writes() {
    use roofcast::{Deployment, deployment::Options, spec::PrecisionSpec};
    let expected = 169_246_720 * 34 / 32
        + 63_406_080 * 22 / 32
        + 23_592_960 * 144 / 256
        + 11_796_480 * 210 / 256
        + 55_936 * 4;
    assert_eq!(expected, 246_587_904);
    let precision = PrecisionSpec { weights: Some("q4_k_m".into()), ..PrecisionSpec::default() };
    let chip = std::sync::Arc::new(catalog().accelerator("rtx-4090").unwrap().clone());
    let options = Options { precision, ..Options::default() };
    let deployment = Deployment::resolve(model("google/gemma-3-270m"), chip, &options).unwrap();
    assert_eq!(deployment.weight_bytes.0, expected);
}
