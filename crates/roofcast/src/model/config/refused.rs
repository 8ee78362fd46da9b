//! Configs that are refused: architectures that are not modelled, and unknown ones with keys that nothing reads.
//!
//! Knows: `model_type`s, keys and words of keys that change work or memory. Does not know: how much they would cost.

use crate::error::Result;
use crate::model::keys::{Keys, Reads, is_set};

/// Types that are not modelled, whatever their keys, and why.
const TYPES: [(&[&str], &str); 12] = [
    (&["rwkv", "rwkv5", "rwkv6", "rwkv6qwen2", "rwkv7"], "RWKV's recurrence"),
    (&["xlstm"], "xLSTM's recurrence"),
    (&["hymba", "nemotron_flash"], "heads of attention and Mamba in one layer that share keys and values"),
    (&["phi4flash"], "the memory that layers share (SambaY)"),
    (&["phi3small"], "blocks of sparse attention"),
    (&["motif", "motif2"], "differential attention"),
    (&["zaya"], "compressed convolutional attention"),
    (&["bitnet"], "ternary weights"),
    (&["iquestloopcoder"], "layers that are passed twice"),
    (
        &[
            "llada",
            "llada_moe",
            "llada2_moe",
            "dream",
            "sdar",
            "sdar_moe",
            "wedlm",
            "diffusion_gemma",
            "diffucoder",
        ],
        "models that write many tokens a step by diffusion",
    ),
    (
        &[
            "bert",
            "roberta",
            "xlm-roberta",
            "camembert",
            "distilbert",
            "electra",
            "deberta",
            "deberta-v2",
            "modernbert",
            "nomic_bert",
            "mpnet",
            "albert",
            "eurobert",
        ],
        "encoders, which answer with a vector and decode nothing",
    ),
    (
        &[
            "t5",
            "mt5",
            "umt5",
            "longt5",
            "t5gemma",
            "t5gemma2",
            "bart",
            "mbart",
            "pegasus",
            "marian",
            "whisper",
            "m2m_100",
            "blenderbot",
        ],
        "encoder-decoder models",
    ),
];

/// Keys of parts that change memory and work and are not modelled, whatever the type; to read past them would be wrong.
const KEYS: &[&str] = &[
    "lru_width",
    "hybrid_layer_ids",
    "ngram_vocab_size_ratio",
    "ple_layer_ids",
    "gated_norm_rank",
    "rescale_every",
    "ssm_cfg",
    "attention_hidden_size",
    "cross_attention_layers",
    "encoder_layers",
    "num_encoder_layers",
    "use_cla",
    "loop_num",
    "blocksparse_num_local_blocks",
    "hc_magnitude",
    "hc_lowrank",
    "mova_num_experts",
    "engram_layer_ids",
];

/// Words in a key that signal how often, where or with which state a layer runs.
const WORDS: [&str; 26] = [
    "layer",
    "layers",
    "step",
    "steps",
    "loop",
    "loops",
    "cache",
    "caches",
    "memory",
    "memories",
    "mem",
    "mixer",
    "mixers",
    "recurrent",
    "recurrence",
    "ssm",
    "mamba",
    "conv",
    "sconv",
    "window",
    "sliding",
    "swa",
    "diffusion",
    "sparse",
    "engram",
    "ngram",
];

/// Keys that contain such a word and change nothing here: synonyms of keys that are read, and settings of one
/// library.
const IDLE: [&str; 9] = [
    "use_cache",
    "cache_implementation",
    "num_hidden_layers",
    "num_layers",
    "n_layers",
    "n_layer",
    "max_window_layers",
    "use_sliding_window",
    "layer_scale_init_value",
];

/// Refuses a type or a key that is known not to be modelled.
pub(super) fn known(keys: &Keys) -> Result<()> {
    for name in keys.types() {
        let named = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        if let Some((_, why)) = TYPES.iter().find(|(names, _)| named(names)) {
            let found = format!("{name:?}, which is not modelled: {why}");
            return Err(keys.bad("model_type", found, "an architecture that is"));
        }
    }
    let read =
        |key: &str| key == "ngram_vocab_size_ratio" && keys.types().any(|name| name == "longcat_flash_ngram");
    match KEYS.iter().find(|key| !read(key) && keys.value(key).is_some_and(is_set)) {
        Some(key) => Err(keys.bad(key, "present", "architectures without it: it is not modelled")),
        None => Ok(()),
    }
}

/// Refuses a config of an unknown type that has unread keys naming layers, steps, loops, caches, memories or mixers:
/// computing it as a Llama would be silently wrong.
pub(super) fn unread(keys: &Keys, model_type: &str, reads: &Reads) -> Result<()> {
    let telling = |key: &&str| {
        let norm = key.contains("layer_norm") || key.contains("norm_eps");
        !norm
            && !IDLE.contains(key)
            && key.split('_').any(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
    };
    let left: Vec<&str> = keys.unread(reads).filter(telling).collect();
    if left.is_empty() {
        return Ok(());
    }
    let named = left.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    let found =
        format!("{model_type:?}, which is not known, with keys that say more than a Llama's: {named}");
    Err(keys.bad(
        "model_type",
        found,
        "a known type, or a config without those keys, which is then read as a Llama's",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use serde_json::json;

    /// A Llama's keys with others over them; the message of the refusal.
    fn refused(more: serde_json::Value) -> Option<String> {
        let mut config = json!({
            "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "use_cache": true,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 1000, "initializer_range": 0.02,
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        parse("m", "config.json", &config.to_string()).err().map(|error| error.to_string())
    }

    #[test]
    fn unknown_types_with_keys_that_nobody_reads() {
        for (key, value) in [
            ("loop_count", json!(2)),
            ("refinement_steps", json!(4)),
            ("local_layer_ids", json!([0, 1])),
            ("shared_kv_cache", json!(true)),
            ("memory_slots", json!(16)),
            ("mixer_types", json!(["lightning", "sparse"])),
            ("swa_head_dim", json!(64)),
        ] {
            let told = refused(json!({"model_type": "nobody_knows", key: value})).unwrap();
            for part in ["config.json: `model_type` is \"nobody_knows\"", &format!("`{key}`"), "accepted: "] {
                assert!(told.contains(part), "{part} is not in {told}");
            }
            // For a known type these keys have a defined meaning.
            assert_eq!(refused(json!({key: value})), None, "{key}");
        }
    }

    #[test]
    fn unknown_types_of_a_llamas_keys_are_read_as_one() {
        let like = json!({
            "model_type": "nobody_knows", "loop_count": 0, "shared_kv_cache": false, "layer_norm_eps": 1e-5,
            "memory_slots": null, "local_layer_ids": [], "adapter_ranks": [8], "torch_dtype": "bfloat16",
        });
        assert_eq!(refused(like), None);
    }

    #[test]
    fn known_not_to_be_modelled_by_type_and_by_key() {
        for (name, why) in [
            ("LLaDA", "diffusion"),
            ("xlstm", "recurrence"),
            ("modernbert", "encoders"),
            ("t5", "encoder-decoder"),
        ] {
            let told = refused(json!({"model_type": name})).unwrap();
            assert!(told.contains("`model_type`") && told.contains(why), "{told}");
        }
        let told = refused(json!({"model_type": "hunyuan", "use_cla": true, "cla_share_factor": 2})).unwrap();
        assert!(told.contains("`use_cla` is present"), "{told}");
        assert_eq!(refused(json!({"use_cla": false})), None);
    }
}
