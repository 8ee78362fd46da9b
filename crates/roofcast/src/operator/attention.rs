//! Grouped attention's work: pairs of queries and keys, and the cache that crosses the bus.

use super::{Family, Pass, Sequences, Work};
use crate::kv_cache::layout;
use crate::model::Attention;
use crate::model::mixer::causal_pairs;
use crate::precision::Dtype;
use crate::spec::KvLayout;
use crate::units::{Bytes, FlopRate, Flops};

impl Pass<'_> {
    /// Scores and weighted values: 2·heads·(d_qk + d_v) FLOPs a query-key pair. Each token that is seen crosses the bus
    /// once: old ones are read, new ones written. Where an index chooses, a decode reads no more than its blocks; of many
    /// new tokens the least is counted, as if their choices overlapped like windows.
    pub(super) fn attention(&self, a: &Attention, all: &mut Vec<Work>) {
        let tp = self.deployment.parallelism.tp;
        let heads = a.heads.div_ceil(tp);
        let width = self.deployment.kv.width;
        let kv_parts = self.deployment.kv_parts(a.kv_heads);
        let per_pair = 2 * u128::from(heads) * u128::from(a.head_dim + a.v_head_dim);
        let mut work = self.work("attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        for s in &self.rank.groups {
            work.flops += Flops(per_pair * a.pairs(s.new, s.context) * u128::from(s.count));
            let seen = a.seen(s.new, s.context);
            let elements =
                (u128::from(seen) * u128::from(a.kv_elements_per_token())).div_ceil(u128::from(kv_parts));
            work.kv_bytes += (width.bytes(elements) + self.table(s.context, seen)) * s.count;
        }
        work.group = a.heads.div_ceil(a.kv_heads.max(1)).max(1);
        all.push(work);
        if let Some(index) = &a.index {
            // The heads split like KV heads, the one key is whole everywhere.
            let per_pair = index.flops_per_pair().div_ceil(u128::from(tp.min(index.heads)));
            let pairs = |s: &Sequences| causal_pairs(s.new, s.context, None);
            all.push(self.index(self.deployment.base, per_pair, &pairs, &|s| index.bytes(s.context)));
        }
    }

    /// What finds the last `seen` of a sequence's `context` tokens, where it is counted. Every rank reads it.
    pub(super) fn table(&self, context: u64, seen: u64) -> Bytes {
        let engine = &self.deployment.engine;
        let bytes =
            |layout: KvLayout| layout.read(1, u128::from(layout::span(seen, context, engine.block_size)));
        Bytes(engine.kv_layout.map_or(0, bytes) as u64)
    }

    /// An indexer's scores: `per_pair` operations for each pair, every key read or written once. It computes in `dtype`
    /// where the chip has it.
    pub(super) fn index(
        &self,
        dtype: Dtype,
        per_pair: u128,
        pairs: &dyn Fn(&Sequences) -> u128,
        bytes: &dyn Fn(&Sequences) -> u128,
    ) -> Work {
        let mut work = self.work("indexer", Family::Indexer, Flops::ZERO, Bytes::ZERO);
        if let Some(rate) = self.deployment.accelerator.peak_flops.get(&dtype) {
            (work.dtype, work.rate) = (dtype, FlopRate(rate.0));
        }
        for s in &self.rank.groups {
            work.flops += Flops(per_pair * pairs(s) * u128::from(s.count));
            work.kv_bytes += Bytes(u64::try_from(bytes(s)).unwrap_or(u64::MAX)) * s.count;
        }
        work
    }
}
