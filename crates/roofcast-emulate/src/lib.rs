//! An inference server without a model: the engine of a simulation on the wall clock, behind the APIs of vLLM, SGLang
//! and llama.cpp.
//!
//! Knows: a request is read, its whole answer is generated at once, its tokens are given to an engine, which decides
//! when each is released, and the answer is sent as its tokens are released. [`Launch`] starts the engines of a
//! deployment, a [`Service`] answers the requests of one port. Only `replica` knows the engine, only `service` the
//! routes. Knows nothing about arguments and sockets of HTTP.

mod adapters;
mod ask;
mod completion;
mod dialect;
mod faults;
mod fields;
mod fleet;
mod form;
mod group;
mod kv_events;
mod late;
mod metrics;
mod outlet;
mod pace;
mod pins;
mod refusal;
mod replica;
mod response;
mod service;
mod sleep;
mod stream;
pub mod testing;
mod tokenizer;
mod tools;
mod wire;

pub use completion::{Author, Calling, Lengths};
pub use dialect::Dialect;
pub use faults::{FailureType, Fault};
pub use fleet::{Launch, Launched};
pub use group::Group;
pub use kv_events::{Encoding, KvEventsConfig};
pub use metrics::Buckets;
pub use pace::Pace;
pub use replica::Latencies;
pub use service::{Service, Settings};
