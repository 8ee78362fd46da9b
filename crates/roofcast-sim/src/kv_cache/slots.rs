//! Slots of llama.cpp's server, and the prompts that they and the host's memory keep for later requests.
//!
//! Knows: a request gets the free slot with the most similar prompt, else the one that was free longest; the slot's tokens
//! are reused up to the first that differs. Where layers have a window or a recurrent state, the slot goes back only to a
//! checkpoint, unless the window still has the tokens. A prompt that a request replaces is kept in the host's memory, and
//! comes back from there if it is more similar. Does not know the time of these copies.
//!
//! Source: `tools/server` of llama.cpp b11434 (`get_available_slot`, `update_slots`, `create_checkpoint`,
//! `server_prompt_cache`); the tests replay answers of the server b11549.

use super::prefix::{SharedPrefix, Tokens, push_output};
use roofcast_ask::arrival::SequenceId;
use roofcast_ask::workload::request::{Prompt, Run};
use std::collections::VecDeque;
use std::sync::Arc;

/// Tokens before the end of a prompt at which its last checkpoint is made.
const TAIL: u64 = 4;
/// Tokens within which checkpoints are too close to each other if there are many: `--checkpoint-min-step`.
const LEAST_STEP: u64 = 8192;
/// Smallest part of a prompt in the host's memory that a request must repeat to take it.
const LEAST_KEPT: f64 = 0.25;
/// Part of a slot's prompt below which a request that does not repeat it has it saved first.
const LARGE_LOSS: f64 = 0.5;

/// Rules by which a server keeps the prompts of its slots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotCaching {
    /// Number of slots.
    pub count: u64,
    /// True if all slots share the cells of one cache.
    pub unified: bool,
    /// Share of a request's prompt from which on a slot is chosen by its prompt; 0 for never.
    pub similarity: f64,
    /// Least tokens of a piece that is reused at another position; 0 for none.
    pub n_cache_reuse: u64,
    /// Number of tokens that the host's memory keeps.
    pub host_tokens: u64,
    /// Most checkpoints of a slot.
    pub checkpoints: u64,
    /// Tokens of a micro-batch.
    pub n_ubatch: u64,
    /// Way back to an earlier token of a slot's prompt.
    pub rewinding: Rewinding,
}

/// Way back to an earlier token of a slot's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewinding {
    /// Every earlier token can follow.
    Freely,
    /// Layers with a window have the last `cells` tokens, of which a token reads `tokens`.
    Window {
        /// Tokens of the window.
        tokens: u64,
        /// Cells of a slot in a layer with a window.
        cells: u64,
    },
    /// A recurrent state has no way back.
    Never,
}

/// Tokens of a request that are kept after it.
#[derive(Debug, Clone, Default)]
struct Kept {
    /// Tokens that other requests can repeat.
    tokens: Tokens,
    /// Number of all tokens.
    length: u64,
    /// Numbers of tokens before which the state was saved, each with the number of the request that saved it.
    checkpoints: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    kept: Kept,
    busy: bool,
    /// Number of the event at which the slot became free; 0 if it was never used.
    freed: u64,
}

#[derive(Debug, Clone, Default)]
struct Asked {
    tokens: Tokens,
    own_from: u64,
    output_segment: u32,
    output_tokens: Option<Arc<[u32]>>,
    slot: usize,
}

/// A request whose slot is chosen, with the number of its tokens that the slot has.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    id: SequenceId,
    slot: usize,
    cached: u64,
}

/// The slots of one server.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    rules: SlotCaching,
    slots: Vec<Slot>,
    /// Prompts in the host's memory, oldest first.
    host: VecDeque<Kept>,
    asked: Vec<Asked>,
    chosen: Option<Chosen>,
    /// Number of requests that got a slot, and of slots that became free.
    events: u64,
}

impl Slots {
    pub(crate) fn new(rules: SlotCaching) -> Slots {
        let slots = vec![Slot::default(); usize::try_from(rules.count).unwrap_or_default()];
        Slots { rules, slots, host: VecDeque::new(), asked: Vec::new(), chosen: None, events: 0 }
    }

    /// Adds a request to the queue.
    pub(crate) fn arrive(&mut self, id: SequenceId, prefix: SharedPrefix) {
        let index = id as usize;
        if self.asked.len() <= index {
            self.asked.resize(index + 1, Asked::default());
        }
        let SharedPrefix { tokens, own_from, output_segment, output_tokens } = prefix;
        self.asked[index] = Asked { tokens, own_from, output_segment, output_tokens, slot: usize::MAX };
    }

    /// Number of tokens of `prompt` that a slot or the host's memory has.
    pub(crate) fn holds(&self, prompt: &Prompt) -> u64 {
        let tokens = Tokens::of_prompt(prompt);
        let prompts = self.slots.iter().map(|slot| &slot.kept).chain(&self.host);
        prompts.map(|kept| common(&kept.tokens, &tokens)).max().unwrap_or(0)
    }

    /// Chooses the slot of a request with a prompt of `known` tokens and returns the number of tokens that the slot has.
    pub(crate) fn find(&mut self, id: SequenceId, known: u64) -> u64 {
        if let Some(chosen) = self.chosen.filter(|chosen| chosen.id == id && !self.slots[chosen.slot].busy) {
            return chosen.cached;
        }
        let Some(slot) = self.available(id, known) else { return 0 };
        self.start(id, slot, known)
    }

    /// Chooses a free slot for a request that asks for it, and returns the number of its tokens that the slot has. An empty
    /// slot gets no prompt from the host's memory.
    pub(crate) fn choose(&mut self, id: SequenceId, slot: usize, known: u64) -> u64 {
        if self.rules.host_tokens > 0 && self.slots[slot].kept.length > 0 {
            self.save(slot);
            self.load(id, slot, known);
        }
        self.start(id, slot, known)
    }

    /// Cuts the prompt of the chosen slot to what the request repeats, and returns the number of these tokens.
    fn start(&mut self, id: SequenceId, slot: usize, known: u64) -> u64 {
        self.events += 1;
        let cached = self.rewind(id, slot, known);
        self.chosen = Some(Chosen { id, slot, cached });
        cached
    }

    /// Gives the chosen slot to a request with a prompt of `known` tokens, and returns its number.
    pub(crate) fn admit(&mut self, id: SequenceId, known: u64) -> usize {
        let Some(Chosen { slot, cached, .. }) = self.chosen.take().filter(|chosen| chosen.id == id) else {
            return usize::MAX;
        };
        self.asked[id as usize].slot = slot;
        let request = self.events;
        let taken = &mut self.slots[slot];
        taken.busy = true;
        taken.kept.tokens = self.asked[id as usize].tokens.clone();
        taken.kept.length = known;
        if self.rules.rewinding != Rewinding::Freely {
            for tokens in checkpoints(cached, known, self.rules.n_ubatch) {
                taken.kept.save(tokens, request, self.rules.checkpoints);
            }
        }
        if self.rules.host_tokens > 0 {
            self.save_idle();
        }
        slot
    }

    /// Saves the prompts of idle slots and, if all slots share the cells, empties the slots.
    fn save_idle(&mut self) {
        for slot in 0..self.slots.len() {
            if !self.slots[slot].busy && self.slots[slot].kept.length > 0 {
                self.save(slot);
                if self.rules.unified {
                    self.slots[slot].kept = Kept::default();
                }
            }
        }
    }

    /// Frees the slot of a request whose first `computed` tokens are cached, of which `generated` are output.
    pub(crate) fn leave(&mut self, id: SequenceId, computed: u64, generated: u64) {
        let Asked { own_from, output_segment, output_tokens, slot, .. } = &self.asked[id as usize];
        let Some(freed) = self.slots.get_mut(*slot) else { return };
        self.events += 1;
        freed.busy = false;
        freed.freed = self.events;
        freed.kept.length = computed;
        if *own_from == u64::MAX && generated > 0 {
            push_output(&mut freed.kept.tokens, (*output_segment, output_tokens.as_deref()), 0, generated);
        }
    }

    /// Removes a request that has left for good.
    pub(crate) fn forget(&mut self, id: SequenceId) {
        self.asked[id as usize] = Asked::default();
        self.chosen = self.chosen.filter(|chosen| chosen.id != id);
    }

    /// The free slot for a request, whose prompt is exchanged with the host's memory first if it is lost otherwise; `None`
    /// if no slot is free.
    fn available(&mut self, id: SequenceId, known: u64) -> Option<usize> {
        let tokens = &self.asked[id as usize].tokens;
        let free = || self.slots.iter().enumerate().filter(|(_, slot)| !slot.busy);
        let mut similar = None;
        let mut best = self.rules.similarity;
        for (index, slot) in free().filter(|(_, slot)| slot.kept.length > 0 && self.rules.similarity > 0.0) {
            let similarity = common(&slot.kept.tokens, tokens) as f64 / known as f64;
            if similarity > best {
                best = similarity;
                similar = Some(index);
            }
        }
        // Of equally old slots the last counts.
        let oldest = || free().rev().min_by_key(|(_, slot)| slot.freed).map(|(index, _)| index);
        let slot = similar.or_else(oldest)?;
        let repeated = best * known as f64 / self.slots[slot].kept.length.max(1) as f64;
        if self.rules.host_tokens > 0 && (similar.is_none() || repeated < LARGE_LOSS) {
            self.save(slot);
            self.load(id, slot, known);
        }
        Some(slot)
    }

    /// Copies the prompt of `slot` to the host's memory, in place of its own beginnings and of the oldest prompts.
    fn save(&mut self, slot: usize) {
        let replaced = &self.slots[slot].kept;
        let is_within = |a: &Kept, b: &Kept| common(&a.tokens, &b.tokens) >= a.length;
        let limit = self.rules.host_tokens;
        if replaced.length == 0
            || replaced.length > limit
            || self.host.iter().any(|other| is_within(replaced, other))
        {
            return;
        }
        self.host.retain(|other| !is_within(other, replaced));
        while self.host.iter().map(|other| other.length).sum::<u64>() + replaced.length > limit {
            self.host.pop_front();
        }
        self.host.push_back(replaced.clone());
    }

    /// Moves the prompt from the host's memory to `slot` of which the request repeats more, both of the prompt and of its
    /// own tokens.
    fn load(&mut self, id: SequenceId, slot: usize, known: u64) {
        let tokens = &self.asked[id as usize].tokens;
        let shares = |kept: &Kept| {
            let repeated = common(&kept.tokens, tokens) as f64;
            let kept_share = if kept.length > 0 { repeated / kept.length as f64 } else { -1.0 };
            [kept_share, repeated / known as f64]
        };
        let [mut best_kept, mut best_similarity] = shares(&self.slots[slot].kept);
        let mut nearest = None;
        for (index, other) in self.host.iter().enumerate() {
            let [kept, similarity] = shares(other);
            if kept >= LEAST_KEPT && kept > best_kept && similarity > best_similarity {
                [best_kept, best_similarity] = [kept, similarity];
                nearest = Some(index);
            }
        }
        if let Some(kept) = nearest.and_then(|index| self.host.remove(index)) {
            self.slots[slot].kept = kept;
        }
    }

    /// Cuts the prompt of `slot` to the tokens that a request with a prompt of `known` tokens goes on from, and returns
    /// their number. At least one token of the prompt is computed.
    fn rewind(&mut self, id: SequenceId, slot: usize, known: u64) -> u64 {
        let rules = self.rules;
        let tokens = &self.asked[id as usize].tokens;
        let prompt = &mut self.slots[slot].kept;
        let mut past = common(&prompt.tokens, tokens).min(known);
        if rules.n_cache_reuse > 0 && rules.rewinding == Rewinding::Freely {
            past += shifted(&prompt.tokens, tokens, past, rules.n_cache_reuse);
        }
        let window = match rules.rewinding {
            Rewinding::Freely => None,
            Rewinding::Window { tokens, cells } => Some((tokens, cells)),
            Rewinding::Never => Some((0, 1)),
        };
        if let Some((window, cells)) = window.filter(|_| past > 0) {
            // Positions before `first_cached` are no longer cached; those from `needed` on must be.
            let first_cached = |length: u64| length.saturating_sub(cells);
            let needed = past.saturating_sub(window + u64::from(past == known));
            let serves = |at: u64| at <= past + 1 && (first_cached(at) < needed || first_cached(at) == 0);
            if first_cached(prompt.length) >= needed {
                let saved = prompt.checkpoints.iter().rev().map(|(at, _)| *at).find(|at| serves(*at));
                // A state is that after all its tokens, while a window is used without its last one.
                let lost = u64::from(rules.rewinding != Rewinding::Never);
                past = saved.map_or(0, |at| past.min(at - lost));
            }
        }
        prompt.checkpoints.retain(|(at, _)| *at <= past + 1);
        if past == known { past - 1 } else { past }
    }
}

impl Kept {
    /// Adds a checkpoint of `request` before token number `at`; of `most`, old ones make room.
    fn save(&mut self, at: u64, request: u64, most: u64) {
        let room = usize::try_from(most).unwrap_or(usize::MAX);
        if room == 0 {
            return;
        }
        let mut last = None;
        let mut index = 0;
        while self.checkpoints.len() + 1 >= room && index < self.checkpoints.len() {
            let (other, owner) = self.checkpoints[index];
            if owner != request && last.is_some_and(|last| other <= last + LEAST_STEP) {
                self.checkpoints.remove(index);
                continue;
            }
            last = Some(other);
            index += 1;
        }
        while self.checkpoints.len() >= room {
            self.checkpoints.remove(0);
        }
        self.checkpoints.retain(|(other, _)| *other != at);
        self.checkpoints.push((at, request));
    }
}

/// Numbers of tokens before which a prompt of `known` tokens, of which `cached` are computed already, is saved: at each
/// batch whose end is less than a micro-batch from the prompt's.
fn checkpoints(cached: u64, known: u64, n_ubatch: u64) -> Vec<u64> {
    let ends = [known.saturating_sub(TAIL + n_ubatch), known.saturating_sub(TAIL), known];
    let mut starts = Vec::new();
    let mut start = cached;
    for end in ends.into_iter().filter(|end| *end > cached) {
        if start > 0 && end + n_ubatch > known {
            starts.push(start);
        }
        start = end;
    }
    starts
}

/// Number of leading tokens that `a` and `b` have in common.
fn common(a: &Tokens, b: &Tokens) -> u64 {
    let mut same = 0;
    let mut left = [Run { segment: 0, start: 0, length: 0 }; 2];
    let [mut first, mut second] = [a.runs().iter(), b.runs().iter()];
    loop {
        if left[0].length == 0 {
            let Some(run) = first.next() else { return same };
            left[0] = *run;
        }
        if left[1].length == 0 {
            let Some(run) = second.next() else { return same };
            left[1] = *run;
        }
        let length = left[0].length.min(left[1].length);
        if length > 0 && (left[0].segment, left[0].start) != (left[1].segment, left[1].start) {
            return same;
        }
        same += length;
        for run in &mut left {
            run.start += length;
            run.length -= length;
        }
    }
}

/// Number of tokens of `asked` behind the first `past` that are found, in order, in pieces of at least `least` tokens
/// further on in `kept`: their cells are shifted.
fn shifted(kept: &Tokens, asked: &Tokens, past: u64, least: u64) -> u64 {
    let each = |tokens: &Tokens| {
        let runs = tokens.runs().iter();
        let tokens = runs.flat_map(|run| (run.start..run.start + run.length).map(|at| (run.segment, at)));
        tokens.skip(usize::try_from(past).unwrap_or(usize::MAX)).collect::<Vec<_>>()
    };
    let [kept, asked] = [each(kept), each(asked)];
    let mut from = 0;
    let mut reused = 0;
    while from < kept.len() && reused < asked.len() {
        let same = kept[from..].iter().zip(&asked[reused..]).take_while(|(a, b)| a == b).count();
        if same as u64 >= least {
            from += same;
            reused += same;
        } else {
            from += 1;
        }
    }
    reused as u64
}

#[cfg(test)]
mod tests;
