//! Formats that `quantization_config` names: methods, algorithms and groups, with their true bits.
//!
//! Knows: names of Hugging Face, ModelOpt and compressed-tensors. Knows nothing about which modules have a format.

use super::values::{bits, by_module, group_size};
use crate::error::Result;
use crate::model::keys::{Keys, brief};
use crate::precision::{Dtype, Format, KvFormat, SEMI_STRUCTURED, Width, is_semi_structured};
use serde_json::Value;

/// OCP microscaling 8-bit floats: an 8-bit exponent per 32 values.
pub(super) const MXFP8: Format =
    Format { name: "mxfp8", width: Width::grouped(8, 8, 32), compute: Some(Dtype::Fp8) };
/// OCP microscaling 6-bit floats.
pub(super) const MXFP6: Format = Format { name: "mxfp6", width: Width::grouped(6, 8, 32), compute: None };
/// Names of integers by their bits, which compressed-tensors packs without gaps (`pack_to_int32` of 0.20).
const NARROW: [&str; 8] = ["", "", "int2", "int3", "int4", "int5", "int6", "int7"];
/// NVFP4 weights with 16-bit activations.
pub(super) const NVFP4_WEIGHT_ONLY: Format =
    Format { name: "nvfp4-weight-only", compute: None, ..Format::NVFP4 };

/// Format of the experts: DeepSeek-V4's `expert_dtype`, or `store_dtype` in MiMo-V2.6's section: 4-bit floats with an
/// 8-bit exponent per 32 values, computed with fp8 activations.
pub(super) fn expert_format(keys: &Keys, section: &Keys) -> Result<Option<Format>> {
    let named = keys.text("expert_dtype")?.or(section.text("store_dtype")?);
    match named {
        Some("fp4" | "mxfp4") => Ok(Some(Format::MXFP4.computing_in(Dtype::Fp8))),
        Some("fp8") | None => Ok(None),
        Some(other) => Err(keys.bad("expert_dtype", format!("{other:?}"), "fp4, mxfp4, fp8")),
    }
}

/// Values that share a scale of GPTQ and AWQ, if the section does not say.
pub(super) const GROUP: u32 = 128;

/// Storage format of a quantization method; `None` for methods that keep weights in 16 bits.
pub(super) fn format_of(method: &str, section: &Keys) -> Result<Option<Format>> {
    let bits = bits(section, &["bits", "w_bit"])?.unwrap_or(4);
    let group = || group_size(section, Some(GROUP));
    Ok(Some(match method.to_ascii_lowercase().as_str() {
        "fp8" => match section.value("weight_block_size") {
            Some(_) => Format::FP8_BLOCK,
            None => Format::FP8,
        },
        // FBGEMM has a scale per row of weights and of activations.
        "fbgemm_fp8" => Format::FP8_DYNAMIC,
        "gptq" | "gptq_marlin" => integer("gptq-int4", "gptq-int8", bits, group()?, section)?,
        "awq" | "awq_marlin" => integer("awq-int4", "awq-int8", bits, group()?, section)?,
        "mxfp4" => Format::MXFP4,
        "nvfp4" => Format::NVFP4,
        "bitsandbytes" if section.flag("load_in_8bit", false)? => Format::BNB_INT8,
        "bitsandbytes" if section.flag("bnb_4bit_use_double_quant", false)? => Format::NF4_DOUBLE,
        "bitsandbytes" => Format::NF4,
        "compressed-tensors" | "modelopt" | "fp8_pb_wo" => return groups(section),
        other => return modelopt(other, section),
    }))
}

/// Integers of `bits` bits with an fp16 scale and a zero point of `bits` bits for each `group` of values; those of rows are
/// not counted.
pub(super) fn integer(
    four: &'static str,
    eight: &'static str,
    bits: u64,
    group: Option<u32>,
    section: &Keys,
) -> Result<Format> {
    let name = match bits {
        4 => four,
        8 => eight,
        2 | 3 | 5 | 6 | 7 => "int-low",
        _ => return Err(section.bad("quantization_config.bits", bits, "2 to 8")),
    };
    let bits = bits as u32;
    let width = group.map_or(Width::bits(bits), |group| Width::grouped(bits, 16 + bits, group));
    Ok(Format { name, width, compute: None })
}

/// Format of one of NVIDIA ModelOpt's algorithms, by name.
pub(super) fn modelopt(name: &str, section: &Keys) -> Result<Option<Format>> {
    Ok(Some(match name.to_ascii_uppercase().as_str() {
        "FP8" => Format::FP8,
        "FP8_PER_CHANNEL_PER_TOKEN" => Format::FP8_DYNAMIC,
        "FP8_PB_WO" | "FP8_BLOCK_SCALES" => Format::FP8_BLOCK,
        "MXFP8" => MXFP8,
        "NVFP4" | "NVFP4_AWQ" => Format::NVFP4,
        "W4A16_NVFP4" => NVFP4_WEIGHT_ONLY,
        "W4A8_NVFP4_FP8" => Format::NVFP4.computing_in(Dtype::Fp8),
        "MXFP4" | "W4A16_MXFP4" => Format::MXFP4,
        "W4A16_AWQ" | "INT4_AWQ" => Format::AWQ_INT4,
        _ if is_semi_structured(name) => {
            return Err(section.bad("quant_method", format!("{name:?}"), SEMI_STRUCTURED));
        }
        _ => {
            return Err(section.bad(
                "quant_method",
                format!("{name:?}"),
                "fp8, gptq, awq, bitsandbytes, compressed-tensors, mxfp4, nvfp4, modelopt and its algorithms, quark, \
                 auto-round, hqq, fp_quant, sinq, torchao",
            ));
        }
    }))
}

/// Format of the weights in the first group of compressed-tensors' `config_groups`.
fn groups(section: &Keys) -> Result<Option<Format>> {
    let Some(groups) = by_module(section, "config_groups")? else {
        return match section.text("quant_algo")? {
            Some(name) => modelopt(name, section),
            None => Err(section.bad(
                "quantization_config.config_groups",
                "missing",
                "an object of groups, or quant_method",
            )),
        };
    };
    match groups.values().next() {
        Some(group) => group_format(section, group).map(Some),
        None => Ok(None),
    }
}

/// Format of the weights in one of compressed-tensors' groups.
pub(super) fn group_format(section: &Keys, group: &Value) -> Result<Format> {
    let weights = &group["weights"];
    let bits = weights["num_bits"].as_u64();
    let float = weights["type"].as_str() == Some("float");
    let size = section.within(weights).map_or(Ok(None), |weights| group_size(&weights, None))?;
    let symmetric = weights["symmetric"].as_bool().unwrap_or(true);
    let inputs = group.get("input_activations").filter(|inputs| !inputs.is_null());
    let activations = inputs.is_some();
    let zero = |bits: u64| if symmetric { 0 } else { bits as u32 };
    // Scales of groups; without groups a scale a row, which is not counted.
    let scaled = |width: u32, zero: u32| match size {
        Some(group) => Width::grouped(width, 16 + zero, group),
        None => Width::bits(width),
    };
    Ok(match (bits, float, size) {
        (Some(8), true, Some(32)) if activations => MXFP8,
        (Some(8), true, Some(32)) => Format { compute: None, ..MXFP8 },
        (Some(8), true, _) if activations => match weights["strategy"].as_str() {
            Some("channel") => Format::FP8_DYNAMIC,
            Some("block") => Format::FP8_BLOCK,
            _ => Format::FP8,
        },
        (Some(8), true, _) => Format { name: "fp8-weight-only", width: Width::bits(8), compute: None },
        (Some(6), true, Some(32)) => Format { compute: inputs.and_then(computed), ..MXFP6 },
        (Some(4), true, Some(16)) if activations => Format::NVFP4,
        (Some(4), true, Some(16)) => NVFP4_WEIGHT_ONLY,
        (Some(4), true, _) => Format::MXFP4,
        (Some(8), false, _) if activations => {
            Format { name: "int8", width: Width::bits(8), compute: Some(Dtype::Int8) }
        }
        (Some(8), false, _) => Format { name: "int8", width: scaled(8, zero(8)), compute: None },
        // A file that does not pack its weights has a byte for each.
        (Some(bits @ 2..=7), false, _) if activations && !is_packed(section, group) => Format {
            name: NARROW[bits as usize],
            width: scaled(8, zero(bits)),
            compute: inputs.and_then(computed),
        },
        (Some(4), false, size) => Format {
            name: "int4",
            width: Width::grouped(4, 16 + zero(4), size.unwrap_or(128)),
            compute: inputs.and_then(computed),
        },
        (Some(bits @ (2 | 3 | 5 | 6 | 7)), false, _) => {
            Format { name: NARROW[bits as usize], width: scaled(bits as u32, zero(bits)), compute: None }
        }
        _ => {
            return Err(section.bad(
                "quantization_config.config_groups",
                brief(weights),
                "weights of 2 to 8 bits as integers, of 4, 6 (groups of 32) or 8 bits as floats",
            ));
        }
    })
}

/// Dtype of products by the format of their inputs.
fn computed(inputs: &Value) -> Option<Dtype> {
    match (inputs["num_bits"].as_u64(), inputs["type"].as_str()) {
        (Some(8), Some("float")) => Some(Dtype::Fp8),
        (Some(8), _) => Some(Dtype::Int8),
        (Some(4), Some("int") | None) => Some(Dtype::Int4),
        _ => None,
    }
}

/// True if the file packs weights of fewer than 8 bits, as `format` of the group or of the section says.
fn is_packed(section: &Keys, group: &Value) -> bool {
    let named = group.get("format").or_else(|| section.value("format")).and_then(Value::as_str);
    named == Some("pack-quantized")
}

/// KV-cache format of a `kv_cache_scheme` or `kv_cache_quant_algo`; `None` if the checkpoint leaves the choice to the
/// engine, as a checkpoint with NVFP4 weights alone does (`get_kv_cache_quant_algo_string` of `utils/torch_utils.py`
/// in vLLM 0.14 to 0.32, NVFP4 from 0.20).
pub(super) fn kv_of(value: Option<&Value>) -> Option<KvFormat> {
    let bits = match value? {
        Value::String(s) => match s.to_ascii_uppercase().as_str() {
            s if s.contains("FP8") || s.contains("INT8") => 8,
            s if s.contains("NVFP4") => 4,
            _ => return None,
        },
        Value::Object(o) => o.get("num_bits").and_then(Value::as_u64)?,
        _ => return None,
    };
    match bits {
        8 => Some(KvFormat::FP8),
        4 => Some(KvFormat::NVFP4),
        _ => None,
    }
}
