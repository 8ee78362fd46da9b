//! Copies between the device and HiCache's host tier: their ends, and the delays that they cause for batches.
//!
//! Knows: copies in one direction follow each other over the link, both directions run in parallel, a batch with
//! loaded tokens waits layer by layer for its loads, and with `write_back` a decision waits until the evicted tokens
//! are on the host. Knows nothing about links that several accelerators share. Source: SGLang 0.5.23,
//! `managers/cache_controller.py` and `mem_cache/l2_transfer.py`.

use super::Sglang;
use crate::clock::Ticks;
use crate::kv_cache::tier::HostTier;
use crate::scheduler::sglang::{Moves, Step, Submission};
use crate::scheduler::state::decodes::Decodes;
use crate::units::Picoseconds;
use std::collections::VecDeque;

/// Copies in flight.
#[derive(Debug, Clone)]
pub(super) struct Copies {
    tier: HostTier,
    /// Ends of the copies to the host and of the loads from it, in order.
    storing: VecDeque<Ticks>,
    loading: VecDeque<Ticks>,
}

impl Copies {
    pub(super) fn new(tier: HostTier) -> Copies {
        Copies { tier, storing: VecDeque::new(), loading: VecDeque::new() }
    }

    /// Time of `tokens` on the link.
    fn time(&self, tokens: u64) -> Ticks {
        Ticks::from(Picoseconds::from_seconds(tokens as f64 * self.tier.seconds_per_token))
    }

    fn submit(&mut self, submission: Submission, now: Ticks) {
        let (queue, tokens) = match submission {
            Submission::Store(tokens) => (&self.storing, tokens),
            Submission::Load(tokens) => (&self.loading, tokens),
        };
        let end = queue.back().map_or(now, |last| now.max(*last)) + self.time(tokens);
        match submission {
            Submission::Store(_) => self.storing.push_back(end),
            Submission::Load(_) => self.loading.push_back(end),
        }
    }

    /// Exposed time of loads: the delay of a batch of `compute` whose loads of `tokens` began `ahead` of the batch. A
    /// layer begins when the previous one is computed and its own KV is loaded.
    fn wait(&self, tokens: u64, compute: Ticks, ahead: Ticks) -> Ticks {
        let (load, layers) = (self.time(tokens).0, u128::from(self.tier.layers.max(1)));
        let first = (load / layers).saturating_sub(ahead.0);
        let last = (load + compute.0 / layers).saturating_sub(ahead.0 + compute.0);
        if tokens == 0 { Ticks::ZERO } else { Ticks(first.max(last)) }
    }
}

impl<D: Decodes> Sglang<D> {
    /// Reports the copies that have ended by `now` to the scheduler.
    pub(super) fn settle(&mut self, now: Ticks) {
        let Some(copies) = &mut self.copies else { return };
        while copies.storing.pop_front_if(|end| *end <= now).is_some() {
            self.scheduler.stored();
        }
        while copies.loading.pop_front_if(|end| *end <= now).is_some() {
            self.scheduler.loaded();
        }
    }

    /// Submits the copies that the decision handed to the link; returns the tokens that the decision waited for.
    pub(super) fn moved(&mut self) -> u64 {
        let Some(copies) = &mut self.copies else { return 0 };
        let Moves { submitted, written_back, stores, dropped, .. } = self.scheduler.take_moves();
        submitted.into_iter().for_each(|submission| copies.submit(submission, self.clock));
        self.tally.stored_tokens += stores.iter().map(|[_, _, tokens]| tokens).sum::<u64>();
        self.tally.dropped_tokens += dropped;
        written_back
    }

    /// Exposed time of copies: the delay of a batch of `compute` for its loads and for `written_back` tokens.
    pub(super) fn copying(&mut self, step: &Step, compute: u64, written_back: u64) -> u64 {
        let Some(copies) = &self.copies else { return 0 };
        let loaded = step.loads.iter().map(|(_, _, loaded)| loaded).sum();
        let ahead = self.pending.as_ref().map_or(Ticks::ZERO, |before| Ticks::from(before.time));
        let waits = copies.wait(loaded, Ticks::from(compute), ahead) + copies.time(written_back);
        self.tally.loaded_tokens += loaded;
        self.tally.swapping += waits;
        waits.narrow()
    }

    /// True if copies are in flight.
    pub(super) fn copies(&self) -> bool {
        self.scheduler.host().is_some_and(|[_, stores, loads]| stores + loads > 0)
    }

    /// Advances the clock to the end of the next copy, if requests wait for memory that the copy locks; false if no
    /// copy is in flight.
    pub(super) fn await_copy(&mut self) -> bool {
        let Some(copies) = self.copies.as_ref().filter(|_| self.scheduler.waiting_count() > 0) else {
            return false;
        };
        let ends = copies.storing.front().into_iter().chain(copies.loading.front());
        let Some(end) = ends.min().copied() else { return false };
        let end = end.max(self.clock);
        self.tally.idle += end - self.clock;
        self.clock = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 layers, 1 ns a token. 400 tokens take 100 ns a layer. A batch of 40 ns a layer waits for the last layer's KV at 400
    /// and computes it: 440, 280 more than its 160. A batch of 200 ns a layer waits for the first layer alone. Loads that
    /// began 150 earlier are that much nearer.
    #[test]
    fn a_batch_waits_layer_by_layer() {
        let copies = Copies::new(HostTier { tokens: 0, seconds_per_token: 1e-9, layers: 4 });
        let ns = |n: u64| Ticks::from(Picoseconds(1000 * n));
        assert_eq!(copies.wait(400, ns(160), Ticks::ZERO), ns(280));
        assert_eq!(copies.wait(400, ns(800), Ticks::ZERO), ns(100));
        assert_eq!(copies.wait(400, ns(160), ns(150)), ns(130));
        assert_eq!(copies.wait(400, ns(800), ns(150)), Ticks::ZERO);
        assert_eq!(copies.wait(0, ns(800), Ticks::ZERO), Ticks::ZERO);
    }

    /// Copies to the host follow each other; loads go beside them.
    #[test]
    fn each_direction_is_a_queue() {
        let mut copies = Copies::new(HostTier { tokens: 0, seconds_per_token: 1e-9, layers: 4 });
        let ns = |n: u64| Ticks::from(Picoseconds(1000 * n));
        copies.submit(Submission::Store(100), ns(10));
        copies.submit(Submission::Store(50), ns(20));
        copies.submit(Submission::Load(5), ns(20));
        assert_eq!(
            (copies.storing, copies.loading),
            (VecDeque::from([ns(110), ns(160)]), VecDeque::from([ns(25)]))
        );
    }
}
