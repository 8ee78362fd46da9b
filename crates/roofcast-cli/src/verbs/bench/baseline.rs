//! Earlier results to compare with, of any client that the library reads.
//!
//! Knows: the file and the client that wrote it. The library knows each client's keys and their definitions.

use crate::input;
use anyhow::Result;
use roofcast::measurement::results::{self, Figures};
use serde::Serialize;
use std::path::Path;

/// The figures of another run, by vLLM's keys.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Baseline {
    /// Name of the file.
    file: String,
    /// Client that wrote the results, as in `vLLM`.
    pub(super) source: &'static str,
    /// Figures by vLLM's keys; of a client whose percentiles have another definition, means alone.
    pub(super) metrics: Figures,
}

impl Baseline {
    pub(super) fn read(path: &Path) -> Result<Baseline> {
        let file = path.display().to_string();
        let (source, metrics) = results::figures(&file, &input::text(path)?)?;
        Ok(Baseline { file, source, metrics })
    }
}
