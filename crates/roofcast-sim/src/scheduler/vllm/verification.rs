//! Steps in which every running request verifies its drafts, and nothing else happens.
//!
//! Knows: the next such decision and its results, by what they change of a request; the requests themselves follow at
//! the end. Blocks are allocated in the order of single decisions. With drafts no step is decided ahead. Knows nothing
//! about time, nor which drafts are accepted: the driver says both.

use super::{RequestId, Scheduler};
use crate::kv_cache::paged::Block;

/// Running requests while steps only verify drafts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verification {
    /// The requests, in order.
    pub(crate) rows: Vec<Row>,
    /// Tokens of the last decision, for which waiting requests had no room; `None` if no request waits.
    tokens: Option<u64>,
    /// The last cached block of each request that waits for blocks.
    found: Vec<Block>,
}

/// A running request while steps only verify drafts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) id: RequestId,
    prompt_len: u64,
    /// Number of known tokens with which the request ends.
    pub(crate) end: u64,
    /// Number of known tokens: prompt and delivered output.
    pub(crate) known: u64,
    /// Number of drafts of the next step.
    pub(crate) drafts: u64,
    /// Number of drafts that the next step's results accept.
    pub(crate) accepted: u64,
    /// Number of tokens that the decided step computes.
    pub(crate) new: u64,
    /// Number of computed tokens, the decided step's included.
    pub(crate) computed: u64,
    /// Number of known tokens before the last results.
    formerly_known: u64,
    /// Number of tokens for which the request holds blocks.
    slots: u64,
}

impl Scheduler {
    /// Begins a run of steps that verify drafts, with the running requests as rows; false if the next decision may do
    /// anything else.
    pub(crate) fn begin_verification(&self, run: &mut Verification) -> bool {
        let waits = !self.waiting.is_empty();
        let paced = self.config.async_scheduling || self.config.prefill_schedule_interval > 1;
        let bounded = self.threshold().is_some() || self.tier.is_some();
        if paced || bounded || !self.has_equal_steps() || waits && !self.steady.verifies {
            return false;
        }
        run.rows.clear();
        for &id in &self.running {
            let r = &self.requests[id];
            if r.in_prompt || r.output_tokens.is_some() {
                return false;
            }
            run.rows.push(Row {
                id,
                prompt_len: r.prompt_len,
                end: (r.prompt_len + r.output_len).min(self.config.max_model_len),
                known: r.known(),
                drafts: r.drafts,
                accepted: 0,
                new: 0,
                computed: r.computed,
                formerly_known: r.known(),
                slots: r.tables[0].blocks.len() as u64 * self.config.block_size,
            });
        }
        run.tokens = waits.then_some(self.steady.tokens);
        run.found = if waits { self.last_found() } else { Vec::new() };
        !run.rows.is_empty()
    }

    /// Decides the next step and allocates its blocks; false, without any change, if the decision would do anything but
    /// verify the drafts of all rows.
    pub(crate) fn decide_verification(&mut self, run: &mut Verification) -> bool {
        let config = &self.config;
        let mut tokens = 0;
        let mut needed = 0;
        for row in &mut run.rows {
            row.new = row.known + row.drafts - row.computed;
            let end = row.computed + row.new;
            if row.new == 0 || end >= config.max_model_len {
                return false;
            }
            tokens += row.new;
            let slots = config.slots(end);
            if slots > row.slots {
                needed += (slots - row.slots).div_ceil(config.block_size);
            }
        }
        // With more of the budget left, a waiting request might be admitted.
        let differs = run.tokens.is_some_and(|last| last != tokens);
        let evicts = || self.pool.next_free(needed as usize).any(|block| run.found.contains(&block));
        let fits = tokens <= config.max_num_batched_tokens && needed <= self.pool.free();
        if differs || !fits || !run.found.is_empty() && evicts() {
            return false;
        }
        for row in &mut run.rows {
            row.computed += row.new;
            let slots = config.slots(row.computed);
            if slots > row.slots {
                let blocks = (slots - row.slots).div_ceil(config.block_size);
                row.slots += blocks * config.block_size;
                self.pool.allocate(blocks, &mut self.requests[row.id].tables[0].blocks);
            }
        }
        true
    }

    /// Ends a run of at least one step: the requests get the rows' tokens.
    pub(crate) fn end_verification(&mut self, run: &Verification) {
        self.steady.disturb();
        for row in &run.rows {
            let r = &mut self.requests[row.id];
            r.push_output(row.known - r.known());
            (r.computed, r.drafts) = (row.computed, row.drafts);
            // The last step's decision published the blocks of the tokens that it knew.
            self.cache_full_blocks(row.id, row.formerly_known - self.config.hash_lookahead());
        }
    }
}

impl Row {
    /// Number of output tokens delivered.
    pub(crate) fn generated(&self) -> u64 {
        self.known - self.prompt_len
    }

    /// Delivers the results of the decided step; `proposed` drafts follow the last token.
    pub(crate) fn deliver(&mut self, proposed: u64) {
        self.computed -= self.drafts - self.accepted;
        self.formerly_known = self.known;
        self.known += 1 + self.accepted;
        self.drafts = proposed;
    }
}
