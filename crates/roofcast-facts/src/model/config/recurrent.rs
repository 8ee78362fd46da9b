//! Reads mixers with a recurrent state: gated delta nets, KDA, Mamba, lightning attention, short convolutions.
//!
//! Knows: the keys of recurrent mixers, and which layers have one. Knows nothing about softmax attention.

use super::Reader;
use crate::error::Result;
use crate::model::keys::brief;
use crate::model::mixer::{GatedDelta, Kda, Lightning, Mamba, Mamba2, Mixer, ShortConv};
use serde_json::Value;

impl Reader<'_> {
    /// Reads the recurrent mixer of layer `index`; `None` for an attention layer.
    pub(super) fn recurrent(&mut self, index: u64) -> Result<Option<Mixer>> {
        let keys = self.keys;
        if self.model_type == "minicpm_sala" {
            return self.sala(index);
        }
        let listed = keys.list("layer_types", self.layers)?;
        if self.model_type == "solar_open2" && listed.is_none() {
            return if self.solar_attends(index)? { Ok(None) } else { self.kda().map(Some) };
        }
        let kda = keys.object("linear_attn_config");
        if let Some(linear) = kda.filter(|_| listed.is_none()) {
            let layers = linear.numbers("kda_layers")?.ok_or_else(|| {
                linear.bad("linear_attn_config.kda_layers", "missing", "a list of layers from 1")
            })?;
            // The list numbers layers from 1.
            return Ok(if layers.contains(&(index + 1)) { Some(self.kda()?) } else { None });
        }
        if let Some(list) = keys.list("attn_type_list", self.layers)? {
            // In the list 1 means softmax attention and 0 lightning attention.
            return match list[index as usize].as_u64() {
                Some(1) => Ok(None),
                Some(0) => Ok(Some(self.lightning()?)),
                _ => Err(keys.bad("attn_type_list", brief(&list[index as usize]), "0, 1")),
            };
        }
        if let Some(group) = keys.count(&["layer_group_size"])? {
            // The last layer of each full group has softmax attention, and so have the layers after the last full
            // group where no list, as transformers saves it, says otherwise.
            let attends = match listed {
                Some(kinds) => kinds[index as usize].as_str() == Some("full_attention"),
                None => (index + 1).is_multiple_of(group) || index >= self.layers / group * group,
            };
            return if attends { Ok(None) } else { self.grouped_linear().map(Some) };
        }
        match self.model_type {
            "mamba2" => return Ok(Some(Mixer::Mamba2(self.mamba2()?))),
            "mamba" | "falcon_mamba" => return Ok(Some(Mixer::Mamba(self.mamba()?))),
            "jamba" => {
                let every = keys.required(&["attn_layer_period"])?;
                let attends = index % every == keys.count_or_zero(&["attn_layer_offset"])?;
                return Ok(if attends { None } else { Some(Mixer::Mamba(self.mamba()?)) });
            }
            "bamba" => {
                let attends = keys.numbers("attn_layer_indices")?.is_some_and(|l| l.contains(&index));
                return Ok(if attends { None } else { Some(Mixer::Mamba2(self.mamba2()?)) });
            }
            "lfm2" | "lfm2_moe" if keys.value("layer_types").is_none() => {
                let attends = keys.numbers("full_attn_idxs")?.is_none_or(|l| l.contains(&index));
                return Ok(if attends { None } else { Some(self.short_conv()?) });
            }
            _ => {}
        }
        let kind = listed.and_then(|t| t[index as usize].as_str());
        let delta = keys.value("linear_num_value_heads").is_some();
        match kind {
            Some("linear_attention") if kda.is_some() => Ok(Some(self.kda()?)),
            Some("linear_attention") if delta => Ok(Some(self.gated_delta()?)),
            Some("linear_attention") => Err(keys.bad(
                "linear_num_value_heads",
                "missing",
                "a gated delta net's dimensions: other linear attention is not modelled",
            )),
            Some("mamba") => Ok(Some(Mixer::Mamba2(self.mamba2()?))),
            Some("conv") => Ok(Some(self.short_conv()?)),
            Some(_) => Ok(None),
            None if delta => {
                let every = keys.count(&["full_attention_interval"])?.unwrap_or(4);
                Ok(if (index + 1).is_multiple_of(every) { None } else { Some(self.gated_delta()?) })
            }
            None => Ok(None),
        }
    }

    /// True if layer `index` of a Solar Open 2 has softmax attention: the layers of `gqa_layers`, else the first
    /// layer and then one layer after every `gqa_interval` recurrent ones.
    fn solar_attends(&self, index: u64) -> Result<bool> {
        Ok(match self.keys.numbers("gqa_layers")? {
            Some(layers) => layers.contains(&index),
            None => index.is_multiple_of(self.keys.count(&["gqa_interval"])?.unwrap_or(3) + 1),
        })
    }

    /// Bytes per element of the recurrent state: as the config states, else `default`, with an assumption that names
    /// `who`.
    fn state_element(&mut self, default: u64, who: &str) -> Result<u64> {
        let keys = self.keys;
        for key in ["mamba_ssm_cache_dtype", "mamba_ssm_dtype"] {
            match keys.text(key)? {
                Some("float32") => return Ok(4),
                Some("bfloat16" | "float16") => return Ok(2),
                Some("auto") | None => {}
                Some(other) => return Err(keys.bad(key, other, "float32, bfloat16, float16, auto")),
            }
        }
        self.assumptions.push(format!("the state of {who} is taken to be of {default} bytes an element"));
        Ok(default)
    }

    fn gated_delta(&mut self) -> Result<Mixer> {
        let keys = self.keys;
        let key_heads = keys.required(&["linear_num_key_heads"])?;
        let value_heads = keys.required(&["linear_num_value_heads"])?;
        if !value_heads.is_multiple_of(key_heads) {
            let accepted = format!("a multiple of {key_heads} key heads");
            return Err(keys.bad("linear_num_value_heads", value_heads, accepted));
        }
        Ok(Mixer::GatedDelta(GatedDelta {
            key_heads,
            value_heads,
            key_dim: keys.required(&["linear_key_head_dim"])?,
            value_dim: keys.required(&["linear_value_head_dim"])?,
            conv: keys.required(&["linear_conv_kernel_dim"])?,
            state_element: self.state_element(4, "gated delta nets")?,
            conv_element: self.element()?,
        }))
    }

    /// Reads the linear attention of Ring-linear and Ling 2.5 (lightning attention) or of Ling 3.0 (KDA with short
    /// convolutions, and with the heads and width of the softmax layers). Gate and decay are full matrices
    /// (`no_kda_lora`, which vLLM requires).
    fn grouped_linear(&self) -> Result<Mixer> {
        let keys = self.keys;
        let Some(conv) = keys.count(&["short_conv_kernel_size"])? else { return self.lightning() };
        let full = keys.flag("no_kda_lora", true)?;
        let (heads, head_dim) = self.linear_heads()?;
        Ok(Mixer::Kda(Kda {
            heads,
            head_dim,
            conv,
            full_gate: full,
            full_decay: full,
            conv_element: self.element()?,
        }))
    }

    fn lightning(&self) -> Result<Mixer> {
        let (heads, head_dim) = self.linear_heads()?;
        Ok(Mixer::Lightning(Lightning { heads, head_dim, qk_norm: 0, output_gate: true, output_norm: true }))
    }

    /// Reads the lightning attention of MiniCPM-SALA; `None` for its sparse layers (`minicpm4`).
    fn sala(&self, index: u64) -> Result<Option<Mixer>> {
        let keys = self.keys;
        let Some(kinds) = keys.list("mixer_types", self.layers)? else {
            let accepted = format!("{} of minicpm4 and lightning-attn, one a layer", self.layers);
            return Err(keys.bad("mixer_types", "not a list", accepted));
        };
        match kinds[index as usize].as_str() {
            Some("minicpm4") => return Ok(None),
            Some("lightning-attn") => {}
            _ => {
                return Err(keys.bad(
                    "mixer_types",
                    brief(&kinds[index as usize]),
                    "minicpm4, lightning-attn",
                ));
            }
        }
        let (heads, width) = self.linear_heads()?;
        let heads = keys.count(&["lightning_nh"])?.unwrap_or(heads);
        if let Some(kv) = keys.count(&["lightning_nkv"])?.filter(|kv| *kv != heads) {
            return Err(keys.bad("lightning_nkv", kv, format!("{heads}, as many as query heads")));
        }
        let head_dim = keys.count(&["lightning_head_dim"])?.unwrap_or(width);
        Ok(Some(Mixer::Lightning(Lightning {
            heads,
            head_dim,
            qk_norm: if keys.flag("qk_norm", true)? { 2 * head_dim } else { 0 },
            output_gate: keys.flag("use_output_gate", false)?,
            output_norm: keys.flag("use_output_norm", false)?,
        })))
    }

    /// Number and width of heads of linear attention, from the keys of softmax attention.
    fn linear_heads(&self) -> Result<(u64, u64)> {
        let heads = self.keys.required(&["num_attention_heads"])?;
        let width = self.keys.count(&["head_dim"])?;
        Ok((heads, width.unwrap_or((self.hidden / heads).max(1))))
    }

    fn kda(&mut self) -> Result<Mixer> {
        let Some(linear) = self.keys.object("linear_attn_config") else {
            return Err(self.keys.bad("linear_attn_config", "missing", "an object"));
        };
        Ok(Mixer::Kda(Kda {
            heads: linear.required(&["num_heads"])?,
            head_dim: linear.required(&["head_dim"])?,
            conv: linear.required(&["short_conv_kernel_size"])?,
            full_gate: linear.flag("use_full_rank_gate", false)?,
            full_decay: false,
            conv_element: self.element()?,
        }))
    }

    /// Reads Mamba-2 under the keys of Nemotron-H, of Bamba and related types, or of `mamba2` itself.
    pub(super) fn mamba2(&mut self) -> Result<Mamba2> {
        let keys = self.keys;
        let heads = keys.required(&["mamba_num_heads", "mamba_n_heads", "num_heads"])?;
        let inner = match keys.count(&["mamba_d_ssm"])? {
            Some(inner) => inner,
            None => self.hidden * keys.count(&["mamba_expand", "expand"])?.unwrap_or(2),
        };
        let named = ["mamba_head_dim", "mamba_d_head"];
        let named = named.iter().find(|k| keys.value(k).is_some_and(Value::is_number)).copied();
        let head_dim = match named.or(Some("head_dim").filter(|_| self.model_type == "mamba2")) {
            Some(key) => keys.required(&[key])?,
            None if inner.is_multiple_of(heads) => inner / heads,
            None => return Err(keys.bad("mamba_n_heads", heads, format!("a divisor of {inner} channels"))),
        };
        let element = self.element()?;
        Ok(Mamba2 {
            heads,
            head_dim,
            state: keys.required(&["ssm_state_size", "mamba_d_state", "state_size"])?,
            groups: keys.count(&["n_groups", "mamba_n_groups"])?.unwrap_or(1),
            conv: keys.count(&["conv_kernel", "mamba_d_conv"])?.unwrap_or(4),
            proj_bias: keys.flag("mamba_proj_bias", false)? || keys.flag("use_bias", false)?,
            conv_bias: keys.flag("use_conv_bias", true)? && keys.flag("mamba_conv_bias", true)?,
            norm: self.model_type != "falcon_h1" || keys.flag("mamba_rms_norm", false)?,
            state_element: self.state_element(element, "Mamba-2")?,
            conv_element: element,
        })
    }

    fn mamba(&mut self) -> Result<Mamba> {
        let keys = self.keys;
        let expand = keys.count(&["mamba_expand", "expand"])?.unwrap_or(2);
        let rank = ["mamba_dt_rank", "time_step_rank"]
            .into_iter()
            .find(|k| keys.value(k).is_some_and(Value::is_number));
        let inner = match self.model_type {
            "jamba" => expand * self.hidden,
            _ => keys.count(&["intermediate_size"])?.unwrap_or(expand * self.hidden),
        };
        Ok(Mamba {
            inner,
            state: keys.count(&["mamba_d_state", "state_size"])?.unwrap_or(16),
            conv: keys.count(&["mamba_d_conv", "conv_kernel"])?.unwrap_or(4),
            rank: match rank {
                Some(key) => keys.required(&[key])?,
                None => self.hidden.div_ceil(16),
            },
            norms: self.model_type == "jamba",
            proj_bias: keys.flag("mamba_proj_bias", false)? || keys.flag("use_bias", false)?,
            conv_bias: keys.flag("use_conv_bias", true)? && keys.flag("mamba_conv_bias", true)?,
            element: self.element()?,
        })
    }

    fn short_conv(&mut self) -> Result<Mixer> {
        Ok(Mixer::ShortConv(ShortConv {
            channels: self.hidden,
            taps: self.keys.required(&["conv_L_cache"])?,
            bias: self.keys.flag("conv_bias", false)?,
            element: self.element()?,
        }))
    }
}
