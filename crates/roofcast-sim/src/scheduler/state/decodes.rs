//! Sequences that decode together, each computing one token per step.
//!
//! Knows: two equal implementations. [`Each`], the reference, updates every sequence in every step. [`Lockstep`]
//! updates none: it stores each sequence as an offset to a common step counter, from which total context, blocks of a
//! step and next end follow for any number of steps. Knows nothing about time, policy, or the next request.

mod each;

pub(crate) use each::Each;

use super::ring::Ring;
use roofcast_ask::arrival::SequenceId;
use roofcast_ask::kv_cache::groups::{BlockSize, Group, Groups};
use roofcast_facts::batch::Seen;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of remaining steps of a sequence that is removed by its owner, because its end is not known in this set.
pub(crate) const ENDLESS: u32 = u32::MAX;

/// A sequence when it begins to decode.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Id of the sequence.
    pub(crate) id: SequenceId,
    /// Number of its tokens in the KV cache.
    pub(crate) computed: u32,
    /// Number of steps until its last token, or [`ENDLESS`].
    pub(crate) remaining: u32,
    /// Number in the order of admission.
    pub(crate) order: u64,
}

/// A set of sequences that decode in lockstep.
pub trait Decodes {
    /// True if several equal steps may be taken at once. The reference takes steps singly and relies on no decision
    /// before the last event.
    const LEAPS: bool;
    /// An empty set, for groups of layers `groups` and operators with attention windows `reaches`.
    fn new(groups: &Groups, reaches: &[u64]) -> Self;
    /// Number of sequences.
    fn len(&self) -> u64;
    /// True if there are no sequences.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Tokens of context that attention reads in the next step: Σ context, and Σ min(context, window) for each window.
    fn seen(&self) -> Seen<'_>;
    /// Growth of [`Decodes::seen`] per step, valid until [`Decodes::steady`] ends.
    fn growth(&self) -> Seen<'_>;
    /// Number of KV tokens that the sequences hold.
    fn held(&self) -> u64;
    /// Number of blocks that the next `steps` steps allocate.
    fn needs(&self, steps: u64) -> u64;
    /// Steps until a sequence ends, fills an attention window or has all blocks of a window; at least 1 with sequences.
    fn steady(&self) -> u64;
    /// Cached tokens and remaining steps of a sequence.
    fn progress(&self, id: SequenceId) -> (u32, u32);
    /// Adds a sequence that begins to decode.
    fn insert(&mut self, entry: Entry);
    /// Removes a sequence; returns the number of its cached tokens and of its remaining steps.
    fn remove(&mut self, id: SequenceId) -> (u32, u32);
    /// Computes at most [`Decodes::steady`] tokens each; `ended` gets ended ones by admission, with cached tokens.
    fn advance(&mut self, steps: u64, ended: &mut Vec<(SequenceId, u32)>);
}

/// Sequences that are all stored relative to one step counter.
#[derive(Debug, Clone)]
pub struct Lockstep {
    block: BlockSize,
    /// Number of steps so far.
    step: i64,
    /// Residue (modulo the block size) of the sequences whose last block is full when the next step starts: −step.
    full: u64,
    /// State of each sequence when it joined, by id.
    members: Vec<Member>,
    len: u64,
    held: u64,
    growing: Vec<Growing>,
    ends: Ring,
    /// Number of the step that computes the last token of the next sequence to end, or `i64::MAX`.
    next_end: i64,
    reaches: Vec<WindowReach>,
    /// True if there is an attention window that sequences can fill.
    bounded: bool,
    seen: Vec<u64>,
    /// For each attention window, the number of sequences whose visible context still grows with every token.
    growth: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    /// `computed − step`, and the residue of that modulo the block size.
    offset: i64,
    residue: u32,
    /// Number of times that this id has joined and left; odd while the sequence is in the set.
    stay: u32,
    /// Number of the step that computes the sequence's last token.
    end: i64,
    order: u64,
}

/// A window, and the steps at which sequences fill it.
#[derive(Debug, Clone)]
struct WindowReach {
    most: u64,
    /// Steps at which growing sequences fill the window, each with id and stay; entries of removed sequences are
    /// skipped.
    fills: BinaryHeap<Reverse<(i64, SequenceId, u32)>>,
}

/// Sequences that still allocate blocks, in groups of layers of one kind.
#[derive(Debug, Clone)]
struct Growing {
    /// Number of groups of layers.
    groups: u64,
    /// Steps at which sequences have all the blocks of the window.
    reach: WindowReach,
    /// Number of growing sequences: in total, and by `(computed − step) mod block`.
    count: u64,
    residues: Vec<u64>,
}

impl Growing {
    fn new(group: &Group, block: u64) -> Growing {
        // A sequence with most × block tokens allocates no more blocks, so that the window is filled at most × block +
        // 1 tokens.
        let reach = WindowReach::new(group.most.saturating_mul(block).saturating_add(1));
        Growing { groups: group.count, reach, count: 0, residues: vec![0; block as usize] }
    }

    /// Number of blocks that a group allocates in `steps` steps; sequences of residue `from` allocate in the first
    /// step.
    fn needs(&self, steps: u64, from: u64) -> u64 {
        // A sequence needs a block in each step that starts with its last block full: once per block of steps, and once
        // more if it is full within the remaining steps.
        let block = self.residues.len() as u64;
        let (times, rest) = if steps < block { (0, steps) } else { (steps / block, steps % block) };
        // The residue of the sequences that are full decreases by one with each later step, cyclically.
        let below = rest.min(from + 1);
        let first = from + 1 - below;
        let around = rest - below;
        let sequences_in = |range: std::ops::Range<u64>| -> u64 {
            self.residues[range.start as usize..range.end as usize].iter().sum()
        };
        self.count * times + sequences_in(first..from + 1) + sequences_in(block - around..block)
    }
}

impl WindowReach {
    fn new(most: u64) -> WindowReach {
        WindowReach { most, fills: BinaryHeap::new() }
    }

    /// Adds a sequence; returns true if it grows.
    fn insert(&mut self, step: i64, offset: i64, id: SequenceId, stay: u32) -> bool {
        let grows = self.grows(step, offset);
        if grows && self.bounded() {
            self.fills.push(Reverse((self.fill(offset), id, stay)));
        }
        grows
    }

    /// Removes and returns the next sequence that fills the window by `step` and stops growing.
    fn filled<'a>(&mut self, step: i64, members: &'a [Member]) -> Option<&'a Member> {
        while let Some(Reverse((fill, id, stay))) = self.fills.peek().copied() {
            let member = &members[id as usize];
            let here = member.stay == stay;
            if here && fill > step {
                return None;
            }
            self.fills.pop();
            if here {
                return Some(member);
            }
        }
        None
    }

    fn bounded(&self) -> bool {
        self.most != u64::MAX
    }

    /// True if the visible context of a sequence with `offset` still grows in the step after the next.
    fn grows(&self, step: i64, offset: i64) -> bool {
        !self.bounded() || self.fill(offset) > step
    }

    /// The last value of the step counter with which a sequence of `offset` does not fill the window in the next step.
    fn fill(&self, offset: i64) -> i64 {
        // The context in the next step is offset + step + 1, which must be below `most`.
        i64::try_from(self.most).unwrap_or(i64::MAX).saturating_sub(1).saturating_sub(offset)
    }
}

impl Lockstep {
    /// Stops the growth of sequences that have filled a window.
    fn fill(&mut self) {
        for (reach, growth) in self.reaches.iter_mut().zip(&mut self.growth) {
            while reach.filled(self.step, &self.members).is_some() {
                *growth -= 1;
            }
        }
        for growing in &mut self.growing {
            while let Some(member) = growing.reach.filled(self.step, &self.members) {
                growing.count -= 1;
                growing.residues[member.residue as usize] -= 1;
            }
        }
    }

    /// Removes the sequences that end now, in order of admission, each with the number of its cached tokens.
    #[inline(always)]
    fn end(&mut self, ended: &mut Vec<(SequenceId, u32)>) {
        let from = ended.len();
        while let Some(id) = self.ends.pop(self.step) {
            let (_, computed) = self.take(id);
            ended.push((id, computed));
        }
        self.next_end = self.ends.next(self.step).unwrap_or(i64::MAX);
        if ended.len() > from + 1 {
            ended[from..].sort_by_key(|(id, _)| self.members[*id as usize].order);
        }
    }

    /// Removes a sequence; returns it with the number of its cached tokens.
    #[inline(always)]
    fn take(&mut self, id: SequenceId) -> (Member, u32) {
        let member = self.members[id as usize];
        let Member { offset, residue, .. } = member;
        let computed = (offset + self.step) as u64;
        self.members[id as usize].stay += 1;
        self.len -= 1;
        self.held -= computed;
        for ((reach, seen), growth) in self.reaches.iter().zip(&mut self.seen).zip(&mut self.growth) {
            *seen -= reach.most.min(computed + 1);
            *growth -= u64::from(reach.grows(self.step, offset));
        }
        for growing in &mut self.growing {
            let grew = u64::from(growing.reach.grows(self.step, offset));
            growing.count -= grew;
            growing.residues[residue as usize] -= grew;
        }
        (member, computed as u32)
    }
}

impl Decodes for Lockstep {
    const LEAPS: bool = true;

    fn new(groups: &Groups, reaches: &[u64]) -> Lockstep {
        let block = groups.block_size();
        let zeros = vec![0; reaches.len()];
        let seen = zeros.clone();
        let growth = zeros;
        let growing: Vec<_> =
            groups.kinds().iter().map(|group| Growing::new(group, groups.block())).collect();
        let reaches: Vec<_> = reaches.iter().map(|most| WindowReach::new(*most)).collect();
        let mut all = reaches.iter().chain(growing.iter().map(|growing| &growing.reach));
        Lockstep {
            bounded: all.any(WindowReach::bounded),
            block,
            step: 0,
            full: 0,
            members: Vec::new(),
            len: 0,
            held: 0,
            growing,
            ends: Ring::default(),
            next_end: i64::MAX,
            reaches,
            seen,
            growth,
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    #[inline(always)]
    fn seen(&self) -> Seen<'_> {
        Seen { all: self.held + self.len, within: &self.seen }
    }

    #[inline(always)]
    fn growth(&self) -> Seen<'_> {
        Seen { all: self.len, within: &self.growth }
    }

    fn held(&self) -> u64 {
        self.held
    }

    #[inline(always)]
    fn needs(&self, steps: u64) -> u64 {
        let mut all = 0;
        for growing in &self.growing {
            let blocks = match steps {
                1 => growing.residues[self.full as usize],
                _ => growing.needs(steps, self.full),
            };
            all += growing.groups * blocks;
        }
        all
    }

    #[inline(always)]
    fn steady(&self) -> u64 {
        let mut next = self.next_end;
        if self.bounded {
            let reaches = self.reaches.iter().chain(self.growing.iter().map(|growing| &growing.reach));
            let fills = reaches.filter_map(|r| r.fills.peek()).map(|Reverse((fill, ..))| *fill);
            next = fills.fold(next, i64::min);
        }
        (next - self.step).max(1) as u64
    }

    fn progress(&self, id: SequenceId) -> (u32, u32) {
        let member = self.members[id as usize];
        ((member.offset + self.step) as u32, (member.end - self.step) as u32)
    }

    #[inline(always)]
    fn insert(&mut self, entry: Entry) {
        let Entry { id, order, .. } = entry;
        let computed = u64::from(entry.computed);
        let offset = computed as i64 - self.step;
        let (_, residue) = self.block.divide(computed + self.full);
        let ends = entry.remaining != ENDLESS;
        let end = if ends { self.step + i64::from(entry.remaining) } else { i64::MAX };
        if self.members.len() <= id as usize {
            self.members.resize(id as usize + 1, Member::default());
        }
        let member = &mut self.members[id as usize];
        let stay = member.stay + 1;
        *member = Member { offset, residue: residue as u32, stay, end, order };
        self.len += 1;
        self.held += computed;
        if ends {
            self.ends.insert(self.step, end, id);
            self.next_end = self.next_end.min(end);
        }
        for ((reach, seen), growth) in self.reaches.iter_mut().zip(&mut self.seen).zip(&mut self.growth) {
            *seen += reach.most.min(computed + 1);
            *growth += u64::from(reach.insert(self.step, offset, id, stay));
        }
        for growing in &mut self.growing {
            let grows = u64::from(growing.reach.insert(self.step, offset, id, stay));
            growing.count += grows;
            growing.residues[residue as usize] += grows;
        }
    }

    fn remove(&mut self, id: SequenceId) -> (u32, u32) {
        let (member, computed) = self.take(id);
        if member.end < i64::MAX {
            self.ends.remove(member.end, id);
            self.next_end = self.ends.next(self.step).unwrap_or(i64::MAX);
        }
        (computed, (member.end - self.step) as u32)
    }

    #[inline(always)]
    fn advance(&mut self, steps: u64, ended: &mut Vec<(SequenceId, u32)>) {
        self.step += steps as i64;
        let (_, back) = self.block.divide(steps);
        self.full = if back <= self.full { self.full - back } else { self.full + self.block.tokens() - back };
        self.held += self.len * steps;
        for (seen, growth) in self.seen.iter_mut().zip(&self.growth) {
            *seen += growth * steps;
        }
        if self.bounded {
            self.fill();
        }
        if self.step >= self.next_end {
            self.end(ended);
        }
    }
}
