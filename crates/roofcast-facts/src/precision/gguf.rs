//! llama.cpp's quantization mixtures: the block type of each tensor of a GGUF file.
//!
//! Knows: the block types, and the layers in which a mixture uses a wider one. Knows nothing about files.
//!
//! Source: `llama_tensor_get_type` in llama.cpp's `src/llama-quant.cpp` and the block structs of
//! `ggml/src/ggml-common.h` (read as of build b3000 to b5000; `MXFP4_MOE` of b11434). Not modelled: special cases for
//! 70B models and for eight experts, which move a few tensors by one step.

use super::{Format, Width};

const Q2_K: Format = Format::new("q2_k", Width::grouped(0, 84 * 8, 256), None);
const Q3_K: Format = Format::new("q3_k", Width::grouped(0, 110 * 8, 256), None);
const Q4_0: Format = Format::new("q4_0", Width::grouped(4, 16, 32), None);
const Q4_K: Format = Format::new("q4_k", Width::grouped(0, 144 * 8, 256), None);
const Q5_0: Format = Format::new("q5_0", Width::grouped(5, 16, 32), None);
const Q5_1: Format = Format::new("q5_1", Width::grouped(5, 32, 32), None);
const Q5_K: Format = Format::new("q5_k", Width::grouped(0, 176 * 8, 256), None);
const Q6_K: Format = Format::new("q6_k", Width::grouped(0, 210 * 8, 256), None);
const Q8_0: Format = Format::new("q8_0", Width::grouped(8, 16, 32), None);

/// llama.cpp's file type, which mixes block types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GgufMix {
    /// q8_0 throughout: 8.5 bits.
    Q8_0,
    /// Experts in MXFP4 and all other matrices in q8_0, as in gpt-oss's files.
    Mxfp4Moe,
    /// q6_k throughout: 6.5625 bits.
    Q6K,
    /// q5_k, with half of attn_v and ffn_down in q6_k.
    Q5KM,
    /// q5_0 (5.5 bits), with the output in q6_k.
    Q5_0,
    /// q4_k, with half of attn_v and ffn_down in q6_k.
    Q4KM,
    /// q4_0 (4.5 bits), with the output in q6_k.
    Q4_0,
    /// q3_k, with attention values and outputs in q4_k or q5_k.
    Q3KM,
    /// q2_k, with attention values, outputs and ffn_down in q3_k or q4_k.
    Q2K,
}

/// Kinds of tensors that the mixtures distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GgufTensor {
    /// The token embedding.
    Embedding,
    /// lm_head.
    Output,
    /// Value projection of attention.
    AttentionValue,
    /// Output projection of attention.
    AttentionOutput,
    /// Down projection of a dense MLP.
    FfnDown,
    /// Down projection of routed experts.
    ExpertDown,
    /// Any other matrix of routed experts.
    Expert,
    /// Any other matrix.
    Other,
}

// Widest first.
crate::named! { GgufMix {
    Q8_0: "q8_0",
    Mxfp4Moe: "mxfp4_moe",
    Q6K: "q6_k",
    Q5KM: "q5_k_m",
    Q5_0: "q5_0",
    Q4KM: "q4_k_m",
    Q4_0: "q4_0",
    Q3KM: "q3_k_m",
    Q2K: "q2_k",
} }

impl GgufMix {
    /// Format of one matrix with `columns` inputs in layer `layer` of `layers`.
    pub fn format(self, tensor: GgufTensor, layer: usize, layers: usize, columns: u64, tied: bool) -> Format {
        let format = match tensor {
            GgufTensor::Output => self.output(),
            GgufTensor::Embedding if tied => self.output(),
            GgufTensor::Embedding => self.base(),
            _ => self.inner(tensor, layer, layers),
        };
        fitting(format, columns)
    }

    /// Format of most tensors of the mixture.
    pub(crate) fn base(self) -> Format {
        match self {
            GgufMix::Q8_0 | GgufMix::Mxfp4Moe => Q8_0,
            GgufMix::Q6K => Q6_K,
            GgufMix::Q5KM => Q5_K,
            GgufMix::Q5_0 => Q5_0,
            GgufMix::Q4KM => Q4_K,
            GgufMix::Q4_0 => Q4_0,
            GgufMix::Q3KM => Q3_K,
            GgufMix::Q2K => Q2_K,
        }
    }

    fn output(self) -> Format {
        if self.base() == Q8_0 { Q8_0 } else { Q6_K }
    }

    fn inner(self, tensor: GgufTensor, layer: usize, layers: usize) -> Format {
        use GgufTensor::{AttentionOutput, AttentionValue, Expert, ExpertDown, FfnDown};
        if self == GgufMix::Mxfp4Moe {
            return if matches!(tensor, Expert | ExpertDown) { Format::MXFP4 } else { Q8_0 };
        }
        let tensor = if tensor == ExpertDown { FfnDown } else { tensor };
        // The first and last eighth of the layers, and every third layer in between, get more bits.
        let eighth = layers / 8;
        let more = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
        match (self, tensor) {
            (GgufMix::Q4KM | GgufMix::Q5KM, AttentionValue | FfnDown) if more => Q6_K,
            (GgufMix::Q3KM, AttentionValue) => {
                if layer < 2 {
                    Q5_K
                } else {
                    Q4_K
                }
            }
            (GgufMix::Q3KM, AttentionOutput) => Q4_K,
            (GgufMix::Q3KM, FfnDown) if layer < layers / 16 => Q5_K,
            (GgufMix::Q3KM, FfnDown) if more => Q4_K,
            (GgufMix::Q2K, AttentionValue | AttentionOutput | FfnDown) => Q3_K,
            _ => self.base(),
        }
    }
}

/// Format with blocks that fit a row: super-blocks hold 256 values, and rows whose length is not a multiple of 256
/// get a type with blocks of 32.
fn fitting(format: Format, columns: u64) -> Format {
    if columns.is_multiple_of(256) {
        return format;
    }
    match format.name {
        "q2_k" | "q3_k" => Q4_0,
        "q4_k" => Q5_0,
        "q5_k" => Q5_1,
        "q6_k" => Q8_0,
        _ => format,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_k_m_gives_half_of_the_value_projections_six_bits() {
        // With 32 layers: 0-3 and 28-31, then every third of 4..28 (6, 9, …, 27): 8 + 8 = 16 layers.
        let wide = (0..32)
            .filter(|&l| GgufMix::Q4KM.format(GgufTensor::AttentionValue, l, 32, 4096, false).name == "q6_k")
            .count();
        assert_eq!(wide, 16);
    }

    #[test]
    fn mxfp4_moe_is_eight_bits_outside_of_the_experts() {
        let name = |tensor| GgufMix::Mxfp4Moe.format(tensor, 0, 24, 2880, false).name;
        assert_eq!((name(GgufTensor::Expert), name(GgufTensor::ExpertDown)), ("mxfp4", "mxfp4"));
        for tensor in [GgufTensor::Output, GgufTensor::Embedding, GgufTensor::Other, GgufTensor::FfnDown] {
            assert_eq!(name(tensor), "q8_0", "{tensor:?}");
        }
        let wide = |tensor| GgufMix::Q4KM.format(tensor, 0, 32, 4096, false).name;
        assert_eq!((wide(GgufTensor::ExpertDown), wide(GgufTensor::Expert)), ("q6_k", "q4_k"));
    }

    #[test]
    fn rows_that_do_not_fill_a_super_block_fall_back() {
        // 5504 = 21.5 · 256 is no multiple of 256.
        assert_eq!(GgufMix::Q4KM.format(GgufTensor::Other, 0, 24, 5504, false).name, "q5_0");
        assert_eq!(Q6_K.width.as_f64(), 6.5625);
    }
}
