//! The first events of a run, stored singly: steps, and the phases of each request.
//!
//! Knows: the start and end of each phase, and when to stop; open phases end at that time. Knows nothing about how
//! events are drawn.

use super::{Mark, Segment};
use roofcast_ask::arrival::Arrival;
use roofcast_facts::clock::Ticks;
use std::collections::BTreeMap;

/// Phase of a request's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracePhase {
    /// The request waits for its first admission.
    Queued,
    /// The prompt of the request is computed.
    Prefill,
    /// The request decodes.
    Decode,
    /// The request waits after a preemption.
    Preempted,
}

roofcast_facts::named! { TracePhase {
    Queued: "queued",
    Prefill: "prefill",
    Decode: "decode",
    Preempted: "preempted",
} }

/// One event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// A step, or several equal steps, starts.
    Steps(Segment),
    /// The replica becomes idle.
    Idle,
    /// A request arrives.
    Arrived {
        /// Number of the request.
        number: u64,
        /// Number of prompt tokens.
        input: u32,
        /// Number of tokens to generate.
        output: u32,
    },
    /// A phase of the request with this number begins.
    Begins(u64, TracePhase),
    /// A phase of the request with this number ends.
    Ends(u64, TracePhase),
    /// The request with this number has ended.
    Left(u64),
}

/// The first events of one replica.
#[derive(Debug, Clone, Default)]
pub struct EventTrace {
    most: u64,
    /// Number of events so far, including the future ends of open phases.
    count: u64,
    events: Vec<(Ticks, TraceEvent)>,
    /// Requests in the replica, each with its current phase.
    open: BTreeMap<u64, TracePhase>,
    /// End of the last step; `latest` is the latest time that was reported.
    end: Ticks,
    latest: Ticks,
    cut: bool,
}

impl EventTrace {
    /// A trace that keeps at most `most` events.
    pub fn new(most: u64) -> EventTrace {
        EventTrace { most, ..EventTrace::default() }
    }

    /// True if there is room for `events` further events; after the first false no event is kept.
    fn room(&mut self, at: Ticks, events: u64) -> bool {
        self.cut |= self.count + events > self.most;
        if !self.cut {
            self.count += events;
            self.latest = self.latest.max(at);
        }
        !self.cut
    }

    pub(super) fn arrived(&mut self, arrival: &Arrival) {
        // Four events: the request arrives and leaves, and its first phase begins and ends.
        if self.room(arrival.at, 4) {
            let Arrival { number, input, output, .. } = *arrival;
            self.events.push((arrival.at, TraceEvent::Arrived { number, input, output }));
            self.begin(number, TracePhase::Queued, arrival.at);
        }
    }

    pub(super) fn mark(&mut self, number: u64, mark: Mark, at: Ticks) {
        let Some(now) = self.open.get(&number).copied() else { return };
        let next = match mark {
            Mark::Admitted => Some(TracePhase::Prefill),
            Mark::Decoding if now == TracePhase::Prefill => Some(TracePhase::Decode),
            Mark::Decoding => return,
            Mark::Preempted => Some(TracePhase::Preempted),
            Mark::Resumed => Some(TracePhase::Decode),
            Mark::Finished | Mark::Dropped => None,
        };
        if !self.room(at, if next.is_some() { 2 } else { 0 }) {
            return;
        }
        self.events.push((at, TraceEvent::Ends(number, now)));
        match next {
            Some(phase) => self.begin(number, phase, at),
            None => {
                self.open.remove(&number);
                self.events.push((at, TraceEvent::Left(number)));
            }
        }
    }

    fn begin(&mut self, number: u64, phase: TracePhase, at: Ticks) {
        self.events.push((at, TraceEvent::Begins(number, phase)));
        self.open.insert(number, phase);
    }

    pub(super) fn computed(&mut self, segment: &Segment) {
        // A slice and two counters, and two further counters if an idle gap follows.
        if !self.room(segment.end, 5) {
            return;
        }
        if segment.start > self.end {
            self.events.push((self.end, TraceEvent::Idle));
        }
        self.end = segment.end;
        self.events.push((segment.start, TraceEvent::Steps(*segment)));
    }

    /// The events in order of time, with all open phases ended, and the time at which the trace was cut; `None` if it
    /// is complete.
    pub fn close(mut self) -> (Vec<(Ticks, TraceEvent)>, Option<Ticks>) {
        for (number, phase) in &self.open {
            self.events.push((self.latest, TraceEvent::Ends(*number, *phase)));
            self.events.push((self.latest, TraceEvent::Left(*number)));
        }
        self.events.push((self.end, TraceEvent::Idle));
        self.events.sort_by_key(|(at, _)| *at);
        (self.events, self.cut.then_some(self.latest))
    }
}
