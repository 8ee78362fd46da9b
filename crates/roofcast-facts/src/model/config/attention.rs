//! Reads attention over keys and values: heads, windows, chunks, indices of blocks.
//!
//! Knows: the keys of each `model_type` for softmax attention. Knows nothing about latents and recurrences.

use super::{QkNorm, Reader};
use crate::error::Result;
use crate::model::keys::brief;
use crate::model::mixer::{Attention, BlockIndex, Gate, MeanKeys};
use serde_json::Value;

/// Range of tokens that a layer's attention reads.
#[derive(Clone, Copy, PartialEq)]
enum Span {
    Full,
    Window(u64),
    Chunk(u64),
}

/// Numbers of query and KV heads, and the widths of a key head and of a value head.
#[derive(Clone, Copy)]
struct Heads {
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    v_head_dim: u64,
}

impl Reader<'_> {
    /// Reads the attention of layer `index`.
    pub(super) fn attention(&mut self, index: u64) -> Result<Attention> {
        let span = self.span(index)?;
        let local = span != Span::Full;
        let h = self.heads(index, local)?;
        let shared_kv = self.shares_kv(index)?;
        let (qkv_bias, o_bias) = self.attention_biases()?;
        let qk_norm = match self.qk_norm()? {
            QkNorm::No => 0,
            QkNorm::Head if shared_kv => h.head_dim,
            QkNorm::Head => 2 * h.head_dim,
            QkNorm::Full => (h.heads + h.kv_heads) * h.head_dim,
        };
        let sinks = match self.model_type {
            "gpt_oss" | "granite_swa" | "granitemoe_swa" => true,
            _ if local => self.keys.flag("add_swa_attention_sink_bias", false)?,
            _ => self.keys.flag("add_full_attention_sink_bias", false)?,
        };
        Ok(Attention {
            v_head_dim: h.v_head_dim,
            window: if let Span::Window(window) = span { Some(window) } else { None },
            chunk: if let Span::Chunk(chunk) = span { Some(chunk) } else { None },
            q_rank: self.keys.count(&["share_q_dim"])?,
            qkv_bias,
            o_bias,
            qk_norm,
            sinks,
            gate: self.gate()?,
            values_from_keys: !local && self.keys.flag("attention_k_eq_v", false)?,
            shared_kv,
            index: self.block_index(index, h)?,
            ..Attention::new(h.heads, h.kv_heads, h.head_dim)
        })
    }

    fn gate(&self) -> Result<Gate> {
        let keys = self.keys;
        let next = self.model_type.starts_with("qwen3_next") || self.model_type.starts_with("qwen3_5");
        // Laguna's key either names the kind of gate, or is a boolean; true means one factor per head.
        let named = keys.value("gating").filter(|v| **v != Value::Bool(false));
        let heads = named.is_some_and(|v| *v == Value::Bool(true) || v.as_str() == Some("per-head"));
        let next = next || self.model_type.starts_with("muse_") || self.model_type == "afmoe";
        let next = next || self.model_type == "solar_open2" && keys.flag("use_gqa_gate", true)?;
        let names = ["attention_output_gate", "attn_use_output_gate"];
        let named_elements =
            names.into_iter().try_fold(false, |any, key| Ok(any || keys.flag(key, false)?))?;
        Ok(if keys.flag("attn_output_gate", next)? || named_elements {
            Gate::Elements
        } else if heads
            || keys.flag("use_head_wise_attn_gate", false)?
            || keys.flag("use_attention_gate", false)?
        {
            Gate::Heads
        } else if named.is_some() {
            Gate::Elements
        } else {
            Gate::None
        })
    }

    /// Reads the heads of layer `index`, which is local (windowed or chunked) or global.
    fn heads(&mut self, index: u64, local: bool) -> Result<Heads> {
        let keys = self.keys;
        let mut all = self.common_heads()?;
        if let Some(heads) = self.listed_heads(index)? {
            all.heads = heads;
        }
        let or = |names: &[&str], common: u64| Ok(keys.count(names)?.unwrap_or(common));
        let h = match keys.object("attention_other_setting") {
            // Sliding layers of Step-3.5.
            Some(other) if local => Heads {
                heads: other.count(&["num_attention_heads"])?.unwrap_or(all.heads),
                kv_heads: other.count(&["num_attention_groups"])?.unwrap_or(all.kv_heads),
                ..all
            },
            // Sliding layers of MiMo-V2.
            _ if local => {
                let head_dim = or(&["swa_head_dim"], all.head_dim)?;
                Heads {
                    heads: or(&["swa_num_attention_heads"], all.heads)?,
                    kv_heads: or(&["swa_num_key_value_heads"], all.kv_heads)?,
                    head_dim,
                    v_head_dim: or(&["swa_v_head_dim"], all.v_head_dim)?,
                }
            }
            // Global layers of Gemma 4.
            _ => {
                let head_dim = keys.count(&["global_head_dim"])?;
                let paired = keys.flag("attention_k_eq_v", false)?;
                let kv = if paired { keys.count(&["num_global_key_value_heads"])? } else { None };
                Heads {
                    kv_heads: kv.unwrap_or(all.kv_heads),
                    head_dim: head_dim.unwrap_or(all.head_dim),
                    v_head_dim: head_dim.unwrap_or(all.v_head_dim),
                    ..all
                }
            }
        };
        if h.kv_heads > h.heads || !h.heads.is_multiple_of(h.kv_heads) {
            let accepted = format!("a divisor of {} query heads", h.heads);
            return Err(keys.bad("num_key_value_heads", h.kv_heads, accepted));
        }
        Ok(h)
    }

    /// Number of query heads of layer `index` if the config lists a number per layer (Laguna).
    fn listed_heads(&self, index: u64) -> Result<Option<u64>> {
        let keys = self.keys;
        let Some(list) = keys.list("num_attention_heads_per_layer", self.layers)? else { return Ok(None) };
        let listed = &list[index as usize];
        let heads = listed.as_u64().filter(|h| (1..=1 << 24).contains(h));
        let bad = || keys.bad("num_attention_heads_per_layer", brief(listed), "1 to 16777216");
        heads.map(Some).ok_or_else(bad)
    }

    /// Reads the heads under the keys without a prefix.
    fn common_heads(&self) -> Result<Heads> {
        let keys = self.keys;
        let heads = keys.required(&["num_attention_heads", "n_head", "num_heads", "n_heads"])?;
        let kv_heads = match self.model_type {
            "falcon" => self.falcon_kv_heads(heads)?,
            "gpt_bigcode" if keys.flag("multi_query", true)? => 1,
            "chatglm" => keys.count(&["multi_query_group_num"])?.unwrap_or(heads),
            "dbrx" => {
                keys.object("attn_config").map_or(Ok(None), |a| a.count(&["kv_n_heads"]))?.unwrap_or(heads)
            }
            _ => keys
                .count(&["num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups"])?
                .unwrap_or(heads),
        };
        let head_dim = match keys.count(&["head_dim", "kv_channels", "attention_head_dim", "d_kv"])? {
            Some(width) => width,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                let accepted = format!("a divisor of hidden_size {}, or head_dim", self.hidden);
                return Err(keys.bad("num_attention_heads", heads, accepted));
            }
        };
        // DeepSeek-OCR, which has no latents, writes a `v_head_dim` of 0.
        let v_head_dim = match keys.count_or_zero(&["v_head_dim"])? {
            0 => head_dim,
            width => width,
        };
        Ok(Heads { heads, kv_heads, head_dim, v_head_dim })
    }

    fn falcon_kv_heads(&self, heads: u64) -> Result<u64> {
        if self.new_falcon()? {
            Ok(self.keys.count(&["num_kv_heads", "n_head_kv"])?.unwrap_or(heads))
        } else {
            Ok(if self.keys.flag("multi_query", true)? { 1 } else { heads })
        }
    }

    /// True if layer `index` reuses an earlier layer's keys and values, as the last `num_kv_shared_layers` do.
    pub(super) fn shares_kv(&self, index: u64) -> Result<bool> {
        let shared = self.keys.count_or_zero(&["num_kv_shared_layers"])?;
        if shared >= self.layers && shared > 0 {
            let accepted = format!("fewer than the {} layers", self.layers);
            return Err(self.keys.bad("num_kv_shared_layers", shared, accepted));
        }
        Ok(index >= self.layers - shared)
    }

    /// True for biases on q, k and v, and true for a bias on the output projection.
    pub(super) fn attention_biases(&self) -> Result<(bool, bool)> {
        let keys = self.keys;
        let habits = self.habits;
        let both = |key: &str, default: bool| keys.flag(key, default).map(|b| (b, b));
        match self.model_type {
            // In these types `attention_bias` covers all four projections.
            "llama" | "mistral" | "granite" | "granitemoehybrid" | "cohere" | "gpt_oss" | "qwen3"
            | "qwen3_moe" | "qwen3_next" | "gemma3" | "gemma3_text" | "gemma4" | "gemma4_text"
            | "cohere2" | "laguna" | "olmo3" | "nemotron_h" | "nemotron" | "falcon_h1" | "nemotron-nas" => {
                both("attention_bias", habits.qkv_bias)
            }
            "falcon" => both("bias", false),
            "chatglm" => Ok((keys.flag("add_qkv_bias", false)?, keys.flag("add_bias_linear", false)?)),
            "stablelm" => Ok((keys.flag("use_qkv_bias", false)?, false)),
            "starcoder2" => both("use_bias", true),
            "opt" => both("enable_bias", true),
            "internlm2" | "internlm3" => {
                let all = keys.flag("bias", false)?;
                Ok((all || keys.flag("qkv_bias", false)?, all))
            }
            "gpt_neox" => both("attention_bias", true),
            _ => Ok((
                keys.flag("attention_bias", habits.qkv_bias)? || keys.flag("qkv_bias", false)?,
                keys.flag("attention_out_bias", habits.o_bias)?,
            )),
        }
    }

    fn qk_norm(&self) -> Result<QkNorm> {
        let named = self.keys.flag("use_qk_norm", false)? || self.keys.flag("qk_layernorm", false)?;
        Ok(match self.habits.qk_norm {
            // Llama 4's norm on queries and keys has no weights.
            QkNorm::No if self.model_type.starts_with("llama4") => QkNorm::No,
            QkNorm::No if named && self.model_type == "cohere" => QkNorm::Full,
            QkNorm::No if named => QkNorm::Head,
            habit => habit,
        })
    }

    /// Reads the range of tokens that attention of layer `index` reads.
    fn span(&mut self, index: u64) -> Result<Span> {
        let keys = self.keys;
        // transformers saves a window that is not used as 0.
        let window = keys.count_or_zero(&["sliding_window", "sliding_window_size"])?;
        let window = Some(window).filter(|window| *window > 0);
        if let Some(pattern) = keys.list("hybrid_layer_pattern", self.layers)? {
            let local = pattern[index as usize].as_u64() == Some(1);
            let missing = || keys.bad("sliding_window", "missing", "a whole number");
            return Ok(if local { Span::Window(window.ok_or_else(missing)?) } else { Span::Full });
        }
        if let Some(kinds) = keys.list("attention_layers", self.layers)? {
            // GPT-Neo's lists.
            return match kinds[index as usize].as_str() {
                Some("local") => Ok(Span::Window(keys.required(&["window_size"])?)),
                Some("global") => Ok(Span::Full),
                _ => Err(keys.bad("attention_layers", brief(&kinds[index as usize]), "global, local")),
            };
        }
        let used = keys.flag("use_sliding_window", true)?;
        if let Some(types) = keys.list("layer_types", self.layers)? {
            let kind = &types[index as usize];
            return self.span_of(kind, window.filter(|_| used));
        }
        if let Some(chunk) = keys.count(&["attention_chunk_size"])? {
            return Ok(if self.sees_chunks(index)? { Span::Chunk(chunk) } else { Span::Full });
        }
        match window.filter(|_| used) {
            Some(window) if self.slides(index, window)? => Ok(Span::Window(window)),
            _ => Ok(Span::Full),
        }
    }

    /// Converts an entry of `layer_types` to the range of tokens that it names.
    fn span_of(&self, kind: &Value, window: Option<u64>) -> Result<Span> {
        let keys = self.keys;
        match kind.as_str() {
            Some("sliding_attention") => Ok(window.map_or(Span::Full, Span::Window)),
            Some("chunked_attention") => Ok(Span::Chunk(keys.required(&["attention_chunk_size"])?)),
            Some("full_attention" | "attention" | "deepseek_sparse_attention" | "minimax_m3_sparse") => {
                Ok(Span::Full)
            }
            _ => Err(keys.bad(
                "layer_types",
                brief(kind),
                "full_attention, sliding_attention, chunked_attention, linear_attention, mamba, conv",
            )),
        }
    }

    /// True if a layer of Llama 4 attends within chunks, as its layers with rotary positions do.
    fn sees_chunks(&self, index: u64) -> Result<bool> {
        if let Some(rotary) = self.keys.list("no_rope_layers", self.layers)? {
            return Ok(rotary[index as usize].as_u64() != Some(0));
        }
        let every = self.keys.count(&["no_rope_layer_interval"])?.unwrap_or(4);
        Ok(!(index + 1).is_multiple_of(every))
    }

    /// True if layer `index` uses the sliding window, for configs that list no layer types.
    fn slides(&mut self, index: u64, window: u64) -> Result<bool> {
        if let Some(pattern) = self.keys.value("sliding_window_pattern").and_then(Value::as_str) {
            return self.is_local(pattern, index);
        }
        let names = ["sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"];
        let every = self.keys.count(&names)?;
        Ok(match (self.model_type, every) {
            // Every layer whose number is a multiple of `every` has full attention.
            (_, Some(every)) => !(index + 1).is_multiple_of(every),
            ("gemma3" | "gemma3_text" | "gemma4" | "gemma4_text", None) => !(index + 1).is_multiple_of(6),
            ("gemma2" | "gpt_oss", None) => index.is_multiple_of(2),
            ("granite_swa" | "granitemoe_swa", None) => !index.is_multiple_of(4),
            // The first `max_window_layers` layers have full attention.
            (t, None)
                if t.starts_with("qwen") || t == "mimo" || self.keys.value("max_window_layers").is_some() =>
            {
                index >= self.keys.count_or_zero(&["max_window_layers"])?
            }
            ("mistral" | "mixtral" | "phi3" | "starcoder2" | "phimoe" | "ministral", None) => true,
            _ => {
                self.assumptions.push(format!("sliding_window {window} is taken to hold in every layer"));
                true
            }
        })
    }

    /// True if layer `index` is local by EXAONE's repeating pattern of letters, as in `LLLG`.
    fn is_local(&self, pattern: &str, index: u64) -> Result<bool> {
        let letters = pattern.as_bytes();
        if letters.is_empty() || letters.iter().any(|l| !b"LG".contains(l)) {
            return Err(self.keys.bad("sliding_window_pattern", format!("{pattern:.80}"), "L and G"));
        }
        Ok(letters[(index % letters.len() as u64) as usize] == b'L')
    }

    /// Reads the index that chooses blocks for layer `index`: MiniMax-M3's or MiniCPM-SALA's.
    fn block_index(&mut self, index: u64, heads: Heads) -> Result<Option<BlockIndex>> {
        if self.model_type == "minicpm_sala" {
            return self.index_of_means(heads);
        }
        let Some(sparse) = self.keys.object("sparse_attention_config") else { return Ok(None) };
        if !sparse.flag("use_sparse_attention", true)? {
            return Ok(None);
        }
        let set = |list: Option<&[Value]>| list.is_none_or(|l| l[index as usize].as_u64() == Some(1));
        if !set(sparse.list("sparse_attention_freq", self.layers)?) {
            return Ok(None);
        }
        if !set(sparse.list("sparse_disable_index_value", self.layers)?) {
            return Err(sparse.bad("sparse_disable_index_value", "0", "1: index values are not modelled"));
        }
        Ok(Some(BlockIndex {
            heads: sparse.required(&["sparse_num_index_heads"])?,
            head_dim: sparse.required(&["sparse_index_dim"])?,
            blocks: sparse.required(&["sparse_topk_blocks"])?,
            block: sparse.required(&["sparse_block_size"])?,
            means: None,
        }))
    }

    /// Reads InfLLM-v2's index, which chooses the best `topk` blocks, and the blocks of the window, by means of keys
    /// (SGLang 0.5.23, `layers/attention/minicpm/backend.py`). InfLLM-v2 reads contexts up to `dense_len` whole,
    /// which is noted as an assumption.
    fn index_of_means(&mut self, heads: Heads) -> Result<Option<BlockIndex>> {
        let Some(sparse) = self.keys.object("sparse_config") else { return Ok(None) };
        let block = sparse.required(&["block_size"])?;
        let index = BlockIndex {
            heads: heads.heads,
            head_dim: heads.head_dim,
            blocks: sparse.required(&["topk"])? + sparse.count_or_zero(&["window_size"])? / block,
            block,
            means: Some(MeanKeys { kv_heads: heads.kv_heads, stride: sparse.required(&["kernel_stride"])? }),
        };
        let dense = sparse.count_or_zero(&["dense_len"])?;
        if dense > index.reach() {
            let reach = index.reach();
            self.assumptions.push(format!(
                "of contexts from {reach} to {dense} tokens, which the sparse layers read whole, {reach} tokens are taken"
            ));
        }
        Ok(Some(index))
    }
}
