//! Work of DeepSeek-V4's attention: the window, compressed entries, and the indexer that chooses among the entries.
//!
//! Knows: the work of one rank. Knows nothing about time.

use super::attention::{Scores, indexer};
use super::recurrent::Recurrence;
use super::{ContextForm, DecodeForm, Form, KernelShape, Operator, SequenceForm, Work, operator};
use roofcast_ask::deployment::{Block, Deployment};
use roofcast_facts::model::OperatorKind;
use roofcast_facts::model::mixer::Compressed;
use roofcast_facts::precision::Dtype;

/// Compressed attention on one rank: 4·heads·width FLOPs per pair (keys are also values). Window and entries are read
/// once on every rank; the rows that are kept until their window is full are read and written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompressedForm {
    compressed: Compressed,
    flops_per_pair: f64,
    bytes_per_element: f64,
    state: Recurrence,
}

impl CompressedForm {
    pub(super) fn demand(&self, new: u64, context: u64) -> [f64; 2] {
        let [_, state] = self.state.demand(new, context);
        let read = self.compressed.read_elements(new, context) as f64 * self.bytes_per_element;
        [self.flops_per_pair * self.compressed.pairs(new, context) as f64, read + state]
    }

    /// Work of a decode, which reads the window and one entry per `ratio` tokens, or the entries that an indexer
    /// chooses.
    fn decode(&self) -> DecodeForm {
        let c = &self.compressed;
        let token = Work {
            flops: self.flops_per_pair,
            kv_bytes: c.head_dim as f64 * self.bytes_per_element,
            weight_bytes: 0.0,
        };
        let entries = c.ratio.map(|ratio| {
            let reach = c.indexer.as_ref().map_or(u64::MAX, |i| i.topk.saturating_mul(ratio));
            (reach, token.times(1.0 / ratio as f64))
        });
        let [_, kv_bytes] = self.state.demand(1, 2);
        let fixed = Work { kv_bytes, ..Work::default() };
        DecodeForm { fixed, terms: [(c.window, token)].into_iter().chain(entries).collect() }
    }
}

/// Lists the operators: attention, and its indexer if there is one.
pub(super) fn operators(deployment: &Deployment, c: &Compressed, block: &Block) -> Vec<Operator> {
    let tp = deployment.parallelism.tp;
    let parts = if deployment.ideal { tp } else { 1 };
    let form = CompressedForm {
        compressed: c.clone(),
        flops_per_pair: (4 * c.heads.div_ceil(tp) * c.head_dim) as f64,
        bytes_per_element: deployment.kv.width.as_f64() / 8.0 / parts as f64,
        state: Recurrence::of(deployment, block),
    };
    let decode = form.decode();
    let form = ContextForm {
        sequence: SequenceForm::Compressed(form),
        decode,
        shape: KernelShape::Other,
        narrow: false,
        weight_bytes: 0.0,
    };
    let attention = operator(deployment, OperatorKind::CompressedAttention, Form::Context(form));
    let scores = c.indexer.as_ref().zip(c.ratio).map(|(i, ratio)| {
        let scores =
            Scores { ratio, flops_per_pair: i.flops_per_pair() as f64, bytes_per_key: i.bytes(1) as f64 };
        indexer(deployment, Dtype::Fp8, scores)
    });
    [attention].into_iter().chain(scores).collect()
}
