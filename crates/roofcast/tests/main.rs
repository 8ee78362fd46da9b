//! The library's tests against its public interface, one binary.

#[path = "suite/models.rs"]
mod models;
#[path = "suite/support.rs"]
mod support;
