//! Mamba-2: each head keeps a matrix of head width × state size.
//!
//! Source: `NemotronHMamba2Mixer` in NVIDIA's `modeling_nemotron_h.py`; Dao and Gu, arXiv 2405.21060.

use crate::model::tensor::{Split, Tensor};

/// A Mamba-2 layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mamba {
    /// Heads.
    pub heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Groups that share B and C.
    pub groups: u64,
    /// State size of a channel.
    pub state: u64,
    /// Taps of the convolution.
    pub kernel: u64,
    /// Bias on the convolution.
    pub conv_bias: bool,
    /// Bits of a state element.
    pub state_bits: u64,
}

impl Mamba {
    fn inner(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: x, B and C.
    fn channels(&self) -> u64 {
        self.inner() + 2 * self.groups * self.state
    }

    /// State matrices and the convolution's last inputs (16 bits each) of one sequence.
    pub fn state_bytes(&self) -> u64 {
        self.inner() * self.state * self.state_bits / 8 + (self.kernel - 1) * self.channels() * 2
    }

    /// FLOPs of one token on the states: adding x ⊗ B, reading by C; two each an element.
    pub fn flops_per_token(&self) -> u64 {
        4 * self.inner() * self.state
    }

    pub(super) fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        // z and x, B and C, and a step size per head.
        let inputs = self.inner() + self.channels() + self.heads;
        let conv = self.channels() * (self.kernel + u64::from(self.conv_bias));
        vec![
            Tensor::linear("mixer.in_proj", "in_proj", inputs, hidden, Split::Even),
            Tensor::linear("mixer.out_proj", "o_proj", hidden, self.inner(), Split::Even),
            Tensor::vector("mixer.conv1d", "conv1d", conv, Split::Even),
            // A, D and the step sizes' bias; a gated norm.
            Tensor::vector("mixer.norm", "norms", 3 * self.heads + self.inner(), Split::Even),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_by_hand() {
        // Nemotron-3-Nano: 64 heads of 64 with a state of 128 in fp32 = 2,097,152 bytes; convolution: 3 inputs of
        // 4096 + 2 · 8 · 128 = 6144 channels in 16 bits = 36,864 bytes.
        let mamba = Mamba {
            heads: 64,
            head_dim: 64,
            groups: 8,
            state: 128,
            kernel: 4,
            conv_bias: true,
            state_bits: 32,
        };
        assert_eq!(mamba.state_bytes(), 2_097_152 + 36_864);
        // in_proj: 4096 + 6144 + 64 rows.
        assert_eq!(mamba.tensors(2688)[0].rows, 10_304);
    }
}
