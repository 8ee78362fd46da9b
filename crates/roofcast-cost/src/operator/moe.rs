//! Work of routed experts. Shared experts, latent projections and routers are plain GEMMs.
//!
//! Knows: the experts that a step reads. Knows nothing about time.

use super::{Form, Operator, Work};
use roofcast_ask::deployment::{BusiestRank, Deployment, ExpertShard};
use roofcast_ask::quantized_kernel::RowBlocks;
use roofcast_facts::model::{Experts, OperatorKind};
use roofcast_facts::units::number;

/// Routed experts of one rank. Each token is computed by the experts that it chooses, spread evenly over the
/// expert-parallel ranks; the weights of each distinct expert that the tokens of the whole replica choose are read
/// once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoutedExperts {
    experts: Experts,
    /// Width of the experts' input.
    pub(crate) hidden: u64,
    /// Number of ranks over which one expert's inner width is divided.
    pub(crate) slices: u64,
    /// Number of weights of one expert on this rank.
    elements: f64,
    /// Bits per weight, scales included.
    pub(crate) bits: f64,
    /// Number of expert-parallel ranks.
    pub(crate) ranks: u64,
    /// Load of the busiest rank, if an imbalance is stated.
    pub(crate) busiest: Option<BusiestRank>,
    /// True if all tokens choose the experts that one token chooses, as no fewer are read; false if they choose independently.
    alike: bool,
    flops_per_token: f64,
    /// Bytes of this rank's experts over the number of experts of the layer: mean bytes that each chosen expert adds.
    bytes_per_touched: f64,
}

impl RoutedExperts {
    /// Ratio of experts chosen with real routing to experts chosen with even routing. If the experts' loads are
    /// distributed exponentially, so that their standard deviation equals their mean, the k choices of T tokens fall
    /// on T k/(1 + T k/E) of E experts on average, and on no fewer than k.
    pub(crate) fn uneven(&self, tokens: u64) -> f64 {
        let per_token = number(self.experts.per_token);
        let copies = number(tokens) * per_token;
        let touched = copies / (1.0 + copies / number(self.experts.count));
        (touched.max(per_token) / self.experts.distinct(tokens)).min(1.0)
    }

    /// Number of experts of the layer.
    pub(crate) fn count(&self) -> u64 {
        self.experts.count
    }

    /// Number of experts that a token chooses.
    pub(crate) fn per_token(&self) -> u64 {
        self.experts.per_token
    }

    /// Weights of an expert over the weights of a gated expert with equal widths: 1, or two thirds without a gate.
    pub(crate) fn elements_over_gated(&self) -> f64 {
        let gated = (3 * self.hidden * self.inner()) as f64 / self.slices as f64;
        (self.elements / gated).min(1.0)
    }

    /// Inner width of one whole expert, over all slices.
    pub(crate) fn inner(&self) -> u64 {
        self.experts.expert.intermediate
    }

    /// Experts whose tokens all choose alike: the fewest reads.
    #[must_use]
    pub(crate) fn alike(self) -> RoutedExperts {
        RoutedExperts { alike: true, ..self }
    }

    /// Work of the busiest rank for the tokens of a replica. Each rank reads as many experts as with even routing.
    pub(crate) fn demand(&self, tokens: u64) -> Work {
        let touched = self.experts.distinct(if self.alike { tokens.min(1) } else { tokens });
        Work {
            flops: self.flops_per_token * tokens as f64 * self.busiest.unwrap_or(BusiestRank::EVEN).mean,
            weight_bytes: touched * self.bytes_per_touched,
            kv_bytes: 0.0,
        }
    }

    /// Work for `tokens` tokens, with real routing, in a kernel that computes in `blocks`. In a small-M GEMM, each
    /// copy of a token reads its expert, and up to `at_once` copies share one read. In a larger GEMM, every chosen
    /// expert computes whole tiles, on average half a tile more than its rows.
    pub(crate) fn in_blocks(&self, tokens: u64, blocks: RowBlocks) -> Work {
        let even = self.demand(tokens);
        let copies = number(tokens) * number(self.experts.per_token);
        let touched = self.experts.distinct(tokens) * self.uneven(tokens);
        let bytes_per_touched = self.bytes_per_touched;
        if tokens <= blocks.few {
            let reads = touched.max(copies / number(blocks.at_once));
            return Work { weight_bytes: reads * bytes_per_touched, ..even };
        }
        let tile = number(blocks.tile);
        let rows = (copies + touched * tile / 2.0).max(touched * tile);
        Work { flops: even.flops * rows / copies, weight_bytes: touched * bytes_per_touched, kv_bytes: 0.0 }
    }

    /// Tokens of the replica with which every rank would compute as many as the busiest rank does with `tokens`.
    pub(crate) fn busiest_tokens(&self, tokens: f64) -> f64 {
        let copies = tokens * number(self.experts.per_token) / number(self.ranks);
        tokens * self.busiest.unwrap_or(BusiestRank::EVEN).of_step(copies)
    }

    /// Chosen experts on the busiest rank over the mean of all ranks.
    pub(crate) fn imbalance(&self, tokens: u64) -> f64 {
        self.experts.imbalance(tokens, self.ranks)
    }
}

/// Creates the operators of a layer's routed experts: of the weights on the accelerator, and of the weights on the
/// host.
pub(super) fn operators(deployment: &Deployment, shard: &ExpertShard) -> Vec<Operator> {
    let parts = [(1.0 - shard.host_share, false), (shard.host_share, true)];
    let nonempty = parts.into_iter().filter(|(part, _)| *part > 0.0);
    nonempty.map(|(part, on_host)| Operator { on_host, ..operator(deployment, shard, part) }).collect()
}

/// Creates the operator of a part of the weights of a layer's routed experts.
fn operator(deployment: &Deployment, shard: &ExpertShard, part: f64) -> Operator {
    let ranks = deployment.parallelism.ep;
    let form = RoutedExperts {
        experts: shard.experts.clone(),
        hidden: shard.experts.width(deployment.model.hidden),
        slices: deployment.parallelism.stage_ranks() / ranks,
        elements: shard.elements as f64 * part,
        bits: 8.0 * shard.bytes.as_f64() / (shard.elements as f64).max(1.0),
        ranks,
        busiest: deployment.experts.load(ranks),
        alike: false,
        flops_per_token: 2.0 * shard.experts.per_token as f64 / ranks as f64 * shard.elements as f64 * part,
        bytes_per_touched: part * shard.bytes.as_f64() * shard.local as f64 / shard.experts.count as f64,
    };
    let experts = super::operator(deployment, OperatorKind::Experts, Form::Experts(form));
    Operator { dtype: shard.dtype, rate: shard.rate, ..experts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::operators;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    /// Experts of Qwen3-30B-A3B: a token chooses 8 of 128.
    fn experts() -> RoutedExperts {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model("Qwen/Qwen3-30B-A3B").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let deployment = Deployment::resolve(model, chip, &DeploymentOptions::default()).unwrap();
        let operator = operators(&deployment).into_iter().find(|o| o.kind == OperatorKind::Experts).unwrap();
        let Form::Experts(form) = operator.form else { panic!("{:?}", operator.form) };
        form
    }

    /// 16 tokens have 128 copies, which fall on 128/(1 + 1) = 64 experts; with even routing, on 128 (1 − (15/16)^16)
    /// = 82.42. One token chooses 8 experts either way, and very many tokens choose all.
    #[test]
    fn uneven_routing_touches_fewer() {
        let form = experts();
        assert!((form.uneven(16) - 64.0 / 82.42).abs() < 1e-4, "{}", form.uneven(16));
        assert!(form.uneven(1) == 1.0 && form.uneven(1_000_000) > 0.9999);
    }

    /// 32 independent tokens read 128 (1 − (15/16)^32) = 111.77 experts, and no fewer than the 8 of one token if they all choose
    /// alike; the arithmetic is equal.
    #[test]
    fn tokens_that_choose_alike_read_the_fewest_experts() {
        let (independent, alike) = (experts().demand(32), experts().alike().demand(32));
        assert!((independent.weight_bytes / alike.weight_bytes - 111.77 / 8.0).abs() < 1e-3);
        assert_eq!((alike.flops, alike.weight_bytes), (independent.flops, experts().demand(1).weight_bytes));
    }

    /// 16 tokens are a small-M GEMM: each of their 128 copies reads an expert. 64 tokens have 512 copies on
    /// 512/(1 + 4) = 102.4 experts, which compute 102.4 · 32 rows, 6.4 times the copies. 512 tokens have 4096 copies
    /// on 4096/33 = 124.12 experts, which each compute 16 rows too many, 1.4848 times the copies.
    #[test]
    fn blocks_of_rows_by_hand() {
        let form = experts();
        let blocks = RowBlocks { few: 31, at_once: 1, tile: 32, width: None, resident: 0 };
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-4, "{a} {b}");
        let single = form.demand(1);
        let few = form.in_blocks(16, blocks);
        near(few.weight_bytes, single.weight_bytes * 16.0);
        near(few.flops, single.flops * 16.0);
        for (tokens, touched, computed) in [(64, 102.4, 6.4), (512, 124.12, 1.4848)] {
            let many = form.in_blocks(tokens, blocks);
            near(many.weight_bytes, single.weight_bytes / 8.0 * touched);
            near(many.flops, single.flops * tokens as f64 * computed);
        }
    }
}
