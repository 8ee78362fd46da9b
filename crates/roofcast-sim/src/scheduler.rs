//! Scheduling policies: which requests compute how many tokens in the next step. Each policy is one file.
//!
//! Knows: the decisions of each policy, in terms of [`State`]. Knows nothing about time. The scheduler of [`vllm`],
//! which identifies blocks, is tested against vLLM's own decisions, the one of [`sglang`] against SGLang's;
//! [`token_budget`] makes vLLM's decisions by counting blocks.

pub mod config;
pub(crate) mod lightllm;
pub(crate) mod llama_cpp;
pub(crate) mod orca;
pub mod sglang;
#[cfg(test)]
mod shortest;
pub mod state;
pub(crate) mod static_batch;
pub(crate) mod token_budget;
pub mod vllm;
pub(crate) mod vllm_v0;

use crate::scheduler::state::decodes::Decodes;
use crate::scheduler::state::{PrefillChunk, State};
use roofcast_ask::spec::SchedulerKind;

/// A scheduling policy.
#[derive(Debug, Clone)]
pub enum Policy {
    /// One batch at a time until its longest output ends, as in FasterTransformer.
    Static,
    /// Iteration-level scheduling with memory reserved at admission.
    Orca,
    /// vLLM v0: prompts before decodes.
    VllmV0,
    /// A token budget per step: vLLM v1, Sarathi, SplitFuse, TensorRT-LLM.
    TokenBudget,
    /// LightLLM: admission by an estimate of the future peak of the KV cache.
    LightLlm,
    /// llama.cpp: a fixed number of slots.
    LlamaCpp,
    /// Shortest prompt first, for tests.
    #[cfg(test)]
    Shortest,
}

impl Policy {
    /// Policy of a kind of scheduler. SGLang's is a placeholder, because [`crate::engine::sglang`] drives its scheduler.
    pub(crate) fn of(kind: SchedulerKind) -> Policy {
        match kind {
            SchedulerKind::Static => Policy::Static,
            SchedulerKind::Orca => Policy::Orca,
            SchedulerKind::VllmV0 => Policy::VllmV0,
            SchedulerKind::Vllm
            | SchedulerKind::Sarathi
            | SchedulerKind::Splitfuse
            | SchedulerKind::TensorrtLlm
            | SchedulerKind::TensorrtLlmMaxUtilization
            | SchedulerKind::Sglang => Policy::TokenBudget,
            SchedulerKind::Lightllm => Policy::LightLlm,
            SchedulerKind::LlamaCpp => Policy::LlamaCpp,
        }
    }

    /// Decides the next step: records chunks of prompts in the state and allocates blocks. Returns true if all decodes
    /// take part.
    #[inline(always)]
    pub(crate) fn schedule<D: Decodes>(&mut self, state: &mut State<D>) -> bool {
        match self {
            Policy::Static => static_batch::schedule(state),
            Policy::Orca => orca::schedule(state),
            Policy::VllmV0 => vllm_v0::schedule(state),
            Policy::TokenBudget => token_budget::schedule(state),
            Policy::LightLlm => lightllm::schedule(state),
            Policy::LlamaCpp => llama_cpp::schedule(state),
            #[cfg(test)]
            Policy::Shortest => shortest::schedule(state),
        }
    }

    /// Number of steps of decodes alone for which the decision stays unchanged while no request arrives or leaves.
    #[inline(always)]
    pub(crate) fn patience<D: Decodes>(&self, state: &State<D>) -> u64 {
        match self {
            Policy::LightLlm => lightllm::patience(state),
            _ => u64::MAX,
        }
    }

    /// Number of steps that the sequences of `chunks`, which are whole prompts, decode together, for a policy that runs
    /// a batch until its longest output ends; `None` for other policies.
    #[inline(always)]
    pub(crate) fn longest<D: Decodes>(&self, state: &State<D>, chunks: &[PrefillChunk]) -> Option<u32> {
        match self {
            Policy::Static => Some(static_batch::longest(state, chunks)),
            _ => None,
        }
    }
}

/// Preempts the last admitted requests until the next decodes have their blocks. Returns the number of blocks, and true
/// if any request was preempted.
#[inline(always)]
fn make_room<D: Decodes>(state: &mut State<D>) -> (u64, bool) {
    let mut preempted = false;
    loop {
        let blocks = state.decode_blocks(1);
        if blocks <= state.free() {
            return (blocks, preempted);
        }
        preempted |= state.preempt_last().is_some();
    }
}
