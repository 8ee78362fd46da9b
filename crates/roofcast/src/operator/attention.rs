//! Grouped attention's work: pairs of queries and keys, and the cache that crosses the bus; an indexer's scores.

use super::{ContextForm, DecodeForm, Demand, Form, Operator, SequenceForm, operator};
use crate::coefficients::{last_tiles, masked_keys};
use crate::deployment::Deployment;
use crate::kv_cache::layout::span;
use crate::model::mixer::causal_pairs;
use crate::model::{Attention, OperatorKind};
use crate::precision::Dtype;
use crate::spec::KvLayout;
use crate::units::{float, number};

/// Grouped attention on one rank: 2·heads·(d_qk + d_v) FLOPs a query-key pair; each token that is seen crosses the bus
/// once, old ones are read, new ones written. Where an index chooses, a decode reads no more than its blocks; of many new
/// tokens the least is counted, as if their choices overlapped like windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Grouped {
    attention: Attention,
    flops_per_pair: f64,
    bytes_per_token: f64,
    row_bytes: f64,
    tail: f64,
    table: Table,
}

impl Grouped {
    #[inline(always)]
    pub(super) fn demand(&self, new: u64, context: u64) -> [f64; 2] {
        let seen = self.attention.seen(new, context);
        let bytes = number(seen) * self.bytes_per_token + self.table.bytes(seen, context);
        [self.flops_per_pair * float(self.attention.pairs(new, context)), bytes]
    }

    /// Bytes of a token's query and of the values that come of it, in all heads of the rank.
    pub(super) fn row_bytes(&self) -> f64 {
        self.row_bytes
    }

    /// FLOPs of pairs that a query's tile computes and a mask hides, where the query's sequence has `context`.
    pub(super) fn masked(&self, context: u64) -> f64 {
        self.flops_per_pair * masked_keys(self.reach() < context)
    }

    /// FLOPs that all multiprocessors could compute while the last tile of queries ends in a sequence of `context`.
    pub(super) fn tail(&self, context: u64) -> f64 {
        self.tail * float(u128::from(context.min(self.reach())))
    }

    fn reach(&self) -> u64 {
        self.attention.chunk.or(self.attention.reach()).unwrap_or(u64::MAX)
    }
}

/// What a kernel reads to find the blocks of a sequence, where a layout is named. Every rank reads it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Table {
    layout: Option<KvLayout>,
    block: u64,
}

impl Table {
    pub(super) fn of(deployment: &Deployment) -> Table {
        Table { layout: deployment.engine.kv_layout, block: deployment.engine.block_size }
    }

    /// Bytes that find the last `seen` of `context` tokens.
    pub(super) fn bytes(&self, seen: u64, context: u64) -> f64 {
        self.layout.map_or(0.0, |l| l.read(1, u128::from(span(seen, context, self.block))) as f64)
    }

    /// The same as bytes of a sequence and bytes of a token, over whole blocks.
    pub(super) fn linear(&self) -> [f64; 2] {
        let of = |sequences, blocks| self.layout.map_or(0.0, |l| l.read(sequences, blocks) as f64);
        [of(1, 0), of(0, 1) / self.block as f64]
    }
}

/// Attention, and the index that chooses for it.
pub(super) fn operators(deployment: &Deployment, a: &Attention) -> Vec<Operator> {
    let tp = deployment.parallelism.tp;
    let flops_per_pair = (2 * a.heads.div_ceil(tp) * (a.head_dim + a.v_head_dim)) as f64;
    let elements = a.kv_elements_per_token() as f64 / deployment.kv_parts(a.kv_heads) as f64;
    let bytes_per_token = elements * deployment.kv.width.as_f64() / 8.0;
    let table = Table::of(deployment);
    let [of_sequence, of_token] = table.linear();
    let reach = a.chunk.or(a.reach()).unwrap_or(u64::MAX);
    let mut decode = DecodeForm::linear(reach, flops_per_pair, bytes_per_token + of_token);
    decode.fixed.kv_bytes = of_sequence;
    let form = ContextForm {
        sequence: SequenceForm::Grouped(Grouped {
            attention: a.clone(),
            flops_per_pair,
            bytes_per_token,
            row_bytes: flops_per_pair / 2.0 * f64::from(deployment.base.bits()) / 8.0,
            tail: 2.0 * (a.head_dim + a.v_head_dim) as f64 * last_tiles(&deployment.accelerator),
            table,
        }),
        decode,
        heads: a.heads.div_ceil(tp),
        group: a.heads.div_ceil(a.kv_heads.max(1)).max(1),
        head_dim: a.head_dim,
        narrow: deployment.kv.width.as_f64() <= 8.5,
        weight_bytes: 0.0,
    };
    let mut all = vec![operator(deployment, OperatorKind::Attention, Form::Context(form))];
    if let Some(index) = &a.index {
        // The heads split like KV heads, the one key is whole everywhere.
        let flops_per_pair = index.flops_per_pair().div_ceil(u128::from(tp.min(index.heads))) as f64;
        let scores = Scores { ratio: 1, flops_per_pair, bytes_per_key: index.bytes(1) as f64 };
        all.push(indexer(deployment, deployment.base, scores));
    }
    all
}

/// An indexer's scores: so many operations for each pair of a query and a key before it, every key read or written once.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Tokens of a key: 1, or those of a compressed entry.
    pub ratio: u64,
    /// Operations for each pair of a query and a key.
    pub flops_per_pair: f64,
    /// Bytes of a key.
    pub bytes_per_key: f64,
}

impl Scores {
    #[inline(always)]
    pub(super) fn demand(&self, new: u64, context: u64) -> [f64; 2] {
        let before = context - new.min(context);
        let pairs = match self.ratio {
            1 => causal_pairs(new, context, None),
            ratio => {
                crate::model::mixer::entry_pairs(context, ratio, u64::MAX)
                    - crate::model::mixer::entry_pairs(before, ratio, u64::MAX)
            }
        };
        [self.flops_per_pair * pairs as f64, self.bytes_per_key * (context / self.ratio) as f64]
    }
}

/// The operator of an indexer that computes in `dtype` where the chip has it.
pub(super) fn indexer(deployment: &Deployment, dtype: Dtype, scores: Scores) -> Operator {
    let ratio = scores.ratio as f64;
    let term = Demand {
        flops: scores.flops_per_pair / ratio,
        kv_bytes: scores.bytes_per_key / ratio,
        weight_bytes: 0.0,
    };
    let form = ContextForm {
        sequence: SequenceForm::Scores(scores),
        decode: DecodeForm { fixed: Demand::default(), terms: vec![(u64::MAX, term)] },
        heads: 0,
        group: 1,
        head_dim: 0,
        narrow: false,
        weight_bytes: 0.0,
    };
    let one = operator(deployment, OperatorKind::Indexer, Form::Context(form));
    match deployment.accelerator.peak_flops.get(&dtype) {
        Some(rate) => Operator { dtype, rate: *rate, ..one },
        None => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Sequences};
    use crate::deployment::Options;
    use crate::model::config;
    use crate::operator::operators;
    use std::sync::Arc;

    /// The first attention of a model on an H100 of 132 multiprocessors, with FLOPs of a pair of tokens.
    fn attention(model: &str) -> ContextForm {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let deployment = Deployment::resolve(model, chip, &Options::default()).unwrap();
        let found = operators(&deployment).into_iter().find(|o| o.kind == OperatorKind::Attention).unwrap();
        let Form::Context(form) = found.form else { panic!("{:?}", found.form) };
        form
    }

    /// Llama-3.1-8B: 32 heads of 128, 4·128 FLOPs a pair in each. A query has half a tile of 128 keys masked. All of 132
    /// multiprocessors wait for the last 128 queries of one head and their 4096 keys. 2·32·128 values of two
    /// bytes are read and written a query. Decodes have none of it.
    #[test]
    fn tiles_by_hand() {
        let form = attention("meta-llama/Llama-3.1-8B-Instruct");
        let prompt = Sequences::prompt(1024, 4096, true);
        let (masked, tail) = (1024.0 * 64.0 * 32.0 * 512.0, 132.0 * 128.0 * 4096.0 * 512.0);
        assert_eq!(form.tiles(&[prompt], 1.0), masked + tail);
        assert_eq!(form.tiles(&[prompt, prompt], 0.5), 2.0 * masked + 0.5 * tail);
        assert_eq!(form.row_bytes(&[prompt]), 1024.0 * 2.0 * 32.0 * 128.0 * 2.0);
        let decodes = Batch::decode(8, 4096).groups;
        assert_eq!([form.tiles(&decodes, 1.0), form.row_bytes(&decodes)], [0.0; 2]);
    }

    /// gpt-oss-20b: 64 heads of 64, every other layer with a window of 128: a query masks a tile and a half, the last
    /// queries see 128 keys.
    #[test]
    fn tiles_of_a_window_by_hand() {
        let form = attention("openai/gpt-oss-20b");
        let prompt = Sequences::prompt(1024, 4096, true);
        let (masked, tail) = (1024.0 * 192.0 * 64.0 * 256.0, 132.0 * 128.0 * 128.0 * 256.0);
        assert_eq!(form.tiles(&[prompt], 1.0), masked + tail);
    }
}
