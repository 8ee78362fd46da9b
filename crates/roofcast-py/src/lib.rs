//! `roofcast._native`: the functions of Rust that the Python package `roofcast` calls.
//!
//! Knows: Python's values, its lock and its signals, Arrow's C interface. Questions go to the program's own verbs
//! ([`roofcast_cli::host`]), so an answer is the output of `roofcast VERB --json`.

mod ask;
mod error;
mod table;

use pyo3::prelude::*;

/// The native half of `roofcast`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::ask::{Answer, ask, flags, keep, kept, toml, values};
    #[pymodule_export]
    use super::error::Error;
    #[pymodule_export]
    use super::table::{Table, table};

    /// The version of the crates.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
