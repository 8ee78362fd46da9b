//! How a checkpoint says it is quantized: `quantization_config` of a `config.json`, or NVIDIA's `hf_quant_config.json`.
//!
//! Knows: the methods (fp8, gptq, awq, bitsandbytes, compressed-tensors, mxfp4, modelopt) and which modules they leave
//! alone. Knows nothing about chips: whether a format computes natively is [`crate::deployment`]'s.

use super::keys::{Keys, brief};
use super::tensor::{Role, Tensor};
use crate::error::{Error, Result};
use crate::precision::{Dtype, Format, KvFormat, Width};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A checkpoint's quantization.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantization {
    /// `quant_method` or `quant_algo`, as written.
    pub method: String,
    /// The format of every linear layer that is not left alone; none where each module is named.
    pub format: Option<Format>,
    /// Formats of modules that are named, and of all that they hold.
    modules: BTreeMap<String, Format>,
    /// The format of routed experts, where they have their own.
    experts: Option<Format>,
    /// Whether only routed experts are quantized (gpt-oss).
    experts_only: bool,
    /// The KV-cache format that the checkpoint asks for.
    pub kv: Option<KvFormat>,
    /// Modules left in 16 bits.
    ignored: Modules,
}

/// Module names and patterns.
#[derive(Debug, Clone, PartialEq, Default)]
struct Modules {
    names: BTreeSet<String>,
    globs: Vec<String>,
}

/// What methods call the modules that they leave alone.
const IGNORED: &[&str] =
    &["modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules"];

impl Quantization {
    /// Reads `quantization_config` from a parsed `config.json`; none where there is none.
    pub fn read(place: &str, config: &Value) -> Result<Option<Quantization>> {
        let keys = Keys::new(place, config)?;
        let Some(section) = keys.object("quantization_config") else { return Ok(None) };
        let method =
            section.text("quant_method")?.or(section.text("quant_algo")?).unwrap_or("compressed-tensors");
        let modules = named_modules(&section)?;
        let format = if modules.is_empty() { format_of(method, &section)? } else { None };
        if format.is_none() && modules.is_empty() {
            return Ok(None);
        }
        Ok(Some(Quantization {
            method: method.to_owned(),
            format,
            modules,
            experts: match keys.text("expert_dtype")? {
                Some("fp4") => Some(Format::MXFP4),
                _ => None,
            },
            experts_only: method.eq_ignore_ascii_case("mxfp4"),
            kv: kv_of(section.value("kv_cache_scheme").or(section.value("kv_cache_quant_algo"))),
            ignored: Modules::read(&section),
        }))
    }

    /// Reads NVIDIA's `hf_quant_config.json`, which stands beside a `config.json` without `quantization_config`.
    pub fn read_modelopt(place: &str, text: &str) -> Result<Option<Quantization>> {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| Error::Parse { place: place.into(), message: e.to_string() })?;
        let keys = Keys::new(place, &value)?;
        let Some(section) = keys.object("quantization") else { return Ok(None) };
        let Some(method) = section.text("quant_algo")? else { return Ok(None) };
        let modules = named_modules(&section)?;
        let format = if modules.is_empty() { Some(modelopt(method, &section)?) } else { None };
        Ok(Some(Quantization {
            method: method.to_owned(),
            format,
            modules,
            experts: None,
            experts_only: false,
            kv: kv_of(section.value("kv_cache_quant_algo")),
            ignored: Modules::read(&section),
        }))
    }

    /// The name for reports: the one format, or `mixed`.
    pub fn name(&self) -> &'static str {
        match (self.format, self.experts) {
            (Some(format), None) => format.name,
            _ => "mixed",
        }
    }

    /// The format of `tensor` in layer `layer`, or none where it stays in 16 bits.
    pub fn format(&self, tensor: &Tensor, layer: Option<usize>) -> Option<Format> {
        let covered = match tensor.role {
            Role::Linear => !self.experts_only,
            Role::Expert => true,
            _ => false,
        };
        let path = match layer {
            Some(index) => format!("layers.{index}.{}", tensor.name),
            None => tensor.name.to_owned(),
        };
        if !covered || self.ignored.cover(&path) {
            return None;
        }
        let named = holders(&path).find_map(|holder| self.modules.get(holder).copied());
        let experts = self.experts.filter(|_| tensor.role == Role::Expert);
        named.or(experts).or(self.format)
    }
}

/// A module's path and those of the modules that hold it, innermost first.
fn holders(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |p| p.rsplit_once('.').map(|(holder, _)| holder))
}

/// Formats of modules by name: ModelOpt's `quantized_layers`, or groups of compressed-tensors whose targets are modules.
fn named_modules(section: &Keys) -> Result<BTreeMap<String, Format>> {
    let mut modules = BTreeMap::new();
    if let Some(layers) = section.value("quantized_layers").and_then(Value::as_object) {
        for (name, entry) in layers {
            let algorithm = entry["quant_algo"].as_str().unwrap_or("");
            modules.insert(module(name), modelopt(algorithm, section)?);
        }
        return Ok(modules);
    }
    let groups = section.value("config_groups").and_then(Value::as_object);
    for group in groups.into_iter().flat_map(|g| g.values()) {
        let targets = group["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> = targets
            .iter()
            .filter_map(Value::as_str)
            .filter(|t| t.contains('.') && !t.contains('*'))
            .collect();
        if let Some(format) = group_format(section, group)?.filter(|_| !names.is_empty()) {
            modules.extend(names.into_iter().map(|name| (module(name), format)));
        }
    }
    Ok(modules)
}

/// A module's name by our paths: loaders' prefixes off, Mixtral's and Nemotron-H's names for what we call otherwise.
fn module(name: &str) -> String {
    let name = bare(name).replace("block_sparse_moe", "mlp").replace("shared_expert.", "shared_experts.");
    let (name, last) = match name.rsplit_once('.') {
        Some((holder, "w1")) => (holder, ".gate_proj"),
        Some((holder, "w2")) => (holder, ".down_proj"),
        Some((holder, "w3")) => (holder, ".up_proj"),
        _ => (name.as_str(), ""),
    };
    let name = name.trim_end_matches("shared_expert").to_owned()
        + if name.ends_with("shared_expert") { "shared_experts" } else { "" };
    match name.split_once(".mixer.") {
        // Attention, MLP and Mamba share a name there.
        Some((layer, part)) if ["q_proj", "k_proj", "v_proj", "o_proj"].contains(&part) => {
            format!("{layer}.self_attn.{part}")
        }
        Some((layer, part)) if part != "in_proj" && part != "out_proj" && !part.starts_with("conv1d") => {
            format!("{layer}.mlp.{part}{last}")
        }
        _ => name + last,
    }
}

/// The format that a method stores; none for methods that leave weights in 16 bits.
fn format_of(method: &str, section: &Keys) -> Result<Option<Format>> {
    let bits = section.count(&["bits", "w_bit"])?.unwrap_or(4);
    let group = section
        .value("group_size")
        .and_then(Value::as_i64)
        .filter(|g| (1..=65_536).contains(g))
        .unwrap_or(128) as u32;
    Ok(Some(match method.to_ascii_lowercase().as_str() {
        "fp8" | "fbgemm_fp8" => match section.value("weight_block_size") {
            Some(_) => Format::FP8_BLOCK,
            None => Format::FP8,
        },
        // An fp16 scale and a zero point of `bits` per group.
        "gptq" | "gptq_marlin" => integer("gptq-int4", "gptq-int8", bits, 16 + bits as u32, group, section)?,
        "awq" | "awq_marlin" => integer("awq-int4", "awq-int8", bits, 16 + bits as u32, group, section)?,
        "mxfp4" => Format::MXFP4,
        "nvfp4" => Format::NVFP4,
        "bitsandbytes" if section.flag("load_in_8bit", false)? => {
            Format { name: "bnb-int8", width: Width::bits(8), compute: None }
        }
        "bitsandbytes" => Format { name: "nf4", width: Width::grouped(4, 32, 64), compute: None },
        "compressed-tensors" | "modelopt" | "fp8_pb_wo" => return groups(section),
        other => modelopt(other, section)?,
    }))
}

fn integer(
    four: &'static str,
    eight: &'static str,
    bits: u64,
    overhead: u32,
    group: u32,
    section: &Keys,
) -> Result<Format> {
    match bits {
        4 => Ok(Format { name: four, width: Width::grouped(4, overhead, group), compute: None }),
        8 => Ok(Format { name: eight, width: Width::grouped(8, overhead, group), compute: None }),
        2 | 3 => {
            Ok(Format { name: "int-low", width: Width::grouped(bits as u32, overhead, group), compute: None })
        }
        _ => Err(section.bad("quantization_config.bits", bits, "2, 3, 4, 8")),
    }
}

/// NVIDIA ModelOpt's algorithms by name.
fn modelopt(name: &str, section: &Keys) -> Result<Format> {
    Ok(match name.to_ascii_uppercase().as_str() {
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" => Format::FP8,
        "FP8_PB_WO" | "FP8_BLOCK_SCALES" => Format::FP8_BLOCK,
        "NVFP4" | "NVFP4_AWQ" => Format::NVFP4,
        "W4A16_NVFP4" => Format { name: "nvfp4-weight-only", compute: None, ..Format::NVFP4 },
        "MXFP4" | "W4A16_MXFP4" => Format::MXFP4,
        "MXFP8" => Format { name: "mxfp8", width: Width::grouped(8, 8, 32), compute: Some(Dtype::Fp8) },
        "W4A16_AWQ" | "INT4_AWQ" => Format::AWQ_INT4,
        _ => {
            let accepted =
                "fp8, gptq, awq, bitsandbytes, compressed-tensors, mxfp4, modelopt and its algorithms";
            return Err(section.bad("quant_method", format!("{name:?}"), accepted));
        }
    })
}

/// compressed-tensors' `config_groups`: the format of the first.
fn groups(section: &Keys) -> Result<Option<Format>> {
    let Some(groups) = section.value("config_groups").and_then(Value::as_object) else {
        return match section.text("quant_algo")? {
            Some(name) => modelopt(name, section).map(Some),
            None => Err(section.bad("quantization_config.config_groups", "missing", "an object of groups")),
        };
    };
    match groups.values().next() {
        Some(group) => group_format(section, group),
        None => Ok(None),
    }
}

/// The format of one group's weights.
fn group_format(section: &Keys, group: &Value) -> Result<Option<Format>> {
    let weights = &group["weights"];
    let bits = weights["num_bits"].as_u64();
    let float = weights["type"].as_str() == Some("float");
    let size = weights["group_size"].as_u64().filter(|g| (1..=65_536).contains(g)).map(|g| g as u32);
    let symmetric = weights["symmetric"].as_bool().unwrap_or(true);
    let activations = group.get("input_activations").is_some_and(|a| !a.is_null());
    let zero = if symmetric { 0 } else { 4 };
    let int8 = Format { name: "int8", width: Width::bits(8), compute: None };
    Ok(Some(match (bits, float, size) {
        (Some(8), true, _) if activations => Format::FP8,
        (Some(8), true, _) => Format { name: "fp8-weight-only", width: Width::bits(8), compute: None },
        (Some(4), true, Some(16)) if activations => Format::NVFP4,
        (Some(4), true, Some(16)) => Format { name: "nvfp4-weight-only", compute: None, ..Format::NVFP4 },
        (Some(4), true, _) => Format::MXFP4,
        (Some(8), false, _) if activations => int8.computing_in(Dtype::Int8),
        (Some(8), false, _) => int8,
        (Some(4), false, size) => {
            Format { name: "int4", width: Width::grouped(4, 16 + zero, size.unwrap_or(128)), compute: None }
        }
        _ => {
            return Err(section.bad(
                "quantization_config.config_groups",
                brief(weights),
                "weights of 4 or 8 bits, int or float",
            ));
        }
    }))
}

fn kv_of(value: Option<&Value>) -> Option<KvFormat> {
    let eight = match value? {
        Value::String(s) => s.to_ascii_uppercase().contains("FP8") || s.to_ascii_uppercase().contains("INT8"),
        Value::Object(o) => o.get("num_bits").and_then(Value::as_u64) == Some(8),
        _ => false,
    };
    eight.then_some(KvFormat::FP8)
}

impl Modules {
    fn read(section: &Keys) -> Modules {
        let mut modules = Modules::default();
        for name in IGNORED {
            let list = section.value(name).and_then(Value::as_array);
            for entry in list.into_iter().flatten().filter_map(Value::as_str) {
                match entry.strip_prefix("re:") {
                    // Of regular expressions only `.*`, escaped dots and one choice occur; they become globs.
                    Some(regex) => modules.globs.extend(choices(regex).map(|r| {
                        format!(
                            "*{}*",
                            r.replace(".*", "*").replace("\\.", ".").trim_matches(['*', '$', '^'])
                        )
                    })),
                    None if entry.contains('*') => modules.globs.push(module(entry)),
                    None => drop(modules.names.insert(module(entry))),
                }
            }
        }
        modules
    }

    /// Whether a name or pattern covers `path`: a name covers every path in which its components stand in a row.
    fn cover(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('.').collect();
        let named = (0..parts.len())
            .any(|from| (from + 1..=parts.len()).any(|to| self.names.contains(&parts[from..to].join("."))));
        named || self.globs.iter().any(|glob| glob_covers(glob, path))
    }
}

/// The readings of a regular expression with one group of choices: `(gate|up)_proj` is `gate_proj` and `up_proj`.
fn choices(regex: &str) -> impl Iterator<Item = String> {
    let parts = regex
        .split_once('(')
        .and_then(|(before, rest)| rest.split_once(')').map(|(group, after)| (before, group, after)));
    let (before, group, after) = parts.unwrap_or((regex, "", ""));
    let (before, after) = (before.to_owned(), after.to_owned());
    group.split('|').map(|one| format!("{before}{one}{after}")).collect::<Vec<_>>().into_iter()
}

/// A module name without the prefixes that differ between loaders.
fn bare(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) =
        ["model.", "language_model.", "backbone."].iter().find_map(|p| name.strip_prefix(p))
    {
        name = rest;
    }
    name
}

/// Whether `glob` matches `path` or a module that holds it; `*` stands for anything.
fn glob_covers(glob: &str, path: &str) -> bool {
    let mut pieces = glob.split('*');
    let Some(first) = pieces.next() else { return false };
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let mut last = first;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
        last = piece;
    }
    last.is_empty() || rest.is_empty() || rest.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tensor::Split;

    fn read(json: &str) -> Option<Quantization> {
        let text = format!("{{\"quantization_config\": {json}}}");
        Quantization::read("config.json", &serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn methods_have_their_true_bits() {
        let bits = |json: &str| read(json).unwrap().format.unwrap().width.as_f64();
        assert_eq!(bits(r#"{"quant_method": "gptq", "bits": 4, "group_size": 128}"#), 4.15625);
        assert_eq!(bits(r#"{"quant_method": "awq", "bits": 4, "group_size": 64}"#), 4.3125);
        assert_eq!(bits(r#"{"quant_method": "fp8", "weight_block_size": [128, 128]}"#), 8.001953125);
        let groups = r#"{"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": true}, "targets": ["Linear"]}}}"#;
        assert_eq!(bits(groups), 4.5);
    }

    #[test]
    fn ignored_modules_stay_in_sixteen_bits() {
        let q = read(r#"{"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "gate", "model.layers.1.self_attn", "re:.*shared_experts.*", "model.layers.3.mlp*"]}"#).unwrap();
        let at = |name, layer| q.format(&Tensor::linear(name, "x", 1, 1, Split::Even), Some(layer)).is_some();
        assert!(at("self_attn.q_proj", 0) && !at("self_attn.q_proj", 1) && at("self_attn.q_proj", 11));
        assert!(at("mlp.gate_proj", 0) && !at("mlp.gate_proj", 3) && !at("mlp.gate", 0));
        assert!(!at("mlp.shared_experts.up_proj", 0));
    }

    #[test]
    fn an_unknown_method_is_refused_by_name() {
        let value = serde_json::json!({"quantization_config": {"quant_method": "magic"}});
        let message = Quantization::read("c.json", &value).unwrap_err().to_string();
        assert!(message.starts_with("c.json: `quant_method` is \"magic\""), "{message}");
    }
}
