//! The exact work of one forward pass: what each operator computes and moves on the busiest accelerator.
//!
//! Knows: FLOPs, weight bytes and KV bytes per operator for a batch. Knows nothing about time: [`crate::cost`] prices it.
//! Counted: matrix products, attention products, weights and KV. Left out: softmax, norms' and activations' arithmetic
//! (below 0.1 % of FLOPs), and activation bytes, which a limit assumes stay on chip.

mod attention;
pub mod collective;
mod compressed;
mod latent;
mod moe;
mod recurrent;

use crate::deployment::{Block, Deployment, Gemm, Stage};
use crate::model::Mixer;
use crate::precision::Dtype;
use crate::units::{Bytes, FlopRate, Flops};
use serde::Serialize;

/// What one forward pass computes: groups of equal sequences, over the whole deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The groups.
    pub groups: Vec<Sequences>,
}

/// Sequences alike in this pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    /// How many.
    pub count: u64,
    /// Tokens that each computes.
    pub new: u64,
    /// Tokens that each has then, the new ones among them.
    pub context: u64,
}

impl Sequences {
    /// Whether they compute prompts, if only of one token.
    pub fn is_prompt(&self) -> bool {
        self.new > 1 || self.context <= self.new
    }
}

impl Batch {
    /// `count` sequences that each compute the last of `context` tokens.
    pub fn decode(count: u64, context: u64) -> Batch {
        Batch { groups: vec![Sequences { count, new: 1, context: context.max(1) }] }
    }

    /// `count` prompts of `tokens`.
    pub fn prefill(count: u64, tokens: u64) -> Batch {
        Batch { groups: vec![Sequences { count, new: tokens, context: tokens }] }
    }

    /// The part that the busiest of `ranks` data-parallel ranks gets.
    pub(crate) fn local(&self, ranks: u64) -> Batch {
        let share = |s: &Sequences| Sequences { count: s.count.div_ceil(ranks), ..*s };
        Batch { groups: self.groups.iter().map(share).collect() }
    }

    /// Tokens computed.
    pub fn tokens(&self) -> u64 {
        self.groups.iter().map(|s| s.count.saturating_mul(s.new)).fold(0, u64::saturating_add)
    }

    /// Sequences, each of which samples once.
    pub fn sequences(&self) -> u64 {
        self.groups.iter().map(|s| s.count).fold(0, u64::saturating_add)
    }
}

/// A family of kernels; calibrations are per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Matrix products with weights.
    Gemm,
    /// Attention over the KV cache, or a recurrent state in its place.
    Attention,
    /// An indexer's scores over its own cache.
    Indexer,
    /// Routed experts.
    Moe,
    /// Table look-ups.
    Embedding,
    /// Norms and the like.
    Elementwise,
}

/// One operator's work in one layer of one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// As in `qkv_proj`.
    pub name: &'static str,
    /// Its family.
    pub family: Family,
    /// Operations.
    pub flops: Flops,
    /// Weights read.
    pub weight_bytes: Bytes,
    /// KV cache read and written.
    pub kv_bytes: Bytes,
    /// The dtype that computes.
    pub dtype: Dtype,
    /// Its peak.
    pub rate: FlopRate,
    /// Rows of a product with weights.
    pub rows: u64,
    /// Query heads that read the same keys, in attention; 1 elsewhere.
    pub group: u64,
    /// Ranks that share the experts, in experts; 1 elsewhere.
    pub ranks: u64,
    /// How many times its even share of the bytes the busiest of them reads. Limits take it as 1.
    pub crowded: f64,
    /// How many layers do the same.
    pub layers: u64,
}

impl Work {
    /// Whether it is a product of rows that the step has, not of cached tokens.
    pub fn is_product(&self) -> bool {
        self.family == Family::Gemm && self.name != "kv_b_proj"
    }

    /// Whether it depends on the context: attention, or what is expanded for it.
    pub fn attends(&self) -> bool {
        matches!(self.family, Family::Attention | Family::Indexer) || self.name == "kv_b_proj"
    }
}

/// Every operator of one forward pass through all stages, on the busiest rank of each. `batch` is the whole
/// deployment's: replicas and data-parallel ranks share it.
pub fn work(deployment: &Deployment, batch: &Batch) -> Vec<Work> {
    let p = deployment.parallelism;
    let replica = batch.local(p.replicas);
    let rank = replica.local(p.attention_dp);
    let pass = Pass {
        deployment,
        tokens: rank.tokens(),
        sampled: rank.sequences(),
        replica_tokens: replica.tokens(),
        rank: &rank,
    };
    deployment.stages.iter().flat_map(|stage| pass.stage(stage)).collect()
}

/// One forward pass on its busiest rank.
struct Pass<'a> {
    deployment: &'a Deployment,
    rank: &'a Batch,
    /// Tokens of this rank.
    tokens: u64,
    /// Rows that reach lm_head.
    sampled: u64,
    /// Tokens of the whole replica, which all meet at the experts.
    replica_tokens: u64,
}

impl Pass<'_> {
    fn stage(&self, stage: &Stage) -> Vec<Work> {
        let mut all = Vec::new();
        if stage.embedding_row > Bytes::ZERO
            && self.deployment.convention == crate::deployment::Convention::Default
        {
            all.push(self.work(
                "embedding",
                Family::Embedding,
                Flops::ZERO,
                stage.embedding_row * self.tokens,
            ));
        }
        for (block, layers) in &stage.blocks {
            let from = all.len();
            self.block(block, &mut all);
            for work in &mut all[from..] {
                work.layers = *layers;
            }
        }
        for gemm in &stage.outer {
            let rows = if gemm.operator == "lm_head" { self.sampled } else { self.tokens };
            all.push(self.gemm(gemm, rows));
        }
        all
    }

    fn block(&self, block: &Block, all: &mut Vec<Work>) {
        for gemm in &block.gemms {
            match (gemm.operator, &block.mixer) {
                // The attention operator decides how often the latent is expanded.
                ("kv_b_proj", Mixer::Latent(_)) => {}
                ("attention", _) => {}
                _ => all.push(self.gemm(gemm, self.tokens)),
            }
        }
        match &block.mixer {
            Mixer::Attention(attention) => self.attention(attention, all),
            Mixer::Latent(latent) => self.latent(latent, block, all),
            Mixer::Compressed(compressed) => self.compressed(compressed, block, all),
            Mixer::Both(attention, _) => {
                self.attention(attention, all);
                all.push(self.recurrent(block));
            }
            Mixer::GatedDelta(_)
            | Mixer::Kda(_)
            | Mixer::Lightning(_)
            | Mixer::Mamba(_)
            | Mixer::Mamba2(_)
            | Mixer::ShortConv(_) => all.push(self.recurrent(block)),
            Mixer::None => {}
        }
        if let Some(shard) = &block.experts {
            all.push(self.experts(shard));
        }
    }

    fn work(&self, name: &'static str, family: Family, flops: Flops, weight_bytes: Bytes) -> Work {
        let dtype = self.deployment.base;
        let rate = self.base_rate();
        Work {
            name,
            family,
            flops,
            weight_bytes,
            kv_bytes: Bytes::ZERO,
            dtype,
            rate,
            rows: 0,
            group: 1,
            ranks: 1,
            crowded: 1.0,
            layers: 1,
        }
    }

    fn base_rate(&self) -> FlopRate {
        let peaks = &self.deployment.accelerator.peak_flops;
        // Resolving the deployment has made sure that the rate is there.
        peaks.get(&self.deployment.base).copied().unwrap_or(FlopRate(f64::MIN_POSITIVE))
    }

    /// `rows × elements` multiply-adds; the weights cross the bus once.
    fn gemm(&self, gemm: &Gemm, rows: u64) -> Work {
        let flops = Flops(2 * u128::from(rows) * u128::from(gemm.elements));
        let family = if gemm.operator == "norms" { Family::Elementwise } else { Family::Gemm };
        Work {
            dtype: gemm.dtype,
            rate: gemm.rate,
            rows,
            ..self.work(gemm.operator, family, flops, gemm.weight_bytes)
        }
    }
}
