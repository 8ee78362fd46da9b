//! Prompts that a router sent to each replica: an approximate index of the replicas' caches.
//!
//! Knows: content hashes of consecutive blocks of [`BLOCK`] tokens, and the order of their last uses. The least
//! recently used blocks are removed when a replica's index exceeds [`MOST`] blocks. Knows nothing about tokens that a
//! replica evicted or generated.

use crate::kv_cache::prefix::{Content, Tokens};
use roofcast_ask::workload::Prompt;
use std::collections::BTreeMap;

/// Tokens per indexed block.
const BLOCK: u64 = 16;
/// Most blocks indexed for one replica, as in llm-d's older approximate index (31,250 blocks per endpoint).
const MOST: usize = 31_250;

/// The index of all replicas.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    replicas: BTreeMap<usize, Sent>,
    uses: u64,
}

/// The index of one replica: first and last use of each block, and blocks by last use.
#[derive(Debug, Clone, Default)]
struct Sent {
    uses: BTreeMap<Content, [u64; 2]>,
    order: BTreeMap<u64, Content>,
}

/// Beginning of a prompt that was sent to a replica before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// Number of tokens.
    pub(super) tokens: u64,
    /// First use of its last block, in the order of all uses.
    pub(super) since: u64,
}

impl History {
    /// Adds the shareable blocks of a prompt to the index of `replica`.
    pub(super) fn insert(&mut self, replica: usize, prompt: &Prompt) {
        let sent = self.replicas.entry(replica).or_default();
        // Insert the last blocks first, so that the first blocks of a prompt are the most recently used and are removed
        // last.
        for content in contents(prompt).into_iter().rev() {
            self.uses += 1;
            let [_, last] = sent.uses.entry(content).or_insert([self.uses; 2]);
            sent.order.remove(last);
            *last = self.uses;
            sent.order.insert(self.uses, content);
        }
        while sent.uses.len() > MOST
            && let Some((_, oldest)) = sent.order.pop_first()
        {
            sent.uses.remove(&oldest);
        }
    }

    /// The beginning of the prompt that was sent to `replica` before; `None` if there is none.
    pub(super) fn matched(&self, replica: usize, prompt: &Prompt) -> Option<Match> {
        let uses = &self.replicas.get(&replica)?.uses;
        let firsts =
            contents(prompt).into_iter().map_while(|content| uses.get(&content).map(|[first, _]| *first));
        let (blocks, since) = firsts.enumerate().last()?;
        Some(Match { tokens: (blocks as u64 + 1) * BLOCK, since })
    }
}

/// Content hashes of the whole blocks of a prompt that another prompt may repeat.
fn contents(prompt: &Prompt) -> Vec<Content> {
    Tokens::of_prompt(prompt).contents((BLOCK, 0))
}
