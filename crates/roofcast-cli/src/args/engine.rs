//! Flags of the engine: which one, and the kernels that it computes with.
//!
//! Knows: names of flags and how they go over a spec's keys. Knows nothing about what they cost.

use clap::Args;
use roofcast::spec::{AttentionBackend, EngineSpec, Frontend};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// vllm, sglang, tensorrt-llm, llama.cpp, transformers, … [default: vllm].
    #[arg(long = "engine", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Its version, as in 0.19.0.
    #[arg(long = "engine-version", value_name = "VERSION")]
    pub(crate) version: Option<String>,
    /// A program has the engine to itself: no server takes requests.
    #[arg(long)]
    pub(crate) offline: bool,
    /// How a decode's attention is computed: naive, flash-attention or flash-decoding [default: the engine's].
    #[arg(long, value_parser = key::<AttentionBackend>)]
    pub(crate) attention_backend: Option<AttentionBackend>,
    /// Kernel of quantized weights, as in marlin, awq or exllama-v2 [default: the engine's].
    #[arg(long, value_name = "KERNEL")]
    pub(crate) quantization_kernel: Option<String>,
    /// Launch every kernel from the host, as vLLM's --enforce-eager.
    #[arg(long)]
    pub(crate) enforce_eager: bool,
    /// Whether projections of one input are one product: true or false [default: the engine's].
    #[arg(long)]
    pub(crate) fuse_layers: Option<bool>,
    /// What stands between the engine and its clients: asyncio or gevent.
    #[arg(long, value_parser = key::<Frontend>)]
    pub(crate) frontend: Option<Frontend>,
}

impl EngineArgs {
    /// Flags over `spec`.
    pub(crate) fn over(&self, spec: &mut EngineSpec) {
        spec.name = self.name.clone().or(spec.name.take());
        spec.version = self.version.clone().or(spec.version.take());
        spec.served = self.offline.then_some(false).or(spec.served);
        spec.attention_backend = self.attention_backend.or(spec.attention_backend);
        spec.quantization_kernel = self.quantization_kernel.clone().or(spec.quantization_kernel.take());
        spec.enforce_eager = self.enforce_eager.then_some(true).or(spec.enforce_eager);
        spec.fuse_layers = self.fuse_layers.or(spec.fuse_layers);
        spec.frontend = self.frontend.unwrap_or(spec.frontend);
    }
}

/// A value by its name in a spec; the error lists the names.
fn key<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let text: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(text).map_err(|e| e.to_string())
}
