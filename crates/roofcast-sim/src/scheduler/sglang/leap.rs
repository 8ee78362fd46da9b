//! Leaps: several equal iterations taken at once.
//!
//! Knows: after a decode that changed nothing, the next decision is unchanged until a row ends, a waiting request is
//! considered, or pages run out. Knows nothing about time: the caller prices the steps and chooses their number.

use super::{ForwardMode, Scheduler, Step};

impl Scheduler {
    /// Number of decisions after `step`, which is the last one, that are unchanged if no request arrives. In the
    /// overlap loop the results of one decode of these rows are in flight.
    pub(crate) fn steady(&mut self, step: &Step) -> u64 {
        let looks = !self.waiting.is_empty() && (!self.full || self.config.preempts());
        if step.kind != ForwardMode::Decode || looks || !self.leaving.is_empty() {
            return 0;
        }
        let late = u64::from(self.overlaps());
        // A row that is removed before its last result arrives changes the decision one iteration earlier.
        let skips = if self.config.rules.skips_finishing_rows { late } else { 0 };
        let [bound, end] = self.running.next_ends();
        let results = self.running.results;
        let until = |end: Option<u64>, early: u64| end.map_or(u64::MAX, |end| end - results - 1 - early);
        until(bound, skips).min(until(end, 0))
    }

    /// Number of further equal decisions, at most `most`, whose pages are free or can be evicted.
    pub(crate) fn affordable(&self, most: u64) -> u64 {
        self.memory.decodes_that_fit(most)
    }

    /// Repeats the last decision `steps` times and processes the results that arrive meanwhile: the results of all
    /// decisions but the last, in the overlap loop of all but the last two. Returns the allocated tokens after each of
    /// these decisions, summed.
    pub(crate) fn repeat(&mut self, steps: u64) -> u128 {
        self.ratio.decay(steps);
        self.running.results += steps - u64::from(self.overlaps());
        self.memory.repeat(steps)
    }
}
