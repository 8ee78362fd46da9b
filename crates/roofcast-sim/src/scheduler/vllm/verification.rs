//! Steps in which every running request verifies its drafts, and nothing else happens.
//!
//! Knows: the next such decision and its results, by what they change of a request; the requests themselves follow at
//! the end. Blocks are allocated in the order of single decisions. With asynchronous scheduling a step is decided as if
//! all drafts of the step in flight were accepted. Knows nothing about time, nor which drafts are accepted: the driver
//! says both.

use super::{RequestId, Scheduler, Step};
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
    /// Work in the step whose results are next.
    pub(crate) work: RowWork,
    /// Work in the step that was decided last.
    decided: RowWork,
    computed: u64,
    /// Number of tokens that are sampled or drafted in flight.
    placeholders: u64,
    /// Number of known tokens before the last results.
    formerly_known: u64,
    /// Number of tokens for which the request holds blocks.
    slots: u64,
}

/// Work of a request in a step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowWork {
    /// Number of tokens computed.
    pub(crate) new: u64,
    /// Context at the end of the step in tokens.
    pub(crate) context: u64,
    /// Number of drafts among the computed tokens.
    pub(crate) drafts: u64,
}

impl Scheduler {
    /// Begins a run of steps that verify drafts, with the running requests as rows; `flight` is the step in flight, which
    /// was decided last. False if the next decision may do anything else.
    pub(crate) fn begin_verification(&self, run: &mut Verification, flight: Option<&Step>) -> bool {
        let waits = !self.waiting.is_empty();
        let depends = waits || self.config.async_scheduling;
        let bounded = self.threshold().is_some() || self.tier.is_some();
        let paced = self.config.prefill_schedule_interval > 1;
        if paced || bounded || !self.has_equal_steps() || depends && !self.steady.verifies {
            return false;
        }
        run.rows.clear();
        for (at, &id) in self.running.iter().enumerate() {
            let r = &self.requests[id];
            if r.in_prompt || r.stale > 0 || r.output_tokens.is_some() {
                return false;
            }
            let work = flight.and_then(|step| step.work.get(at));
            let work = work.map_or_else(RowWork::default, |work| RowWork {
                new: work.new,
                context: work.context,
                drafts: work.drafts,
            });
            run.rows.push(Row {
                id,
                prompt_len: r.prompt_len,
                end: (r.prompt_len + r.output_len).min(self.config.max_model_len),
                known: r.known(),
                drafts: r.drafts,
                accepted: 0,
                work,
                decided: work,
                computed: r.computed,
                placeholders: r.placeholders,
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
            let new = row.known + row.placeholders + row.drafts - row.computed;
            let context = row.computed + new;
            // The last token is in flight.
            let done = row.placeholders > 0 && row.computed + 2 >= row.end + row.placeholders;
            if new == 0 || context >= config.max_model_len || done {
                return false;
            }
            row.decided = RowWork { new, context, drafts: row.drafts };
            tokens += new;
            let slots = config.slots(context);
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
            row.computed = row.decided.context;
            row.placeholders += 1 + row.drafts;
            if config.async_scheduling {
                row.drafts = config.num_speculative_tokens;
            } else {
                row.work = row.decided;
            }
            let slots = config.slots(row.computed);
            if slots > row.slots {
                let blocks = (slots - row.slots).div_ceil(config.block_size);
                row.slots += blocks * config.block_size;
                self.pool.allocate(blocks, &mut self.requests[row.id].tables[0].blocks);
            }
        }
        true
    }

    /// Ends a run of at least one step: the requests get the rows' tokens, and the step in flight their work.
    pub(crate) fn end_verification(&mut self, run: &Verification, flight: Option<&mut Step>) {
        self.steady.disturb();
        for row in &run.rows {
            let r = &mut self.requests[row.id];
            r.push_output(row.known - r.known());
            (r.computed, r.placeholders, r.drafts) = (row.computed, row.placeholders, row.drafts);
            // Results publish blocks with a step in flight, else decisions do, of the tokens known by then.
            let decided = row.formerly_known - self.config.hash_lookahead();
            let filled = if self.config.async_scheduling { row.computed } else { decided };
            self.cache_full_blocks(row.id, filled);
        }
        let Some(step) = flight else { return };
        for ((row, work), scheduled) in run.rows.iter().zip(&mut step.work).zip(&mut step.scheduled) {
            let RowWork { new, context, drafts } = row.work;
            (work.new, work.context, work.drafts, scheduled.1) = (new, context, drafts, new);
        }
    }
}

impl Row {
    /// Number of output tokens delivered.
    pub(crate) fn generated(&self) -> u64 {
        self.known - self.prompt_len
    }

    /// Delivers the next results; `proposed` drafts follow the last token.
    pub(crate) fn deliver(&mut self, proposed: u64) {
        let rejected = self.work.drafts - self.accepted;
        self.placeholders -= 1 + self.work.drafts;
        self.computed -= rejected;
        self.decided.context -= rejected;
        self.work = self.decided;
        self.formerly_known = self.known;
        self.known += 1 + self.accepted;
        self.drafts = proposed;
    }
}
