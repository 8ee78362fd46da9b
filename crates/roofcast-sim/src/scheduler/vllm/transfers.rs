//! Settings of vLLM's host tier, and the copies of one step.
//!
//! Knows: the settings and the form of decisions. Knows nothing about how [`super::tier`] makes them.

use super::RequestId;
use crate::kv_cache::names::Name;
use crate::kv_cache::offload::Chunks;
use roofcast_ask::spec::EvictionPolicy;
use std::collections::BTreeSet;
use std::ops::Range;

/// Settings of the host tier, by vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadConfig {
    /// Number of chunks that the host holds.
    pub chunks: usize,
    /// Number of blocks per chunk.
    pub blocks_per_chunk: usize,
    /// Order in which chunks are evicted from the host.
    pub eviction_policy: EvictionPolicy,
    /// Number of times that a chunk must be offered before it is stored; below 2 it is stored at once.
    pub store_threshold: u32,
    /// True if only prompts are stored.
    pub offload_prompt_only: bool,
    /// Most tokens that a step may load before it computes; 0 makes every load asynchronous.
    pub sync_load_budget_tokens: u64,
    /// Number of chunks that storage below the host holds; `None` without storage.
    pub storage_chunks: Option<usize>,
}

/// Copies that a step starts, and the connector's other decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Loads from the host.
    pub loads: Vec<Load>,
    /// Stores to the host: number of the job, request, chunks.
    pub stores: Vec<(u64, RequestId, Vec<Chunks>)>,
    /// Contents that were evicted from the host, in order, each range from its end.
    pub evicted: Vec<Range<Name>>,
    /// Requests whose chunks did not fit on the host.
    pub refused: Vec<RequestId>,
    /// Requests that the connector postponed to a later step.
    pub later: Vec<RequestId>,
    /// Jobs that the worker must finish before the step runs.
    pub flush: BTreeSet<u64>,
    /// True if a postponed request has asked storage, whose answer is there in the next step.
    pub(crate) asked: bool,
}

/// A copy between the host and storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StorageCopy {
    /// Number of the copy.
    pub(crate) job: u64,
    /// Number of chunks.
    pub(crate) chunks: usize,
    /// True for a copy from storage to the host.
    pub(crate) promotes: bool,
}

/// A load from the host for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Number of the job.
    pub job: u64,
    /// The request that loads.
    pub id: RequestId,
    /// Number of tokens found on the device.
    pub local: u64,
    /// Number of tokens to load.
    pub tokens: u64,
    /// Number of these tokens that came from storage for this request.
    pub(crate) promoted: u64,
    /// For each group of layers, its first block to load and the number of blocks.
    pub blocks: Vec<[u64; 2]>,
    /// True if the request runs in the step that loads.
    pub sync: bool,
}

/// Result of looking up a waiting request's tokens on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum External {
    /// The look-up is repeated in a later step.
    Later,
    /// Number of tokens to load within the step; may be 0.
    Sync(u64),
    /// Number of tokens to load while the request waits.
    Async(u64),
}
