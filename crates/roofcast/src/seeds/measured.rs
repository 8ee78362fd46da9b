//! The figures that seed 003 measured, from `catalog/measured/seed-003.toml`.
//!
//! Knows: the file's shape. What is beside the figures is [`super::multi_user_003`]'s.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

const PLACE: &str = "catalog/measured/seed-003.toml";
const TEXT: &str = include_str!("../../catalog/measured/seed-003.toml");

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Where the figures were published.
    #[serde(rename = "source")]
    _source: String,
    /// What precedes a size in a model's id.
    pub(super) model_prefix: String,
    /// The card.
    pub(super) hardware: String,
    /// Users of the columns of `server`.
    pub(super) concurrency: Vec<u64>,
    /// KV tokens that llama.cpp could allocate.
    pub(super) kv_tokens: Vec<KvTokens>,
    /// Forward passes of one token.
    pub(super) kernel: Vec<Kernel>,
    /// Time per token behind two servers.
    pub(super) server: Vec<Server>,
}

/// One model's row of the GGUF table.
#[derive(Debug, Deserialize)]
pub(super) struct KvTokens {
    /// As in `7B`.
    pub(super) size: String,
    /// Tokens by weight format; absent where it ran out of memory.
    #[serde(flatten)]
    pub(super) tokens: BTreeMap<String, u64>,
}

/// One row of the kernel table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    /// Engine and kernel.
    pub(super) name: String,
    /// As in `vllm`.
    pub(super) engine: String,
    /// The kernel, where the engine has several.
    pub(super) quantization_kernel: Option<String>,
    /// Whether layers are fused, where that was said.
    pub(super) fuse_layers: Option<bool>,
    /// Weight format.
    pub(super) weights: String,
    /// One token.
    pub(super) ms: f64,
}

/// One model's rows of the server table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// As in `7B`.
    pub(super) size: String,
    /// vLLM itself.
    pub(super) asyncio_ms: Vec<f64>,
    /// vLLM behind a gevent server.
    pub(super) gevent_ms: Vec<f64>,
    /// The difference as the text prints it.
    pub(super) overhead_ms: Vec<f64>,
}

/// Reads the embedded file.
pub(super) fn measured() -> Result<Measured> {
    toml::from_str(TEXT).map_err(|e| Error::Parse { place: PLACE.into(), message: e.to_string() })
}
