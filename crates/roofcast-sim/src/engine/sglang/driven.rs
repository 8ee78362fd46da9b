//! Interface of SGLang's engine for a server: requests with real tokens, events of single requests, and aborts.
//!
//! Knows: which rows of a batch get a token with its results. A request that is aborted while it runs ends with its
//! next token, as in SGLang, and reports no further events. Knows nothing about scheduling.

use super::{Batch, Life, Sglang};
use crate::engine::event::Event;
use crate::kv_cache::prefix::SharedPrefix;
use crate::scheduler::sglang::{NewRequest, RequestId};
use crate::scheduler::state::decodes::Decodes;
use roofcast_ask::arrival::Arrival;

impl<D: Decodes> Sglang<D> {
    /// Returns the engine with recording of single requests' events; the engine must take every batch singly.
    pub(in crate::engine) fn reporting(mut self) -> Sglang<D> {
        self.events = Some(Vec::new());
        self
    }

    /// Moves the events recorded since the last call to `into`.
    pub(in crate::engine) fn take_events(&mut self, into: &mut Vec<Event>) {
        into.append(self.events.as_mut().unwrap_or(&mut Vec::new()));
    }

    /// Adds a request with its tokens to the requests that the scheduler has not received.
    pub(in crate::engine) fn join(&mut self, arrival: Arrival, prefix: SharedPrefix) {
        let ranked = self.config.scheduler.enable_priority_scheduling;
        let arrival = Arrival { key: if ranked { arrival.key } else { 0 }, ..arrival };
        let request = NewRequest {
            prompt: prefix.tokens.runs().into(),
            output_segment: prefix.output_segment,
            output_tokens: prefix.output_tokens,
            max_new_tokens: self.bound(&arrival),
            output_len: u64::from(arrival.output),
            ignore_eos: arrival.ignore_eos,
            priority: Some(arrival.key),
        };
        self.inbox.push_back((arrival, request));
    }

    /// Aborts the request with this number in any state. Returns false if the request is unknown.
    pub(in crate::engine) fn abort(&mut self, number: u64) -> bool {
        let before = self.inbox.len();
        self.inbox.retain(|(arrival, _)| arrival.number != number);
        if self.inbox.len() < before {
            return true;
        }
        let here = |life: &Life| life.here && life.arrival.number == number;
        let Some(id) = self.lives.iter().position(here) else { return false };
        self.lives[id].here = false;
        if self.scheduler.abort(id) {
            self.leaving.push(id);
        }
        true
    }

    /// Number of pages that requests hold.
    pub(in crate::engine) fn held_blocks(&self) -> u64 {
        let config = &self.config.scheduler;
        let pool = config.max_total_tokens - config.max_total_tokens % config.page_size;
        pool.saturating_sub(self.scheduler.kv().iter().sum()) / config.page_size
    }

    /// Number of requests that were not aborted; the scheduler keeps an aborted request until its next token.
    pub(in crate::engine) fn present(&self) -> u64 {
        self.lives.iter().filter(|life| life.here).count() as u64 + self.inbox.len() as u64
    }

    /// Records an event of a request, if events are recorded and the request was not aborted.
    pub(super) fn report(&mut self, id: RequestId, event: impl FnOnce(u64) -> Event) {
        if let Some(events) = &mut self.events
            && self.lives[id].here
        {
            events.push(event(self.lives[id].arrival.number));
        }
    }

    /// Reports the rows of a batch that get a token with its results; called before the results are processed.
    pub(super) fn report_decoded(&mut self, batch: &Batch) {
        if self.events.is_none() {
            return;
        }
        for &id in &batch.step.rows {
            if self.scheduler.decodes(id) {
                self.report(id, |number| Event::Sampled { number, tokens: 1 });
            }
        }
    }
}
