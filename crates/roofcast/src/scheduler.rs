//! Scheduling policies: which requests compute how many tokens in the next step. One file per policy.
//!
//! Knows: the decisions of each policy, in terms of [`State`]. Knows nothing about time. [`vllm`]'s scheduler with
//! block identities is tested against vLLM's own decisions, [`sglang`]'s against SGLang's; [`token_budget`] makes
//! vLLM's decisions by counting.

pub mod config;
pub(crate) mod lightllm;
pub(crate) mod llama_cpp;
pub(crate) mod orca;
pub mod sglang;
pub mod state;
pub(crate) mod static_batch;
pub(crate) mod token_budget;
pub(crate) mod vllm;
pub(crate) mod vllm_v0;

mod profile;

pub(crate) use profile::Profile;

use crate::scheduler::state::decodes::Decodes;
use crate::scheduler::state::{PrefillChunk, State};
use crate::spec::SchedulerKind;

/// Defaults of a scheduler, and the settings that it refuses.
pub(crate) fn profile(kind: SchedulerKind) -> Profile {
    match kind {
        SchedulerKind::Static => static_batch::profile(),
        SchedulerKind::Orca => orca::profile(),
        SchedulerKind::VllmV0 => vllm_v0::profile(),
        SchedulerKind::Vllm => token_budget::vllm(),
        SchedulerKind::Sarathi => token_budget::sarathi(),
        SchedulerKind::Splitfuse => token_budget::splitfuse(),
        SchedulerKind::TensorrtLlm => token_budget::guaranteed_no_evict(),
        SchedulerKind::TensorrtLlmMaxUtilization => token_budget::max_utilization(),
        SchedulerKind::Lightllm => lightllm::profile(),
        SchedulerKind::Sglang => sglang::profile(),
        SchedulerKind::LlamaCpp => llama_cpp::profile(),
    }
}

/// A policy.
#[derive(Debug, Clone)]
pub enum Policy {
    /// One batch at a time, as in FasterTransformer.
    Static,
    /// Iteration-level scheduling with space reserved up front.
    Orca,
    /// vLLM v0: prompts first.
    VllmV0,
    /// A budget of tokens per step: vLLM v1, Sarathi, SplitFuse, TensorRT-LLM.
    TokenBudget,
    /// LightLLM's estimate of the future peak.
    LightLlm,
    /// llama.cpp's slots.
    LlamaCpp,
}

impl Policy {
    /// Decides the next step: chunks of prompts are put into the state, and blocks are allocated. True if all decodes
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
        }
    }

    /// Number of decode-only steps for which the decision stays unchanged while no request arrives or leaves.
    #[inline(always)]
    pub(crate) fn patience<D: Decodes>(&self, state: &State<D>) -> u64 {
        match self {
            Policy::LightLlm => lightllm::patience(state),
            _ => u64::MAX,
        }
    }

    /// Steps that the sequences of `chunks`, which are whole prompts, decode in a batch that runs to its longest
    /// output.
    #[inline(always)]
    pub(crate) fn longest<D: Decodes>(&self, state: &State<D>, chunks: &[PrefillChunk]) -> Option<u32> {
        match self {
            Policy::Static => Some(static_batch::longest(state, chunks)),
            _ => None,
        }
    }
}

/// Preempts the last admitted requests until the next decodes have their blocks; returns the number of blocks, and
/// true if any request was preempted.
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
