//! Blocks that the current step allocates.
//!
//! Knows: for each block, the last step that allocated it. Knows nothing about requests.

use crate::kv_cache::paged::Block;

/// Blocks allocated in the current step.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken {
    /// For each block, the number of the last step that allocated it.
    steps: Vec<u64>,
    /// Number of the current step.
    now: u64,
}

impl Taken {
    /// Begins a new step.
    pub(super) fn begin(&mut self) {
        self.now += 1;
    }

    /// Adds blocks; places outside a sliding window have no block and are left out.
    pub(super) fn extend(&mut self, blocks: &[Block]) {
        for block in blocks.iter().filter(|block| **block != Block::MAX).map(|block| *block as usize) {
            if self.steps.len() <= block {
                self.steps.resize(block + 1, 0);
            }
            self.steps[block] = self.now;
        }
    }

    /// True if the current step allocates the block.
    pub(super) fn has(&self, block: Block) -> bool {
        self.steps.get(block as usize) == Some(&self.now)
    }
}
