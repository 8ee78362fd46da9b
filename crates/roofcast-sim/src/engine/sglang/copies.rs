//! Copies between the device and HiCache's host tier: their ends, and the delays that they cause for batches.
//!
//! Knows: copies in one direction follow each other over the link, and both directions run in parallel. A batch with
//! loaded tokens waits layer by layer for its loads. With `write_back` a decision waits until the evicted tokens are on
//! the host. Knows nothing about links that several accelerators share. Source: SGLang 0.5.23,
//! `managers/cache_controller.py` and `mem_cache/l2_transfer.py`.

use super::Sglang;
use crate::engine::link::{Direction, Link};
use crate::scheduler::sglang::{Moves, Step, Submission};
use crate::scheduler::state::decodes::Decodes;
use roofcast_facts::clock::Ticks;

/// Exposed time of loads: the delay of a batch that computes for `compute` and whose loads of `tokens` tokens began
/// `ahead` of the batch of `layers` layers. A layer begins when the previous layer is computed and the layer's own KV is loaded.
fn wait(link: &Link, layers: u64, tokens: u64, compute: Ticks, ahead: Ticks) -> Ticks {
    let load = link.time(Direction::Load, tokens).0;
    let layers = u128::from(layers.max(1));
    let first = (load / layers).saturating_sub(ahead.0);
    let last = (load + compute.0 / layers).saturating_sub(ahead.0 + compute.0);
    if tokens == 0 { Ticks::ZERO } else { Ticks(first.max(last)) }
}

impl<D: Decodes> Sglang<D> {
    /// Reports the copies that have ended by `now` to the scheduler.
    pub(super) fn settle(&mut self, now: Ticks) {
        let Some(link) = &mut self.link else { return };
        while let Some(ended) = link.take_ended(now) {
            match ended.direction {
                Direction::Store => self.scheduler.stored(),
                Direction::Load => {
                    self.tally.loading += ended.took;
                    self.scheduler.loaded();
                }
            }
        }
    }

    /// Submits the copies that the last decision requested to the link; returns the number of tokens for which the
    /// decision waited.
    pub(super) fn moved(&mut self) -> u64 {
        let Some(link) = &mut self.link else { return 0 };
        let Moves { submitted, written_back, stores, dropped, .. } = self.scheduler.take_moves();
        for submission in submitted {
            match submission {
                Submission::Store(tokens) => link.submit(Direction::Store, 0, tokens, self.clock),
                Submission::Load(tokens) => link.submit(Direction::Load, 0, tokens, self.clock),
            }
        }
        self.tally.stored_tokens += stores.iter().map(|[_, _, tokens]| tokens).sum::<u64>();
        self.tally.dropped_tokens += dropped;
        written_back
    }

    /// Exposed time of copies in ticks: the delay of a batch that computes for `compute` ticks, for its loads and for
    /// `written_back` tokens.
    pub(super) fn copying(&mut self, step: &Step, compute: u64, written_back: u64) -> u64 {
        let Some(link) = &self.link else { return 0 };
        let loaded = step.loads.iter().map(|(_, _, loaded)| loaded).sum();
        let ahead = self.pending.as_ref().map_or(Ticks::ZERO, |before| Ticks::from(before.time));
        let layers = self.config.host.map_or(1, |host| host.layers);
        let waits = wait(link, layers, loaded, Ticks::from(compute), ahead)
            + link.time(Direction::Store, written_back);
        self.tally.loaded_tokens += loaded;
        self.tally.host_hits += loaded;
        self.tally.swapping += waits;
        for &(_, found, loaded) in &step.loads {
            self.tally.spared += self.price.prompt(loaded, found + loaded);
        }
        waits.narrow()
    }

    /// True if copies over the link are in flight.
    pub(super) fn copies(&self) -> bool {
        self.scheduler.host().is_some_and(|[_, stores, loads]| stores + loads > 0)
    }

    /// Advances the clock to the end of the next copy, for requests that wait for memory that the copy locks. Returns
    /// false if no copy is in flight.
    pub(super) fn await_copy(&mut self) -> bool {
        let link = self.link.as_ref().filter(|_| self.scheduler.waiting_count() > 0);
        let Some(end) = link.and_then(Link::next_end) else { return false };
        let end = end.max(self.clock);
        self.tally.idle += end - self.clock;
        self.clock = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::kv_cache::tier::CopySpeed;
    use roofcast_facts::units::Picoseconds;

    /// 4 layers, 1 ns per token, so 400 tokens take 100 ns per layer. A batch with 40 ns per layer waits until 400 ns
    /// for the last layer's KV and ends at 440: 280 more than its own 160. A batch with 200 ns per layer waits for the
    /// first layer only. Loads that began 150 ns earlier reduce the wait by 150 ns.
    #[test]
    fn a_batch_waits_layer_by_layer() {
        let link = Link::new(CopySpeed { store_s: 1e-9, load_s: 1e-9, latency_s: 0.0, share: 1.0 });
        let ns = |n: u64| Ticks::from(Picoseconds(1000 * n));
        let wait = |tokens, compute, ahead| wait(&link, 4, tokens, compute, ahead);
        assert_eq!(wait(400, ns(160), Ticks::ZERO), ns(280));
        assert_eq!(wait(400, ns(800), Ticks::ZERO), ns(100));
        assert_eq!(wait(400, ns(160), ns(150)), ns(130));
        assert_eq!(wait(400, ns(800), ns(150)), Ticks::ZERO);
        assert_eq!(wait(0, ns(800), Ticks::ZERO), Ticks::ZERO);
    }
}
