//! What the engine has said of a request, between the engine's thread and the connection that sends it.
//!
//! Knows: how many tokens of each choice are out. Holds counts, not text: a slow reader takes no memory. Knows nothing about
//! what tokens say or how they are sent.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// One request's outlet.
#[derive(Debug)]
pub(crate) struct Outlet(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    out: Vec<Out>,
    /// Choices that have not ended.
    open: usize,
    failed: bool,
    /// Whether nobody reads it any more.
    left: bool,
    reader: Option<Waker>,
}

/// What is out of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Out {
    /// Tokens.
    pub(crate) tokens: u64,
    /// Of the prompt's tokens, those found in the prefix cache.
    pub(crate) cached: u64,
    /// Seconds that its prompt took, and its answer behind the first token, when all is out.
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
}

/// What a reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More is to come.
    Open,
    /// All is out.
    Ended,
    /// The engine gave it up.
    Failed,
}

impl Outlet {
    /// Of a request with so many choices, of which nothing is out.
    pub(crate) fn new(choices: usize) -> Outlet {
        let out = vec![Out::default(); choices];
        Outlet(Mutex::new(State { out, open: choices, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So much of its prompt was in the cache.
    pub(crate) fn found(&self, choice: usize, cached: u64) {
        if let Some(out) = self.state().out.get_mut(choice) {
            out.cached = cached;
        }
    }

    /// Its prompt and its answer took so many seconds.
    pub(crate) fn took(&self, choice: usize, prefill: f64, decode: f64) {
        if let Some(out) = self.state().out.get_mut(choice) {
            (out.prefill, out.decode) = (out.prefill.max(prefill), out.decode + decode);
        }
    }

    /// Its reader is gone.
    pub(crate) fn leave(&self) {
        self.state().left = true;
    }

    /// Whether its reader is gone.
    pub(crate) fn is_left(&self) -> bool {
        self.state().left
    }

    /// So many tokens more are out; `last` says whether they were the last.
    pub(crate) fn say(&self, choice: usize, tokens: u64, last: bool) {
        let mut state = self.state();
        if let Some(out) = state.out.get_mut(choice) {
            out.tokens += tokens;
        }
        state.open = state.open.saturating_sub(usize::from(last));
        wake(state);
    }

    /// Nothing more comes.
    pub(crate) fn fail(&self) {
        let mut state = self.state();
        state.failed = true;
        wake(state);
    }

    /// Writes the tokens that are out to `out`; pending where they are no more than `out` already has.
    pub(crate) fn poll(&self, out: &mut Vec<Out>, cx: &mut Context<'_>) -> Poll<Progress> {
        let mut state = self.state();
        let (ended, failed) = (state.open == 0, state.failed);
        let more = state.out.iter().zip(out.iter()).any(|(now, before)| now.tokens > before.tokens);
        if !more && !ended && !failed {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        out.clone_from(&state.out);
        Poll::Ready(match (failed, ended) {
            (true, _) => Progress::Failed,
            (false, true) => Progress::Ended,
            (false, false) => Progress::Open,
        })
    }

    /// Waits until all is out; false where the engine gave it up.
    pub(crate) async fn whole(&self) -> Option<Vec<Out>> {
        let mut out = vec![Out::default(); self.state().out.len()];
        loop {
            match std::future::poll_fn(|cx| self.poll(&mut out, cx)).await {
                Progress::Open => {}
                Progress::Ended => return Some(out),
                Progress::Failed => return None,
            }
        }
    }
}

/// Wakes the reader with the lock given back.
fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}
