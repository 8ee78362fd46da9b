//! Times of copies between the device, vLLM's host tier and the storage below it: when they start, and when the
//! scheduler learns of their ends.
//!
//! Knows: loads start with the step that decides them, stores start when that step is computed. A step waits for the
//! copies that it flushes and for the loads of its requests; ends of copies are reported with the results of a step.
//! While no request can run, time advances to the end of the next copy. Copies between host and storage start when they
//! are decided, one after another in each direction. Source: vLLM 0.33,
//! `v1/kv_offload/worker/worker.py` and `distributed/kv_transfer/kv_connector/v1/offloading/worker.py`. Knows nothing
//! about which chunks are copied.

use super::Blocks;
use crate::engine::event::HostCopy;
use crate::engine::link::{Direction, Ended, Link};
use crate::kv_cache::offload::Chunks;
use crate::scheduler::vllm::{SchedulerConfig, Step};
use roofcast_ask::arrival::Departure;
use roofcast_ask::kv_cache::tier::HostTier;
use roofcast_facts::clock::Ticks;

impl Blocks {
    /// Returns the engine with the host tier of its settings; `host` describes the tier.
    pub(in crate::engine) fn tiered(self, host: Option<HostTier>) -> Blocks {
        let storage = host.and_then(|host| host.storage).map(|storage| Link::new(storage.speed));
        Blocks { link: host.map(|host| Link::new(host.speed)), storage, ..self }
    }

    /// Starts the loads of a step, and delays the step until the copies that it needs have ended.
    pub(super) fn begin_copies(&mut self, step: &Step) {
        let Some(link) = &mut self.link else { return };
        let transfers = &step.transfers;
        for load in &transfers.loads {
            link.submit(Direction::Load, load.job, load.tokens, self.clock);
        }
        let tokens = chunk_tokens(&self.config);
        for (job, _, chunks) in transfers.stores.iter().filter(|(job, ..)| transfers.flush.contains(job)) {
            link.submit(Direction::Store, *job, tokens * count(chunks), self.clock);
        }
        let here = transfers.loads.iter().filter(|load| load.sync).map(|load| load.job);
        let awaited: Vec<u64> = here.chain(transfers.flush.iter().copied()).collect();
        if !awaited.is_empty() {
            let end = link.end_of(|job| awaited.contains(&job)).max(self.clock);
            self.tally.swapping += end - self.clock;
            self.clock = end;
        }
    }

    /// Starts the stores of a step, after the step is computed.
    pub(super) fn begin_stores(&mut self, step: &Step) {
        if self.link.is_none() || step.transfers.stores.is_empty() {
            return;
        }
        let tokens = chunk_tokens(&self.config);
        let Some(link) = &mut self.link else { return };
        for (job, _, chunks) in &step.transfers.stores {
            let copied = tokens * count(chunks);
            self.tally.stored_tokens += copied;
            if !step.transfers.flush.contains(job) {
                link.submit(Direction::Store, *job, copied, self.clock);
            }
        }
    }

    /// Counts the loads of a step.
    pub(super) fn note_loads(&mut self, step: &Step) {
        for load in &step.transfers.loads {
            self.requests[load.id].before_load = Some((load.local, load.promoted));
            self.tally.loaded_tokens += load.tokens;
            self.tally.spared += self.price.prompt(load.tokens, load.local + load.tokens);
        }
    }

    /// Starts the copies between host and storage that were decided at `now`.
    pub(super) fn begin_storage_copies(&mut self, now: Ticks) {
        let Some(storage) = &mut self.storage else { return };
        for copy in self.scheduler.take_storage_copies() {
            let tokens = chunk_tokens(&self.config) * copy.chunks as u64;
            let (direction, copied) = if copy.promotes {
                (Direction::Load, &mut self.tally.storage_loaded_tokens)
            } else {
                (Direction::Store, &mut self.tally.storage_stored_tokens)
            };
            *copied += tokens;
            storage.submit(direction, copy.job, tokens, now);
        }
    }

    /// Reports the copies that have ended to the scheduler.
    pub(super) fn settle(&mut self) {
        while let Some(ended) = self.link.as_mut().and_then(|link| link.take_ended(self.clock)) {
            if ended.direction == Direction::Load {
                self.tally.loading += ended.took;
            }
            self.note_copy(ended);
            self.scheduler.finish_jobs(&[ended.job]);
            self.begin_storage_copies(ended.at);
        }
        while let Some(ended) = self.storage.as_mut().and_then(|storage| storage.take_ended(self.clock)) {
            if ended.direction == Direction::Load {
                self.tally.storage_loading += ended.took;
            }
            self.scheduler.finish_storage_copy(ended.job);
        }
    }

    /// Records a copy that has ended, if a driver reports it.
    fn note_copy(&mut self, ended: Ended) {
        if self.events.is_some()
            && let Some(link) = &self.link
        {
            let loads = ended.direction == Direction::Load;
            let time = link.time(ended.direction, ended.tokens);
            self.copies.push(HostCopy { loads, tokens: ended.tokens, time });
        }
    }

    /// Moves the copies that ended since the last call to `into`.
    pub(in crate::engine) fn take_copies(&mut self, into: &mut Vec<HostCopy>) {
        into.append(&mut self.copies);
    }

    /// Number of tokens that are being copied to the host, and back.
    pub(in crate::engine) fn copying(&self) -> [u64; 2] {
        let directions = [Direction::Store, Direction::Load];
        directions.map(|direction| self.link.as_ref().map_or(0, |link| link.in_flight(direction)))
    }

    /// Advances to the end of the next copy, or to `horizon`, while requests wait and none runs. Returns false if no
    /// copy is in flight.
    pub(super) fn await_copy(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        if self.link.is_none() || self.pending.iter().any(|step| !step.work.is_empty()) {
            return false;
        }
        while !self.pending.is_empty() {
            self.deliver(departed);
        }
        let ends = [&self.link, &self.storage].into_iter().flatten().filter_map(Link::next_end);
        let Some(end) = ends.min() else { return false };
        let until = if horizon > self.clock { end.min(horizon) } else { end }.max(self.clock);
        self.tally.idle += until - self.clock;
        self.clock = until;
        self.settle();
        true
    }
}

/// Number of chunks.
fn count(chunks: &[Chunks]) -> u64 {
    chunks.iter().map(|chunks| chunks.names.len() as u64).sum()
}

/// Number of tokens per chunk.
fn chunk_tokens(config: &SchedulerConfig) -> u64 {
    config.offload.map_or(0, |offload| offload.blocks_per_chunk as u64 * config.block_size)
}
