//! `roofcast._native`: the Rust functions that the Python package `roofcast` calls.
//!
//! Knows: Python's values, its lock and its signals, Arrow's C interface. Questions go to the program's own verbs
//! ([`roofcast_cli::host`]), so an answer is the output of `roofcast VERB --json`. Knows nothing about the arithmetic.

mod ask;
mod error;
mod table;

use pyo3::prelude::*;

/// The native module of the package `roofcast`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::ask::{Answer, ask, flags, keep, kept, toml, values};
    #[pymodule_export]
    use super::error::Error;
    #[pymodule_export]
    use super::table::{Table, table};

    /// Version of the crates.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
