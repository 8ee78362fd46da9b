//! LoRA adapters (Hu et al., ICLR 2022): for each adapted matrix of a layer, one matrix of `rank` rows and one of
//! `rank` columns.
//!
//! Knows: the matrices of one adapter on one rank, for every matrix that multiplies all tokens, with vLLM's sharding:
//! the side of the hidden state is replicated on every rank, the other side is divided like the adapted matrix.
//! Routed experts, router, embedding and lm_head have no adapters.

use super::{Form, Matrix, Operator, Rows, operator};
use crate::deployment::Deployment;
use crate::model::{OperatorKind, Split, Tensor, TensorRole};

/// Matrices of one adapter of rank `rank` in all layers, as one operator in the deployment's base dtype.
pub(crate) fn adapter(deployment: &Deployment, rank: u64) -> Operator {
    let linear = deployment.tensors.iter().filter(|held| held.tensor.role == TensorRole::Linear);
    let width: u64 = linear.map(|held| held.layers * sides(deployment, &held.tensor)).sum();
    let elements = rank as f64 * width as f64;
    let weight_bytes = elements * f64::from(deployment.base.bits()) / 8.0;
    let matrix = Matrix { elements, outputs: rank as f64, weight_bytes };
    let form = Form::Product { rows: Rows::Computed, matrix };
    operator(deployment, OperatorKind::Lora, form)
}

/// Number of inputs plus outputs of a matrix on one accelerator; the adapter has its rank times this number of
/// weights.
fn sides(deployment: &Deployment, matrix: &Tensor) -> u64 {
    let hidden_out = matrix.rows == deployment.model.hidden;
    let (whole, divided) =
        if hidden_out { (matrix.rows, matrix.columns) } else { (matrix.columns, matrix.rows) };
    let parts = match matrix.split {
        Split::Even => deployment.parallelism.tp,
        Split::KvHeads(heads) => deployment.kv_parts(heads),
        Split::Replicated | Split::Experts => 1,
    };
    matrix.copies * (whole + divided.div_ceil(parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::DeploymentOptions;
    use crate::model::config;
    use crate::parallelism::RequestedParallelism;
    use std::sync::Arc;

    fn width(model: &str, tp: u64) -> f64 {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let parallelism =
            RequestedParallelism { count: Some(tp), tp: Some(tp), ..RequestedParallelism::default() };
        let options = DeploymentOptions { parallelism, ..DeploymentOptions::default() };
        let adapter = adapter(&Deployment::resolve(model, accelerator, &options).unwrap(), 16);
        let Form::Product { matrix: Matrix { elements, weight_bytes, .. }, .. } = adapter.form else {
            panic!("{adapter:?}")
        };
        assert_eq!(weight_bytes, 2.0 * elements);
        elements / 16.0
    }

    /// Llama-3.1-8B, per layer: q and o 4096 + 4096, k and v 4096 + 1024, gate, up and down 4096 + 14,336: 81,920. On
    /// two accelerators q and o 4096 + 2048, k and v 4096 + 512, the others 4096 + 7168: 55,296.
    #[test]
    fn sides_by_hand() {
        assert_eq!(width("meta-llama/Llama-3.1-8B-Instruct", 1), 81_920.0 * 32.0);
        assert_eq!(width("meta-llama/Llama-3.1-8B-Instruct", 2), 55_296.0 * 32.0);
    }

    /// Qwen3-30B-A3B: hidden 2048, 32 query heads and 4 KV heads of 128: q and o 2048 + 4096, k and v 2048 + 512, in
    /// 48 layers. Experts and router have no adapters.
    #[test]
    fn experts_have_none() {
        assert_eq!(width("Qwen/Qwen3-30B-A3B", 1), (2.0 * 6144.0 + 2.0 * 2560.0) * 48.0);
    }
}
