//! Work of mixers with a recurrent state, which is constant per token whatever the length of the context.
//!
//! Knows: the FLOPs of the recurrence itself, the least arithmetic; kernels that compute a prompt in chunks need more
//! FLOPs, to use tensor cores. Knows nothing about time.

use super::{ContextForm, DecodeForm, Form, KernelShape, Operator, SequenceForm, Work};
use roofcast_ask::deployment::{Block, Deployment};
use roofcast_facts::model::{Mixer, OperatorKind};

/// Recurrence on one rank: FLOPs per token; the state is written once per pass and sequence, and read once unless the
/// sequence begins in the pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Recurrence {
    flops_per_token: f64,
    state_bytes: f64,
}

impl Recurrence {
    pub(super) fn of(deployment: &Deployment, block: &Block) -> Recurrence {
        let Some(state) = block.mixer.state() else {
            return Recurrence { flops_per_token: 0.0, state_bytes: 0.0 };
        };
        let tp = deployment.parallelism.tp;
        let parts = u128::from(if deployment.ideal { tp } else { tp.min(state.heads) }.max(1));
        Recurrence {
            flops_per_token: state.flops.div_ceil(parts) as f64,
            state_bytes: state.bytes.div_ceil(parts) as f64,
        }
    }

    pub(super) fn demand(&self, new: u64, context: u64) -> [f64; 2] {
        let times = if context > new { 2.0 } else { 1.0 };
        [self.flops_per_token * new as f64, self.state_bytes * times]
    }
}

/// Shape by which the kernel of the recurrence of `block` was timed.
fn shape(deployment: &Deployment, block: &Block) -> KernelShape {
    let part = |heads: u64| heads.div_ceil(deployment.parallelism.tp);
    let recurrent = |kind, [key_heads, key_dim, value_heads, value_dim]: [u64; 4]| KernelShape::Recurrent {
        kind,
        key_heads: part(key_heads),
        key_dim,
        value_heads: part(value_heads),
        value_dim,
    };
    match &block.mixer {
        Mixer::GatedDelta(m) => {
            recurrent("gated-delta", [m.key_heads, m.key_dim, m.value_heads, m.value_dim])
        }
        Mixer::Kda(m) => recurrent("kda", [m.heads, m.head_dim, m.heads, m.head_dim]),
        Mixer::Mamba2(m) | Mixer::Both(_, m) => recurrent("mamba2", [m.heads, m.state, m.heads, m.head_dim]),
        _ => KernelShape::Other,
    }
}

/// Creates the operator of the recurrence of a layer.
pub(super) fn operator(deployment: &Deployment, block: &Block) -> Operator {
    let recurrence = Recurrence::of(deployment, block);
    let [flops, kv_bytes] = recurrence.demand(1, 2);
    let fixed = Work { flops, kv_bytes, weight_bytes: 0.0 };
    let form = ContextForm {
        sequence: SequenceForm::Recurrence(recurrence),
        decode: DecodeForm { fixed, terms: Vec::new() },
        shape: shape(deployment, block),
        narrow: false,
        weight_bytes: 0.0,
    };
    super::operator(deployment, OperatorKind::LinearAttention, Form::Context(form))
}
