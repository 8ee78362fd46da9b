//! The figures that seed 003 measured, from `catalog/measured/seed-003.toml`.
//!
//! Knows: the file's shape. [`super::multi_user_003`] compares the figures with forecasts.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

const PLACE: &str = "catalog/measured/seed-003.toml";
const TEXT: &str = include_str!("../../catalog/measured/seed-003.toml");

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeedMeasurements {
    /// Web address of the published figures.
    #[serde(rename = "source")]
    _source: String,
    /// Prefix of a size in a model's id.
    pub(super) model_prefix: String,
    /// Catalog id of the card.
    pub(super) hardware: String,
    /// Concurrent users, one for each column of `server`.
    pub(super) concurrency: Vec<u64>,
    /// KV tokens that llama.cpp could allocate.
    pub(super) kv_tokens: Vec<KvTokens>,
    /// Forward passes of one token.
    pub(super) kernel: Vec<SeedKernel>,
    /// Time per token behind two servers.
    pub(super) server: Vec<Server>,
}

/// One model's row of the GGUF table.
#[derive(Debug, Deserialize)]
pub(super) struct KvTokens {
    /// Size of the model, as in `7B`.
    pub(super) size: String,
    /// Tokens by weight format; a format is absent where the card ran out of memory.
    #[serde(flatten)]
    pub(super) tokens: BTreeMap<String, u64>,
}

/// One row of the kernel table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeedKernel {
    /// Engine and kernel.
    pub(super) name: String,
    /// Name of the engine, as in `vllm`.
    pub(super) engine: String,
    /// The kernel, where the engine has several.
    pub(super) quantization_kernel: Option<String>,
    /// True if layers are fused; absent if the text does not say.
    pub(super) fuse_layers: Option<bool>,
    /// Weight format.
    pub(super) weights: String,
    /// Milliseconds of one token.
    pub(super) ms: f64,
}

/// One model's rows of the server table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// Size of the model, as in `7B`.
    pub(super) size: String,
    /// Milliseconds per token of vLLM itself.
    pub(super) asyncio_ms: Vec<f64>,
    /// Milliseconds per token of vLLM behind a gevent server.
    pub(super) gevent_ms: Vec<f64>,
    /// The difference in milliseconds as the text prints it.
    pub(super) overhead_ms: Vec<f64>,
}

/// Reads the embedded file.
pub(super) fn measured() -> Result<SeedMeasurements> {
    toml::from_str(TEXT).map_err(|e| Error::Parse { place: PLACE.into(), message: e.to_string() })
}
