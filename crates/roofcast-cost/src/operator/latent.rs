//! Work of latent attention: absorbed or expanded, over the whole context or an indexer's choice.
//!
//! Knows: the work of one rank. Knows nothing about time.

use super::attention::{KernelBlocks, Scores, indexer};
use super::{ContextForm, DecodeForm, Form, KernelShape, Operator, SequenceForm, Work, operator};
use roofcast_ask::deployment::{Block, Deployment};
use roofcast_facts::model::OperatorKind;
use roofcast_facts::model::mixer::{Latent, causal_pairs};
use roofcast_facts::precision::Dtype;

/// Multi-head latent attention on one rank, absorbed or expanded, whichever has fewer FLOPs for a sequence.
///
/// Absorbed: scores and values are computed from the latent itself, with 2·heads·(2·rank + rope) FLOPs per pair, and
/// the up-projection is applied to the new tokens' queries and outputs. Expanded: 2·heads·(nope + rope + v) FLOPs per
/// pair, and the up-projection is applied to every token of the context.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LatentForm {
    reach: Option<u64>,
    /// FLOPs per query-key pair.
    absorbed: f64,
    expanded: f64,
    /// FLOPs of the up-projection per token.
    up: f64,
    bytes_per_token: f64,
    table: KernelBlocks,
}

impl LatentForm {
    fn of(deployment: &Deployment, l: &Latent, expansion_elements: u64) -> LatentForm {
        let p = deployment.parallelism;
        let heads = l.heads.div_ceil(p.tp);
        let parts = if deployment.ideal { p.tp } else { deployment.cache_parts(None) };
        LatentForm {
            reach: l.reach(),
            absorbed: (2 * heads * (2 * l.kv_lora_rank + l.qk_rope_head_dim)) as f64,
            expanded: (2 * heads * (l.qk_nope_head_dim + l.qk_rope_head_dim + l.v_head_dim)) as f64,
            up: 2.0 * expansion_elements as f64,
            bytes_per_token: l
                .row_bytes(deployment.kv)
                .map_or(l.cached() as f64 * deployment.kv.width.as_f64() / 8.0, |row| row as f64)
                / parts as f64,
            table: KernelBlocks::of(deployment),
        }
    }

    /// True if an indexer chooses the keys.
    pub(super) fn is_indexed(&self) -> bool {
        self.reach.is_some()
    }

    /// Query-key pairs, and true if they are computed from the latent (absorbed).
    fn pairs(&self, new: u64, context: u64) -> (f64, bool) {
        let pairs = causal_pairs(new, context, self.reach) as f64;
        let absorbing = self.absorbed * pairs + self.up * new as f64;
        let expanding = self.expanded * pairs + self.up * context as f64;
        (pairs, absorbing <= expanding)
    }

    pub(super) fn attention(&self, new: u64, context: u64) -> [f64; 2] {
        let (pairs, absorbs) = self.pairs(new, context);
        let seen = match self.reach {
            Some(topk) if absorbs => context.min(topk.saturating_add(new - new.min(1))),
            _ => context,
        };
        let flops = if absorbs { self.absorbed } else { self.expanded };
        [flops * pairs, seen as f64 * self.bytes_per_token + self.table.bytes(seen, context)]
    }

    pub(super) fn expansion(&self, new: u64, context: u64) -> [f64; 2] {
        let (_, absorbs) = self.pairs(new, context);
        [self.up * if absorbs { new } else { context } as f64, 0.0]
    }
}

/// Lists the operators: the up-projection, attention, and the indexer if there is one. Decodes are absorbed.
pub(super) fn operators(deployment: &Deployment, l: &Latent, block: &Block) -> Vec<Operator> {
    let Some(expand) = block.gemms.iter().find(|g| g.operator == OperatorKind::KvBProj) else {
        return Vec::new();
    };
    let form = LatentForm::of(deployment, l, expand.elements);
    let [of_sequence, of_token] = form.table.linear();
    let mut decode =
        DecodeForm::linear(form.reach.unwrap_or(u64::MAX), form.absorbed, form.bytes_per_token + of_token);
    decode.fixed.kv_bytes = of_sequence;
    let expansion = ContextForm {
        sequence: SequenceForm::Expansion(form.clone()),
        decode: DecodeForm { fixed: Work { flops: form.up, ..Work::default() }, terms: Vec::new() },
        shape: KernelShape::Other,
        narrow: false,
        weight_bytes: expand.weight_bytes.as_f64(),
    };
    let projection = Operator {
        dtype: expand.dtype,
        rate: expand.rate,
        ..operator(deployment, OperatorKind::KvBProj, Form::Context(expansion))
    };
    let attention = ContextForm {
        sequence: SequenceForm::Latent(form),
        decode,
        // Ranks that share the tokens of a sequence gather each other's queries.
        shape: KernelShape::Latent {
            heads: l.heads.div_ceil(deployment.parallelism.tp) * deployment.sequence_ranks,
        },
        narrow: deployment.kv.width.as_f64() <= 8.5,
        weight_bytes: 0.0,
    };
    let attention = operator(deployment, OperatorKind::LatentAttention, Form::Context(attention));
    let scores = l.indexer.as_ref().filter(|i| i.scores).map(|i| {
        let flops_per_pair = i.flops_per_pair() as f64;
        indexer(
            deployment,
            Dtype::Fp8,
            Scores { ratio: i.pool, flops_per_pair, bytes_per_key: i.bytes(1) as f64 },
        )
    });
    [projection, attention].into_iter().chain(scores).collect()
}
