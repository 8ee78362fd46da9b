#![doc = include_str!("../README.md")]

pub mod accelerator;
pub mod capacity;
pub mod catalog;
pub mod checkpoint;
pub mod conformance;
pub mod cost;
pub mod deployment;
pub mod efficiency;
pub mod engine;
pub mod error;
pub mod explain;
pub mod kv_cache;
pub mod limits;
pub mod memory;
pub mod model;
pub mod operator;
pub mod parallelism;
pub mod plan;
pub mod precision;
pub mod record;
pub mod report;
pub mod scheduler;
pub mod seeds;
pub mod simulate;
pub mod spec;
pub mod summary;
pub mod testing;
pub mod units;
pub mod workload;

pub use catalog::Catalog;
pub use deployment::Deployment;
pub use error::{Error, Result};
pub use model::Model;
pub use spec::Spec;
