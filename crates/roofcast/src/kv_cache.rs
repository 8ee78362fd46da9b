//! The KV cache of one replica, by kind.
//!
//! Knows: blocks, who holds them, what of a prefix is still there. Knows nothing about time or policy.

pub mod contiguous;
pub mod groups;
pub mod layout;
pub mod paged;
pub mod prefix;
