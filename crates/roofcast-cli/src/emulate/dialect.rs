//! Which server is spoken like: vLLM, SGLang or llama.cpp.

/// A server's routes, bodies and metric names. The engine behind them is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// vLLM 0.32.
    Vllm,
    /// SGLang 0.5.23.
    Sglang,
    /// llama.cpp's server, b11434.
    LlamaCpp,
}

impl Dialect {
    /// That of an engine by its name; none where there is no such server here.
    pub(crate) fn of(engine: &str) -> Option<Dialect> {
        match engine {
            "vllm" => Some(Dialect::Vllm),
            "sglang" => Some(Dialect::Sglang),
            name if name.starts_with("llama") => Some(Dialect::LlamaCpp),
            _ => None,
        }
    }

    /// Who owns the models that it lists.
    pub(crate) fn owner(self) -> &'static str {
        match self {
            Dialect::Vllm => "vllm",
            Dialect::Sglang => "sglang",
            Dialect::LlamaCpp => "llamacpp",
        }
    }
}
