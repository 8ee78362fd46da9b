//! Equal steps under vLLM's host tier, and the names of contents that the tier refers to.
//!
//! Knows: when the connector has nothing to decide until a copy ends. Knows nothing about device blocks or time.

use super::storage::Storage;
use super::{Table, Tier};
use crate::kv_cache::names::Name;
use crate::scheduler::vllm::{RequestId, Transfers};
use std::ops::Range;

impl Tier {
    /// Names of the contents in any tier, and of those in transfer.
    pub(in crate::scheduler::vllm) fn names(&self) -> impl Iterator<Item = Range<Name>> {
        let copied = self.jobs.values().flat_map(|job| job.contents.iter().cloned());
        let promoted = self.states.iter().flat_map(|(_, state)| state.promoted.ranges());
        let stored = self.storage.iter().flat_map(Storage::names);
        self.host.names().chain(copied).chain(promoted).chain(stored)
    }

    /// True if the connector decides nothing in steps that equal one with these `transfers`: refused chunks are refused
    /// again, and nothing is to be freed or flushed.
    pub(in crate::scheduler::vllm) fn is_steady(&self, transfers: &Transfers) -> bool {
        let asks = self.storage.is_some() && !transfers.later.is_empty();
        let counts = self.config.store_threshold >= 2 && !transfers.refused.is_empty();
        self.fences.is_empty() && self.frees.is_empty() && self.ended.is_empty() && !asks && !counts
    }

    /// Number of a request's tokens whose last chunk is stored next, if chunks of outputs are stored.
    pub(in crate::scheduler::vllm) fn next_store(&self, id: RequestId, block: u64) -> Option<u64> {
        let state = self.states.get(&id).filter(|_| !self.config.offload_prompt_only)?;
        Some((state.next as u64 + 1) * self.config.blocks_per_chunk as u64 * block)
    }

    /// Records `steps` steps of decodes that have been applied, with the blocks of each request.
    pub(in crate::scheduler::vllm) fn pass<'a>(
        &mut self,
        steps: u64,
        running: impl Iterator<Item = (RequestId, &'a Vec<Table>)>,
    ) {
        self.decided += steps;
        self.applied += steps;
        for (id, tables) in running {
            let Some(state) = self.states.get_mut(&id) else { continue };
            state.last_step = self.decided;
            state.seen = tables[0].blocks.len();
        }
    }
}
