//! Inference server to imitate: vLLM, SGLang or llama.cpp.

use roofcast::spec::EngineKind;

/// The routes, bodies and metric names of a server. The engine is independent of the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// vLLM 0.32.
    Vllm,
    /// SGLang 0.5.23.
    Sglang,
    /// llama.cpp's server, b11434.
    LlamaCpp,
}

impl Dialect {
    /// The dialect of an engine's server; `None` if that server is not imitated.
    pub fn of(engine: EngineKind) -> Option<Dialect> {
        match engine {
            EngineKind::Vllm => Some(Dialect::Vllm),
            EngineKind::Sglang => Some(Dialect::Sglang),
            EngineKind::LlamaCpp => Some(Dialect::LlamaCpp),
            _ => None,
        }
    }

    /// Owner that `/v1/models` states for each model.
    pub(crate) fn owner(self) -> &'static str {
        match self {
            Dialect::Vllm => "vllm",
            Dialect::Sglang => "sglang",
            Dialect::LlamaCpp => "llamacpp",
        }
    }
}
