//! Which blocks each request of a replica holds, where it matters which: with a prefix cache.
//!
//! Knows: what [`crate::scheduler::vllm`] does to the pool, for requests that decode in lockstep: a block is taken in the
//! step in which a sequence needs it, in order of admission, and found again by its content. Costs the blocks taken, not
//! the sequences running. Knows nothing about which requests are admitted or preempted.

use super::arrival::SequenceId;
use crate::kv_cache::paged::{Block, Pool};
use crate::kv_cache::prefix::{Content, Prefix, Tokens};
use crate::workload::request::Run;

/// The blocks of one replica.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    block: u64,
    pool: Pool,
    held: Vec<Held>,
    /// Steps of decodes so far.
    step: u64,
    /// Decoding sequences by the remainder of the steps in which they need a block; in order of admission, with entries of
    /// those that have left.
    needing: Vec<Vec<(SequenceId, u32)>>,
    /// What the head of the queue was found to have in the cache.
    found: Vec<Block>,
}

#[derive(Debug, Clone, Default)]
struct Held {
    number: u64,
    /// Tokens that others may have, too: the shared part of the prompt, or all of it and the output.
    tokens: Tokens,
    own_from: u64,
    output_segment: u32,
    /// Output tokens that `tokens` has.
    generated: u64,
    blocks: Vec<Block>,
    /// What it held before it was preempted.
    former: Vec<Block>,
    contents: Vec<Content>,
    /// Blocks whose content the pool knows.
    cached: usize,
    /// Tells this stay among the decodes from others; odd while it lasts.
    stay: u32,
}

impl Identity {
    pub(super) fn new(blocks: u64, block_size: u32) -> Identity {
        Identity {
            block: u64::from(block_size),
            pool: Pool::new(u32::try_from(blocks).unwrap_or(u32::MAX)),
            held: Vec::new(),
            step: 0,
            needing: vec![Vec::new(); block_size as usize],
            found: Vec::new(),
        }
    }

    pub(super) fn free(&self) -> u64 {
        self.pool.free()
    }

    /// Tokens that requests hold beyond the first that holds them.
    pub(super) fn shared_tokens(&self) -> u64 {
        self.pool.repeated() * self.block
    }

    /// A request joins the queue.
    pub(super) fn arrive(&mut self, id: SequenceId, number: u64, prefix: Prefix) {
        let index = id as usize;
        if self.held.len() <= index {
            self.held.resize(index + 1, Held::default());
        }
        let held = &mut self.held[index];
        let stay = held.stay;
        held.former.clear();
        held.contents.clear();
        *held = Held {
            number,
            tokens: prefix.tokens,
            own_from: prefix.own_from,
            output_segment: prefix.output_segment,
            blocks: std::mem::take(&mut held.blocks),
            former: std::mem::take(&mut held.former),
            contents: std::mem::take(&mut held.contents),
            stay,
            ..Held::default()
        };
    }

    /// Looks for the blocks of a request's `known` tokens, all but the last: how many tokens are there.
    pub(super) fn find(&mut self, id: SequenceId, known: u64) -> u64 {
        let full = (known.saturating_sub(1) / self.block) as usize;
        let held = &mut self.held[id as usize];
        held.name(full, self.block);
        self.found = self.pool.lookup(&held.contents[..full], &held.former);
        self.found.len() as u64 * self.block
    }

    /// Free blocks that admitting what was found, with `tokens` more, takes.
    pub(super) fn admission_blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block) + self.pool.unheld(&self.found)
    }

    /// Admits a request with what was found, and blocks for `tokens` more.
    pub(super) fn admit(&mut self, id: SequenceId, tokens: u64) {
        let held = &mut self.held[id as usize];
        self.pool.hold(&self.found);
        held.blocks.clear();
        held.blocks.extend_from_slice(&self.found);
        held.cached = self.found.len();
        let filled = held.blocks.len() as u64 * self.block + tokens;
        self.extend(id, filled);
    }

    /// Blocks for the first `filled` known tokens; those that are full can be found from now on.
    pub(super) fn extend(&mut self, id: SequenceId, filled: u64) {
        let held = &mut self.held[id as usize];
        let count = filled.div_ceil(self.block).saturating_sub(held.blocks.len() as u64);
        self.pool.allocate(count, &mut held.blocks);
        held.cache(filled, self.block, &mut self.pool);
    }

    /// A sequence of `computed` tokens begins to decode.
    pub(super) fn join(&mut self, id: SequenceId, computed: u64) {
        // It needs a block in the steps that start with its last one full: when computed + steps since now ≡ 0.
        let until = (self.block - computed % self.block) % self.block;
        let held = &mut self.held[id as usize];
        held.stay += 1;
        let entry = (id, held.stay);
        self.needing[((self.step + until) % self.block) as usize].push(entry);
    }

    /// Blocks for `steps` steps of decodes.
    pub(super) fn decode(&mut self, steps: u64) {
        for _ in 0..steps {
            let needing = &mut self.needing[(self.step % self.block) as usize];
            let held = &mut self.held;
            needing.retain(|(id, stay)| held[*id as usize].stay == *stay);
            for (id, _) in needing {
                self.pool.allocate(1, &mut held[*id as usize].blocks);
            }
            self.step += 1;
        }
    }

    /// A sequence of `computed` tokens, `generated` of them or one more being output, gives back its blocks; `decoding`
    /// says whether it was among the decodes. Readmitted, it finds the blocks that are not overwritten by then.
    pub(super) fn leave(&mut self, id: SequenceId, computed: u64, generated: u64, decoding: bool) {
        let held = &mut self.held[id as usize];
        held.stay += u32::from(decoding);
        if held.own_from == u64::MAX && generated > held.generated {
            let (segment, start) = (held.output_segment, held.generated);
            held.tokens.push(Run { segment, start, length: generated - start });
            held.generated = generated;
        }
        held.cache(computed, self.block, &mut self.pool);
        held.cached = 0;
        self.pool.release(&held.blocks);
        std::mem::swap(&mut held.former, &mut held.blocks);
        held.blocks.clear();
    }
}

impl Held {
    /// Names the first `count` blocks.
    fn name(&mut self, count: usize, block: u64) {
        let shared = (self.own_from / block) as usize;
        while self.contents.len() < count {
            let index = self.contents.len();
            let past = self.contents.last().copied().unwrap_or(Content::START);
            let content = if index >= shared {
                Content::own(self.number, index)
            } else {
                self.tokens.name_next(past, block)
            };
            self.contents.push(content);
        }
    }

    /// Tells the pool what the full blocks among the first `filled` tokens hold.
    fn cache(&mut self, filled: u64, block: u64, pool: &mut Pool) {
        let full = (filled / block) as usize;
        self.name(full, block);
        for index in self.cached..full.min(self.blocks.len()) {
            pool.cache(self.blocks[index], self.contents[index]);
        }
        self.cached = self.cached.max(full);
    }
}
