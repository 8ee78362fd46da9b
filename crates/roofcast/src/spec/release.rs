//! Engines by name, and releases of engines.
//!
//! Knows: the names, and the scheduler of each engine. No other file compares names of engines; readers match on
//! [`EngineKind`].

use super::SchedulerKind;
use crate::version::Version;
use std::cmp::Ordering;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum EngineKind {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    TensorrtLlm,
    /// llama.cpp.
    LlamaCpp,
    /// Hugging Face transformers, a library without a server.
    Transformers,
    /// An engine without rules in the code; the catalog may have measured times for this engine.
    Other,
}

impl EngineKind {
    /// Engines with rules in the code.
    pub const NAMED: [EngineKind; 5] = [
        EngineKind::Vllm,
        EngineKind::Sglang,
        EngineKind::TensorrtLlm,
        EngineKind::LlamaCpp,
        EngineKind::Transformers,
    ];

    /// Engine called `name` in a spec or a row.
    pub fn of(name: &str) -> EngineKind {
        EngineKind::NAMED.into_iter().find(|kind| kind.name() == name).unwrap_or(EngineKind::Other)
    }

    /// Name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Vllm => "vllm",
            EngineKind::Sglang => "sglang",
            EngineKind::TensorrtLlm => "tensorrt-llm",
            EngineKind::LlamaCpp => "llama.cpp",
            EngineKind::Transformers => "transformers",
            EngineKind::Other => "other",
        }
    }

    /// Scheduler of the engine, if roofcast has it.
    pub fn scheduler(self) -> Option<SchedulerKind> {
        match self {
            EngineKind::Vllm => Some(SchedulerKind::Vllm),
            EngineKind::Sglang => Some(SchedulerKind::Sglang),
            EngineKind::TensorrtLlm => Some(SchedulerKind::TensorrtLlm),
            EngineKind::LlamaCpp => Some(SchedulerKind::LlamaCpp),
            EngineKind::Transformers | EngineKind::Other => None,
        }
    }
}

/// An engine and its version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Release {
    /// Engine.
    pub kind: EngineKind,
    /// Name as given, also of an engine without rules in the code.
    pub name: String,
    /// Version, as in `0.11.2`; the newest if absent.
    pub version: Option<String>,
}

impl Release {
    /// Release of the engine called `name`.
    pub fn new(name: &str, version: Option<&str>) -> Release {
        Release { kind: EngineKind::of(name), name: name.to_owned(), version: version.map(str::to_owned) }
    }

    /// True from version `first` on, and for versions without an order, which count as the newest.
    pub fn is_since(&self, first: &str) -> bool {
        self.version.as_deref().is_none_or(|own| Version::compare(own, first) != Some(Ordering::Less))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_engine_and_any_other_is_another() {
        for kind in EngineKind::NAMED {
            assert_eq!(EngineKind::of(kind.name()), kind);
        }
        assert_eq!(EngineKind::of("tgi"), EngineKind::Other);
    }
}
