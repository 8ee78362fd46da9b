//! Values of `[engine]` keys that choose kernels: the attention backend, the KV layout, and the server in front of the
//! engine.
//!
//! Knows: the names of these values. Knows nothing about their cost (`coefficients`) or their memory
//! (`memory`).

use serde::{Deserialize, Serialize};

/// Algorithms of decode attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AttentionBackend {
    /// Scores are written to memory and read again; grouped keys and values are first expanded to every query head.
    #[serde(alias = "eager")]
    Naive,
    /// One thread block per sequence and query head, as in FlashAttention before version 2.2.
    FlashAttention,
    /// The context is split over thread blocks until all units of the chip have work: Flash-Decoding, FlashInfer,
    /// vLLM's backends.
    #[serde(alias = "flashinfer")]
    FlashDecoding,
}

roofcast_facts::named! { AttentionBackend {
    Naive: "naive",
    FlashAttention: "flash-attention",
    FlashDecoding: "flash-decoding",
} }

/// HTTP servers between the engine and its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Frontend {
    /// The engine's own server, a Python program with asyncio.
    #[default]
    Asyncio,
    /// A server with green threads of gevent, and the engine in a thread of its thread pool.
    Gevent,
    /// Dynamo's server, whose HTTP and tokenizer code is compiled.
    Dynamo,
}

/// Layouts of a request's KV cache in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KvLayout {
    /// Blocks at any address, found by a table with one row per sequence (vLLM).
    Paged,
    /// Blocks at any address, found by a list of the blocks in use (FlashInfer).
    Flashinfer,
    /// One piece of virtual memory per sequence, on pages of 2 MiB per layer (vAttention).
    Vattention,
    /// One piece of physical memory per request.
    Contiguous,
}

roofcast_facts::named! { KvLayout {
    Paged: "paged",
    Flashinfer: "flashinfer",
    Vattention: "vattention",
    Contiguous: "contiguous",
} }
