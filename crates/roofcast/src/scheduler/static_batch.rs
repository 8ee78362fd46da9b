//! Static batching, as FasterTransformer served: a batch is formed, computed to its longest output, and answered whole.
//!
//! Knows: no request joins a running batch, and one that ends early keeps its row and its cache until the last one ends.

use super::{Policy, Profile};
use crate::scheduler::config::Reservation;
use crate::scheduler::state::decodes::Decodes;
use crate::scheduler::state::{PrefillChunk, State};
use crate::spec::KvLayout;

/// Defaults of static batching: whole prompts, reserved memory.
pub(super) fn profile() -> Profile {
    Profile {
        reserves: true,
        layouts: &[KvLayout::Paged, KvLayout::Flashinfer, KvLayout::Contiguous],
        keys: &["reservation"],
        ..Profile::whole(Policy::Static, Reservation::Max)
    }
}

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    if state.running() > 0 {
        return true;
    }
    super::orca::admit(state);
    false
}

/// Steps until the longest output of a batch whose prompts are computed.
pub(super) fn longest<D: Decodes>(state: &State<D>, whole: &[PrefillChunk]) -> u32 {
    whole.iter().map(|p| state.sequence(p.id).arrival.output - 1).max().unwrap_or(0)
}
