//! Shortest prompt first, with memory reserved at admission: a policy that overtakes, for tests of engines.
//!
//! Knows: the lengths of waiting prompts. Knows nothing about time.

use super::state::State;
use super::state::decodes::Decodes;

/// Decides the next step; see [`super::Policy::schedule`].
pub(super) fn schedule<D: Decodes>(state: &mut State<D>) -> bool {
    state.sort_waiting();
    super::orca::admit(state);
    true
}
