//! Slots of llama.cpp's server in front of an engine that is driven request by request.
//!
//! Knows: a request waits until a slot is free, and starts with the tokens that its slot keeps, by the rules of [`Slots`].
//! Knows nothing about steps.

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
    waiting: VecDeque<OnlineRequest>,
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
        Seats { rules, slots: Slots::new(rules), waiting: VecDeque::new(), seated: BTreeMap::new() }
    }

    /// Number of requests without a slot.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Adds a request to the queue.
    pub(super) fn arrive(&mut self, asked: &OnlineRequest) {
        self.waiting.push_back(asked.clone());
    }

    /// The first waiting request, with the tokens that its slot has; `None` if no request waits or no slot is free.
    pub(super) fn next(&mut self) -> Option<(OnlineRequest, SharedPrefix, u64)> {
        if self.seated.len() as u64 >= self.rules.count {
            return None;
        }
        let request = self.waiting.pop_front()?;
        let taken = |id: &SequenceId| self.seated.values().any(|seated| seated.id == *id);
        let id = (0..).find(|id| !taken(id)).unwrap_or_default();
        let prefix = SharedPrefix::of_tokens(&request.prompt, Arc::clone(&request.output));
        let prompt = request.prompt.len() as u64;
        self.slots.arrive(id, prefix.clone());
        let cached = self.slots.find(id, prompt);
        let slot = self.slots.admit(id, prompt);
        self.seated.insert(request.number, Seated { id, slot, cached, prompt, sampled: 0 });
        Some((request, prefix, cached))
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

    /// Frees the slot of a request, which keeps all tokens but the last.
    pub(super) fn leave(&mut self, number: u64) {
        let Some(Seated { id, prompt, sampled, .. }) = self.seated.remove(&number) else { return };
        let generated = sampled.saturating_sub(1);
        self.slots.leave(id, prompt + generated, generated);
        self.slots.forget(id);
    }

    /// Removes a request that waits; false if it does not.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|asked| asked.number != number);
        self.waiting.len() < before
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
