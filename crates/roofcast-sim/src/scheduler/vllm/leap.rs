//! Equal decisions: steps in which every running request decodes one token, and nothing else happens.
//!
//! Knows: whether the next decision equals the last one, for how many steps, and the blocks that these steps allocate,
//! in the order of single steps. A request that waits for blocks would be decided anew if a block that it found were
//! evicted, so that no run of equal steps passes that eviction. Knows nothing about time: the driver bounds the run.

use super::{RequestId, Scheduler, Step};
use crate::kv_cache::paged::Block;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Memory of the last decision.
#[derive(Debug, Clone, Default)]
pub(super) struct Steady {
    /// True if the last decision only continued decodes, and nothing has happened that may change the next one.
    holds: bool,
    /// True if the last decision only let every running request verify its drafts, and nothing has happened that may
    /// change the next one but the drafts.
    pub(super) verifies: bool,
    /// Number of tokens of the last decision.
    pub(super) tokens: u64,
    /// True if the decision skipped a request because tokens from before its preemption are in flight.
    pub(super) awaits_tokens: bool,
    /// Waiting requests that the decision considered, with the number of their cached blocks.
    pub(super) considered: Vec<(RequestId, usize)>,
}

impl Steady {
    /// Begins a decision.
    pub(super) fn begin(&mut self) {
        self.disturb();
        self.awaits_tokens = false;
        self.considered.clear();
    }

    /// Records an event that may change the next decision.
    pub(super) fn disturb(&mut self) {
        (self.holds, self.verifies) = (false, false);
    }
}

impl Scheduler {
    /// Records whether the decision `step` only continues decodes.
    pub(super) fn note_steady(&mut self, step: &Step) {
        let Step { new, resumed, preempted, transfers, .. } = step;
        let alone = new.is_empty() && resumed.is_empty() && preempted.is_empty();
        let all = !step.work.is_empty() && step.work.len() == self.running.len();
        let copies = !transfers.loads.is_empty()
            || !transfers.stores.is_empty()
            || !transfers.evicted.is_empty()
            || !transfers.flush.is_empty()
            || transfers.asked;
        let decodes = || step.work.iter().all(|w| w.decodes && w.samples && w.new == 1 + w.drafts);
        let leaps =
            self.has_equal_steps() && self.tier.as_ref().is_none_or(|tier| tier.is_steady(&step.transfers));
        if !(alone && all && !copies && !self.steady.awaits_tokens && leaps && decodes()) {
            return;
        }
        self.steady.tokens = step.work.iter().map(|work| work.new).sum();
        self.steady.verifies = self.config.num_speculative_tokens > 0;
        self.steady.holds = !self.steady.verifies;
    }

    /// True if the settings allow equal steps.
    pub(super) fn has_equal_steps(&self) -> bool {
        self.config.windows == [None] && !self.pool.is_watched()
    }

    /// Number of equal decisions that follow the last one if no request arrives, no copy ends, and blocks suffice.
    pub(crate) fn steady(&self) -> u64 {
        if !self.steady.holds {
            return 0;
        }
        let left = |id: &RequestId| {
            let r = &self.requests[*id];
            let tokens = r.output_len.saturating_sub(r.generated + 1);
            let room = self.config.max_model_len.saturating_sub(r.computed + 2);
            let stored = self.tier.as_ref().and_then(|tier| tier.next_store(*id, self.config.block_size));
            // A step that completes a chunk stores it.
            let chunk = stored.map_or(u64::MAX, |end| end.saturating_sub(r.computed.min(r.known()) + 1));
            if r.output_tokens.is_some() { 0 } else { tokens.min(room).min(chunk) }
        };
        let ends = self.running.iter().map(left).min().unwrap_or(0);
        ends.min(self.interval.equal_steps(!self.waiting.is_empty()))
    }

    /// Number of computed tokens of each running request, in order.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = u64> {
        self.running.iter().map(|id| self.requests[*id].computed)
    }

    /// Takes up to `steps` equal steps, decisions and results, and returns their number.
    pub(crate) fn leap(&mut self, steps: u64) -> u64 {
        let steps = self.grow_all(steps);
        self.steady.disturb();
        if steps == 0 {
            return 0;
        }
        self.interval.pass(steps, !self.waiting.is_empty());
        for at in 0..self.running.len() {
            let id = self.running[at];
            let r = &mut self.requests[id];
            r.computed += steps;
            r.push_output(steps);
            self.cache_full_blocks(id, self.requests[id].computed);
        }
        if let Some(tier) = &mut self.tier {
            tier.pass(steps, self.running.iter().map(|id| (*id, &self.requests[*id].tables)));
        }
        steps
    }

    /// Allocates the blocks of up to `steps` equal steps in their order; returns the number of steps that have blocks.
    fn grow_all(&mut self, steps: u64) -> u64 {
        let block = self.config.block_size;
        let last_hits = self.last_found();
        // The next step in which each running request needs a block.
        let next = |(at, id): (usize, &RequestId)| {
            let r = &self.requests[*id];
            Reverse((r.tables[0].blocks.len() as u64 * block + 1 - r.computed, at))
        };
        let mut needs: BinaryHeap<_> = self.running.iter().enumerate().map(next).collect();
        let mut together = Vec::new();
        while let Some(&Reverse((step, _))) = needs.peek().filter(|Reverse((step, _))| *step <= steps) {
            while let Some(&Reverse((_, at))) = needs.peek().filter(|Reverse((other, _))| *other == step) {
                needs.pop();
                together.push(at);
            }
            let evicts = || self.pool.next_free(together.len()).any(|block| last_hits.contains(&block));
            if (together.len() as u64) > self.pool.free() || !last_hits.is_empty() && evicts() {
                return step - 1;
            }
            for at in together.drain(..) {
                let table = &mut self.requests[self.running[at]].tables[0];
                self.pool.allocate(1, &mut table.blocks);
                self.cover(self.running[at]);
                needs.push(Reverse((step + block, at)));
            }
        }
        steps
    }

    /// The last cached block of each request that the last decision considered and refused: of a request's cached
    /// blocks the last one is evicted first.
    pub(super) fn last_found(&self) -> Vec<Block> {
        let last = |&(id, hits): &(RequestId, usize)| self.find(id, 0, hits.checked_sub(1)?);
        self.steady.considered.iter().filter_map(last).collect()
    }
}
