//! Declarations of keys, as the table of all keys uses them.
//!
//! Knows: common keys, rare ones, those of some schedulers and those that only TOML sets. Knows nothing about any key.

use super::{SchedulerKind, SpecKey, ValueType};

pub(super) const fn key(
    path: &'static str,
    flag: &'static str,
    kind: ValueType,
    about: &'static str,
) -> SpecKey {
    SpecKey { path, flag: Some(flag), kind, about, rare: false, schedulers: &[] }
}

pub(super) const fn rare(
    path: &'static str,
    flag: &'static str,
    kind: ValueType,
    about: &'static str,
) -> SpecKey {
    SpecKey { path, flag: Some(flag), kind, about, rare: true, schedulers: &[] }
}

/// Declares the functions that make a rare key of some schedulers.
macro_rules! of_schedulers {
    ($($function:ident: $($scheduler:ident)*;)*) => { $(
        pub(super) const fn $function(path: &'static str, flag: &'static str, kind: ValueType, about: &'static str) -> SpecKey {
            SpecKey { schedulers: &[$(SchedulerKind::$scheduler),*], ..rare(path, flag, kind, about) }
        }
    )* };
}

of_schedulers! {
    vllm: Vllm;
    vllm_v0: VllmV0;
    sglang: Sglang;
    offloads: Vllm Sglang;
    tensorrt_llm: TensorrtLlm TensorrtLlmMaxUtilization;
    llama_cpp: LlamaCpp;
    reserving: Orca Static;
}

pub(super) const fn toml(path: &'static str, kind: ValueType, about: &'static str) -> SpecKey {
    SpecKey { path, flag: None, kind, about, rare: true, schedulers: &[] }
}
