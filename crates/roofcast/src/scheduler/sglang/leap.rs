//! Equal iterations taken at once.
//!
//! Knows: after a decode that changed nothing the next decision is the same until a row ends, a waiting request is
//! considered, or pages are missing. Knows nothing about time: the caller, who prices the steps, says how many are
//! wanted.

use super::{ForwardMode, Scheduler, Step};

impl Scheduler {
    /// How many decisions after `step`, the last one, are the same where no request arrives. In the overlap loop the
    /// results of a decode of the same rows are to come.
    pub fn steady(&mut self, step: &Step) -> u64 {
        let looks = !self.waiting.is_empty() && (!self.full || self.config.preempts());
        if step.kind != ForwardMode::Decode || looks || !self.leaving.is_empty() {
            return 0;
        }
        let late = u64::from(self.overlaps());
        // A row that is taken out before its last result is there changes the decision before.
        let skips = if self.config.rules.skips_finishing_rows { late } else { 0 };
        let [bound, end] = self.running.next_ends();
        let results = self.running.results;
        let until = |end: Option<u64>, early: u64| end.map_or(u64::MAX, |end| end - results - 1 - early);
        until(bound, skips).min(until(end, 0))
    }

    /// Of `most` decisions like the last one, those whose pages are there or can be evicted.
    pub fn affordable(&self, most: u64) -> u64 {
        self.memory.decodes_that_fit(most)
    }

    /// Decides `steps` times more like the last time, and processes the results on the way: all but those of the last
    /// decision, and in the overlap loop of the one before it. The sum over these decisions of the tokens taken for them.
    pub fn repeat(&mut self, steps: u64) -> u128 {
        self.ratio.decay(steps);
        self.running.results += steps - u64::from(self.overlaps());
        self.memory.repeat(steps)
    }
}
