//! Configs that are refused: architectures that are not modelled, and unknown types with keys that no code reads.
//!
//! Knows: `model_type`s, keys and words of keys that change work or memory. Does not know: how much they would cost.

use crate::error::Result;
use crate::model::keys::{Keys, Reads, is_set};

/// Types that are not modelled whatever their keys, each with the reason.
const TYPES: [(&[&str], &str); 23] = [
    (&["rwkv", "rwkv5", "rwkv6", "rwkv6qwen2", "rwkv7"], "RWKV's recurrence"),
    (&["xlstm"], "xLSTM's recurrence"),
    (&["recurrent_gemma"], "a gated linear recurrence (lru_width)"),
    (&["hymba", "nemotron_flash"], "heads of attention and Mamba in one layer that share keys and values"),
    (&["phi4flash"], "the memory that layers share (SambaY)"),
    (&["zamba", "zamba2"], "blocks of attention that several layers share (hybrid_layer_ids)"),
    (&["phi3small"], "blocks of sparse attention"),
    (
        &["deepseek_v41", "deepseek_v41_text"],
        "caches that layers share (kv_source_layer_ids), layers that only the end of a prompt passes, and Engram \
         memory (engram_layer_ids)",
    ),
    (&["qwen4_exp", "qwen4_exp_text"], "n-gram embeddings (ple_layer_ids)"),
    (&["k2_horizon"], "value projections that a router chooses (mova_num_experts)"),
    (&["axk2"], "gated norms (gated_norm_rank)"),
    (&["motif", "motif2", "diffllama"], "differential attention"),
    (&["zaya"], "compressed convolutional attention"),
    (&["jet_nemotron"], "linear attention with convolutions that are computed (JetBlock)"),
    (&["blt"], "patches of bytes"),
    (&["reformer"], "attention by hashes"),
    (&["moshi", "musicgen", "musicgen_melody"], "several streams of sound"),
    (&["bitnet"], "ternary weights"),
    (&["iquestloopcoder", "hrm_text", "inkling2_loop_text"], "layers that are passed several times"),
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
    (ENCODERS, "encoders, which answer with a vector and decode nothing"),
    (ENCODER_DECODERS, "encoder-decoder models"),
    (&["gemma4_assistant", "gemma4_unified_assistant"], "drafts that read another model's cache"),
];

const ENCODERS: &[&str] = &[
    "bert",
    "bert-generation",
    "big_bird",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "rembert",
    "megatron-bert",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
    "camembert",
    "data2vec-text",
    "distilbert",
    "electra",
    "ernie",
    "deberta",
    "deberta-v2",
    "modernbert",
    "nomic_bert",
    "mpnet",
    "albert",
    "eurobert",
];

const ENCODER_DECODERS: &[&str] = &[
    "t5",
    "mt5",
    "umt5",
    "longt5",
    "t5gemma",
    "t5gemma2",
    "bart",
    "mbart",
    "mvp",
    "plbart",
    "pegasus",
    "bigbird_pegasus",
    "prophetnet",
    "marian",
    "whisper",
    "m2m_100",
    "blenderbot",
    "blenderbot-small",
];

/// Keys of parts that change memory and work and are not modelled, in any type; ignoring them would give wrong
/// results.
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

/// Keys of [`KEYS`] that are modelled for some types.
const READ: [(&str, &[&str]); 2] =
    [("ngram_vocab_size_ratio", &["longcat_flash_ngram"]), ("hc_magnitude", &["hy_v4", "hy_v4_vl_text"])];

/// Words in a key that indicate how often, where or with which state a layer runs.
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

/// Words in a key of towers, which are not part of the text model.
const TOWER_WORDS: [&str; 5] = ["vision", "image", "video", "audio", "projector"];

/// Keys that contain one of [`WORDS`] but change nothing: synonyms of keys that are read, and settings of one
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

/// Part of a type that is not modelled; `None` for a type that is supported or unknown.
pub(super) fn why(model_type: &str) -> Option<&'static str> {
    let named = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(model_type));
    TYPES.iter().find(|(names, _)| named(names)).map(|(_, why)| *why)
}

/// Refuses a type or a key that is known not to be modelled.
pub(super) fn known(keys: &Keys) -> Result<()> {
    for name in keys.types() {
        if let Some(why) = why(name) {
            let reason = format!("{name:?}, which is not modelled: {why}");
            return Err(keys.bad("model_type", reason, "an architecture that is"));
        }
    }
    let read = |key: &str| {
        keys.types().any(|name| READ.iter().any(|(known, types)| *known == key && types.contains(&name)))
    };
    let experts = ["num_local_experts", "num_experts"];
    if keys.text("model_type")? == Some("git") && keys.any(&experts).is_none() {
        let reason = "\"git\" without experts, as GIT, which writes captions of images";
        return Err(keys.bad("model_type", reason, "Grok 2, which has the same type and experts"));
    }
    match KEYS.iter().find(|key| !read(key) && keys.value(key).is_some_and(is_set)) {
        Some(key) => Err(keys.bad(key, "present", "architectures without it: it is not modelled")),
        None => Ok(()),
    }
}

/// Refuses a config of an unknown type with unread keys about layers, steps, loops, caches, memories or mixers:
/// computing the model as a Llama would be silently wrong.
pub(super) fn unread(keys: &Keys, model_type: &str, reads: &Reads) -> Result<()> {
    let telling = |key: &&str| {
        let norm = key.contains("layer_norm") || key.contains("norm_eps");
        let tower = key.split('_').any(|word| TOWER_WORDS.contains(&word));
        !norm
            && !tower
            && !IDLE.contains(key)
            && key.split('_').any(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
    };
    let left: Vec<&str> = keys.unread(reads).filter(telling).collect();
    if left.is_empty() {
        return Ok(());
    }
    let named = left.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    let reason =
        format!("{model_type:?}, which is not known, with keys that say more than a Llama's: {named}");
    Err(keys.bad(
        "model_type",
        reason,
        "a known type, or a config without those keys, which is then read as a Llama's",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use serde_json::json;

    /// Reads a Llama's keys with `more` keys added, and returns the message of the refusal.
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
            let message = refused(json!({"model_type": "nobody_knows", key: value})).unwrap();
            for part in ["config.json: `model_type` is \"nobody_knows\"", &format!("`{key}`"), "accepted: "] {
                assert!(message.contains(part), "{part} is not in {message}");
            }
            // In a known type these keys have a defined meaning.
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
            ("git", "captions of images"),
        ] {
            let message = refused(json!({"model_type": name})).unwrap();
            assert!(message.contains("`model_type`") && message.contains(why), "{message}");
        }
        let message =
            refused(json!({"model_type": "hunyuan", "use_cla": true, "cla_share_factor": 2})).unwrap();
        assert!(message.contains("`use_cla` is present"), "{message}");
        assert_eq!(refused(json!({"use_cla": false})), None);
    }
}
