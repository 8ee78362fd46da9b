//! Preemption, swapping and completion, and the blocks that each frees.
//!
//! Knows: the blocks and tokens of a request that leaves. Knows nothing about which request is preempted
//! ([`crate::scheduler`]).

use super::{Phase, State};
use crate::scheduler::config::Preemption;
use crate::scheduler::state::cache::Cache;
use crate::scheduler::state::decodes::{Decodes, Entry};
use crate::timeline::Mark;
use roofcast_ask::arrival::Departure;
use roofcast_ask::arrival::SequenceId;

impl<D: Decodes> State<D> {
    /// Preempts the request that was admitted last, and returns it.
    pub(crate) fn preempt_last(&mut self) -> Option<SequenceId> {
        let id = loop {
            let (order, id) = self.stack.pop()?;
            if self.runs(order, id) {
                break id;
            }
        };
        self.leave(id);
        Some(id)
    }

    /// Removes a running request, either to the head of the queue for recomputation or to the swap space of the host.
    fn leave(&mut self, id: SequenceId) {
        if self.sequence(id).phase == Phase::Ending {
            return self.leave_early(id);
        }
        let decoding = self.withdraw(id);
        self.sequences[id as usize].preemptions += 1;
        let s = &mut self.sequences[id as usize];
        let tokens = u64::from(s.computed);
        let room = self.config.swap_tokens.saturating_sub(self.parked);
        if decoding && self.config.preemption == Preemption::Swap && tokens <= room {
            s.phase = Phase::Swapped;
            self.parked += tokens;
            self.moved += tokens;
            self.tally.swapped_tokens += tokens;
            self.swapped.push(id);
        } else {
            s.phase = Phase::Waiting;
            s.dropped = std::mem::take(&mut s.computed);
            let key = s.arrival.key;
            let number = s.arrival.number;
            self.waiting.push_front(id, key, number);
        }
        self.preempted(id);
    }

    /// Ends every running request, and waiting ones for which places are free, with an error; the engine takes their
    /// departures from `failed`.
    #[cold]
    pub(crate) fn fail_running(&mut self) {
        let free = self.config.max_num_seqs.saturating_sub(self.running());
        for id in self.in_admission_order().collect::<Vec<_>>() {
            self.withdraw(id);
            self.fail(id, Mark::Finished);
        }
        for _ in 0..free {
            let Some(id) = self.waiting.pop() else { break };
            self.fail(id, Mark::Dropped);
        }
    }

    fn fail(&mut self, id: SequenceId, mark: Mark) {
        let gone = self.departure(id, true);
        if self.sequence(id).generated == 0 {
            self.prompt_tokens -= u64::from(gone.arrival.input);
        }
        self.failed.push(gone);
        self.mark(id, mark);
        self.sequences[id as usize].phase = Phase::Gone;
        self.forget(id);
    }

    /// Takes a running request out of the decodes or prompts and frees its blocks; returns true if it decoded.
    #[inline(always)]
    fn withdraw(&mut self, id: SequenceId) -> bool {
        let decoding = self.sequence(id).phase == Phase::Decode;
        if decoding {
            let last = self.sequence(id).last;
            let (computed, remaining) = self.decodes.remove(id);
            if computed == self.sequence(id).computed && last != self.decoded {
                let joined = self.joined.iter_mut().find(|(at, count)| *at == last && *count > 0);
                joined.into_iter().for_each(|(_, count)| *count -= 1);
            }
            let grows = self.grows();
            let blocks = self.blocks(computed);
            self.count_slack(id, computed);
            let s = &mut self.sequences[id as usize];
            s.computed = computed;
            s.generated = s.arrival.output - remaining;
            s.known = s.arrival.input + s.generated;
            s.last = last.max(self.decoded);
            s.held = if grows { blocks } else { s.held };
        } else {
            self.prefills.retain(|other| *other != id);
        }
        let s = &mut self.sequences[id as usize];
        let blocks = std::mem::take(&mut s.held);
        let computed = u64::from(s.computed);
        let generated = u64::from(s.generated);
        self.give_back(id, blocks, computed, generated);
        decoding
    }

    /// Preempts a request whose last token is in flight: its blocks are freed before that token arrives.
    #[cold]
    fn leave_early(&mut self, id: SequenceId) {
        let s = &mut self.sequences[id as usize];
        s.phase = Phase::Gone;
        s.preemptions += 1;
        let blocks = std::mem::take(&mut s.held);
        let computed = u64::from(s.computed);
        let generated = u64::from(s.arrival.output - 1);
        self.ending -= 1;
        self.dropped += 1;
        self.give_back(id, blocks, computed, generated);
        self.preempted(id);
    }

    /// Counts a preemption and updates the peak number of waiting requests.
    fn preempted(&mut self, id: SequenceId) {
        self.tally.preemptions += 1;
        self.tally.waiting_peak = self.tally.waiting_peak.max(self.waiting() + self.dropped);
        self.mark(id, Mark::Preempted);
    }

    /// Swaps the request that was swapped out first back in, to decode; the blocks must be free.
    pub(crate) fn swap_in(&mut self) {
        let id = self.swapped.remove(0);
        let s = self.sequence(id);
        let computed = s.computed;
        let generated = s.generated;
        let order = self.orders + 1;
        let blocks = self.blocks(computed);
        self.free -= blocks;
        self.parked -= u64::from(computed);
        self.moved += u64::from(computed);
        self.tally.swapped_tokens += u64::from(computed);
        self.enter(id);
        let s = &mut self.sequences[id as usize];
        s.phase = Phase::Decode;
        let remaining = s.arrival.output - generated;
        let last = s.last;
        self.join(last);
        self.decodes.insert(Entry { id, computed, remaining, order });
        self.mark(id, Mark::Resumed);
    }

    /// Number of tokens moved between device and host since the last call.
    pub(crate) fn moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }

    /// Ends a sequence that has `computed` tokens in the KV cache; its blocks stay allocated until it leaves.
    #[inline(always)]
    pub(crate) fn end(&mut self, id: SequenceId, computed: u32) {
        let decoded = self.sequence(id).phase == Phase::Decode;
        if decoded {
            self.count_slack(id, computed);
        }
        let blocks = if decoded && self.grows() { self.blocks(computed) } else { self.sequence(id).held };
        let s = &mut self.sequences[id as usize];
        s.computed = computed;
        s.held = blocks;
        s.phase = Phase::Ending;
        self.ending += 1;
    }

    #[inline(always)]
    fn departure(&self, id: SequenceId, failed: bool) -> Departure {
        let s = self.sequence(id);
        let cached = u64::from(s.cached);
        Departure { arrival: s.arrival, first: s.first, preemptions: s.preemptions, cached, id, failed }
    }

    /// Frees the blocks of a sequence that has ended.
    #[inline(always)]
    pub(crate) fn finish(&mut self, id: SequenceId) -> Departure {
        let gone = self.departure(id, false);
        let s = &mut self.sequences[id as usize];
        if s.phase == Phase::Gone {
            // The request was preempted with its last token in flight, so that its blocks are free already.
            self.dropped -= 1;
            self.mark(id, Mark::Dropped);
            self.forget(id);
            return gone;
        }
        s.phase = Phase::Kept;
        self.ending -= 1;
        if !(self.config.hands_over && gone.arrival.output > 1) {
            // The last token was sampled but never computed.
            self.vacate(id, gone.arrival.output - 1);
        }
        self.mark(id, Mark::Finished);
        gone
    }

    /// Frees the blocks that are kept for a sequence that another replica decodes.
    pub(crate) fn release(&mut self, id: SequenceId) {
        self.vacate(id, 0);
    }

    #[inline(always)]
    fn vacate(&mut self, id: SequenceId, generated: u32) {
        let s = &mut self.sequences[id as usize];
        s.phase = Phase::Gone;
        let blocks = s.held;
        let computed = u64::from(s.computed);
        self.give_back(id, blocks, computed, u64::from(generated));
        self.forget(id);
    }

    #[inline(always)]
    fn forget(&mut self, id: SequenceId) {
        self.cache.forget(id);
        self.sequences.vacate(id as usize);
    }

    /// Frees `blocks` blocks of a sequence that has `computed` cached tokens.
    #[inline(always)]
    fn give_back(&mut self, id: SequenceId, blocks: u64, computed: u64, generated: u64) {
        match &mut self.cache {
            // Blocks that other requests hold as well stay allocated.
            Cache::Blocks(identity) => {
                identity.leave(id, blocks, computed, generated);
                self.free = identity.free();
            }
            Cache::Reservations(chunks) => {
                chunks.give_back(id, blocks);
                self.free += blocks;
            }
            Cache::Slots(slots) => {
                slots.leave(id, computed, generated);
                self.free += blocks;
            }
            Cache::Counted => self.free += blocks,
        }
    }

    /// Counts the steps of all sequences that decode, which are about to be dropped.
    pub(super) fn count_decodes(&mut self) {
        let decoding: Vec<SequenceId> =
            self.in_admission_order().filter(|id| self.sequence(*id).phase == Phase::Decode).collect();
        for id in decoding {
            let (computed, _) = self.decodes.progress(id);
            self.count_slack(id, computed);
        }
    }

    /// For every step in which a sequence decoded up to `computed` tokens, counts the token slots of its blocks, and
    /// the slots without a token when the step started. With a reservation the slots are the reserved ones; tokens that
    /// a static batch computes after an answer's end have no slot.
    #[inline(always)]
    fn count_slack(&mut self, id: SequenceId, computed: u32) {
        let s = &self.sequences[id as usize];
        let (from, to) = (u64::from(s.computed), u64::from(computed));
        let groups = &self.config.groups;
        let steps = u128::from(to - from);
        let block = groups.block();
        let tokens = sum_below(to) - sum_below(from);
        let spanned = groups.spanned_below(to) - groups.spanned_below(from);
        let (room, kept) = if !self.grows() {
            let room = s.held * block;
            // Σ min(c, room) over 0 ≤ c < n.
            let within =
                |n: u64| sum_below(n.min(room)) + u128::from(n.saturating_sub(room)) * u128::from(room);
            let standing = within(to) - within(from);
            self.tally.token_steps -= tokens - standing;
            (u128::from(room) * steps, standing)
        } else if groups.are_one() {
            (spanned * u128::from(block), tokens)
        } else {
            let kept_tokens = groups.kept_below(to) - groups.kept_below(from);
            self.tally.spread_steps += kept_tokens as i128 - tokens as i128;
            (groups.room_below(to) - groups.room_below(from), kept_tokens)
        };
        self.tally.slack_steps += room - kept;
        self.tally.decoding_steps += to - from;
        self.tally.spanned_blocks += spanned;
    }
}

/// Σ c over 0 ≤ c < `n`, for `n` below 2³².
fn sum_below(n: u64) -> u128 {
    u128::from(n * n.saturating_sub(1) / 2)
}
