//! Number formats: the width of a stored weight or KV element, and the dtype of the arithmetic.
//!
//! Knows: names of formats, their true bits per value with scales and zero points, and the dtype whose peak rate
//! applies. Knows nothing about models or chips: [`crate::model::quantization`] knows which tensors a format covers.

mod gguf;

pub use gguf::GgufMix;
pub use gguf::GgufTensor;

use crate::error::{Error, Result};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Dtype in which a chip computes; each has its own dense peak rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE single precision.
    Fp32,
    /// NVIDIA's 19-bit TF32.
    Tf32,
    /// IEEE half precision.
    Fp16,
    /// bfloat16.
    Bf16,
    /// 8-bit floats, e4m3 or e5m2.
    Fp8,
    /// 8-bit integers.
    Int8,
    /// 6-bit floats.
    Fp6,
    /// 4-bit floats (e2m1).
    Fp4,
    /// 4-bit integers.
    Int4,
}

crate::named! { Dtype {
    Fp32: "fp32",
    Tf32: "tf32",
    Fp16: "fp16",
    Bf16: "bf16",
    Fp8: "fp8",
    Int8: "int8",
    Fp6: "fp6",
    Fp4: "fp4",
    Int4: "int4",
} }

impl Dtype {
    /// Bits of one value without scales.
    pub fn bits(self) -> u32 {
        match self {
            Dtype::Fp32 | Dtype::Tf32 => 32,
            Dtype::Fp16 | Dtype::Bf16 => 16,
            Dtype::Fp8 | Dtype::Int8 => 8,
            Dtype::Fp6 => 6,
            Dtype::Fp4 | Dtype::Int4 => 4,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Width of a value in units of 1/65536 bit, so that 4.15625 bits (GPTQ with groups of 128) and 8 + 32/16384 bits
/// (fp8 blocks) are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Width(u32);

impl Width {
    const UNIT: u32 = 65_536;

    /// Creates a width of whole bits.
    pub(crate) const fn bits(bits: u32) -> Width {
        Width(bits * Width::UNIT)
    }

    /// Creates a width of `bits` per value plus `overhead` bits shared by a group of `group` values.
    pub(crate) const fn grouped(bits: u32, overhead: u32, group: u32) -> Width {
        Width(bits * Width::UNIT + overhead * Width::UNIT / group)
    }

    /// Mean width of values that take `bytes` together; 0 for none.
    pub(crate) fn mean(bytes: Bytes, elements: u64) -> Width {
        let units = u128::from(bytes.0) * 8 * u128::from(Width::UNIT) / u128::from(elements.max(1));
        Width(u32::try_from(units).unwrap_or(u32::MAX))
    }

    /// The width in bits as a float.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Width::UNIT)
    }

    /// Bytes of `elements` values, rounded up to a whole byte.
    pub fn bytes(self, elements: u128) -> Bytes {
        let bits = elements.saturating_mul(u128::from(self.0)).div_ceil(u128::from(Width::UNIT) * 8);
        Bytes(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

/// Storage and compute format of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Name of the format in flags: `bf16`, `fp8`, `gptq-int4`, `q6_k`, …
    pub name: &'static str,
    /// Stored bits per weight, scales and zero points included.
    pub width: Width,
    /// Dtype of the arithmetic; `None` for weight-only formats, which compute in the 16-bit dtype of activations.
    pub compute: Option<Dtype>,
}

impl Format {
    const fn new(name: &'static str, width: Width, compute: Option<Dtype>) -> Format {
        Format { name, width, compute }
    }

    /// bfloat16, computed in bf16, or in fp16 on a chip without bf16.
    pub const BF16: Format = Format::new("bf16", Width::bits(16), None);
    /// IEEE half precision.
    pub const FP16: Format = Format::new("fp16", Width::bits(16), None);
    /// IEEE single precision, in storage and arithmetic.
    pub const FP32: Format = Format::new("fp32", Width::bits(32), Some(Dtype::Fp32));
    /// 8-bit floats with one scale per tensor, as ModelOpt writes them and `--quantization fp8` converts to.
    pub const FP8: Format = Format::new("fp8", Width::bits(8), Some(Dtype::Fp8));
    /// 8-bit floats with a scale per output channel, whose bytes are below 0.1 % and not counted, and a scale per token of
    /// activations, as compressed-tensors' FP8_DYNAMIC has them.
    pub const FP8_DYNAMIC: Format = Format::new("fp8-dynamic", Width::bits(8), Some(Dtype::Fp8));
    /// 8-bit floats with an fp32 scale per 128 × 128 block (DeepSeek-V3).
    pub const FP8_BLOCK: Format = Format::new("fp8-block", Width::grouped(8, 32, 16_384), Some(Dtype::Fp8));
    /// NVIDIA's 4-bit floats with an fp8 scale per 16 values.
    pub const NVFP4: Format = Format::new("nvfp4", Width::grouped(4, 8, 16), Some(Dtype::Fp4));
    /// OCP microscaling 4-bit floats with an 8-bit exponent per 32 values; weight-only, as in gpt-oss.
    pub const MXFP4: Format = Format::new("mxfp4", Width::grouped(4, 8, 32), None);
    /// GPTQ with 4 bits and groups of 128, each with an fp16 scale and a 4-bit zero point.
    pub const GPTQ_INT4: Format = Format::new("gptq-int4", Width::grouped(4, 20, 128), None);
    /// AWQ with 4 bits and groups of 128, each with an fp16 scale and a 4-bit zero point.
    pub(crate) const AWQ_INT4: Format = Format::new("awq-int4", Width::grouped(4, 20, 128), None);

    /// Compressed-tensors' w4a16: symmetric 4 bits with groups of 128, each with a 16-bit scale.
    pub(crate) const W4A16: Format = Format::new("w4a16", Width::grouped(4, 16, 128), None);
    /// bitsandbytes' 4 bits with an fp32 absmax per 64 values.
    pub(crate) const NF4: Format = Format::new("nf4", Width::grouped(4, 32, 64), None);
    /// bitsandbytes' 4 bits with double quantization: an 8-bit scale per 64 values, and 32 bits per 256 scales.
    pub(crate) const NF4_DOUBLE: Format =
        Format::new("bnb-4bit", Width::grouped(4, 256 * 8 + 32, 256 * 64), None);

    /// bitsandbytes' LLM.int8(): 8 bits with a scale per output row, which is not counted.
    pub(crate) const BNB_INT8: Format = Format::new("bnb-int8", Width::bits(8), None);

    /// Returns the format with unchanged storage and with arithmetic in `dtype`.
    pub fn computing_in(self, dtype: Dtype) -> Format {
        Format { compute: Some(dtype), ..self }
    }

    /// Returns the format with unchanged storage and with arithmetic in the 16-bit dtype of activations.
    pub(crate) fn weight_only(self) -> Format {
        Format { compute: None, ..self }
    }

    /// True if embedding and lm_head are quantized, too, as in MLX (`nn.quantize` in its
    /// `python/mlx/nn/layers/quantized.py` quantizes every module that has `to_quantized`).
    pub fn covers_ends(self) -> bool {
        self.name.starts_with("mlx-")
    }
}

/// Formats that `--weights` accepts by name, each for all linear layers.
///
/// Sources of widths: double quantization as in QLoRA (arXiv 2305.14314, section 3); MLX has a 16-bit scale and bias
/// per 64 values (`mlx.core.quantize`); GGUF block layouts as in llama.cpp's `ggml-common.h` (q4_0: 18 bytes per 32
/// values, q6_K: 210 bytes per 256 values, …); ExLlama states bits per weight including scales.
const FORMATS: &[Format] = &[
    Format::BF16,
    Format::FP16,
    Format::FP32,
    Format::FP8,
    Format::FP8_DYNAMIC,
    Format::FP8_BLOCK,
    Format::NVFP4,
    Format::MXFP4,
    Format::GPTQ_INT4,
    Format::AWQ_INT4,
    Format::new("gptq-int8", Width::grouped(8, 24, 128), None),
    Format::new("w8", Width::bits(8), None),
    Format::new("w4", Width::bits(4), None),
    Format::new("int8", Width::bits(8), None),
    Format::new("int4", Width::bits(4), None),
    Format::new("mxfp8", Width::grouped(8, 8, 32), Some(Dtype::Fp8)),
    Format::W4A16,
    Format::NF4,
    Format::NF4_DOUBLE,
    Format::BNB_INT8,
    Format::new("mlx-3bit", Width::grouped(3, 32, 64), None),
    Format::new("mlx-4bit", Width::grouped(4, 32, 64), None),
    Format::new("mlx-5bit", Width::grouped(5, 32, 64), None),
    Format::new("mlx-6bit", Width::grouped(6, 32, 64), None),
    Format::new("mlx-8bit", Width::grouped(8, 32, 64), None),
    Format::new("exl-2bpw", Width::bits(2), None),
    Format::new("exl-2.5bpw", Width::grouped(2, 1, 2), None),
    Format::new("exl-3bpw", Width::bits(3), None),
    Format::new("exl-3.5bpw", Width::grouped(3, 1, 2), None),
    Format::new("exl-4bpw", Width::bits(4), None),
    Format::new("exl-4.25bpw", Width::grouped(4, 1, 4), None),
    Format::new("exl-4.5bpw", Width::grouped(4, 1, 2), None),
    Format::new("exl-5bpw", Width::bits(5), None),
    Format::new("exl-6bpw", Width::bits(6), None),
    Format::new("exl-6.5bpw", Width::grouped(6, 1, 2), None),
    Format::new("exl-8bpw", Width::bits(8), None),
];

/// Reason for which weights with 2:4 sparsity are refused.
pub(crate) const SEMI_STRUCTURED: &str = "a dense format: 2:4 sparsity (half of the values, with 2 bits for the place of \
    each) is not forecast; no time of its kernels is known, and its rates are not those of a data sheet's sparse column";

/// True if the name of a format or a method means 2:4 sparsity: `2:4`, `2of4`, `sparse-24-bitmask`, `gptq_marlin_24`.
pub(crate) fn is_semi_structured(name: &str) -> bool {
    let lower = name.to_ascii_lowercase().replace(['_', '-'], "");
    ["2:4", "2of4", "sparse24", "marlin24", "semistructured"].iter().any(|word| lower.contains(word))
}

/// Weight format of a whole model, as a user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// One format for every linear layer; norms and router stay in 16 bits, and so do embedding and lm_head except in
    /// MLX.
    Uniform(Format),
    /// One of llama.cpp's mixtures, which also cover the embedding and lm_head.
    Gguf(GgufMix),
}

impl WeightFormat {
    /// Name of the format as the user wrote it.
    pub fn name(self) -> &'static str {
        match self {
            WeightFormat::Uniform(format) => format.name,
            WeightFormat::Gguf(mix) => mix.name(),
        }
    }

    /// Names of all accepted weight formats.
    pub fn names() -> Vec<&'static str> {
        FORMATS.iter().map(|f| f.name).chain(GgufMix::ALL.iter().map(|m| m.name())).collect()
    }
}

impl FromStr for WeightFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<WeightFormat> {
        let lower = name.trim().to_ascii_lowercase();
        let wanted = match lower.as_str() {
            "16" | "w16" | "bfloat16" => "bf16",
            "float16" | "f16" | "half" => "fp16",
            "32" | "float32" | "f32" => "fp32",
            "8" => "w8",
            "4" => "w4",
            "gptq" => "gptq-int4",
            "awq" => "awq-int4",
            "fp8_dynamic" | "fp8-channel" | "fp8-token" => "fp8-dynamic",
            "fp8_block" => "fp8-block",
            "bitsandbytes" | "bnb" | "load_in_4bit" => "nf4",
            "bnb-8bit" | "bitsandbytes-int8" | "bitsandbytes-8bit" | "llm.int8" | "llm-int8"
            | "load_in_8bit" => "bnb-int8",
            other => other,
        };
        if is_semi_structured(wanted) {
            return Err(Error::field("precision", "weights", format!("{name:?}"), SEMI_STRUCTURED));
        }
        if let Some(format) = FORMATS.iter().find(|f| f.name == wanted) {
            return Ok(WeightFormat::Uniform(*format));
        }
        GgufMix::ALL.iter().find(|m| m.name() == wanted).map(|m| WeightFormat::Gguf(*m)).ok_or_else(|| {
            Error::field("precision", "weights", format!("{name:?}"), WeightFormat::names().join(", "))
        })
    }
}

/// Storage format of KV-cache elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvFormat {
    /// Name of the format in flags and reports.
    pub name: &'static str,
    /// Bits per element, scales included.
    pub width: Width,
}

impl KvFormat {
    /// Names of all accepted KV formats.
    pub fn names() -> Vec<&'static str> {
        ["auto", "16", "8", "4"].into_iter().chain(KvFormat::ALL.iter().map(|f| f.name)).collect()
    }

    /// 16-bit elements.
    pub const BF16: KvFormat = KvFormat { name: "bf16", width: Width::bits(16) };
    /// 8-bit elements; the bytes of per-tensor scales are negligible.
    pub const FP8: KvFormat = KvFormat { name: "fp8", width: Width::bits(8) };

    /// 4-bit floats with an 8-bit scale per 16 elements.
    pub(crate) const NVFP4: KvFormat = KvFormat { name: "nvfp4", width: Width::grouped(4, 8, 16) };

    /// IEEE half precision.
    pub(crate) const FP16: KvFormat = KvFormat { name: "fp16", width: Width::bits(16) };
    /// IEEE single precision.
    pub(crate) const FP32: KvFormat = KvFormat { name: "fp32", width: Width::bits(32) };

    const ALL: &[KvFormat] = &[
        KvFormat::BF16,
        KvFormat::FP16,
        KvFormat::FP8,
        KvFormat { name: "int8", width: Width::bits(8) },
        KvFormat { name: "int4", width: Width::bits(4) },
        KvFormat::FP32,
        KvFormat::NVFP4,
        KvFormat { name: "q8_0", width: Width::grouped(8, 16, 32) },
        KvFormat { name: "q5_1", width: Width::grouped(5, 32, 32) },
        KvFormat { name: "q5_0", width: Width::grouped(5, 16, 32) },
        KvFormat { name: "q4_1", width: Width::grouped(4, 32, 32) },
        KvFormat { name: "q4_0", width: Width::grouped(4, 16, 32) },
        KvFormat { name: "iq4_nl", width: Width::grouped(4, 16, 32) },
    ];
}

impl FromStr for KvFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<KvFormat> {
        let lower = name.trim().to_ascii_lowercase();
        let wanted = match lower.as_str() {
            "16" | "bfloat16" => "bf16",
            "float16" | "f16" => "fp16",
            "8" => "int8",
            "4" => "int4",
            "fp8_e4m3" | "fp8_e5m2" => "fp8",
            "32" | "float32" | "f32" => "fp32",
            other => other,
        };
        let known = KvFormat::ALL.iter().find(|f| f.name == wanted).copied();
        known
            .ok_or_else(|| Error::field("precision", "kv", format!("{name:?}"), KvFormat::names().join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of bitsandbytes' formats, and 2:4 sparsity, which is refused with its reason.
    #[test]
    fn names_of_libraries_are_read_or_refused() {
        for name in ["bnb-int8", "bitsandbytes-int8", "LLM.int8", "bnb-8bit"] {
            assert_eq!(name.parse(), Ok(WeightFormat::Uniform(Format::BNB_INT8)), "{name}");
        }
        assert_eq!("bitsandbytes".parse(), Ok(WeightFormat::Uniform(Format::NF4)));
        for name in ["2:4", "fp8-2of4", "sparse24", "gptq_marlin_24"] {
            let error = name.parse::<WeightFormat>().unwrap_err().to_string();
            assert!(error.contains("2:4 sparsity") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn widths_count_scales_and_zeros() {
        // GPTQ with groups of 128: 4 + (16 + 4)/128 = 4.15625 bits; nvfp4: 4 + 8/16; q8_0: 34 bytes per 32 values =
        // 8.5 bits.
        assert_eq!(Format::GPTQ_INT4.width.as_f64(), 4.15625);
        assert_eq!(Format::NVFP4.width.as_f64(), 4.5);
        assert_eq!(Format::FP8_BLOCK.width.as_f64(), 8.0 + 32.0 / 16384.0);
        // w4a16: 4 + 16/128 bits; double quantization: 4 + 8/64 + 32/(64 * 256) = 4.126953125 bits.
        assert_eq!(Format::W4A16.width.as_f64(), 4.125);
        assert_eq!(Format::NF4_DOUBLE.width.as_f64(), 4.126953125);
        // 1000 values of 4.15625 bits = 4156.25 bits = 519.53 -> 520 bytes.
        assert_eq!(Format::GPTQ_INT4.width.bytes(1000), Bytes(520));
    }

    #[test]
    fn names_round_trip_and_unknown_ones_list_what_is_accepted() {
        for name in WeightFormat::names() {
            assert_eq!(name.parse::<WeightFormat>().unwrap().name(), name);
        }
        let message = "w5".parse::<WeightFormat>().unwrap_err().to_string();
        assert!(message.contains("w5") && message.contains("gptq-int4"), "{message}");
        assert_eq!("8".parse::<KvFormat>().unwrap().width, Width::bits(8));
    }
}
