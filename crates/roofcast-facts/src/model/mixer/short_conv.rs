//! A gated short convolution: three projections of the residual stream, two of which gate a convolution of the third.
//!
//! Source: Hugging Face transformers' `modeling_lfm2.py`.

use super::RecurrentState;
use crate::model::tensor::{OperatorKind, Split, Tensor};

/// Layer with a gated short convolution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShortConv {
    /// Number of channels.
    pub(crate) channels: u64,
    /// Taps of the convolution.
    pub(crate) taps: u64,
    /// True if projections and convolution have biases.
    pub(crate) bias: bool,
    /// Bytes per element of the inputs that the convolution keeps.
    pub(crate) element: u64,
}

impl ShortConv {
    /// State of one sequence: the last `taps − 1` inputs of each channel.
    pub(crate) fn state(&self) -> RecurrentState {
        let channels = u128::from(self.channels);
        let tail = channels * u128::from(self.taps.saturating_sub(1));
        RecurrentState {
            bytes: tail * u128::from(self.element),
            flops: 2 * u128::from(self.taps) * channels,
            heads: self.channels,
        }
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let wide = self.channels;
        let even = Split::Even;
        let bias = u64::from(self.bias);
        let mut tensors = vec![
            Tensor::linear("conv.in_proj", OperatorKind::InProj, 3 * wide, hidden, even),
            Tensor::vector("conv.conv", OperatorKind::Conv1d, wide * (self.taps + bias), even),
            Tensor::linear("conv.out_proj", OperatorKind::OProj, hidden, wide, even),
        ];
        if self.bias {
            tensors.push(Tensor::vector("conv.in_proj.bias", OperatorKind::InProj, 3 * wide + hidden, even));
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lfm2_by_hand() {
        let conv = ShortConv { channels: 1024, taps: 3, bias: false, element: 2 };
        // Two inputs of 1024 channels in bf16; weights in 3072·1024, conv 3·1024, out 1024·1024.
        let count: u128 = conv.tensors(1024).iter().map(Tensor::elements).sum();
        assert_eq!((conv.state().bytes, count), (4_096, 3_145_728 + 3_072 + 1_048_576));
    }
}
