//! The feed-forward part of each layer, by the keys of its family.

use super::{Part, Reader};
use crate::error::Result;
use crate::model::ffn::{Dense, Experts, Ffn};
use serde_json::Value;

impl Reader<'_> {
    /// The FFN of layer `index`.
    pub(super) fn ffn(&mut self, index: u64) -> Result<Ffn> {
        let part = self.part(index)?;
        if matches!(part, Part::Mamba | Part::Attention) {
            return Ok(Ffn::None);
        }
        if let Some(block) = self.block(index, "ffn") {
            return self.searched(block);
        }
        let experts = self.experts()?;
        match experts {
            Some(experts) if part == Part::Experts || (part == Part::Both && self.is_moe_layer(index)?) => {
                Ok(Ffn::Experts(experts))
            }
            _ => Ok(Ffn::Dense(self.dense(index)?)),
        }
    }

    /// nemotron-nas: a width that the search chose, or none.
    fn searched(&self, block: crate::model::keys::Keys) -> Result<Ffn> {
        if block.flag("no_op", false)? || block.flag("replace_with_linear", false)? {
            return Ok(Ffn::None);
        }
        let intermediate = match block.count(&["intermediate_size"])? {
            Some(width) => width,
            None => {
                // Two thirds of a multiple of the hidden width, to the next 256.
                let factor =
                    block.value("ffn_mult").and_then(Value::as_f64).filter(|f| (0.0..=64.0).contains(f));
                let factor = factor
                    .ok_or_else(|| block.bad("block_configs.ffn.ffn_mult", "missing", "a number up to 64"))?;
                ((2.0 * factor * self.hidden as f64 / 3.0) as u64).next_multiple_of(256).max(256)
            }
        };
        Ok(Ffn::Dense(Dense { intermediate, gated: true, bias: false }))
    }

    fn dense(&mut self, index: u64) -> Result<Dense> {
        let names = [
            "dense_intermediate_size",
            "intermediate_size_mlp",
            "intermediate_size",
            "n_inner",
            "ffn_dim",
            "ffn_hidden_size",
            "ffn_size",
        ];
        let named = match self.keys.value("intermediate_size").and_then(Value::as_array) {
            // Gemma 3n: a width per layer.
            Some(list) => {
                list.get(index as usize).and_then(Value::as_u64).filter(|w| (1..=1 << 24).contains(w))
            }
            // Granite 4's dense models have the MLP that others share beside experts.
            None if self.model_type == "granitemoehybrid" => {
                self.keys.count(&["shared_intermediate_size"])?
            }
            None => self.keys.count(&names)?,
        };
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
        // Gemma 4: layers that share an earlier cache have an MLP twice as wide.
        let shared = self.keys.count_or_zero(&["num_kv_shared_layers"])?;
        let wide =
            shared > 0 && index + shared >= self.layers && self.keys.flag("use_double_wide_mlp", false)?;
        Ok(Dense {
            intermediate: if wide { 2 * intermediate } else { intermediate },
            gated: self.habits.gated,
            bias,
        })
    }

    fn experts(&mut self) -> Result<Option<Experts>> {
        // DBRX keeps them in an object of their own.
        let keys = self
            .keys
            .object("ffn_config")
            .filter(|f| f.value("moe_num_experts").is_some())
            .unwrap_or(self.keys);
        let counts = ["num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"];
        let count = keys.count_or_zero(&counts)?;
        if count <= 1 {
            return Ok(None);
        }
        if keys.value("enable_moe_block").is_some() && !keys.flag("enable_moe_block", true)? {
            return Ok(None);
        }
        let tops = [
            "num_experts_per_tok",
            "experts_per_token",
            "num_experts_per_token",
            "moe_top_k",
            "moe_topk",
            "moe_k",
            "top_k_experts",
        ];
        let per_token = keys.required(&tops)?;
        if per_token > count {
            return Err(keys.bad("num_experts_per_tok", per_token, format!("at most the {count} experts")));
        }
        let widths = [
            "moe_intermediate_size",
            "expert_ffn_hidden_size",
            "expert_intermediate_size",
            "ffn_hidden_size",
            "intermediate_size",
        ];
        let intermediate = keys.required(&widths)?;
        let gated = self.habits.gated;
        let router_bias = match self.model_type {
            "gpt_oss" | "deepseek_v3" | "glm4_moe" | "nemotron_h" => count,
            // DeepSeek-V3's e_score_correction_bias.
            _ if keys.text("topk_method")? == Some("noaux_tc") || keys.flag("use_routing_bias", false)? => {
                count
            }
            _ => 0,
        };
        let shared = self.shared_width(intermediate)?;
        Ok(Some(Experts {
            count,
            per_token,
            expert: Dense { intermediate, gated, bias: self.model_type == "gpt_oss" },
            shared: (shared > 0).then_some(Dense { intermediate: shared, gated, bias: false }),
            shared_gate: shared > 0
                && ["qwen2_moe", "qwen3_next", "qwen3_5"].iter().any(|t| self.model_type.starts_with(t)),
            router_bias,
            beside: self.model_type.starts_with("gemma4"),
            latent: keys.count(&["moe_latent_size", "routed_expert_hidden_size"])?,
        }))
    }

    /// Width of what every token passes beside the routed experts.
    fn shared_width(&self, expert: u64) -> Result<u64> {
        let keys = self.keys;
        match self.model_type {
            // One shared expert of an expert's width.
            t if t.starts_with("llama4") => return Ok(expert),
            // A dense MLP beside the experts.
            t if t.starts_with("gemma4") => return keys.required(&["intermediate_size"]),
            _ => {}
        }
        match keys.count_or_zero(&["n_shared_experts", "num_shared_experts", "moe_num_shared_experts"])? {
            0 => keys.count_or_zero(&[
                "shared_expert_intermediate_size",
                "shared_intermediate_size",
                "share_expert_dim",
            ]),
            n => Ok(n * keys.count(&["moe_shared_expert_intermediate_size"])?.unwrap_or(expert)),
        }
    }

    fn is_moe_layer(&self, index: u64) -> Result<bool> {
        let keys = self.keys;
        if let Some(list) = keys.list("moe_layer_freq", self.layers)? {
            return Ok(list[index as usize].as_u64() == Some(1));
        }
        if let Some(list) = keys.list("mlp_layer_types", self.layers)? {
            return Ok(list[index as usize].as_str() == Some("sparse"));
        }
        if let Some(list) = keys.value("moe_layers").and_then(Value::as_array) {
            return Ok(list.iter().any(|v| v.as_u64() == Some(index)));
        }
        let first = keys.count_or_zero(&["first_k_dense_replace", "moe_layer_start_index"])?;
        let every =
            keys.count(&["moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step"])?.unwrap_or(1);
        let spared = keys.value("mlp_only_layers").and_then(Value::as_array);
        let spared = spared.is_some_and(|l| l.iter().any(|v| v.as_u64() == Some(index)));
        let from_one = keys.any(&["decoder_sparse_step", "interleave_moe_layer_step"]).is_some();
        let on_beat = (index + u64::from(from_one)).is_multiple_of(every);
        Ok(index >= first && on_beat && !spared)
    }
}
