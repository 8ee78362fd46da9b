//! Routed experts' work. Shared experts, latent projections and routers are matrices that every token passes.

use super::{Family, Pass, Work};
use crate::deployment::ExpertShard;
use crate::units::{Bytes, Flops};

impl Pass<'_> {
    /// Each token passes its experts, spread evenly over the expert-parallel ranks; the distinct experts that the whole
    /// replica's tokens touch are read once. How much more than its share the busiest rank reads stands beside that.
    pub(super) fn experts(&self, shard: &ExpertShard) -> Work {
        let ep = self.deployment.parallelism.ep;
        let chosen = u128::from(self.replica_tokens) * u128::from(shard.experts.per_token);
        let flops = Flops(2 * chosen.div_ceil(u128::from(ep)) * u128::from(shard.elements));
        let touched =
            shard.experts.distinct(self.replica_tokens) * shard.local as f64 / shard.experts.count as f64;
        let bytes = Bytes::from_f64(touched * shard.bytes.as_f64());
        Work {
            dtype: shard.dtype,
            rate: shard.rate,
            ranks: ep,
            crowded: shard.experts.crowded(self.replica_tokens, ep),
            ..self.work("experts", Family::Moe, flops, bytes)
        }
    }
}
