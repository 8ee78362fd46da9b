//! States of requests in the connector, by request.
//!
//! Knows: requests have small numbers, which are used again, so that the states are an array. Knows nothing about what a
//! state means.

use super::State;
use crate::scheduler::vllm::RequestId;

/// State of each request that the connector knows.
#[derive(Debug, Clone, Default)]
pub(super) struct States(Vec<Option<State>>);

impl States {
    pub(super) fn get(&self, id: &RequestId) -> Option<&State> {
        self.0.get(*id)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: &RequestId) -> Option<&mut State> {
        self.0.get_mut(*id)?.as_mut()
    }

    pub(super) fn insert(&mut self, id: RequestId, state: State) {
        if self.0.len() <= id {
            self.0.resize_with(id + 1, || None);
        }
        self.0[id] = Some(state);
    }

    pub(super) fn remove(&mut self, id: &RequestId) {
        self.0[*id] = None;
    }

    /// The states in the order of the requests' numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &State)> {
        self.0.iter().enumerate().filter_map(|(id, state)| Some((id, state.as_ref()?)))
    }
}
