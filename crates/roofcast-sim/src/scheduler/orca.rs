//! Orca's iteration-level scheduling (OSDI 2022): requests join and leave between steps, and whole prompts share steps
//! with decodes.
//!
//! Knows: memory is reserved when a request is admitted ([`Reservation`](crate::scheduler::config::Reservation)), in
//! one piece if the cache is contiguous, so that no request is ever preempted. Knows nothing about time.

use crate::scheduler::state::State;
use crate::scheduler::state::decodes::Decodes;

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    admit(state);
    true
}

/// Admits whole prompts while `max_num_seqs` and free memory permit.
pub(super) fn admit<D: Decodes>(state: &mut State<D>) {
    while state.running() < state.config.max_num_seqs {
        let Some(id) = state.head() else { return };
        let known = state.sequence(id).known;
        if !state.has_room(id, known) {
            return;
        }
        state.admit(known);
    }
}
