//! The blocks of a request: allocation at admission, cached prefixes, and publication of full blocks for others.
//!
//! Source: vLLM 0.32, `v1/core/kv_cache_manager.py`. Knows nothing about which request is next.

use super::{Pass, RequestId, Scheduler};
use crate::kv_cache::paged::{Block, Change};
use crate::kv_cache::prefix::Content;

impl Scheduler {
    /// Admits a waiting request if budget and blocks allow; returns its tokens in this step, and the cached ones.
    pub(super) fn admit(&mut self, id: RequestId, pass: &Pass) -> Option<(u64, u64)> {
        let block = self.config.block_size;
        let known = self.requests[id].known();
        let hits = if self.config.enable_prefix_caching { self.hits(id) } else { Vec::new() };
        let cached = hits.len() as u64 * block;
        // Transferred tokens are lost with a preemption; the last token is computed here in any case.
        let r = &self.requests[id];
        let given = if r.preempted { 0 } else { r.transferred.min(known - 1) };
        let computed = cached.max(given);
        let wanted = (known - computed).min(pass.threshold.unwrap_or(u64::MAX));
        if !self.config.enable_chunked_prefill && wanted > pass.budget {
            return None;
        }
        let tokens = wanted.min(pass.budget);
        let kept = if self.running.is_empty() {
            0
        } else {
            (self.config.watermark * f64::from(self.config.num_gpu_blocks)) as u64
        };
        let beyond = |end: u64| end.div_ceil(block) - hits.len() as u64;
        let overhead = self.pool.unheld(&hits) + kept;
        let needed = beyond(computed + tokens);
        let whole = if self.config.scheduler_reserve_full_isl { beyond(known) } else { needed };
        if whole.max(needed) + overhead > self.pool.free() {
            return None;
        }
        self.pool.hold(&hits);
        let r = &mut self.requests[id];
        r.computed = computed;
        r.cached_blocks = hits.len();
        r.blocks = hits;
        self.pool.allocate(needed, &mut r.blocks);
        self.cache_full_blocks(id, computed + tokens);
        Some((tokens, cached))
    }

    /// Cached blocks of a request's known tokens; its last token, at least, is computed anew.
    fn hits(&mut self, id: RequestId) -> Vec<Block> {
        let full = self.requests[id].known().saturating_sub(1) / self.config.block_size;
        self.name_contents(id, full as usize);
        let r = &self.requests[id];
        self.pool.lookup(&r.contents[..full as usize], &r.former)
    }

    /// Publishes the full blocks among the first `filled` known tokens to the prefix cache.
    pub(super) fn cache_full_blocks(&mut self, id: RequestId, filled: u64) {
        if !self.config.enable_prefix_caching {
            return;
        }
        let r = &self.requests[id];
        // A placeholder's token is not known yet, so its block has no content.
        let full = (filled.min(r.known()) / self.config.block_size) as usize;
        self.name_contents(id, full);
        let r = &mut self.requests[id];
        let new = r.cached_blocks..full.min(r.blocks.len());
        for index in new.clone() {
            self.pool.cache(r.blocks[index], r.contents[index]);
        }
        if let Some(changes) = self.pool.changes().filter(|_| !new.is_empty()) {
            let (owner, first) = (id as u64, new.start as u64);
            changes.push(Change::Stored { owner, first, contents: r.contents[new].to_vec() });
        }
        r.cached_blocks = r.cached_blocks.max(full);
    }

    fn name_contents(&mut self, id: RequestId, count: usize) {
        let block = self.config.block_size;
        let r = &mut self.requests[id];
        let shared = (r.own_from / block) as usize;
        while r.contents.len() < count {
            let index = r.contents.len();
            let past = r.contents.last().copied().unwrap_or(Content::START);
            let content =
                if index >= shared { Content::own(r.number, index) } else { r.tokens.name_next(past, block) };
            r.contents.push(content);
        }
    }
}
