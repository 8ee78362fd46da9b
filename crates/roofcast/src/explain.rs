//! A model tensor by tensor: parameters, bytes and FLOPs, so that every total can be followed.

use crate::deployment::Deployment;
use crate::model::{OperatorKind, Tensor, TensorRole};
use crate::units::Bytes;
use serde::Serialize;

/// One kind of tensor, over all layers that have one like it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorRow {
    /// Module path within the layer.
    pub tensor: &'static str,
    /// The operator that reads it.
    pub operator: OperatorKind,
    /// Layers with such a tensor; 1 outside the layers.
    pub layers: u64,
    /// Copies within a layer (experts).
    pub copies: u64,
    /// Outputs and inputs.
    pub shape: [u64; 2],
    /// Number format.
    pub format: &'static str,
    /// True bits per weight.
    pub bits: f64,
    /// Parameters in all.
    pub parameters: u64,
    /// Bytes in all.
    pub bytes: Bytes,
    /// Matrix FLOPs of one token: two per weight, of the experts that the token chooses only; 0 for tables and
    /// vectors.
    pub flops_per_token: u64,
}

/// The tensors of `deployment`'s model in order of first appearance. A tied lm_head has no row of its own.
pub fn explain(deployment: &Deployment) -> Vec<TensorRow> {
    let per_token = |copies: u64| {
        deployment.model.layers.iter().find_map(|l| match &l.ffn {
            crate::model::Ffn::Experts(e) if e.count == copies => Some(e.per_token),
            _ => None,
        })
    };
    // A token passes tensors outside the layers once, whatever the number of passes.
    let outer = |tensor: &Tensor| deployment.model.outer.iter().any(|own| own.name == tensor.name);
    let row = |held: &crate::deployment::Held| {
        let t = held.tensor;
        let used = match t.role {
            TensorRole::Embedding | TensorRole::Vector => 0,
            TensorRole::Expert => per_token(t.copies).unwrap_or(t.copies),
            _ => t.copies,
        };
        let of = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        TensorRow {
            tensor: t.name,
            operator: t.operator,
            layers: held.layers,
            copies: t.copies,
            shape: [t.rows, t.columns],
            format: held.format.name,
            bits: held.format.width.as_f64(),
            parameters: of(t.elements() * u128::from(held.layers)),
            bytes: held.format.width.bytes(t.elements()) * held.layers,
            flops_per_token: of(2
                * u128::from(t.rows)
                * u128::from(t.columns)
                * u128::from(used)
                * u128::from(held.layers)
                * u128::from(if outer(&t) { 1 } else { deployment.model.passes })),
        }
    };
    deployment.tensors.iter().map(row).collect()
}
