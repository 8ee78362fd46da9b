//! Progress of a request, shared between the engine's thread and the connection that sends the answer.
//!
//! Knows: the number of released tokens of each choice, and which of them one step released together. It holds counts
//! instead of text, so that a slow reader needs little memory. Knows nothing about the text of tokens or their sending.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Progress of one request.
#[derive(Debug)]
pub(crate) struct Outlet(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    out: Vec<Out>,
    /// Steps that released several tokens and that the reader has not taken.
    bursts: Vec<Burst>,
    /// Number of choices that have not ended.
    open: usize,
    failed: Option<Failure>,
    /// True if the reader is gone, because its client disconnected.
    left: bool,
    reader: Option<Waker>,
}

/// Progress of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Out {
    /// Number of tokens that the engine has released.
    pub(crate) tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub(crate) cached: u64,
    /// Number of the slot, where the engine has slots.
    pub(crate) slot: Option<usize>,
    /// Seconds that the prompt took; set when all tokens are released.
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
}

/// Tokens that one step released for a choice: drafts that the model accepted, and the model's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) choice: usize,
    /// Index of the first token, and the index after the last one.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Reason for which the engine ends a request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The engine aborted the request.
    Aborted,
    /// The cells that the slots of llama.cpp share were used up.
    Overflow,
}

/// State of a request as its reader finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More tokens are to come.
    Open,
    /// All tokens are released.
    Ended,
    /// The engine ended the request without an answer.
    Failed(Failure),
}

impl Outlet {
    /// Creates the progress of a request with `choices` choices and no tokens yet.
    pub(crate) fn new(choices: usize) -> Outlet {
        let out = vec![Out::default(); choices];
        Outlet(Mutex::new(State { out, open: choices, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the number of prompt tokens that a choice found in the prefix cache, and its slot.
    pub(crate) fn found(&self, choice: usize, cached: u64, slot: Option<usize>) {
        if let Some(out) = self.state().out.get_mut(choice) {
            (out.cached, out.slot) = (cached, slot);
        }
    }

    /// Records the seconds that a choice's prompt and its answer took.
    pub(crate) fn took(&self, choice: usize, prefill: f64, decode: f64) {
        if let Some(out) = self.state().out.get_mut(choice) {
            (out.prefill, out.decode) = (out.prefill.max(prefill), out.decode + decode);
        }
    }

    /// Records that the reader is gone, because its client disconnected.
    pub(crate) fn leave(&self) {
        self.state().left = true;
    }

    /// True if the reader is gone.
    pub(crate) fn is_left(&self) -> bool {
        self.state().left
    }

    /// Releases `tokens` more tokens of a choice; `last` is true if the choice then ends.
    pub(crate) fn say(&self, choice: usize, tokens: u64, last: bool) {
        let mut state = self.state();
        if let Some(out) = state.out.get_mut(choice) {
            let from = out.tokens as usize;
            out.tokens += tokens;
            let to = out.tokens as usize;
            if tokens > 1 {
                state.bursts.push(Burst { choice, from, to });
            }
        }
        state.open = state.open.saturating_sub(usize::from(last));
        wake(state);
    }

    /// Records that the engine ended the request without an answer.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.failed = Some(failure);
        wake(state);
    }

    /// Updates `out` to the current progress, and adds the steps since then that released several tokens to `bursts`;
    /// pending if `out` is already up to date.
    pub(crate) fn poll(
        &self,
        out: &mut Vec<Out>,
        bursts: &mut Vec<Burst>,
        cx: &mut Context<'_>,
    ) -> Poll<Progress> {
        let mut state = self.state();
        let ended = state.open == 0;
        let failed = state.failed;
        let more = state.out.iter().zip(out.iter()).any(|(now, before)| now.tokens > before.tokens);
        if !more && !ended && failed.is_none() {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        out.clone_from(&state.out);
        bursts.append(&mut state.bursts);
        Poll::Ready(match (failed, ended) {
            (Some(failure), _) => Progress::Failed(failure),
            (None, true) => Progress::Ended,
            (None, false) => Progress::Open,
        })
    }

    /// Waits until all tokens are released; an error if the engine ended the request without an answer.
    pub(crate) async fn whole(&self) -> Result<Vec<Out>, Failure> {
        let mut out = vec![Out::default(); self.state().out.len()];
        loop {
            // An answer in one piece does not show its steps.
            let mut bursts = Vec::new();
            match std::future::poll_fn(|cx| self.poll(&mut out, &mut bursts, cx)).await {
                Progress::Open => {}
                Progress::Ended => return Ok(out),
                Progress::Failed(failure) => return Err(failure),
            }
        }
    }
}

/// Releases the lock and then wakes the reader, so that the reader does not wait for the lock.
fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}
