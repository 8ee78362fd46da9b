//! Environment variables of servers: llama-server's, which are read as its flags, and variables that no forecast reads.
//!
//! Knows: names and values as llama.cpp reads them; on its command line a flag comes before its variable. Knows nothing about
//! the meaning of flags, or about Ollama's variables.
//!
//! Sources: `set_env` of each flag and `get_value_from_env` in `common/arg.cpp` of llama.cpp.

use super::{LENGTHENING, PARTITIONS, PLACE, vllm};
use crate::spec::EngineKind;
use roofcast_facts::error::{Error, Result};

/// Variables of llama-server with a value, each with its flag.
const VALUES: [(&str, &str); 18] = [
    ("LLAMA_ARG_BATCH", "--batch-size"),
    ("LLAMA_ARG_CACHE_RAM", "--cache-ram"),
    ("LLAMA_ARG_CACHE_REUSE", "--cache-reuse"),
    ("LLAMA_ARG_CACHE_TYPE_K", "--cache-type-k"),
    ("LLAMA_ARG_CACHE_TYPE_V", "--cache-type-v"),
    ("LLAMA_ARG_CTX_CHECKPOINTS", "--ctx-checkpoints"),
    ("LLAMA_ARG_CTX_SIZE", "--ctx-size"),
    ("LLAMA_ARG_FLASH_ATTN", "--flash-attn"),
    ("LLAMA_ARG_HF_REPO", "--hf-repo"),
    ("LLAMA_ARG_MODEL", "--model"),
    ("LLAMA_ARG_N_CPU_MOE", "--n-cpu-moe"),
    ("LLAMA_ARG_N_GPU_LAYERS", "--n-gpu-layers"),
    ("LLAMA_ARG_N_PARALLEL", "--parallel"),
    ("LLAMA_ARG_OVERRIDE_TENSOR", "--override-tensor"),
    ("LLAMA_ARG_SPLIT_MODE", "--split-mode"),
    ("LLAMA_ARG_SWA_CHECKPOINTS", "--swa-checkpoints"),
    ("LLAMA_ARG_TENSOR_SPLIT", "--tensor-split"),
    ("LLAMA_ARG_UBATCH", "--ubatch-size"),
];

/// Variables of llama-server that switch, each with its flag if it is on and its flag if it is off; an empty one is the
/// default.
const SWITCHES: [(&str, &str, &str); 5] = [
    ("LLAMA_ARG_CACHE_PROMPT", "", "--no-cache-prompt"),
    ("LLAMA_ARG_CPU_MOE", "--cpu-moe", ""),
    ("LLAMA_ARG_KV_OFFLOAD", "", "--no-kv-offload"),
    ("LLAMA_ARG_KV_UNIFIED", "--kv-unified", "--no-kv-unified"),
    ("LLAMA_ARG_SWA_FULL", "--swa-full", ""),
];

/// Beginnings of the names that engines give to their variables.
const ENGINES: [&str; 6] = ["LLAMA_", "SGLANG_", "SGL_", "TLLM_", "TRTLLM_", "VLLM_"];

/// Flags that the variables of llama-server stand for, and the names of variables of engines that no forecast reads.
pub(super) fn read(engine: EngineKind, variables: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let mut flags = Vec::new();
    let mut unread = Vec::new();
    for (name, value) in variables.iter().filter_map(|variable| variable.split_once('=')) {
        match (engine == EngineKind::LlamaCpp).then(|| flag(name, value)).transpose()?.flatten() {
            Some(flag) => flags.extend(Some(flag).filter(|flag| !flag.is_empty())),
            None if ENGINES.iter().any(|engine| name.starts_with(engine)) && !is_read(name) => {
                super::once(&mut unread, name.to_owned());
            }
            None => {}
        }
    }
    Ok((flags, unread))
}

/// The flag that a variable of llama-server stands for, empty for a default; `None` for a variable that is not read. A switch
/// with `NO_` in its name is off whatever its value.
fn flag(name: &str, value: &str) -> Result<Option<String>> {
    if let Some((_, flag)) = VALUES.iter().find(|(known, _)| *known == name) {
        return Ok(Some(format!("{flag}={value}")));
    }
    let denied = name.replacen("LLAMA_ARG_NO_", "LLAMA_ARG_", 1);
    let Some((_, on, off)) = SWITCHES.iter().find(|(known, ..)| *known == denied) else { return Ok(None) };
    let chosen = match value {
        _ if denied != name => off,
        "1" | "true" | "on" | "enabled" => on,
        "0" | "false" | "off" | "disabled" => off,
        _ => {
            let accepted = "1, true, on or enabled; 0, false, off or disabled";
            return Err(Error::field(PLACE, name, format!("{value:?}"), accepted));
        }
    };
    Ok(Some((*chosen).to_owned()))
}

/// True for a variable of vLLM or SGLang that is read or refused.
fn is_read(name: &str) -> bool {
    let known = [&PARTITIONS[..], &LENGTHENING, &vllm::MXFP8_ACTIVATIONS, &[vllm::MARLIN_EXPERTS]];
    known.concat().contains(&name)
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::super::tests::spec;

    /// Each variable is its flag, by llama.cpp's table; a flag comes before its variable.
    #[test]
    fn variables_of_llama_server_are_its_flags() {
        for (variables, flags) in [
            ("LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=1", "-c 4096 -np 1"),
            ("LLAMA_ARG_CACHE_TYPE_K=q8_0 LLAMA_ARG_CACHE_TYPE_V=q8_0", "-ctk q8_0 -ctv q8_0"),
            ("LLAMA_ARG_BATCH=1024 LLAMA_ARG_UBATCH=256 LLAMA_ARG_CACHE_RAM=0", "-b 1024 -ub 256 -cram 0"),
            ("LLAMA_ARG_NO_KV_OFFLOAD=1", "-nkvo"),
            ("LLAMA_ARG_KV_OFFLOAD=off LLAMA_ARG_SWA_FULL=on", "-nkvo --swa-full"),
            ("LLAMA_ARG_KV_OFFLOAD=1 LLAMA_ARG_CPU_MOE=0 LLAMA_ARG_CACHE_PROMPT=1", ""),
            ("LLAMA_ARG_KV_UNIFIED=true LLAMA_ARG_CPU_MOE=1", "-kvu -cmoe"),
            ("LLAMA_ARG_CACHE_PROMPT=false", "--no-cache-prompt"),
            ("LLAMA_ARG_OVERRIDE_TENSOR=exps=CPU LLAMA_ARG_SPLIT_MODE=none", "-ot exps=CPU -sm none"),
            ("LLAMA_ARG_CTX_SIZE=4096", "-c 4096"),
        ] {
            let by_flags = spec(&format!("llama-server -m m.gguf {flags}"));
            assert_eq!(spec(&format!("{variables} llama-server -m m.gguf")), by_flags, "{variables}");
            let names = variables.replace("LLAMA_", "-e LLAMA_");
            let image = format!("docker run {names} ghcr.io/ggml-org/llama.cpp:server -m m.gguf");
            assert_eq!(spec(&image), by_flags, "{image}");
        }
        let both = spec("LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_MODEL=n.gguf llama-server -m m.gguf -c 8192");
        assert_eq!(both, spec("llama-server -m m.gguf -c 8192"));
    }

    #[test]
    fn variables_that_are_not_read_are_named() {
        let notes = |text: &str| read(text).unwrap().notes.join("; ");
        for (text, name) in [
            ("LLAMA_ARG_ROPE_SCALE=4 llama-server -m m.gguf", "LLAMA_ARG_ROPE_SCALE"),
            ("VLLM_FUSED_MOE_CHUNK_SIZE=1 vllm serve m", "VLLM_FUSED_MOE_CHUNK_SIZE"),
            (
                "docker run -e SGLANG_NOBODY=1 lmsysorg/sglang python -m sglang.launch_server --model-path m",
                "SGLANG_NOBODY",
            ),
        ] {
            assert!(notes(text).contains(name), "{text}: {}", notes(text));
        }
        for text in ["CUDA_VISIBLE_DEVICES=0 vllm serve m", "VLLM_MXFP4_USE_MARLIN=1 vllm serve m"] {
            assert_eq!(notes(text), "", "{text}");
        }
        for text in ["LLAMA_ARG_SWA_FULL=perhaps", "LLAMA_ARG_CTX_SIZE=many", "LLAMA_ARG_N_PARALLEL="] {
            let refused = read(&format!("{text} llama-server -m m.gguf")).unwrap_err().to_string();
            assert!(refused.starts_with(super::PLACE), "{refused}");
        }
    }
}
