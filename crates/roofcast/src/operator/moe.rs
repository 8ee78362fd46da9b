//! Routed experts' work. Shared experts, latent projections and routers are matrices that every token passes.

use super::{Demand, Form, Operator};
use crate::deployment::{Deployment, ExpertShard};
use crate::model::{Experts, OperatorKind};

/// The routed experts of one rank. Each token passes its experts, spread evenly over the expert-parallel ranks; the
/// distinct experts that the tokens of the whole replica touch are read once.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutedExperts {
    experts: Experts,
    /// Expert-parallel ranks.
    pub ranks: u64,
    flops_per_token: f64,
    /// Bytes of all experts of this rank over those of the layer: what a touched expert costs in the mean.
    bytes_per_touched: f64,
}

impl RoutedExperts {
    /// For the tokens of a replica, evenly spread.
    pub fn demand(&self, tokens: u64) -> Demand {
        Demand {
            flops: self.flops_per_token * tokens as f64,
            weight_bytes: self.experts.distinct(tokens) * self.bytes_per_touched,
            kv_bytes: 0.0,
        }
    }

    /// How many times its even share of the touched experts the busiest rank reads.
    pub fn imbalance(&self, tokens: u64) -> f64 {
        self.experts.imbalance(tokens, self.ranks)
    }
}

/// The routed experts of a block.
pub(super) fn operator(deployment: &Deployment, shard: &ExpertShard) -> Operator {
    let ranks = deployment.parallelism.ep;
    let form = RoutedExperts {
        experts: shard.experts.clone(),
        ranks,
        flops_per_token: 2.0 * shard.experts.per_token as f64 / ranks as f64 * shard.elements as f64,
        bytes_per_touched: shard.bytes.as_f64() * shard.local as f64 / shard.experts.count as f64,
    };
    let one = super::operator(deployment, OperatorKind::Experts, Form::Experts(form));
    Operator { dtype: shard.dtype, rate: shard.rate, ..one }
}
