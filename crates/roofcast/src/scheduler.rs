//! Scheduling policies: who computes how many tokens in the next step. A file each.
//!
//! Knows: what each policy decides, in the moves of [`State`]. Knows nothing about time. [`vllm`]'s scheduler with block
//! identities is held to vLLM's own decisions; [`token_budget`] makes the same ones by counting.

pub mod token_budget;
pub mod vllm;

use crate::engine::decodes::Decodes;
use crate::engine::state::{Piece, State};

/// A policy.
#[derive(Debug, Clone)]
pub enum Policy {
    /// vLLM v1.
    Vllm(token_budget::TokenBudget),
}

impl Policy {
    /// Decides the next step: pieces of prompts are left in the state, blocks are taken; whether all decodes take part.
    pub fn schedule<D: Decodes>(&mut self, state: &mut State<D>) -> bool {
        match self {
            Policy::Vllm(policy) => policy.schedule(state),
        }
    }

    /// For how many steps of decodes alone the decision stays the same where nobody comes or goes.
    pub fn patience<D: Decodes>(&self, _state: &State<D>) -> u64 {
        u64::MAX
    }

    /// Steps that the sequences of `whole` decode, where a batch runs to its longest.
    pub fn longest<D: Decodes>(&self, _state: &State<D>, _whole: &[Piece]) -> Option<u32> {
        None
    }
}
