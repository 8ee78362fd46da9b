//! LoRA adapters (Hu et al., ICLR 2022): for each adapted matrix of a layer, one matrix of `rank` rows and one of
//! `rank` columns.
//!
//! Knows: the matrices of one adapter on one rank, with vLLM's sharding: the side of the hidden state is replicated on
//! every rank, the other side is divided like the adapted matrix; `fully_sharded_loras` divides both. From 0.11.1 on
//! vLLM also adapts routed experts (`vllm/lora/layers/fused_moe.py`); an expert-parallel rank has the matrices of its own
//! experts, and computes them for the tokens of all ranks. Router, embedding and lm_head have no adapters.
//! Knows nothing about time.

use super::{Form, Matrix, Operator, Rows, Work};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::LoraSettings;
use roofcast_facts::model::{Experts, Ffn, OperatorKind, Split, Tensor, TensorRole};
use roofcast_facts::units::Bytes;

/// First version of vLLM that adapts routed experts.
const EXPERTS_SINCE: &str = "0.11.1 (2025-11)";
/// Kernels of an adapted GEMM: one multiplies by the matrix of `rank` rows, one by the matrix of `rank` columns.
const KERNELS: u64 = 2;

/// Matrices of one adapter on one rank, in all layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Number of weights that multiply every token.
    dense: f64,
    /// Matrices of routed experts; empty if they have none.
    experts: Vec<AdaptedExperts>,
    /// Bytes of a weight.
    width: f64,
    /// Number of kernels that a step launches for adapters, whatever their number.
    pub(crate) kernels: u64,
}

/// Tokens of a step whose requests name an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdaptedTokens {
    /// Number of different adapters.
    pub adapters: u64,
    /// Number of tokens.
    pub tokens: u64,
}

/// Matrices for the routed experts of equal layers.
#[derive(Debug, Clone, PartialEq)]
struct AdaptedExperts {
    experts: Experts,
    layers: f64,
    /// Number of experts that have their matrices here.
    local: u64,
    /// Number of weights of one expert.
    each: f64,
}

impl Adapter {
    /// An adapter of rank `settings.max_lora_rank`, with which vLLM's kernels compute whatever the adapter's own rank.
    pub fn of(deployment: &Deployment, settings: &LoraSettings) -> Adapter {
        let part = |tensor: &Tensor| sides(deployment, tensor, settings.fully_sharded);
        Adapter::with(deployment, settings, (&part, deployment.parallelism.ep))
    }

    /// The adapter before it is divided over ranks, as storage has it.
    pub fn whole(deployment: &Deployment, settings: &LoraSettings) -> Adapter {
        let all = |tensor: &Tensor| tensor.copies * (tensor.rows + tensor.columns);
        Adapter::with(deployment, settings, (&all, 1))
    }

    /// The adapter with `sides` inputs plus outputs of each matrix, and with one of `parts` equal parts of the experts.
    fn with(
        deployment: &Deployment,
        settings: &LoraSettings,
        (sides, parts): (&dyn Fn(&Tensor) -> u64, u64),
    ) -> Adapter {
        let sides = |tensor: &Tensor| (settings.max_lora_rank * sides(tensor)) as f64;
        let linear = deployment.tensors.iter().filter(|held| held.tensor.role == TensorRole::Linear);
        let experts = match adapts_experts(deployment) {
            true => experts(deployment, &sides, parts),
            false => Vec::new(),
        };
        let gemms: u64 = adapted_gemms(deployment).map(|operator| operator.layers).sum();
        let expert_gemms = 2 * experts.iter().map(|e| e.layers as u64).sum::<u64>();
        Adapter {
            dense: linear.map(|held| held.layers as f64 * sides(&held.tensor)).sum(),
            experts,
            width: f64::from(deployment.base.bits()) / 8.0,
            kernels: KERNELS * (gemms + expert_gemms),
        }
    }

    /// The adapter's matrices as one GEMM in the deployment's base dtype.
    pub(crate) fn operator(&self, deployment: &Deployment) -> Operator {
        let matrix = Matrix { elements: self.dense, outputs: 1.0, weight_bytes: self.width * self.dense };
        let form = Form::Product { rows: Rows::Computed, matrix };
        super::operator(deployment, OperatorKind::Lora, form)
    }

    /// Bytes of the adapter.
    pub fn bytes(&self) -> Bytes {
        let experts = self.experts.iter().map(|e| e.layers * e.local as f64 * e.each);
        Bytes::from_f64(self.width * (self.dense + experts.sum::<f64>()))
    }

    /// Work for the tokens `own` of one data-parallel rank, where `all` are those of all ranks that share experts; tokens
    /// are divided evenly among adapters. Each adapter's dense matrices are read once, and its matrices of each expert
    /// here that a token of any rank chooses.
    pub(crate) fn demand(&self, own: AdaptedTokens, all: AdaptedTokens) -> Work {
        let each = all.tokens.div_ceil(all.adapters.max(1));
        let mut flops = 2.0 * self.dense * own.tokens as f64;
        let mut read = self.dense * own.adapters as f64;
        for layer in &self.experts {
            let share = layer.local as f64 / layer.experts.count as f64;
            let choices = (all.tokens * layer.experts.per_token) as f64 * share;
            flops += 2.0 * layer.layers * layer.each * choices;
            read += layer.layers * layer.each * all.adapters as f64 * layer.experts.distinct(each) * share;
        }
        Work { flops, weight_bytes: self.width * read, kv_bytes: 0.0 }
    }
}

/// True if the engine adapts the routed experts of the model.
fn adapts_experts(deployment: &Deployment) -> bool {
    deployment.model.is_moe() && deployment.engine.is_since(EXPERTS_SINCE)
}

/// GEMMs of a step whose matrices have adapters, in all layers.
fn adapted_gemms(deployment: &Deployment) -> impl Iterator<Item = Operator> {
    let linear = deployment.tensors.iter().filter(|held| held.tensor.role == TensorRole::Linear);
    let kinds: Vec<OperatorKind> = linear.map(|held| held.tensor.operator).collect();
    let multiplies = |operator: &Operator| match &operator.form {
        Form::Product { rows: Rows::Computed, matrix } => matrix.elements > 0.0,
        _ => false,
    };
    super::operators(deployment).into_iter().filter(move |o| multiplies(o) && kinds.contains(&o.kind))
}

/// Matrices for one of `parts` equal parts of the routed experts, by layers with equal experts.
fn experts(deployment: &Deployment, sides: &dyn Fn(&Tensor) -> f64, parts: u64) -> Vec<AdaptedExperts> {
    let mut all: Vec<AdaptedExperts> = Vec::new();
    for layer in deployment.model.held_layers() {
        let Ffn::Experts(experts) = &layer.ffn else { continue };
        let tensors = layer.tensors(deployment.model.hidden).into_iter();
        let each = tensors.filter(|tensor| tensor.role == TensorRole::Expert).map(|tensor| sides(&tensor));
        let each = each.sum::<f64>() / experts.count as f64;
        match all.iter_mut().find(|known| known.experts == *experts && known.each == each) {
            Some(known) => known.layers += 1.0,
            None => {
                let local = experts.count.div_ceil(parts);
                all.push(AdaptedExperts { experts: experts.clone(), layers: 1.0, local, each });
            }
        }
    }
    all
}

/// Number of inputs plus outputs of a matrix on one accelerator, over all copies; an adapter has its rank times this
/// number of weights. `fully_sharded` divides both sides.
fn sides(deployment: &Deployment, matrix: &Tensor, fully_sharded: bool) -> u64 {
    let hidden_out = matrix.rows == deployment.model.hidden;
    let (whole, divided) =
        if hidden_out { (matrix.rows, matrix.columns) } else { (matrix.columns, matrix.rows) };
    let parallelism = deployment.parallelism;
    let parts = match matrix.split {
        Split::Even => parallelism.tp,
        Split::KvHeads(heads) => deployment.kv_parts(heads),
        Split::Experts => parallelism.stage_ranks() / parallelism.ep,
        Split::Replicated => 1,
    };
    let whole = if fully_sharded && parts > 1 { whole.div_ceil(parallelism.tp) } else { whole };
    matrix.copies * (whole + divided.div_ceil(parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_ask::parallelism::RequestedParallelism;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";
    const QWEN: &str = "Qwen/Qwen3-30B-A3B";

    /// An adapter of rank 16 for a model of the catalog, served by vLLM `version` on `tp` accelerators.
    fn adapter(model: &str, tp: u64, version: &str, fully_sharded: bool) -> Adapter {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let parallelism =
            RequestedParallelism { count: Some(tp), tp: Some(tp), ..RequestedParallelism::default() };
        let mut options = DeploymentOptions { parallelism, ..DeploymentOptions::default() };
        options.engine.version = Some(version.to_owned());
        of(&Deployment::resolve(model, accelerator, &options).unwrap(), fully_sharded)
    }

    fn of(deployment: &Deployment, fully_sharded: bool) -> Adapter {
        let settings = LoraSettings { max_loras: 1, max_lora_rank: 16, max_cpu_loras: 1, fully_sharded };
        Adapter::of(deployment, &settings)
    }

    fn tokens(adapters: u64, tokens: u64) -> AdaptedTokens {
        AdaptedTokens { adapters, tokens }
    }

    /// Llama-3.1-8B, per layer: q and o 4096 + 4096, k and v 4096 + 1024, gate, up and down 4096 + 14,336: 81,920. On
    /// two accelerators q and o 4096 + 2048, k and v 4096 + 512, the others 4096 + 7168: 55,296; fully sharded half of
    /// 81,920. A layer has four GEMMs (qkv, o, gate and up, down), each with two kernels: 256 in 32 layers.
    #[test]
    fn sides_by_hand() {
        let single = adapter(LLAMA, 1, "0.19.0", false);
        assert_eq!((single.dense, single.kernels), (16.0 * 81_920.0 * 32.0, 256));
        assert_eq!(single.bytes(), Bytes(2 * 16 * 81_920 * 32));
        assert_eq!(adapter(LLAMA, 2, "0.19.0", false).dense, 16.0 * 55_296.0 * 32.0);
        assert_eq!(adapter(LLAMA, 2, "0.19.0", true).dense, 16.0 * 40_960.0 * 32.0);
    }

    /// Two adapters of 41,943,040 weights for 10 tokens: each is read once, 2 bytes a weight.
    #[test]
    fn demand_by_hand() {
        let work = adapter(LLAMA, 1, "0.19.0", false).demand(tokens(2, 10), tokens(2, 10));
        let weights = 16.0 * 81_920.0 * 32.0;
        assert_eq!((work.flops, work.weight_bytes), (2.0 * weights * 10.0, 2.0 * weights * 2.0));
    }

    /// Qwen3-30B-A3B: hidden 2048, 32 query heads and 4 KV heads of 128: q and o 2048 + 4096, k and v 2048 + 512, in
    /// 48 layers; 128 experts of width 768 with gate, up and down, 3 (2048 + 768) = 8448 each. vLLM 0.11.0 adapts no
    /// experts. Of later versions, one token of each of two adapters reads 8 experts of each.
    #[test]
    fn experts_by_hand() {
        let dense = 16.0 * (2.0 * 6144.0 + 2.0 * 2560.0) * 48.0;
        let before = adapter(QWEN, 1, "0.11.0", false);
        assert_eq!(
            (before.dense, before.bytes(), before.kernels),
            (dense, Bytes((2.0 * dense) as u64), 4 * 48)
        );
        let later = adapter(QWEN, 1, "0.19.0", false);
        let expert = 16.0 * 8448.0 * 48.0;
        assert_eq!((later.bytes(), later.kernels), (Bytes((2.0 * (dense + 128.0 * expert)) as u64), 8 * 48));
        let work = later.demand(tokens(2, 2), tokens(2, 2));
        let flops = 2.0 * 2.0 * (dense + 8.0 * expert);
        let bytes = 2.0 * 2.0 * (dense + 8.0 * expert);
        assert!((work.flops / flops - 1.0).abs() < 1e-9 && (work.weight_bytes / bytes - 1.0).abs() < 1e-9);
    }

    /// Four ranks with 32 of Qwen3-30B-A3B's 128 experts each, and with attention whole: a rank's buffer has all dense
    /// matrices and those of 32 experts. One of eight tokens is its own; the eight tokens of two adapters make 64 choices,
    /// of which a quarter falls to its experts.
    #[test]
    fn ranks_share_experts_by_hand() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model(QWEN).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let [ep, attention_dp] = [Some(4), Some(4)];
        let parallelism = RequestedParallelism { ep, attention_dp, ..RequestedParallelism::default() };
        let options = DeploymentOptions { parallelism, ..DeploymentOptions::default() };
        let rank = of(&Deployment::resolve(model, accelerator, &options).unwrap(), false);
        let dense = 16.0 * (2.0 * 6144.0 + 2.0 * 2560.0) * 48.0;
        let expert = 16.0 * 8448.0 * 48.0;
        assert_eq!(rank.bytes(), Bytes((2.0 * (dense + 32.0 * expert)) as u64));
        let work = rank.demand(tokens(1, 1), tokens(2, 8));
        let flops = 2.0 * (dense + 8.0 * 8.0 / 4.0 * expert);
        assert!((work.flops / flops - 1.0).abs() < 1e-9, "{} {flops}", work.flops);
        // Four tokens of an adapter, eight experts each, miss an expert with the probability (120/128)^4.
        let distinct = 128.0 * (1.0 - (120.0_f64 / 128.0).powi(4));
        let bytes = 2.0 * (dense + 2.0 * distinct / 4.0 * expert);
        assert!((work.weight_bytes / bytes - 1.0).abs() < 1e-9, "{} {bytes}", work.weight_bytes);
    }
}
