//! Sleep: an engine that takes no steps until it is woken.
//!
//! Knows: levels, modes and tags of vLLM 0.32 (`entrypoints/serve/dev/sleep/api_router.py`, `EngineCore.sleep` and
//! `wake_up` of `v1/engine/core.py`). Level 0 only stops scheduling; levels 1 and 2 also empty the prefix cache. Knows
//! nothing about engines.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handling of the requests in flight when sleep begins; requests that arrive later wait in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PauseMode {
    /// Requests are aborted.
    Abort,
    /// Requests are served to their end.
    Wait,
    /// Requests stop where they are and keep their blocks.
    Keep,
}

impl PauseMode {
    /// The mode of vLLM's name `name`.
    pub(crate) fn of(name: &str) -> Option<PauseMode> {
        match name {
            "abort" => Some(PauseMode::Abort),
            "wait" => Some(PauseMode::Wait),
            "keep" => Some(PauseMode::Keep),
            _ => None,
        }
    }
}

/// vLLM's tags of the memory that sleeps at levels 1 and 2.
const TAGS: [&str; 2] = ["weights", "kv_cache"];

/// Sleep state of a server.
#[derive(Debug, Default)]
pub(crate) struct Sleep(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    level: Option<u64>,
    asleep: BTreeSet<&'static str>,
}

impl Sleep {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Level of sleep; `None` while the server is awake.
    pub(crate) fn level(&self) -> Option<u64> {
        self.state().level
    }

    /// Starts sleep at a level.
    pub(crate) fn begin(&self, level: u64) {
        let mut state = self.state();
        state.level = Some(level);
        state.asleep = if level > 0 { BTreeSet::from(TAGS) } else { BTreeSet::new() };
    }

    /// Wakes the memory of these tags, or all memory if there are none; true if all memory is then awake.
    pub(crate) fn wake(&self, tags: &[String]) -> bool {
        let mut state = self.state();
        if tags.is_empty() {
            state.asleep.clear();
        }
        state.asleep.retain(|tag| !tags.iter().any(|woken| woken == tag));
        let awake = state.asleep.is_empty();
        if awake {
            state.level = None;
        }
        awake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_awake_when_all_of_it_is() {
        let sleep = Sleep::default();
        sleep.begin(1);
        assert_eq!(sleep.level(), Some(1));
        assert!(!sleep.wake(&["weights".to_owned()]));
        assert_eq!(sleep.level(), Some(1));
        assert!(sleep.wake(&["kv_cache".to_owned()]));
        assert_eq!(sleep.level(), None);
        sleep.begin(2);
        assert!(sleep.wake(&[]));
        sleep.begin(0);
        assert!(sleep.wake(&["scheduling".to_owned()]));
    }
}
