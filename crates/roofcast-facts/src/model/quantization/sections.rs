//! Sections of `quantization_config` in the words of one tool: Quark, AutoRound, HQQ, FP-Quant, SINQ, torchao, MLX, and the
//! rules of GPTQModel for single modules.
//!
//! Knows: their keys, their true bits, and the modules that each names. Knows nothing about tensors.
//!
//! Sources: transformers 5.23, `utils/quantization_config.py`; vLLM 0.33, `model_executor/layers/quantization` (`quark`, `inc`,
//! `torchao.py`, `fp_quant.py`, `utils/gptq_utils.py`); `mlx_lm/utils.py` of mlx-lm.

use super::formats::{GROUP, MXFP6, MXFP8, NVFP4_WEIGHT_ONLY, format_of, integer};
use super::modules::Modules;
use super::values::{self, bits, by_module, group_size};
use crate::error::Result;
use crate::model::keys::{Keys, brief};
use crate::precision::{Dtype, Format, SEMI_STRUCTURED, Width, is_semi_structured};
use serde_json::Value;

/// Most formats of modules, as many as the groups that a section may have.
const MOST_FORMATS: usize = 64;

/// Formats of a section.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// Format of most modules; `None` if they stay in 16 bits.
    pub(super) format: Option<Format>,
    /// Modules with formats of their own.
    pub(super) named: Vec<(Modules, Format)>,
    /// Modules left in 16 bits.
    pub(super) ignored: Modules,
}

impl Section {
    fn of(format: Format) -> Section {
        Section { format: Some(format), ..Section::default() }
    }

    /// Gives the modules that `pattern` covers `format`, or 16 bits for `None`. Formats beyond the accepted number, with
    /// which the section is refused, are not collected.
    fn name(&mut self, pattern: &str, format: Option<Format>) {
        if self.named.len() > MOST_FORMATS {
            return;
        }
        match (format, self.named.iter_mut().find(|(_, other)| Some(*other) == format)) {
            (None, _) => self.ignored.add(pattern),
            (Some(_), Some((modules, _))) => modules.add(pattern),
            (Some(format), None) => {
                let mut modules = Modules::default();
                modules.add(pattern);
                self.named.push((modules, format));
            }
        }
    }
}

/// Reads a section of these tools; `None` for other methods.
pub(super) fn read(method: &str, section: &Keys) -> Result<Option<Section>> {
    Ok(Some(match method.to_ascii_lowercase().as_str() {
        "quark" => quark(section)?,
        "auto-round" | "autoround" | "auto_round" | "intel/auto-round" | "inc" => auto_round(section)?,
        "hqq" => hqq(section)?,
        "fp_quant" => fp_quant(section)?,
        // Scales and zero points of 16 bits each a group, and a scale a column, which is not counted.
        "sinq" => Section::of(affine("nbits", section)?),
        "torchao" => torchao(section)?,
        "mlx" => mlx(section)?,
        "gptq" | "gptq_marlin" if section.value("dynamic").is_some() => dynamic(method, section)?,
        _ => return Ok(None),
    }))
}

/// Refuses weights that compressed-tensors' `sparsity_config` declares as 2:4 sparse.
pub(super) fn dense(section: &Keys) -> Result<()> {
    let Some(sparsity) = section.object("sparsity_config") else { return Ok(()) };
    for key in ["sparsity_structure", "format"] {
        if let Some(text) = sparsity.text(key)?.filter(|text| is_semi_structured(text)) {
            return Err(sparsity.bad(key, format!("{text:?}"), SEMI_STRUCTURED));
        }
    }
    Ok(())
}

/// Integers with a scale and a zero point of 16 bits each a group.
fn affine(key: &str, keys: &Keys) -> Result<Format> {
    let group = group_size(keys, Some(64))?;
    let width = |bits: u32| group.map_or(Width::bits(bits), |group| Width::grouped(bits, 32, group));
    Ok(match bits(keys, &[key])?.unwrap_or(4) {
        4 => Format { name: "int4", width: width(4), compute: None },
        8 => Format { name: "int8", width: width(8), compute: None },
        n @ (1..=3 | 5 | 6) => Format { name: "int-low", width: width(n as u32), compute: None },
        other => return Err(keys.bad(key, other, "1 to 6, or 8")),
    })
}

/// AMD Quark: a format of weights and inputs for all layers, and others by layer.
fn quark(section: &Keys) -> Result<Section> {
    let Some(all) = section.object("global_quant_config") else {
        let found = section.value("global_quant_config").map_or("missing".to_owned(), brief);
        let accepted = "Quark's object with weight and input_tensors";
        return Err(section.bad("quantization_config.global_quant_config", found, accepted));
    };
    let mut read = Section { format: quark_format(&all)?, ..Section::default() };
    let layers = by_module(section, "layer_quant_config")?;
    for (pattern, layer) in layers.into_iter().flatten() {
        if let Some(keys) = section.within(layer) {
            read.name(pattern, quark_format(&keys)?);
        }
    }
    Ok(read)
}

/// Format of Quark's weights; of two levels (`fp4` with scales in `fp8_e4m3`, or `int4` behind `fp8_e4m3`) the narrower
/// is stored.
fn quark_format(keys: &Keys) -> Result<Option<Format>> {
    let weights = quark_levels(keys, "weight")?;
    let inputs = quark_levels(keys, "input_tensors")?;
    let narrow = |level: &&Level| level.dtype.contains('4');
    let Some(weight) = weights.iter().find(narrow).or(weights.first()) else { return Ok(None) };
    let size = group_size(&weight.keys, None)?;
    let compute =
        inputs.iter().find(narrow).or(inputs.first()).and_then(|input| match input.dtype.as_str() {
            "fp4" => Some(Dtype::Fp4),
            "fp8_e4m3" | "fp8_e5m2" => Some(Dtype::Fp8),
            "int8" => Some(Dtype::Int8),
            "int4" => Some(Dtype::Int4),
            _ => None,
        });
    let scaled = |bits: u32, zero: u32| match size {
        Some(group) => Width::grouped(bits, 16 + zero, group),
        None => Width::bits(bits),
    };
    let by_channel = weight.keys.text("qscheme")? == Some("per_channel");
    Ok(Some(match (weight.dtype.as_str(), size) {
        ("fp4", Some(16)) if compute.is_none() => NVFP4_WEIGHT_ONLY,
        ("fp4", Some(16)) => Format { compute, ..Format::NVFP4 },
        ("fp4" | "mxfp4" | "mx_fp4", _) => Format { compute, ..Format::MXFP4 },
        ("fp6_e2m3" | "fp6_e3m2", _) => Format { compute, ..MXFP6 },
        ("fp8_e4m3" | "fp8_e5m2", Some(32)) => Format { compute, ..MXFP8 },
        ("fp8_e4m3" | "fp8_e5m2", _) if compute.is_none() => {
            Format { name: "fp8-weight-only", width: Width::bits(8), compute }
        }
        ("fp8_e4m3" | "fp8_e5m2", _) if by_channel => Format::FP8_DYNAMIC,
        ("fp8_e4m3" | "fp8_e5m2", _) => Format::FP8,
        ("int8" | "uint8", _) => Format { name: "int8", width: scaled(8, 0), compute },
        ("int4", _) => Format { name: "int4", width: scaled(4, 0), compute },
        ("uint4", _) => Format { name: "int4", width: scaled(4, 4), compute },
        ("bfloat16" | "float16" | "float32", _) => return Ok(None),
        (other, _) => {
            let accepted = "fp4, fp6_e2m3, fp6_e3m2, fp8_e4m3, int8, int4 or uint4";
            return Err(keys.bad("weight.dtype", format!("{other:?}"), accepted));
        }
    }))
}

/// One of Quark's levels of a tensor, with its `dtype` in small letters.
struct Level<'a> {
    keys: Keys<'a>,
    dtype: String,
}

/// Levels of weights or inputs: an object, or a list of them; none if they stay in 16 bits.
fn quark_levels<'a>(keys: &Keys<'a>, key: &str) -> Result<Vec<Level<'a>>> {
    let Some(value) = keys.value(key) else { return Ok(Vec::new()) };
    let levels = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let objects: Option<Vec<Keys>> = levels.iter().map(|level| keys.within(level)).collect();
    let Some(objects) = objects.filter(|objects| !objects.is_empty()) else {
        return Err(keys.bad(key, brief(value), "an object with dtype, or a list of them"));
    };
    let level = |keys: Keys<'a>| {
        let dtype = keys.text("dtype")?.unwrap_or_default().to_ascii_lowercase();
        Ok(Level { keys, dtype })
    };
    objects.into_iter().map(level).collect()
}

/// AutoRound: one format, and others by module in `extra_config`.
fn auto_round(section: &Keys) -> Result<Section> {
    let mut read = Section { format: auto_round_format(section)?, ..Section::default() };
    for (pattern, module) in by_module(section, "extra_config")?.into_iter().flatten() {
        let is_regex = pattern.contains(['*', '^', '$', '(']);
        let pattern = if is_regex { format!("re:{pattern}") } else { pattern.clone() };
        // What a module does not state is the section's.
        read.name(&pattern, auto_round_format(&section.under(module))?);
    }
    Ok(read)
}

/// Format of AutoRound's `data_type`; its integers are stored as GPTQ's.
fn auto_round_format(keys: &Keys) -> Result<Option<Format>> {
    let bits = bits(keys, &["bits"])?.unwrap_or(4);
    let inputs = values::bits(keys, &["act_bits"])?.unwrap_or(16);
    let kind = keys.text("data_type")?.unwrap_or("int").to_ascii_lowercase();
    let compute = match inputs {
        4 => Some(Dtype::Fp4),
        8 => Some(Dtype::Fp8),
        _ => None,
    };
    Ok(match (kind.as_str(), bits) {
        (_, 16..) => None,
        (float, 4) if float.starts_with("nv_fp") && compute.is_none() => Some(NVFP4_WEIGHT_ONLY),
        (float, 4) if float.starts_with("nv_fp") => Some(Format { compute, ..Format::NVFP4 }),
        (float, 4) if float.starts_with("mx_fp") => Some(Format { compute, ..Format::MXFP4 }),
        (float, 8) if float.starts_with("mx_fp") => Some(Format { compute, ..MXFP8 }),
        (float, 8) if float.starts_with("fp") => match compute {
            Some(_) => Some(Format::FP8_DYNAMIC),
            None => Some(Format { name: "fp8-weight-only", width: Width::bits(8), compute }),
        },
        (int, _) if int.starts_with("int") => {
            Some(integer("gptq-int4", "gptq-int8", bits, group_size(keys, Some(GROUP))?, keys)?)
        }
        (other, _) => {
            return Err(keys.bad(
                "data_type",
                format!("{other:?} of {bits} bits"),
                "int, mx_fp, nv_fp or fp",
            ));
        }
    })
}

/// HQQ: bits and groups of `weight_quant_params`, for all linear layers.
fn hqq(section: &Keys) -> Result<Section> {
    let params = section.object("quant_config").and_then(|config| config.object("weight_quant_params"));
    let Some(params) = params else {
        let accepted = "an object with weight_quant_params for all layers";
        return Err(section.bad("quantization_config.quant_config", "missing or by layer", accepted));
    };
    Ok(Section::of(affine("nbits", &params)?))
}

/// FP-Quant: MXFP4 or NVFP4 of weights and activations; emulated, weights stay in 16 bits.
fn fp_quant(section: &Keys) -> Result<Section> {
    if section.flag("pseudoquantization", false)? {
        return Ok(Section::default());
    }
    match section.text("forward_dtype")?.unwrap_or("nvfp4") {
        "nvfp4" => Ok(Section::of(Format::NVFP4)),
        "mxfp4" => Ok(Section::of(Format::MXFP4.computing_in(Dtype::Fp4))),
        other => Err(section.bad("forward_dtype", format!("{other:?}"), "mxfp4, nvfp4")),
    }
}

/// torchao: the type of the config for all linear layers.
fn torchao(section: &Keys) -> Result<Section> {
    let accepted = "an object whose default names Int4WeightOnlyConfig, Int8WeightOnlyConfig, Float8WeightOnlyConfig, \
                    Int8DynamicActivationInt8WeightConfig, Int8DynamicActivationIntxWeightConfig or \
                    Float8DynamicActivationFloat8WeightConfig";
    let default = section.object("quant_type").and_then(|kinds| kinds.object("default"));
    let name = default.map(|kind| kind.text("_type")).transpose()?.flatten().unwrap_or("missing");
    let data = default.and_then(|kind| kind.object("_data")).unwrap_or(*section);
    Ok(Section::of(match name {
        "Int4WeightOnlyConfig" => affine("bits", &data)?,
        "Int8WeightOnlyConfig" => Format { name: "int8", width: Width::bits(8), compute: None },
        "Float8WeightOnlyConfig" => Format { name: "fp8-weight-only", width: Width::bits(8), compute: None },
        "Int8DynamicActivationInt8WeightConfig" => {
            Format { name: "int8", width: Width::bits(8), compute: Some(Dtype::Int8) }
        }
        "Float8DynamicActivationFloat8WeightConfig" => Format::FP8_DYNAMIC,
        other => return Err(section.bad("quant_type", format!("{other:?}"), accepted)),
    }))
}

/// MLX: embeddings as well, and other formats, or `false`, by module under the module's name.
fn mlx(section: &Keys) -> Result<Section> {
    let format = |keys: &Keys| -> Result<Format> {
        let size = group_size(keys, Some(64))?.unwrap_or(64);
        Ok(match (keys.text("mode")?.unwrap_or("affine"), bits(keys, &["bits"])?.unwrap_or(4)) {
            ("mxfp4", _) => Format { name: "mlx-mxfp4", ..Format::MXFP4 },
            ("nvfp4", _) => Format { name: "mlx-nvfp4", compute: None, ..Format::NVFP4 },
            ("mxfp8", _) => Format { name: "mlx-mxfp8", compute: None, ..MXFP8 },
            ("affine", bits @ 2..=8) => {
                let name =
                    ["mlx-2bit", "mlx-3bit", "mlx-4bit", "mlx-5bit", "mlx-6bit", "mlx-7bit", "mlx-8bit"];
                Format {
                    name: name[bits as usize - 2],
                    width: Width::grouped(bits as u32, 32, size),
                    compute: None,
                }
            }
            (mode, bits) => {
                return Err(keys.bad("bits", format!("{bits} in mode {mode:?}"), "2 to 8 in mode affine"));
            }
        })
    };
    let mut read = Section::of(format(section)?);
    for (name, value) in section.entries() {
        match value {
            Value::Bool(false) => read.name(name, None),
            Value::Object(_) => {
                if let Some(keys) = section.within(value) {
                    read.name(name, Some(format(&keys)?));
                }
            }
            _ => {}
        }
    }
    Ok(read)
}

/// GPTQModel's `dynamic`: regular expressions of modules, with `-:` left in 16 bits, else with bits and groups of their
/// own.
fn dynamic(method: &str, section: &Keys) -> Result<Section> {
    let mut read = Section { format: format_of(method, section)?, ..Section::default() };
    for (pattern, rule) in by_module(section, "dynamic")?.into_iter().flatten() {
        if let Some(kept) = pattern.strip_prefix("-:") {
            read.name(&format!("re:{kept}"), None);
            continue;
        }
        // What a rule does not state is the section's.
        let keys = section.under(rule);
        let bits = bits(&keys, &["bits"])?.unwrap_or(4);
        let format = integer("gptq-int4", "gptq-int8", bits, group_size(&keys, Some(GROUP))?, section)?;
        read.name(&format!("re:{}", pattern.strip_prefix("+:").unwrap_or(pattern)), Some(format));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::super::Quantization;
    use crate::model::tensor::{OperatorKind, Split, Tensor};
    use crate::precision::Format;

    fn read(json: &str) -> Option<Quantization> {
        let text = format!("{{\"quantization_config\": {json}}}");
        Quantization::read("config.json", &serde_json::from_str(&text).unwrap()).unwrap()
    }

    /// The bits of a query projection and of a down projection of layer 3; 0 for 16 bits.
    fn bits(json: &str) -> [f64; 2] {
        let Some(read) = read(json) else { return [0.0; 2] };
        ["self_attn.q_proj", "mlp.down_proj"].map(|name| {
            let tensor = Tensor::linear(name, OperatorKind::QkvProj, 1, 1, Split::Even);
            read.format(&tensor, Some(3)).map_or(0.0, |format| format.width.as_f64())
        })
    }

    /// Quark's 4-bit floats have 8 bits per 32 values; a layer's own format comes first, and `exclude` before it.
    #[test]
    fn quark_has_formats_by_layer() {
        let quark = |layers: &str, exclude: &str| {
            let all = r#"{"weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4"}}"#;
            bits(&format!(
                r#"{{"quant_method": "quark", "global_quant_config": {all}, "layer_quant_config": {layers}, "exclude": {exclude}}}"#
            ))
        };
        assert_eq!(quark("{}", r#"["lm_head"]"#), [4.25; 2]);
        let eight = r#"{"*self_attn*": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}}"#;
        assert_eq!(quark(eight, "[]"), [8.0, 4.25]);
        assert_eq!(quark(eight, r#"["re:.*self_attn.*"]"#), [0.0, 4.25]);
    }

    /// AutoRound's integers have 16 bits of scale and a zero point a group, as GPTQ's; -1 is a scale a row. GPTQModel's rules
    /// keep a module or give it bits of its own.
    #[test]
    fn modules_have_bits_of_their_own() {
        let auto = |more: &str| {
            bits(&format!(
                r#"{{"quant_method": "auto-round", "bits": 4, "group_size": 128, "data_type": "int"{more}}}"#
            ))
        };
        assert_eq!(auto(""), [4.0 + 20.0 / 128.0; 2]);
        assert_eq!(auto(r#", "extra_config": {".*self_attn.*": {"bits": 16}}"#), [0.0, 4.15625]);
        assert_eq!(
            auto(r#", "extra_config": {"model.layers.3.mlp.down_proj": {"bits": 8}}"#),
            [4.15625, 8.0 + 24.0 / 128.0]
        );
        let gptq = |more: &str| bits(&format!(r#"{{"quant_method": "gptq", "bits": 4{more}}}"#));
        assert_eq!(gptq(r#", "group_size": -1"#), [4.0; 2]);
        let rules = r#", "dynamic": {"-:.*self_attn.*": {}, "+:.*down_proj": {"bits": 8, "group_size": 64}}"#;
        assert_eq!(gptq(rules), [0.0, 8.0 + 24.0 / 64.0]);
    }

    /// HQQ, SINQ and torchao store a scale and a zero point of 16 bits a group; MLX's embeddings are quantized, too.
    #[test]
    fn each_tool_has_its_true_bits() {
        let groups = r#"{"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}"#;
        assert_eq!(bits(groups), [4.5; 2]);
        assert_eq!(bits(r#"{"quant_method": "sinq", "nbits": 3, "group_size": 128}"#), [3.25; 2]);
        let ao = |kind: &str| {
            bits(&format!(r#"{{"quant_method": "torchao", "quant_type": {{"default": {kind}}}}}"#))
        };
        assert_eq!(ao(r#"{"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}"#), [4.25; 2]);
        assert_eq!(ao(r#"{"_type": "Float8DynamicActivationFloat8WeightConfig"}"#), [8.0; 2]);
        let fp =
            |more: &str| bits(&format!(r#"{{"quant_method": "fp_quant", "forward_dtype": "mxfp4"{more}}}"#));
        assert_eq!([fp(""), fp(r#", "pseudoquantization": true"#)], [[4.25; 2], [0.0; 2]]);
        let mlx =
            r#"{"group_size": 64, "bits": 4, "model.layers.3.mlp.down_proj": {"group_size": 64, "bits": 8}}"#;
        assert_eq!(bits(mlx), [4.5, 8.5]);
        assert!(read(mlx).unwrap().format.covers_ends());
        let nested = r#"{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}"#;
        assert_eq!(bits(nested), [4.5; 2]);
    }

    /// 2:4 sparsity by compressed-tensors' section and by a method's name; a dense section next to a format is read.
    #[test]
    fn sparse_weights_are_refused_with_their_reason() {
        let refused = |json: &str| {
            let text = format!("{{\"quantization_config\": {json}}}");
            let config = serde_json::from_str(&text).unwrap();
            Quantization::read("config.json", &config).unwrap_err().to_string()
        };
        for json in [
            r#"{"quant_method": "compressed-tensors", "sparsity_config": {"format": "dense", "sparsity_structure": "2:4"}}"#,
            r#"{"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}}"#,
            r#"{"quant_method": "gptq_marlin_24", "bits": 4}"#,
        ] {
            let error = refused(json);
            assert!(error.contains("2:4 sparsity"), "{error}");
        }
        let dense =
            r#"{"quant_method": "fp8", "sparsity_config": {"format": "dense", "sparsity_structure": "0:0"}}"#;
        assert_eq!(read(dense).unwrap().format, Format::FP8);
    }
}
