//! The blocks of a request: blocks that admission allocates and finds cached, contents that other requests can find,
//! and blocks that sliding windows free.
//!
//! Knows: groups of layers with different sliding windows allocate blocks from one pool, each group with its own
//! hashes. Source: vLLM 0.33, `v1/core/kv_cache_manager.py`, `kv_cache_coordinator.py` and
//! `single_type_kv_cache_manager.py`. Knows nothing about the order of requests.

use super::transfers::External;
use super::{Pass, RequestId, Scheduler, Step};
use crate::kv_cache::paged::{Block, Change};
use crate::kv_cache::spans::Spans;
use std::ops::Range;

/// The blocks of a request in one group of layers.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    /// Blocks in the order of the tokens that they hold.
    pub(super) blocks: Spans,
    /// Number of blocks, from the first on, that are outside the sliding window and were freed.
    given_back: usize,
    /// Number of blocks, from the first on, whose contents are published to the prefix cache.
    cached: usize,
    /// Blocks that the request held before it was preempted.
    former: Spans,
}

impl Table {
    /// The request's blocks, or after it was preempted or has ended those that it had.
    pub(super) fn known(&self) -> &Spans {
        if self.blocks.is_empty() { &self.former } else { &self.blocks }
    }

    fn held(&self) -> Spans {
        self.blocks.slice(self.given_back..self.blocks.len())
    }

    /// Takes all held blocks out of the table.
    pub(super) fn take(&mut self) -> Spans {
        let blocks = self.held();
        *self = Table::default();
        blocks
    }
}

/// Result of an admission.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    /// Number of tokens computed in this step.
    pub(super) tokens: u64,
    /// Number of tokens found in the prefix cache.
    pub(super) cached: u64,
    /// True if more than the last token had to be computed.
    pub(super) prompt: bool,
}

/// Outcome of considering a waiting request.
pub(super) enum Admitted {
    /// Neither this request nor a later one is admitted.
    No,
    /// The request is considered again in a later step.
    Later,
    /// The request waits for a load from the host.
    Loads,
    /// The request runs.
    Runs(Admission),
}

/// The blocks of one group before the tokens that a step computes.
struct Room {
    /// Number of blocks that are cached, or outside the window.
    start: u64,
    /// Range of the cached blocks within the window.
    hits: Range<usize>,
}

impl Scheduler {
    /// Admits a waiting request if budget and blocks allow; `held` are requests that wait with blocks allocated in this
    /// pass.
    pub(super) fn admit(&mut self, id: RequestId, pass: &Pass, step: &Step, held: &[RequestId]) -> Admitted {
        let known = self.requests[id].known();
        let hits = if self.config.enable_prefix_caching { self.hits(id) } else { 0 };
        self.steady.considered.push((id, hits));
        let local = hits as u64 * self.config.block_size;
        let loaded = match self.external(id, local) {
            External::Later => return Admitted::Later,
            External::Async(tokens) => return self.admit_load(id, hits, tokens, self.reserved(step, held)),
            External::Sync(tokens) => tokens,
        };
        let cached = local + loaded;
        // Transferred tokens are lost by a preemption; the last token is always computed here.
        let r = &self.requests[id];
        let given = if r.preempted { 0 } else { r.transferred.min(known - 1) };
        let computed = cached.max(given);
        let left = known - computed;
        if pass.decodes_alone && left > 1 {
            return Admitted::No;
        }
        let drafts = self.config.num_speculative_tokens;
        let pads = left == 1 && pass.pads && (cached > 0 || !self.running.is_empty());
        let padding = if pads { drafts } else { 0 };
        let wanted = left.min(pass.threshold.unwrap_or(u64::MAX)) + padding;
        if (pads || !self.config.enable_chunked_prefill) && wanted > pass.budget {
            return Admitted::No;
        }
        let tokens = wanted.min(pass.budget);
        let rooms: Vec<Room> =
            self.config.windows.iter().map(|window| self.room(*window, hits, computed)).collect();
        if !self.fits(id, &rooms, self.config.slots(computed + tokens), 0) {
            return Admitted::No;
        }
        self.take_in(id, &rooms, (computed, tokens));
        self.cache_full_blocks(id, computed + tokens);
        if loaded > 0 {
            self.start_load(id, local, loaded, true);
        }
        Admitted::Runs(Admission { tokens, cached, prompt: left > 1 })
    }

    /// Allocates the blocks of a request that waits for `tokens` tokens from the host, if `reserved` further blocks are
    /// free.
    fn admit_load(&mut self, id: RequestId, hits: usize, tokens: u64, reserved: u64) -> Admitted {
        let local = hits as u64 * self.config.block_size;
        let computed = local + tokens;
        let rooms: Vec<Room> =
            self.config.windows.iter().map(|window| self.room(*window, hits, computed)).collect();
        if !self.fits(id, &rooms, computed, reserved) {
            return Admitted::No;
        }
        self.take_in(id, &rooms, (computed, 0));
        self.start_load(id, local, tokens, false);
        Admitted::Loads
    }

    /// Allocates blocks up to `end` for a request that waits with blocks, if there is room for all of its known tokens.
    pub(super) fn extend(&mut self, id: RequestId, end: u64) -> bool {
        let block = self.config.block_size;
        let r = &self.requests[id];
        let whole = if self.config.scheduler_reserve_full_isl { r.known().div_ceil(block) } else { 0 };
        let slots = self.config.slots(end).div_ceil(block);
        let mut needed = 0;
        let mut needed_at_end = 0;
        for (table, window) in r.tables.iter().zip(&self.config.windows) {
            let held_blocks = table.blocks.len() as u64;
            needed += slots.saturating_sub(held_blocks);
            needed_at_end += whole.min(self.most_blocks(*window)).saturating_sub(held_blocks);
        }
        if needed_at_end.max(needed) + self.kept() > self.pool.free() {
            return false;
        }
        for table in &mut self.requests[id].tables {
            self.pool.allocate(slots.saturating_sub(table.blocks.len() as u64), &mut table.blocks);
        }
        self.cover(id);
        self.cache_full_blocks(id, end);
        true
    }

    /// Records for how many tokens a request has blocks.
    pub(super) fn cover(&mut self, id: RequestId) {
        if self.config.windows == [None] {
            let r = &mut self.requests[id];
            r.covered = r.tables[0].blocks.len() as u64 * self.config.block_size;
        }
    }

    /// Most blocks that a group of layers holds for one request; a sliding window frees blocks while a long prompt is
    /// computed.
    pub(super) fn most_blocks(&self, window: Option<u64>) -> u64 {
        let config = &self.config;
        let batches = if config.async_scheduling { 2 } else { 1 };
        window.map_or(u64::MAX, |window| {
            let tokens = window.saturating_sub(1) + batches * config.max_num_batched_tokens;
            tokens.min(config.max_model_len).div_ceil(config.block_size) + 1
        })
    }

    /// Number of blocks that stay free when a request is admitted while others run.
    fn kept(&self) -> u64 {
        if self.running.is_empty() {
            return 0;
        }
        (self.config.watermark * f64::from(self.config.num_gpu_blocks)) as u64
    }

    fn room(&self, window: Option<u64>, hits: usize, computed: u64) -> Room {
        let below = below_window(window, computed) / self.config.block_size;
        Room { start: below.max(hits as u64), hits: hits.min(below as usize)..hits }
    }

    /// True if enough blocks are free for a waiting request's tokens up to `end`, and for all of its known tokens if
    /// admission requires that.
    fn fits(&self, id: RequestId, rooms: &[Room], end: u64, reserved: u64) -> bool {
        let config = &self.config;
        let known = self.requests[id].known();
        let mut needed = 0;
        let mut whole = 0;
        for (room, window) in rooms.iter().zip(&config.windows) {
            needed += end.div_ceil(config.block_size).saturating_sub(room.start);
            whole +=
                known.div_ceil(config.block_size).min(self.most_blocks(*window)).saturating_sub(room.start);
        }
        let whole = if config.scheduler_reserve_full_isl { whole } else { 0 };
        let room = self.pool.free().checked_sub(whole.max(needed + reserved) + self.kept());
        room.is_some_and(|room| {
            let hits = rooms.iter().enumerate().map(|(group, room)| self.found(id, group, room.hits.clone()));
            hits.map(|hits| self.pool.unheld(&hits)).sum::<u64>() <= room
        })
    }

    /// Takes the cached blocks, and allocates blocks for `tokens` tokens after `computed` ones.
    fn take_in(&mut self, id: RequestId, rooms: &[Room], (computed, tokens): (u64, u64)) {
        let hits_of_groups: Vec<Spans> =
            rooms.iter().enumerate().map(|(group, room)| self.found(id, group, room.hits.clone())).collect();
        for ((hits, room), group) in hits_of_groups.into_iter().zip(rooms).zip(0..) {
            self.pool.hold(&hits);
            let below = room.start as usize - hits.len();
            let table = &mut self.requests[id].tables[group];
            table.blocks = Spans::default();
            table.blocks.skip(below);
            table.blocks.extend(&hits, 0);
            (table.given_back, table.cached) = (below, room.start as usize);
        }
        let end = self.config.slots(computed + tokens).div_ceil(self.config.block_size);
        let r = &mut self.requests[id];
        (r.computed, r.published) = (computed, 0);
        for table in &mut r.tables {
            self.pool.allocate(end.saturating_sub(table.blocks.len() as u64), &mut table.blocks);
        }
        self.cover(id);
    }

    /// Allocates blocks for the tokens of a running request up to `end`, after freeing the blocks outside its sliding
    /// windows; returns false if too few blocks are free.
    pub(super) fn grow(&mut self, id: RequestId, end: u64) -> bool {
        let block = self.config.block_size;
        let r = &mut self.requests[id];
        let certain = r.computed.saturating_sub(r.placeholders);
        let mut needed = 0;
        for (table, window) in r.tables.iter_mut().zip(&self.config.windows) {
            let below = (below_window(*window, certain) / block) as usize;
            if below > table.given_back {
                let below = below.min(table.blocks.len());
                self.pool.release(&table.blocks.slice(table.given_back..below));
                table.given_back = below;
            }
            needed += end.div_ceil(block).saturating_sub(table.blocks.len() as u64);
        }
        if needed > self.pool.free() {
            return false;
        }
        for table in &mut r.tables {
            self.pool
                .allocate(end.div_ceil(block).saturating_sub(table.blocks.len() as u64), &mut table.blocks);
        }
        self.cover(id);
        true
    }

    /// Frees all blocks of a request; a preempted request may find them again.
    pub(super) fn release(&mut self, id: RequestId) {
        let later = self.in_flight(id);
        (self.requests[id].covered, self.requests[id].published) = (0, 0);
        for at in 0..self.requests[id].tables.len() {
            let held_blocks = self.requests[id].tables[at].held();
            if later {
                self.free_later(held_blocks);
            } else {
                self.pool.release(&held_blocks);
            }
            let table = &mut self.requests[id].tables[at];
            *table = Table { former: std::mem::take(&mut table.blocks), ..Table::default() };
        }
    }

    /// Number of a request's first blocks that are cached in every group; at least the last token is computed again.
    fn hits(&mut self, id: RequestId) -> usize {
        let full = self.requests[id].known().saturating_sub(1) / self.config.block_size;
        let full = self.name_contents(id, full as usize);
        let windows = &self.config.windows;
        let mut hits = full;
        loop {
            let before = hits;
            // Check full attention first, and equal groups together.
            for (at, window) in windows
                .iter()
                .enumerate()
                .filter(|(_, window)| window.is_none())
                .chain(windows.iter().enumerate().filter(|(_, window)| window.is_some()))
            {
                if windows[..at].contains(window) {
                    continue;
                }
                let alike: Vec<usize> = (0..windows.len()).filter(|g| windows[*g] == *window).collect();
                let has = |index: usize| alike.iter().all(|group| self.find(id, *group, index).is_some());
                hits = match window {
                    None => first_absent(hits, has),
                    Some(window) => self.window_hit(*window, hits, has),
                };
            }
            if hits == before || windows.len() == 1 {
                break;
            }
        }
        if self.config.eagle && !self.config.rules.hashes_look_ahead {
            hits = hits.saturating_sub(1);
        }
        hits
    }

    /// The largest number of blocks, up to `most`, for which all blocks within a window of the next token are cached.
    fn window_hit(&self, window: u64, most: usize, has: impl Fn(usize) -> bool) -> usize {
        let within = window.saturating_sub(1).div_ceil(self.config.block_size) as usize;
        let mut end = most;
        let mut run = 0;
        for index in (0..most).rev() {
            if !has(index) {
                (end, run) = (index, 0);
                continue;
            }
            run += 1;
            if run >= within {
                break;
            }
        }
        if run > 0 { end } else { 0 }
    }

    /// The block with content `index` of a request in a group.
    pub(super) fn find(&self, id: RequestId, group: usize, index: usize) -> Option<Block> {
        let r = &self.requests[id];
        self.pool.find(r.contents[group].get(index)?, r.tables[group].former.get(index))
    }

    fn found(&self, id: RequestId, group: usize, range: Range<usize>) -> Spans {
        let r = &self.requests[id];
        let mut blocks = Spans::default();
        for (first, names) in r.contents[group].parts(range) {
            for (name, index) in names.zip(first..) {
                let block = self.pool.find(name, r.tables[group].former.get(index));
                block.into_iter().for_each(|block| blocks.push(block..block + 1));
            }
        }
        blocks
    }

    /// Publishes the full blocks among the first `filled` known tokens to the prefix cache.
    pub(super) fn cache_full_blocks(&mut self, id: RequestId, filled: u64) {
        if !self.config.enable_prefix_caching {
            return;
        }
        // The token of a placeholder is not known yet, so its block has no content.
        let known = filled.min(self.requests[id].known());
        if known < self.requests[id].published {
            return;
        }
        let full = self.name_contents(id, (known / self.config.block_size) as usize);
        let r = &mut self.requests[id];
        r.published = (full as u64 + 1) * self.config.block_size;
        for (group, table) in r.tables.iter_mut().enumerate() {
            let new = table.cached..full.min(table.blocks.len());
            for (first, mut blocks) in table.blocks.parts(new.start.max(table.given_back)..new.end) {
                for (_, names) in r.contents[group].parts(first..first + blocks.len()) {
                    let after = blocks.start + names.len() as Block;
                    self.pool.cache(blocks.start..after, names);
                    blocks.start = after;
                }
            }
            if let Some(changes) = self.pool.changes().filter(|_| group == 0 && !new.is_empty()) {
                let owner = id as u64;
                let first = new.start as u64;
                let contents = r.contents[0].slice(new).ranges().flatten().collect();
                changes.push(Change::Stored { owner, first, contents });
            }
            table.cached = table.cached.max(full);
        }
    }

    /// Computes the contents of a request's first `count` blocks, as far as the tokens that their hashes cover are
    /// known; returns the number of these blocks.
    pub(super) fn name_contents(&mut self, id: RequestId, count: usize) -> usize {
        let block = self.config.block_size;
        let ahead = self.config.hash_lookahead();
        let r = &mut self.requests[id];
        let count = count.min((r.known().saturating_sub(ahead) / block) as usize);
        if r.contents[0].len() >= count {
            return count;
        }
        let shared = count.min((r.own_from.saturating_sub(ahead) / block) as usize);
        let from = r.named;
        for names in r.contents.iter_mut().enumerate() {
            r.named = from;
            self.names.extend((names.0, &mut *names.1), r.tokens.runs(), &mut r.named, shared);
            self.names.extend_own(names, r.number, count);
        }
        count
    }
}

/// The first of `count` blocks that is not cached, by bisection: a request frees its blocks from the last to the first,
/// and with full attention the holder of a block holds all blocks before it, so that no cached block follows an absent
/// one.
fn first_absent(count: usize, has: impl Fn(usize) -> bool) -> usize {
    let mut present = 0;
    let mut end = count;
    while present < end {
        let middle = present + (end - present) / 2;
        if has(middle) { present = middle + 1 } else { end = middle }
    }
    debug_assert!((0..count).find(|index| !has(*index)).unwrap_or(count) == present);
    present
}

/// Number of `tokens`, from the first on, that are outside the window of every later token.
fn below_window(window: Option<u64>, tokens: u64) -> u64 {
    window.map_or(0, |window| (tokens + 1).saturating_sub(window))
}
