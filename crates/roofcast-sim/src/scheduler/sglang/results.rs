//! Processing of a batch's results: tokens are delivered, requests end, and computed tokens are inserted into the tree.
//!
//! Knows: which results are dropped because the request ended or was preempted meanwhile, and when other requests can
//! share which tokens. Knows nothing about time. Source: SGLang 0.5.23,
//! `scheduler_components/batch_result_processor.py`, `release_kv_cache` of `mem_cache/common.py` and
//! `checkpoint_into_tree` of `mem_cache/unified_radix_cache.py`.

use super::{ForwardMode, ROOT, RequestId, RequestPhase, Scheduler, Step};
use crate::kv_cache::prefix::real;
use roofcast_ask::workload::request::Run;

/// The token that ends an output; it differs from all other tokens.
const END: Run = Run { segment: 0, start: 1 << 62, length: 1 };

/// Effects of a batch's results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchResults {
    /// Requests whose prompt is complete and that sampled their first token.
    pub sampled: Vec<RequestId>,
    /// Number of requests that received a token by decoding.
    pub decoded: u64,
    /// Requests that ended, in order.
    pub finished: Vec<RequestId>,
    /// Number of tokens computed after the ends of finished requests, by decodes that were decided before the ends were
    /// known.
    pub(crate) beyond: u64,
}

impl Scheduler {
    /// Processes the results of a batch.
    pub fn process(&mut self, step: &Step) -> BatchResults {
        let mut sampled = Vec::new();
        let mut finished = Vec::new();
        let mut ending = Vec::new();
        let mut decoded = 0;
        let mut beyond = 0;
        if matches!(step.kind, ForwardMode::Decode | ForwardMode::Mixed) {
            let fresh =
                step.extends.iter().filter(|e| self.requests[e.id].phase == RequestPhase::Running).count();
            decoded = self.memory.rows() - fresh as u64 + self.leaving.len() as u64;
            self.running.results += 1;
            ending = self.running.ended();
        }
        for e in step.extends.iter().filter(|e| e.samples) {
            let r = &mut self.requests[e.id];
            if matches!(r.phase, RequestPhase::Waiting | RequestPhase::Finished) || !r.samples {
                continue;
            }
            r.samples = false;
            r.generated += 1;
            if r.phase == RequestPhase::Running {
                self.running.sampled(e.id);
            }
            sampled.push(e.id);
            if r.generated >= r.output {
                let running = r.phase == RequestPhase::Running;
                if running {
                    self.stop(e.id);
                }
                beyond += self.finish(e.id);
                finished.push(e.id);
            } else {
                let generated = r.generated;
                let output = r.output;
                let bound = r.bound;
                if r.phase == RequestPhase::Running {
                    self.running.will_end(e.id, generated, output, bound);
                }
                self.publish(e.id);
            }
        }
        ending.append(&mut self.leaving);
        self.running.sort_results(&mut ending);
        for id in ending {
            match self.requests[id].phase {
                RequestPhase::Running => self.stop(id),
                _ => self.requests[id].generated += 1,
            }
            beyond += self.finish(id);
            finished.push(id);
        }
        if let Some(tree) = &mut self.memory.tree {
            tree.submit_stores();
        }
        BatchResults { sampled, decoded, finished, beyond }
    }

    /// Inserts a request's computed tokens into the tree, in whole pages, and locks them there.
    pub(super) fn publish(&mut self, id: RequestId) {
        self.keep(id, self.requests[id].tokens);
    }

    fn keep(&mut self, id: RequestId, tokens: u64) {
        if self.memory.tree.is_none() {
            return;
        }
        let pages = self.memory.floor(tokens);
        let prompt = self.memory.floor(self.requests[id].input);
        self.trace(id, pages);
        let split = self.config.rules.splits_at_prompt;
        let path = &mut self.path;
        let Some(tree) = &mut self.memory.tree else { return };
        let (node, there) = tree.insert(path, self.requests[id].inserted);
        if split && 0 < prompt && prompt < pages {
            cut(path, prompt);
            tree.insert_head(path, prompt);
        }
        let r = &mut self.requests[id];
        tree.lock(node);
        tree.unlock(r.node);
        // Free the request's own copy of pages that another request had inserted before.
        self.memory.available += there.saturating_sub(r.shared);
        self.memory.claim(r.shared, pages);
        (r.node, r.shared) = (node, pages);
        r.inserted = r.inserted.max(pages);
    }

    /// Ends a request and caches its delivered tokens; returns the number of tokens computed after its end.
    pub(super) fn finish(&mut self, id: RequestId) -> u64 {
        let r = &self.requests[id];
        let owned = r.tokens.min(r.input + r.generated);
        let beyond = (r.tokens + 1).saturating_sub(r.input + r.generated);
        self.keep(id, owned);
        self.free(id);
        self.requests[id].phase = RequestPhase::Finished;
        beyond
    }

    /// Frees the pages that only this request holds, and the request's row.
    pub(super) fn free(&mut self, id: RequestId) {
        let r = &self.requests[id];
        let own_slots = self.memory.ceil(r.tokens) - r.shared;
        let node = r.node;
        let shared = r.shared;
        self.memory.claim(shared, 0);
        self.memory.available += own_slots;
        self.memory.unlock(node);
        self.rows_held -= 1;
        let r = &mut self.requests[id];
        (r.tokens, r.shared, r.found, r.node, r.samples) = (0, 0, 0, ROOT, false);
        (r.inserted, r.host_hit, r.host_end) = (0, 0, ROOT);
    }

    /// Writes the first `length` tokens of a request into `path`.
    pub(super) fn trace(&mut self, id: RequestId, length: u64) {
        let r = &self.requests[id];
        let ended = r.output_tokens.is_none() && r.generated == r.output && r.output < r.bound;
        let output = Run { segment: r.output_segment, start: 0, length: r.output - u64::from(ended) };
        self.path.clear();
        let mut left = length;
        let mut push = |run: Run| {
            let length = run.length.min(left);
            if length > 0 {
                self.path.push(Run { length, ..run });
                left -= length;
            }
        };
        r.prompt.iter().for_each(|run| push(*run));
        match &r.output_tokens {
            Some(tokens) => tokens.iter().for_each(|token| push(real(*token))),
            None => push(output),
        }
        push(END);
    }
}

/// Shortens a path to its first `length` tokens.
fn cut(path: &mut Vec<Run>, length: u64) {
    let mut left = length;
    path.retain_mut(|run| {
        run.length = run.length.min(left);
        left -= run.length;
        run.length > 0
    });
}
