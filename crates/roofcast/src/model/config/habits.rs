//! What each `model_type` leaves unsaid: biases, norms, gates, tied weights.
//!
//! Sources: `modeling_*.py` and `configuration_*.py` of Hugging Face transformers 4.57, and of the checkpoints that bring
//! their own.

/// The habits of a `model_type`.
#[derive(Clone, Copy)]
pub(super) struct Habits {
    pub(super) qkv_bias: bool,
    pub(super) o_bias: bool,
    pub(super) mlp_bias: bool,
    pub(super) gated: bool,
    /// Norms a layer, and whether they carry a bias (LayerNorm) or not (RMSNorm).
    pub(super) norms: u64,
    pub(super) norm_bias: bool,
    pub(super) tied: bool,
    pub(super) parallel: bool,
    pub(super) qk_norm: QkNorm,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum QkNorm {
    No,
    /// One norm of a head's width, for queries and for keys.
    Head,
    /// Over all heads together.
    Full,
}

/// The habits of llama, and of types that are not known.
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
const NORMED: Habits = Habits { qk_norm: QkNorm::Head, ..LLAMA };
const BIASED: Habits = Habits { qkv_bias: true, ..LLAMA };

/// The habits of a `model_type`, or none where it is not known.
pub(super) fn habits(model_type: &str) -> Option<Habits> {
    Some(match model_type {
        "llama" | "mistral" | "mistral3" | "ministral" | "mixtral" | "internlm2" | "internlm3"
        | "baichuan" | "phi3" | "yi" | "granite" | "granitemoe" | "granitemoehybrid" | "bamba"
        | "ernie4_5" | "ernie4_5_moe" | "dots1" | "bailing_moe" | "bailing_moe_v2" | "smollm3"
        | "seed_oss" | "exaone" | "deepseek" | "arcee" | "glm" | "dbrx" | "nemotron-nas" | "llama4"
        | "llama4_text" => LLAMA,
        "deepseek_v2" | "deepseek_v3" | "deepseek_v32" | "deepseek_v4" | "deepseek_ref" | "kimi_k2"
        | "kimi_k25" | "kimi_linear" | "kimi_k3" | "minimax_m1" | "minimax_text_01" | "MiniMaxM1"
        | "MiniMaxText01" | "minimax" | "glm_moe_dsa" | "mimo_v2_flash" | "mimo_v2" | "glm4_moe_lite" => {
            LLAMA
        }
        "qwen2" | "qwen2_moe" | "qwen2_vl" | "qwen2_5_vl" | "qwen2_vl_text" | "mimo" | "glm4_moe"
        | "glm4v_moe_text" => BIASED,
        "qwen3" | "qwen3_moe" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_vl_text" | "qwen3_vl_moe_text"
        | "qwen3_next" | "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" | "olmoe"
        | "minimax_m3" | "step3p7" | "step3p5" => NORMED,
        "minimax_m2" | "olmo2" => Habits { qk_norm: QkNorm::Full, ..LLAMA },
        "gpt_oss" => Habits { qkv_bias: true, o_bias: true, mlp_bias: true, ..LLAMA },
        "gemma" => Habits { tied: true, ..LLAMA },
        "gemma2" => Habits { tied: true, norms: 4, ..LLAMA },
        "gemma3" | "gemma3_text" | "gemma3n" | "gemma3n_text" | "gemma4" | "gemma4_text" => {
            Habits { tied: true, norms: 4, ..NORMED }
        }
        "glm4" => Habits { norms: 4, ..LLAMA },
        "gpt2" | "megatron-gpt" | "opt" | "bloom" | "starcoder2" => GPT,
        "gpt_neox" => Habits { tied: false, parallel: true, ..GPT },
        "gptj" => Habits { qkv_bias: false, o_bias: false, norms: 1, tied: false, parallel: true, ..GPT },
        "falcon" => {
            Habits { qkv_bias: false, o_bias: false, mlp_bias: false, norms: 1, parallel: true, ..GPT }
        }
        "phi" => Habits { norms: 1, tied: false, parallel: true, ..GPT },
        "phimoe" => Habits { qkv_bias: true, o_bias: true, norm_bias: true, ..LLAMA },
        "cohere" => Habits { norms: 1, tied: true, parallel: true, ..LLAMA },
        "stablelm" => Habits { norm_bias: true, ..LLAMA },
        "mpt" => Habits { gated: false, tied: true, ..LLAMA },
        // Each layer is one norm and one mixer or FFN; squared ReLU without a gate.
        "nemotron_h" => Habits { norms: 1, gated: false, ..LLAMA },
        // The text part of a multimodal type has its habits.
        _ => return ["_text", "_vl", "_vlm"].iter().find_map(|s| habits(model_type.strip_suffix(s)?)),
    })
}
