//! Tests of the metadata of GGUF files against models' published sizes.

use super::{Header, Stored, config, model};
use crate::model::config::read;
use crate::units::Bytes;
use serde_json::{Value, json};

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
        let metadata: Vec<(&str, Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
        let rows = if architecture == "mamba" { 50_280 } else { 50_288 };
        parameters(&metadata, &[("token_embd.weight", &[rows, 768])])
    };
    assert_eq!(header_of("mamba", &[("ssm.state_size", 16), ("ssm.time_step_rank", 48)]), 129_135_360);
    let second = [("ssm.state_size", 128), ("ssm.time_step_rank", 24), ("ssm.group_count", 1)];
    assert_eq!(header_of("mamba2", &second), 128_989_632);
}

/// Metadata as (key, value), without the architecture's prefix.
type Keys<'a> = &'a [(&'a str, Value)];

/// Checks that a header has the layers of a catalog's model.
fn same_layers(id: &str, architecture: &str, keys: Keys, tensors: &[(&str, &[u64])]) {
    let catalog = crate::Catalog::embedded().unwrap();
    let entry = catalog.model(id).unwrap();
    let expected = read(&entry.id, "catalog", &entry.config).unwrap();
    let keys = keys.iter().map(|(key, value)| (format!("{architecture}.{key}"), value.clone()));
    let mut metadata: Vec<(String, Value)> = keys.collect();
    metadata.push(("general.architecture".into(), json!(architecture)));
    let metadata: Vec<(&str, Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let shape = [expected.vocab, expected.hidden];
    let table = [("token_embd.weight", shape.as_slice())];
    let model = model(id, "x.gguf", &header(&metadata, &[&table, tensors].concat())).unwrap();
    assert_eq!(model.layers.len(), expected.layers.len(), "{id}");
    for (index, (ours, theirs)) in model.layers.iter().zip(&expected.layers).enumerate() {
        assert_eq!(ours, theirs, "{id}, layer {index}");
    }
}

/// Qwen3-Next: 32 value heads of 128 are an inner width of 4096.
#[test]
fn delta_nets_are_read() {
    let keys = [
        ("block_count", json!(48)),
        ("embedding_length", json!(2048)),
        ("feed_forward_length", json!(5120)),
        ("attention.head_count", json!(16)),
        ("attention.head_count_kv", json!(2)),
        ("attention.key_length", json!(256)),
        ("attention.value_length", json!(256)),
        ("ssm.conv_kernel", json!(4)),
        ("ssm.state_size", json!(128)),
        ("ssm.group_count", json!(16)),
        ("ssm.time_step_rank", json!(32)),
        ("ssm.inner_size", json!(4096)),
        ("expert_count", json!(512)),
        ("expert_used_count", json!(10)),
        ("expert_feed_forward_length", json!(512)),
        ("expert_shared_feed_forward_length", json!(512)),
    ];
    same_layers("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3next", &keys, &[]);
}

/// Kimi Linear: layers without heads of keys and values have delta attention; a head's key is 128 + 64 wide.
#[test]
fn kimi_linear_is_read() {
    let kv_heads: Vec<u64> = (1..=27).map(|layer| u64::from(layer % 4 == 0 || layer == 27)).collect();
    let keys = [
        ("block_count", json!(27)),
        ("embedding_length", json!(2304)),
        ("feed_forward_length", json!(9216)),
        ("attention.head_count", json!(32)),
        ("attention.head_count_kv", json!(kv_heads)),
        ("attention.kv_lora_rank", json!(512)),
        ("attention.key_length", json!(576)),
        ("attention.value_length", json!(512)),
        ("attention.key_length_mla", json!(192)),
        ("attention.value_length_mla", json!(128)),
        ("rope.dimension_count", json!(64)),
        ("kda.head_dim", json!(128)),
        ("ssm.conv_kernel", json!(4)),
        ("expert_count", json!(256)),
        ("expert_used_count", json!(8)),
        ("expert_shared_count", json!(1)),
        ("expert_feed_forward_length", json!(1024)),
        ("leading_dense_block_count", json!(1)),
    ];
    same_layers("moonshotai/Kimi-Linear-48B-A3B-Instruct", "kimi-linear", &keys, &[]);
}

/// Granite 4 and Falcon-H1: heads of Mamba-2 are the rank of time steps, 128 of 8192/128 = 64 and 32 of 4096/32 = 128.
#[test]
fn mamba_2_beside_attention_is_read() {
    let granite: Vec<u64> = (0..40).map(|layer| if layer % 10 == 5 { 8 } else { 0 }).collect();
    let mut keys = vec![
        ("block_count", json!(40)),
        ("embedding_length", json!(4096)),
        ("feed_forward_length", json!(768)),
        ("attention.head_count", json!(32)),
        ("attention.head_count_kv", json!(granite)),
        ("ssm.conv_kernel", json!(4)),
        ("ssm.state_size", json!(128)),
        ("ssm.group_count", json!(1)),
        ("ssm.time_step_rank", json!(128)),
        ("ssm.inner_size", json!(8192)),
        ("expert_count", json!(72)),
        ("expert_used_count", json!(10)),
        ("expert_shared_feed_forward_length", json!(1536)),
    ];
    same_layers("ibm-granite/granite-4.0-h-small", "granitehybrid", &keys, &[]);
    keys = vec![
        ("block_count", json!(72)),
        ("embedding_length", json!(5120)),
        ("feed_forward_length", json!(21_504)),
        ("attention.head_count", json!(20)),
        ("attention.head_count_kv", json!(4)),
        ("attention.key_length", json!(128)),
        ("attention.value_length", json!(128)),
        ("ssm.conv_kernel", json!(4)),
        ("ssm.state_size", json!(256)),
        ("ssm.group_count", json!(2)),
        ("ssm.time_step_rank", json!(32)),
        ("ssm.inner_size", json!(4096)),
    ];
    same_layers("tiiuae/Falcon-H1-34B-Instruct", "falcon-h1", &keys, &[]);
}

/// LFM2: attention in layers 2, 6, 10, 14, 18 and 21; a correction term per expert shows in the tensors.
#[test]
fn short_convolutions_are_read() {
    let kv_heads: Vec<u64> =
        (0..24).map(|layer| if [2, 6, 10, 14, 18, 21].contains(&layer) { 8 } else { 0 }).collect();
    let keys = [
        ("block_count", json!(24)),
        ("embedding_length", json!(2048)),
        ("feed_forward_length", json!(7168)),
        ("attention.head_count", json!(32)),
        ("attention.head_count_kv", json!(kv_heads)),
        ("shortconv.l_cache", json!(3)),
        ("expert_count", json!(32)),
        ("expert_used_count", json!(4)),
        ("expert_feed_forward_length", json!(1792)),
        ("leading_dense_block_count", json!(2)),
    ];
    let names: Vec<(String, String)> = (2..24)
        .map(|layer| (format!("blk.{layer}.ffn_gate_inp.weight"), format!("blk.{layer}.exp_probs_b.bias")))
        .collect();
    let matrices = names.iter().map(|(gate, _)| (gate.as_str(), [32, 2048].as_slice()));
    let terms = names.iter().map(|(_, term)| (term.as_str(), [32].as_slice()));
    same_layers("LiquidAI/LFM2-8B-A1B", "lfm2moe", &keys, &matrices.chain(terms).collect::<Vec<_>>());
}

/// Gemma 4: five of six layers have a window, 8 heads of 256; the others 2 of 512, whose values are the keys.
#[test]
fn heads_by_kind_of_layer_are_read() {
    let slides: Vec<bool> = (1..=30).map(|layer| layer % 6 != 0).collect();
    let kv_heads: Vec<u64> = slides.iter().map(|slides| if *slides { 8 } else { 2 }).collect();
    let keys = [
        ("block_count", json!(30)),
        ("embedding_length", json!(2816)),
        ("embedding_length_per_layer_input", json!(0)),
        ("feed_forward_length", json!(2112)),
        ("attention.head_count", json!(16)),
        ("attention.head_count_kv", json!(kv_heads)),
        ("attention.key_length", json!(512)),
        ("attention.value_length", json!(512)),
        ("attention.key_length_swa", json!(256)),
        ("attention.value_length_swa", json!(256)),
        ("attention.sliding_window", json!(1024)),
        ("attention.sliding_window_pattern", json!(slides)),
        ("expert_count", json!(128)),
        ("expert_used_count", json!(8)),
        ("expert_feed_forward_length", json!(704)),
    ];
    let tensor: &[(&str, &[u64])] = &[("blk.29.attn_k.weight", &[1024, 2816])];
    same_layers("google/gemma-4-26B-A4B-it", "gemma4", &keys, tensor);
}

/// GLM-5: 79 blocks, of which the last predicts a further token; an indexer in each layer.
#[test]
fn indexers_are_read() {
    let keys = [
        ("block_count", json!(79)),
        ("nextn_predict_layers", json!(1)),
        ("embedding_length", json!(6144)),
        ("feed_forward_length", json!(12_288)),
        ("attention.head_count", json!(64)),
        ("attention.head_count_kv", json!(1)),
        ("attention.kv_lora_rank", json!(512)),
        ("attention.q_lora_rank", json!(2048)),
        ("attention.key_length", json!(576)),
        ("attention.value_length", json!(512)),
        ("attention.key_length_mla", json!(256)),
        ("attention.value_length_mla", json!(256)),
        ("rope.dimension_count", json!(64)),
        ("attention.indexer.head_count", json!(32)),
        ("attention.indexer.key_length", json!(128)),
        ("attention.indexer.top_k", json!(2048)),
        ("expert_count", json!(256)),
        ("expert_used_count", json!(8)),
        ("expert_shared_count", json!(1)),
        ("expert_feed_forward_length", json!(2048)),
        ("leading_dense_block_count", json!(3)),
    ];
    same_layers("zai-org/GLM-5", "glm-dsa", &keys, &[]);
}

/// Layers of one kind with different heads are refused, and a damaged number of layers.
#[test]
fn layers_that_differ_are_refused() {
    let read_layers = |blocks: u64, heads: Value| {
        let metadata = [
            ("general.architecture", json!("llama")),
            ("llama.block_count", json!(blocks)),
            ("llama.attention.head_count", heads),
        ];
        config("x.gguf", &header(&metadata, &[])).unwrap_err().to_string()
    };
    let message = read_layers(2, json!([8, 16]));
    assert!(message.contains("llama.attention.head_count") && message.contains("8 and 16"), "{message}");
    assert!(read_layers(1 << 40, json!(8)).contains("1 to 2048"));
}

/// All tensors of a file are its weights, with or without a name that the model knows: 2 · (100 · 64 · 2 + 1000) bytes.
#[test]
fn the_sum_of_the_tensors_is_kept() {
    let metadata = [
        ("general.architecture", json!("llama")),
        ("llama.block_count", json!(1)),
        ("llama.embedding_length", json!(64)),
        ("llama.feed_forward_length", json!(128)),
        ("llama.attention.head_count", json!(4)),
    ];
    let tensors: [(&str, &[u64]); 3] =
        [("token_embd.weight", &[100, 64]), ("output.weight", &[100, 64]), ("nobody.knows", &[1000])];
    let model = model("x", "x.gguf", &header(&metadata, &tensors)).unwrap();
    assert_eq!(model.stored.map(|stored| stored.bytes), Some(Bytes(2 * (2 * 100 * 64 + 1000))));
}
