//! One weight tensor: its shape, its role, and its split under tensor parallelism.
//!
//! Knows: parameters of a tensor. Knows nothing about formats and bytes.

pub(crate) use super::operator_kind::OperatorKind;

/// Role of a tensor, which decides whether it is quantized and when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// Matrix that multiplies every token.
    Linear,
    /// Matrix of a routed expert.
    Expert,
    /// Matrix that scores experts.
    Router,
    /// lm_head: the output embedding.
    Head,
    /// Table whose rows are looked up: token or position embedding.
    Embedding,
    /// Norm, bias or sink, which is never quantized.
    Vector,
}

impl TensorRole {
    /// True for a matrix or a table, which a file may hold quantized.
    pub(crate) fn is_matrix(self) -> bool {
        !matches!(self, TensorRole::Vector | TensorRole::Router)
    }
}

/// Split of a tensor over `tp` ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Divided into `tp` equal parts.
    Even,
    /// Divided by this many KV heads: parts are at least one head, and replicated if there are more ranks than heads.
    KvHeads(u64),
    /// Whole on every rank.
    Replicated,
    /// Whole experts on each expert-parallel rank; the remaining degree of parallelism slices each expert.
    Experts,
}

/// Weight tensor, or `copies` equal tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Module path within the layer, as in `self_attn.q_proj`.
    pub name: &'static str,
    /// Operator that reads the tensor, as in `qkv_proj`.
    pub operator: OperatorKind,
    /// Number of output values.
    pub rows: u64,
    /// Number of input values.
    pub columns: u64,
    /// Number of copies, such as the number of experts.
    pub copies: u64,
    /// Role of the tensor.
    pub role: TensorRole,
    /// Split under tensor parallelism.
    pub split: Split,
}

impl Tensor {
    /// Creates a matrix of `rows` outputs and `columns` inputs.
    pub(crate) fn linear(
        name: &'static str,
        operator: OperatorKind,
        rows: u64,
        columns: u64,
        split: Split,
    ) -> Tensor {
        Tensor { name, operator, rows, columns, copies: 1, role: TensorRole::Linear, split }
    }

    /// Creates a vector of `elements` parameters.
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

    /// Parameters of all copies.
    pub fn elements(&self) -> u128 {
        u128::from(self.rows) * u128::from(self.columns) * u128::from(self.copies)
    }
}
