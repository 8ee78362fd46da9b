//! `roofcast emulate`: the engine of a simulation on the wall clock, behind a vLLM server's API.
//!
//! Knows: a request is read, its answer written at once, its tokens given to an engine that says when each is out, and
//! the answer sent as they are. Only [`replica`] knows the engine, only [`service`] the routes.

mod answer;
mod ask;
mod fields;
pub(crate) mod metrics;
mod outlet;
pub(crate) mod pace;
mod patient;
mod refusal;
pub(crate) mod replica;
pub(crate) mod server;
pub(crate) mod service;
mod stream;
mod tokenizer;
mod wire;

pub(crate) use answer::Author;
