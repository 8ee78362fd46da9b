//! Catalog entries of architectures that mix kinds of attention: parameters, caches and states, computed by hand from
//! the dimensions.

use crate::support::model;
use roofcast::precision::KvFormat;

/// Ling 3.0 flash, published as 124B with 5.1B active: 42 layers, of which every sixth has MLA and the others Kimi
/// delta attention.
#[test]
fn ling_3_flash_by_hand() {
    let ling = model("inclusionAI/Ling-3.0-flash");
    // KDA, 32 heads of 128, 4096 wide: q, k, v, o, decay and gate 6 · 4096 · 2560; beta 32 · 2560; taps 3 · 4 · 4096; A and
    // dt 32 + 4096; a norm of 128.
    let kda: u64 = 62_914_560 + 81_920 + 49_152 + 4_128 + 128;
    // MLA: q 32 · 192 · 2560, latent and rotary key 576 · 2560, norm 512, kv_b 32 · 256 · 512, o 4096 · 2560, a gate per head
    // 32 · 2560.
    let mla: u64 = 15_728_640 + 1_474_560 + 512 + 4_194_304 + 10_485_760 + 81_920;
    // An expert 3 · 2560 · 768; router 512 · 2560 and 512 corrections. The first two layers are dense, 6144 wide.
    let (expert, router, dense) = (5_898_240_u64, 1_310_720 + 512, 47_185_920_u64);
    let norms = 43 * 2560 + 42 * 2560;
    let table = 157_184 * 2560;
    let outside = 35 * kda + 7 * mla + 2 * dense + norms;
    assert_eq!(ling.parameters().total, outside + 40 * (513 * expert + router) + 2 * table);
    assert_eq!(ling.parameters().active, outside + 40 * (9 * expert + router) + table);
    // The totals are 124,414,211,552 and 5,103,302,112.
    assert_eq!((ling.parameters().total / 100_000_000, ling.parameters().active / 100_000_000), (1244, 51));
    // Seven layers keep 512 + 64 elements a token; 35 keep a square fp32 matrix per head and 3 inputs of 3 · 4096
    // channels.
    assert_eq!(ling.kv_bytes_per_token(KvFormat::BF16, 1000).0, 7 * 576 * 2);
    let state = 35 * (32 * 128 * 128 * 4 + 3 * 12_288 * 2);
    assert_eq!(ling.kv_bytes_per_sequence(KvFormat::BF16, 1000).0, 1000 * 7 * 576 * 2 + state);
}

/// Hy4-preview, published as 770B with 49B active: gated MLA with sinks, where 21 of 78 layers choose tokens for the
/// layers after them, and hyper-connections of four streams.
#[test]
fn hy4_preview_by_hand() {
    let hy4 = model("tencent/Hy4-preview");
    // q_a 2048 · 6144, norm, q_b 64 · 256 · 2048; kv_a 576 · 6144, norm, kv_b 64 · 448 · 512; o and gate 16384 · 6144 each; 64 sinks.
    let mla: u64 = 12_582_912 + 2048 + 33_554_432 + 3_538_944 + 512 + 14_680_064 + 2 * 100_663_296 + 64;
    // wq_b 4096 · 2048, wk 128 · 6144, a LayerNorm of 128, weights 32 · 6144; in layers 0, 1, 5, …, 77.
    let indexer: u64 = 8_388_608 + 786_432 + 256 + 196_608;
    // Per layer two times eight rows over four streams of 6144, eight biases and two scales; at the end four rows,
    // biases and a scale.
    let (streams, head): (u64, u64) = (2 * (8 * 24_576 + 8 + 2), 4 * 24_576 + 4 + 1);
    let (expert, router, dense) = (37_748_736_u64, 1_572_864 + 256, 339_738_624_u64);
    let norms = 157 * 6144;
    let table = 120_832 * 6144;
    let outside = 78 * (mla + streams) + 21 * indexer + head + dense + norms;
    assert_eq!(hy4.parameters().total, outside + 77 * (257 * expert + router) + 2 * table);
    // The total is 769,907,408,797, of which 49.06B are active, with embedding and lm_head.
    assert_eq!(hy4.parameters().total / 100_000_000, 7699);
    assert_eq!((hy4.parameters().active + table) / 100_000_000, 490);
    // Each layer keeps 576 elements a token; 21 layers also keep a key of 128 fp8 values and a scale.
    assert_eq!(hy4.kv_bytes_per_token(KvFormat::BF16, 1000).0, 78 * 576 * 2 + 21 * 132);
}

/// Granite with windows, at the defaults of its configuration: every fourth layer has full attention, the others a
/// window of 128 tokens, all with sinks.
#[test]
fn granite_with_windows_by_hand() {
    let config = r#"{"model_type": "granite_swa", "hidden_size": 2560, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 20, "num_key_value_heads": 4, "sliding_window": 128, "vocab_size": 100352}"#;
    let granite = roofcast::model::config::parse("test", "config.json", config).unwrap();
    // q and o 2560 · 2560, k and v 512 · 2560, 20 sinks, an MLP of 3 · 2560 · 8192, two norms; one table, one norm.
    let layer = 2 * 6_553_600 + 2 * 1_310_720 + 20 + 62_914_560 + 2 * 2560;
    assert_eq!(granite.parameters().total, 24 * layer + 100_352 * 2560 + 2560);
    assert_eq!(granite.kv_bytes_per_token(KvFormat::BF16, 1000).0, 6 * 2 * 4 * 128 * 2);
}

/// MiniCPM-SALA, published as 9B: eight layers of InfLLM-v2 and 24 of lightning attention. Vocabulary and KV heads are
/// MiniCPM4's, from which it was distilled; the index has SGLang's defaults.
#[test]
fn minicpm_sala_by_hand() {
    let kinds: Vec<&str> = (0..32).map(|l| if l % 4 == 0 { "minicpm4" } else { "lightning-attn" }).collect();
    let config = serde_json::json!({"model_type": "minicpm_sala", "hidden_size": 4096, "intermediate_size": 16384,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
        "lightning_nh": 32, "lightning_nkv": 32, "lightning_head_dim": 128, "mixer_types": kinds, "qk_norm": true,
        "use_output_gate": true, "use_output_norm": true, "attn_use_output_gate": true, "vocab_size": 73448,
        "max_position_embeddings": 524288, "sparse_config": {"kernel_size": 32, "kernel_stride": 16, "init_blocks": 1,
            "block_size": 64, "window_size": 2048, "topk": 64, "dense_len": 8192}});
    let sala = roofcast::model::config::parse("test", "config.json", &config.to_string()).unwrap();
    // Sparse: q, gate and o 3 · 4096², k and v 2 · 256 · 4096. Lightning: five of 4096², norms of 4096 and twice 128.
    let square = 4096 * 4096;
    let (sparse, lightning) = (3 * square + 2 * 256 * 4096, 5 * square + 4096 + 256);
    let layers = 8 * sparse + 24 * lightning + 32 * (3 * 4096 * 16_384 + 2 * 4096);
    assert_eq!(sala.parameters().total, layers + 2 * 73_448 * 4096 + 4096);
    // The total is 9,477,203,968.
    assert_eq!(sala.parameters().total / 100_000_000, 94);
    // At 6400 tokens eight layers keep 6400 slots, 400 means and 100 coarse means of 2 · 2 · 128 elements each; 24
    // layers keep 32 square fp32 matrices.
    let slots = 6400 + 400 + 100;
    let state = 24 * 32 * 128 * 128 * 4;
    assert_eq!(sala.kv_bytes_per_sequence(KvFormat::BF16, 6400).0, 8 * slots * 512 * 2 + state);
    // A token adds a slot, a sixteenth of a mean and a sixty-fourth of a coarse mean: 1024 B in each of eight layers,
    // and 5/64 of that.
    assert_eq!(sala.kv_bytes_per_token(KvFormat::BF16, 6400).0, 8 * 1024 + 8 * 80);
    // A query reads at most 96 blocks of 64 tokens: 64 chosen blocks, and 32 of the window.
    let roofcast::model::Mixer::Attention(attention) = &sala.layers[0].mixer else { panic!() };
    assert_eq!((attention.reach(), attention.seen(1, 100_000)), (Some(6144), 6144));
    let said =
        "of contexts from 6144 to 8192 tokens, which the sparse layers read whole, 6144 tokens are taken";
    assert!(sala.assumptions.iter().any(|own| own == said), "{:?}", sala.assumptions);
}
