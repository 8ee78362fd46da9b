//! Times between the tokens of sequences that decode in lockstep.
//!
//! Knows: sequences that decoded in the last step have the end of that step as the time of their last token; the other
//! sequences have joined since. Knows nothing about which sequences decode.

use super::State;
use crate::scheduler::state::decodes::Decodes;
use roofcast_facts::clock::Ticks;

impl<D: Decodes> State<D> {
    /// Adds a sequence, with its last token at time `last`, to the decoding sequences. A sequence whose last token came
    /// with the last step of decodes counts as part of that step.
    #[inline(always)]
    pub(super) fn join(&mut self, last: Ticks) {
        match self.joined.last_mut() {
            _ if last == self.decoded => {}
            Some((at, count)) if *at == last => *count += 1,
            _ => self.joined.push((last, 1)),
        }
    }

    /// Records `steps` steps of decodes from the clock to `end`. The first takes `first` ticks, each later one `growth`
    /// more than the step before.
    #[inline(always)]
    pub(crate) fn decoded(&mut self, steps: u64, first: u64, growth: u64, end: Ticks) {
        let n = self.decodes.len();
        self.tally.decode_steps += steps;
        if self.joined.is_empty() && self.decoded == self.clock {
            self.tally.itl.add_run(first, growth, steps, n);
        } else {
            let joined: u64 = self.joined.iter().map(|(_, count)| count).sum();
            let first_end = self.clock + Ticks::from(first);
            for (last, count) in self.joined.drain(..) {
                self.tally.itl.add(first_end - last, count);
            }
            self.tally.itl.add(first_end - self.decoded, n - joined);
            self.tally.itl.add_run(first + growth, growth, steps - 1, n);
        }
        self.decoded = end;
    }
}
