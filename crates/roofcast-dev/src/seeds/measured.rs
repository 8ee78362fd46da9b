//! The figures that the text of seed 003 measured, from `catalog/measured/seed-003.toml`.
//!
//! Knows: the format of the file. Knows nothing about forecasts, with which [`super::multi_user_003`] compares the
//! figures.

use roofcast_facts::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

const PLACE: &str = "catalog/measured/seed-003.toml";
const TEXT: &str = include_str!("../../catalog/measured/seed-003.toml");

/// Contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeedMeasurements {
    /// Web address of the published figures.
    #[serde(rename = "source")]
    _source: String,
    /// Prefix of a model's catalog id, to which its size is appended.
    pub(super) model_prefix: String,
    /// Catalog id of the graphics card.
    pub(super) hardware: String,
    /// Numbers of concurrent users, one for each column of `server`.
    pub(super) concurrency: Vec<u64>,
    /// Numbers of KV tokens that llama.cpp could allocate.
    pub(super) kv_tokens: Vec<KvTokens>,
    /// Times of forward passes of one token, by kernel.
    pub(super) kernel: Vec<SeedKernel>,
    /// Times per token behind two HTTP servers.
    pub(super) server: Vec<Server>,
}

/// One model's row of the GGUF table.
#[derive(Debug, Deserialize)]
pub(super) struct KvTokens {
    /// Size of the model, as in `7B`.
    pub(super) size: String,
    /// Number of tokens by weight format; a format is absent if the card ran out of memory.
    #[serde(flatten)]
    pub(super) tokens: BTreeMap<String, u64>,
}

/// One row of the kernel table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeedKernel {
    /// Name of engine and kernel in the text.
    pub(super) name: String,
    /// Name of the engine, as in `vllm`.
    pub(super) engine: String,
    /// The kernel, if the engine has several.
    pub(super) quantization_kernel: Option<String>,
    /// True if layers are fused; absent if the text does not say.
    pub(super) fuse_layers: Option<bool>,
    /// Format of the weights.
    pub(super) weights: String,
    /// Time of one token in milliseconds.
    pub(super) ms: f64,
}

/// One model's rows of the server table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// Size of the model, as in `7B`.
    pub(super) size: String,
    /// Milliseconds per token of vLLM's own server, by concurrency.
    pub(super) asyncio_ms: Vec<f64>,
    /// Milliseconds per token of vLLM behind a gevent server, by concurrency.
    pub(super) gevent_ms: Vec<f64>,
    /// Difference of the two in milliseconds, as the text prints it.
    pub(super) overhead_ms: Vec<f64>,
}

/// Parses the embedded file.
pub(super) fn measured() -> Result<SeedMeasurements> {
    toml::from_str(TEXT).map_err(|e| Error::Parse { place: PLACE.into(), message: e.to_string() })
}
