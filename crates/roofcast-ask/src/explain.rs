//! Table of a model's tensors: parameters, bytes and FLOPs of each, so that every total can be verified.
//!
//! Knows: the tensors of a deployment and their shapes. Knows nothing about time.

use crate::deployment::Deployment;
pub use roofcast_facts::model::{OperatorKind, Tensor, TensorRole};
use roofcast_facts::units::Bytes;
use serde::Serialize;

/// One kind of tensor, summed over all layers that have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TensorRow {
    /// Module path within the layer.
    pub tensor: &'static str,
    /// Operator that reads the tensor.
    pub operator: OperatorKind,
    /// Number of layers with such a tensor; 1 outside the layers.
    pub layers: u64,
    /// Copies within a layer, such as the number of experts.
    pub copies: u64,
    /// Output and input dimensions.
    pub shape: [u64; 2],
    /// Number format.
    pub format: &'static str,
    /// Stored bits per weight, scales included.
    pub bits: f64,
    /// Parameters of all copies and layers.
    pub parameters: u64,
    /// Bytes of all copies and layers.
    pub bytes: Bytes,
    /// GEMM FLOPs per token: two per weight, counting only the experts that a token chooses; 0 for embedding tables
    /// and vectors.
    pub flops_per_token: u64,
}

/// Lists the tensors of `deployment`'s model in order of first appearance. A tied lm_head shares the row of the
/// embedding.
pub fn explain(deployment: &Deployment) -> Vec<TensorRow> {
    let per_token = |copies: u64| {
        deployment.model.layers.iter().find_map(|l| match &l.ffn {
            roofcast_facts::model::Ffn::Experts(e) if e.count == copies => Some(e.per_token),
            _ => None,
        })
    };
    // Tensors outside the layers are used once per token, even if a looped model passes its layers several times.
    let outer = |tensor: &Tensor| deployment.model.outer.iter().any(|own| own.name == tensor.name);
    let row = |held: &crate::deployment::Held| {
        let t = held.tensor;
        let used = match t.role {
            TensorRole::Embedding | TensorRole::Vector => 0,
            TensorRole::Expert => per_token(t.copies).unwrap_or(t.copies),
            _ => t.copies,
        };
        let narrow = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        TensorRow {
            tensor: t.name,
            operator: t.operator,
            layers: held.layers,
            copies: t.copies,
            shape: [t.rows, t.columns],
            format: held.format.name,
            bits: held.format.width.as_f64(),
            parameters: narrow(t.elements() * u128::from(held.layers)),
            bytes: held.format.width.bytes(t.elements()) * held.layers,
            flops_per_token: narrow(
                2 * u128::from(t.rows)
                    * u128::from(t.columns)
                    * u128::from(used)
                    * u128::from(held.layers)
                    * u128::from(if outer(&t) { 1 } else { deployment.model.passes }),
            ),
        }
    };
    deployment.tensors.iter().map(row).collect()
}
