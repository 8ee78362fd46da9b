//! One weight tensor: its shape, its role, and its split under tensor parallelism.

pub(crate) use super::operator_kind::OperatorKind;

/// Role of a tensor; decides whether it is quantized and when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// A matrix that every token passes.
    Linear,
    /// A matrix of one routed expert.
    Expert,
    /// The matrix that scores experts.
    Router,
    /// lm_head.
    Head,
    /// A table that is looked up: token or position embedding.
    Embedding,
    /// A norm, bias or sink: never quantized.
    Vector,
}

/// Split of a tensor over `tp` accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Cut into `tp` equal parts.
    Even,
    /// Cut by this many KV heads: parts are no smaller than one head, and replicated where ranks are more.
    KvHeads(u64),
    /// Whole on every accelerator.
    Replicated,
    /// Whole experts on each expert-parallel rank; the remaining degree of parallelism slices each expert.
    Experts,
}

/// A weight tensor, or `copies` equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Module path within the layer, as in `self_attn.q_proj`.
    pub name: &'static str,
    /// The operator that reads it, as in `qkv_proj`.
    pub operator: OperatorKind,
    /// Outputs.
    pub rows: u64,
    /// Inputs.
    pub columns: u64,
    /// Number of copies (experts).
    pub copies: u64,
    /// Role of the tensor.
    pub role: TensorRole,
    /// Split under tensor parallelism.
    pub split: Split,
}

impl Tensor {
    /// A matrix of `rows` outputs and `columns` inputs.
    pub(crate) fn linear(
        name: &'static str,
        operator: OperatorKind,
        rows: u64,
        columns: u64,
        split: Split,
    ) -> Tensor {
        Tensor { name, operator, rows, columns, copies: 1, role: TensorRole::Linear, split }
    }

    /// A vector of `elements`.
    pub(crate) fn vector(name: &'static str, operator: OperatorKind, elements: u64, split: Split) -> Tensor {
        Tensor { name, operator, rows: elements, columns: 1, copies: 1, role: TensorRole::Vector, split }
    }

    /// Returns the tensor with another role.
    pub(crate) fn with_role(self, role: TensorRole) -> Tensor {
        Tensor { role, ..self }
    }

    /// Returns the tensor with `copies` copies.
    pub(crate) fn times(self, copies: u64) -> Tensor {
        Tensor { copies, ..self }
    }

    /// Elements in all copies.
    pub(crate) fn elements(&self) -> u128 {
        u128::from(self.rows) * u128::from(self.columns) * u128::from(self.copies)
    }
}
