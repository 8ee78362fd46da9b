//! Checkpoints on disk, which the tests write byte by byte.

use crate::support::{json, roofcast};
use std::fs;
use std::path::Path;

/// Config of a llama of one layer: hidden 64, FFN 128, 4 heads of 16 with 2 KV heads, vocabulary 100.
const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 128, "torch_dtype": "bfloat16"}"#;

/// Tensors of this llama: safetensors name, GGUF name and shape, outermost dimension first.
const TENSORS: [(&str, &str, &[u64]); 12] = [
    ("model.embed_tokens.weight", "token_embd.weight", &[100, 64]),
    ("model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", &[64, 64]),
    ("model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight", &[32, 64]),
    ("model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", &[32, 64]),
    ("model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight", &[64, 64]),
    ("model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight", &[128, 64]),
    ("model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", &[128, 64]),
    ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", &[64, 128]),
    ("model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", &[64]),
    ("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", &[64]),
    ("model.norm.weight", "output_norm.weight", &[64]),
    ("lm_head.weight", "output.weight", &[100, 64]),
];

/// Parameters: embedding and head 2 · 6400, attention 2 · 4096 + 2 · 2048, FFN 3 · 8192, norms 3 · 64.
const PARAMETERS: u64 = 12_800 + 12_288 + 24_576 + 192;

fn safetensors(path: &Path, tensors: &[(&str, &str, &[u64])]) {
    let mut at = 0;
    let entries: Vec<String> = tensors
        .iter()
        .map(|(name, _, shape)| {
            let bytes = 2 * shape.iter().product::<u64>();
            at += bytes;
            format!(r#""{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{},{at}]}}"#, at - bytes)
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + at as usize, 0);
    fs::write(path, file).unwrap();
}

/// Writes a GGUF with matrices in q8_0 (type 8) and vectors in f32 (type 0), without the data after the header.
fn gguf(path: &Path) {
    gguf_part(path, "llama", &[], &TENSORS);
}

/// Writes a GGUF of some of the tensors, with more keys of whole numbers.
fn gguf_part(path: &Path, architecture: &str, more: &[(&str, u32)], tensors: &[(&str, &str, &[u64])]) {
    let text = |s: &str| [(s.len() as u64).to_le_bytes().to_vec(), s.as_bytes().to_vec()].concat();
    let keys: [(&str, u32); 7] = [
        ("llama.block_count", 1),
        ("llama.embedding_length", 64),
        ("llama.feed_forward_length", 128),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
        ("llama.context_length", 128),
        ("llama.attention.key_length", 16),
    ];
    let keys: Vec<(String, u32)> =
        keys.iter().chain(more).map(|(key, value)| (key.replace("llama", architecture), *value)).collect();
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((keys.len() as u64 + 2).to_le_bytes());
    file.extend([text("general.architecture"), 8_u32.to_le_bytes().to_vec(), text(architecture)].concat());
    // A vocabulary as an array (type 9) of strings (type 8), which the reader skips.
    file.extend(
        [text("tokenizer.ggml.tokens"), 9_u32.to_le_bytes().to_vec(), 8_u32.to_le_bytes().to_vec()].concat(),
    );
    file.extend([2_u64.to_le_bytes().to_vec(), text("a"), text("b")].concat());
    for (key, value) in keys {
        file.extend([text(&key), 4_u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat());
    }
    for (_, name, shape) in tensors {
        file.extend([text(name), (shape.len() as u32).to_le_bytes().to_vec()].concat());
        shape.iter().rev().for_each(|n| file.extend(n.to_le_bytes()));
        file.extend(if shape.len() == 1 { 0_u32 } else { 8 }.to_le_bytes());
        file.extend(0_u64.to_le_bytes());
    }
    fs::write(path, file).unwrap();
}

fn explain(model: &Path) -> serde_json::Value {
    let (answer, code) = json(&format!("capacity --model {} --hardware rtx-4090 --explain", model.display()));
    assert_eq!(code, 0);
    answer
}

#[test]
fn a_gguf_has_its_true_bits_per_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    gguf(&path);
    let answer = explain(&path);
    assert_eq!(answer["parameters"]["total"].as_u64(), Some(PARAMETERS));
    // A block of 32 matrix values takes 34 bytes; the 192 norm weights take 4 bytes each.
    assert_eq!(answer["weight_bytes"].as_u64(), Some((PARAMETERS - 192) * 34 / 32 + 192 * 4));
    assert_eq!(answer["checkpoint"]["bytes"], answer["weight_bytes"]);
    assert_eq!(answer["checkpoint"]["differences"], serde_json::json!([]));
    // llama.cpp reads its own files.
    let (engines, code) =
        json(&format!("capacity --model {} --hardware rtx-4090 --engine llama.cpp", path.display()));
    assert_eq!((code, engines["weight_bytes"].clone()), (0, answer["weight_bytes"].clone()));
    // A flag's format overrides the file's.
    let (other, _) = json(&format!("capacity --model {} --hardware rtx-4090 --weights fp16", path.display()));
    assert_eq!(other["weight_bytes"].as_u64(), Some(2 * PARAMETERS));
}

/// A model in two files is the sum of both, by any of them or by their folder; a missing part is named.
#[test]
fn a_gguf_in_parts_is_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let part = |number: u64| folder.path().join(format!("model-{number:05}-of-00002.gguf"));
    gguf_part(&part(1), "llama", &[("split.count", 2), ("split.no", 0)], &TENSORS[..5]);
    gguf_part(&part(2), "llama", &[("split.count", 2), ("split.no", 1)], &TENSORS[5..]);
    for model in [part(1), part(2), folder.path().to_owned()] {
        let answer = explain(&model);
        assert_eq!(answer["parameters"]["total"].as_u64(), Some(PARAMETERS));
        assert_eq!(answer["weight_bytes"].as_u64(), Some((PARAMETERS - 192) * 34 / 32 + 192 * 4));
    }
    fs::remove_file(part(2)).unwrap();
    let run = roofcast(&format!("capacity --model {} --hardware rtx-4090", part(1).display()));
    assert_eq!(run.code, 2);
    for says in ["model-00002-of-00002.gguf", "split.count", "a missing part", "all 2 parts"] {
        assert!(run.err.contains(says), "{}", run.err);
    }
}

/// An unknown architecture is read as a llama, unless a key says that it has more.
#[test]
fn an_unknown_gguf_with_a_recurrence_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let told = |more: &[(&str, u32)]| {
        gguf_part(&path, "nobody", more, &TENSORS);
        roofcast(&format!("capacity --model {} --hardware rtx-4090", path.display()))
    };
    assert_eq!(told(&[]).code, 0);
    for key in ["nobody.ssm.state_size", "nobody.expert_count", "nobody.attention.kv_lora_rank"] {
        let run = told(&[(key, 4)]);
        assert!(
            run.code == 2 && run.err.contains("general.architecture") && run.err.contains(key),
            "{}",
            run.err
        );
    }
}

#[test]
fn shards_are_checked_against_the_config() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), CONFIG).unwrap();
    safetensors(&folder.path().join("1.safetensors"), &TENSORS[..5]);
    safetensors(&folder.path().join("2.safetensors"), &TENSORS[5..]);
    let index = |second: &str| {
        let map: Vec<String> = TENSORS
            .iter()
            .enumerate()
            .map(|(i, t)| format!(r#""{}":"{}""#, t.0, if i < 5 { "1.safetensors" } else { second }))
            .collect();
        fs::write(
            folder.path().join("model.safetensors.index.json"),
            format!(r#"{{"weight_map":{{{}}}}}"#, map.join(",")),
        )
        .unwrap();
    };
    index("2.safetensors");
    let answer = explain(folder.path());
    assert_eq!(answer["checkpoint"]["bytes"].as_u64(), Some(2 * PARAMETERS));
    assert_eq!(answer["checkpoint"]["differences"], serde_json::json!([]));
    assert_eq!(answer["assumptions"], serde_json::json!([]));
    let by_index = explain(&folder.path().join("model.safetensors.index.json"));
    assert_eq!(by_index["checkpoint"], answer["checkpoint"]);

    // The down projection is half as wide: layer 0 has 4096 values less, reported by name and shape.
    let mut narrow = TENSORS;
    narrow[7].2 = &[64, 64];
    safetensors(&folder.path().join("2.safetensors"), &narrow[5..]);
    let answer = explain(folder.path());
    let difference = &answer["checkpoint"]["differences"][0];
    assert_eq!(
        (difference["place"].as_str(), difference["config"].as_u64(), difference["file"].as_u64()),
        (Some("layer 0"), Some(36_992), Some(32_896))
    );
    assert!(difference["tensors"].to_string().contains("down_proj.weight [64, 64]"));
    assert!(answer["assumptions"][0].as_str().unwrap().contains("layer 0"));

    // An index that lists itself as a shard is refused.
    index("model.safetensors.index.json");
    let run = roofcast(&format!("capacity --model {} --hardware rtx-4090", folder.path().display()));
    assert_eq!(run.code, 2);
    assert!(run.err.contains("weight_map"), "{}", run.err);
}

#[test]
fn damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    gguf(&path);
    let whole = fs::read(&path).unwrap();
    let refused = |bytes: &[u8], says: &str| {
        fs::write(&path, bytes).unwrap();
        let run = roofcast(&format!("capacity --model {} --hardware rtx-4090", path.display()));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
        assert!(run.err.contains("model.gguf") && run.err.contains(says), "{}", run.err);
    };
    for cut in [0, 3, 10, 30, 100, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..cut], "");
    }
    refused(b"GGML0000", "magic");
    let mut claims = whole.clone();
    claims[8..16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused(&claims, "tensor_count");
    let mut claims = whole;
    claims[24..32].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused(&claims, "string");

    let lonely = folder.path().join("model.safetensors");
    safetensors(&lonely, &TENSORS);
    let run = roofcast(&format!("capacity --model {} --hardware rtx-4090", lonely.display()));
    assert_eq!(run.code, 2);
    assert!(run.err.contains("config.json"), "{}", run.err);
}

/// NVIDIA's `hf_quant_config.json` next to a config gives the formats if the config has none, and the KV format if only
/// that file has one.
#[test]
fn a_quantization_file_beside_the_config_counts() {
    let folder = tempfile::tempdir().unwrap();
    let beside = r#"{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}"#;
    fs::write(folder.path().join("hf_quant_config.json"), beside).unwrap();
    let ask = |config: &str| {
        fs::write(folder.path().join("config.json"), config).unwrap();
        let (answer, _) = json(&format!("capacity --model {} --hardware h100-sxm", folder.path().display()));
        (answer["weights"].as_str().unwrap().to_owned(), answer["kv"].as_str().unwrap().to_owned())
    };
    assert_eq!(ask(CONFIG), ("fp8".into(), "fp8".into()));
    let inside = CONFIG
        .replace('}', r#", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}"#);
    assert_eq!(ask(&inside), ("gptq-int4".into(), "fp8".into()));
}
