//! Keys of `[engine]` that choose kernels: the attention backend, the KV layout, and the server in front of the
//! engine.
//!
//! Knows: their names. Their cost is defined in [`crate::coefficients`], their memory in [`crate::memory`].

use serde::{Deserialize, Serialize};

/// Algorithms for the attention of decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionBackend {
    /// Scores are written to memory and read again; grouped keys and values are expanded to every query head first.
    #[serde(alias = "eager")]
    Naive,
    /// One thread block for each sequence and query head, as FlashAttention before its version 2.2.
    FlashAttention,
    /// The context is split over thread blocks until the chip is full: Flash-Decoding, FlashInfer, vLLM's backends.
    #[serde(alias = "flashinfer")]
    FlashDecoding,
}

impl AttentionBackend {
    /// All, the slowest first.
    pub(crate) const ALL: [AttentionBackend; 3] =
        [AttentionBackend::Naive, AttentionBackend::FlashAttention, AttentionBackend::FlashDecoding];

    /// Name of the value in a spec.
    pub(crate) fn name(self) -> &'static str {
        match self {
            AttentionBackend::Naive => "naive",
            AttentionBackend::FlashAttention => "flash-attention",
            AttentionBackend::FlashDecoding => "flash-decoding",
        }
    }
}

/// The server's loop between the engine and its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frontend {
    /// The engine's own, a Python program.
    #[default]
    Asyncio,
    /// Green threads of gevent, with the engine in a thread of its thread pool.
    Gevent,
    /// Dynamo's: HTTP and tokenizer are a compiled program.
    Dynamo,
}

/// Layouts of a request's tokens in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvLayout {
    /// In blocks anywhere, found by a table with a row a sequence (vLLM).
    Paged,
    /// In blocks anywhere, found by a list of those in use (FlashInfer).
    Flashinfer,
    /// In one piece of virtual memory a sequence, on pages of 2 MiB a layer (vAttention).
    Vattention,
    /// In one piece of memory a request.
    Contiguous,
}

impl KvLayout {
    /// Name of the value in a spec.
    pub fn name(self) -> &'static str {
        match self {
            KvLayout::Paged => "paged",
            KvLayout::Flashinfer => "flashinfer",
            KvLayout::Vattention => "vattention",
            KvLayout::Contiguous => "contiguous",
        }
    }
}
