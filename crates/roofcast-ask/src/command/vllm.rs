//! Flags of `vllm serve` that are read together, because several keys depend on each.

use super::flags::{Given, whole, wrong};
use super::{Command, count, formats, last, once, switched};
use roofcast_facts::error::Result;
use serde_json::Value;

pub(super) fn read(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    formats(apart, command);
    if last(apart, "quantization").is_some_and(|given| given.value.eq_ignore_ascii_case("fp8")) {
        command.set("precision.online", true);
    }
    ranks(apart, command)?;
    exchange(apart, command);
    graphs(apart, command)?;
    quantization(apart, command)?;
    images(apart, command);
    connector(apart, command)?;
    drafts(apart, command)
}

/// Skips the vision encoder if `--limit-mm-per-prompt` allows 0 of each kind, like `--language-model-only`.
fn images(apart: &[(String, Given)], command: &mut Command) {
    let mut given = apart.iter().filter(|(name, _)| name == "limit_mm").map(|(_, given)| given).peekable();
    let none = |given: &Given| match (&given.field, serde_json::from_str(&given.value)) {
        (None, Ok(Value::Object(limits))) => limits.values().all(|limit| limit.as_u64() == Some(0)),
        _ => given.value == "0",
    };
    if given.peek().is_some() && given.all(none) {
        command.set("engine.language_model_only", true);
    }
}

/// Environment variables that quantize activations of gpt-oss's experts to MXFP8 on Blackwell (vLLM 0.11 to 0.19,
/// `vllm/envs.py`).
pub(super) const MXFP8_ACTIVATIONS: [&str; 2] =
    ["VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS"];

/// Environment variable that has Marlin compute gpt-oss's experts, in place of Triton on Hopper (vLLM 0.11 to 0.19,
/// `vllm/envs.py`).
pub(super) const MARLIN_EXPERTS: &str = "VLLM_MXFP4_USE_MARLIN";

/// Reads the environment variables that change the time of a step.
pub(super) fn variables<T: AsRef<str>>(variables: &[T], command: &mut Command) {
    let is_on = |wanted: &[&str]| {
        let set = variables.iter().filter_map(|variable| variable.as_ref().split_once('='));
        set.into_iter().any(|(name, value)| wanted.contains(&name) && matches!(value, "1" | "true" | "True"))
    };
    if is_on(&MXFP8_ACTIVATIONS) {
        command.set("precision.activations", "fp8");
    }
    if is_on(&[MARLIN_EXPERTS]) {
        command.set("engine.quantization_kernel", "marlin");
    }
}

/// Reads `--quantization-config`, as JSON or field by field, of a checkpoint that is quantized already: 8-bit activations of
/// the experts (vLLM 0.33, `config/quantization.py`, `QuantizationConfigArgs`). Other fields are not modelled.
fn quantization(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    for (_, given) in apart.iter().filter(|(name, _)| name == "quantization_config") {
        let read = || serde_json::from_str::<Value>(&given.value);
        let config = match &given.field {
            None => read().ok().filter(Value::is_object).ok_or_else(|| wrong(given, "a JSON object"))?,
            Some(path) => {
                let value = read().unwrap_or_else(|_| given.value.clone().into());
                path.rsplit('.').fold(value, |inner, field| serde_json::json!({ field: inner }))
            }
        };
        let experts = &config["moe"]["activation"];
        let keys = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
        let is_alone = keys(&config) == 1 && keys(&config["moe"]) == 1;
        match experts.as_str() {
            Some("mxfp8" | "fp8") if is_alone => command.set("precision.activations", "fp8"),
            _ => once(&mut command.unmodelled, given.flag.clone()),
        }
    }
    Ok(())
}

/// Reads `--kv-transfer-config`: the offloading connector sets keys; other connectors are not modelled.
fn connector(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    for (_, given) in apart.iter().filter(|(name, _)| name == "kv_transfer") {
        let config: Option<Value> = serde_json::from_str(&given.value).ok();
        let config =
            config.as_ref().and_then(Value::as_object).ok_or_else(|| wrong(given, "a JSON object"))?;
        let none = serde_json::Map::new();
        let extra = config.get("kv_connector_extra_config").and_then(Value::as_object).unwrap_or(&none);
        let native = config.get("kv_connector").and_then(Value::as_str) == Some("OffloadingConnector");
        let known =
            ["spec_name", "cpu_bytes_to_use", "eviction_policy", "store_threshold", "offload_prompt_only"];
        let is_cpu = extra.get("spec_name").is_none_or(|name| name == "CPUOffloadingSpec");
        if !native || !is_cpu || extra.keys().any(|key| !known.contains(&key.as_str())) {
            once(&mut command.unmodelled, given.flag.clone());
            continue;
        }
        let bytes = extra.get("cpu_bytes_to_use").and_then(Value::as_f64);
        let bytes =
            bytes.ok_or_else(|| wrong(given, "kv_connector_extra_config.cpu_bytes_to_use in bytes"))?;
        command.set("engine.kv_offloading_size", bytes / f64::from(1 << 30));
        if let Some(policy) = extra.get("eviction_policy").and_then(Value::as_str) {
            command.set("engine.kv_offloading_eviction_policy", policy);
        }
        if let Some(offers) = extra.get("store_threshold").and_then(Value::as_i64) {
            command.set("engine.kv_offloading_store_threshold", offers);
        }
        if let Some(alone) = extra.get("offload_prompt_only").and_then(Value::as_bool) {
            command.set("engine.kv_offloading_prompt_only", alone);
        }
    }
    Ok(())
}

/// Reads data parallelism: with expert parallelism the ranks share the experts, without it each rank is a whole
/// replica.
fn ranks(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    let ranks = count(apart, "data_parallel")?.unwrap_or(1);
    let tp = command.settings.iter().rev().find(|s| s.path == "parallelism.tp");
    let tp = tp.and_then(|s| s.value.as_integer()).unwrap_or(1);
    if switched(apart, "expert_parallel") {
        command.set("parallelism.ep", tp.saturating_mul(ranks));
        if ranks > 1 {
            command.set("parallelism.attention_dp", ranks);
        }
    } else if ranks > 1 {
        command.set("parallelism.replicas", ranks);
        command.data_parallel = true;
    }
    Ok(())
}

/// Reads `--all2all-backend`, which counts only with experts over data-parallel ranks.
fn exchange(apart: &[(String, Given)], command: &mut Command) {
    let Some(given) = last(apart, "all2all") else { return };
    match given.value.as_str() {
        _ if !command.settings.iter().any(|s| s.path == "parallelism.attention_dp") => {
            command.notes.push(format!(
                "{} {}: not counted without --enable-expert-parallel and --data-parallel-size above 1",
                given.flag, given.value
            ))
        }
        known @ ("allgather_reducescatter" | "naive" | "deepep_high_throughput" | "deepep_low_latency") => {
            command.set("engine.experts.all2all_backend", known);
        }
        _ => once(&mut command.unmodelled, given.flag.clone()),
    }
}

/// Reads the sizes of captured steps, of which the largest counts, and the field `cudagraph_mode` of
/// `--compilation-config`: graphs of decodes alone, or none (vLLM 0.32, `config/compilation.py`, `CUDAGraphMode`).
fn graphs(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    if let Some(given) = last(apart, "cudagraph_sizes") {
        let sizes = given.value.trim_matches(['[', ']']).split([' ', ',']).filter(|size| !size.is_empty());
        let sizes: Option<Vec<i64>> = sizes.map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
        let largest = sizes.and_then(|sizes| sizes.into_iter().max());
        command.set(
            "engine.max_cudagraph_capture_size",
            largest.ok_or_else(|| wrong(given, "numbers of tokens, as 1 2 4 8"))?,
        );
    }
    let Some(given) = last(apart, "cudagraph_mode") else { return Ok(()) };
    match given.value.to_uppercase().as_str() {
        "FULL_DECODE_ONLY" => command.set("engine.max_cudagraph_capture_size", 0),
        "NONE" => command.set("engine.enforce_eager", true),
        "FULL_AND_PIECEWISE" | "PIECEWISE" => {}
        _ => once(&mut command.unmodelled, format!("{}.cudagraph_mode", given.flag)),
    }
    Ok(())
}

/// Reads `--speculative-config`, as JSON or field by field, and the short flags for three of its fields.
fn drafts(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    let mut config = serde_json::Map::new();
    for (name, given) in apart {
        match (name.as_str(), &given.field) {
            ("speculative_config", None) => {
                let parsed: Option<Value> = serde_json::from_str(&given.value).ok();
                let fields = parsed.as_ref().and_then(Value::as_object);
                config.extend(fields.ok_or_else(|| wrong(given, "a JSON object"))?.clone());
            }
            ("speculative_config", Some(field)) => {
                let text = || given.value.clone().into();
                config.insert(field.clone(), serde_json::from_str(&given.value).unwrap_or_else(|_| text()));
            }
            ("spec_model", _) => drop(config.insert("model".into(), given.value.clone().into())),
            ("spec_method", _) => drop(config.insert("method".into(), given.value.clone().into())),
            ("spec_tokens", _) => {
                drop(config.insert("num_speculative_tokens".into(), whole(given, 1)?.into()))
            }
            _ => {}
        }
    }
    if last(apart, "speculative_config").is_none() && config.is_empty() {
        return Ok(());
    }
    if let Some(tokens) = config.get("num_speculative_tokens").and_then(Value::as_i64) {
        command.set("engine.speculative.num_speculative_tokens", tokens);
    }
    let length = config.get("synthetic_acceptance_length").and_then(Value::as_f64);
    if let Some(length) = length {
        command.set("engine.speculative.acceptance_length", length);
    }
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let rate = match length {
        Some(_) => "drafts are accepted as synthetic_acceptance_length says",
        None => "a forecast of times with drafts needs --acceptance-rate or --acceptance",
    };
    let share = "--draft-share: steps where no earlier text occurs again have no drafts, and vLLM's mean acceptance length \
                 leaves them out";
    match (text("method").unwrap_or("draft_model"), text("model")) {
        ("draft_model", Some(model)) => {
            command.set("engine.speculative.draft_model", model);
            command.notes.push(rate.to_owned());
        }
        ("ngram" | "ngram_gpu", _) => {
            command.set("engine.speculative.method", "ngram");
            command.notes.push(format!("{rate}; n-grams need {share}"));
        }
        ("suffix", _) => command.notes.push(format!("{rate}; suffixes need --draft-cost and {share}")),
        (method @ ("eagle" | "eagle3" | "dflash"), Some(model)) if is_path(model) => {
            command.set("engine.speculative.method", method);
            command.set("engine.speculative.draft_model", model);
            command.notes.push(rate.to_owned());
        }
        (method, model) => {
            if ["eagle", "eagle3", "dflash"].contains(&method) {
                command.set("engine.speculative.method", method);
            }
            command.notes.push(format!("{rate} and, of {method}, --draft-cost"));
            // Layers of the checkpoint draft under `mtp`, or Gemma 4's assistant models.
            let apart = |model: &&str| !method.ends_with("mtp") || model.contains("assistant");
            if let Some(model) = model.filter(apart) {
                command.notes.push(not_in_memory(model));
            }
        }
    }
    Ok(())
}

/// The note on a drafter whose config is not known.
pub(super) fn not_in_memory(drafter: &str) -> String {
    format!(
        "the drafter {drafter} is not in memory: its weights and its layers' cache take room beside the model's; \
         --draft-model with its config.json, and --spec-method, count them"
    )
}

/// True for a drafter that is named by a folder or a file, whose config describes it.
pub(super) fn is_path(model: &str) -> bool {
    model.starts_with(['.', '/', '~']) || model.ends_with(".json")
}

#[cfg(test)]
mod tests {
    use crate::command::read;
    use toml::Value;

    /// The value of a key that a command sets; `None` if it does not.
    fn set(command: &str, path: &str) -> Option<Value> {
        let command = read(command).unwrap();
        command.settings.into_iter().find(|setting| setting.path == path).map(|setting| setting.value)
    }

    /// The activations of gpt-oss's experts, in the words of newer and older versions, and the kernel of its experts.
    #[test]
    fn kernels_of_gpt_oss_are_settings() {
        let activations = |command: &str| set(command, "precision.activations");
        let model = "vllm serve openai/gpt-oss-120b";
        let eight = Some(Value::from("fp8"));
        assert_eq!(activations(&format!("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1 {model}")), eight);
        for config in ["'{\"moe\":{\"activation\":\"mxfp8\"}}'", "'{\"moe\": {\"activation\": \"fp8\"}}'"] {
            assert_eq!(activations(&format!("{model} --quantization-config {config}")), eight, "{config}");
        }
        assert_eq!(activations(&format!("{model} --quantization-config.moe.activation mxfp8")), eight);
        let kernel = |command: &str| set(command, "engine.quantization_kernel");
        assert_eq!(kernel(&format!("VLLM_MXFP4_USE_MARLIN=1 {model}")), Some("marlin".into()));
        assert_eq!(kernel(&format!("VLLM_MXFP4_USE_MARLIN=0 {model}")), None);
    }

    /// Other formats of a quantization config are named as not modelled, and text that is no object is refused.
    #[test]
    fn other_quantization_configs_are_not_counted() {
        for config in ["'{\"linear\":\"mxfp8\"}'", "'{\"moe\":{\"activation\":\"mxfp4\"}}'"] {
            let command = read(&format!("vllm serve m --quantization-config {config}")).unwrap();
            assert_eq!(command.unmodelled, ["--quantization-config"], "{config}");
        }
        let refused = read("vllm serve m --quantization-config fp8").unwrap_err().to_string();
        assert!(refused.contains("--quantization-config") && refused.contains("a JSON object"), "{refused}");
    }

    /// A drafter in a folder is read from its config, and one known by name alone is not in memory.
    #[test]
    fn drafters_have_their_method() {
        let spec_of = |config: &str, key: &str| {
            set(
                &format!("vllm serve m --speculative-config '{config}'"),
                &format!("engine.speculative.{key}"),
            )
        };
        let folder = r#"{"method": "eagle3", "model": "./drafter", "num_speculative_tokens": 3}"#;
        assert_eq!(spec_of(folder, "method"), Some("eagle3".into()));
        assert_eq!(spec_of(folder, "draft_model"), Some("./drafter".into()));
        let name = r#"{"method": "eagle", "model": "org/drafter", "num_speculative_tokens": 3}"#;
        assert_eq!([spec_of(name, "method"), spec_of(name, "draft_model")], [Some("eagle".into()), None]);
    }

    /// Of the sizes of captured steps the largest counts.
    #[test]
    fn captured_sizes_have_a_largest() {
        let sizes = |flags: &str| set(&format!("vllm serve m {flags}"), "engine.max_cudagraph_capture_size");
        let expected = Some(64.into());
        assert_eq!(sizes("--cudagraph-capture-sizes 1 64 8"), expected);
        assert_eq!(sizes("--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 64]}'"), expected);
        assert!(read("vllm serve m --cudagraph-capture-sizes many").is_err());
    }

    /// Bounds on images are passed on as they are.
    #[test]
    fn processors_have_their_bounds() {
        let command = "vllm serve m --mm-processor-kwargs '{\"max_pixels\": 1003520}'";
        let expected = Some("{\"max_pixels\": 1003520}".into());
        assert_eq!(set(command, "engine.mm_processor_kwargs"), expected);
    }
}
