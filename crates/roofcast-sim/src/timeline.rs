//! Activity of one replica over time, recorded only on request.
//!
//! Knows: segments (one step, or equal steps taken at once) and the marks in each request's life, as the engine reports
//! them. [`series`] keeps levels over time in bounded memory, [`trace`] keeps the first events singly. Knows nothing
//! about how `report` draws them.

pub mod series;
pub mod trace;

use roofcast_ask::arrival::Arrival;
use roofcast_facts::clock::Ticks;
use series::Series;
use trace::EventTrace;

/// One step, or a leap over equal steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// Start of the first step.
    pub start: Ticks,
    /// End of the last step.
    pub end: Ticks,
    /// Number of steps in the segment.
    pub steps: u64,
    /// Number of requests that run in each step.
    pub running: u64,
    /// Number of running requests that decode.
    pub decodes: u64,
    /// Number of waiting requests, as known at the start.
    pub waiting: u64,
    /// Number of chunks of prompts.
    pub chunks: u64,
    /// Number of tokens in the chunks, including recomputation after preemption.
    pub prefill_tokens: u64,
    /// Number of tokens sampled in all steps of the segment.
    pub output_tokens: u64,
    /// Number of KV blocks held in the first step, and in the last step.
    pub blocks: [u64; 2],
    /// Name of the bottleneck: the resource with the largest part of the time.
    pub bound: &'static str,
}

impl Segment {
    /// Adds the segment of another data-parallel rank in one step.
    fn join(&mut self, rank: &Segment) {
        self.end = self.end.max(rank.end);
        self.running += rank.running;
        self.decodes += rank.decodes;
        self.waiting += rank.waiting;
        self.chunks += rank.chunks;
        self.prefill_tokens += rank.prefill_tokens;
        self.output_tokens += rank.output_tokens;
        self.blocks[0] += rank.blocks[0];
        self.blocks[1] += rank.blocks[1];
    }
}

/// Event in a request's life after its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The request is admitted, for the first time or after a preemption, and its prompt is computed.
    Admitted,
    /// The whole prompt is computed.
    Decoding,
    /// The request is preempted.
    Preempted,
    /// The request is swapped back in, and continues to decode.
    Resumed,
    /// The last token of the request is sampled.
    Finished,
    /// The last token is sampled after the request was preempted with that token in flight.
    Dropped,
}

/// Recordings of one replica's run.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Levels over time; `None` if not recorded.
    pub series: Option<Series>,
    /// The first events; `None` if not recorded.
    pub trace: Option<EventTrace>,
    /// While data-parallel ranks step together, the sums of their segments so far.
    pub(crate) ranks: Option<JointSegments>,
}

/// Segments of data-parallel ranks that step together: the sum of the first segments of all ranks, and so on.
#[derive(Debug, Clone, Default)]
pub(crate) struct JointSegments {
    sums: Vec<Segment>,
    /// Index of the next segment of the rank that records.
    next: usize,
}

impl JointSegments {
    /// Begins the segments of a rank.
    pub(crate) fn begin_rank(&mut self) {
        self.next = 0;
    }

    fn add(&mut self, segment: &Segment) {
        match self.sums.get_mut(self.next) {
            Some(sum) => sum.join(segment),
            None => self.sums.push(*segment),
        }
        self.next += 1;
    }
}

impl Timeline {
    /// Records the arrival of a request.
    pub(crate) fn arrived(&mut self, arrival: &Arrival) {
        if let Some(series) = &mut self.series {
            series.arrived(arrival.at);
        }
        if let Some(trace) = &mut self.trace {
            trace.arrived(arrival);
        }
    }

    /// Records a mark of request `number` at time `at`.
    pub(crate) fn mark(&mut self, number: u64, mark: Mark, at: Ticks) {
        if let Some(series) = &mut self.series {
            series.mark(mark, at);
        }
        if let Some(trace) = &mut self.trace {
            trace.mark(number, mark, at);
        }
    }

    /// Records the sums of the segments of ranks that have stepped together.
    pub(crate) fn end_ranks(&mut self) {
        let joint = self.ranks.take().unwrap_or_default();
        joint.sums.iter().for_each(|segment| self.computed(segment));
    }

    /// Records a segment of computed steps.
    pub(crate) fn computed(&mut self, segment: &Segment) {
        if let Some(joint) = &mut self.ranks {
            return joint.add(segment);
        }
        if let Some(series) = &mut self.series {
            series.computed(segment);
        }
        if let Some(trace) = &mut self.trace {
            trace.computed(segment);
        }
    }
}
