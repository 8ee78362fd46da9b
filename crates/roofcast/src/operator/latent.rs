//! Latent attention's work: absorbed or expanded, whole or on an indexer's choice.

use super::{Family, Pass, Sequences, Work};
use crate::deployment::Block;
use crate::model::mixer::{Latent, causal_pairs};
use crate::precision::Dtype;
use crate::units::{Bytes, Flops};

impl Pass<'_> {
    /// Multi-head latent attention, absorbed or expanded, whichever has fewer FLOPs for each group of sequences.
    ///
    /// Absorbed: scores and values are taken on the latent itself, 2·heads·(2·rank + rope) a pair, and the up-projection
    /// is applied to the new tokens' queries and outputs. Expanded: 2·heads·(nope + rope + v) a pair, and the
    /// up-projection is applied to every token of the context.
    pub(super) fn latent(&self, l: &Latent, block: &Block, all: &mut Vec<Work>) {
        let Some(expand) = block.gemms.iter().find(|g| g.operator == "kv_b_proj") else { return };
        let p = self.deployment.parallelism;
        let heads = u128::from(l.heads.div_ceil(p.tp));
        let parts = if self.deployment.ideal { p.tp } else { 1 };
        let absorbed = 2 * heads * u128::from(2 * l.kv_lora_rank + l.qk_rope_head_dim);
        let expanded = 2 * heads * u128::from(l.qk_nope_head_dim + l.qk_rope_head_dim + l.v_head_dim);
        let mut attention = self.work("latent_attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        let mut projected = 0_u64;
        for s in &self.rank.groups {
            let pairs = causal_pairs(s.new, s.context, l.reach());
            let up = 2 * u128::from(expand.elements);
            let (absorb, expansion) =
                (absorbed * pairs + up * u128::from(s.new), expanded * pairs + up * u128::from(s.context));
            let (per_pair, rows) =
                if absorb <= expansion { (absorbed, s.new) } else { (expanded, s.context) };
            attention.flops += Flops(per_pair * pairs * u128::from(s.count));
            projected = projected.saturating_add(rows.saturating_mul(s.count));
            let seen = match (l.reach(), rows == s.new) {
                (Some(topk), true) => s.context.min(topk.saturating_add(s.new - s.new.min(1))),
                _ => s.context,
            };
            let elements = (u128::from(seen) * u128::from(l.cached())).div_ceil(u128::from(parts));
            let latents = self.deployment.kv.width.bytes(elements);
            attention.kv_bytes += (latents + self.table(s.context, seen)) * s.count;
        }
        all.push(self.gemm(expand, projected));
        all.push(attention);
        if let Some(indexer) = l.indexer.as_ref().filter(|i| i.scores) {
            let pairs = |s: &Sequences| causal_pairs(s.new, s.context, None);
            let bytes = |s: &Sequences| indexer.bytes(s.context);
            all.push(self.index(Dtype::Fp8, indexer.flops_per_pair(), &pairs, &bytes));
        }
    }
}
