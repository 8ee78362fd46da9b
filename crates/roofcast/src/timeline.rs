//! What one replica did when, kept only where it is asked for.
//!
//! Knows: segments (a step, or equal steps taken at once) and the marks in each request's life, as the engine tells
//! them. [`series`] keeps levels over time in bounded memory, [`trace`] the first events one by one. Knows nothing about
//! how they are drawn: that is [`crate::report`]'s.

pub mod series;
pub mod trace;

use crate::engine::arrival::Arrival;
use crate::engine::clock::Ticks;
use series::Series;
use trace::Trace;

/// A step, or a leap over equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// When the first step starts.
    pub start: Ticks,
    /// When the last one ends.
    pub end: Ticks,
    /// How many.
    pub steps: u64,
    /// Requests that compute in each of them.
    pub running: u64,
    /// Of these, those that decode.
    pub decodes: u64,
    /// Requests that wait, as far as they are known when it starts.
    pub waiting: u64,
    /// Chunks of prompts.
    pub chunks: u64,
    /// Tokens of these, computed again after a preemption included.
    pub prefill_tokens: u64,
    /// Tokens sampled in all of the steps.
    pub output_tokens: u64,
    /// KV blocks held in the first and in the last step.
    pub blocks: [u64; 2],
    /// What most of the time goes to.
    pub bound: &'static str,
}

/// What happens to a request beside its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It is taken in and its prompt is computed, after a preemption too.
    Admitted,
    /// Its prompt is whole.
    Decoding,
    /// It loses its place.
    Preempted,
    /// It is swapped back in and decodes on.
    Resumed,
    /// It has its last token.
    Finished,
}

/// What is kept of a replica's run.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Levels over time.
    pub series: Option<Series>,
    /// The first events.
    pub trace: Option<Trace>,
}

impl Timeline {
    /// A request came.
    pub fn arrived(&mut self, arrival: &Arrival) {
        if let Some(series) = &mut self.series {
            series.arrived(arrival.at);
        }
        if let Some(trace) = &mut self.trace {
            trace.arrived(arrival);
        }
    }

    /// Something happened to request `number` at `at`.
    pub fn mark(&mut self, number: u64, mark: Mark, at: Ticks) {
        if let Some(series) = &mut self.series {
            series.mark(mark, at);
        }
        if let Some(trace) = &mut self.trace {
            trace.mark(number, mark, at);
        }
    }

    /// Steps were computed.
    pub fn computed(&mut self, segment: &Segment) {
        if let Some(series) = &mut self.series {
            series.computed(segment);
        }
        if let Some(trace) = &mut self.trace {
            trace.computed(segment);
        }
    }
}
