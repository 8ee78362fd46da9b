//! Work of grouped attention: query-key pairs, HBM traffic of the cache, and an indexer's scores.
//!
//! Knows: the work of one rank. Knows nothing about time.

use super::{ContextForm, DecodeForm, Form, KernelShape, Operator, SequenceForm, Work, operator};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::kv_cache::layout::span;
use roofcast_ask::spec::KvLayout;
use roofcast_facts::model::mixer::causal_pairs;
use roofcast_facts::model::{Attention, OperatorKind};
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::{float, number};

/// Grouped attention on one rank: 2·heads·(d_qk + d_v) FLOPs per query-key pair; the cache of each token in reach is
/// moved once, read if old and written if new. With an index, a decode reads at most its chosen blocks; many new
/// tokens are assumed to read the fewest possible, as if their choices overlapped like windows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grouped {
    attention: Attention,
    flops_per_pair: f64,
    bytes_per_token: f64,
    table: KernelBlocks,
}

impl Grouped {
    /// True if an indexer chooses the keys.
    pub(super) fn is_indexed(&self) -> bool {
        self.attention.index.is_some()
    }

    #[inline(always)]
    pub(super) fn demand(&self, new: u64, context: u64) -> [f64; 2] {
        let seen = self.attention.seen(new, context);
        let bytes = number(seen) * self.bytes_per_token + self.table.bytes(seen, context);
        [self.flops_per_pair * float(self.attention.pairs(new, context)), bytes]
    }
}

/// Block table that a kernel reads to find the blocks of a sequence, if the spec names a layout. Every rank reads the
/// whole table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KernelBlocks {
    layout: Option<KvLayout>,
    block: u64,
}

impl KernelBlocks {
    pub(super) fn of(deployment: &Deployment) -> KernelBlocks {
        KernelBlocks { layout: deployment.engine.kv_layout, block: deployment.engine.block_size }
    }

    /// Bytes of table entries for the last `seen` of `context` tokens.
    pub(super) fn bytes(&self, seen: u64, context: u64) -> f64 {
        self.layout.map_or(0.0, |l| l.read(1, u128::from(span(seen, context, self.block))) as f64)
    }

    /// Bytes of the table per sequence, and per token in the average over a block.
    pub(super) fn linear(&self) -> [f64; 2] {
        let rate_of = |sequences, blocks| self.layout.map_or(0.0, |l| l.read(sequences, blocks) as f64);
        [rate_of(1, 0), rate_of(0, 1) / self.block as f64]
    }
}

/// Lists the operators of attention: the index that chooses blocks, if any, and attention itself.
pub(super) fn operators(deployment: &Deployment, a: &Attention) -> Vec<Operator> {
    let tp = deployment.parallelism.tp;
    let flops_per_pair = (2 * a.heads.div_ceil(tp) * (a.head_dim + a.v_head_dim)) as f64;
    let elements = a.kv_elements_per_token() as f64 / deployment.cache_parts(Some(a.kv_heads)) as f64;
    let bytes_per_token = elements * deployment.kv.width.as_f64() / 8.0;
    let table = KernelBlocks::of(deployment);
    let [of_sequence, of_token] = table.linear();
    let reach = a.chunk.or(a.reach()).unwrap_or(u64::MAX);
    let mut decode = DecodeForm::linear(reach, flops_per_pair, bytes_per_token + of_token);
    decode.fixed.kv_bytes = of_sequence;
    let form = ContextForm {
        sequence: SequenceForm::Grouped(Grouped {
            attention: a.clone(),
            flops_per_pair,
            bytes_per_token,
            table,
        }),
        decode,
        shape: KernelShape::Grouped {
            // Ranks that share the tokens of a sequence gather each other's queries.
            heads: a.heads.div_ceil(tp) * deployment.sequence_ranks,
            group: a.heads.div_ceil(a.kv_heads.max(1)).max(1),
            head_dim: a.head_dim,
            window: if reach == u64::MAX { 0 } else { reach },
        },
        narrow: deployment.kv.width.as_f64() <= 8.5,
        weight_bytes: 0.0,
    };
    let mut all = vec![operator(deployment, OperatorKind::Attention, Form::Context(form))];
    if let Some(index) = &a.index {
        // Scoring heads are split like KV heads. The one shared key is replicated on every rank; means are split with
        // the cache.
        let flops_per_pair = index.flops_per_pair().div_ceil(u128::from(tp.min(index.heads))) as f64;
        let parts = if index.means.is_some() { deployment.kv_parts(a.kv_heads) } else { 1 };
        let bytes_per_key = index.key_bytes() as f64 / parts as f64;
        let scores = Scores { ratio: index.ratio(), flops_per_pair, bytes_per_key };
        all.push(indexer(deployment, deployment.base, scores));
    }
    all
}

/// Scores of an indexer: FLOPs for each pair of a query and an earlier key, with every key read or written once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scores {
    /// Tokens per key: 1, or as many as a compressed entry covers.
    pub(crate) ratio: u64,
    /// FLOPs per pair of a query and a key.
    pub(crate) flops_per_pair: f64,
    /// Bytes per key.
    pub(crate) bytes_per_key: f64,
}

impl Scores {
    #[inline(always)]
    pub(super) fn demand(&self, new: u64, context: u64) -> [f64; 2] {
        let before = context - new.min(context);
        let pairs = match self.ratio {
            1 => causal_pairs(new, context, None),
            ratio => {
                roofcast_facts::model::mixer::entry_pairs(context, ratio, u64::MAX)
                    - roofcast_facts::model::mixer::entry_pairs(before, ratio, u64::MAX)
            }
        };
        [self.flops_per_pair * pairs as f64, self.bytes_per_key * (context / self.ratio) as f64]
    }
}

/// Creates the operator of an indexer that computes in `dtype`, if the chip supports it.
pub(super) fn indexer(deployment: &Deployment, dtype: Dtype, scores: Scores) -> Operator {
    let ratio = scores.ratio as f64;
    let term = Work {
        flops: scores.flops_per_pair / ratio,
        kv_bytes: scores.bytes_per_key / ratio,
        weight_bytes: 0.0,
    };
    let form = ContextForm {
        sequence: SequenceForm::Scores(scores),
        decode: DecodeForm { fixed: Work::default(), terms: vec![(u64::MAX, term)] },
        shape: KernelShape::Other,
        narrow: false,
        weight_bytes: 0.0,
    };
    let indexer = operator(deployment, OperatorKind::Indexer, Form::Context(form));
    match deployment.accelerator.peak_flops.get(&dtype) {
        Some(rate) => Operator { dtype, rate: *rate, ..indexer },
        None => indexer,
    }
}
