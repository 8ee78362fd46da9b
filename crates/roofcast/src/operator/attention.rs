//! The work of token mixers: attention in its kinds, and recurrent states.

use super::{Family, Pass, Work};
use crate::deployment::Block;
use crate::model::mixer::{Attention, Compressed, Indexer, Latent};
use crate::units::{Bytes, Flops};

impl Pass<'_> {
    /// Scores and weighted values: 2·heads·(d_qk + d_v) FLOPs a query-key pair. Each token that is seen crosses the bus
    /// once: old ones are read, new ones written.
    pub(super) fn attention(&self, a: &Attention, all: &mut Vec<Work>) {
        let tp = self.deployment.parallelism.tp;
        let heads = a.heads.div_ceil(tp);
        let width = self.deployment.kv.width;
        let kv_parts = self.deployment.kv_parts(a.kv_heads);
        let per_pair = 2 * u128::from(heads) * u128::from(a.head_dim + a.v_head_dim);
        // A layer that shares an earlier one's cache reads it all the same.
        let per_token = a.kv_heads * (a.head_dim + a.v_head_dim);
        let mut work = self.work("attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        for s in &self.rank.groups {
            work.flops += Flops(per_pair * a.reach.pairs(s.new, s.context) * u128::from(s.count));
            let elements = u128::from(a.reach.seen(s.new, s.context)) * u128::from(per_token);
            work.kv_bytes += width.bytes(elements.div_ceil(u128::from(kv_parts))) * s.count;
        }
        all.push(work);
        if let Some(indexer) = &a.indexer {
            all.push(
                self.indexer(indexer, |context| width.bytes(u128::from(context) * u128::from(indexer.dim))),
            );
        }
    }

    /// Multi-head latent attention, absorbed or expanded, whichever has fewer FLOPs for each group of sequences.
    ///
    /// Absorbed: scores and values are taken on the latent itself, 2·heads·(2·rank + rope) a pair, and the up-projection
    /// is applied to the new tokens' queries and outputs. Expanded: 2·heads·(nope + rope + v) a pair, and the
    /// up-projection is applied to every token that is seen.
    pub(super) fn latent(&self, l: &Latent, block: &Block, all: &mut Vec<Work>) {
        let Some(expand) = block.gemms.iter().find(|g| g.operator == "kv_b_proj") else { return };
        let p = self.deployment.parallelism;
        let heads = u128::from(l.heads.div_ceil(p.tp));
        let parts = if self.deployment.ideal { p.tp } else { 1 };
        let absorbed = 2 * heads * u128::from(2 * l.kv_lora_rank + l.qk_rope_head_dim);
        let expanded = 2 * heads * u128::from(l.qk_nope_head_dim + l.qk_rope_head_dim + l.v_head_dim);
        let mut attention = self.work("attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        let mut projected = 0_u64;
        for s in &self.rank.groups {
            let pairs = l.reach.pairs(s.new, s.context);
            let seen = l.reach.seen(s.new, s.context);
            let up = 2 * u128::from(expand.elements);
            let (absorb, expansion) =
                (absorbed * pairs + up * u128::from(s.new), expanded * pairs + up * u128::from(seen));
            let (per_pair, rows) = if absorb <= expansion { (absorbed, s.new) } else { (expanded, seen) };
            attention.flops += Flops(per_pair * pairs * u128::from(s.count));
            projected = projected.saturating_add(rows.saturating_mul(s.count));
            let elements = (u128::from(seen) * u128::from(l.cached())).div_ceil(u128::from(parts));
            attention.kv_bytes += self.deployment.kv.width.bytes(elements) * s.count;
        }
        all.push(self.gemm(expand, projected));
        all.push(attention);
        if let Some(indexer) = l.indexer.as_ref().filter(|i| i.own) {
            all.push(self.indexer(indexer, |context| Bytes(indexer.bytes(context))));
        }
    }

    /// Window and chosen blocks, keys and values one vector: 4·heads·width FLOPs a pair.
    pub(super) fn compressed(&self, c: &Compressed, all: &mut Vec<Work>) {
        let heads = u128::from(c.heads.div_ceil(self.deployment.parallelism.tp));
        let mut work = self.work("attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        let mut index = self.work("indexer", Family::Attention, Flops::ZERO, Bytes::ZERO);
        for s in &self.rank.groups {
            work.flops +=
                Flops(4 * heads * u128::from(c.head_dim) * c.pairs(s.new, s.context) * u128::from(s.count));
            let elements = u128::from(c.seen(s.new, s.context)) * u128::from(c.head_dim);
            work.kv_bytes += self.deployment.kv.width.bytes(elements) * s.count;
            if let Some([heads, dim, _]) = c.index {
                let scored = u128::from(c.blocks(s.context)) * u128::from(s.new);
                index.flops += Flops(2 * u128::from(heads) * u128::from(dim) * scored * u128::from(s.count));
                index.kv_bytes += Bytes(c.indexer_bytes(s.context)) * s.count;
            }
        }
        all.push(work);
        if c.index.is_some() {
            all.push(index);
        }
    }

    /// Scores of all queries against all keys of the context, of which `bytes` are read.
    fn indexer(&self, indexer: &Indexer, bytes: impl Fn(u64) -> Bytes) -> Work {
        let mut work = self.work("indexer", Family::Attention, Flops::ZERO, Bytes::ZERO);
        for s in &self.rank.groups {
            let pairs = crate::model::mixer::attention::causal_pairs(s.new, s.context, None);
            work.flops += Flops(u128::from(indexer.flops_per_pair()) * pairs * u128::from(s.count));
            work.kv_bytes += bytes(s.context) * s.count;
        }
        work
    }

    /// A recurrent state: FLOPs per token; every sequence's state is read and written once a pass.
    pub(super) fn recurrent(&self, flops_per_token: u64, state_bytes: u64, block: &Block) -> Work {
        let tp = self.deployment.parallelism.tp;
        let parts = if self.deployment.ideal { tp } else { block.mixer.kv_parts(tp) };
        let flops = Flops(u128::from(flops_per_token.div_ceil(parts)) * u128::from(self.tokens));
        let mut work = self.work("recurrence", Family::Attention, flops, Bytes::ZERO);
        work.kv_bytes = Bytes(2 * state_bytes.div_ceil(parts)) * self.sampled;
        work
    }
}
