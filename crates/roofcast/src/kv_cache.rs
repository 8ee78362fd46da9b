//! The KV cache of one replica, by kind.
//!
//! Knows: blocks and their holders, and which prefixes are still cached. Knows nothing about time or policy.

pub mod contiguous;
pub(crate) mod cursor;
pub(crate) mod extents;
pub mod groups;
pub mod layout;
pub mod offload;
pub mod paged;
pub mod prefix;
pub mod tier;
