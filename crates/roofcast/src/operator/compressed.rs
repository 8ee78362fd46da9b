//! The work of DeepSeek-V4's attention: the window, compressed entries, and the indexer that chooses among them.

use super::{Family, Pass, Sequences, Work};
use crate::deployment::Block;
use crate::model::mixer::Compressed;
use crate::precision::Dtype;
use crate::units::{Bytes, Flops};

impl Pass<'_> {
    /// 4·heads·width FLOPs a pair (keys are values); window and entries cross the bus once on every rank, the state that
    /// waits for its window is read and written.
    pub(super) fn compressed(&self, c: &Compressed, block: &Block, all: &mut Vec<Work>) {
        let tp = self.deployment.parallelism.tp;
        let parts = if self.deployment.ideal { tp } else { 1 };
        let per_pair = 4 * u128::from(c.heads.div_ceil(tp)) * u128::from(c.head_dim);
        let mut work = self.work("compressed_attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        for s in &self.rank.groups {
            work.flops += Flops(per_pair * c.pairs(s.new, s.context) * u128::from(s.count));
            let elements = c.read_elements(s.new, s.context).div_ceil(u128::from(parts));
            work.kv_bytes += self.deployment.kv.width.bytes(elements) * s.count;
        }
        work.kv_bytes += self.state_bytes(block);
        all.push(work);
        if let Some(indexer) = &c.indexer {
            let pairs = |s: &Sequences| c.scored_pairs(s.new, s.context);
            let bytes = |s: &Sequences| c.index_bytes(s.context);
            all.push(self.index(Dtype::Fp8, indexer.flops_per_pair(), &pairs, &bytes));
        }
    }
}
