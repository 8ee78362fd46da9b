//! Quantization as a checkpoint declares it: in `quantization_config` of a `config.json`, or in NVIDIA's
//! `hf_quant_config.json`.
//!
//! Knows: the methods (fp8, gptq, awq, bitsandbytes, compressed-tensors, mxfp4, modelopt; [`sections`] has those of one tool)
//! and the modules that they leave unquantized. Knows nothing about chips: `deployment` decides whether a chip computes in a format.

mod formats;
mod modules;
mod sections;
mod values;

use super::keys::{Keys, brief};
use super::tensor::{Tensor, TensorRole};
use crate::error::Result;
use crate::precision::{Format, GgufMix, KvFormat, WeightFormat};
use formats::{expert_format, format_of, group_format, kv_of, modelopt};
use modules::{Modules, aliases};
use serde_json::Value;
use values::by_module;

/// Most accepted patterns and groups, more than any checkpoint has; the bound exists because each is compared with
/// every tensor.
const MOST_PATTERNS: usize = 4096;
const MOST_GROUPS: usize = 64;

/// Quantization of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantization {
    /// Value of `quant_method` or `quant_algo`, as written.
    pub method: String,
    /// Format of most quantized modules.
    pub format: Format,
    /// KV-cache format that the checkpoint requests.
    pub kv: Option<KvFormat>,
    /// True if only routed experts are quantized (gpt-oss).
    experts_only: bool,
    /// True if only the modules in `named` are quantized.
    named_only: bool,
    /// Modules with formats that differ from `format`.
    named: Vec<(Modules, Format)>,
    /// Format of routed experts, if it differs from `format` (DeepSeek-V4, MiMo-V2.6).
    experts: Option<Format>,
    /// Modules left in 16 bits.
    ignored: Modules,
    /// Format that the checkpoint's id names, if nothing else declares one.
    by_id: Option<WeightFormat>,
}

impl Quantization {
    /// Quantization of a checkpoint whose id names its formats: `weights` for every linear layer and expert.
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

    /// Leaves `modules`, names and patterns, in 16 bits.
    pub(crate) fn keeping(mut self, modules: &[String]) -> Quantization {
        modules.iter().for_each(|module| self.ignored.add(module));
        self
    }

    /// Stores `modules`, names and patterns, in `format`.
    pub(crate) fn with(mut self, modules: &[String], format: Format) -> Quantization {
        let mut others = Modules::default();
        modules.iter().for_each(|module| others.add(module));
        self.named.push((others, format));
        self
    }

    /// Format that the checkpoint's id names.
    pub fn by_id(&self) -> Option<WeightFormat> {
        self.by_id
    }

    /// llama.cpp's mixture that replaces `format`, if any.
    pub fn mix(&self) -> Option<GgufMix> {
        match self.by_id {
            Some(WeightFormat::Gguf(mix)) => Some(mix),
            _ => None,
        }
    }

    /// True if routed experts alone are quantized, as in gpt-oss.
    pub fn of_experts_only(&self) -> bool {
        self.experts_only
    }

    /// Reads `quantization_config` from a parsed `config.json`; `None` if the config has no such section.
    pub(crate) fn read(place: &str, config: &Value) -> Result<Option<Quantization>> {
        let keys = Keys::new(place, config)?;
        let Some(value) = keys.value("quantization_config") else { return Ok(None) };
        let Some(section) = keys.within(value) else {
            let accepted = "an object with quant_method, or none and precision.weights";
            return Err(keys.bad("quantization_config", brief(value), accepted));
        };
        sections::dense(&section)?;
        // ModelOpt's file as a whole, with the producer beside the section.
        let section =
            section.object("quantization").filter(|_| section.states("producer")).unwrap_or(section);
        let unnamed = if section.states("bits") { "mlx" } else { "compressed-tensors" };
        let method = section.text("quant_method")?.or(section.text("quant_algo")?).unwrap_or(unnamed);
        let names = [
            "modules_to_not_convert",
            "ignore",
            "ignored_layers",
            "exclude_modules",
            "llm_int8_skip_modules",
            "exclude",
            "skip_modules",
        ];
        let read = Quantization::section(method, &section, &names)?;
        Ok(match read {
            Some(q) => Some(Quantization { experts: expert_format(&keys, &section)?, ..q }),
            None => None,
        })
    }

    /// Reads NVIDIA's `hf_quant_config.json`, which accompanies a `config.json` without `quantization_config`.
    pub fn read_modelopt(place: &str, text: &str) -> Result<Option<Quantization>> {
        let value = super::config::parse_json(place, text)?;
        let keys = Keys::new(place, &value)?;
        let Some(section) = keys.object("quantization") else { return Ok(None) };
        let Some(method) = section.text("quant_algo")? else { return Ok(None) };
        Quantization::section(method, &section, &["exclude_modules"])
    }

    fn section(method: &str, section: &Keys, ignored: &[&str]) -> Result<Option<Quantization>> {
        if let Some(read) = sections::read(method, section)? {
            let Some(format) = read.format else { return Ok(None) };
            let mut unquantized = Modules::read(section, ignored)?;
            unquantized.names.extend(read.ignored.names);
            unquantized.globs.extend(read.ignored.globs);
            return Quantization::bounded(
                method,
                section,
                Declared { format, named: read.named, named_only: false, unquantized },
            );
        }
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
        let commonest = named.iter().max_by_key(|(modules, _)| modules.names.len()).map(|(_, f)| *f);
        let format = match format.or(if named_only { commonest } else { None }) {
            Some(format) => format,
            None => match format_of(method, section)? {
                Some(format) => format,
                None => return Ok(None),
            },
        };
        let unquantized = Modules::read(section, ignored)?;
        Quantization::bounded(method, section, Declared { format, named, named_only, unquantized })
    }

    /// The quantization that a section declares, if its patterns are not too many to compare with every tensor.
    fn bounded(method: &str, section: &Keys, declared: Declared) -> Result<Option<Quantization>> {
        let Declared { format, named, named_only, unquantized: ignored } = declared;
        let kv = section.value("kv_cache_scheme").or(section.value("kv_cache_quant_algo"));
        let patterns = pattern_count(&ignored, &named);
        if patterns > MOST_PATTERNS || named.len() > MOST_GROUPS {
            let pattern_count = format!("{patterns} patterns in {} groups", named.len());
            let accepted = format!("at most {MOST_PATTERNS} in {MOST_GROUPS}");
            return Err(section.bad("quantization_config", pattern_count, accepted));
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

    /// Number of patterns that are compared with each tensor.
    pub(crate) fn patterns(&self) -> usize {
        pattern_count(&self.ignored, &self.named)
    }

    /// Lists every format in use, the format of most modules first.
    pub fn formats(&self) -> Vec<Format> {
        let mut all = vec![self.format];
        for format in self.experts.iter().chain(self.named.iter().map(|(_, f)| f)) {
            if !all.contains(format) {
                all.push(*format);
            }
        }
        all
    }

    /// Format of `tensor` in layer `layer`; `None` if the tensor stays in 16 bits. lm_head is quantized only if it is
    /// named, or by formats that cover both lm_head and embedding.
    pub fn format(&self, tensor: &Tensor, layer: Option<usize>) -> Option<Format> {
        let covered = match tensor.role {
            TensorRole::Linear => !self.experts_only,
            TensorRole::Expert => true,
            TensorRole::Head if self.format.covers_ends() => return Some(self.format),
            TensorRole::Embedding if self.format.covers_ends() => return Some(self.format),
            TensorRole::Head => !self.named.is_empty(),
            _ => false,
        };
        if !covered {
            return None;
        }
        let mut named = None;
        if !(self.ignored.is_empty() && self.named.is_empty()) {
            let paths = aliases(match layer {
                Some(index) => format!("layers.{index}.{}", tensor.name),
                None => tensor.name.to_owned(),
            });
            if paths.iter().any(|p| self.ignored.cover(p)) {
                return None;
            }
            named = self.named.iter().find(|(modules, _)| paths.iter().any(|p| modules.cover(p)));
        }
        match (named, self.experts) {
            (Some((_, format)), _) => Some(*format),
            _ if self.named_only || tensor.role == TensorRole::Head => None,
            (None, Some(experts)) if tensor.role == TensorRole::Expert => Some(experts),
            _ => Some(self.format),
        }
    }
}

/// Formats and modules that a section declares.
struct Declared {
    format: Format,
    named: Vec<(Modules, Format)>,
    named_only: bool,
    unquantized: Modules,
}

/// Reads ModelOpt's `quantized_layers`, which states an algorithm per module; modules with equal formats are joined.
fn listed(section: &Keys) -> Result<Vec<(Modules, Format)>> {
    let mut groups: Vec<(Modules, Format)> = Vec::new();
    let Some(layers) = by_module(section, "quantized_layers")? else { return Ok(groups) };
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

/// Reads compressed-tensors' `config_groups`, each with its target modules.
fn targeted(section: &Keys) -> Result<Vec<(Modules, Format)>> {
    let Some(groups) = by_module(section, "config_groups")? else { return Ok(Vec::new()) };
    let mut formats = Vec::new();
    for group in groups.values() {
        let Some(keys) = section.within(group) else {
            return Err(section.bad("quantization_config.config_groups", brief(group), "objects"));
        };
        let mut modules = Modules::read(&keys, &["targets"])?;
        modules.everything = keys.value("targets").is_none() || modules.names.contains("Linear");
        formats.push((modules, group_format(section, group)?));
    }
    Ok(formats)
}

fn pattern_count(ignored: &Modules, named: &[(Modules, Format)]) -> usize {
    ignored.globs.len() + named.iter().map(|(modules, _)| modules.globs.len()).sum::<usize>()
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

    /// Scales of 16 bits a group of integers, exponents of 8 bits per 32 small floats; integers of 4 bits with
    /// activations take a byte unless the file packs them.
    #[test]
    fn compressed_tensors_have_their_true_bits() {
        let bits = |weights: &str, inputs: &str, format: &str| {
            let group = format!(
                r#"{{"weights": {{{weights}}}, "input_activations": {inputs}, "targets": ["Linear"]}}"#
            );
            let text = format!(
                r#"{{"quant_method": "compressed-tensors", "format": "{format}", "config_groups": {{"group_0": {group}}}}}"#
            );
            read(&text).unwrap().format.width.as_f64()
        };
        for n in [2, 3, 5, 6, 7] {
            let weights = format!(r#""num_bits": {n}, "type": "int", "group_size": 128, "symmetric": true"#);
            assert_eq!(bits(&weights, "null", "pack-quantized"), f64::from(n) + 0.125);
        }
        let eight = r#""num_bits": 8, "type": "int", "group_size": 128"#;
        assert_eq!(bits(eight, "null", "pack-quantized"), 8.125);
        assert_eq!(
            bits(r#""num_bits": 8, "type": "float", "group_size": 32"#, "null", "mxfp8-quantized"),
            8.25
        );
        assert_eq!(
            bits(r#""num_bits": 6, "type": "float", "group_size": 32"#, "null", "mxfp6-quantized"),
            6.25
        );
        let four = r#""num_bits": 4, "type": "int", "group_size": 128"#;
        let inputs = r#"{"num_bits": 8, "type": "float"}"#;
        assert_eq!(bits(four, inputs, "pack-quantized"), 4.125);
        for n in 2..8 {
            let weights = format!(r#""num_bits": {n}, "type": "int", "group_size": 128"#);
            assert_eq!(bits(&weights, inputs, "int-quantized"), 8.125);
        }
    }

    /// NVFP4 weights imply nothing about the cache: `kv_cache_quant_algo` or `kv_cache_scheme` states its format.
    #[test]
    fn the_cache_has_a_format_if_the_checkpoint_says_so() {
        let kv = |more: &str| {
            let section =
                format!(r#"{{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16{more}}}"#);
            read(&section).unwrap().kv.map(|kv| kv.name)
        };
        assert_eq!(kv(""), None);
        assert_eq!(kv(r#", "kv_cache_quant_algo": null"#), None);
        assert_eq!(kv(r#", "kv_cache_quant_algo": "FP8""#), Some("fp8"));
        assert_eq!(kv(r#", "kv_cache_quant_algo": "NVFP4""#), Some("nvfp4"));
        assert_eq!(
            kv(r#", "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}"#),
            Some("fp8")
        );
        assert_eq!(kv(r#", "kv_cache_scheme": {"num_bits": 4, "type": "float"}"#), Some("nvfp4"));
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
        assert_eq!(at("linear_attn.out_proj", Some(0), TensorRole::Linear), Some("fp8"));
        assert_eq!(at("linear_attn.out_proj", Some(1), TensorRole::Linear), None);
        assert_eq!(at("mlp.experts.0.up_proj", Some(0), TensorRole::Expert), Some("nvfp4-weight-only"));
        assert_eq!(at("mlp.experts.0.down_proj", Some(1), TensorRole::Expert), Some("nvfp4"));
        assert_eq!(at("mlp.experts.0.up_proj", Some(1), TensorRole::Expert), None);
        assert_eq!(at("lm_head", None, TensorRole::Head), Some("nvfp4-weight-only"));
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
