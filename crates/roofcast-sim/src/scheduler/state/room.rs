//! Blocks that a sequence needs at admission, for further chunks and for decodes, and whether they are free.
//!
//! Knows: the sizes of blocks, reservations and the watermark. Knows nothing about which requests are admitted or
//! preempted.

use super::{Decodes, Reservation, Sequence, SequenceId, State};
use crate::scheduler::state::cache::Cache;

impl<D: Decodes> State<D> {
    /// Number of blocks for `tokens` tokens.
    #[inline(always)]
    pub(crate) fn blocks(&self, tokens: u32) -> u64 {
        self.config.groups.blocks(u64::from(tokens))
    }

    /// Number of blocks that a request needs at admission to compute `tokens` tokens in addition to its cached ones.
    #[inline(always)]
    pub(crate) fn admission_blocks(&self, id: SequenceId, tokens: u32) -> u64 {
        let Sequence { arrival, known, ready, .. } = self.sequence(id);
        match &self.cache {
            Cache::Blocks(identity) => return identity.admission_blocks(u64::from(tokens)),
            Cache::Counted | Cache::Reservations(_) | Cache::Slots(_) => {}
        }
        match self.config.reservation {
            Reservation::Grow => self.blocks(ready + tokens),
            Reservation::Prompt => self.blocks(*known),
            Reservation::Oracle => self.blocks(arrival.input + arrival.output),
            Reservation::Bound => {
                // For a request that another replica decodes, TensorRT-LLM sets max_tokens = 1 in this one:
                // `serve/openai_disagg_server.py`.
                let whole = arrival.max_tokens.max(arrival.output);
                let bound = if self.config.hands_over { 1 } else { whole };
                self.blocks(arrival.input.saturating_add(bound).min(self.config.max_model_len))
            }
            Reservation::Pow2 => {
                let guess = arrival.input + arrival.output.next_power_of_two();
                self.blocks(guess.min(self.config.max_model_len))
            }
            Reservation::Max => self.blocks(self.config.max_model_len),
        }
    }

    /// True if a request can be admitted to compute `tokens` tokens: its blocks are free and, if they must be
    /// contiguous, in one gap.
    pub(crate) fn has_room(&mut self, id: SequenceId, tokens: u32) -> bool {
        let blocks = self.admission_blocks(id, tokens);
        match &mut self.cache {
            Cache::Reservations(chunks) => chunks.attempt(id, blocks, &mut self.tally),
            _ => blocks <= self.free,
        }
    }

    #[inline(always)]
    pub(crate) fn grows(&self) -> bool {
        matches!(self.config.reservation, Reservation::Grow | Reservation::Prompt)
    }

    /// Number of blocks needed to compute `tokens` further tokens of a prompt.
    pub(crate) fn continuation_blocks(&self, id: SequenceId, tokens: u32) -> u64 {
        let s = self.sequence(id);
        if self.grows() { self.blocks(s.computed + tokens).saturating_sub(s.held) } else { 0 }
    }

    /// Number of blocks that `steps` decodes of every sequence need.
    #[inline(always)]
    pub(crate) fn decode_blocks(&self, steps: u64) -> u64 {
        if self.grows() { self.decodes.needs(steps) } else { 0 }
    }

    /// Allocates `blocks` blocks for the next decodes; they must be free.
    #[inline(always)]
    pub(crate) fn take_decode_blocks(&mut self, blocks: u64) {
        self.free -= blocks;
        self.cache.decode(blocks);
    }

    /// Returns the `blocks` blocks that [`State::take_decode_blocks`] took, for decodes that do not take place.
    pub(crate) fn return_decode_blocks(&mut self, blocks: u64) {
        self.free += blocks;
    }

    /// Number of decode steps, at most `steps`, for which there are free blocks. Allocates the blocks of these steps
    /// except the first, whose blocks the policy has allocated.
    #[inline(always)]
    pub(crate) fn take_blocks_of(&mut self, steps: u64) -> u64 {
        let first = self.decode_blocks(1);
        let mut taken = self.decode_blocks(steps) - first;
        let mut enough = steps;
        if taken > self.free {
            enough = self.affordable(steps, first);
            taken = self.decode_blocks(enough) - first;
        }
        self.free -= taken;
        self.cache.decode(taken);
        enough
    }

    /// Number of decode steps, at most `steps`, for which there are free blocks, beyond the allocated ones of the first.
    pub(crate) fn steps_with_blocks(&self, steps: u64) -> u64 {
        let first = self.decode_blocks(1);
        if self.decode_blocks(steps) - first <= self.free { steps } else { self.affordable(steps, first) }
    }

    /// Largest number of decode steps, at most `steps`, for which the free blocks suffice; the `first` blocks of the
    /// first step are allocated already.
    fn affordable(&self, steps: u64, first: u64) -> u64 {
        let mut enough = 1;
        let mut too_many = steps;
        while too_many - enough > 1 {
            let middle = enough + (too_many - enough) / 2;
            if self.decode_blocks(middle) - first <= self.free { enough = middle } else { too_many = middle }
        }
        enough
    }
}
