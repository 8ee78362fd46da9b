//! Defaults that a `model_type` implies and its config does not state: biases, norms, gates, tied weights.
//!
//! Knows: the defaults of each known type. Knows nothing about keys.
//!
//! Source: the defaults in `configuration_*.py` and the modules in `modeling_*.py` of Hugging Face transformers.

/// Properties that a `model_type` implies and its config does not state.
#[derive(Clone, Copy)]
pub(super) struct Habits {
    pub(super) qkv_bias: bool,
    pub(super) o_bias: bool,
    pub(super) mlp_bias: bool,
    pub(super) gated: bool,
    /// Number of norms per layer; `norm_bias` is true if they have a bias (LayerNorm), false if not (RMSNorm).
    pub(super) norms: u64,
    pub(super) norm_bias: bool,
    pub(super) tied: bool,
    pub(super) parallel: bool,
    pub(super) qk_norm: QkNorm,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum QkNorm {
    No,
    /// One norm of a head's width for queries, and one for keys.
    Head,
    /// One norm over all heads of the queries, and one over all heads of the keys.
    Full,
}

pub(super) const LLAMA: Habits = Habits {
    qkv_bias: false,
    o_bias: false,
    mlp_bias: false,
    gated: true,
    norms: 2,
    norm_bias: false,
    tied: false,
    parallel: false,
    qk_norm: QkNorm::No,
};

const GPT: Habits = Habits {
    qkv_bias: true,
    o_bias: true,
    mlp_bias: true,
    gated: false,
    norm_bias: true,
    tied: true,
    ..LLAMA
};

/// Returns the defaults of a `model_type`; `None` for an unknown type.
pub(super) fn habits(model_type: &str) -> Option<Habits> {
    Some(match model_type {
        "llama" | "cwm" | "iquestcoder" | "solar_open" | "youtu" | "mistral" | "mistral3" | "mistral4"
        | "ministral" | "ministral3" | "mixtral" | "internlm2" | "internlm3" | "baichuan" | "phi3" | "yi"
        | "granite" | "granitemoe" | "granitemoeshared" | "granitemoe_swa" | "smollm3" | "seed_oss"
        | "exaone" | "deepseek" | "llama4" | "llama4_text" | "nemotron-nas" | "dbrx" | "jamba" | "bamba"
        | "granitemoehybrid" | "falcon_h1" | "ernie4_5" | "ernie4_5_moe" | "bailing_moe"
        | "bailing_moe_v2" | "minimax" | "minimax_m1" | "minimax_text_01" | "MiniMaxM1" | "MiniMaxText01"
        | "minicpm" | "minicpm_sala" | "helium" | "step3_vl" | "step3_text" | "axk1" | "longcat_flash"
        | "solar_open2" | "mimo_v2" | "mimo_v2_flash" | "glm" | "chatglm" => LLAMA,
        "deepseek_v2" | "deepseek_vl_v2" | "deepseek_v3" | "deepseek_v32" | "deepseek_v4"
        | "deepseek_ref" | "kimi_k2" | "kimi_k25" | "kimi_k3" | "kimi_linear" | "glm_moe_dsa"
        | "glm4_moe_lite" | "glm5_next" | "glm5_next_text" => LLAMA,
        "longcat_flash_ngram" | "bailing_hybrid" | "hy_v4" | "hy_v4_vl_text" => LLAMA,
        "dots1" | "step3p5" | "step3p7" | "step3p7_text" | "exaone4" | "exaone_moe" | "hunyuan_v1_dense"
        | "hunyuan_v1_moe" | "hy_v3" | "laguna" | "mellum" => Habits { qk_norm: QkNorm::Head, ..LLAMA },
        "afmoe" => Habits { norms: 4, qk_norm: QkNorm::Head, ..LLAMA },
        // The two learned numbers of Apertus's activation are not counted.
        "apertus" => Habits { gated: false, qk_norm: QkNorm::Head, ..LLAMA },
        "arcee" => Habits { gated: false, ..LLAMA },
        "nemotron" => Habits { gated: false, norm_bias: true, ..LLAMA },
        "nemotron_h" => Habits { gated: false, norms: 1, ..LLAMA },
        "mamba" | "mamba2" | "falcon_mamba" => Habits { norms: 1, tied: true, ..LLAMA },
        // Grok 2's config.json states the type "git".
        "grok" | "grok-1" | "git" => Habits { norms: 4, tied: true, ..LLAMA },
        "lfm2" | "lfm2_moe" => Habits { tied: true, qk_norm: QkNorm::Head, ..LLAMA },
        "lfm3" => Habits { tied: true, norms: 4, qk_norm: QkNorm::Head, ..LLAMA },
        // Each layer has three norms with weights, and a gate on each of the two residuals.
        "muse_spark" | "muse_spark_text" => Habits { norms: 5, ..LLAMA },
        "qwen2" | "qwen2_moe" | "qwen2_vl" | "qwen2_5_vl" | "qwen2_vl_text" | "qwen2_5_vl_text"
        | "qwen2_5_omni_text" | "mimo" => Habits { qkv_bias: true, ..LLAMA },
        "qwen3" | "qwen3_moe" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_vl_text" | "qwen3_next" | "qwen3_5"
        | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => Habits { qk_norm: QkNorm::Head, ..LLAMA },
        "qwen3_vl_moe_text" | "qwen3_omni_moe_text" => Habits { qk_norm: QkNorm::Head, ..LLAMA },
        "minimax_m3" | "minimax_m3_vl" | "minimax_m3_vl_text" => Habits { qk_norm: QkNorm::Head, ..LLAMA },
        "minimax_m2" | "olmo2" | "olmo3" | "olmoe" | "flex_olmo" | "olmo_hybrid" => {
            Habits { qk_norm: QkNorm::Full, ..LLAMA }
        }
        // OLMo's norms have no weights.
        "olmo" => Habits { norms: 0, ..LLAMA },
        "glm4_moe" | "glm4v_moe_text" => Habits { qkv_bias: true, ..LLAMA },
        "gpt_oss" => Habits { qkv_bias: true, o_bias: true, mlp_bias: true, ..LLAMA },
        "gemma" | "granite_swa" | "minicpm3" | "paddleocr_vl" | "paddleocr_vl_text" => {
            Habits { tied: true, ..LLAMA }
        }
        "gemma2" => Habits { tied: true, norms: 4, ..LLAMA },
        "gemma3"
        | "gemma3_text"
        | "gemma3n"
        | "gemma3n_text"
        | "gemma4"
        | "gemma4_text"
        | "gemma4_unified"
        | "gemma4_unified_text" => Habits { tied: true, norms: 4, qk_norm: QkNorm::Head, ..LLAMA },
        "glm4" | "ouro" | "hyperclovax" | "muse_glimmer" | "muse_glimmer_text" => {
            Habits { norms: 4, ..LLAMA }
        }
        "gpt2" | "gpt_bigcode" | "megatron-gpt" | "opt" | "bloom" | "starcoder2" => GPT,
        "gpt_neo" => Habits { qkv_bias: false, ..GPT },
        "gpt_neox" => Habits { tied: false, parallel: true, ..GPT },
        "jais2" => Habits { tied: false, ..GPT },
        "gptj" => Habits { qkv_bias: false, o_bias: false, norms: 1, tied: false, parallel: true, ..GPT },
        "falcon" => {
            Habits { qkv_bias: false, o_bias: false, mlp_bias: false, norms: 1, parallel: true, ..GPT }
        }
        "phi" => Habits { norms: 1, tied: false, parallel: true, ..GPT },
        "phimoe" => Habits { qkv_bias: true, o_bias: true, norm_bias: true, ..LLAMA },
        "cohere" | "cohere2" | "cohere2_moe" => Habits { norms: 1, tied: true, parallel: true, ..LLAMA },
        "stablelm" => Habits { norm_bias: true, ..LLAMA },
        "mpt" => Habits { gated: false, tied: true, ..LLAMA },
        _ => return None,
    })
}
