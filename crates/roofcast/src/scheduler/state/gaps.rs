//! Times between the tokens of sequences that decode in lockstep.
//!
//! Knows: sequences that decoded in the last step share its end as the time of their last token; the others joined
//! since.

use super::State;
use crate::clock::Ticks;
use crate::scheduler::state::decodes::Decodes;

impl<D: Decodes> State<D> {
    /// Adds a sequence to the decoding ones, its last token as of `last`. A sequence whose last token came with the
    /// last step of decodes counts as part of that step.
    #[inline(always)]
    pub(super) fn join(&mut self, last: Ticks) {
        match self.joined.last_mut() {
            _ if last == self.decoded => {}
            Some((at, count)) if *at == last => *count += 1,
            _ => self.joined.push((last, 1)),
        }
    }

    /// Records `steps` steps of decodes that began at the clock, the first taking `first` ticks and each later one
    /// `growth` more, and ended at `end`.
    #[inline(always)]
    pub(crate) fn decoded(&mut self, steps: u64, first: u64, growth: u64, end: Ticks) {
        let n = self.decodes.len();
        self.tally.decode_steps += steps;
        if self.joined.is_empty() && self.decoded == self.clock {
            self.tally.itl.add_run(first, growth, steps, n);
        } else {
            let joined: u64 = self.joined.iter().map(|(_, count)| count).sum();
            let one = self.clock + Ticks::from(first);
            for (last, count) in self.joined.drain(..) {
                self.tally.itl.add(one - last, count);
            }
            self.tally.itl.add(one - self.decoded, n - joined);
            self.tally.itl.add_run(first + growth, growth, steps - 1, n);
        }
        self.decoded = end;
    }
}
