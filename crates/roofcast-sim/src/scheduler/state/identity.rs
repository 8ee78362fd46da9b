//! Blocks of each request in a replica whose prefix cache identifies blocks by content.
//!
//! Knows: the effects that [`crate::scheduler::vllm`] has on its pool, for requests that decode in lockstep: full
//! blocks of prompts can be found once they are scheduled, blocks of outputs once the request has left. A block that no
//! other request can share is identified by its owner. Knows nothing about which requests are admitted or preempted.

use crate::kv_cache::extents::{Extents, Path};
use crate::kv_cache::prefix::{SharedPrefix, Tokens};
use roofcast_ask::arrival::SequenceId;
use roofcast_ask::workload::request::{Prompt, Run};

/// The blocks of one replica, by content.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    block: u64,
    pool: Extents,
    held: Vec<Held>,
    /// Cached blocks that were found for the head of the queue.
    found: Path,
}

#[derive(Debug, Clone, Default)]
struct Held {
    number: u64,
    /// Tokens that other requests can share: the shared part of the prompt, or all of prompt and output.
    tokens: Tokens,
    own_from: u64,
    output_segment: u32,
    /// Number of output tokens in `tokens`.
    generated: u64,
    /// Number of blocks that the request holds, without blocks that decodes allocated.
    blocks: u64,
    /// Blocks whose contents are published to the pool.
    path: Path,
}

impl Identity {
    pub(super) fn new(blocks: u64, block_size: u32) -> Identity {
        let block = u64::from(block_size);
        Identity { block, pool: Extents::new(blocks, block), held: Vec::new(), found: Path::default() }
    }

    pub(super) fn free(&self) -> u64 {
        self.pool.free()
    }

    /// Number of tokens that requests hold in addition to a token's first holder.
    pub(super) fn shared_tokens(&self) -> u64 {
        self.pool.repeated() * self.block
    }

    /// Number of tokens of `prompt` that are in the pool, in whole blocks.
    pub(super) fn holds(&self, prompt: &Prompt) -> u64 {
        let tokens = Tokens::of_prompt(prompt);
        let mut prefix = Path::default();
        self.pool.find(tokens.runs(), tokens.len() / self.block, &mut prefix);
        prefix.blocks * self.block
    }

    /// Adds a request to the queue.
    pub(super) fn arrive(&mut self, id: SequenceId, number: u64, prefix: SharedPrefix) {
        let index = id as usize;
        if self.held.len() <= index {
            self.held.resize(index + 1, Held::default());
        }
        let SharedPrefix { tokens, own_from, output_segment, .. } = prefix;
        self.held[index] = Held { number, tokens, own_from, output_segment, ..Held::default() };
    }

    /// Looks up the blocks of a request's `known` tokens except the last one; returns the number of cached tokens.
    pub(super) fn find(&mut self, id: SequenceId, known: u64) -> u64 {
        let full = known.saturating_sub(1) / self.block;
        let sequence = &self.held[id as usize];
        let shared = full.min(sequence.own_from / self.block);
        self.pool.find(sequence.tokens.runs(), shared, &mut self.found);
        if self.found.blocks == shared {
            self.pool.find_own(&sequence.path, sequence.number, full - shared, &mut self.found);
        }
        self.found.blocks * self.block
    }

    /// Number of free blocks needed to admit a request with its found blocks and `tokens` further tokens.
    pub(super) fn admission_blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block) + self.pool.unheld(&self.found)
    }

    /// Admits a request with its found blocks, and allocates blocks for `tokens` further tokens.
    pub(super) fn admit(&mut self, id: SequenceId, tokens: u64) {
        self.pool.hold(&mut self.found);
        let sequence = &mut self.held[id as usize];
        std::mem::swap(&mut sequence.path, &mut self.found);
        sequence.blocks = sequence.path.blocks;
        let filled = sequence.blocks * self.block + tokens;
        self.extend(id, filled);
    }

    /// Allocates blocks for the first `filled` known tokens; the full ones can be found from now on.
    pub(super) fn extend(&mut self, id: SequenceId, filled: u64) {
        let sequence = &mut self.held[id as usize];
        let blocks = filled.div_ceil(self.block).max(sequence.blocks);
        self.pool.take(blocks - sequence.blocks);
        sequence.blocks = blocks;
        sequence.name(filled / self.block, self.block, &mut self.pool);
    }

    /// Allocates `blocks` blocks for decodes.
    pub(super) fn decode(&mut self, blocks: u64) {
        self.pool.take(blocks);
    }

    /// Frees the `blocks` blocks of a sequence of `computed` tokens, of which `generated` or one more are output. When
    /// the sequence is admitted again, it finds the blocks that were not overwritten meanwhile.
    pub(super) fn leave(&mut self, id: SequenceId, blocks: u64, computed: u64, generated: u64) {
        let sequence = &mut self.held[id as usize];
        if sequence.own_from == u64::MAX && generated > sequence.generated {
            let segment = sequence.output_segment;
            let start = sequence.generated;
            sequence.tokens.push(Run { segment, start, length: generated - start });
            sequence.generated = generated;
        }
        sequence.name((computed / self.block).min(blocks), self.block, &mut self.pool);
        let blank = blocks - sequence.path.blocks;
        self.pool.release(&mut sequence.path, blank);
    }

    /// Removes a request that has left for good.
    pub(super) fn forget(&mut self, id: SequenceId) {
        self.held[id as usize] = Held::default();
    }
}

impl Held {
    /// Publishes the contents of a request's first `full` blocks to the pool.
    fn name(&mut self, full: u64, block: u64, pool: &mut Extents) {
        pool.name(&mut self.path, self.tokens.runs(), full.min(self.own_from / block));
        pool.name_own(&mut self.path, self.number, full);
    }
}
