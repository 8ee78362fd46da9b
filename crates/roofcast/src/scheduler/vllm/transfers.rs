//! Settings of vLLM's host tier, and the transfers of a step.
//!
//! Does not contain: the decisions, which are [`super::tier`]'s.

use super::RequestId;
use crate::kv_cache::offload::Chunk;
use crate::kv_cache::prefix::Content;
use crate::spec::EvictionPolicy;
use std::collections::BTreeSet;

/// Settings of the host tier by vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadConfig {
    /// Chunks that the host holds.
    pub chunks: usize,
    /// Blocks of a chunk.
    pub blocks_per_chunk: usize,
    /// Order in which chunks leave the host.
    pub eviction_policy: EvictionPolicy,
    /// Offers from which on a chunk is stored; below 2 each chunk is.
    pub store_threshold: u32,
    /// True if only prompts are stored.
    pub offload_prompt_only: bool,
    /// Tokens that a step may load before it computes; 0 makes every load asynchronous.
    pub sync_load_budget_tokens: u64,
}

/// A chunk that is stored, with its group of layers.
pub(crate) type StoredChunk = (usize, Chunk);

/// Transfers that a step starts, and the connector's other decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Transfers {
    /// Loads from the host.
    pub loads: Vec<Load>,
    /// Stores to the host: job, request, chunks.
    pub stores: Vec<(u64, RequestId, Vec<StoredChunk>)>,
    /// Contents that left the host, in order.
    pub evicted: Vec<Content>,
    /// Requests whose chunks did not fit.
    pub refused: Vec<RequestId>,
    /// Requests that the connector put off.
    pub later: Vec<RequestId>,
    /// Jobs that the worker finishes before the step.
    pub flush: BTreeSet<u64>,
}

/// A load of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Load {
    /// Number of the job.
    pub job: u64,
    /// The request.
    pub id: RequestId,
    /// Tokens found on the device.
    pub local: u64,
    /// Tokens to load.
    pub tokens: u64,
    /// First block, and number of blocks, of each group of layers.
    pub(crate) blocks: Vec<[u64; 2]>,
    /// True if the request runs in the same step.
    pub sync: bool,
}

/// Tokens of a waiting request that the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum External {
    /// Asked again in a later step.
    Later,
    /// Loaded within the step; possibly none.
    Sync(u64),
    /// Loaded while the request waits.
    Async(u64),
}
