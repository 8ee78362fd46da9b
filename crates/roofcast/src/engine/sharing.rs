//! What each request of a replica has in a radix tree of prefixes, as SGLang keeps them.
//!
//! Knows: a request locks what it finds when it is admitted, adds what it has computed after each piece of its prompt and
//! at its end, and gives up what others have added before it. What nobody locks counts as free and goes when its room is
//! taken. Cache by the token: each is one block. Source: `cache_unfinished_req`, `cache_finished_req` and
//! `PrefillAdder` of SGLang 0.5. Knows nothing about who is admitted or preempted.

use super::arrival::Id;
use crate::kv_cache::prefix::Prefix;
use crate::kv_cache::radix::{Node, ROOT, Tree};
use crate::workload::request::Run;

/// Where in the segment of its output the positions of a request's own prompt tokens begin.
const OWN_PROMPT: u64 = 1 << 32;

/// The tree of one replica, and what its requests have in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing {
    tree: Tree,
    held: Vec<Held>,
    /// Where the prefix of the last request that was looked up ends.
    found: Node,
    /// Tokens of the request at hand.
    path: Vec<Run>,
    /// Tokens that requests lock, those that several lock for each of them.
    claims: u64,
}

#[derive(Debug, Clone, Default)]
struct Held {
    prefix: Prefix,
    input: u64,
    /// Where what it locks ends, and how many tokens that are.
    node: Node,
    length: u64,
}

impl Sharing {
    /// A request of `input` prompt tokens joins the queue.
    pub(super) fn arrive(&mut self, id: Id, input: u32, prefix: Prefix) {
        let index = id as usize;
        if self.held.len() <= index {
            self.held.resize(index + 1, Held::default());
        }
        self.held[index] = Held { prefix, input: u64::from(input), node: ROOT, length: 0 };
    }

    /// How many of a request's `known` tokens, all but the last, are there while `free` tokens of room are.
    pub(super) fn find(&mut self, id: Id, known: u32, free: u64) -> u32 {
        self.tree.shrink(free);
        self.trace(id, u64::from(known.saturating_sub(1)));
        let (node, length) = self.tree.find(&self.path);
        self.found = node;
        length as u32
    }

    /// Tokens found that nobody holds: whoever is admitted with them takes them from what is free.
    pub(super) fn unheld(&self) -> u64 {
        self.tree.unlocked(self.found)
    }

    /// Tokens that requests hold beyond the first that holds them.
    pub(super) fn shared_tokens(&self) -> u64 {
        self.claims + self.tree.evictable() - self.tree.tokens()
    }

    /// Admits a request with the `ready` tokens found.
    pub(super) fn admit(&mut self, id: Id, ready: u32) {
        self.tree.lock(self.found);
        let held = &mut self.held[id as usize];
        (held.node, held.length) = (self.found, u64::from(ready));
        self.claims += held.length;
    }

    /// Lets others find the first `computed` tokens of a request while `free` tokens of room are: how much room it gives
    /// up because others had them before it.
    pub(super) fn publish(&mut self, id: Id, computed: u32, free: u64) -> u64 {
        let computed = u64::from(computed);
        self.tree.shrink(free);
        self.trace(id, computed);
        let node = self.tree.insert(&self.path);
        let locked = self.tree.lock(node);
        let held = &mut self.held[id as usize];
        self.tree.unlock(held.node);
        let own = computed - held.length;
        (held.node, held.length) = (node, computed);
        self.claims += own;
        own - locked
    }

    /// A request gives back the `tokens` that it holds: how much room that frees.
    pub(super) fn leave(&mut self, id: Id, tokens: u64) -> u64 {
        let held = &mut self.held[id as usize];
        let own = tokens - held.length;
        let freed = self.tree.unlock(held.node);
        self.claims -= held.length;
        (held.node, held.length) = (ROOT, 0);
        own + freed
    }

    /// The first `length` tokens of a request: what others may have, what of its prompt is its own, its output.
    fn trace(&mut self, id: Id, length: u64) {
        let held = &self.held[id as usize];
        let segment = held.prefix.output_segment;
        let rest = held.input.saturating_sub(held.prefix.tokens.len());
        let own = Run { segment, start: OWN_PROMPT, length: rest };
        let output = Run { segment, start: 0, length: u64::MAX };
        self.path.clear();
        let mut left = length;
        for run in held.prefix.tokens.runs().iter().chain([&own, &output]) {
            let length = run.length.min(left);
            if length > 0 {
                self.path.push(Run { length, ..*run });
            }
            left -= length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_cache::prefix::Outputs;
    use crate::workload::Prompt;

    /// A cache of 1000 tokens; prompts of 100 + 50 tokens, the first 100 the same.
    #[test]
    fn what_two_share_is_held_once() {
        let (mut sharing, mut outputs) = (Sharing::default(), Outputs::default());
        for id in 0..3 {
            let prefix = outputs.prefix(Prompt::Shared { segment: 0, length: 100 });
            sharing.arrive(id, 150, prefix);
        }
        // Two are admitted before anything is computed: each holds 150 of its own.
        for id in 0..2 {
            assert_eq!((sharing.find(id, 150, 1000), sharing.unheld()), (0, 0));
            sharing.admit(id, 0);
        }
        // The first adds 150; the second finds 100 of them and gives its own up.
        assert_eq!((sharing.publish(0, 150, 700), sharing.publish(1, 150, 700)), (0, 100));
        assert_eq!((sharing.tree.tokens(), sharing.tree.evictable()), (200, 0));
        // The third finds 100 that others hold, computes 50 and is preempted with 20 of its output: 50 + 20 of its own.
        assert_eq!((sharing.find(2, 150, 800), sharing.unheld()), (100, 0));
        sharing.admit(2, 100);
        assert_eq!((sharing.publish(2, 150, 750), sharing.leave(2, 170)), (0, 70));
        assert_eq!(sharing.tree.evictable(), 50);
        // It comes back for 170: 150 of its prompt are there, 50 of them nobody's.
        assert_eq!((sharing.find(2, 170, 800), sharing.unheld()), (150, 50));
        // The others end with 10 tokens of output; all is free, and all is still to be found until room is taken.
        for id in 0..2 {
            assert_eq!(sharing.publish(id, 160, 780), 0);
        }
        assert_eq!((sharing.leave(0, 160), sharing.leave(1, 160)), (60, 160));
        assert_eq!((sharing.tree.tokens(), sharing.tree.evictable()), (270, 270));
        assert_eq!((sharing.find(2, 170, 150), sharing.tree.tokens()), (100, 150));
    }
}
