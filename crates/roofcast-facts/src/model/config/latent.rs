//! Reads attention over compressed vectors: MLA with its gates and indexers, and DeepSeek-V4's windows and compressed
//! entries.
//!
//! Knows: the keys of latent and compressed attention. Knows nothing about other mixers.

use super::Reader;
use crate::error::Result;
use crate::model::keys::{Keys, brief};
use crate::model::mixer::{Compressed, Gate, Indexer, Latent, Mixer};

impl Reader<'_> {
    /// Reads multi-head latent attention (MLA).
    pub(super) fn latent(&mut self, index: u64) -> Result<Mixer> {
        let keys = self.keys;
        let q_lora_rank = keys.count(&["q_lora_rank"])?;
        Ok(Mixer::Latent(Latent {
            heads: keys.required(&["num_attention_heads"])?,
            q_lora_rank,
            kv_lora_rank: keys.required(&["kv_lora_rank"])?,
            qk_nope_head_dim: keys.required(&["qk_nope_head_dim"])?,
            qk_rope_head_dim: keys.required_or_zero("qk_rope_head_dim")?,
            v_head_dim: keys.required(&["v_head_dim"])?,
            gate: self.latent_gate()?,
            sinks: self.is_hy4() && keys.flag("learnable_sink", true)?,
            indexer: match keys.value("index_topk") {
                Some(_) => Some(self.indexer(index, q_lora_rank)?),
                None => None,
            },
            scaled_rows: false,
        }))
    }

    /// Reads the gate of latent attention: Kimi K3 has a flag, Ling 3.0 a word, Hy4 both, with a gate by default
    /// (`configuration_hy_v4.py` of vLLM 0.32).
    fn latent_gate(&self) -> Result<Gate> {
        let keys = self.keys;
        let (named, default) = match self.is_hy4() {
            true if keys.flag("gated_mla", true)? => ("gating_type", Gate::Elements),
            true => return Ok(Gate::None),
            false if keys.flag("mla_use_output_gate", false)? => return Ok(Gate::Elements),
            false => ("gated_attention_proj_granularity_type", Gate::None),
        };
        match keys.text(named)? {
            None => Ok(default),
            Some("elementwise" | "element_wise") => Ok(Gate::Elements),
            Some("headwise" | "head_wise") => Ok(Gate::Heads),
            Some(other) => Err(keys.bad(named, other, "elementwise, headwise")),
        }
    }

    /// True for Hy4, with or without its vision tower.
    pub(super) fn is_hy4(&self) -> bool {
        self.model_type.starts_with("hy_v4")
    }

    fn indexer(&self, index: u64, query_rank: Option<u64>) -> Result<Indexer> {
        let keys = self.keys;
        let scores = match keys.list("indexer_types", self.layers)? {
            Some(types) => match types[index as usize].as_str() {
                Some("full") => true,
                Some("shared") if index > 0 => false,
                _ => return Err(keys.bad("indexer_types", brief(&types[index as usize]), "full, shared")),
            },
            // Hy4's default: layer 0 and every fourth layer from layer 1 on.
            None => !self.is_hy4() || index == 0 || index % 4 == 1,
        };
        Ok(Indexer {
            heads: keys.required(&["index_n_heads"])?,
            head_dim: keys.required(&["index_head_dim"])?,
            topk: keys.required(&["index_topk"])?,
            query_rank: query_rank.unwrap_or(self.hidden),
            pool: keys.count(&["index_kpool"])?.unwrap_or(1),
            scores,
        })
    }

    /// Reads DeepSeek-V4's attention; a compression ratio of 0 means a window alone.
    pub(super) fn compressed(&mut self, index: u64) -> Result<Mixer> {
        let keys = self.keys;
        let ratio = ratio(&keys, index, self.layers)?;
        let heads = keys.required(&["num_attention_heads"])?;
        let head_dim = keys.required(&["head_dim"])?;
        let o_groups = keys.required(&["o_groups"])?;
        if !heads.is_multiple_of(o_groups) {
            return Err(keys.bad("o_groups", o_groups, format!("a divisor of {heads} query heads")));
        }
        let q_lora_rank = keys.required(&["q_lora_rank"])?;
        let sparse = ratio.is_some_and(Compressed::is_sparse);
        Ok(Mixer::Compressed(Compressed {
            heads,
            head_dim,
            q_lora_rank,
            o_groups,
            o_lora_rank: keys.required(&["o_lora_rank"])?,
            window: keys.required(&["sliding_window"])?,
            ratio,
            indexer: if sparse { Some(self.indexer(index, Some(q_lora_rank))?) } else { None },
        }))
    }
}

/// Compression ratio of layer `index`; `None` for 0, which means no compression.
fn ratio(keys: &Keys, index: u64, layers: u64) -> Result<Option<u64>> {
    let Some(ratios) = keys.list("compress_ratios", layers)? else {
        return Err(keys.bad("compress_ratios", "not a list", format!("{layers} ratios, one a layer")));
    };
    let listed = &ratios[index as usize];
    match listed.as_u64() {
        Some(0) => Ok(None),
        Some(ratio) if ratio <= 1 << 16 => Ok(Some(ratio)),
        _ => Err(keys.bad("compress_ratios", brief(listed), "0 to 65536")),
    }
}
