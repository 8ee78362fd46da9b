//! Reads a Hugging Face `config.json` into a [`Model`].
//!
//! Knows: what each `model_type` means by its keys and leaves unsaid (biases, norms, tied weights). Where a type is
//! not known its keys are read as llama's, and every assumption is noted. What cannot be modelled is refused by key.
//! Sources: `modeling_*.py` and `configuration_*.py` of Hugging Face transformers 4.57.

use super::attention::{Attention, Latent, Mixer};
use super::ffn::{Dense, Experts, Ffn};
use super::keys::{Keys, brief};
use super::quantization::Quantization;
use super::tensor::{Role, Split, Tensor};
use super::{Layer, Model};
use crate::error::{Error, Result};
use crate::precision::Dtype;
use serde_json::Value;

/// Deeper than any model; a config that claims more is damaged.
const MOST_LAYERS: u64 = 2048;
/// More parameters than any model; products of dimensions beyond this are refused.
const MOST_PARAMETERS: u64 = 1_000_000_000_000_000;

/// Keys of mixers that keep a state or choose what they attend to; to read them as plain attention would be wrong.
const NOT_MODELLED: &[&str] = &[
    "linear_num_key_heads",
    "linear_attn_config",
    "ssm_state_size",
    "mamba_num_heads",
    "hybrid_override_pattern",
    "layers_block_type",
    "index_topk",
    "compress_ratios",
    "sparse_attention_config",
    "block_configs",
    "attention_chunk_size",
    "swa_num_key_value_heads",
    "num_kv_shared_layers",
    "num_global_key_value_heads",
    "moe_latent_size",
    "lru_width",
    "layer_group_size",
];

/// Parses the text of a `config.json`; `place` names the file in errors, `name` the model.
pub fn parse(name: &str, place: &str, text: &str) -> Result<Model> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| Error::Parse { place: place.into(), message: e.to_string() })?;
    read(name, place, &value)
}

/// Reads a parsed `config.json`.
pub fn read(name: &str, place: &str, config: &Value) -> Result<Model> {
    let keys = Keys::new(place, config)?;
    if let Some(key) = keys.any(NOT_MODELLED) {
        return Err(keys.bad(key, "present", "architectures without it: its attention is not modelled yet"));
    }
    Reader::new(keys)?.model(name, config)
}

/// What a `model_type` leaves unsaid.
#[derive(Clone, Copy)]
struct Habits {
    qkv_bias: bool,
    o_bias: bool,
    mlp_bias: bool,
    gated: bool,
    /// Norms a layer, and whether they carry a bias (LayerNorm) or not (RMSNorm).
    norms: u64,
    norm_bias: bool,
    tied: bool,
    parallel: bool,
    qk_norm: QkNorm,
}

#[derive(Clone, Copy, PartialEq)]
enum QkNorm {
    No,
    /// One norm of a head's width, for queries and for keys.
    Head,
    /// Over all heads together.
    Full,
}

const LLAMA: Habits = Habits {
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

/// The habits of a `model_type`, or none where it is not known.
fn habits(model_type: &str) -> Option<Habits> {
    Some(match model_type {
        "llama" | "mistral" | "mistral3" | "ministral" | "mixtral" | "internlm2" | "internlm3"
        | "baichuan" | "phi3" | "yi" | "granite" | "granitemoe" | "smollm3" | "seed_oss" | "exaone"
        | "deepseek" | "arcee" => LLAMA,
        "deepseek_v2" | "deepseek_v3" | "kimi_k2" | "kimi_k25" => LLAMA,
        "qwen2" | "qwen2_moe" | "qwen2_vl" | "qwen2_5_vl" | "qwen2_vl_text" | "mimo" => {
            Habits { qkv_bias: true, ..LLAMA }
        }
        "qwen3" | "qwen3_moe" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_vl_text" | "qwen3_vl_moe_text"
        | "olmoe" => Habits { qk_norm: QkNorm::Head, ..LLAMA },
        "minimax_m2" => Habits { qk_norm: QkNorm::Full, ..LLAMA },
        "olmo2" => Habits { qk_norm: QkNorm::Full, ..LLAMA },
        "glm4_moe" => Habits { qkv_bias: true, ..LLAMA },
        "gpt_oss" => Habits { qkv_bias: true, o_bias: true, mlp_bias: true, ..LLAMA },
        "gemma" => Habits { tied: true, ..LLAMA },
        "gemma2" => Habits { tied: true, norms: 4, ..LLAMA },
        "gemma3" | "gemma3_text" => Habits { tied: true, norms: 4, qk_norm: QkNorm::Head, ..LLAMA },
        "glm" => LLAMA,
        "glm4" => Habits { norms: 4, ..LLAMA },
        "gpt2" | "megatron-gpt" | "opt" | "bloom" => GPT,
        "gpt_neox" => Habits { tied: false, parallel: true, ..GPT },
        "gptj" => Habits { qkv_bias: false, o_bias: false, norms: 1, tied: false, parallel: true, ..GPT },
        "falcon" => {
            Habits { qkv_bias: false, o_bias: false, mlp_bias: false, norms: 1, parallel: true, ..GPT }
        }
        "starcoder2" => GPT,
        "phi" => Habits { norms: 1, tied: false, parallel: true, ..GPT },
        "phimoe" => Habits { qkv_bias: true, o_bias: true, norm_bias: true, ..LLAMA },
        "cohere" => Habits { norms: 1, tied: true, parallel: true, ..LLAMA },
        "stablelm" => Habits { norm_bias: true, ..LLAMA },
        "mpt" => Habits { gated: false, tied: true, ..LLAMA },
        _ => return None,
    })
}

/// A config on its way to a model.
struct Reader<'a> {
    keys: Keys<'a>,
    model_type: &'a str,
    habits: Habits,
    hidden: u64,
    layers: u64,
    assumptions: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(keys: Keys<'a>) -> Result<Reader<'a>> {
        let model_type = keys.text("model_type")?.unwrap_or("");
        let mut assumptions = Vec::new();
        let habits = habits(model_type).unwrap_or_else(|| {
            let named = if model_type.is_empty() { "missing".into() } else { format!("{model_type:?}") };
            assumptions
                .push(format!("model_type is {named}, which is not known: its keys are read as llama's"));
            LLAMA
        });
        let layers = keys.required(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?;
        if layers > MOST_LAYERS {
            return Err(keys.bad("num_hidden_layers", layers, format!("1 to {MOST_LAYERS}")));
        }
        let hidden = keys.required(&["hidden_size", "n_embd", "d_model"])?;
        Ok(Reader { keys, model_type, habits, hidden, layers, assumptions })
    }

    fn model(mut self, name: &str, config: &Value) -> Result<Model> {
        let vocab = self.keys.required(&["vocab_size", "padded_vocab_size"])?;
        let tied = self.keys.flag("tie_word_embeddings", self.habits.tied)?;
        let max_context = self.keys.count(&[
            "max_position_embeddings",
            "n_positions",
            "seq_length",
            "n_ctx",
            "max_sequence_length",
            "model_max_length",
        ])?;
        let layers = (0..self.layers).map(|i| self.layer(i)).collect::<Result<Vec<_>>>()?;
        let outer = self.outer(vocab, max_context)?;
        let model = Model {
            name: name.to_owned(),
            architecture: self.model_type.to_owned(),
            hidden: self.hidden,
            vocab,
            max_context,
            dtype: self.dtype()?,
            tied,
            layers,
            outer,
            quantization: Quantization::read(self.keys.place, config)?,
            stored: None,
            assumptions: {
                self.assumptions.dedup();
                self.assumptions
            },
        };
        if model.parameters().total > MOST_PARAMETERS {
            return Err(self.keys.bad(
                "hidden_size",
                "a model of over 10^15 parameters",
                "the dimensions of a real model",
            ));
        }
        Ok(model)
    }

    fn dtype(&self) -> Result<Dtype> {
        let named = self.keys.text("torch_dtype")?.or(self.keys.text("dtype")?);
        Ok(match named {
            Some("float16" | "half") => Dtype::Fp16,
            Some("float32" | "float") => Dtype::Fp32,
            _ => Dtype::Bf16,
        })
    }

    fn layer(&mut self, index: u64) -> Result<Layer> {
        let mixer =
            if self.keys.value("kv_lora_rank").is_some() { self.latent()? } else { self.attention(index)? };
        let ffn = self.ffn(index)?;
        let per_norm = if self.norm_bias()? { 2 * self.hidden } else { self.hidden };
        let parallel = match self.model_type {
            "gpt_neox" => self.keys.flag("use_parallel_residual", true)?,
            "falcon" => self.keys.flag("parallel_attn", true)? || self.new_falcon()?,
            _ => self.habits.parallel,
        };
        let norms = match self.model_type {
            "falcon" if self.new_falcon()? => self.keys.count(&["num_ln_in_parallel_attn"])?.unwrap_or(2),
            "falcon" if !parallel => 2,
            _ => self.habits.norms,
        };
        Ok(Layer { mixer, ffn, norms: norms * per_norm, parallel })
    }

    fn norm_bias(&self) -> Result<bool> {
        match self.model_type {
            "falcon" | "gpt2" => Ok(true),
            _ => Ok(self.habits.norm_bias),
        }
    }

    fn new_falcon(&self) -> Result<bool> {
        self.keys.flag("new_decoder_architecture", false)
    }

    /// Query heads, KV heads and the width of a head.
    fn heads(&mut self) -> Result<(u64, u64, u64)> {
        let heads = self.keys.required(&["num_attention_heads", "n_head", "num_heads", "n_heads"])?;
        let kv_heads = match self.model_type {
            "falcon" => self.falcon_kv_heads(heads)?,
            "chatglm" => self.keys.count(&["multi_query_group_num"])?.unwrap_or(heads),
            "dbrx" => self
                .keys
                .object("attn_config")
                .map_or(Ok(Some(heads)), |a| a.count(&["kv_n_heads"]))?
                .unwrap_or(heads),
            _ => self.keys.count(&["num_key_value_heads", "num_kv_heads", "n_head_kv"])?.unwrap_or(heads),
        };
        if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
            return Err(self.keys.bad(
                "num_key_value_heads",
                kv_heads,
                format!("a divisor of {heads} query heads"),
            ));
        }
        let head_dim = match self.keys.count(&["head_dim", "kv_channels", "attention_head_dim", "d_kv"])? {
            Some(width) => width,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                return Err(self.keys.bad(
                    "num_attention_heads",
                    heads,
                    format!("a divisor of hidden_size {}, or head_dim", self.hidden),
                ));
            }
        };
        Ok((heads, kv_heads, head_dim))
    }

    fn falcon_kv_heads(&self, heads: u64) -> Result<u64> {
        if self.new_falcon()? {
            Ok(self.keys.count(&["num_kv_heads", "n_head_kv"])?.unwrap_or(heads))
        } else {
            Ok(if self.keys.flag("multi_query", true)? { 1 } else { heads })
        }
    }

    fn attention(&mut self, index: u64) -> Result<Mixer> {
        let (heads, kv_heads, head_dim) = self.heads()?;
        let v_head_dim = self.keys.count(&["v_head_dim"])?.unwrap_or(head_dim);
        let (qkv_bias, o_bias) = self.attention_biases()?;
        let qk_norm = match self.qk_norm()? {
            QkNorm::No => 0,
            QkNorm::Head => 2 * head_dim,
            QkNorm::Full => (heads + kv_heads) * head_dim,
        };
        Ok(Mixer::Attention(Attention {
            heads,
            kv_heads,
            head_dim,
            v_head_dim,
            window: self.window(index)?,
            qkv_bias,
            o_bias,
            qk_norm,
            sinks: self.model_type == "gpt_oss",
        }))
    }

    /// Biases on q, k, v and on the output projection.
    fn attention_biases(&self) -> Result<(bool, bool)> {
        let habits = self.habits;
        Ok(match self.model_type {
            // attention_bias covers all four projections.
            "llama" | "mistral" | "granite" | "cohere" | "gpt_oss" | "qwen3" | "qwen3_moe" => {
                let all = self.keys.flag("attention_bias", habits.qkv_bias)?;
                (all, all)
            }
            "falcon" => {
                let all = self.keys.flag("bias", false)?;
                (all, all)
            }
            "chatglm" => (self.keys.flag("add_qkv_bias", false)?, self.keys.flag("add_bias_linear", false)?),
            "stablelm" => (self.keys.flag("use_qkv_bias", false)?, false),
            "starcoder2" => (self.keys.flag("use_bias", true)?, self.keys.flag("use_bias", true)?),
            "opt" => (self.keys.flag("enable_bias", true)?, self.keys.flag("enable_bias", true)?),
            "internlm2" | "internlm3" => (
                self.keys.flag("bias", false)? || self.keys.flag("qkv_bias", false)?,
                self.keys.flag("bias", false)?,
            ),
            "gpt_neox" => (self.keys.flag("attention_bias", true)?, self.keys.flag("attention_bias", true)?),
            _ => (
                self.keys.flag("attention_bias", habits.qkv_bias)? || self.keys.flag("qkv_bias", false)?,
                habits.o_bias,
            ),
        })
    }

    fn qk_norm(&self) -> Result<QkNorm> {
        let named = self.keys.flag("use_qk_norm", false)? || self.keys.flag("qk_layernorm", false)?;
        Ok(match self.habits.qk_norm {
            QkNorm::No if named && self.model_type == "cohere" => QkNorm::Full,
            QkNorm::No if named => QkNorm::Head,
            habit => habit,
        })
    }

    /// The sliding window of layer `index`, if it has one.
    fn window(&mut self, index: u64) -> Result<Option<u64>> {
        let Some(window) = self.keys.count(&["sliding_window"])? else { return Ok(None) };
        if !self.keys.flag("use_sliding_window", true)? {
            return Ok(None);
        }
        if let Some(types) = self.keys.list("layer_types", self.layers)? {
            let kind = &types[index as usize];
            return match kind.as_str() {
                Some("sliding_attention") => Ok(Some(window)),
                Some("full_attention") => Ok(None),
                _ => Err(self.keys.bad("layer_types", brief(kind), "sliding_attention, full_attention")),
            };
        }
        let every = self.keys.count(&["sliding_window_pattern", "_sliding_window_pattern"])?;
        let sliding = match (self.model_type, every) {
            // Each `every`-th layer sees everything.
            (_, Some(every)) => !(index + 1).is_multiple_of(every),
            ("gemma3" | "gemma3_text", None) => !(index + 1).is_multiple_of(6),
            ("gemma2" | "gpt_oss", None) => index.is_multiple_of(2),
            // The first max_window_layers see everything.
            (t, None) if t.starts_with("qwen") || t == "mimo" => {
                index >= self.keys.count_or_zero(&["max_window_layers"])?
            }
            ("mistral" | "mixtral" | "phi3" | "starcoder2" | "phimoe" | "ministral", None) => true,
            _ => {
                self.assumptions.push(format!("sliding_window {window} is taken to hold in every layer"));
                true
            }
        };
        Ok(sliding.then_some(window))
    }

    fn latent(&mut self) -> Result<Mixer> {
        let keys = self.keys;
        Ok(Mixer::Latent(Latent {
            heads: keys.required(&["num_attention_heads"])?,
            q_lora_rank: keys.count(&["q_lora_rank"])?,
            kv_lora_rank: keys.required(&["kv_lora_rank"])?,
            qk_nope_head_dim: keys.required(&["qk_nope_head_dim"])?,
            qk_rope_head_dim: keys.required(&["qk_rope_head_dim"])?,
            v_head_dim: keys.required(&["v_head_dim"])?,
        }))
    }

    fn ffn(&mut self, index: u64) -> Result<Ffn> {
        let experts = self.experts()?;
        match experts {
            Some(experts) if self.is_moe_layer(index)? => Ok(Ffn::Experts(experts)),
            _ => Ok(Ffn::Dense(self.dense()?)),
        }
    }

    fn dense(&mut self) -> Result<Dense> {
        let named = self.keys.count(&[
            "dense_intermediate_size",
            "intermediate_size",
            "n_inner",
            "ffn_dim",
            "ffn_hidden_size",
            "ffn_size",
        ])?;
        let intermediate = match named {
            Some(width) => width,
            None if self.habits.gated => {
                return Err(self.keys.bad("intermediate_size", "missing", "a whole number"));
            }
            // GPT's usual four times the residual width.
            None => 4 * self.hidden,
        };
        let bias = match self.model_type {
            "falcon" => self.keys.flag("bias", false)?,
            "starcoder2" => self.keys.flag("use_bias", true)?,
            "opt" => self.keys.flag("enable_bias", true)?,
            // gpt-oss has biases on its experts, qwen-like types none.
            "gpt_oss" => true,
            _ => self.keys.flag("mlp_bias", self.habits.mlp_bias)?,
        };
        Ok(Dense { intermediate, gated: self.habits.gated, bias })
    }

    fn experts(&mut self) -> Result<Option<Experts>> {
        let keys = self.keys;
        let Some(count) =
            keys.count(&["num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"])?
        else {
            return Ok(None);
        };
        if count == 1 {
            return Ok(None);
        }
        let per_token = keys.required(&[
            "num_experts_per_tok",
            "experts_per_token",
            "num_experts_per_token",
            "moe_top_k",
            "moe_topk",
        ])?;
        if per_token > count {
            return Err(keys.bad("num_experts_per_tok", per_token, format!("at most the {count} experts")));
        }
        let intermediate = match keys.count(&["moe_intermediate_size", "expert_ffn_hidden_size"])? {
            Some(width) => width,
            None => keys.required(&["intermediate_size"])?,
        };
        let bias = self.model_type == "gpt_oss";
        let expert = Dense { intermediate, gated: self.habits.gated, bias };
        let shared = match keys.count_or_zero(&["n_shared_experts", "num_shared_experts"])? {
            0 => keys.count_or_zero(&["shared_expert_intermediate_size", "shared_intermediate_size"])?,
            n => n * keys.count(&["moe_shared_expert_intermediate_size"])?.unwrap_or(intermediate),
        };
        let router_bias = match self.model_type {
            "gpt_oss" => count,
            // DeepSeek-V3's e_score_correction_bias.
            "deepseek_v3" | "glm4_moe" => count,
            _ if keys.text("topk_method")? == Some("noaux_tc") || keys.flag("use_routing_bias", false)? => {
                count
            }
            _ => 0,
        };
        Ok(Some(Experts {
            count,
            per_token,
            expert,
            shared: (shared > 0).then_some(Dense { intermediate: shared, gated: true, bias: false }),
            shared_gate: self.model_type == "qwen2_moe",
            router_bias,
        }))
    }

    fn is_moe_layer(&self, index: u64) -> Result<bool> {
        let keys = self.keys;
        if let Some(list) = keys.list("moe_layer_freq", self.layers)? {
            return Ok(list[index as usize].as_u64() == Some(1));
        }
        if let Some(list) = keys.list("mlp_layer_types", self.layers)? {
            return Ok(list[index as usize].as_str() == Some("sparse"));
        }
        let first = keys.count_or_zero(&["first_k_dense_replace"])?;
        let every =
            keys.count(&["moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step"])?.unwrap_or(1);
        let spared = keys
            .value("mlp_only_layers")
            .and_then(Value::as_array)
            .is_some_and(|l| l.iter().any(|v| v.as_u64() == Some(index)));
        let on_beat = if keys.value("decoder_sparse_step").is_some()
            || keys.value("interleave_moe_layer_step").is_some()
        {
            (index + 1).is_multiple_of(every)
        } else {
            index.is_multiple_of(every)
        };
        Ok(index >= first && on_beat && !spared)
    }

    /// Embeddings, final norm and lm_head.
    fn outer(&mut self, vocab: u64, max_context: Option<u64>) -> Result<Vec<Tensor>> {
        let width = self.keys.count(&["word_embed_proj_dim"])?.unwrap_or(self.hidden);
        let table = |name, rows| {
            Tensor::linear(name, "embedding", rows, width, Split::Even).with_role(Role::Embedding)
        };
        let mut outer = vec![table("embed_tokens", vocab)];
        let positions = match self.model_type {
            "gpt2" | "megatron-gpt" => max_context.unwrap_or(1024),
            // OPT's table starts at an offset of two.
            "opt" => max_context.unwrap_or(2048) + 2,
            _ => 0,
        };
        if positions > 0 {
            outer.push(Tensor::vector(
                "embed_positions",
                "embedding",
                positions * self.hidden,
                Split::Replicated,
            ));
        }
        if width != self.hidden {
            outer.push(Tensor::linear("project_in", "project_in", self.hidden, width, Split::Replicated));
            outer.push(Tensor::linear("project_out", "project_out", width, self.hidden, Split::Replicated));
        }
        let mut norm = if self.norm_bias()? { 2 * self.hidden } else { self.hidden };
        if self.model_type == "bloom" {
            norm *= 2; // a norm behind the embedding, too
        }
        let final_norm = self.keys.flag("do_layer_norm_before", true)?;
        outer.push(Tensor::vector("norm", "norms", if final_norm { norm } else { 0 }, Split::Replicated));
        outer.push(Tensor::linear("lm_head", "lm_head", vocab, width, Split::Even).with_role(Role::Head));
        if matches!(self.model_type, "gptj" | "phi" | "phimoe") {
            outer.push(Tensor::vector("lm_head.bias", "lm_head", vocab, Split::Even));
        }
        Ok(outer)
    }
}
