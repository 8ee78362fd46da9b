//! Selective state spaces: Mamba, with a decay per channel and state element, and Mamba-2, with a decay per head.
//!
//! Source: Hugging Face transformers' `modeling_mamba.py`, `modeling_jamba.py`, `modeling_nemotron_h.py`,
//! `modeling_bamba.py`. vLLM keeps state and convolution inputs in the model's dtype unless `mamba_ssm_cache_dtype`
//! says otherwise.

use super::RecurrentState;
use crate::model::tensor::{OperatorKind, Split, Tensor, TensorRole};

/// Layer with Mamba-2.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mamba2 {
    /// Number of heads.
    pub heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// State elements per channel.
    pub state: u64,
    /// Number of groups of heads, each of which shares B and C.
    pub(crate) groups: u64,
    /// Taps of the convolution.
    pub(crate) conv: u64,
    /// True if the projections have biases.
    pub(crate) proj_bias: bool,
    /// True if the convolution has a bias.
    pub(crate) conv_bias: bool,
    /// True if a norm with weights precedes the output projection.
    pub(crate) norm: bool,
    /// Bytes per element of the recurrent state.
    pub(crate) state_element: u64,
    /// Bytes per element of the inputs that the convolution keeps.
    pub(crate) conv_element: u64,
}

impl Mamba2 {
    fn inner(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: inputs, B and C.
    fn channels(&self) -> u64 {
        self.inner() + 2 * self.groups * self.state
    }

    /// State of one sequence: a width × state matrix per head, and the last `conv − 1` inputs of each channel. Per
    /// token, the update and the product with C cost 2·width·state FLOPs each.
    pub(crate) fn state(&self) -> RecurrentState {
        let matrix = u128::from(self.inner()) * u128::from(self.state);
        let tail = u128::from(self.conv.saturating_sub(1)) * u128::from(self.channels());
        RecurrentState {
            bytes: matrix * u128::from(self.state_element) + tail * u128::from(self.conv_element),
            flops: 4 * matrix + 2 * u128::from(self.conv) * u128::from(self.channels()),
            heads: self.heads,
        }
    }

    /// Lists the weight tensors for a residual stream of width `hidden`. in_proj computes the gate, the convolved
    /// channels and one time step per head; A, D and the bias of the time step are vectors with one value per head.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let inner = self.inner();
        let even = Split::Even;
        let rows = inner + self.channels() + self.heads;
        let conv = self.channels() * (self.conv + u64::from(self.conv_bias));
        let mut tensors = vec![
            Tensor::linear("mamba.in_proj", OperatorKind::InProj, rows, hidden, even),
            Tensor::vector("mamba.conv1d", OperatorKind::Conv1d, conv, even),
            Tensor::vector("mamba.A_log", OperatorKind::Norms, 3 * self.heads, even),
            Tensor::linear("mamba.out_proj", OperatorKind::OProj, hidden, inner, even),
        ];
        if self.norm {
            tensors.push(Tensor::vector("mamba.norm", OperatorKind::Norms, inner, even));
        }
        if self.proj_bias {
            tensors.push(Tensor::vector("mamba.in_proj.bias", OperatorKind::InProj, rows + hidden, even));
        }
        tensors
    }
}

/// Layer with Mamba.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mamba {
    /// Number of inner channels.
    pub(crate) inner: u64,
    /// State elements per channel.
    pub(crate) state: u64,
    /// Taps of the convolution.
    pub(crate) conv: u64,
    /// Rank of the projection of the time step.
    pub(crate) rank: u64,
    /// True if time step, B and C are normalized (Jamba).
    pub(crate) norms: bool,
    /// True if in_proj and out_proj have biases.
    pub(crate) proj_bias: bool,
    /// True if the convolution has a bias.
    pub(crate) conv_bias: bool,
    /// Bytes per element of the recurrent state, and of the inputs that the convolution keeps.
    pub(crate) element: u64,
}

impl Mamba {
    /// State of one sequence: `state` values per channel, and the last `conv − 1` inputs of each channel.
    pub(crate) fn state(&self) -> RecurrentState {
        let matrix = u128::from(self.inner) * u128::from(self.state);
        let tail = u128::from(self.conv.saturating_sub(1)) * u128::from(self.inner);
        RecurrentState {
            bytes: (matrix + tail) * u128::from(self.element),
            flops: 4 * matrix + 2 * u128::from(self.conv) * u128::from(self.inner),
            heads: self.inner,
        }
    }

    /// Lists the weight tensors for a residual stream of width `hidden`.
    pub(crate) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let inner = self.inner;
        let even = Split::Even;
        let wide = self.rank + 2 * self.state;
        let conv = inner * (self.conv + u64::from(self.conv_bias));
        // A has one value per channel and state element; D and the bias of the time step have one per channel.
        let vectors = inner * (self.state + 2) + if self.norms { wide } else { 0 };
        let mut tensors = vec![
            Tensor::linear("mamba.in_proj", OperatorKind::InProj, 2 * inner, hidden, even),
            Tensor::vector("mamba.conv1d", OperatorKind::Conv1d, conv, even),
            Tensor::linear("mamba.x_proj", OperatorKind::XProj, wide, inner, even),
            Tensor::linear("mamba.dt_proj", OperatorKind::DtProj, inner, self.rank, even)
                .with_role(TensorRole::Router),
            Tensor::vector("mamba.A_log", OperatorKind::Norms, vectors, even),
            Tensor::linear("mamba.out_proj", OperatorKind::OProj, hidden, inner, even),
        ];
        if self.proj_bias {
            tensors.push(Tensor::vector(
                "mamba.in_proj.bias",
                OperatorKind::InProj,
                2 * inner + hidden,
                even,
            ));
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nemotron_nano_by_hand() {
        let mamba = Mamba2 {
            heads: 64,
            head_dim: 64,
            state: 128,
            groups: 8,
            conv: 4,
            proj_bias: false,
            conv_bias: true,
            norm: true,
            state_element: 4,
            conv_element: 2,
        };
        // Inner width 4096, channels 4096 + 2·8·128 = 6144. State 4096·128 in fp32, convolution inputs 3·6144 in
        // bf16.
        assert_eq!(mamba.state().bytes, 524_288 * 4 + 18_432 * 2);
        assert_eq!(mamba.state().flops, 4 * 524_288 + 2 * 4 * 6144);
        // Weights with hidden 2688: in_proj (4096 + 6144 + 64)·2688, conv 6144·5, A, D, dt 192, norm 4096, out
        // 2688·4096.
        let count: u128 = mamba.tensors(2688).iter().map(Tensor::elements).sum();
        assert_eq!(count, 27_697_152 + 30_720 + 192 + 4_096 + 11_010_048);
    }

    #[test]
    fn mamba_by_hand() {
        // Dimensions of state-spaces/mamba-130m: hidden 768, inner 1536, state 16, conv 4, rank 48.
        let mamba = Mamba {
            inner: 1536,
            state: 16,
            conv: 4,
            rank: 48,
            norms: false,
            proj_bias: false,
            conv_bias: true,
            element: 2,
        };
        assert_eq!(mamba.state().bytes, (1536 * 16 + 3 * 1536) * 2);
        // Weights: in 3072·768, conv 1536·5, x 80·1536, dt 1536·48, A, D, dt bias 1536·18, out 768·1536.
        let count: u128 = mamba.tensors(768).iter().map(Tensor::elements).sum();
        assert_eq!(count, 2_359_296 + 7_680 + 122_880 + 73_728 + 27_648 + 1_179_648);
    }
}
