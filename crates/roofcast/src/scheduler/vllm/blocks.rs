//! The blocks of a request: what admission takes and finds cached, what others can find of it, and what windows give back.
//!
//! Knows: groups of layers with windows of their own take blocks from one pool, each with its own hashes. Source: vLLM 0.33,
//! `v1/core/kv_cache_manager.py`, `kv_cache_coordinator.py` and `single_type_kv_cache_manager.py`. Knows nothing about which
//! request is next.

use super::{Pass, RequestId, Scheduler};
use crate::kv_cache::paged::{Block, Change};
use crate::kv_cache::prefix::Content;
use std::ops::Range;

/// What a request holds of one group.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    /// In the order of its tokens.
    pub(super) blocks: Vec<Block>,
    /// How many of these, from the first on, fell out of the window and were given back.
    given_back: usize,
    /// How many, from the first on, the pool knows the contents of.
    cached: usize,
    /// What it held before it was preempted.
    former: Vec<Block>,
}

impl Table {
    fn held(&self) -> &[Block] {
        &self.blocks[self.given_back..]
    }
}

/// What admission takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    /// Tokens in this step.
    pub(super) tokens: u64,
    /// Tokens found in the cache.
    pub(super) cached: u64,
    /// Whether more than its last token was left to compute.
    pub(super) prompt: bool,
}

/// How a group's blocks lie before the tokens that a step computes.
struct Room {
    /// Blocks of tokens that are found, or below the window.
    start: u64,
    /// Of those found, the ones within the window.
    hits: Range<usize>,
}

impl Scheduler {
    /// Admits a waiting request if budget and blocks allow.
    pub(super) fn admit(&mut self, id: RequestId, pass: &Pass) -> Option<Admission> {
        let known = self.requests[id].known();
        let hits = if self.config.enable_prefix_caching { self.hits(id) } else { 0 };
        let cached = hits as u64 * self.config.block_size;
        // What came from elsewhere is lost with a preemption; the last token is computed here in any case.
        let r = &self.requests[id];
        let given = if r.preempted { 0 } else { r.transferred.min(known - 1) };
        let computed = cached.max(given);
        let left = known - computed;
        if pass.decodes_alone && left > 1 {
            return None;
        }
        let drafts = self.config.num_speculative_tokens;
        let pads = left == 1 && pass.pads && (cached > 0 || !self.running.is_empty());
        let padding = if pads { drafts } else { 0 };
        let wanted = left.min(pass.threshold.unwrap_or(u64::MAX)) + padding;
        if (pads || !self.config.enable_chunked_prefill) && wanted > pass.budget {
            return None;
        }
        let tokens = wanted.min(pass.budget);
        let rooms: Vec<Room> =
            self.config.windows.iter().map(|window| self.room(*window, hits, computed)).collect();
        if !self.fits(id, &rooms, self.config.slots(computed + tokens)) {
            return None;
        }
        self.take_in(id, &rooms, (computed, tokens));
        Some(Admission { tokens, cached, prompt: left > 1 })
    }

    fn room(&self, window: Option<u64>, hits: usize, computed: u64) -> Room {
        let below = below_window(window, computed) / self.config.block_size;
        Room { start: below.max(hits as u64), hits: hits.min(below as usize)..hits }
    }

    /// Whether the blocks of a waiting request are free that it needs for its tokens up to place `end`, and for all it knows.
    fn fits(&self, id: RequestId, rooms: &[Room], end: u64) -> bool {
        let config = &self.config;
        let kept = if self.running.is_empty() {
            0
        } else {
            (config.watermark * f64::from(config.num_gpu_blocks)) as u64
        };
        let batches = if config.async_scheduling { 2 } else { 1 };
        // A window gives back blocks while a long prompt is computed.
        let most = |window: Option<u64>| match window {
            None => u64::MAX,
            Some(window) => {
                let tokens = window.saturating_sub(1) + batches * config.max_num_batched_tokens;
                tokens.min(config.max_model_len).div_ceil(config.block_size) + 1
            }
        };
        let known = self.requests[id].known();
        let (mut needed, mut whole, mut overhead) = (0, 0, kept);
        for (group, (room, window)) in rooms.iter().zip(&config.windows).enumerate() {
            needed += end.div_ceil(config.block_size).saturating_sub(room.start);
            whole += known.div_ceil(config.block_size).min(most(*window)).saturating_sub(room.start);
            overhead += self.pool.unheld(&self.found(id, group, room.hits.clone()));
        }
        let whole = if config.scheduler_reserve_full_isl { whole } else { 0 };
        whole.max(needed) + overhead <= self.pool.free()
    }

    /// Takes the blocks that were found, then new ones for `tokens` more than `computed`.
    fn take_in(&mut self, id: RequestId, rooms: &[Room], (computed, tokens): (u64, u64)) {
        let found: Vec<Vec<Block>> =
            rooms.iter().enumerate().map(|(group, room)| self.found(id, group, room.hits.clone())).collect();
        for ((found, room), group) in found.into_iter().zip(rooms).zip(0..) {
            self.pool.hold(&found);
            let below = room.start as usize - found.len();
            let table = &mut self.requests[id].tables[group];
            table.blocks = vec![Block::MAX; below];
            table.blocks.extend(found);
            (table.given_back, table.cached) = (below, room.start as usize);
        }
        let end = self.config.slots(computed + tokens).div_ceil(self.config.block_size);
        let r = &mut self.requests[id];
        r.computed = computed;
        for table in &mut r.tables {
            self.pool.allocate(end.saturating_sub(table.blocks.len() as u64), &mut table.blocks);
        }
        self.cache_full_blocks(id, computed + tokens);
    }

    /// Blocks for the tokens of a running request up to `end`; false where they are not free. What has fallen out of its
    /// windows is given back before.
    pub(super) fn grow(&mut self, id: RequestId, end: u64) -> bool {
        let block = self.config.block_size;
        let r = &mut self.requests[id];
        let certain = r.computed.saturating_sub(r.placeholders);
        let mut needed = 0;
        for (table, window) in r.tables.iter_mut().zip(&self.config.windows) {
            let below = (below_window(*window, certain) / block) as usize;
            if below > table.given_back {
                let below = below.min(table.blocks.len());
                self.pool.release(&table.blocks[table.given_back..below]);
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
        true
    }

    /// Gives back all that a request holds; one that is preempted may find it again.
    pub(super) fn release(&mut self, id: RequestId) {
        for table in &mut self.requests[id].tables {
            self.pool.release(table.held());
            *table = Table { former: std::mem::take(&mut table.blocks), ..Table::default() };
        }
    }

    /// How many blocks of a request's known tokens are cached that every group can go on from; at least its last token is
    /// computed anew.
    fn hits(&mut self, id: RequestId) -> usize {
        let full = self.requests[id].known().saturating_sub(1) / self.config.block_size;
        let full = self.name_contents(id, full as usize);
        let windows = &self.config.windows;
        let mut hits = full;
        loop {
            let before = hits;
            // Full attention is asked first, and groups that are alike are asked together.
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
                    None => (0..hits).take_while(|index| has(*index)).count(),
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

    /// The most blocks, of `most`, of which those within a window of the next token are cached.
    fn window_hit(&self, window: u64, most: usize, has: impl Fn(usize) -> bool) -> usize {
        let within = window.saturating_sub(1).div_ceil(self.config.block_size) as usize;
        let (mut end, mut run) = (most, 0);
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

    /// The block that holds content `index` of a request in a group.
    fn find(&self, id: RequestId, group: usize, index: usize) -> Option<Block> {
        let r = &self.requests[id];
        self.pool.find(r.contents[index].of_group(group), r.tables[group].former.get(index).copied())
    }

    fn found(&self, id: RequestId, group: usize, range: Range<usize>) -> Vec<Block> {
        range.filter_map(|index| self.find(id, group, index)).collect()
    }

    /// Publishes the full blocks among the first `filled` known tokens to the prefix cache.
    pub(super) fn cache_full_blocks(&mut self, id: RequestId, filled: u64) {
        if !self.config.enable_prefix_caching {
            return;
        }
        // A placeholder's token is not known yet, so its block has no content.
        let full = filled.min(self.requests[id].known()) / self.config.block_size;
        let full = self.name_contents(id, full as usize);
        let r = &mut self.requests[id];
        for (group, table) in r.tables.iter_mut().enumerate() {
            let new = table.cached..full.min(table.blocks.len());
            for index in new.clone().filter(|index| *index >= table.given_back) {
                self.pool.cache(table.blocks[index], r.contents[index].of_group(group));
            }
            if let Some(changes) = self.pool.changes().filter(|_| group == 0 && !new.is_empty()) {
                let (owner, first) = (id as u64, new.start as u64);
                changes.push(Change::Stored { owner, first, contents: r.contents[new].to_vec() });
            }
            table.cached = table.cached.max(full);
        }
    }

    /// Names the contents of a request's first `count` blocks, as far as the tokens are known that their hashes cover; how
    /// many of these are named.
    fn name_contents(&mut self, id: RequestId, count: usize) -> usize {
        let (block, ahead) = (self.config.block_size, self.config.hash_lookahead());
        let r = &mut self.requests[id];
        let count = count.min((r.known().saturating_sub(ahead) / block) as usize);
        let shared = (r.own_from.saturating_sub(ahead) / block) as usize;
        while r.contents.len() < count {
            let index = r.contents.len();
            let past = r.contents.last().copied().unwrap_or(Content::START);
            let content = if index >= shared {
                Content::own(r.number, index)
            } else {
                r.tokens.name_next(past, (block, ahead))
            };
            r.contents.push(content);
        }
        count
    }
}

/// How many of `tokens`, from the first on, no later token sees through a window.
fn below_window(window: Option<u64>, tokens: u64) -> u64 {
    window.map_or(0, |window| (tokens + 1).saturating_sub(window))
}
