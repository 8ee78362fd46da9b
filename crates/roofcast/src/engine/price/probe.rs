//! Reads an operator's coefficients off the cost model, by pricing batches that differ in one thing.
//!
//! Knows: every operator's FLOPs and bytes are linear in rows, pairs and tokens seen. Knows nothing about steps.

use super::Chunk;
use super::op::{Closed, Kind, Op};
use crate::deployment::Deployment;
use crate::efficiency::{Efficiency, Reach, unpacked_bytes};
use crate::engine::clock::TICKS_PER_PS;
use crate::model::Mixer;
use crate::operator::{Batch, Family, Sequences, Work, work};

/// Reads coefficients off the cost model.
pub(super) struct Probe<'a> {
    pub(super) deployment: &'a Deployment,
}

impl Probe<'_> {
    /// The work of `rows` decodes on each rank, each with `context`.
    pub(super) fn decode(&self, rows: u64, context: u64) -> Vec<Work> {
        let p = self.deployment.parallelism;
        work(self.deployment, &Batch::decode(rows * p.replicas * p.attention_dp, context))
    }

    /// FLOPs and KV bytes of every operator for `chunks`, on the rank that has them.
    pub(super) fn chunks(&self, chunks: &[Chunk]) -> Vec<[f64; 2]> {
        let group = |c: &Chunk| Sequences { count: 1, new: u64::from(c.new), context: u64::from(c.context) };
        let batch = Batch { groups: chunks.iter().map(group).collect() };
        work(self.deployment, &batch).iter().map(|w| [w.flops.as_f64(), w.kv_bytes.as_f64()]).collect()
    }

    pub(super) fn reaches(&self) -> Vec<u64> {
        let mixers = self.deployment.stages.iter().flat_map(|s| s.blocks.iter().map(|(b, _)| &b.mixer));
        let mut reaches: Vec<u64> = mixers
            .filter_map(|m| match m {
                Mixer::Attention(a) | Mixer::Both(a, _) => a.chunk.or(a.reach()),
                Mixer::Latent(l) => l.reach(),
                Mixer::Compressed(c) => Some(c.window),
                _ => None,
            })
            .collect();
        reaches.push(u64::MAX);
        reaches.sort_unstable();
        reaches.dedup();
        reaches
    }

    /// Flattens the operator at `index`.
    pub(super) fn op(
        &self,
        index: usize,
        work: &Work,
        reaches: &[u64],
        efficiency: Option<&Efficiency>,
    ) -> Op {
        let routed = work.family == Family::Moe;
        let reach = efficiency.map_or(Reach::LIMIT, |e| e.reach(work));
        let (kind, bytes) = if work.attends() {
            (self.attend(index, reaches), work.weight_bytes.as_f64())
        } else if routed {
            self.experts(index)
        } else {
            self.rows(index)
        };
        let bytes = if reach.dequantizes { unpacked_bytes(work).as_f64() } else { bytes };
        Op {
            layers: work.layers as f64,
            compute: 1e12 * TICKS_PER_PS / (work.rate.0 * reach.compute),
            memory: 1e12 * TICKS_PER_PS / (self.deployment.bandwidth().0 * reach.memory),
            exposed: reach.exposed,
            few: reach.few,
            mixed_rows: reach.mixed_rows,
            call: reach.call.0 as f64 * TICKS_PER_PS,
            bytes,
            kind,
        }
    }

    /// An operator of so many FLOPs and bytes a row, and of so many bytes besides.
    fn rows(&self, index: usize) -> (Kind, f64) {
        let [one, two] = [1, 2].map(|rows| self.decode(rows, 1)[index]);
        let bytes = two.weight_bytes.as_f64() - one.weight_bytes.as_f64();
        let flops = two.flops.as_f64() - one.flops.as_f64();
        let kind = Kind::Rows { flops, bytes, sampled: one.name == "lm_head" };
        (kind, one.weight_bytes.as_f64() - bytes)
    }

    /// Routed experts: the distinct ones that the replica's tokens touch are read.
    fn experts(&self, index: usize) -> (Kind, f64) {
        let blocks = self.deployment.stages.iter().flat_map(|s| &s.blocks);
        let shards: Vec<_> = blocks.filter_map(|(b, _)| b.experts.as_ref()).collect();
        let nth = self.decode(1, 1)[..index].iter().filter(|w| w.family == Family::Moe).count();
        let Some(shard) = shards.get(nth) else { return self.rows(index) };
        let tokens = 1 << 12;
        let ranks = self.deployment.parallelism.attention_dp;
        let flops = self.decode(tokens, 1)[index].flops.as_f64() / (tokens * ranks) as f64;
        let bytes = shard.bytes.as_f64() * shard.local as f64;
        (Kind::Experts { flops, bytes, experts: Box::new(shard.experts.clone()) }, 0.0)
    }

    /// What a decode computes and reads, as a sum over reaches r of `term[r] · min(context, r)`: a term is by how much
    /// the slope drops at its reach.
    fn attend(&self, index: usize, reaches: &[u64]) -> Kind {
        let at = |context: u64| {
            let w = &self.decode(1, context)[index];
            [w.flops.as_f64(), w.kv_bytes.as_f64()]
        };
        let slope = |from: u64, to: u64| {
            let (low, high) = (at(from), at(to));
            [0, 1].map(|i| (high[i] - low[i]) / to.saturating_sub(from).max(1) as f64)
        };
        // The shortest context of a decode: at 1, latent attention expands what it absorbs from 2 on.
        let shortest = 2;
        let mut from = shortest;
        let mut slopes: Vec<[f64; 2]> = Vec::new();
        for &reach in reaches {
            // Beyond the last reach the slope is taken over a long stretch, where steps of compression even out.
            let (low, high) =
                if reach == u64::MAX { (from.max(1 << 16), from.max(1 << 16) * 2) } else { (from, reach) };
            slopes.push(slope(low, high));
            from = reach;
        }
        let next = |k: usize| slopes.get(k + 1).copied().unwrap_or_default();
        let terms = (0..slopes.len()).map(|k| [0, 1].map(|i| slopes[k][i] - next(k)[i])).collect();
        let (first, start) = (slopes.first().copied().unwrap_or_default(), at(shortest));
        let fixed = [0, 1].map(|i| start[i] - shortest as f64 * first[i]);
        Kind::Attend { fixed, terms, closed: self.closed(index).map(Box::new), index }
    }

    /// The closed form of plain attention.
    fn closed(&self, index: usize) -> Option<Closed> {
        let shape = self.decode(1, 1);
        if shape[index].name != "attention" {
            return None;
        }
        let nth = shape[..index].iter().filter(|w| w.name == "attention").count();
        let mixers = self.deployment.stages.iter().flat_map(|s| s.blocks.iter().map(|(b, _)| &b.mixer));
        let mut attentions = mixers.filter_map(|m| match m {
            Mixer::Attention(a) | Mixer::Both(a, _) => Some(a),
            _ => None,
        });
        let a = attentions.nth(nth)?;
        // Over a whole block, for what finds it.
        let block = self.deployment.engine.block_size;
        let bytes = self.decode(1, block)[index].kv_bytes.as_f64();
        Some(Closed {
            attention: a.clone(),
            flops_per_pair: shape[index].flops.as_f64(),
            bytes_per_token: bytes / a.seen(1, block) as f64,
        })
    }
}
