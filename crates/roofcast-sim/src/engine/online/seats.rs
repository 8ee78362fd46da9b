//! Slots of llama.cpp's server in front of an engine that is driven request by request.
//!
//! Knows: a request waits until a slot, or the slot that it asks for, is free, and starts with the tokens that its slot
//! keeps, by the rules of [`Slots`]. A slot that becomes free is offered to one waiting request: the first that asks for
//! it by its number, else the first of all, which goes to the end of the queue if it cannot use it. Knows nothing about
//! steps.
//!
//! Source: `get_slot_by_id` (`tools/server/server-context.cpp`) and `pop_deferred_task` (`server-queue.cpp`) of llama.cpp;
//! as observed in b11549.

use super::OnlineRequest;
use crate::kv_cache::prefix::SharedPrefix;
use crate::kv_cache::slots::{SlotCaching, Slots};
use roofcast_ask::arrival::SequenceId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Slots, the requests in them, and the requests that wait for one.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    rules: SlotCaching,
    slots: Slots,
    /// Requests that have not been offered a slot.
    coming: VecDeque<OnlineRequest>,
    /// Requests that wait for a slot to become free.
    deferred: VecDeque<OnlineRequest>,
    seated: BTreeMap<u64, Seated>,
}

/// A request in a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seated {
    /// Number of the request among those in slots.
    id: SequenceId,
    /// Number of the slot.
    pub(super) slot: usize,
    /// Tokens of the prompt that the slot or the host's memory had.
    pub(super) cached: u64,
    prompt: u64,
    sampled: u64,
}

impl Seats {
    pub(super) fn new(rules: SlotCaching) -> Seats {
        Seats {
            rules,
            slots: Slots::new(rules),
            coming: VecDeque::new(),
            deferred: VecDeque::new(),
            seated: BTreeMap::new(),
        }
    }

    /// Number of requests without a slot.
    pub(super) fn waiting(&self) -> u64 {
        (self.coming.len() + self.deferred.len()) as u64
    }

    /// Adds a request to the queue.
    pub(super) fn arrive(&mut self, asked: &OnlineRequest) {
        self.coming.push_back(asked.clone());
    }

    /// The first request that gets a slot, with the tokens that the slot has; `None` if no request does.
    pub(super) fn next(&mut self) -> Option<(OnlineRequest, SharedPrefix, u64)> {
        while let Some(request) = self.coming.pop_front() {
            if self.is_free(self.asked_slot(&request)) {
                return Some(self.seat(request));
            }
            self.deferred.push_back(request);
        }
        None
    }

    /// The slot that a request asks for; numbers wrap around.
    fn asked_slot(&self, request: &OnlineRequest) -> Option<usize> {
        let id = request.id_slot?;
        Some(((i64::from(id) as u64) % self.rules.count.max(1)) as usize)
    }

    /// True if `slot`, or any slot if `None`, is free.
    fn is_free(&self, slot: Option<usize>) -> bool {
        match slot {
            Some(slot) => self.busy().all(|busy| busy != slot),
            None => (self.seated.len() as u64) < self.rules.count,
        }
    }

    /// Gives a request a free slot.
    fn seat(&mut self, request: OnlineRequest) -> (OnlineRequest, SharedPrefix, u64) {
        let taken = |id: &SequenceId| self.seated.values().any(|seated| seated.id == *id);
        let id = (0..).find(|id| !taken(id)).unwrap_or_default();
        let prefix = SharedPrefix::of_tokens(&request.prompt, Arc::clone(&request.output));
        let prompt = request.prompt.len() as u64;
        self.slots.arrive(id, prefix.clone());
        let cached = match self.asked_slot(&request) {
            Some(slot) => self.slots.choose(id, slot, prompt),
            None => self.slots.find(id, prompt),
        };
        let slot = self.slots.admit(id, prompt);
        self.seated.insert(request.number, Seated { id, slot, cached, prompt, sampled: 0 });
        (request, prefix, cached)
    }

    /// The slot of a request, and the tokens that it had; `None` if the request has no slot.
    pub(super) fn seated(&self, number: u64) -> Option<Seated> {
        self.seated.get(&number).copied()
    }

    /// Counts new output tokens of a request.
    pub(super) fn sampled(&mut self, number: u64, tokens: u64) {
        if let Some(seated) = self.seated.get_mut(&number) {
            seated.sampled += tokens;
        }
    }

    /// Frees the slot of a request, which keeps all tokens but the last, and offers it to a waiting request.
    pub(super) fn leave(&mut self, number: u64) {
        let Some(Seated { id, slot, prompt, sampled, .. }) = self.seated.remove(&number) else { return };
        let generated = sampled.saturating_sub(1);
        self.slots.leave(id, prompt + generated, generated);
        self.slots.forget(id);
        let asks = |request: &OnlineRequest| request.id_slot.is_some_and(|id| id as usize == slot);
        let first = self.deferred.iter().position(asks).unwrap_or(0);
        self.coming.extend(self.deferred.remove(first));
    }

    /// Removes a request that waits; false if it does not.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting();
        self.coming.retain(|asked| asked.number != number);
        self.deferred.retain(|asked| asked.number != number);
        self.waiting() < before
    }

    /// Empties all slots and the host's memory.
    pub(super) fn clear(&mut self) {
        self.slots = Slots::new(self.rules);
    }

    /// Numbers of the slots that have a request.
    pub(super) fn busy(&self) -> impl Iterator<Item = usize> {
        self.seated.values().map(|seated| seated.slot)
    }
}
