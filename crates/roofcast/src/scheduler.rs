//! Scheduling policies: who computes how many tokens in the next step.

pub mod vllm;
