//! Positions of the requests' contiguous reservations in the address space of the KV cache.
//!
//! Knows: admission attempts that found no long enough gap, and the fragmentation at that time. A repeated attempt
//! counts once as long as nothing changes. Knows nothing about the size of reservations.

use crate::kv_cache::contiguous::ContiguousSpace;
use crate::tally::Tally;
use roofcast_ask::arrival::SequenceId;

/// The contiguous reservations of one replica.
#[derive(Debug, Clone)]
pub(super) struct Reservations {
    space: ContiguousSpace,
    /// First block of each request's reservation, by id.
    starts: Vec<u64>,
    /// The request that was refused since the last change of reservations.
    refused: Option<SequenceId>,
}

impl Reservations {
    pub(super) fn new(blocks: u64) -> Reservations {
        Reservations { space: ContiguousSpace::new(blocks), starts: Vec::new(), refused: None }
    }

    /// True if there is a gap of `blocks` contiguous blocks for `id`.
    pub(super) fn attempt(&mut self, id: SequenceId, blocks: u64, tally: &mut Tally) -> bool {
        let fits = self.space.largest() >= blocks;
        if fits || self.refused != Some(id) {
            tally.attempts.add(self.space.fragmentation());
        }
        if !fits && self.refused != Some(id) && self.space.free() >= blocks {
            tally.scattered.add(self.space.fragmentation());
        }
        self.refused = (!fits).then_some(id);
        fits
    }

    /// Allocates `blocks` blocks for `id`; the caller has checked that there is a gap.
    pub(super) fn take(&mut self, id: SequenceId, blocks: u64) {
        self.refused = None;
        let index = id as usize;
        if self.starts.len() <= index {
            self.starts.resize(index + 1, 0);
        }
        self.starts[index] = self.space.take(blocks).unwrap_or(0);
    }

    /// Frees the `blocks` blocks of `id`.
    pub(super) fn give_back(&mut self, id: SequenceId, blocks: u64) {
        self.refused = None;
        self.space.give_back(self.starts[id as usize], blocks);
    }
}
