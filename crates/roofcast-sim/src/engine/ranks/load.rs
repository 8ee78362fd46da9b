//! Work of one data-parallel rank in a step.
//!
//! Knows: the sequences that a rank computes. Knows nothing about the order in which a scheduler chose them, or about
//! other ranks.

use roofcast_cost::operator::AdaptedTokens;
use roofcast_cost::step::Contexts;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::clock::Ticks;
use std::collections::BTreeSet;

/// Work of one rank in a step, which prices the step of all ranks.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::engine) struct StepLoad {
    /// Number of sequences that decode one token.
    pub(in crate::engine) decodes: u64,
    /// Tokens of context that the decodes read with full attention.
    pub(in crate::engine) all: u64,
    /// Tokens of context that the decodes read within each window of the model.
    pub(in crate::engine) within: Vec<u64>,
    /// Chunks of prompts, and sequences that verify drafts.
    pub(in crate::engine) chunks: Vec<Sequences>,
    /// LoRA adapters that requests name, each with the number of computed tokens of one request.
    pub(in crate::engine) adapted: Vec<(u32, u64)>,
}

/// Tokens whose requests name an adapter, of all ranks with the work `loads`, and their adapters.
pub(super) fn adapted<'a>(loads: impl Iterator<Item = &'a [(u32, u64)]>) -> AdaptedTokens {
    let named: Vec<(u32, u64)> = loads.flatten().copied().collect();
    let distinct: BTreeSet<u32> = named.iter().map(|(adapter, _)| *adapter).collect();
    AdaptedTokens { adapters: distinct.len() as u64, tokens: named.iter().map(|(_, tokens)| tokens).sum() }
}

/// Steps of a rank that equal its prepared one but for the contexts.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::engine) struct Repeats {
    /// Number of steps, the prepared one included.
    pub(in crate::engine) steps: u64,
    /// Time from which on a step may differ.
    pub(in crate::engine) until: Ticks,
    /// Growth of [`StepLoad::within`] per step.
    pub(in crate::engine) growth: Vec<u64>,
    /// Time of the step in flight, at whose end the step after the prepared one is decided; `None` if that step is decided
    /// at the end of the prepared one.
    pub(in crate::engine) in_flight: Option<Ticks>,
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats { steps: 1, until: Ticks::NEVER, growth: Vec::new(), in_flight: None }
    }
}

impl StepLoad {
    /// The work of `decodes` sequences that read the context `seen`, and of `chunks`.
    pub(in crate::engine) fn new(decodes: u64, seen: Seen, chunks: Vec<Sequences>) -> StepLoad {
        StepLoad { decodes, all: seen.all, within: seen.within.to_vec(), chunks, adapted: Vec::new() }
    }

    /// Tokens of context that the decodes read.
    pub(super) fn seen(&self) -> Seen<'_> {
        Seen { all: self.all, within: &self.within }
    }

    /// Contexts of the decodes.
    pub(super) fn contexts(&self) -> Contexts<'_> {
        Contexts::Seen(self.seen())
    }

    /// True if the rank computes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.decodes == 0 && self.chunks.is_empty()
    }
}
