//! Parameters and KV of the catalog's models against their makers' published figures.

use crate::support::{catalog, model, shared};
use roofcast::Forecaster;
use roofcast::cost::Utilization;
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::limits::{LimitsQuestion, limits};
use roofcast::model::config;
use roofcast::parallelism::RequestedParallelism;
use roofcast::precision::KvFormat;
use roofcast::spec::PrecisionSpec;
use roofcast::units::Bytes;
use std::sync::Arc;

#[test]
fn totals_equal_the_published_ones() {
    let mut checked = 0;
    for entry in catalog().models().unwrap() {
        let model = config::read(&entry.id, "catalog", &entry.config).unwrap();
        let Some(published) = entry.published_parameters else { continue };
        assert_eq!(model.parameters().total, published, "{}", entry.id);
        checked += 1;
    }
    assert!(checked > 115, "only {checked} models have a published total");
}

#[test]
fn kv_bytes_per_token_by_hand() {
    // 2 (k, v) · layers · KV heads · head width · bytes.
    assert_eq!(model("meta-llama/Llama-3.1-8B").kv_elements_per_token(4096) * 2, 2 * 32 * 8 * 128 * 2); // 131,072
    assert_eq!(model("huggyllama/llama-13b").kv_elements_per_token(2048) * 2, 819_200);
    assert_eq!(model("huggyllama/llama-65b").kv_elements_per_token(2048) * 2, 2_621_440);
    assert_eq!(model("meta-llama/Meta-Llama-3-70B").kv_elements_per_token(8192), 163_840);
    // MLA: 61 layers · (512 + 64) elements · 2 bytes.
    assert_eq!(model("deepseek-ai/DeepSeek-V3").kv_elements_per_token(4096) * 2, 70_272);
}

#[test]
fn windows_cap_what_a_sequence_keeps() {
    // gpt-oss-20b: 12 of 24 layers have a window of 128 tokens; 8 KV heads of 64 give 1024 elements a token and layer.
    let model = model("openai/gpt-oss-20b");
    assert_eq!(model.kv_elements_per_token(100), 24 * 1024);
    assert_eq!(model.kv_elements_per_token(4096), 12 * 1024);
    assert_eq!(model.kv_elements_per_sequence(4096), 12 * 1024 * (4096 + 128));
}

/// The published Gemma 3 270M in Q4_K_M has, by its header, 169,246,720 values in q8_0 (34/32 B), 63,406,080 in q5_0
/// (22/32), 23,592,960 in q4_k (144/256), 11,796,480 in q6_k (210/256) and 55,936 in f32: 246,587,904 bytes. (640
/// columns do not fill blocks of 256, so most tensors fall back to other formats.)
#[test]
fn q4_k_m_is_what_llama_cpp_writes() {
    use roofcast::{Deployment, deployment::DeploymentOptions, spec::PrecisionSpec};
    let expected = 169_246_720 * 34 / 32
        + 63_406_080 * 22 / 32
        + 23_592_960 * 144 / 256
        + 11_796_480 * 210 / 256
        + 55_936 * 4;
    assert_eq!(expected, 246_587_904);
    let precision = PrecisionSpec { weights: Some("q4_k_m".into()), ..PrecisionSpec::default() };
    let chip = std::sync::Arc::new(catalog().accelerator("rtx-4090").unwrap().clone());
    let options = DeploymentOptions { precision, ..DeploymentOptions::default() };
    let deployment = Deployment::resolve(model("google/gemma-3-270m"), chip, &options).unwrap();
    assert_eq!(deployment.weight_bytes.0, expected);
}

/// Total and active parameters in billions, as the maker prints them in the name or on the model card.
const CONFIGS: [(&str, f64, f64); 48] = [
    ("MiniMaxAI--MiniMax-M2.5", 230.0, 10.0),
    ("MiniMaxAI--MiniMax-M2.7", 230.0, 10.0),
    ("MiniMaxAI--MiniMax-M3", 428.0, 23.0),
    ("Qwen--Qwen3-0.6B", 0.6, 0.6),
    ("Qwen--Qwen3-1.7B", 1.7, 1.7),
    ("Qwen--Qwen3-235B-A22B-FP8", 235.0, 22.0),
    ("Qwen--Qwen3-30B-A3B", 30.0, 3.0),
    ("Qwen--Qwen3-32B", 32.0, 32.0),
    ("Qwen--Qwen3-32B-FP8-Static-PerTensor", 32.0, 32.0),
    ("Qwen--Qwen3-Coder-480B-A35B-Instruct", 480.0, 35.0),
    ("Qwen--Qwen3-VL-235B-A22B-Instruct", 235.0, 22.0),
    ("Qwen--Qwen3-VL-2B-Instruct", 1.72, 1.72),
    ("Qwen--Qwen3-VL-30B-A3B-Instruct", 30.0, 3.0),
    ("Qwen--Qwen3-VL-32B-Instruct", 32.0, 32.0),
    ("Qwen--Qwen3-VL-4B-Instruct", 4.0, 4.0),
    ("Qwen--Qwen3.5-27B", 27.0, 27.0),
    ("Qwen--Qwen3.5-397B-A17B", 397.0, 17.0),
    ("XiaomiMiMo--MiMo-7B-Base", 7.62, 7.62),
    ("XiaomiMiMo--MiMo-V2-Flash", 309.0, 15.0),
    ("deepseek-ai--DeepSeek-V3", 671.0, 37.0),
    ("deepseek-ai--DeepSeek-V3.2", 671.0, 37.0),
    ("deepseek-ai--DeepSeek-V4-Flash", 284.0, 13.0),
    ("deepseek-ai--DeepSeek-V4-Pro", 1600.0, 49.0),
    ("mistralai--Mixtral-8x22B-v0.1", 141.0, 39.0),
    ("moonshotai--Kimi-K2-Instruct", 1000.0, 32.0),
    ("moonshotai--Kimi-K2.5", 1000.0, 32.0),
    ("moonshotai--Kimi-K3", 0.0, 0.0),
    ("nvidia--GLM-5-NVFP4", 744.0, 40.0),
    ("nvidia--GLM-5.2-NVFP4", 744.0, 40.0),
    ("nvidia--Gemma-4-26B-A4B-NVFP4", 26.0, 4.0),
    ("nvidia--Gemma-4-31B-IT-NVFP4", 31.0, 31.0),
    ("nvidia--Kimi-K2.5-NVFP4", 1000.0, 32.0),
    ("nvidia--Llama-3.1-70B-Instruct-FP8", 70.0, 70.0),
    ("nvidia--MiniMax-M2.5-NVFP4", 230.0, 10.0),
    ("nvidia--MiniMax-M3-NVFP4", 428.0, 23.0),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 30.0, 3.2),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 30.0, 3.2),
    ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 120.0, 12.0),
    ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 550.0, 55.0),
    ("nvidia--Nemotron-H-56B-Base-8K", 56.0, 56.0),
    ("nvidia--Qwen3-235B-A22B-NVFP4", 235.0, 22.0),
    ("nvidia--Qwen3.5-397B-A17B-NVFP4", 397.0, 17.0),
    ("nvidia--Qwen3.6-35B-A3B-NVFP4", 35.0, 3.0),
    ("openai--gpt-oss-20b", 20.9, 3.6),
    ("sgl-project--DeepSeek-V4-Pro-FP8", 1600.0, 49.0),
    ("stepfun-ai--Step-3.7-Flash", 196.0, 11.0),
    ("zai-org--GLM-5.3-FP8", 744.0, 40.0),
    ("zai-org--GLM-5", 744.0, 40.0),
];

/// Totals that are known exactly, from the README next to the configs.
const EXACT: [(&str, u64); 5] = [
    ("Qwen--Qwen3-32B", 32_762_123_264),
    ("Qwen--Qwen3-30B-A3B", 30_532_122_624),
    ("Qwen--Qwen3-235B-A22B-FP8", 235_093_634_560),
    ("deepseek-ai--DeepSeek-V3", 671_026_419_200),
    ("openai--gpt-oss-20b", 20_914_757_184),
];

/// Totals are within 6 % of the maker's figure, active parameters within 15 %. Sources in addition to the names: the
/// model cards of MiniMax-M3 (428B with its vision tower, 23B), DeepSeek-V4 (1.6T, 49B; 284B, 13B), Step-3.7-Flash
/// (196B language backbone, 11B). For Kimi K3 no figure by the maker is known here, so its config is only parsed.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn real_configs_have_the_parameters_of_their_names() {
    let root = shared("configs");
    for (folder, total, active) in CONFIGS {
        let file = root.join(folder).join("config.json");
        let model = config::parse(folder, folder, &std::fs::read_to_string(file).unwrap()).unwrap();
        let p = model.parameters();
        if let Some((_, exact)) = EXACT.iter().find(|(name, _)| *name == folder) {
            assert_eq!(p.total, *exact, "{folder}");
        }
        if total == 0.0 {
            continue;
        }
        let off = |count: u64, figure: f64| (count as f64 / 1e9 / figure - 1.0).abs();
        assert!(off(p.total, total) <= 0.06, "{folder}: {} parameters, by the maker {total}B", p.total);
        assert!(off(p.active, active) <= 0.15, "{folder}: {} active, by the maker {active}B", p.active);
    }
}

/// Value of a figure as makers print it, as in `3.6B`, and half a unit of its last digit.
fn printed(figure: &str) -> (f64, f64) {
    let (digits, suffix) = figure.split_at(figure.len() - 1);
    let unit = match suffix {
        "T" => 1e12,
        "B" => 1e9,
        "M" => 1e6,
        _ => panic!("{figure}: not in T, B or M"),
    };
    let decimals = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    (digits.parse::<f64>().unwrap() * unit, 0.5 * unit / 10_f64.powi(i32::try_from(decimals).unwrap()))
}

#[test]
fn printed_figures_have_the_precision_of_their_last_digit() {
    assert_eq!(printed("3.6B"), (3.6e9, 5e7));
    assert_eq!(printed("2.4T"), (2.4e12, 5e10));
    assert_eq!(printed("135M"), (1.35e8, 5e5));
}

/// Makers count active parameters with embedding and lm_head, with lm_head only, or with neither; one of the three
/// rounds to the printed figure.
#[test]
fn counts_round_to_the_printed_figures() {
    let (mut totals, mut actives) = (0, 0);
    for entry in catalog().models().unwrap() {
        let p = model(&entry.id).parameters();
        let within = |figure: &str, counts: &[u64]| {
            let (value, half) = printed(figure);
            let near = |count: &u64| (*count as f64 - value).abs() <= half;
            assert!(counts.iter().any(near), "{}: printed {figure}, counted {counts:?}", entry.id);
        };
        if let Some(figure) = &entry.published_total {
            within(figure, &[p.total]);
            totals += 1;
        }
        if let Some(figure) = &entry.published_active {
            within(figure, &[p.active + p.embedding, p.active, p.active - p.lm_head]);
            actives += 1;
        }
    }
    assert!(totals > 25 && actives > 35, "only {totals} totals and {actives} active figures were checked");
}

/// Suffixes of ids that name a number format, whose meaning is not tested here.
const FORMATS: [&str; 4] = ["-FP8-dynamic", "-FP8-KV", "-FP8", "-NVFP4"];

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn every_model_of_the_measurements_is_in_the_catalog() {
    let mut names = std::collections::BTreeSet::new();
    for file in ["measurements.csv", "measurements-2.csv", "disaggregated.csv"] {
        let path = shared(&format!("validation/{file}"));
        let text = std::fs::read_to_string(path).unwrap();
        let column = text.lines().next().unwrap().split(',').position(|c| c == "model").unwrap();
        names.extend(text.lines().skip(1).map(|line| line.split(',').nth(column).unwrap().to_owned()));
    }
    assert!(names.len() > 75, "only {} names", names.len());
    for name in &names {
        let base = FORMATS.iter().find_map(|f| name.strip_suffix(f)).unwrap_or(name);
        catalog().model(base).unwrap();
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn every_machine_of_the_measurements_is_in_the_catalog() {
    let path = shared("validation/measurements.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let column = text.lines().next().unwrap().split(',').position(|c| c == "hardware").unwrap();
    for line in text.lines().skip(1) {
        catalog().accelerator(line.split(',').nth(column).unwrap()).unwrap();
    }
}

/// States in addition to keys and values. Qwen3.5-27B: 48 of 64 layers keep 48 · 128 · 128 · 4 B of state and 3 ·
/// 10,240 · 2 B of convolution inputs; 16 keep 2 · 4 · 256 · 2 B per token.
#[test]
fn states_do_not_grow_with_context() {
    use roofcast::precision::KvFormat;
    let model = model("Qwen/Qwen3.5-27B");
    let state = 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2);
    assert_eq!(model.kv_bytes_per_token(KvFormat::BF16, 8192).0, 16 * 2 * 4 * 256 * 2);
    assert_eq!(model.kv_bytes_per_sequence(KvFormat::BF16, 8192).0, state + 8192 * 65_536);
    // An 8-bit cache halves the part that grows and leaves states unchanged.
    assert_eq!(model.kv_bytes_per_sequence(KvFormat::FP8, 8192).0, state + 8192 * 32_768);
}

/// DeepSeek-V3.2: 61 layers keep (512 + 64) elements of 16 bits, and an indexer's key of 128 B with a scale of 4 B. If
/// indexers are shared (GLM-5.3, 21 full ones of 78), only the layers of full indexers keep keys.
#[test]
fn indexers_keep_keys_of_their_own() {
    use roofcast::precision::KvFormat;
    let per_token = |name: &str| model(name).kv_bytes_per_token(KvFormat::BF16, 8192).0;
    assert_eq!(per_token("deepseek-ai/DeepSeek-V3.2"), 61 * (576 * 2 + 132));
    assert_eq!(per_token("zai-org/GLM-5.3-FP8"), 78 * 576 * 2 + 21 * 132);
}

/// DeepSeek-V4-Flash at 8192 tokens: layers of ratio 4 keep 128 + 2048 vectors of 512, layers of ratio 128 keep 128 +
/// 64, two layers keep the window; an indexer keeps 2048 keys of 132 B. Of 43 layers 2 have ratio 0, 21 ratio 4, 20
/// ratio 128. Unfinished blocks are in fp32, values and gates: 128 · 512 in a layer of ratio 128; 8 · (1024 + 256) in a
/// layer of ratio 4, where blocks overlap.
#[test]
fn compressed_layers_keep_blocks() {
    use roofcast::precision::KvFormat;
    let model = model("deepseek-ai/DeepSeek-V4-Flash");
    let under_way = 2 * 4 * (20 * 128 * 512 + 21 * 8 * (1024 + 256));
    let vectors = 43 * 128 + 21 * 2048 + 20 * 64;
    assert_eq!(
        model.kv_bytes_per_sequence(KvFormat::BF16, 8192).0,
        vectors * 512 * 2 + 21 * 2048 * 132 + under_way
    );
    // 128 more tokens are 32 blocks of 4 in 21 layers and one block of 128 in 20, from which the mean of a token
    // follows.
    let added: u64 = 21 * 32 * (512 * 2 + 132) + 20 * 512 * 2;
    assert_eq!(model.kv_bytes_per_token(KvFormat::BF16, 8192).0, added / 128);
}

/// Qwen3.5-27B in 16 bits: a state has 3,207,168 B, and a token 4 · 2 · 256 · 2 = 4096 B in an attention layer, so that
/// 783 tokens hold a state: blocks have 784 tokens, a multiple of 16. Llama keeps its blocks of 16.
#[test]
fn blocks_of_hybrids_hold_a_state() {
    use roofcast::{Deployment, deployment::DeploymentOptions, memory};
    let of = |name: &str| {
        let chip = std::sync::Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        memory::block_tokens(&Deployment::resolve(model(name), chip, &DeploymentOptions::default()).unwrap())
    };
    assert_eq!((48 * 128 * 128 * 4 + 3 * 10_240 * 2_u64).div_ceil(4096), 783);
    assert_eq!((of("Qwen/Qwen3.5-27B"), of("meta-llama/Llama-3.1-8B")), (784, 16));
}

/// GPT-2's config says float32: its 124,439,808 parameters are served in 16 bits, with 2 · 12 · 768 elements a token.
/// An older card has no bf16.
#[test]
fn float32_checkpoints_are_served_in_16_bits() {
    use roofcast::precision::Dtype;
    use roofcast::{Deployment, deployment::DeploymentOptions, spec::PrecisionSpec};
    let on = |chip: &str, weights: Option<&str>| {
        let chip = std::sync::Arc::new(catalog().accelerator(chip).unwrap().clone());
        let precision = PrecisionSpec { weights: weights.map(str::to_owned), ..PrecisionSpec::default() };
        let options = DeploymentOptions { precision, ..DeploymentOptions::default() };
        Deployment::resolve(model("openai-community/gpt2"), chip, &options).unwrap()
    };
    let (h100, t4, whole) = (on("h100-sxm", None), on("t4", None), on("h100-sxm", Some("fp32")));
    assert_eq!([&h100, &t4, &whole].map(|d| d.base), [Dtype::Bf16, Dtype::Fp16, Dtype::Fp32]);
    assert_eq!([&h100, &t4, &whole].map(|d| d.weight_bytes.0 / 124_439_808), [2, 2, 4]);
    let kv = |d: &Deployment| d.model.kv_bytes_per_token(d.kv, 100).0;
    assert_eq!((kv(&h100), kv(&whole)), (2 * 12 * 768 * 2, 2 * 12 * 768 * 4));
    assert!(
        model("openai-community/gpt2").assumptions.iter().any(|a| a.contains("precision.weights = fp32"))
    );
}

/// Solar Open 2: 12 of 48 layers attend, with a gate as wide as the queries; 36 have Kimi delta attention with 64 heads
/// of 128, whose decay and output gate have rank 128, with 4 taps on q, k and v and a bias for each channel. Each layer
/// has 321 experts of 1280, one of them shared.
#[test]
fn solar_open_2_by_hand() {
    let (hidden, wide) = (4096, 64 * 128);
    let attention = 3 * hidden * wide + 2 * hidden * 8 * 128;
    let low_rank = hidden * 128 + 128 * wide;
    let kda = 4 * hidden * wide + 2 * low_rank + hidden * 64 + 3 * 4 * wide + (64 + wide) + 128;
    let experts = 321 * 3 * hidden * 1280 + (hidden + 1) * 320;
    let total = 12 * attention + 36 * kda + 48 * (experts + 2 * hidden) + 2 * 196_608 * hidden + hidden;
    let solar = model("upstage/Solar-Open2-250B");
    assert_eq!(solar.parameters().total, total);
    assert_eq!(solar.kv_elements_per_token(4096), 12 * 2 * 8 * 128);
}

/// DeepSeek-OCR as its file is written: the decoder is nested, latent dimensions are null or 0. One dense layer, 11
/// with 64 experts of 896 and two shared; 10 heads of 128.
#[test]
fn deepseek_ocr_by_hand() {
    let text = r#"{"model_type": "deepseek_vl_v2", "language_config": {"first_k_dense_replace": 1, "hidden_size": 1280,
        "intermediate_size": 6848, "kv_lora_rank": null, "q_lora_rank": null, "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0, "v_head_dim": 0, "moe_intermediate_size": 896, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "num_attention_heads": 10, "num_key_value_heads": 10,
        "num_hidden_layers": 12, "topk_method": "greedy", "vocab_size": 129280, "use_mla": false}}"#;
    let read = config::parse("test", "config.json", text).unwrap();
    let (hidden, expert) = (1280, 3 * 1280 * 896);
    let layer = 4 * hidden * hidden + 2 * hidden;
    let total =
        12 * layer + 3 * hidden * 6848 + 11 * (66 * expert + 64 * hidden) + 2 * 129_280 * hidden + hidden;
    let entry = model("deepseek-ai/DeepSeek-OCR");
    assert_eq!((read.parameters().total, entry.parameters().total), (total, total));
    assert_eq!(read.kv_elements_per_token(100), 12 * 2 * 1280);
}

/// HyperCLOVA X also has norms on the outputs of attention and MLP: 4 norms of 8 per layer, or 2 if its config says so.
#[test]
fn norms_of_hyperclova_x() {
    let of = |key: &str| {
        let text = format!(
            r#"{{"model_type": "hyperclovax", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 3,
            "num_attention_heads": 2, "vocab_size": 10{key}}}"#
        );
        config::parse("test", "config.json", &text).unwrap().parameters().total
    };
    let layer = 4 * 8 * 8 + 3 * 8 * 16;
    assert_eq!(of(""), 3 * (layer + 4 * 8) + 2 * 10 * 8 + 8);
    assert_eq!(of(r#", "use_post_norm": false"#), 3 * (layer + 2 * 8) + 2 * 10 * 8 + 8);
}

fn weights(name: &str, chip: &str, weights: Option<&str>) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator(chip).unwrap().clone());
    let precision = PrecisionSpec { weights: weights.map(str::to_owned), ..PrecisionSpec::default() };
    let options = DeploymentOptions { precision, ..DeploymentOptions::default() };
    let model = Arc::new(catalog().named(name).unwrap().model().unwrap());
    Deployment::resolve(model, accelerator, &options).unwrap()
}

/// Requesting a checkpoint's own format leaves it unchanged: in gpt-oss and Kimi K2.5 only the experts have 4 bits, in
/// NVIDIA's Gemma 4 all but attention.
#[test]
fn a_checkpoints_format_by_name_is_the_checkpoint() {
    for (name, format) in [
        ("openai/gpt-oss-120b", "mxfp4"),
        ("moonshotai/Kimi-K2.5", "int4"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "nvfp4"),
    ] {
        let [own, asked] = [None, Some(format)].map(|w| weights(name, "b200-sxm", w));
        assert_eq!((own.weights, own.weight_bytes), (asked.weights, asked.weight_bytes), "{name}");
        assert_eq!(asked.assumptions.iter().filter(|a| a.starts_with("weights ")).count(), 0);
    }
}

/// DeepSeek-R1 in nvfp4 is NVIDIA's checkpoint: of 671.026e9 parameters q_a, q_b, kv_a and kv_b (61 · (7168 · 1536 +
/// 1536 · 24,576 + 7168 · 576 + 512 · 32,768) = 4.249e9), embedding and lm_head (2 · 129,280 · 7168 = 1.853e9) and
/// routers (58 · 256 · 7168 = 0.106e9) have 16 bits, 12.42 GB; 664.816e9 have 4.5 bits, 373.96 GB.
#[test]
fn published_checkpoints_say_what_a_format_leaves() {
    for name in ["deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-R1-0528-NVFP4"] {
        let asked = weights(name, "b200-sxm", Some("nvfp4"));
        assert!((asked.weight_bytes.as_f64() / 1e9 - 386.4).abs() < 0.1, "{:?}", asked.weight_bytes);
    }
    let said = weights("deepseek-ai/DeepSeek-R1", "b200-sxm", Some("nvfp4")).assumptions;
    assert!(said.contains(&"weights nvfp4 as in nvidia/DeepSeek-R1-0528-NVFP4-v2".to_owned()), "{said:?}");
    // A published checkpoint does not affect the unquantized model.
    assert_eq!(weights("deepseek-ai/DeepSeek-R1", "b200-sxm", Some("bf16")).weights, "bf16");
}

/// Configs of an architecture that is not modelled are refused by one of their types or keys; configs similar to a
/// known one are accepted.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn configs_that_are_not_read_right_are_refused() {
    let root = shared("configs-unread");
    let read = |folder: &str| {
        let text = std::fs::read_to_string(root.join(folder).join("config.json")).unwrap();
        config::parse(folder, folder, &text)
    };
    for (folder, says) in [
        ("axk2", "gated_norm_rank"),
        ("deepseek_v41", "engram_layer_ids"),
        ("dots3_note", "`swa_head_dim`"),
        ("inkling", "`local_layer_ids`"),
        ("k_diffgemma", "diffusion"),
        ("k_iquest_loop", "passed several times"),
        ("k_llada", "diffusion"),
        ("k_phi3small", "sparse attention"),
        ("k_use_cla", "use_cla"),
        ("k_xlstm", "recurrence"),
    ] {
        let told = read(folder).map(|model| model.name).unwrap_err().to_string();
        assert!(told.contains(says), "{folder}: {told}");
    }
    for folder in ["granite_switch", "ling25", "ling3_flash", "longcat_ngram", "sarvam_moe"] {
        assert!(read(folder).is_ok(), "{folder}: {:?}", read(folder).err());
    }
}

/// Ouro-1.4B computes its 24 layers four times. A layer has 4 · 2048² of attention, 3 · 2048 · 5632 of the MLP, four
/// norms of 2048: 51,388,416. In total: 24 layers, two tables of 49152 · 2048, a norm of 2048 and a gate of 2049:
/// 1,434,652,673. A token keeps 4 · 24 · 2 · 16 · 128 elements of 2 bytes.
#[test]
fn layers_that_are_passed_again_by_hand() {
    let text = r#"{"model_type": "ouro", "total_ut_steps": 4, "num_hidden_layers": 24, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 49152,
        "intermediate_size": 5632, "max_position_embeddings": 65536, "tie_word_embeddings": false, "dtype": "bfloat16"}"#;
    let model = config::parse("ouro", "config.json", text).unwrap();
    let layer = 4 * 2048 * 2048 + 3 * 2048 * 5632 + 4 * 2048;
    let total: u64 = 24 * layer + 2 * 49152 * 2048 + 2048 + 2049;
    assert_eq!((layer, total), (51_388_416, 1_434_652_673));
    assert_eq!(model.parameters().total, total);
    assert_eq!(model.kv_bytes_per_token(KvFormat::BF16, 1000), Bytes(4 * 24 * 2 * 16 * 128 * 2));
    assert_eq!(model.weight_bytes(), Bytes(2 * total));

    let chip = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let whole =
        Deployment::resolve(Arc::new(model.clone()), Arc::clone(&chip), &DeploymentOptions::default())
            .unwrap();
    assert_eq!(whole.weight_bytes, Bytes(2 * total));
    // Weights that a step reads: the layers four times, lm_head once; the embedding is only looked up.
    let utilization = Utilization { mfu: 1.0, mbu: 1.0 };
    let question = LimitsQuestion { batch: 1, context: 1000, prefill: 1000, utilization };
    let step = limits(&Forecaster::ideal(whole), &question).decode;
    let read: u64 = 4 * 24 * layer + 49152 * 2048;
    let found = step.operators.iter().map(|o| o.weight_bytes.0).sum::<u64>();
    assert!((found as f64 / (2 * read) as f64 - 1.0).abs() < 1e-3, "{found} for {}", 2 * read);

    let staged = DeploymentOptions {
        parallelism: RequestedParallelism { pp: Some(2), ..Default::default() },
        ..DeploymentOptions::default()
    };
    let told = Deployment::resolve(Arc::new(model), chip, &staged).unwrap_err().to_string();
    assert!(told.contains("`pp` is 2; accepted: 1: a token passes the layers"), "{told}");
}
