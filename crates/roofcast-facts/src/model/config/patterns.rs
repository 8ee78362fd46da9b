//! Reads models that describe each layer separately: Nemotron-H's patterns and NVIDIA's blocks from architecture
//! search.
//!
//! Knows: the letters of patterns and the keys of blocks. Knows nothing about other models.
//!
//! Sources: `modeling_nemotron_h.py` (M Mamba-2, * attention, - MLP, E experts; one norm a layer) and
//! `modeling_decilm.py` of Llama-3.3-Nemotron-Super (a block's attention or FFN may be absent or be one matrix).

use super::Reader;
use crate::error::Result;
use crate::model::keys::{Keys, brief};
use crate::model::mixer::{Attention, Mixer};
use crate::model::tensor::{OperatorKind, Split, Tensor};
use crate::model::{Dense, Ffn, Layer};

/// Number of layers in a pattern, if `num_hidden_layers` is missing.
pub(super) fn length(keys: &Keys) -> Option<u64> {
    let list = ["layers_block_type", "block_configs"].iter().find_map(|k| keys.value(k)?.as_array());
    let length = match (keys.value("hybrid_override_pattern").and_then(|p| p.as_str()), list) {
        (Some(pattern), _) => pattern.len(),
        (None, Some(list)) => list.len(),
        (None, None) => return None,
    };
    u64::try_from(length).ok().filter(|n| *n > 0)
}

impl Reader<'_> {
    /// Reads layer `index` of a model with patterns; `None` for other models.
    pub(super) fn patterned(&mut self, index: u64) -> Result<Option<Layer>> {
        if self.keys.value("block_configs").is_some() {
            return self.block(index).map(Some);
        }
        let Some(kind) = self.kind(index)? else { return Ok(None) };
        let mut layer = Layer {
            mixer: Mixer::None,
            ffn: Ffn::None,
            norms: self.hidden,
            parallel: false,
            extra: Vec::new(),
        };
        match kind {
            "mamba" => layer.mixer = Mixer::Mamba2(self.mamba2()?),
            "attention" => layer.mixer = Mixer::Attention(self.attention(index)?),
            "mlp" => layer.ffn = Ffn::Dense(self.dense(index)?),
            _ => layer.ffn = self.required_experts()?,
        }
        Ok(Some(layer))
    }

    /// Kind of layer `index` in a Nemotron-H.
    fn kind(&self, index: u64) -> Result<Option<&'static str>> {
        let keys = self.keys;
        if let Some(pattern) = keys.text("hybrid_override_pattern")? {
            let length = pattern.len() as u64;
            if length != self.layers {
                let accepted = format!("{}, one letter a layer", self.layers);
                return Err(keys.bad("hybrid_override_pattern", format!("{length} letters"), accepted));
            }
            return match pattern.as_bytes().get(index as usize) {
                Some(b'M') => Ok(Some("mamba")),
                Some(b'*') => Ok(Some("attention")),
                Some(b'-') => Ok(Some("mlp")),
                Some(b'E') => Ok(Some("moe")),
                _ => Err(keys.bad("hybrid_override_pattern", format!("{pattern:.80}"), "M, *, - and E")),
            };
        }
        // Jamba and Bamba use this key for their mixers alone.
        if self.model_type == "jamba" || self.model_type == "bamba" {
            return Ok(None);
        }
        let Some(list) = keys.list("layers_block_type", self.layers)? else { return Ok(None) };
        let listed = &list[index as usize];
        let known = ["mamba", "attention", "mlp", "moe"];
        match known.into_iter().find(|k| listed.as_str() == Some(k)) {
            Some(kind) => Ok(Some(kind)),
            None => Err(keys.bad("layers_block_type", brief(listed), known.join(", "))),
        }
    }

    /// Reads layer `index` of a model from architecture search.
    fn block(&mut self, index: u64) -> Result<Layer> {
        let keys = self.keys;
        let Some(blocks) = keys.list("block_configs", self.layers)? else {
            return Err(keys.bad("block_configs", "not a list", "an object a layer"));
        };
        let Some(block) = keys.within(&blocks[index as usize]) else {
            return Err(keys.bad("block_configs", brief(&blocks[index as usize]), "an object a layer"));
        };
        let part = |name: &str| {
            block
                .object(name)
                .ok_or_else(|| keys.bad(&format!("block_configs[{index}].{name}"), "missing", "an object"))
        };
        let attention = part("attention")?;
        let ffn = part("ffn")?;
        let mut layer =
            Layer { mixer: Mixer::None, ffn: Ffn::None, norms: 0, parallel: false, extra: Vec::new() };
        if !attention.flag("no_op", false)? {
            layer.norms += self.hidden;
            match attention.flag("replace_with_linear", false)? {
                true => layer.extra.push(self.square("self_attn.linear_attn")),
                false => layer.mixer = Mixer::Attention(self.block_attention(&attention)?),
            }
        }
        if !ffn.flag("no_op", false)? {
            layer.norms += self.hidden;
            match ffn.flag("replace_with_linear", false)? {
                true => layer.extra.push(self.square("mlp.linear_mlp")),
                false => layer.ffn = Ffn::Dense(self.block_dense(&ffn)?),
            }
        }
        Ok(layer)
    }

    /// One square matrix in place of attention or FFN.
    fn square(&self, name: &'static str) -> Tensor {
        Tensor::linear(name, OperatorKind::Linear, self.hidden, self.hidden, Split::Replicated)
    }

    fn block_attention(&mut self, block: &Keys) -> Result<Attention> {
        let keys = self.keys;
        let heads = keys.required(&["num_attention_heads"])?;
        let kv_heads = match block.count(&["num_key_value_heads"])? {
            Some(kv_heads) => kv_heads,
            None => heads / block.required(&["n_heads_in_group"])?.min(heads),
        };
        if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
            return Err(keys.bad("n_heads_in_group", kv_heads, format!("a divisor of {heads} query heads")));
        }
        let head_dim = match keys.count(&["head_dim"])? {
            Some(width) => width,
            None => (self.hidden / heads).max(1),
        };
        let (qkv_bias, o_bias) = self.attention_biases()?;
        let window = block.count(&["window_length"])?;
        Ok(Attention { window, qkv_bias, o_bias, ..Attention::new(heads, kv_heads, head_dim) })
    }

    /// Reads the MLP of a block: `ffn_mult` × hidden × 2/3 wide, rounded up to a multiple of 256.
    fn block_dense(&self, block: &Keys) -> Result<Dense> {
        let intermediate = match block.count(&["intermediate_size"])? {
            Some(width) => width,
            None => {
                let mult = block.value("ffn_mult").and_then(serde_json::Value::as_f64);
                let mult = mult.filter(|m| (0.0..=64.0).contains(m) && *m > 0.0).ok_or_else(|| {
                    block.bad("block_configs.ffn.ffn_mult", "missing or out of range", "above 0, at most 64")
                })?;
                ((2.0 * mult * self.hidden as f64 / 3.0) as u64).next_multiple_of(256)
            }
        };
        Ok(Dense { intermediate, gated: true, bias: self.keys.flag("mlp_bias", false)? })
    }
}
