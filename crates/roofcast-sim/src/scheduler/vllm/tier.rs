//! The scheduler's side of vLLM's host tier (`--kv-offloading-size`, OffloadingConnector): look-ups at admission, loads
//! for which a request waits, stores at the end of each step, and the jobs that the worker must finish before a step.
//!
//! Knows: whole chunks are loaded and stored. A request whose blocks are being loaded waits in a separate queue. A
//! store does not keep its blocks allocated, so that a step that reuses them flushes the store. Source: vLLM 0.33,
//! `distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py` and `v1/core/sched/scheduler.py`. Knows nothing
//! about time: the driver reports the jobs that are done.

mod frees;
mod held;
mod leap;
mod lookup;
mod states;
mod storage;
mod taken;

use super::blocks::Table;
use super::transfers::{OffloadConfig, Transfers};
use super::{RequestId, Scheduler, Step};
use crate::kv_cache::names::Name;
use crate::kv_cache::offload::{Chunks, Offload, Residence};
use crate::kv_cache::spans::{Ranges, Spans, overlap};

use lookup::Run;
use states::States;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use storage::Storage;
use taken::Taken;

/// Progress of a request's asynchronous load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    None,
    Loading,
    Arrived,
}

/// State of one request in the connector.
#[derive(Debug, Clone, Default)]
struct State {
    number: u64,
    /// Number of chunks offered to the host so far.
    next: usize,
    jobs: BTreeSet<u64>,
    /// Number of the request's blocks in each group of layers of which the connector knows.
    seen: usize,
    /// [`RequestState::covered`](super::request::RequestState::covered) when the blocks were counted last.
    covered: u64,
    phase: Phase,
    finished: bool,
    aborted: bool,
    /// Number of the last step that computes the request.
    last_step: u64,
    /// True if storage was asked for the request's chunks.
    asked: bool,
    /// Chunks that came from storage for this request.
    promoted: Ranges,
    /// Chunks that the last look-up found on the host.
    run: Option<Run>,
}

#[derive(Debug, Clone)]
struct Job {
    id: RequestId,
    contents: Vec<Range<Name>>,
    /// Blocks that a store reads; `None` for a load.
    blocks: Option<Spans>,
    sync: bool,
}

/// The host tier, and the copies to and from it.
#[derive(Debug, Clone)]
pub(super) struct Tier {
    config: OffloadConfig,
    host: Offload,
    /// Storage below the host; `None` without it.
    storage: Option<Storage>,
    states: States,
    jobs: BTreeMap<u64, Job>,
    started: u64,
    /// For each store in flight, the blocks that it reads although the request does not hold them any more.
    fences: BTreeMap<u64, Spans>,
    /// For each load job, blocks of aborted requests that the load still writes.
    orphans: BTreeMap<u64, Vec<Spans>>,
    /// Blocks allocated in this step.
    taken: Taken,
    /// Number of tokens loaded synchronously in this step.
    sync_tokens: u64,
    /// Requests that ended since the last step, in order.
    ended: Vec<RequestId>,
    /// Requests that wait while they hold blocks, for a load or for room to run.
    pub(super) waiting: VecDeque<RequestId>,
    /// Number of decided steps with tokens; `applied` is the number of these whose output has arrived.
    decided: u64,
    applied: u64,
    /// Blocks to be freed when the output of a step has arrived, with the number of that step.
    frees: VecDeque<(u64, Spans)>,
    transfers: Transfers,
}

impl Tier {
    pub(super) fn new(config: OffloadConfig) -> Tier {
        Tier {
            config,
            host: Offload::new(config.chunks, config.eviction_policy, config.store_threshold),
            storage: config.storage_chunks.map(Storage::new),
            states: States::default(),
            jobs: BTreeMap::new(),
            started: 0,
            fences: BTreeMap::new(),
            orphans: BTreeMap::new(),
            taken: Taken::default(),
            sync_tokens: 0,
            ended: Vec::new(),
            waiting: VecDeque::new(),
            decided: 0,
            applied: 0,
            frees: VecDeque::new(),
            transfers: Transfers::default(),
        }
    }

    pub(super) fn add(&mut self, id: RequestId, number: u64) {
        self.states.insert(id, State { number, ..State::default() });
    }

    /// Number of tokens on the host that follow the first `local` tokens of `contents`, which are blocks of `block`
    /// tokens each.
    pub(super) fn found(&self, contents: &Spans, block: u64, local: u64) -> u64 {
        let per = self.config.blocks_per_chunk;
        let chunk = per as u64 * block;
        let mut chunks = (local / chunk) as usize;
        let is_resident = |name: Name| self.host.residence(name) != Residence::Absent;
        while contents.get((chunks + 1) * per - 1).is_some_and(is_resident) {
            chunks += 1;
        }
        (chunks as u64 * chunk).saturating_sub(local)
    }

    /// True if an asynchronous load in flight transfers any of the contents.
    fn loads(&self, contents: &[Chunks]) -> bool {
        let loads = self.jobs.values().filter(|job| job.blocks.is_none() && !job.sync);
        let loaded =
            |names: &Range<Name>| loads.clone().flat_map(|job| &job.contents).any(|l| overlap(l, names));
        contents.iter().any(|chunks| loaded(&chunks.names))
    }

    fn start(&mut self, job: Job) -> u64 {
        let number = self.started;
        self.started += 1;
        if let Some(state) = self.states.get_mut(&job.id) {
            state.jobs.insert(number);
        }
        self.jobs.insert(number, job);
        number
    }

    /// Makes every step that allocates a block which store `job` reads wait for that store.
    fn fence(&mut self, job: u64) {
        let blocks = self.jobs.get(&job).and_then(|job| job.blocks.clone()).unwrap_or_default();
        self.fence_blocks(job, &blocks);
    }

    fn fence_blocks(&mut self, job: u64, blocks: &Spans) {
        if !blocks.is_empty() {
            self.fences.entry(job).or_default().extend(blocks, 0);
        }
    }
}

impl Scheduler {
    /// Begins a new step of the connector. Blocks that may have been freed while stores read them keep their addresses.
    pub(super) fn begin_transfers(&mut self) {
        let Some(tier) = &mut self.tier else { return };
        tier.taken.begin();
        tier.sync_tokens = 0;
        tier.transfers = Transfers::default();
        let ended = tier.ended.iter().flat_map(|id| &self.requests[*id].tables).map(Table::known);
        let read = tier.fences.values().chain(ended).flat_map(Spans::ranges);
        self.pool.protected = Ranges::of(read.collect());
    }

    /// Numbers of chunks on the host: resident, idle, and being copied there; `None` without a host tier.
    pub fn host(&self) -> Option<[u64; 3]> {
        self.tier.as_ref().map(|tier| tier.host.counts())
    }

    /// Requests that wait for a load, or were not considered since it arrived, in order of their indices.
    pub fn loading(&self) -> Vec<RequestId> {
        let states = self.tier.iter().flat_map(|tier| tier.states.iter());
        states.filter(|(_, state)| state.phase != Phase::None).map(|(id, _)| id).collect()
    }

    /// True while a copy is in flight, or the end of a request is not known to the connector.
    pub fn transfers(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| !tier.jobs.is_empty() || !tier.ended.is_empty())
    }

    /// True if a request has ended and the connector does not know it yet, so that the index must not be reused.
    pub(crate) fn is_unannounced(&self, id: RequestId) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.ended.contains(&id))
    }

    /// Reports jobs that the worker has finished.
    pub fn finish_jobs(&mut self, jobs: &[u64]) {
        let Some(tier) = &mut self.tier else { return };
        self.steady.disturb();
        for number in jobs {
            let Some(job) = tier.jobs.remove(number) else { continue };
            match &job.blocks {
                Some(_) => {
                    tier.host.stored(&job.contents);
                    tier.cascade(&job.contents);
                }
                None => tier.host.loaded(&job.contents),
            }
            tier.fences.remove(number);
            let arrived = job.blocks.is_none() && !job.sync;
            for blocks in tier.orphans.remove(number).unwrap_or_default() {
                self.pool.release(&blocks);
            }
            // The index of a request that has ended may have been reused.
            let Some(state) = tier.states.get_mut(&job.id) else { continue };
            if !state.jobs.remove(number) {
                continue;
            }
            if arrived {
                state.phase = Phase::Arrived;
            }
            if state.finished && state.jobs.is_empty() {
                tier.states.remove(&job.id);
            }
        }
    }

    /// Ends a step: flushes jobs whose blocks the step allocated, and stores the chunks that the step completes.
    pub(super) fn connect(&mut self, step: &mut Step) {
        let Some(mut tier) = self.tier.take() else { return };
        if !step.scheduled.is_empty() {
            tier.decided += 1;
        }
        for (id, _) in &step.scheduled {
            let Some(state) = tier.states.get_mut(id) else { continue };
            state.last_step = tier.decided;
            let r = &self.requests[*id];
            if r.covered == state.covered && r.covered > 0 {
                continue;
            }
            if step.new.contains(id) || step.resumed.contains(id) {
                state.seen = 0;
            }
            r.tables.iter().for_each(|table| tier.taken.extend(&table.blocks, state.seen));
            state.seen = r.tables[0].blocks.len();
            state.covered = r.covered;
        }
        for id in &step.preempted {
            let Some(state) = tier.states.get(id) else { continue };
            let fresh = |job: &&u64| !tier.transfers.loads.iter().any(|load| load.job == **job);
            tier.transfers.flush.extend(state.jobs.iter().filter(fresh));
        }
        for (job, blocks) in &tier.fences {
            if tier.taken.has(blocks) {
                tier.transfers.flush.insert(*job);
            }
        }
        let ended = std::mem::take(&mut tier.ended);
        let per = tier.config.blocks_per_chunk;
        for &(id, _) in &step.scheduled {
            self.offer(&mut tier, id);
        }
        for &id in &ended {
            if tier.states.get(&id).is_some_and(|state| !state.aborted) {
                self.offer(&mut tier, id);
            }
        }
        for id in ended {
            let Some(state) = tier.states.get_mut(&id) else { continue };
            state.finished = true;
            let r = &self.requests[id];
            tier.host.end(state.number, |group, indices| r.chunks(per, group, indices));
            if state.jobs.is_empty() {
                tier.states.remove(&id);
            }
        }
        let later = std::mem::take(&mut step.transfers.later);
        step.transfers = Transfers { later, ..std::mem::take(&mut tier.transfers) };
        self.tier = Some(tier);
    }

    /// Offers the chunks that a request has completed to the host.
    fn offer(&mut self, tier: &mut Tier, id: RequestId) {
        let r = &self.requests[id];
        let Some(state) = tier.states.get_mut(&id) else { return };
        let per = tier.config.blocks_per_chunk;
        let chunk = per as u64 * self.config.block_size;
        let computed = if r.finished { r.prompt_len.max(r.known() - 1) } else { r.computed };
        let offered_tokens = if tier.config.offload_prompt_only { r.prompt_len } else { r.known() };
        let whole = (computed.min(r.known()).min(offered_tokens) / chunk) as usize;
        if whole <= state.next && self.config.windows == [None] {
            return;
        }
        self.name_contents(id, usize::MAX);
        let r = &self.requests[id];
        let end = whole.min(state.seen / per).min(r.contents[0].len() / per);
        let mut offered: Vec<Chunks> = Vec::new();
        for (group, window) in self.config.windows.iter().enumerate() {
            // A hit ends before the last known token, and needs only the window before its end.
            let (from, to) = match window {
                None => (state.next, end),
                Some(window) => {
                    let to = (computed.min(r.known() - 1).min(offered_tokens) / chunk) as usize;
                    let to = to.min(end);
                    (state.next.max(to.saturating_sub(window_chunks(*window, chunk))), to)
                }
            };
            let table = r.tables[group].known();
            let from = (from..to).find(|index| table.get(index * per).is_some());
            let from = from.unwrap_or(to);
            offered.extend(r.chunks(per, group, from as u32..to as u32));
        }
        if offered.is_empty() {
            state.next = state.next.max(end);
            return;
        }
        let Some(offer) = tier.host.offer(r.number, &offered) else {
            tier.transfers.refused.push(id);
            return;
        };
        state.next = end;
        tier.transfers.evicted.extend(offer.evicted);
        if offer.stored.is_empty() {
            return;
        }
        let mut early = Spans::default();
        let mut blocks = Spans::default();
        for Chunks { group, first, names } in &offer.stored {
            let table = r.tables[*group].known();
            let at = *first as usize * per..(*first as usize + names.len()) * per;
            // Blocks outside a window may be freed while the request runs.
            let of_group = if self.config.windows[*group].is_some() { &mut early } else { &mut blocks };
            of_group.extend(&table.slice(at), 0);
        }
        blocks.extend(&early, 0);
        let taken = r.finished && tier.taken.has(&blocks);
        let finished = r.finished;
        let contents = offer.stored.iter().map(|chunks| chunks.names.clone()).collect();
        let job = tier.start(Job { id, contents, blocks: Some(blocks), sync: false });
        tier.transfers.stores.push((job, id, offer.stored));
        if finished {
            tier.fence(job);
        } else {
            tier.fence_blocks(job, &early);
        }
        if taken {
            tier.transfers.flush.insert(job);
        }
    }

    /// Reports the end of a request to the connector, before the request's blocks are freed.
    pub(super) fn end_transfers(&mut self, id: RequestId) {
        let Some(tier) = &mut self.tier else { return };
        tier.ended.push(id);
        for job in tier.states.get(&id).map(|state| state.jobs.clone()).unwrap_or_default() {
            tier.fence(job);
        }
    }

    /// Removes a request before its end; blocks that its load writes are freed when the load has arrived.
    pub(super) fn abort_transfers(&mut self, id: RequestId) {
        self.end_transfers(id);
        let Some(tier) = &mut self.tier else { return };
        tier.waiting.retain(|waits| *waits != id);
        let Some(state) = tier.states.get_mut(&id) else { return };
        state.aborted = true;
        if let Some(load) = state.jobs.last().filter(|_| state.phase == Phase::Loading) {
            let tables = self.requests[id].tables.iter_mut();
            tier.orphans.insert(*load, tables.map(Table::take).collect());
        }
    }
}

/// Number of chunks that hold the part of a window before a hit's end.
fn window_chunks(window: u64, chunk: u64) -> usize {
    window.saturating_sub(1).div_ceil(chunk) as usize
}
