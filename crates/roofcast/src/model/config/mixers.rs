//! The token mixer of each layer, by the keys of its family.

use super::habits::QkNorm;
use super::{Part, Reader};
use crate::error::Result;
use crate::model::keys::brief;
use crate::model::mixer::attention::Reach;
use crate::model::mixer::delta::DeltaGate;
use crate::model::mixer::{Attention, Compressed, Delta, Indexer, Latent, Mamba, Mixer};

impl Reader<'_> {
    /// The mixer of layer `index`.
    pub(super) fn mixer(&mut self, index: u64) -> Result<Mixer> {
        match self.part(index)? {
            Part::Mamba => return Ok(Mixer::Mamba(self.mamba()?)),
            Part::Ffn | Part::Experts => return Ok(Mixer::None),
            Part::Attention | Part::Both => {}
        }
        if let Some(linear) = self.keys.object("linear_attn_config") {
            // Layers are numbered from one there.
            let kda = linear.value("kda_layers").and_then(|l| l.as_array());
            if kda.is_some_and(|l| l.iter().any(|v| v.as_u64() == Some(index + 1))) {
                return Ok(Mixer::Delta(self.kimi_delta()?));
            }
        } else if self.is_linear(index)? {
            return Ok(Mixer::Delta(self.gated_delta()?));
        }
        if self.is_lightning(index)? {
            return Ok(Mixer::Delta(self.lightning(index)?));
        }
        if self.layer_type(index)? == Some("mamba") {
            return Ok(Mixer::Mamba(self.mamba()?));
        }
        if self.keys.value("compress_ratios").is_some() {
            return Ok(Mixer::Compressed(self.compressed(index)?));
        }
        if self.keys.value("kv_lora_rank").is_some() {
            return Ok(Mixer::Latent(self.latent(index)?));
        }
        self.attention(index)
    }

    /// Whether layer `index` is a linear one of a Qwen3-Next hybrid.
    fn is_linear(&self, index: u64) -> Result<bool> {
        if self.keys.value("linear_num_value_heads").is_none() {
            return Ok(false);
        }
        if let Some(types) = self.keys.list("layer_types", self.layers)? {
            return Ok(types[index as usize].as_str() == Some("linear_attention"));
        }
        let every = self.keys.count(&["full_attention_interval"])?.unwrap_or(4);
        Ok(!(index + 1).is_multiple_of(every))
    }

    /// What `layer_types` says of layer `index`.
    fn layer_type(&self, index: u64) -> Result<Option<&str>> {
        Ok(self.keys.list("layer_types", self.layers)?.and_then(|types| types[index as usize].as_str()))
    }

    /// MiniMax-01 and M1: layers of type 0 are lightning attention.
    fn is_lightning(&self, index: u64) -> Result<bool> {
        let types = self.keys.list("attn_type_list", self.layers)?;
        Ok(types.is_some_and(|types| types[index as usize].as_u64() == Some(0)))
    }

    /// Lightning attention: a matrix state per head with a fixed decay, no convolution.
    fn lightning(&mut self, index: u64) -> Result<Delta> {
        let (heads, _, dim) = self.heads(index)?;
        Ok(Delta {
            key_heads: heads,
            value_heads: heads,
            key_dim: dim,
            value_dim: dim,
            kernel: 0,
            gate: DeltaGate::Fixed,
            state_bits: 32,
        })
    }

    /// Query heads, KV heads and the width of a head in layer `index`.
    fn heads(&mut self, index: u64) -> Result<(u64, u64, u64)> {
        let local = self.is_local(index)?;
        let swa = |key: &'static str| if local { self.keys.count(&[key]) } else { Ok(None) };
        let global = |key: &'static str| if local { Ok(None) } else { self.keys.count(&[key]) };
        let heads = match swa("swa_num_attention_heads")? {
            Some(heads) => heads,
            None => self.keys.required(&["num_attention_heads", "n_head", "num_heads", "n_heads"])?,
        };
        let kv_heads = match swa("swa_num_key_value_heads")?.or(global("num_global_key_value_heads")?) {
            Some(kv_heads) => kv_heads,
            None => self.kv_heads(heads, index)?,
        };
        if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
            return Err(self.keys.bad(
                "num_key_value_heads",
                kv_heads,
                format!("a divisor of {heads} query heads"),
            ));
        }
        let named = self.keys.count(&["head_dim", "kv_channels", "attention_head_dim", "d_kv"])?;
        let head_dim = match swa("swa_head_dim")?.or(global("global_head_dim")?).or(named) {
            Some(width) => width,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                let accepted = format!("a divisor of hidden_size {}, or head_dim", self.hidden);
                return Err(self.keys.bad("num_attention_heads", heads, accepted));
            }
        };
        Ok((heads, kv_heads, head_dim))
    }

    fn kv_heads(&self, heads: u64, index: u64) -> Result<u64> {
        let keys = self.keys;
        match self.model_type {
            "falcon" if !self.new_falcon()? => Ok(if keys.flag("multi_query", true)? { 1 } else { heads }),
            "chatglm" => Ok(keys.count(&["multi_query_group_num"])?.unwrap_or(heads)),
            "dbrx" => Ok(keys
                .object("attn_config")
                .map_or(Ok(None), |a| a.count(&["kv_n_heads"]))?
                .unwrap_or(heads)),
            _ => match self.block(index, "attention") {
                // nemotron-nas: query heads that share a KV head, or the KV heads.
                Some(block) => match block.count(&["n_heads_in_group"])? {
                    Some(group) => Ok((heads / group).max(1)),
                    None => Ok(block.count(&["num_key_value_heads"])?.unwrap_or(heads)),
                },
                None => {
                    Ok(keys.count(&["num_key_value_heads", "num_kv_heads", "n_head_kv"])?.unwrap_or(heads))
                }
            },
        }
    }

    fn attention(&mut self, index: u64) -> Result<Mixer> {
        if let Some(block) = self.block(index, "attention")
            && (block.flag("no_op", false)? || block.flag("replace_with_linear", false)?)
        {
            return Ok(Mixer::None);
        }
        let (heads, kv_heads, head_dim) = self.heads(index)?;
        let local = self.is_local(index)?;
        let v_key = if local { ["swa_v_head_dim", "v_head_dim"] } else { ["v_head_dim", "v_head_dim"] };
        let v_head_dim = self.keys.count(&v_key)?.unwrap_or(head_dim);
        let (qkv_bias, o_bias) = self.attention_biases()?;
        let qk_norm = match self.qk_norm()? {
            QkNorm::No => 0,
            QkNorm::Head => 2 * head_dim,
            QkNorm::Full => (heads + kv_heads) * head_dim,
        };
        let sink_key = if local { "add_swa_attention_sink_bias" } else { "add_full_attention_sink_bias" };
        let shared = self.keys.count_or_zero(&["num_kv_shared_layers"])?;
        let mut attention = Attention {
            heads,
            kv_heads,
            head_dim,
            v_head_dim,
            reach: self.reach(index)?,
            qkv_bias,
            o_bias,
            qk_norm,
            sinks: self.model_type == "gpt_oss" || self.keys.flag(sink_key, false)?,
            gate: self.keys.flag("attn_output_gate", self.model_type == "qwen3_next")?,
            k_eq_v: !local && self.keys.flag("attention_k_eq_v", false)?,
            shared_kv: index + shared >= self.layers,
            indexer: None,
        };
        self.choose_blocks(&mut attention, index)?;
        Ok(Mixer::Attention(attention))
    }

    /// MiniMax-M3: layers whose queries read blocks that an index chooses.
    fn choose_blocks(&self, attention: &mut Attention, index: u64) -> Result<()> {
        let Some(sparse) = self.keys.object("sparse_attention_config") else { return Ok(()) };
        let on = match sparse.list("sparse_attention_freq", self.layers)? {
            Some(list) => list[index as usize].as_u64() == Some(1),
            None => true,
        };
        if on && sparse.flag("use_sparse_attention", true)? {
            let tokens =
                sparse.required(&["sparse_block_size"])? * sparse.required(&["sparse_topk_blocks"])?;
            attention.reach = Reach::Chosen(tokens);
            attention.indexer = Some(Indexer {
                heads: sparse.required(&["sparse_num_index_heads"])?,
                dim: sparse.required(&["sparse_index_dim"])?,
                query_rank: self.hidden,
                weighted: false,
                own: true,
            });
        }
        Ok(())
    }

    /// Biases on q, k, v and on the output projection.
    fn attention_biases(&self) -> Result<(bool, bool)> {
        let (keys, habits) = (self.keys, self.habits);
        let both = |key: &str, default: bool| keys.flag(key, default).map(|b| (b, b));
        match self.model_type {
            // attention_bias covers all four projections.
            "llama" | "mistral" | "granite" | "cohere" | "gpt_oss" | "qwen3" | "qwen3_moe" | "nemotron_h" => {
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
                habits.o_bias,
            )),
        }
    }

    fn qk_norm(&self) -> Result<QkNorm> {
        // Llama 4's norm on queries and keys has no weights.
        let named = self.keys.flag("use_qk_norm", false)? && !self.model_type.starts_with("llama4");
        let named = named || self.keys.flag("qk_layernorm", false)?;
        Ok(match self.habits.qk_norm {
            QkNorm::No if named && self.model_type == "cohere" => QkNorm::Full,
            QkNorm::No if named => QkNorm::Head,
            habit => habit,
        })
    }

    /// Whether layer `index` sees a window of the past only, by whichever key says so.
    pub(super) fn is_local(&mut self, index: u64) -> Result<bool> {
        if let Some(pattern) = self.keys.list("hybrid_layer_pattern", self.layers)? {
            return Ok(pattern[index as usize].as_u64() == Some(1));
        }
        Ok(matches!(self.reach(index)?, Reach::Window(_)))
    }

    /// What layer `index` sees.
    fn reach(&mut self, index: u64) -> Result<Reach> {
        if let Some(chunk) =
            self.keys.count(&["attention_chunk_size"])?.filter(|_| self.model_type.starts_with("llama4"))
        {
            return Ok(if self.is_chunked(index)? { Reach::Chunk(chunk) } else { Reach::Full });
        }
        let Some(window) = self.keys.count(&["sliding_window"])? else { return Ok(Reach::Full) };
        if !self.keys.flag("use_sliding_window", true)? {
            return Ok(Reach::Full);
        }
        if let Some(pattern) = self.keys.list("hybrid_layer_pattern", self.layers)? {
            return Ok(if pattern[index as usize].as_u64() == Some(1) {
                Reach::Window(window)
            } else {
                Reach::Full
            });
        }
        if let Some(types) = self.keys.list("layer_types", self.layers)? {
            let kind = &types[index as usize];
            return match kind.as_str() {
                Some("sliding_attention") => Ok(Reach::Window(window)),
                Some("full_attention" | "attention" | "linear_attention" | "mamba") => Ok(Reach::Full),
                _ => Err(self.keys.bad(
                    "layer_types",
                    brief(kind),
                    "sliding_attention, full_attention, linear_attention, mamba",
                )),
            };
        }
        Ok(if self.slides(index, window)? { Reach::Window(window) } else { Reach::Full })
    }

    /// Llama 4: layers that keep position encoding attend in chunks.
    fn is_chunked(&self, index: u64) -> Result<bool> {
        if let Some(types) = self.keys.list("layer_types", self.layers)? {
            return Ok(types[index as usize].as_str() == Some("chunked_attention"));
        }
        if let Some(rope) = self.keys.list("no_rope_layers", self.layers)? {
            return Ok(rope[index as usize].as_u64() == Some(1));
        }
        let every = self.keys.count(&["no_rope_layer_interval"])?.unwrap_or(4);
        Ok(!(index + 1).is_multiple_of(every))
    }

    /// Whether layer `index` slides where no list says so.
    fn slides(&mut self, index: u64, window: u64) -> Result<bool> {
        let every = self.keys.count(&["sliding_window_pattern", "_sliding_window_pattern"])?;
        Ok(match (self.model_type, every) {
            // Each `every`-th layer sees everything.
            (_, Some(every)) => !(index + 1).is_multiple_of(every),
            (t, None) if t.starts_with("gemma3") || t.starts_with("gemma4") => !(index + 1).is_multiple_of(6),
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
        })
    }

    fn latent(&mut self, index: u64) -> Result<Latent> {
        let keys = self.keys;
        let q_lora_rank = keys.count(&["q_lora_rank"])?;
        let chosen = keys.count(&["index_topk"])?;
        let indexer = match chosen {
            None => None,
            Some(_) => Some(Indexer {
                heads: keys.required(&["index_n_heads"])?,
                dim: keys.required(&["index_head_dim"])?,
                query_rank: q_lora_rank.unwrap_or(self.hidden),
                weighted: true,
                own: match keys.list("indexer_types", self.layers)? {
                    Some(types) => types[index as usize].as_str() == Some("full"),
                    None => true,
                },
            }),
        };
        Ok(Latent {
            heads: keys.required(&["num_attention_heads"])?,
            q_lora_rank,
            kv_lora_rank: keys.required(&["kv_lora_rank"])?,
            qk_nope_head_dim: keys.required(&["qk_nope_head_dim"])?,
            qk_rope_head_dim: keys.required(&["qk_rope_head_dim"])?,
            v_head_dim: keys.required(&["v_head_dim"])?,
            output_gate: keys.flag("mla_use_output_gate", false)?,
            reach: chosen.map_or(Reach::Full, Reach::Chosen),
            indexer,
        })
    }

    fn compressed(&self, index: u64) -> Result<Compressed> {
        let keys = self.keys;
        let ratios = keys.list("compress_ratios", self.layers)?;
        let ratio = ratios.and_then(|r| r[index as usize].as_u64()).filter(|r| *r <= 65_536);
        let ratio = ratio.ok_or_else(|| {
            keys.bad("compress_ratios", "no ratio for each layer", "a list of ratios up to 65536")
        })?;
        // Where blocks are few tokens each, an indexer chooses among them.
        let index = if ratio == 4 {
            let (heads, dim) = (keys.required(&["index_n_heads"])?, keys.required(&["index_head_dim"])?);
            Some([heads, dim, keys.required(&["index_topk"])?])
        } else {
            None
        };
        Ok(Compressed {
            heads: keys.required(&["num_attention_heads"])?,
            head_dim: keys.required(&["head_dim"])?,
            q_lora_rank: keys.required(&["q_lora_rank"])?,
            o_groups: keys.required(&["o_groups"])?,
            o_lora_rank: keys.required(&["o_lora_rank"])?,
            window: keys.required(&["sliding_window"])?,
            ratio,
            index,
        })
    }

    fn gated_delta(&self) -> Result<Delta> {
        let keys = self.keys;
        Ok(Delta {
            key_heads: keys.required(&["linear_num_key_heads"])?,
            value_heads: keys.required(&["linear_num_value_heads"])?,
            key_dim: keys.required(&["linear_key_head_dim"])?,
            value_dim: keys.required(&["linear_value_head_dim"])?,
            kernel: keys.count(&["linear_conv_kernel_dim"])?.unwrap_or(4),
            gate: DeltaGate::Head,
            state_bits: self.state_bits("mamba_ssm_dtype", 32)?,
        })
    }

    fn kimi_delta(&self) -> Result<Delta> {
        let config = self.keys.object("linear_attn_config").unwrap_or(self.keys);
        let (heads, dim) = (config.required(&["num_heads"])?, config.required(&["head_dim"])?);
        Ok(Delta {
            key_heads: heads,
            value_heads: heads,
            key_dim: dim,
            value_dim: dim,
            kernel: config.count(&["short_conv_kernel_size"])?.unwrap_or(4),
            gate: DeltaGate::Channel { full_rank: config.flag("use_full_rank_gate", false)? },
            state_bits: 32,
        })
    }

    fn mamba(&self) -> Result<Mamba> {
        let keys = self.keys;
        Ok(Mamba {
            heads: keys.required(&["mamba_num_heads", "mamba_n_heads"])?,
            head_dim: keys.required(&["mamba_head_dim", "mamba_d_head"])?,
            groups: keys.count(&["n_groups", "mamba_n_groups"])?.unwrap_or(1),
            state: keys.required(&["ssm_state_size", "mamba_d_state"])?,
            kernel: keys.count(&["conv_kernel", "mamba_d_conv"])?.unwrap_or(4),
            conv_bias: keys.flag("use_conv_bias", keys.flag("mamba_conv_bias", true)?)?,
            state_bits: self.state_bits("mamba_ssm_cache_dtype", 16)?,
        })
    }

    /// Bits of a state element, 32 or 16.
    fn state_bits(&self, key: &str, default: u64) -> Result<u64> {
        Ok(match self.keys.text(key)? {
            Some("float32") => 32,
            Some(_) => 16,
            None => default,
        })
    }
}
