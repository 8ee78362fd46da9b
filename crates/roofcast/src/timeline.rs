//! Activity of one replica over time, recorded only if it is asked for.
//!
//! Knows: segments (a step, or equal steps taken at once) and the marks in each request's life, as the engine reports
//! them. [`series`] keeps levels over time in bounded memory, [`trace`] the first events one by one.
//! [`crate::report`] draws them.

pub mod series;
pub mod trace;

use crate::arrival::Arrival;
use crate::clock::Ticks;
use series::Series;
use trace::EventTrace;

/// A step, or a leap over equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Start of the first step.
    pub start: Ticks,
    /// End of the last step.
    pub end: Ticks,
    /// Number of steps.
    pub steps: u64,
    /// Requests that run in each step.
    pub running: u64,
    /// Requests among `running` that decode.
    pub decodes: u64,
    /// Requests that wait, as far as known at the start.
    pub waiting: u64,
    /// Chunks of prompts.
    pub chunks: u64,
    /// Tokens of these chunks, recomputation after preemption included.
    pub prefill_tokens: u64,
    /// Tokens sampled in all of the steps.
    pub output_tokens: u64,
    /// KV blocks held in the first and in the last step.
    pub blocks: [u64; 2],
    /// Bottleneck: the largest part of the time.
    pub bound: &'static str,
}

/// Event in a request's life, other than its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Admitted: its prompt is computed, after a preemption too.
    Admitted,
    /// All of its prompt is computed.
    Decoding,
    /// Preempted.
    Preempted,
    /// Swapped back in, to continue decoding.
    Resumed,
    /// Its last token is sampled.
    Finished,
    /// Its last token is sampled after it was preempted with that token in flight.
    Dropped,
}

/// Recordings of a replica's run.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Levels over time.
    pub series: Option<Series>,
    /// The first events.
    pub trace: Option<EventTrace>,
}

impl Timeline {
    /// Records an arrival.
    pub(crate) fn arrived(&mut self, arrival: &Arrival) {
        if let Some(series) = &mut self.series {
            series.arrived(arrival.at);
        }
        if let Some(trace) = &mut self.trace {
            trace.arrived(arrival);
        }
    }

    /// Records a mark of request `number` at `at`.
    pub(crate) fn mark(&mut self, number: u64, mark: Mark, at: Ticks) {
        if let Some(series) = &mut self.series {
            series.mark(mark, at);
        }
        if let Some(trace) = &mut self.trace {
            trace.mark(number, mark, at);
        }
    }

    /// Records computed steps.
    pub(crate) fn computed(&mut self, segment: &Segment) {
        if let Some(series) = &mut self.series {
            series.computed(segment);
        }
        if let Some(trace) = &mut self.trace {
            trace.computed(segment);
        }
    }
}
