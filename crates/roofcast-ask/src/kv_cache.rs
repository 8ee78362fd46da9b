//! Rules of a KV cache that follow from the question: groups of layers, places of tokens in memory, tiers.
//!
//! Knows: sizes. Knows nothing about which request holds which blocks.

pub mod groups;
pub mod layout;
pub mod tier;
