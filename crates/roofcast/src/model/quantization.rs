//! How a checkpoint says it is quantized: `quantization_config` of a `config.json`, or NVIDIA's `hf_quant_config.json`.
//!
//! Knows: the methods (fp8, gptq, awq, bitsandbytes, compressed-tensors, mxfp4, modelopt) and which modules they leave
//! alone. Knows nothing about chips: whether a format computes natively is [`crate::deployment`]'s.

use super::keys::{Keys, brief};
use super::tensor::{Role, Tensor};
use crate::error::Result;
use crate::precision::{Dtype, Format, GgufMix, KvFormat, WeightFormat, Width};
use serde_json::Value;
use std::collections::BTreeSet;

/// OCP microscaling 8-bit floats: an 8-bit exponent per 32 values.
const MXFP8: Format = Format { name: "mxfp8", width: Width::grouped(8, 8, 32), compute: Some(Dtype::Fp8) };
/// NVFP4 whose activations stay in 16 bits.
const NVFP4_WEIGHT_ONLY: Format = Format { name: "nvfp4-weight-only", compute: None, ..Format::NVFP4 };

/// More patterns and groups than any checkpoint has; each is held against each tensor.
const MOST_PATTERNS: usize = 4096;
const MOST_GROUPS: usize = 64;

/// A checkpoint's quantization.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantization {
    /// `quant_method` or `quant_algo`, as written.
    pub method: String,
    /// The format of most quantized modules.
    pub format: Format,
    /// The KV-cache format that the checkpoint asks for.
    pub kv: Option<KvFormat>,
    /// Whether only routed experts are quantized (gpt-oss).
    experts_only: bool,
    /// Whether only the modules in `named` are quantized.
    named_only: bool,
    /// Modules with a format of their own.
    named: Vec<(Modules, Format)>,
    /// The format of routed experts where it differs (DeepSeek-V4's `expert_dtype`).
    experts: Option<Format>,
    /// Modules left in 16 bits.
    ignored: Modules,
    /// What the checkpoint's id says, where that is all that is known.
    by_id: Option<WeightFormat>,
}

impl Quantization {
    /// That of a checkpoint whose id says its formats: `weights` on every linear layer and expert.
    pub(crate) fn named(weights: WeightFormat, kv: Option<KvFormat>) -> Quantization {
        let format = match weights {
            WeightFormat::Uniform(format) => format,
            WeightFormat::Gguf(mix) => mix.base(),
        };
        Quantization {
            method: weights.name().to_owned(),
            format,
            kv,
            experts_only: false,
            named_only: false,
            named: Vec::new(),
            experts: None,
            ignored: Modules::default(),
            by_id: Some(weights),
        }
    }

    /// The format that the checkpoint's id says.
    pub(crate) fn by_id(&self) -> Option<WeightFormat> {
        self.by_id
    }

    /// One of llama.cpp's mixtures in place of `format`.
    pub(crate) fn mix(&self) -> Option<GgufMix> {
        match self.by_id {
            Some(WeightFormat::Gguf(mix)) => Some(mix),
            _ => None,
        }
    }

    /// Reads `quantization_config` from a parsed `config.json`; none where there is none.
    pub fn read(place: &str, config: &Value) -> Result<Option<Quantization>> {
        let keys = Keys::new(place, config)?;
        let Some(section) = keys.object("quantization_config") else { return Ok(None) };
        let method =
            section.text("quant_method")?.or(section.text("quant_algo")?).unwrap_or("compressed-tensors");
        let names = [
            "modules_to_not_convert",
            "ignore",
            "ignored_layers",
            "exclude_modules",
            "llm_int8_skip_modules",
        ];
        let read = Quantization::section(method, &section, &names)?;
        Ok(match read {
            Some(q) => Some(Quantization { experts: expert_format(&keys)?, ..q }),
            None => None,
        })
    }

    /// Reads NVIDIA's `hf_quant_config.json`, which stands beside a `config.json` without `quantization_config`.
    pub fn read_modelopt(place: &str, text: &str) -> Result<Option<Quantization>> {
        let value = super::config::parse_json(place, text)?;
        let keys = Keys::new(place, &value)?;
        let Some(section) = keys.object("quantization") else { return Ok(None) };
        let Some(method) = section.text("quant_algo")? else { return Ok(None) };
        Quantization::section(method, &section, &["exclude_modules"])
    }

    fn section(method: &str, section: &Keys, ignored: &[&str]) -> Result<Option<Quantization>> {
        let mut named = listed(section)?;
        let mut named_only = !named.is_empty();
        let mut format = None;
        if named.is_empty() && method.eq_ignore_ascii_case("MIXED_PRECISION") {
            return Err(section.bad("quantized_layers", "missing", "the algorithm of each module"));
        }
        if named.is_empty() {
            let targets = targeted(section)?;
            if targets.len() > 1 || targets.iter().any(|(modules, _)| !modules.everything) {
                format = targets.iter().find(|(modules, _)| modules.everything).map(|(_, f)| *f);
                named_only = format.is_none();
                named = targets.into_iter().filter(|(modules, _)| !modules.everything).collect();
            }
        }
        let most = named.iter().max_by_key(|(modules, _)| modules.names.len()).map(|(_, f)| *f);
        let format = match format.or(if named_only { most } else { None }) {
            Some(format) => format,
            None => match format_of(method, section)? {
                Some(format) => format,
                None => return Ok(None),
            },
        };
        let kv = section.value("kv_cache_scheme").or(section.value("kv_cache_quant_algo"));
        let ignored = Modules::read(section, ignored);
        let patterns = pattern_count(&ignored, &named);
        if patterns > MOST_PATTERNS || named.len() > MOST_GROUPS {
            let found = format!("{patterns} patterns in {} groups", named.len());
            let accepted = format!("at most {MOST_PATTERNS} in {MOST_GROUPS}");
            return Err(section.bad("quantization_config", found, accepted));
        }
        Ok(Some(Quantization {
            method: method.to_owned(),
            format,
            kv: kv_of(kv),
            experts_only: method.eq_ignore_ascii_case("mxfp4"),
            named_only,
            named,
            experts: None,
            ignored,
            by_id: None,
        }))
    }

    /// Patterns that each tensor is held against.
    pub fn patterns(&self) -> usize {
        pattern_count(&self.ignored, &self.named)
    }

    /// Every format in use, that of most modules first.
    pub fn formats(&self) -> Vec<Format> {
        let mut all = vec![self.format];
        for format in self.experts.iter().chain(self.named.iter().map(|(_, f)| f)) {
            if !all.contains(format) {
                all.push(*format);
            }
        }
        all
    }

    /// The format of `tensor` in layer `layer`, or none where it stays in 16 bits. lm_head is quantized only by name, or in
    /// formats that cover it and the embedding.
    pub fn format(&self, tensor: &Tensor, layer: Option<usize>) -> Option<Format> {
        let covered = match tensor.role {
            Role::Linear => !self.experts_only,
            Role::Expert => true,
            Role::Head if self.format.covers_ends() => return Some(self.format),
            Role::Embedding if self.format.covers_ends() => return Some(self.format),
            Role::Head => !self.named.is_empty(),
            _ => false,
        };
        if !covered {
            return None;
        }
        let path = match layer {
            Some(index) => format!("layers.{index}.{}", tensor.name),
            None => tensor.name.to_owned(),
        };
        let paths = aliases(path);
        if paths.iter().any(|p| self.ignored.cover(p)) {
            return None;
        }
        let named = self.named.iter().find(|(modules, _)| paths.iter().any(|p| modules.cover(p)));
        match (named, self.experts) {
            (Some((_, format)), _) => Some(*format),
            _ if self.named_only || tensor.role == Role::Head => None,
            (None, Some(experts)) if tensor.role == Role::Expert => Some(experts),
            _ => Some(self.format),
        }
    }
}

/// The names that checkpoints give one module: ours are llama's.
fn aliases(path: String) -> Vec<String> {
    const OTHERS: &[(&str, &str)] = &[
        (".mlp.", ".block_sparse_moe."),
        (".gate_proj", ".w1"),
        (".up_proj", ".w3"),
        (".down_proj", ".w2"),
        (".shared_experts.", ".shared_expert."),
        (".shared_experts.", ".share_expert."),
        (".in_proj_qkv", ".in_proj_qkvz"),
        (".o_a_proj", ".wo_a"),
        (".o_b_proj", ".wo_b"),
        (".self_attn.", ".mixer."),
        (".mlp.", ".mixer."),
        (".mamba.", ".mixer."),
    ];
    let mut all = vec![path];
    for (ours, theirs) in OTHERS {
        let renamed: Vec<String> =
            all.iter().filter(|p| p.contains(ours)).map(|p| p.replace(ours, theirs)).collect();
        all.extend(renamed);
    }
    all
}

/// DeepSeek-V4's `expert_dtype`: 4-bit floats with an 8-bit exponent per 32, computed with fp8 activations.
fn expert_format(keys: &Keys) -> Result<Option<Format>> {
    match keys.text("expert_dtype")? {
        Some("fp4" | "mxfp4") => Ok(Some(Format::MXFP4.computing_in(Dtype::Fp8))),
        Some("fp8") | None => Ok(None),
        Some(other) => Err(keys.bad("expert_dtype", format!("{other:?}"), "fp4, fp8")),
    }
}

/// ModelOpt's `quantized_layers`: an algorithm for each module; modules of one format together.
fn listed(section: &Keys) -> Result<Vec<(Modules, Format)>> {
    let mut groups: Vec<(Modules, Format)> = Vec::new();
    let Some(layers) = section.value("quantized_layers").and_then(Value::as_object) else {
        return Ok(groups);
    };
    for (module, how) in layers {
        let Some(keys) = section.within(how) else {
            return Err(section.bad("quantized_layers", brief(how), "an object with quant_algo a module"));
        };
        let Some(name) = keys.text("quant_algo")? else { continue };
        let Some(format) = modelopt(name, &keys)? else { continue };
        if groups.len() > MOST_GROUPS {
            break;
        }
        match groups.iter_mut().find(|(_, f)| *f == format) {
            Some((modules, _)) => modules.add(module),
            None => {
                let mut modules = Modules::default();
                modules.add(module);
                groups.push((modules, format));
            }
        }
    }
    Ok(groups)
}

/// compressed-tensors' `config_groups` with what each targets.
fn targeted(section: &Keys) -> Result<Vec<(Modules, Format)>> {
    let Some(groups) = section.value("config_groups").and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for group in groups.values() {
        let Some(keys) = section.within(group) else {
            return Err(section.bad("quantization_config.config_groups", brief(group), "objects"));
        };
        let mut modules = Modules::read(&keys, &["targets"]);
        modules.everything = keys.value("targets").is_none() || modules.names.contains("Linear");
        found.push((modules, group_format(section, group)?));
    }
    Ok(found)
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
        "bitsandbytes" if section.flag("bnb_4bit_use_double_quant", false)? => Format::NF4_DOUBLE,
        "bitsandbytes" => Format::NF4,
        "compressed-tensors" | "modelopt" | "fp8_pb_wo" => return groups(section),
        other => return modelopt(other, section),
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
fn modelopt(name: &str, section: &Keys) -> Result<Option<Format>> {
    Ok(Some(match name.to_ascii_uppercase().as_str() {
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" => Format::FP8,
        "FP8_PB_WO" | "FP8_BLOCK_SCALES" => Format::FP8_BLOCK,
        "MXFP8" => MXFP8,
        "NVFP4" | "NVFP4_AWQ" => Format::NVFP4,
        "W4A16_NVFP4" => NVFP4_WEIGHT_ONLY,
        "W4A8_NVFP4_FP8" => Format::NVFP4.computing_in(Dtype::Fp8),
        "MXFP4" | "W4A16_MXFP4" => Format::MXFP4,
        "W4A16_AWQ" | "INT4_AWQ" => Format::AWQ_INT4,
        _ => {
            return Err(section.bad(
                "quant_method",
                format!("{name:?}"),
                "fp8, gptq, awq, bitsandbytes, compressed-tensors, mxfp4, nvfp4, modelopt and its algorithms",
            ));
        }
    }))
}

/// compressed-tensors' `config_groups`: the first group's weights.
fn groups(section: &Keys) -> Result<Option<Format>> {
    let Some(groups) = section.value("config_groups").and_then(Value::as_object) else {
        return match section.text("quant_algo")? {
            Some(name) => modelopt(name, section),
            None => Err(section.bad("quantization_config.config_groups", "missing", "an object of groups")),
        };
    };
    match groups.values().next() {
        Some(group) => group_format(section, group).map(Some),
        None => Ok(None),
    }
}

/// The format of one of compressed-tensors' groups.
fn group_format(section: &Keys, group: &Value) -> Result<Format> {
    let weights = &group["weights"];
    let bits = weights["num_bits"].as_u64();
    let float = weights["type"].as_str() == Some("float");
    let size = weights["group_size"].as_u64().filter(|g| (1..=65_536).contains(g)).map(|g| g as u32);
    let symmetric = weights["symmetric"].as_bool().unwrap_or(true);
    let activations = group.get("input_activations").is_some_and(|a| !a.is_null());
    let zero = if symmetric { 0 } else { 4 };
    Ok(match (bits, float, size) {
        (Some(8), true, Some(32)) if activations => MXFP8,
        (Some(8), true, _) if activations => Format::FP8,
        (Some(8), true, _) => Format { name: "fp8-weight-only", width: Width::bits(8), compute: None },
        (Some(4), true, Some(16)) if activations => Format::NVFP4,
        (Some(4), true, Some(16)) => NVFP4_WEIGHT_ONLY,
        (Some(4), true, _) => Format::MXFP4,
        (Some(8), false, _) if activations => {
            Format { name: "int8", width: Width::bits(8), compute: Some(Dtype::Int8) }
        }
        (Some(8), false, _) => Format { name: "int8", width: Width::bits(8), compute: None },
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
    })
}

fn kv_of(value: Option<&Value>) -> Option<KvFormat> {
    let eight = match value? {
        Value::String(s) => s.to_ascii_uppercase().contains("FP8") || s.to_ascii_uppercase().contains("INT8"),
        Value::Object(o) => o.get("num_bits").and_then(Value::as_u64) == Some(8),
        _ => false,
    };
    eight.then_some(KvFormat::FP8)
}

/// Module names and patterns.
#[derive(Debug, Clone, PartialEq, Default)]
struct Modules {
    names: BTreeSet<String>,
    globs: Vec<String>,
    /// Stands for every linear layer.
    everything: bool,
}

impl Modules {
    fn read(section: &Keys, names: &[&str]) -> Modules {
        let mut modules = Modules::default();
        for name in names {
            let list = section.value(name).and_then(Value::as_array);
            for entry in list.into_iter().flatten().filter_map(Value::as_str) {
                modules.add(entry);
            }
        }
        modules
    }

    fn add(&mut self, entry: &str) {
        let entry = bare(entry);
        match entry.strip_prefix("re:") {
            // Of regular expressions only `.*`, escaped dots and (a|b) occur; they become globs.
            Some(regex) => {
                let plain = regex.replace(".*", "*").replace("\\.", ".").replace(['^', '$'], "");
                let open = alternatives(&plain);
                self.globs.extend(open.iter().map(|g| format!("*{}*", g.trim_matches('*'))));
            }
            None if entry.contains('*') => self.globs.push(entry.to_owned()),
            None => drop(self.names.insert(entry.to_owned())),
        }
    }

    /// Whether a name or pattern covers `path`: a name covers every path in which its components stand in a row.
    fn cover(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('.').collect();
        let named = (0..parts.len())
            .any(|from| (from + 1..=parts.len()).any(|to| self.names.contains(&parts[from..to].join("."))));
        named || self.globs.iter().any(|glob| glob_covers(glob, path))
    }
}

fn pattern_count(ignored: &Modules, named: &[(Modules, Format)]) -> usize {
    ignored.globs.len() + named.iter().map(|(modules, _)| modules.globs.len()).sum::<usize>()
}

/// `pattern` once for each choice of its first group `(a|b)`.
fn alternatives(pattern: &str) -> Vec<String> {
    let found = pattern.find('(').and_then(|open| {
        let close = open + pattern[open..].find(')')?;
        Some((&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]))
    });
    match found {
        Some((before, inner, after)) => {
            inner.split('|').take(64).map(|choice| format!("{before}{choice}{after}")).collect()
        }
        None => vec![pattern.to_owned()],
    }
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
    use crate::model::tensor::{OperatorKind, Split};

    fn read(json: &str) -> Option<Quantization> {
        let text = format!("{{\"quantization_config\": {json}}}");
        Quantization::read("config.json", &serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn methods_have_their_true_bits() {
        let bits = |json: &str| read(json).unwrap().format.width.as_f64();
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
        let at = |name, layer| {
            q.format(&Tensor::linear(name, OperatorKind::QkvProj, 1, 1, Split::Even), Some(layer)).is_some()
        };
        assert!(at("self_attn.q_proj", 0) && !at("self_attn.q_proj", 1) && at("self_attn.q_proj", 11));
        assert!(at("mlp.gate_proj", 0) && !at("mlp.gate_proj", 3) && !at("mlp.gate", 0));
        assert!(!at("mlp.shared_experts.up_proj", 0));
    }

    #[test]
    fn formats_differ_by_module() {
        let q = read(
            r#"{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
            "model.language_model.layers.0.linear_attn.out_proj": {"quant_algo": "FP8"},
            "model.language_model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
            "model.language_model.layers.1.block_sparse_moe.experts.0.w2": {"quant_algo": "NVFP4"},
            "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}"#,
        )
        .unwrap();
        let at = |name, layer, role| {
            let tensor = Tensor::linear(name, OperatorKind::QkvProj, 1, 1, Split::Even).with_role(role);
            q.format(&tensor, layer).map(|f| f.name)
        };
        assert_eq!(at("linear_attn.out_proj", Some(0), Role::Linear), Some("fp8"));
        assert_eq!(at("linear_attn.out_proj", Some(1), Role::Linear), None);
        assert_eq!(at("mlp.experts.0.up_proj", Some(0), Role::Expert), Some("nvfp4-weight-only"));
        assert_eq!(at("mlp.experts.0.down_proj", Some(1), Role::Expert), Some("nvfp4"));
        assert_eq!(at("mlp.experts.0.up_proj", Some(1), Role::Expert), None);
        assert_eq!(at("lm_head", None, Role::Head), Some("nvfp4-weight-only"));
    }

    #[test]
    fn groups_have_targets_and_regexes_have_alternatives() {
        let q = read(
            r#"{"quant_method": "compressed-tensors", "ignore": ["re:.*mlp\\.(gate|up|down)_proj.*"],
            "config_groups": {
            "a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}},
            "b": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}, "input_activations": {}}}}"#,
        )
        .unwrap();
        let at = |name| {
            q.format(&Tensor::linear(name, OperatorKind::QkvProj, 1, 1, Split::Even), Some(3)).map(|f| f.name)
        };
        assert_eq!(at("self_attn.q_proj"), Some("fp8"));
        assert_eq!((at("mlp.gate_proj"), at("mlp.experts.0.gate_proj")), (None, Some("int4")));
    }

    #[test]
    fn an_unknown_method_is_refused_by_name() {
        let value = serde_json::json!({"quantization_config": {"quant_method": "magic"}});
        let message = Quantization::read("c.json", &value).unwrap_err().to_string();
        assert!(message.starts_with("c.json: `quant_method` is \"magic\""), "{message}");
    }
}
