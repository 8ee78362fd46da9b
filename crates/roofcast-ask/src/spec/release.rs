//! Engines by name, and their versions.
//!
//! Knows: the names of engines, and the scheduler of each. No other file compares names of engines: other code matches
//! on [`EngineKind`]. Knows nothing about how an engine schedules.

use super::SchedulerKind;
use roofcast_facts::version::{Version, precedes};
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
    /// An engine for which the code has no rules; the catalog may have measured times for it.
    Other,
}

roofcast_facts::named! { EngineKind {
    Vllm: "vllm",
    Sglang: "sglang",
    TensorrtLlm: "tensorrt-llm",
    LlamaCpp: "llama.cpp",
    Transformers: "transformers",
    Other: "other",
} }

impl EngineKind {
    /// Engines for which the code has rules.
    pub const NAMED: [EngineKind; 5] = [
        EngineKind::Vllm,
        EngineKind::Sglang,
        EngineKind::TensorrtLlm,
        EngineKind::LlamaCpp,
        EngineKind::Transformers,
    ];

    /// Name in a spec of an engine that is written without points and dashes, as `llamacpp` or `trtllm`.
    pub(crate) fn spelled(text: &str) -> Option<&'static str> {
        let joined = |name: &str| name.replace(['.', '-', '_', ' '], "").to_lowercase();
        let wanted = match joined(text).as_str() {
            "trtllm" => "tensorrtllm".to_owned(),
            other => other.to_owned(),
        };
        EngineKind::NAMED.iter().map(|kind| kind.name()).find(|name| joined(name) == wanted)
    }

    /// Text on the engine or format to ask for in place of a server or a library that is no engine of roofcast, with the reason;
    /// `None` for an unknown name.
    pub fn in_place_of(name: &str) -> Option<&'static str> {
        let joined = name.to_lowercase().replace(['.', '-', '_', ' '], "");
        Some(match joined.as_str() {
            "deepspeed" | "deepspeedmii" | "deepspeedfastgen" | "mii" => {
                "engine.scheduler = \"splitfuse\" with one of the engines: DeepSpeed-FastGen schedules by SplitFuse, and its \
                 kernels and its host were not timed"
            }
            "autoawq" | "awq" => {
                "transformers with --weights awq-int4 --quantization-kernel awq-gemm: AutoAWQ is a library of kernels"
            }
            "autogptq" | "gptqmodel" => {
                "transformers with --weights gptq-int4, and --quantization-kernel exllama-v2 or marlin: AutoGPTQ is a library \
                 of kernels"
            }
            "bitsandbytes" | "bnb" => {
                "transformers or vllm with --weights bnb-int8 or nf4: bitsandbytes is a library of kernels"
            }
            "exllama" | "exllamav2" | "exllamav3" | "tabbyapi" => {
                "transformers with --weights gptq-int4 --quantization-kernel exllama-v2, or weights of ExLlama's sizes as \
                 exl-4bpw: ExLlama's own steps were not timed"
            }
            "ollama" | "lmstudio" | "koboldcpp" | "llamafile" | "llamacpppython" => {
                "llama.cpp, which it runs"
            }
            "tgi" | "textgenerationinference" | "lmdeploy" | "mlxlm" | "mlx" | "atom" => {
                "vllm, whose scheduler stands for it: only measured rows of it are read (validate)"
            }
            _ => return None,
        })
    }

    /// The engine called `name` in a spec or in a measured row.
    pub fn of(name: &str) -> EngineKind {
        EngineKind::NAMED.into_iter().find(|kind| kind.name() == name).unwrap_or(EngineKind::Other)
    }

    /// The engine whose keys stand in the section `engine.NAME` of a spec.
    pub(super) fn of_section(name: &str) -> EngineKind {
        EngineKind::NAMED.into_iter().find(|kind| kind.section() == name).unwrap_or(EngineKind::Other)
    }

    /// Name of the section of `[engine]` with the engine's own keys. Paths of keys are divided at points, so that the
    /// section of llama.cpp is spelled with a dash.
    pub(super) fn section(self) -> &'static str {
        match self {
            EngineKind::LlamaCpp => "llama-cpp",
            other => other.name(),
        }
    }

    /// The oldest and the newest version whose memory and scheduling are known to the code, from the engine's source or
    /// from measurements.
    fn known(self) -> Option<[&'static str; 2]> {
        match self {
            EngineKind::Vllm => Some(["0.8.0", "0.33.0"]),
            EngineKind::Sglang => Some(["0.4.2", "0.5.23"]),
            EngineKind::TensorrtLlm => Some(["1.0.0", "1.3.0rc23"]),
            EngineKind::LlamaCpp => Some(["b3000", "b11549"]),
            EngineKind::Transformers | EngineKind::Other => None,
        }
    }

    /// The newest version whose memory and scheduling are known to the code.
    pub fn newest(self) -> Option<&'static str> {
        self.known().map(|[_, newest]| newest)
    }

    /// Name and version of an engine, written together as package managers and images do: `vllm==0.11.2`,
    /// `vllm:v0.11.2`, `vllm@0.11.2`, `vllm 0.11.2`; `None` for a bare name and for a range.
    pub(crate) fn pinned(text: &str) -> Option<(&str, &str)> {
        let (name, rest) = text.split_at(text.find(['=', ':', '@', ' '])?);
        let version = rest.strip_prefix("==").or_else(|| rest.get(1..))?.trim();
        let plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
        let pinned = name.chars().all(plain) && !version.starts_with(['=', '~']);
        Version::parse(version).filter(|_| pinned).map(|_| (name, version))
    }

    /// Scheduler of the engine; `None` if roofcast does not implement it.
    pub fn scheduler(self) -> Option<SchedulerKind> {
        match self {
            EngineKind::Vllm => Some(SchedulerKind::Vllm),
            EngineKind::Sglang => Some(SchedulerKind::Sglang),
            EngineKind::TensorrtLlm => Some(SchedulerKind::TensorrtLlm),
            EngineKind::LlamaCpp => Some(SchedulerKind::LlamaCpp),
            EngineKind::Transformers | EngineKind::Other => None,
        }
    }

    /// The engine that has `scheduler`; `None` for a policy that no named engine has today.
    pub(super) fn with(scheduler: SchedulerKind) -> Option<EngineKind> {
        match scheduler {
            SchedulerKind::VllmV0 => Some(EngineKind::Vllm),
            SchedulerKind::TensorrtLlmMaxUtilization => Some(EngineKind::TensorrtLlm),
            other => EngineKind::NAMED.into_iter().find(|kind| kind.scheduler() == Some(other)),
        }
    }
}

/// An engine, and its version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Release {
    /// The engine.
    pub kind: EngineKind,
    /// Name of the engine as given, also for an engine without rules in the code.
    pub name: String,
    /// Version, as in `0.11.2`; `None` for the newest.
    pub version: Option<String>,
}

impl Release {
    /// The release of the engine called `name`.
    pub(crate) fn new(name: &str, version: Option<&str>) -> Release {
        Release { kind: EngineKind::of(name), name: name.to_owned(), version: version.map(str::to_owned) }
    }

    /// Sentence about a version outside the known versions; `None` for a known version, or without a version.
    pub(crate) fn assumption(&self) -> Option<String> {
        let version = self.version.as_deref()?;
        let [oldest, newest] = self.kind.known()?;
        let outside = match (Version::compare(version, oldest), Version::compare(version, newest)) {
            (Some(Ordering::Less), _) => "is older than",
            (_, Some(Ordering::Greater)) => "is newer than",
            (None, _) => "has no place among",
            _ => return None,
        };
        let rules = if outside == "is older than" { oldest } else { newest };
        Some(format!(
            "{} {version} {outside} the releases that are known, {oldest} to {newest}: memory and scheduling by the rules of {rules}",
            self.name
        ))
    }

    /// True for version `first` and later ones. A version without an order is ordered by its date if it has one and `first` names
    /// its month, else it counts as the newest.
    pub fn is_since(&self, first: &str) -> bool {
        self.version.as_deref().is_none_or(|own| !precedes(own, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Libraries and servers that are no engine name what to ask instead, in every spelling; engines and typing errors do
    /// not.
    #[test]
    fn names_of_libraries_say_what_to_ask() {
        for (name, word) in [
            ("DeepSpeed-FastGen", "splitfuse"),
            ("autoawq", "awq-gemm"),
            ("ExLlamaV2", "exllama-v2"),
            ("bitsandbytes", "bnb-int8"),
            ("ollama", "llama.cpp"),
        ] {
            assert!(EngineKind::in_place_of(name).unwrap().contains(word), "{name}");
        }
        assert!(["vllm", "vlm", ""].iter().all(|name| EngineKind::in_place_of(name).is_none()));
    }

    #[test]
    fn versions_beyond_the_known_ones_are_told() {
        let assumption = |name, version| Release::new(name, Some(version)).assumption().unwrap_or_default();
        for (name, version) in [
            ("vllm", "0.8.0"),
            ("vllm", "v0.33.0"),
            ("sglang", "0.5.23"),
            ("tensorrt-llm", "1.2.0rc6"),
            ("llama.cpp", "b6325"),
        ] {
            assert_eq!(assumption(name, version), "");
        }
        assert!(
            assumption("vllm", "0.7.3").contains("is older than")
                && assumption("vllm", "0.7.3").ends_with("rules of 0.8.0")
        );
        assert!(
            assumption("sglang", "0.6.0").contains("is newer than")
                && assumption("sglang", "0.6.0").ends_with("rules of 0.5.23")
        );
        assert!(assumption("vllm", "nightly").contains("has no place among"));
        assert_eq!(
            (assumption("transformers", "4.0"), Release::new("vllm", None).assumption()),
            (String::new(), None)
        );
    }

    #[test]
    fn a_name_is_its_engine_and_any_other_is_another() {
        for kind in EngineKind::NAMED {
            assert_eq!(EngineKind::of(kind.name()), kind);
        }
        assert_eq!(EngineKind::of("tgi"), EngineKind::Other);
    }

    #[test]
    fn names_without_points_and_dashes() {
        for (text, name) in [
            ("vLLM", Some("vllm")),
            ("llamacpp", Some("llama.cpp")),
            ("llama_cpp", Some("llama.cpp")),
            ("TensorRT-LLM", Some("tensorrt-llm")),
            ("trtllm", Some("tensorrt-llm")),
            ("trt-llm", Some("tensorrt-llm")),
            ("ollama", None),
            ("", None),
        ] {
            assert_eq!(EngineKind::spelled(text), name, "{text}");
        }
    }

    #[test]
    fn a_version_behind_a_name() {
        for text in ["vllm==0.10.2", "vllm:0.10.2", "vllm@0.10.2", "vllm 0.10.2", "vllm= 0.10.2"] {
            assert_eq!(EngineKind::pinned(text), Some(("vllm", "0.10.2")), "{text}");
        }
        assert_eq!(EngineKind::pinned("vllm:v0.10.2"), Some(("vllm", "v0.10.2")));
        for text in
            ["vllm", "llama.cpp", "vllm>=0.10", "vllm~=0.10", "vllm:latest", "vllm==", "vllm===0.10", ""]
        {
            assert_eq!(EngineKind::pinned(text), None, "{text}");
        }
    }
}
