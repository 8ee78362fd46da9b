//! The library's tests against its public interface, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests too

#[path = "suite/corpus.rs"]
mod corpus;
#[path = "suite/invariants.rs"]
mod invariants;
#[path = "suite/models.rs"]
mod models;
#[path = "suite/support.rs"]
mod support;
