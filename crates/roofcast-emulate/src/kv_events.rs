//! KV events: blocks that a replica's prefix cache stores and removes, published for routers.
//!
//! Knows: which blocks and tokens a change is about, and their hashes. [`config`] has the settings, [`hashes`]
//! computes the hashes, [`encoding`] encodes events, [`publisher`] sends them.

mod config;
mod encoding;
mod hashes;
mod publisher;

pub use config::KvEventsConfig;
pub use encoding::Encoding;
pub(crate) use encoding::Told;
pub(crate) use publisher::Outbox;

use super::adapters::Adapter;
use hashes::{Digest, adapter, block, root, short};
use roofcast::engine::online::{Change, Online, OnlineRequest};
use roofcast::kv_cache::prefix::Content;
use std::collections::HashMap;

/// Converts the changes of one replica's cache to events, with vLLM's hashes of the blocks.
#[derive(Debug)]
pub(crate) struct KvEvents {
    root: Digest,
    block_size: u64,
    outbox: Outbox,
    /// For each content of a block, its hash and the number of blocks with this content. It is used only for look-ups,
    /// so the map's order never matters.
    stored: HashMap<Content, (u64, u64)>,
}

/// Hashes of a request's blocks, in order from its first block.
pub(crate) type Chain = Vec<Digest>;

impl KvEvents {
    /// Creates events of a cache whose blocks have `block_size` tokens; hashes start from the hash of `seed`.
    pub(crate) fn new(seed: &str, block_size: u64, outbox: Outbox) -> KvEvents {
        KvEvents { root: root(seed), block_size, outbox, stored: HashMap::new() }
    }

    /// Takes the changes that a step made to the cache.
    pub(crate) fn changes(&mut self, engine: &mut Online) -> Vec<Change> {
        let mut changes = Vec::new();
        engine.take_changes(&mut changes);
        changes
    }

    /// Publishes events to subscribers.
    pub(crate) fn tell(&self, told: Vec<Told>) {
        if !told.is_empty() {
            self.outbox.send(told);
        }
    }

    /// Records that a request's blocks from number `first` on are in the cache; `chain` has the request's hashes as far
    /// as they are computed.
    pub(crate) fn store(
        &mut self,
        (asked, lora): (&OnlineRequest, Option<&Adapter>),
        chain: &mut Chain,
        first: usize,
        contents: &[Content],
    ) -> Told {
        let extra = lora.map(|lora| adapter(&lora.name, &lora.path));
        let size = self.block_size as usize;
        let end = first + contents.len();
        let mut tokens = Vec::with_capacity(contents.len() * size);
        let token = |at: usize| match at.checked_sub(asked.prompt.len()) {
            None => asked.prompt.get(at),
            Some(at) => asked.output.get(at),
        };
        let of_block = |index: usize| (index * size..(index + 1) * size).filter_map(token).copied();
        while chain.len() < end {
            let parent = chain.last().unwrap_or(&self.root);
            chain.push(block(parent, of_block(chain.len()), extra.as_ref()));
        }
        (first..end).for_each(|index| tokens.extend(of_block(index)));
        let hashes: Vec<u64> = chain[first..end].iter().map(short).collect();
        for (content, hash) in contents.iter().zip(&hashes) {
            self.stored.entry(*content).or_insert((*hash, 0)).1 += 1;
        }
        let parent = first.checked_sub(1).map(|before| short(&chain[before]));
        let lora = lora.map(|lora| (u64::from(lora.number), lora.name.clone()));
        Told::Stored { hashes, parent, tokens, block_size: self.block_size, lora }
    }

    /// Records that the cache was emptied.
    pub(crate) fn clear(&mut self) {
        self.stored.clear();
        self.tell(vec![Told::Cleared]);
    }

    /// Records that a block was removed from the cache; returns the event to publish.
    pub(crate) fn remove(&mut self, content: Content) -> Option<Told> {
        let (hash, count) = self.stored.get_mut(&content)?;
        *count -= 1;
        let removal = Told::Removed { hashes: vec![*hash] };
        if *count == 0 {
            self.stored.remove(&content);
        }
        Some(removal)
    }
}
