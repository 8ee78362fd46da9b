//! Ids of measured points against the catalog: the format in an id is the format that was measured.

use crate::support::{catalog, shared};
use proptest::prelude::*;
use roofcast::Catalog;
use roofcast::catalog::ModelEntry;
use std::collections::BTreeSet;

const FILES: [&str; 3] =
    ["validation/measurements.csv", "validation/measurements-2.csv", "validation/disaggregated.csv"];

/// The distinct `model`, `hardware` and `weights` of the measured rows.
fn rows() -> BTreeSet<[String; 3]> {
    let mut all = BTreeSet::new();
    for file in FILES {
        let text = std::fs::read_to_string(shared(file)).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let columns = ["model", "hardware", "weights"].map(|c| header.iter().position(|h| h == c).unwrap());
        for record in reader.records() {
            let record = record.unwrap();
            all.insert(columns.map(|c| record[c].to_owned()));
        }
    }
    all
}

/// A catalog with an entry, of an arbitrary shape, for the id without its last word, which names the format.
fn with_base(id: &str) -> (Catalog, String) {
    let (base, _) = id.rsplit_once('-').unwrap();
    let entry = catalog().model("meta-llama/Llama-3.1-8B").unwrap();
    let mut mine = Catalog::default();
    mine.add_model(ModelEntry { id: base.to_owned(), aliases: vec![], ..entry.clone() });
    (mine, base.to_owned())
}

/// Checks every id, no matter if its base model is in the catalog.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn formats_of_measured_ids_are_what_was_measured() {
    let rows = rows();
    let mut checked = 0;
    for [id, _, weights] in &rows {
        let upper = id.to_uppercase();
        if !["-FP8", "-NVFP4", "-BF16"].iter().any(|format| upper.ends_with(format)) {
            continue;
        }
        let (mine, base) = with_base(id);
        let named = mine.named(id).unwrap();
        assert_eq!(named.entry.id, base);
        let said = named.weights().unwrap();
        assert!(said == weights || said == format!("{weights}-block"), "{id}: {said}, measured {weights}");
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} ids say a format");
}

#[test]
fn formats_in_the_middle_of_measured_ids() {
    let named = catalog().named("amd/Llama-3.1-70B-Instruct-FP8-KV").unwrap();
    assert_eq!(
        (named.entry.id.as_str(), named.weights(), named.kv()),
        ("meta-llama/Llama-3.1-70B", Some("fp8"), Some("fp8"))
    );
    let named = catalog().named("neuralmagic/Llama-3.1-Nemotron-70B-Instruct-HF-FP8-dynamic").unwrap();
    assert_eq!(
        (named.entry.id.as_str(), named.weights(), named.kv()),
        ("meta-llama/Llama-3.1-70B", Some("fp8-dynamic"), None)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text resolves to an entry, or to an error that shows the text.
    #[test]
    fn any_name_is_answered(name in "(\\PC{0,20}|[a-z]{1,5}/)?(qwen|llama|-|\\.|:|[0-9]b|fp8|gguf|q4_k_m|\\PC){0,8}") {
        if let Err(error) = catalog().named(&name) {
            prop_assert!(error.to_string().starts_with("no model named"), "{error}");
        }
        if let Err(error) = catalog().accelerator(&name) {
            prop_assert!(error.to_string().starts_with("no accelerator named"), "{error}");
        }
    }
}

/// An id that is an entry's, without a format, has the entry's formats.
#[test]
fn ids_of_entries_say_nothing_more() {
    for entry in catalog().models().unwrap() {
        assert_eq!(catalog().named(&entry.id).unwrap().weights(), None, "{}", entry.id);
    }
}

/// Names as benchmarks, posts and tools write them resolve to catalog entries.
#[test]
fn names_as_people_write_them() {
    for (name, id, weights) in [
        ("llama-31-8b", "meta-llama/Llama-3.1-8B", None),
        ("llama33-70b", "meta-llama/Llama-3.3-70B-Instruct", None),
        ("Phi 4 14B", "microsoft/phi-4", None),
        ("phi4-mini:3.8b", "microsoft/Phi-4-mini-instruct", Some("q4_k_m")),
        ("nemotron-3-nano", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", None),
        ("Nemotron 3 Nano 30B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", None),
        ("Nemotron Super 49B", "nvidia/Llama-3_3-Nemotron-Super-49B-v1", None),
        ("Granite 4 H Small", "ibm-granite/granite-4.0-h-small", None),
        ("kimi-k2.5:cloud", "moonshotai/Kimi-K2.5", None),
        ("qwen35moe 35B.A3B Q4_K - Medium", "Qwen/Qwen3.6-35B-A3B", Some("q4_k_m")),
        ("glm4moe 106B.A12B Q4_K - Medium", "zai-org/GLM-4.5-Air", Some("q4_k_m")),
        ("deepseek2 16B Q8_0", "deepseek-ai/DeepSeek-V2-Lite", Some("q8_0")),
        ("llama 8B Q4_0", "meta-llama/Llama-3.1-8B", Some("q4_0")),
        ("bartowski/Qwen_Qwen3-30B-A3B-GGUF", "Qwen/Qwen3-30B-A3B", Some("q4_k_m")),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "meta-llama/Llama-3.1-8B", None),
        ("OpenGVLab/InternVL3-38B", "Qwen/Qwen2.5-32B", None),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", "baidu/ERNIE-4.5-21B-A3B-PT", None),
        ("casperhansen/llama-3.3-70b-instruct-awq", "meta-llama/Llama-3.3-70B-Instruct", Some("awq-int4")),
        ("RedHatAI/Qwen3-Coder-Next-NVFP4", "Qwen/Qwen3-Next-80B-A3B-Instruct", Some("nvfp4")),
        ("mistralai/Devstral-2-123B-Instruct-2512", "mistralai/Devstral-2-123B-Instruct-2512", None),
        ("LongCat-Flash-Thinking-FP8", "meituan-longcat/LongCat-Flash-Chat", Some("fp8")),
        ("CohereLabs/command-a-plus-05-2026-w4a4", "CohereLabs/command-a-plus-05-2026", Some("nvfp4")),
        ("MiMo-V2.5-Pro", "XiaomiMiMo/MiMo-V2.5-Pro", None),
        ("nvidia/Minitron-4B-Base", "nvidia/Nemotron-Mini-4B-Instruct", None),
        ("bigscience/bloomz-1b1", "bigscience/bloom-1b1", None),
        ("c4ai-command-a-03-2025", "CohereLabs/c4ai-command-a-03-2025", None),
        ("command-a-03-2025", "CohereLabs/c4ai-command-a-03-2025", None),
        ("lmsys/gpt-oss-20b-bf16", "openai/gpt-oss-20b", Some("bf16")),
        ("cerebras/GLM-4.5-Air-REAP-82B-A12B-FP8", "zai-org/GLM-4.5-Air", Some("fp8")),
        ("openbmb/MiniCPM4.1-8B", "openbmb/MiniCPM4-8B", None),
        ("deepseek-ai/DeepSeek-OCR-2", "deepseek-ai/DeepSeek-OCR", None),
        ("PaddlePaddle/PaddleOCR-VL", "baidu/ERNIE-4.5-0.3B-PT", None),
        ("tencent/HunyuanOCR", "tencent/Hunyuan-0.5B-Instruct", None),
        ("ServiceNow-AI/Apriel-1.6-15b-Thinker", "ServiceNow-AI/Apriel-1.5-15b-Thinker", None),
        ("upstage/Solar-Open2-250B-NVFP4", "upstage/Solar-Open2-250B", Some("nvfp4")),
        ("open-r1/OlympicCoder-32B", "Qwen/Qwen2.5-Coder-32B", None),
    ] {
        let named = catalog().named(name).unwrap();
        assert_eq!((named.entry.id.as_str(), named.weights()), (id, weights), "{name}");
    }
    for (name, id) in [
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("RTX 6000 Pro Max-Q", "rtx-pro-6000-max-q"),
        ("GB200 NVL72", "gb200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("Ryzen AI Max+ 395", "strix-halo"),
        ("ASUS Ascent GX10", "gb10"),
        ("Ironwood", "tpu-v7"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("Mac Mini M4 Pro 64GB", "m4-pro"),
        ("RTX 4090 48GB", "rtx-4090-48gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla P40", "p40"),
        ("Tesla P100-PCIE-16GB", "p100-pcie"),
        ("AMD Radeon RX 6700 XT", "rx-6700-xt"),
    ] {
        assert_eq!(catalog().accelerator(name).unwrap().id, id, "{name}");
    }
}

/// Families with a part that is not modelled are refused with the reason, rather than with similar names.
#[test]
fn families_that_are_not_modelled_say_why() {
    for (name, why) in [
        ("RWKV/v6-Finch-7B-HF", "recurrence"),
        ("google/recurrentgemma-9b", "lru_width"),
        ("meituan-longcat/LongCat-Flash-Lite", "their config.json is read"),
        ("skt/A.X-K2", "gated_norm_rank"),
        ("Zyphra/Zamba2-7B-Instruct", "hybrid_layer_ids"),
        ("openbmb/MiniCPM-SALA", "InfLLM-v2"),
        ("inclusionAI/Ling-3.0-tiny", "their config.json is read"),
        ("kakaocorp/kanana-2-30b-a3b-instruct-2601", "their config.json is read"),
        ("skt/A.X-4.0", "their config.json is read"),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "their config.json is read"),
        ("tencent/Tencent-Hunyuan-Large", "use_cla"),
        ("sapientinc/HRM-Text-1B", "several times"),
        ("microsoft/bitnet-b1.58-2B-4T", "ternary"),
    ] {
        let message = catalog().named(name).unwrap_err().to_string();
        assert!(message.starts_with("no model named") && message.contains(why), "{message}");
    }
}

/// Every model and accelerator with a measured row is in the catalog, by itself or as a base model with a format.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn every_measured_id_resolves() {
    let rows = rows();
    let mut missing = BTreeSet::new();
    for [model, hardware, _] in &rows {
        if let Err(error) = catalog().named(model).and_then(|named| named.model()) {
            missing.insert(error.to_string());
        }
        if let Err(error) = catalog().accelerator(hardware) {
            missing.insert(error.to_string());
        }
    }
    assert!(missing.is_empty(), "{} ids:\n{}", missing.len(), Vec::from_iter(missing).join("\n"));
}

/// NVIDIA quantizes the experts alone of a hybrid: attention, delta nets and shared experts stay in 16 bits, also where
/// only the format is asked for; another publisher's name means every linear layer.
#[test]
fn publishers_keep_parts_in_sixteen_bits() {
    let formats = |name: &str| {
        let model = catalog().named(name).unwrap().model().unwrap();
        let own =
            model.quantization.clone().or_else(|| model.published.first().map(|(_, q)| q.clone())).unwrap();
        let of = |word: &str| {
            let layers = model.layers.iter().enumerate();
            let mut found = layers.flat_map(|(index, layer)| {
                let tensors = layer.tensors(model.hidden).into_iter();
                tensors.filter(|t| t.name.contains(word)).map(move |t| (index, t)).collect::<Vec<_>>()
            });
            let (index, tensor) = found.next().unwrap();
            own.format(&tensor, Some(index)).map_or("16 bits", |format| format.name)
        };
        ["self_attn.q_proj", "linear_attn.out_proj", "shared_experts.up_proj", "mlp.experts"].map(of)
    };
    let kept = ["16 bits", "16 bits", "16 bits", "nvfp4"];
    assert_eq!(formats("nvidia/Qwen3.8-2.4T-A95B-NVFP4"), kept);
    assert_eq!(formats("nvidia/Qwen3.5-122B-A10B-NVFP4"), kept);
    assert_eq!(formats("someone/Qwen3.5-122B-A10B-NVFP4"), ["nvfp4"; 4]);
    assert_eq!(formats("RedHatAI/Qwen3.5-122B-A10B-NVFP4"), ["nvfp4", "16 bits", "nvfp4", "nvfp4"]);
}
