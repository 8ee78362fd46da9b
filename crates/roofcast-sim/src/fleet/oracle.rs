//! Hits of an oracle: one cache as large as the caches of all replicas together, with Belady's replacement.
//!
//! Knows: the blocks of all prompts and answers, in the order in which requests arrive and end. No router and no
//! eviction finds more prompt tokens: the oracle needs no room for running requests, finds every block from the moment
//! its request arrives, and knows all future look-ups. Knows nothing about replicas.

use crate::kv_cache::belady::Uses;
use crate::kv_cache::prefix::{Tokens, push_output};
use roofcast_ask::arrival::Departure;
use roofcast_ask::workload::Prompt;
use std::collections::BTreeMap;

/// Most uses of blocks that are kept; with more there is no answer.
const MOST: usize = 1 << 26;

/// Uses of all blocks in a run, and the prompt tokens that were found.
#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    /// Tokens per block.
    block: u64,
    uses: Uses,
    /// Tokens of the prompts of requests that have not ended, where a later prompt may repeat the output.
    open: BTreeMap<u64, Tokens>,
    prompt_tokens: u64,
    found_tokens: u64,
}

/// Prompt tokens that prefix caches found in a run, and the most that any router and eviction could find.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OracleHits {
    /// Tokens of the oracle's cache: the caches of all replicas, with the tiers below.
    pub capacity_tokens: u64,
    /// Prompt tokens of all requests.
    pub prompt_tokens: u64,
    /// Prompt tokens found when requests were first admitted.
    pub found_tokens: u64,
    /// Prompt tokens that the oracle finds.
    pub most_tokens: u64,
}

impl Oracle {
    /// An oracle for caches of `block` tokens a block.
    pub(crate) fn new(block: u64) -> Oracle {
        Oracle { block, uses: Uses::default(), open: BTreeMap::new(), prompt_tokens: 0, found_tokens: 0 }
    }

    /// Adds request `number` with a prompt of `input` tokens.
    pub(super) fn arrive(&mut self, number: u64, input: u64, prompt: &Prompt) {
        self.prompt_tokens += input;
        if self.uses.len() > MOST {
            return;
        }
        let tokens = Tokens::of_prompt(prompt);
        self.uses.add(&tokens.clone().contents((self.block, 0)), true);
        if matches!(prompt, Prompt::Runs(_)) {
            self.open.insert(number, tokens);
        }
    }

    /// Adds the answer of a request that has ended.
    pub(super) fn end(&mut self, gone: &Departure) {
        self.found_tokens += gone.cached;
        let arrival = &gone.arrival;
        let Some(mut tokens) = self.open.remove(&arrival.number) else { return };
        let whole = tokens.len() / self.block;
        push_output(&mut tokens, (arrival.output_segment, None), 0, u64::from(arrival.output));
        let contents = tokens.contents((self.block, 0));
        self.uses.add(&contents[whole as usize..], false);
    }

    /// Hits of the run, and of an oracle with room for `capacity` tokens; `None` for a run with too many blocks.
    pub(crate) fn hits(&self, capacity: u64) -> Option<OracleHits> {
        let blocks = usize::try_from(capacity / self.block).unwrap_or(usize::MAX);
        (self.uses.len() <= MOST).then(|| OracleHits {
            capacity_tokens: capacity,
            prompt_tokens: self.prompt_tokens,
            found_tokens: self.found_tokens,
            most_tokens: (self.uses.most_hits(blocks) * self.block).min(self.prompt_tokens),
        })
    }
}
