//! The KV cache of one replica: contiguous, paged block by block, paged by extents, and its host tier.
//!
//! Knows: blocks and their holders, and which prefixes are still cached. Knows nothing about time or policy.

pub(crate) mod belady;
pub(crate) mod contiguous;
pub(crate) mod cursor;
pub(crate) mod extents;
pub mod names;
pub mod offload;
pub(crate) mod paged;
pub mod prefix;
pub(crate) mod recency;
pub mod slots;
pub(crate) mod spans;
