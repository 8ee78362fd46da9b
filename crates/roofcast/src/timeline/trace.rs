//! The first events of a run one by one: steps, and the phases of each request.
//!
//! Knows: the beginning and end of each phase, and when to stop; open phases then end there.

use super::{Mark, Segment};
use crate::arrival::Arrival;
use crate::clock::Ticks;
use std::collections::BTreeMap;

/// Phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waits for its first admission.
    Queued,
    /// Its prompt is computed.
    Prefill,
    /// Decodes.
    Decode,
    /// Waits after a preemption.
    Preempted,
}

impl Phase {
    /// Name of the phase in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Queued => "queued",
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
            Phase::Preempted => "preempted",
        }
    }
}

/// Event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Start of a step or of several equal ones.
    Steps(Segment),
    /// The replica becomes idle.
    Idle,
    /// A request arrives.
    Arrived {
        /// Number of the request.
        number: u64,
        /// Prompt tokens.
        input: u32,
        /// Tokens to generate.
        output: u32,
    },
    /// A phase of a request begins.
    Begins(u64, Phase),
    /// A phase of a request ends.
    Ends(u64, Phase),
    /// A request has ended.
    Left(u64),
}

/// The first events of a replica.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    most: u64,
    /// Events so far, including the future ends of open phases.
    count: u64,
    events: Vec<(Ticks, Event)>,
    /// The requests present, and the phase of each.
    open: BTreeMap<u64, Phase>,
    /// End of the last step, and the latest reported time.
    end: Ticks,
    latest: Ticks,
    cut: bool,
}

impl Trace {
    /// A trace of at most `most` events.
    pub fn new(most: u64) -> Trace {
        Trace { most, ..Trace::default() }
    }

    /// True if `events` more are kept; once false, no further events are kept.
    fn room(&mut self, at: Ticks, events: u64) -> bool {
        self.cut |= self.count + events > self.most;
        if !self.cut {
            self.count += events;
            self.latest = self.latest.max(at);
        }
        !self.cut
    }

    pub(super) fn arrived(&mut self, arrival: &Arrival) {
        // Four events: the request arrives and leaves, its first phase begins and ends.
        if self.room(arrival.at, 4) {
            let Arrival { number, input, output, .. } = *arrival;
            self.events.push((arrival.at, Event::Arrived { number, input, output }));
            self.begin(number, Phase::Queued, arrival.at);
        }
    }

    pub(super) fn mark(&mut self, number: u64, mark: Mark, at: Ticks) {
        let Some(now) = self.open.get(&number).copied() else { return };
        let next = match mark {
            Mark::Admitted => Some(Phase::Prefill),
            Mark::Decoding if now == Phase::Prefill => Some(Phase::Decode),
            Mark::Decoding => return,
            Mark::Preempted => Some(Phase::Preempted),
            Mark::Resumed => Some(Phase::Decode),
            Mark::Finished => None,
        };
        if !self.room(at, if next.is_some() { 2 } else { 0 }) {
            return;
        }
        self.events.push((at, Event::Ends(number, now)));
        match next {
            Some(phase) => self.begin(number, phase, at),
            None => {
                self.open.remove(&number);
                self.events.push((at, Event::Left(number)));
            }
        }
    }

    fn begin(&mut self, number: u64, phase: Phase, at: Ticks) {
        self.events.push((at, Event::Begins(number, phase)));
        self.open.insert(number, phase);
    }

    pub(super) fn computed(&mut self, segment: &Segment) {
        // A slice and two counters, and two more counters if an idle gap follows.
        if !self.room(segment.end, 5) {
            return;
        }
        if segment.start > self.end {
            self.events.push((self.end, Event::Idle));
        }
        self.end = segment.end;
        self.events.push((segment.start, Event::Steps(*segment)));
    }

    /// The events in order of time, with all open phases ended, and the time at which the trace was cut.
    pub fn close(mut self) -> (Vec<(Ticks, Event)>, Option<Ticks>) {
        for (number, phase) in &self.open {
            self.events.push((self.latest, Event::Ends(*number, *phase)));
            self.events.push((self.latest, Event::Left(*number)));
        }
        self.events.push((self.end, Event::Idle));
        self.events.sort_by_key(|(at, _)| *at);
        (self.events, self.cut.then_some(self.latest))
    }
}
