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

/// The index of one replica: last use of each block, and blocks by last use.
#[derive(Debug, Clone, Default)]
struct Sent {
    last: BTreeMap<Content, u64>,
    order: BTreeMap<u64, Content>,
}

impl History {
    /// Adds the shareable blocks of a prompt to the index of `replica`.
    pub(super) fn insert(&mut self, replica: usize, prompt: &Prompt) {
        let sent = self.replicas.entry(replica).or_default();
        // Insert the last blocks first, so that the first blocks of a prompt are the most recently used and are removed
        // last.
        for content in contents(prompt).into_iter().rev() {
            self.uses += 1;
            if let Some(before) = sent.last.insert(content, self.uses) {
                sent.order.remove(&before);
            }
            sent.order.insert(self.uses, content);
        }
        while sent.last.len() > MOST
            && let Some((_, oldest)) = sent.order.pop_first()
        {
            sent.last.remove(&oldest);
        }
    }

    /// Number of tokens at the beginning of the prompt that were sent to `replica` before.
    pub(super) fn matched(&self, replica: usize, prompt: &Prompt) -> u64 {
        let Some(sent) = self.replicas.get(&replica) else { return 0 };
        let matched = contents(prompt).iter().take_while(|content| sent.last.contains_key(content)).count();
        matched as u64 * BLOCK
    }

    /// Number of tokens indexed for `replica`.
    pub(super) fn tokens(&self, replica: usize) -> u64 {
        self.replicas.get(&replica).map_or(0, |sent| sent.last.len() as u64 * BLOCK)
    }
}

/// Content hashes of the whole blocks of a prompt that another prompt may repeat.
fn contents(prompt: &Prompt) -> Vec<Content> {
    Tokens::of_prompt(prompt).contents((BLOCK, 0))
}
