//! Reads feed-forward parts: dense MLPs and experts, and which layers have which.
//!
//! Knows: the keys of each `model_type` for MLPs, experts and routers. Knows nothing about mixers.

use super::Reader;
use crate::error::Result;
use crate::model::keys::{Keys, brief};
use crate::model::{Dense, Experts, Ffn};
use serde_json::Value;

/// Keys of the number of experts that a token chooses.
const PER_TOKEN: [&str; 7] = [
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
];

impl Reader<'_> {
    /// Reads the feed-forward part of layer `index`.
    pub(super) fn ffn(&mut self, index: u64) -> Result<Ffn> {
        match self.experts()? {
            Some(experts) if self.is_moe_layer(index)? => {
                let beside = if self.has_dense_beside()? { Some(self.dense(index)?) } else { None };
                Ok(Ffn::Experts(Experts { beside, ..experts }))
            }
            _ => Ok(Ffn::Dense(self.dense(index)?)),
        }
    }

    /// True if a dense MLP runs in parallel with the experts: Gemma 4, Grok 2, LongCat.
    fn has_dense_beside(&self) -> Result<bool> {
        let named = self.keys.flag("enable_moe_block", false)? || self.keys.flag("residual_moe", false)?;
        Ok(named || self.model_type.starts_with("longcat_flash"))
    }

    /// Reads the experts of a layer that has experts according to a pattern.
    pub(super) fn required_experts(&mut self) -> Result<Ffn> {
        self.experts()?.map(Ffn::Experts).ok_or_else(|| {
            self.keys.bad("n_routed_experts", "missing", "a whole number: the pattern has layers of experts")
        })
    }

    /// Reads the dense MLP of layer `index`.
    pub(super) fn dense(&mut self, index: u64) -> Result<Dense> {
        let keys = self.keys;
        let named = match self.model_type {
            "llama4" | "llama4_text" => keys.count(&["intermediate_size_mlp", "intermediate_size"])?,
            // A Granite model without experts consists of its shared MLP alone.
            "granitemoehybrid" => keys.count(&["shared_intermediate_size", "intermediate_size"])?,
            // Gemma 3n lists one width per layer.
            _ if keys.value("intermediate_size").is_some_and(Value::is_array) => self.listed_width(index)?,
            _ => keys.count(&[
                "dense_intermediate_size",
                "prefix_dense_intermediate_size",
                "intermediate_size",
                "n_inner",
                "ffn_dim",
                "ffn_hidden_size",
                "ffn_size",
                "block_ff_dim",
            ])?,
        };
        let intermediate = match named {
            Some(width) if self.model_type.starts_with("lfm2") => self.adjusted(width)?,
            // Gemma 4: layers that reuse keys of an earlier layer may be twice as wide.
            Some(width) if keys.flag("use_double_wide_mlp", false)? && self.shares_kv(index)? => 2 * width,
            Some(width) => width,
            None if self.habits.gated => {
                return Err(keys.bad("intermediate_size", "missing", "a whole number"));
            }
            // GPT's usual width is four times the residual width.
            None => keys.count(&["intermediate_multiple_size"])?.unwrap_or(4) * self.hidden,
        };
        let bias = match self.model_type {
            "falcon" => keys.flag("bias", false)?,
            "starcoder2" => keys.flag("use_bias", true)?,
            "opt" => keys.flag("enable_bias", true)?,
            // gpt-oss has biases on its experts; Qwen-like types have none.
            "gpt_oss" => true,
            _ => keys.flag("mlp_bias", self.habits.mlp_bias)?,
        };
        Ok(Dense { intermediate, gated: self.habits.gated, bias })
    }

    /// MLP width of layer `index` if `intermediate_size` is a list.
    fn listed_width(&self, index: u64) -> Result<Option<u64>> {
        let keys = self.keys;
        let Some(widths) = keys.list("intermediate_size", self.layers)? else { return Ok(None) };
        let listed = &widths[index as usize];
        let width = listed.as_u64().filter(|w| (1..=1 << 24).contains(w));
        width.map(Some).ok_or_else(|| keys.bad("intermediate_size", brief(listed), "1 to 16777216"))
    }

    /// MLP width of LFM2: two thirds of `width`, times a factor, rounded up.
    fn adjusted(&self, width: u64) -> Result<u64> {
        let keys = self.keys;
        if self.model_type != "lfm2" || !keys.flag("block_auto_adjust_ff_dim", true)? {
            return Ok(width);
        }
        let factor = keys.value("block_ffn_dim_multiplier").and_then(Value::as_f64).unwrap_or(1.0);
        if !(0.0..=64.0).contains(&factor) {
            return Err(keys.bad("block_ffn_dim_multiplier", factor, "0 to 64"));
        }
        let multiple = keys.count(&["block_multiple_of"])?.unwrap_or(256);
        Ok(((factor * (2 * width / 3) as f64) as u64).max(1).next_multiple_of(multiple))
    }

    /// Reads the experts of an MoE layer; `None` for a dense model.
    fn experts(&mut self) -> Result<Option<Experts>> {
        let keys = match (self.model_type, self.keys.object("ffn_config")) {
            ("dbrx", Some(inner)) => inner,
            _ => self.keys,
        };
        let names = ["num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"];
        let count = keys.count_or_zero(&names)?;
        self.refuse_uncounted(&keys, &names)?;
        // Dense models of Gemma 4 have keys for experts, too.
        if count <= 1 || !self.keys.flag("enable_moe_block", true)? {
            return Ok(None);
        }
        let per_token = keys.required(&PER_TOKEN)?;
        if per_token > count {
            return Err(keys.bad("num_experts_per_tok", per_token, format!("at most the {count} experts")));
        }
        let per_token = self.computed(count, per_token)?;
        let widths = ["moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size"];
        let intermediate = match keys.count(&widths)? {
            Some(width) => width,
            None => keys.required(&["intermediate_size", "ffn_hidden_size"])?,
        };
        let gated = self.habits.gated;
        let expert = Dense { intermediate, gated, bias: self.model_type == "gpt_oss" };
        let shared = self.shared_width(intermediate)?;
        let t = self.model_type;
        Ok(Some(Experts {
            count,
            per_token,
            expert,
            shared: (shared > 0).then_some(Dense { intermediate: shared, gated, bias: false }),
            shared_gate: t == "qwen2_moe" || t == "qwen3_next" || t.starts_with("qwen3_5"),
            router_bias: self.router_bias(count)?,
            latent: keys.count(&["moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size"])?,
            latent_norm: keys.flag("latent_moe_use_norm", false)?,
            beside: None,
        }))
    }

    /// Refuses a file that names experts and does not count them: as a dense model it would be far too small.
    fn refuse_uncounted(&self, keys: &Keys, names: &[&str]) -> Result<()> {
        if names.iter().any(|name| keys.states(name)) || keys.count_or_zero(&PER_TOKEN)? == 0 {
            return Ok(());
        }
        Err(keys.bad(
            names[1],
            "missing",
            format!("a whole number ({}): experts are named", names.join(" or ")),
        ))
    }

    /// Number of experts that compute per token. LongCat's zero experts can be chosen but compute nothing, so the
    /// mean number is the token's choices times the fraction of experts that compute.
    fn computed(&mut self, count: u64, per_token: u64) -> Result<u64> {
        let zero = self.keys.count_or_zero(&["zero_expert_num"])?;
        if zero == 0 {
            return Ok(per_token);
        }
        let all = count + zero;
        let computed = ((per_token * count + all / 2) / all).max(1);
        self.assumptions.push(format!(
            "a token computes {computed} of its {per_token} experts on average: {zero} of {all} compute nothing"
        ));
        Ok(computed)
    }

    /// Width of the shared expert, which computes every token.
    fn shared_width(&self, intermediate: u64) -> Result<u64> {
        let keys = self.keys;
        if self.model_type.starts_with("llama4") {
            return Ok(intermediate);
        }
        if let Some(width) = keys.count(&["share_expert_dim", "share_expert_dims"])? {
            return Ok(width);
        }
        let names = ["n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"];
        match keys.count_or_zero(&names)? {
            0 => keys.count_or_zero(&["shared_expert_intermediate_size", "shared_intermediate_size"]),
            n => Ok(n * keys.count(&["moe_shared_expert_intermediate_size"])?.unwrap_or(intermediate)),
        }
    }

    /// Router parameters in addition to its matrix.
    fn router_bias(&self, count: u64) -> Result<u64> {
        let keys = self.keys;
        Ok(match self.model_type {
            "gpt_oss" => count,
            // One correction term per expert: `e_score_correction_bias`.
            "deepseek_v3" | "deepseek_v32" | "deepseek_v4" | "deepseek_ref" | "glm4_moe" | "glm_moe_dsa"
            | "kimi_linear" | "kimi_k3" | "nemotron_h" | "mimo_v2_flash" | "ernie4_5_moe" | "laguna"
            | "glm4_moe_lite" | "glm5_next" | "glm5_next_text" | "axk1" | "exaone_moe" | "afmoe"
            | "solar_open" | "solar_open2" | "hy_v3" | "hy_v4" | "hy_v4_vl_text" | "bailing_hybrid"
            | "muse_spark" | "muse_spark_text" => count,
            // Router rows and correction terms of the zero experts are included.
            "longcat_flash" | "longcat_flash_ngram" => {
                let zero = keys.count_or_zero(&["zero_expert_num"])?;
                count + zero * (self.hidden + 1)
            }
            // One scale per input and one per expert.
            "gemma4" | "gemma4_text" => self.hidden + count,
            _ if keys.text("topk_method")? == Some("noaux_tc")
                || keys.flag("use_routing_bias", false)?
                || keys.flag("use_moe_router_bias", false)?
                || keys.flag("use_expert_bias", false)?
                || keys.flag("moe_router_enable_expert_bias", false)? =>
            {
                count
            }
            _ => 0,
        })
    }

    fn is_moe_layer(&self, index: u64) -> Result<bool> {
        let keys = self.keys;
        if self.model_type.starts_with("longcat_flash") {
            return Ok(index.is_multiple_of(2));
        }
        if let Some(list) = keys.list("moe_layer_freq", self.layers)? {
            return Ok(list[index as usize].as_u64() == Some(1));
        }
        if let Some(list) = keys.list("mlp_layer_types", self.layers)? {
            return Ok(list[index as usize].as_str() != Some("dense") && !self.is_spared(index)?);
        }
        if let Some(list) = self.moe_layers()? {
            return Ok(list.contains(&index));
        }
        if let Some(every) = keys.count(&["expert_layer_period"])? {
            return Ok(index % every == keys.count_or_zero(&["expert_layer_offset"])?);
        }
        let first =
            keys.count_or_zero(&["first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"])?;
        let shifted = ["decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"];
        let on_beat = match keys.count(&shifted)? {
            Some(every) => (index + 1).is_multiple_of(every),
            None => index.is_multiple_of(keys.count(&["moe_layer_freq"])?.unwrap_or(1)),
        };
        Ok(index >= first && on_beat && !self.is_spared(index)?)
    }

    /// True if layer `index` is among the layers that have an MLP alone.
    fn is_spared(&self, index: u64) -> Result<bool> {
        Ok(self.keys.numbers("mlp_only_layers")?.is_some_and(|layers| layers.contains(&index)))
    }

    /// Layers with experts, if the config lists them: Llama 4's `moe_layers`, Step's `moe_layers_enum` ("3,4,5").
    fn moe_layers(&self) -> Result<Option<Vec<u64>>> {
        let keys = self.keys;
        if let Some(layers) = keys.numbers("moe_layers")? {
            return Ok(Some(layers));
        }
        match keys.value("moe_layers_enum") {
            // The bound on the text's length also bounds time, because the text is parsed again for each layer.
            Some(Value::String(text)) if text.len() < 1 << 16 => {
                let number = |part: &str| part.trim().parse::<u64>();
                let listed: Result<Vec<u64>, _> = text.split(',').map(number).collect();
                listed
                    .map(Some)
                    .map_err(|_| keys.bad("moe_layers_enum", format!("{text:.80}"), "layers between commas"))
            }
            Some(_) => keys.numbers("moe_layers_enum"),
            None => Ok(None),
        }
    }
}
