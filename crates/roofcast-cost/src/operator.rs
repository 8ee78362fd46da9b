//! The operators of a forward pass in coefficient form: work as a function of rows, sequences, context and experts.
//!
//! Knows: FLOPs, weight bytes and KV bytes of each operator on the busiest accelerator of its stage. Knows nothing
//! about time: [`crate::timing`] computes times of operators. Counted: GEMMs, the matrix products of attention,
//! weights and KV. Not counted: the arithmetic of softmax, norms and activation functions (below 0.1 % of FLOPs), and
//! activation bytes, which a limit assumes to stay on chip.

mod attention;
pub(crate) mod collective;
mod compressed;
pub(crate) mod exchange;
mod latent;
mod lora;
mod moe;
mod recurrent;
pub(crate) mod shared_sequences;

pub(crate) use attention::{Grouped, Scores};
pub(crate) use compressed::CompressedForm;
pub(crate) use latent::LatentForm;
pub use lora::{AdaptedTokens, Adapter};
pub(crate) use moe::RoutedExperts;
pub(crate) use recurrent::Recurrence;
use roofcast_ask::deployment::{Block, Deployment, Gemm, PipelineStage};
use roofcast_facts::batch::Sequences;
use roofcast_facts::model::{Mixer, OperatorKind};
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::{Bytes, FlopRate, number};
use std::ops::AddAssign;

/// Operator of a forward pass, in all layers in which its work is equal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operator {
    /// Kind of operator.
    pub(crate) kind: OperatorKind,
    /// Number of layers that have the operator.
    pub(crate) layers: u64,
    /// Dtype of the arithmetic.
    pub(crate) dtype: Dtype,
    /// Peak FLOP/s in `dtype`.
    pub(crate) rate: FlopRate,
    /// Work in one layer, as a function of the step.
    pub(crate) form: Form,
    /// True if weights or cache lie in the host's memory.
    pub(crate) on_host: bool,
}

impl Operator {
    /// True if the weights have 16 bits or more, by their bytes, or by kind of operator without a matrix; many checkpoints
    /// quantize routed experts alone, and GGUF files lm_head, too.
    pub(crate) fn is_unquantized(&self) -> bool {
        match &self.form {
            Form::Product { matrix, .. } => matrix.weight_bytes >= 2.0 * matrix.elements,
            _ => self.kind.is_unquantized(),
        }
    }

    /// Bits per weight, scales and biases included; `None` for an operator without a weight matrix.
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
pub(crate) enum Form {
    /// GEMM over rows: 2·elements FLOPs per row; the weights are read once.
    Product {
        /// Rows that the GEMM computes.
        rows: Rows,
        /// Weight matrix.
        matrix: Matrix,
    },
    /// Look-up of one row of a table for every row of the step.
    Lookup {
        /// Bytes of a table row on this rank.
        row_bytes: f64,
    },
    /// Routed experts.
    Experts(RoutedExperts),
    /// Work that depends on the context of each sequence.
    Context(ContextForm),
}

impl Form {
    /// True if the work depends only on the number of computed or sampled rows of the rank.
    pub(crate) fn is_of_rows(&self) -> bool {
        matches!(self, Form::Product { .. } | Form::Lookup { .. })
    }
}

/// Weight matrix on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Matrix {
    /// Number of elements.
    pub(crate) elements: f64,
    /// Output values per row of the input.
    pub(crate) outputs: f64,
    /// Bytes of the elements, biases included.
    pub(crate) weight_bytes: f64,
}

impl Matrix {
    /// Work of a GEMM of `rows` rows.
    pub(crate) fn work(&self, rows: u64) -> Work {
        let flops = 2.0 * self.elements * rows as f64;
        Work { flops, weight_bytes: self.weight_bytes, kv_bytes: 0.0 }
    }
}

/// Rows of a step for which an operator computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Rows of all tokens.
    Computed,
    /// Rows whose logits are sampled.
    Sampled,
}

/// FLOPs and bytes of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Work {
    /// FLOPs of arithmetic.
    pub(crate) flops: f64,
    /// Bytes of weights read.
    pub(crate) weight_bytes: f64,
    /// Bytes of KV cache or state, read and written.
    pub(crate) kv_bytes: f64,
}

impl Work {
    /// Returns the work of `times` equal operators.
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

/// Work that depends on the context of each sequence, plus weights that are read once per step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContextForm {
    /// Exact work of any sequence, decode or prompt chunk.
    pub(crate) sequence: SequenceForm,
    /// Work of a sequence that decodes one token: `fixed + Σ term · min(context, reach)`.
    pub(crate) decode: DecodeForm,
    /// Shape by which the kernel was timed.
    pub(crate) shape: KernelShape,
    /// True if a cached value has at most 8 bits.
    pub(crate) narrow: bool,
    /// Bytes of weights, read once per step.
    pub(crate) weight_bytes: f64,
}

/// Shape of an attention or recurrence kernel on one rank, in the terms of the kernel tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelShape {
    /// Softmax attention over keys and values.
    Grouped {
        /// Number of query heads.
        heads: u64,
        /// Number of query heads that share one key head.
        group: u64,
        /// Width of a key head.
        head_dim: u64,
        /// Window in tokens; 0 for full attention.
        window: u64,
    },
    /// Softmax attention over latents (MLA).
    Latent {
        /// Number of query heads.
        heads: u64,
    },
    /// A recurrence over a state.
    Recurrent {
        /// Kind of recurrence, as in `gated-delta`.
        kind: &'static str,
        /// Number of key heads.
        key_heads: u64,
        /// Width of a key, or of a row of the state.
        key_dim: u64,
        /// Number of value heads.
        value_heads: u64,
        /// Width of a value.
        value_dim: u64,
    },
    /// Work that is in no table of kernel times.
    Other,
}

impl KernelShape {
    /// Number of query heads of grouped attention, and number of query heads that share one key head; 0 and 1 for
    /// other work.
    pub(crate) fn heads_and_group(self) -> [u64; 2] {
        match self {
            KernelShape::Grouped { heads, group, .. } => [heads, group],
            _ => [0, 1],
        }
    }
}

/// Work of one decoded token: a constant, plus terms proportional to the tokens of context within each reach.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct DecodeForm {
    /// Work that does not depend on the context.
    pub(crate) fixed: Work,
    /// Reach in tokens and work per token of context within the reach; `u64::MAX` means the whole context.
    pub(crate) terms: Vec<(u64, Work)>,
}

impl DecodeForm {
    /// Creates a form with `flops` and `kv_bytes` for each token of context up to `reach`.
    fn linear(reach: u64, flops: f64, kv_bytes: f64) -> DecodeForm {
        let term = Work { flops, kv_bytes, weight_bytes: 0.0 };
        DecodeForm { fixed: Work::default(), terms: vec![(reach, term)] }
    }
}

/// Work of one sequence, by kind of mixer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SequenceForm {
    /// Softmax attention over keys and values.
    Grouped(Grouped),
    /// Softmax attention over latents (MLA).
    Latent(LatentForm),
    /// Expansion of latents to keys and values.
    Expansion(LatentForm),
    /// Softmax attention over a window and compressed entries.
    Compressed(CompressedForm),
    /// Scores of an indexer.
    Scores(Scores),
    /// A recurrence over a state.
    Recurrence(Recurrence),
}

impl SequenceForm {
    /// True if an indexer chooses the keys, which no timed kernel reads: the tables' attention reads all keys, or a window.
    pub(crate) fn chooses(&self) -> bool {
        match self {
            SequenceForm::Grouped(form) => form.is_indexed(),
            SequenceForm::Latent(form) => form.is_indexed(),
            _ => false,
        }
    }

    /// FLOPs and KV bytes of one sequence that computes `new` tokens, at the end of `context` tokens.
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
    /// Bytes of KV cache per token of context that a decoding sequence reads.
    pub(crate) fn token_bytes(&self) -> f64 {
        self.decode.terms.iter().map(|(_, term)| term.kv_bytes).sum()
    }

    /// Exact work of all `sequences`.
    #[inline(always)]
    pub(crate) fn demand(&self, sequences: &[Sequences]) -> Work {
        let mut sum = Work::default();
        for s in sequences {
            sum += self.sequence.demand(s.new, s.context).times(number(s.count));
        }
        sum
    }
}

/// Lists every operator of one forward pass through all stages, on the busiest rank of each stage, in order of
/// execution.
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
    let products = all.len();
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
    for operator in all.iter_mut().skip(products) {
        operator.on_host = block.cache_on_host;
    }
    all.extend(block.experts.iter().flat_map(|shard| moe::operators(deployment, shard)));
    all
}

/// Creates an operator of one layer, in the deployment's base dtype.
fn operator(deployment: &Deployment, kind: OperatorKind, form: Form) -> Operator {
    let dtype = deployment.base;
    // The deployment is validated, so the rate exists.
    let rate = deployment.accelerator.peak_flops.get(&dtype).copied().unwrap_or(FlopRate(f64::MIN_POSITIVE));
    Operator { kind, layers: 1, dtype, rate, form, on_host: false }
}

/// Creates the operator of a GEMM with weights.
fn product(gemm: &Gemm) -> Operator {
    let rows = if gemm.operator == OperatorKind::LmHead { Rows::Sampled } else { Rows::Computed };
    let matrix = Matrix {
        elements: gemm.elements as f64,
        outputs: gemm.outputs as f64,
        weight_bytes: gemm.weight_bytes.as_f64(),
    };
    let form = Form::Product { rows, matrix };
    let on_host = gemm.on_host;
    Operator { kind: gemm.operator, layers: 1, dtype: gemm.dtype, rate: gemm.rate, form, on_host }
}
