//! Static batching, as in FasterTransformer: a batch is formed, computed until its longest output ends, and answered
//! whole.
//!
//! Knows: no request joins a running batch; a request that ends early keeps its row and its KV cache until the last
//! request ends. Knows nothing about time.

use crate::scheduler::state::decodes::Decodes;
use crate::scheduler::state::{PrefillChunk, State};

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    if state.running() > 0 {
        return true;
    }
    super::orca::admit(state);
    false
}

/// Number of steps until the longest output of a batch ends, counted from the step that computes the prompts `whole`.
pub(super) fn longest<D: Decodes>(state: &State<D>, whole: &[PrefillChunk]) -> u32 {
    whole.iter().map(|p| state.sequence(p.id).arrival.output - 1).max().unwrap_or(0)
}
