//! Caches of replicas as a cache-aware router sees them, and the prompt tokens that its choices find there.
//!
//! Knows: counts that replicas and their servers report. Knows nothing about policies ([`crate::router::cache`]).

use super::Servers;
use crate::engine::Replica;
use crate::router::cache::Replicas;
use roofcast_ask::arrival::NamedAdapters;
use roofcast_ask::workload::Prompt;

/// Prompt tokens that were in the prefix caches of replicas when the router chose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundPrefixes {
    /// Prompt tokens of all requests.
    pub prompt_tokens: u64,
    /// Prompt tokens that were in the cache of the chosen replica.
    pub found_tokens: u64,
    /// Prompt tokens that were in the cache with the longest match; the difference to `found_tokens` is the router's
    /// regret.
    pub most_tokens: u64,
}

impl FoundPrefixes {
    /// Adds a request of `prompt` tokens, for which the router chose replica `chosen` of `candidates`.
    pub(super) fn add(&mut self, prompt: u64, chosen: usize, candidates: &[usize], seen: &Caches) {
        self.prompt_tokens += prompt;
        self.found_tokens += seen.held(chosen);
        self.most_tokens += candidates.iter().map(|index| seen.held(*index)).max().unwrap_or(0);
    }
}

/// Reports of the replicas on one prompt: tokens in their caches.
pub(super) struct Caches<'a> {
    pub(super) replicas: &'a [Box<dyn Replica>],
    pub(super) servers: &'a Servers,
    pub(super) prompt: &'a Prompt,
    /// For each replica, the cached tokens that KV events have told so far; empty if the caches themselves are read.
    pub(super) known: Vec<u64>,
}

impl Caches<'_> {
    /// Tokens of the prompt that are in the cache now.
    fn held(&self, index: usize) -> u64 {
        self.replicas[index].cached(self.prompt)
    }
}

impl Replicas for Caches<'_> {
    fn in_flight(&self, index: usize) -> u64 {
        self.replicas[index].in_flight() + self.servers.inside(index)
    }

    fn waiting(&self, index: usize) -> u64 {
        self.replicas[index].waiting()
    }

    fn prompt_tokens(&self, index: usize) -> u64 {
        self.replicas[index].prompt_tokens()
    }

    fn unanswered_tokens(&self, index: usize) -> u64 {
        self.prompt_tokens(index) + self.servers.prompt_tokens(index)
    }

    fn blocks(&self, index: usize) -> (u64, u64) {
        self.replicas[index].blocks()
    }

    fn cached(&self, index: usize) -> u64 {
        self.known.get(index).copied().unwrap_or_else(|| self.held(index))
    }

    fn adapters(&self, index: usize) -> NamedAdapters {
        self.replicas[index].adapters()
    }

    fn cached_on_host(&self, index: usize) -> u64 {
        self.replicas[index].cached_on_host(self.prompt)
    }
}
