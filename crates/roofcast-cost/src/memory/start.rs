//! An engine's memory report at start-up, and whether the engine starts.
//!
//! Knows: vLLM refuses to start if the cache cannot hold one request of `max_model_len` tokens, and reports the bytes
//! needed, the bytes available and the longest request that would fit; other engines refuse only if no memory remains
//! for the cache. Figures are per engine: data-parallel ranks and replicas each have their own.

use super::pages::PagePool;
use super::{Memory, Rank, beside_weights, budget, llama_cpp, padded, sequence_bytes, share};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::Bytes;
use serde::Serialize;

/// First version of vLLM that plans without the null block of its pool: one request must fit the other blocks
/// (`get_kv_cache_configs`, `v1/core/kv_cache_planning.py` of 0.33).
const NULL_BLOCK_RESERVED: &str = "0.30.0";

/// Memory figures that one engine reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Start {
    /// Longest request in tokens.
    pub max_model_len: u64,
    /// Bytes of weights on the fullest rank.
    pub weight_bytes: Bytes,
    /// Bytes for KV on the rank with the least room.
    pub kv_bytes: Bytes,
    /// Number of tokens that fit in the cache of one engine.
    pub kv_tokens: u64,
    /// Number of requests of `max_model_len` tokens that fit at one time.
    pub max_concurrency: f64,
    /// Most requests, of any length, that run at one time, if a pool of recurrent states limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running_requests: Option<u64>,
    /// Reason why the engine does not start; `None` if it starts.
    pub refusal: Option<Refusal>,
}

/// Reason why an engine does not start, with settings that would help.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// KV bytes that one request of `max_model_len` tokens needs on the rank with the least room.
    pub needed_bytes: Bytes,
    /// Bytes available for KV.
    pub available_bytes: Bytes,
    /// Bytes that are missing if weights and reserves alone do not fit, or if the engine requests more than is free.
    pub short_by_bytes: Bytes,
    /// Bytes that the engine requests.
    pub(crate) budget_bytes: Bytes,
    /// Bytes that no other process holds.
    pub(crate) free_bytes: Bytes,
    /// Bytes of the weights as they are loaded, if these alone do not fit.
    #[serde(skip)]
    pub(crate) loading_bytes: Option<Bytes>,
    /// Longest request in tokens with which the engine would start; 0 if it would not start with any.
    pub longest: u64,
    /// Nearest `gpu_memory_utilization`, in steps of 0.01, with which the engine would start: the largest that is
    /// free if too much is requested, else the smallest that suffices; `None` if there is none up to 0.99.
    pub gpu_memory_utilization: Option<f64>,
    /// Largest `max_num_seqs` with which the engine would start; `None` if fewer sequences do not help.
    pub max_num_seqs: Option<u64>,
}

impl Refusal {
    /// Writes the refusal as a sentence.
    pub fn told(&self, engine: &str, max_model_len: u64) -> String {
        let lacks = self.lacks(engine, max_model_len);
        let advice = self.advice(engine);
        format!("{engine} does not start: {lacks}; {advice}")
    }

    /// Writes what is missing.
    pub fn lacks(&self, engine: &str, max_model_len: u64) -> String {
        let gib = |bytes: Bytes| format!("{:.2} GiB", bytes.as_f64() / f64::from(1 << 30));
        let asks_too_much = self.budget_bytes > self.free_bytes;
        if let Some(loading) = self.loading_bytes {
            format!(
                "it loads {} of weights in 16 bits before it quantizes them, and {} of an accelerator's memory are free",
                gib(loading),
                gib(self.free_bytes)
            )
        } else if asks_too_much {
            format!(
                "{} of an accelerator's memory are free at start, less than the {} of its gpu_memory_utilization",
                gib(self.free_bytes),
                gib(self.budget_bytes)
            )
        } else if self.short_by_bytes > Bytes::ZERO {
            format!("weights and activations alone are {} more than it may take", gib(self.short_by_bytes))
        } else if engine == EngineKind::LlamaCpp.name() {
            let needed = gib(self.needed_bytes);
            let available = gib(self.available_bytes);
            format!("its KV cache needs {needed} an accelerator, {available} are there")
        } else {
            format!(
                "one request of {max_model_len} tokens needs {} of KV cache an accelerator, {} are there",
                gib(self.needed_bytes),
                gib(self.available_bytes)
            )
        }
    }

    /// Writes the settings with which the engine would start.
    fn advice(&self, engine: &str) -> String {
        let asks_too_much = self.budget_bytes > self.free_bytes;
        let length = if engine == EngineKind::LlamaCpp.name() { "n_ctx" } else { "max_model_len" };
        let would = [
            (self.longest > 0).then(|| format!("{length} up to {}", self.longest)),
            self.gpu_memory_utilization.map(|share| {
                let bound = if asks_too_much { "up to" } else { "from" };
                format!("gpu_memory_utilization {bound} {share}")
            }),
            self.max_num_seqs.map(|count| format!("max_num_seqs up to {count}")),
        ];
        let would: Vec<String> = would.into_iter().flatten().collect();
        match would.as_slice() {
            [] => "more or larger accelerators, or smaller weights, would do".to_owned(),
            some => format!("it would with {}", some.join(", or ")),
        }
    }
}

/// Cache of one rank, and the rule that counts the part of a request in it.
struct Room {
    rank: Rank,
    pool: Option<PagePool>,
    stage: usize,
}

impl Room {
    /// Bytes of one request of `context` tokens.
    fn needed(&self, deployment: &Deployment, context: u64) -> Bytes {
        match &self.pool {
            Some(pool) => pool.block * pool.blocks(context),
            None => sequence_bytes(deployment, self.stage, padded(deployment, context)),
        }
    }

    /// Bytes that the engine keeps back from the check: the null block of vLLM's pool.
    fn reserved(&self, deployment: &Deployment) -> Bytes {
        let is_checked = deployment.engine.is_since(NULL_BLOCK_RESERVED);
        self.pool.as_ref().filter(|_| is_checked).map_or(Bytes::ZERO, |pool| pool.block)
    }

    /// Number of requests of `context` tokens that fit, with a fraction.
    fn concurrency(&self, deployment: &Deployment, context: u64) -> f64 {
        let whole = self
            .pool
            .as_ref()
            .map_or(self.rank.kv_bytes, |pool| pool.block * (self.rank.kv_bytes.0 / pool.block.0.max(1)));
        whole.as_f64() / self.needed(deployment, context).as_f64().max(1.0)
    }
}

impl Memory<'_> {
    /// Refuses a deployment whose engine would not start with the requested `max_model_len`, or with the memory that
    /// other processes leave. An explicit number of blocks is accepted without a check, for runs with small caches,
    /// although vLLM compares it with the longest request from 0.21 on (`get_kv_cache_configs` of
    /// `v1/core/kv_cache_utils.py`), as [`Memory::start`] does.
    ///
    /// # Errors
    /// Fails with [`Error::WillNotStart`].
    pub fn starts(&self) -> Result<()> {
        let engine = &self.deployment.engine;
        let slots = llama_cpp::pool(self.deployment).map(|pool| pool.slot_context);
        let context = engine.max_model_len.or(slots).filter(|_| engine.num_gpu_blocks.is_none());
        let finds_less = self.ranks.iter().any(|rank| rank.beyond_free() > Bytes::ZERO);
        let Some(context) = context.or(finds_less.then_some(1)) else { return Ok(()) };
        match self.start(context) {
            Start { refusal: Some(refusal), max_model_len, .. } => {
                Err(Error::WillNotStart(refusal.told(engine.name(), max_model_len)))
            }
            _ => Ok(()),
        }
    }

    /// Start-up report. `context` is the longest request in tokens if neither spec nor model states one.
    pub fn start(&self, context: u64) -> Start {
        let deployment = self.deployment;
        if let Some(pool) = llama_cpp::pool(deployment) {
            return llama_cpp::start(deployment, pool);
        }
        let longest = deployment.longest().unwrap_or(context).max(1);
        let paged =
            deployment.engine.kind() == EngineKind::Vllm && !deployment.ideal && deployment.draft.is_none();
        let room = |(stage, rank): (usize, &Rank)| {
            let pool = if paged { PagePool::of(deployment, stage) } else { None };
            Room { rank: *rank, pool, stage }
        };
        let rooms: Vec<Room> = self.ranks.iter().enumerate().map(room).collect();
        let concurrency = |room: &Room| room.concurrency(deployment, longest);
        let tightest = rooms.iter().min_by(|a, b| concurrency(a).total_cmp(&concurrency(b)));
        let max_concurrency = tightest.map_or(0.0, concurrency);
        let kv_bytes = tightest.map_or(Bytes::ZERO, |room| room.rank.kv_bytes);
        let tokens = tightest.map_or(0, |room| tokens(deployment, room, longest));
        Start {
            max_model_len: longest,
            weight_bytes: rooms.iter().map(|room| room.rank.weight_bytes).max().unwrap_or(Bytes::ZERO),
            kv_bytes,
            kv_tokens: tokens,
            max_concurrency,
            max_running_requests: self.running().map(|most| most / deployment.parallelism.attention_dp),
            refusal: tightest
                .and_then(|room| loading(deployment, room).or_else(|| refusal(deployment, room, longest))),
        }
    }
}

/// Number of tokens that fit in the cache in whole blocks, for requests of `longest` tokens.
fn tokens(deployment: &Deployment, room: &Room, longest: u64) -> u64 {
    match &room.pool {
        Some(_) => (room.concurrency(deployment, longest) * longest as f64) as u64,
        None => {
            let sequence = sequence_bytes(deployment, room.stage, longest);
            let block = deployment.engine.block_size.max(1);
            share(room.rank.kv_bytes, longest, sequence) / block * block
        }
    }
}

/// Refusal of an engine whose weights do not fit while they are loaded; settings of the cache do not help it.
fn loading(deployment: &Deployment, room: &Room) -> Option<Refusal> {
    let largest_rank =
        Memory::of(&deployment.loading()?).ranks().iter().map(|rank| rank.weight_bytes).max()?;
    let free_bytes = room.rank.free_bytes;
    (largest_rank > free_bytes).then_some(Refusal {
        needed_bytes: Bytes::ZERO,
        available_bytes: Bytes::ZERO,
        short_by_bytes: Bytes(largest_rank.0.saturating_sub(free_bytes.0)),
        budget_bytes: room.rank.budget_bytes,
        free_bytes,
        loading_bytes: Some(largest_rank),
        longest: 0,
        gpu_memory_utilization: None,
        max_num_seqs: None,
    })
}

fn refusal(deployment: &Deployment, room: &Room, longest: u64) -> Option<Refusal> {
    let needed_bytes = match deployment.engine.kind() {
        EngineKind::Vllm => room.needed(deployment, longest),
        _ => Bytes(1),
    };
    let reserved = room.reserved(deployment);
    let available_bytes = room.rank.kv_bytes.saturating_sub(reserved);
    if room.rank.short_by_bytes == Bytes::ZERO && needed_bytes <= available_bytes {
        return None;
    }
    Some(Refusal {
        needed_bytes,
        available_bytes,
        short_by_bytes: room.rank.short_by_bytes,
        budget_bytes: room.rank.budget_bytes,
        free_bytes: room.rank.free_bytes,
        loading_bytes: None,
        longest: longest_that_fits(deployment, room, longest),
        gpu_memory_utilization: utilization(deployment, room, needed_bytes + reserved),
        max_num_seqs: sequences(deployment, room, needed_bytes + reserved),
    })
}

/// Longest request in tokens that fits, at most `most`.
fn longest_that_fits(deployment: &Deployment, room: &Room, most: u64) -> u64 {
    if room.rank.beyond_free() > Bytes::ZERO {
        return 0;
    }
    let available = room.rank.kv_bytes.saturating_sub(room.reserved(deployment));
    let mut fits = 0;
    let mut beyond = most + 1;
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        let holds = room.needed(deployment, middle) <= available;
        if holds { fits = middle } else { beyond = middle }
    }
    fits
}

/// Utilization, in steps of 0.01, that provides `needed` bytes and does not exceed the free memory: the largest below
/// the current one if the current one exceeds it, else the smallest above.
fn utilization(deployment: &Deployment, room: &Room, needed: Bytes) -> Option<f64> {
    let asks_too_much = room.rank.beyond_free() > Bytes::ZERO;
    let fixed_kv = deployment.engine.kv_cache_memory_bytes.map(Bytes);
    if fixed_kv.is_some() && !asks_too_much {
        return None;
    }
    let asked_percent = deployment.engine.gpu_memory_utilization * 100.0;
    let taken = room.rank.weight_bytes + room.rank.activation_bytes + room.rank.runtime_bytes;
    let starts = |share: &f64| {
        let mut other = deployment.clone();
        other.engine.gpu_memory_utilization = *share;
        let budget = budget(&other, taken);
        let kv = fixed_kv.unwrap_or_else(|| budget.saturating_sub(taken));
        budget <= room.rank.free_bytes && kv >= needed
    };
    let share = |percent: u64| percent as f64 / 100.0;
    if asks_too_much {
        (1..asked_percent.ceil() as u64).rev().map(share).find(starts)
    } else {
        (asked_percent.floor() as u64 + 1..=99).map(share).find(starts)
    }
}

/// Largest number of concurrent sequences whose step is small enough to leave `needed` bytes.
fn sequences(deployment: &Deployment, room: &Room, needed: Bytes) -> Option<u64> {
    if deployment.engine.kv_cache_memory_bytes.is_some() || room.rank.beyond_free() > Bytes::ZERO {
        return None;
    }
    let leaves = |count: u64| {
        let mut other = deployment.clone();
        other.engine.max_num_seqs = count;
        other.engine.requested.max_num_seqs = Some(count);
        let (activations, runtime) = beside_weights(&other);
        let taken = room.rank.weight_bytes + activations + runtime;
        budget(&other, taken).saturating_sub(taken) >= needed
    };
    let mut fits = 0;
    let mut beyond = deployment.engine.max_num_seqs;
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        if leaves(middle) { fits = middle } else { beyond = middle }
    }
    (fits > 0).then_some(fits)
}
