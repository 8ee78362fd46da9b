//! The work of mixers with a state: the same for every token, however long the context.
//!
//! Counted is the recurrence, the least arithmetic; kernels that take a prompt in chunks spend more to use matrix units.

use super::{Family, Pass, Work};
use crate::deployment::Block;
use crate::units::{Bytes, Flops};

impl Pass<'_> {
    /// The state's operations for each token, and its bytes.
    pub(super) fn recurrent(&self, block: &Block) -> Work {
        let mut work = self.work("linear_attention", Family::Attention, Flops::ZERO, Bytes::ZERO);
        if let Some(state) = block.mixer.state() {
            let parts = u128::from(self.state_parts(state.heads));
            work.flops = Flops(state.flops.div_ceil(parts) * u128::from(self.tokens));
        }
        work.kv_bytes = self.state_bytes(block);
        work
    }

    /// State bytes on this rank: written once a pass and sequence, and read unless the sequence begins with it.
    pub(super) fn state_bytes(&self, block: &Block) -> Bytes {
        let Some(state) = block.mixer.state() else { return Bytes::ZERO };
        let share = state.bytes.div_ceil(u128::from(self.state_parts(state.heads)));
        let share = Bytes(u64::try_from(share).unwrap_or(u64::MAX));
        let times = |new: u64, context: u64| if context > new { 2 } else { 1 };
        self.rank.groups.iter().map(|s| share * times(s.new, s.context) * s.count).sum()
    }

    fn state_parts(&self, heads: u64) -> u64 {
        let tp = self.deployment.parallelism.tp;
        if self.deployment.ideal { tp } else { tp.min(heads) }.max(1)
    }
}
