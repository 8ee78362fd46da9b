//! Simulation of a load: schedulers, KV caches, engines, routers and fleets.
//!
//! Knows: the order of events, and the decisions of each engine. Knows nothing about the choice of hardware or settings.

pub mod engine;
pub mod fleet;
pub mod kv_cache;
pub mod router;
pub mod scheduler;
pub mod simulate;
pub(crate) mod tally;
pub mod timeline;
