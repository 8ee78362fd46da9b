//! Questions: a spec or an engine's command, its load, and the deployment that they resolve to.
//!
//! Knows: keys, defaults and engines' flags; the resolution of a spec, which fails here or never. Knows nothing about
//! times.

pub mod arrival;
pub mod carbon;
pub mod command;
pub mod deployment;
pub mod engine_settings;
pub mod explain;
pub mod kv_cache;
pub mod parallelism;
pub mod quantized_kernel;
pub mod resolved;
pub mod sampling;
pub mod spec;
pub mod summary;
pub mod workload;

pub use deployment::Deployment;
pub use spec::Spec;
