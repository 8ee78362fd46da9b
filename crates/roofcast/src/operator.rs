//! The operators of a forward pass in coefficient form: work as a function of rows, sequences, context and experts.
//!
//! Knows: FLOPs, weight bytes and KV bytes of each operator on the busiest accelerator of its stage. Knows nothing
//! about time: [`crate::timing`] prices them. Counted: GEMMs, attention's matrix products, weights and KV. Left out:
//! the arithmetic of softmax, norms and activation functions (below 0.1 % of FLOPs), and activation bytes, which a
//! limit assumes stay on chip.

mod attention;
pub(crate) mod collective;
mod compressed;
mod latent;
mod lora;
mod moe;
mod recurrent;

use crate::batch::Sequences;
use crate::deployment::{Block, Deployment, Gemm, PipelineStage};
use crate::model::{Mixer, OperatorKind};
use crate::precision::Dtype;
use crate::units::{Bytes, FlopRate, number};
pub(crate) use attention::{Grouped, Scores};
pub(crate) use compressed::CompressedForm;
pub(crate) use latent::LatentForm;
pub(crate) use lora::adapter;
pub(crate) use moe::RoutedExperts;
pub(crate) use recurrent::Recurrence;
use std::ops::AddAssign;

/// An operator, over all equal layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// Kind of operator.
    pub kind: OperatorKind,
    /// Number of layers that have the operator.
    pub layers: u64,
    /// The dtype that computes.
    pub dtype: Dtype,
    /// The peak rate of that dtype.
    pub rate: FlopRate,
    /// Work in one layer.
    pub form: Form,
}

impl Operator {
    /// True if its weights have 16 bits, by kind or by their bytes. Many checkpoints quantize routed experts alone.
    pub(crate) fn is_unquantized(&self) -> bool {
        let by_bytes = match &self.form {
            Form::Product { matrix, .. } => matrix.weight_bytes >= 2.0 * matrix.elements,
            _ => false,
        };
        by_bytes || self.kind.is_unquantized()
    }

    /// Bits per weight, scales and biases included; `None` without a matrix.
    pub(crate) fn bits(&self) -> Option<f64> {
        match &self.form {
            Form::Product { matrix, .. } if matrix.elements > 0.0 => {
                Some(8.0 * matrix.weight_bytes / matrix.elements)
            }
            Form::Experts(experts) => Some(experts.bits),
            _ => None,
        }
    }
}

/// Work in one layer of one rank, as a function of the step.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// A GEMM over rows: 2·elements FLOPs a row; the weights are read once.
    Product {
        /// Rows that the GEMM computes.
        rows: Rows,
        /// Weight matrix.
        matrix: Matrix,
    },
    /// A table from which every row reads one entry.
    Lookup {
        /// Bytes of an entry on this rank.
        row_bytes: f64,
    },
    /// Routed experts.
    Experts(RoutedExperts),
    /// Work that depends on each sequence's context.
    Context(ContextForm),
}

impl Form {
    /// True if its work depends only on the rank's computed or sampled rows.
    pub(crate) fn is_of_rows(&self) -> bool {
        matches!(self, Form::Product { .. } | Form::Lookup { .. })
    }
}

/// A matrix on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matrix {
    /// Number of elements.
    pub elements: f64,
    /// Output values per row.
    pub outputs: f64,
    /// Bytes of the elements, biases included.
    pub weight_bytes: f64,
}

/// Rows of a step that an operator computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// All tokens.
    Computed,
    /// Tokens whose logits are sampled.
    Sampled,
}

/// FLOPs and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Operations.
    pub flops: f64,
    /// Weights read.
    pub weight_bytes: f64,
    /// KV cache or state, read and written.
    pub kv_bytes: f64,
}

impl Work {
    /// The demand of `times` equal operators.
    pub(crate) fn times(self, times: f64) -> Work {
        Work {
            flops: self.flops * times,
            weight_bytes: self.weight_bytes * times,
            kv_bytes: self.kv_bytes * times,
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.flops += other.flops;
        self.weight_bytes += other.weight_bytes;
        self.kv_bytes += other.kv_bytes;
    }
}

/// Work that depends on each sequence's context. Weight bytes are the operator's, once a step.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextForm {
    /// Exact work of any sequence.
    pub sequence: SequenceForm,
    /// Work of a sequence that decodes one token: `fixed + Σ term · min(context, reach)`.
    pub decode: DecodeForm,
    /// Shape by which the kernel was timed.
    pub shape: KernelShape,
    /// True if a cached value has 8 bits or fewer.
    pub narrow: bool,
    /// Weights, read once a step.
    pub weight_bytes: f64,
}

/// Shape of an attention or recurrence kernel on one rank, as it was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelShape {
    /// Softmax attention over keys and values; a window of 0 means none.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Query heads that share one key head.
        group: u64,
        /// Elements of a head's keys.
        head_dim: u64,
        /// Most tokens that a query attends to.
        window: u64,
    },
    /// Softmax attention over latents.
    Latent {
        /// Query heads.
        heads: u64,
    },
    /// A recurrence over a state.
    Recurrent {
        /// Kind of recurrence, as in `gated-delta`.
        kind: &'static str,
        /// Heads of keys.
        key_heads: u64,
        /// Elements of a key, or of a state's row.
        key_dim: u64,
        /// Heads of values.
        value_heads: u64,
        /// Elements of a value.
        value_dim: u64,
    },
    /// Work that no table of kernel times has.
    Other,
}

impl KernelShape {
    /// Query heads of grouped attention, and query heads that share one key head; 0 and 1 for other work.
    pub(crate) fn heads_and_group(self) -> [u64; 2] {
        match self {
            KernelShape::Grouped { heads, group, .. } => [heads, group],
            _ => [0, 1],
        }
    }
}

/// Work of one decoded token, affine in the tokens of context within each reach.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecodeForm {
    /// Context-independent work.
    pub fixed: Work,
    /// Work per token of the context up to a reach; `u64::MAX` is the whole context.
    pub terms: Vec<(u64, Work)>,
}

impl DecodeForm {
    /// A form with `flops` and `bytes` for each token up to `reach`.
    fn linear(reach: u64, flops: f64, kv_bytes: f64) -> DecodeForm {
        let term = Work { flops, kv_bytes, weight_bytes: 0.0 };
        DecodeForm { fixed: Work::default(), terms: vec![(reach, term)] }
    }
}

/// The work of one sequence, by the kind of mixer.
#[derive(Debug, Clone, PartialEq)]
pub enum SequenceForm {
    /// Softmax attention over keys and values.
    Grouped(Grouped),
    /// Softmax attention over latents.
    Latent(LatentForm),
    /// Keys and values from latents.
    Expansion(LatentForm),
    /// Softmax attention over a window and compressed entries.
    Compressed(CompressedForm),
    /// An indexer's scores.
    Scores(Scores),
    /// A recurrence over a state.
    Recurrence(Recurrence),
}

impl SequenceForm {
    /// FLOPs and KV bytes of one sequence that computes `new` tokens up to a context of `context`.
    #[inline(always)]
    pub(crate) fn demand(&self, new: u64, context: u64) -> Work {
        let [flops, kv_bytes] = match self {
            SequenceForm::Grouped(form) => form.demand(new, context),
            SequenceForm::Latent(form) => form.attention(new, context),
            SequenceForm::Expansion(form) => form.expansion(new, context),
            SequenceForm::Compressed(form) => form.demand(new, context),
            SequenceForm::Scores(form) => form.demand(new, context),
            SequenceForm::Recurrence(form) => form.demand(new, context),
        };
        Work { flops, kv_bytes, weight_bytes: 0.0 }
    }
}

impl ContextForm {
    /// Cache bytes per token of context of a decoding sequence.
    pub(crate) fn token_bytes(&self) -> f64 {
        self.decode.terms.iter().map(|(_, term)| term.kv_bytes).sum()
    }

    /// Exact work of `sequences`.
    #[inline(always)]
    pub(crate) fn demand(&self, sequences: &[Sequences]) -> Work {
        let mut sum = Work::default();
        for s in sequences {
            sum += self.sequence.demand(s.new, s.context).times(number(s.count));
        }
        sum
    }
}

/// Every operator of one forward pass through all stages, on the busiest rank of each, in order of execution.
pub(crate) fn operators(deployment: &Deployment) -> Vec<Operator> {
    deployment.stages.iter().flat_map(|stage| of_stage(deployment, stage)).collect()
}

fn of_stage(deployment: &Deployment, stage: &PipelineStage) -> Vec<Operator> {
    let mut all = Vec::new();
    if stage.embedding_row > Bytes::ZERO {
        let row_bytes = stage.embedding_row.as_f64();
        all.push(operator(deployment, OperatorKind::Embedding, Form::Lookup { row_bytes }));
    }
    for (block, layers) in &stage.blocks {
        all.extend(of_block(deployment, block).into_iter().map(|o| Operator { layers: *layers, ..o }));
    }
    all.extend(stage.outer.iter().map(product));
    all
}

fn of_block(deployment: &Deployment, block: &Block) -> Vec<Operator> {
    let by_mixer = |gemm: &&Gemm| {
        let expanded = matches!(block.mixer, Mixer::Latent(_)) && gemm.operator == OperatorKind::KvBProj;
        !expanded && gemm.operator != OperatorKind::Attention
    };
    let mut all: Vec<Operator> = block.gemms.iter().filter(by_mixer).map(product).collect();
    match &block.mixer {
        Mixer::Attention(a) => all.extend(attention::operators(deployment, a)),
        Mixer::Latent(l) => all.extend(latent::operators(deployment, l, block)),
        Mixer::Compressed(c) => all.extend(compressed::operators(deployment, c, block)),
        Mixer::Both(a, _) => {
            all.extend(attention::operators(deployment, a));
            all.push(recurrent::operator(deployment, block));
        }
        Mixer::GatedDelta(_)
        | Mixer::Kda(_)
        | Mixer::Lightning(_)
        | Mixer::Mamba(_)
        | Mixer::Mamba2(_)
        | Mixer::ShortConv(_) => all.push(recurrent::operator(deployment, block)),
        Mixer::None => {}
    }
    all.extend(block.experts.as_ref().map(|shard| moe::operator(deployment, shard)));
    all
}

/// An operator in the deployment's base dtype, in one layer.
fn operator(deployment: &Deployment, kind: OperatorKind, form: Form) -> Operator {
    let dtype = deployment.base;
    // Resolving the deployment has ensured that the rate exists.
    let rate = deployment.accelerator.peak_flops.get(&dtype).copied().unwrap_or(FlopRate(f64::MIN_POSITIVE));
    Operator { kind, layers: 1, dtype, rate, form }
}

/// A GEMM with `rows × elements` multiply-adds; the weights are read once.
fn product(gemm: &Gemm) -> Operator {
    let rows = if gemm.operator == OperatorKind::LmHead { Rows::Sampled } else { Rows::Computed };
    let matrix = Matrix {
        elements: gemm.elements as f64,
        outputs: gemm.outputs as f64,
        weight_bytes: gemm.weight_bytes.as_f64(),
    };
    let form = Form::Product { rows, matrix };
    Operator { kind: gemm.operator, layers: 1, dtype: gemm.dtype, rate: gemm.rate, form }
}
