//! Time: the step model with coefficients put to it.
//!
//! Knows: an operator takes `max(c, m) + x min(c, m)` in each layer, with `c = FLOPs/(e_c peak)`, `m = bytes/(e_m BW)` and
//! the share x of the shorter that the longer does not hide, and a call; a step adds its messages, its host, its
//! sequences and its tokens. With ideal coefficients that is the limit. All times are in seconds. Knows nothing about
//! where coefficients come from, and nothing about schedules.

use crate::batch::Seen;
use crate::coefficients::{AttentionKernel, Coefficients, Overhead, Rates, mixed_tokens, waiting};
use crate::model::OperatorKind;
use crate::operator::{ContextForm, Demand, Form, Matrix, Operator, Rows};
use crate::shares::Shares;
use crate::step::{Contexts, Pass, StepModel};
use crate::units::number;
use std::sync::Arc;

/// A step model with coefficients.
#[derive(Debug, Clone)]
pub struct Timing {
    /// What a step does.
    pub model: Arc<StepModel>,
    /// What it takes.
    pub coefficients: Arc<Coefficients>,
    /// What each operator reaches.
    rates: Vec<Rates>,
    /// Operators whose work depends on more than the rows of the rank that are computed or sampled, and whether they attend.
    varying: Vec<(usize, bool)>,
    overhead: Overhead,
}

/// A step of decodes alone: `fixed + slope · seen + Σ slopes[r] · seen within r`, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct AffineStep {
    /// Whatever the context, by what binds.
    pub fixed: Shares<f64>,
    /// For each token that is seen, of all sequences.
    pub slope: f64,
    /// For each that is seen within each reach of the model.
    pub slopes: Vec<f64>,
}

impl Timing {
    /// Puts `coefficients` to `model`.
    pub fn new(model: Arc<StepModel>, coefficients: Arc<Coefficients>) -> Timing {
        let rates = model.operators.iter().map(|o| coefficients.rates(o, model.bandwidth)).collect();
        let overhead = coefficients.overhead(&model);
        let operators = model.operators.iter().enumerate();
        let varying = operators.filter(|(_, o)| !o.form.is_of_rows()).map(|(i, o)| (i, o.kind.attends()));
        let varying = varying.collect();
        Timing { model, coefficients, rates, varying, overhead }
    }

    /// Whether every step takes the same as with `other`, which has the same model: what differs in their coefficients is of
    /// no operator here.
    pub fn equals(&self, other: &Timing) -> bool {
        self.rates == other.rates && self.overhead == other.overhead
    }

    /// What the operator at `index` demands in one layer of a pass.
    pub fn demand(&self, index: usize, pass: &Pass) -> Demand {
        match &self.model.operators[index].form {
            Form::Product { rows, matrix } => Demand {
                flops: 2.0 * matrix.elements * rows_of(*rows, pass) as f64,
                weight_bytes: matrix.weight_bytes,
                kv_bytes: 0.0,
            },
            Form::Lookup { row_bytes } => {
                Demand { weight_bytes: row_bytes * pass.rows as f64, ..Demand::default() }
            }
            Form::Experts(experts) => experts.demand(pass.tokens),
            Form::Context(form) => {
                let mut demand = decoding(&self.model, form, pass);
                demand += form.demand(&pass.chunks);
                Demand { weight_bytes: form.weight_bytes, ..demand }
            }
        }
    }

    /// Time bound by arithmetic and time bound by memory of the operator at `index` in all its layers, without its calls.
    #[inline(always)]
    pub fn time(&self, index: usize, pass: &Pass) -> [f64; 2] {
        let operator = &self.model.operators[index];
        let rates = &self.rates[index];
        let one = match &operator.form {
            Form::Product { rows, matrix } => rates.product(rows_of(*rows, pass), matrix),
            Form::Experts(experts) => {
                let demand = experts.demand(pass.tokens);
                // No faster than what even routing touches at the whole bandwidth, as limits have it.
                let touched =
                    || experts.imbalance(pass.tokens) * experts.uneven(pass.tokens).max(rates.share);
                let skew = if rates.even { 1.0 } else { touched() };
                match rates.blocks {
                    Some(blocks) if pass.tokens <= blocks.few => {
                        rates.one_by_one(experts.in_blocks(pass.tokens, blocks))
                    }
                    Some(blocks) => rates.time(experts.in_blocks(pass.tokens, blocks)),
                    None => rates.time(Demand { weight_bytes: demand.weight_bytes * skew, ..demand }),
                }
            }
            Form::Context(form) => {
                let [compute, memory] = self.context(operator, form, rates, pass);
                let passed = if rates.activation > 0.0 {
                    form.row_bytes(&pass.chunks) * rates.activation
                } else {
                    0.0
                };
                [compute, memory + passed]
            }
            Form::Lookup { .. } => rates.time(self.demand(index, pass)),
        };
        let layers = number(operator.layers);
        [one[0] * layers, one[1] * layers]
    }

    /// Seconds that calling the operator at `index` takes in all its layers.
    pub fn calls(&self, index: usize) -> f64 {
        let operator = &self.model.operators[index];
        self.coefficients.call(operator) * operator.layers as f64
    }

    /// Seconds that the operator at `index` computes in all its layers, whatever hides it.
    pub fn computing(&self, index: usize, pass: &Pass) -> f64 {
        self.demand(index, pass).flops * self.rates[index].flop * self.model.operators[index].layers as f64
    }

    /// What work on contexts takes, without what prompts take and give beside it.
    #[inline(always)]
    fn context(&self, operator: &Operator, form: &ContextForm, rates: &Rates, pass: &Pass) -> [f64; 2] {
        if let Some(kernel) = self.backend(operator) {
            return rates.time(self.crossing(form, rates, &kernel, pass));
        }
        if pass.longest > 0 && pass.decodes > 0 && rates.mixed_rows > 1.0 {
            return self.beside(form, rates, pass);
        }
        rates.time(self.attending(form, rates, pass))
    }

    /// The backend that computes `operator`, where one was asked for.
    fn backend(&self, operator: &Operator) -> Option<AttentionKernel> {
        self.coefficients.attention.filter(|_| operator.kind == OperatorKind::Attention)
    }

    /// What work on contexts comes to in tiles.
    #[inline(always)]
    fn attending(&self, form: &ContextForm, rates: &Rates, pass: &Pass) -> Demand {
        let mut demand = self.decoding(form, rates, pass);
        demand += prompts(form, rates, pass);
        Demand { weight_bytes: form.weight_bytes, ..demand }
    }

    /// What decodes demand: each sequence counts as [`Rates::start`] tokens longer, and too few sequences to fill the chip as
    /// more bytes, as many as take equally long at the share of the bandwidth.
    #[inline(always)]
    fn decoding(&self, form: &ContextForm, rates: &Rates, pass: &Pass) -> Demand {
        let mut demand = decoding(&self.model, form, pass);
        demand.kv_bytes += started(form, rates, pass.decodes);
        demand.kv_bytes *= rates.slowdown_of_few(form, pass.decodes);
        demand
    }

    /// What attention demands where a backend was asked for: decodes and prompts have kernels of their own. However often
    /// one reads the cache, it starts a decode once.
    fn crossing(&self, form: &ContextForm, rates: &Rates, kernel: &AttentionKernel, pass: &Pass) -> Demand {
        let mut demand = decoding(&self.model, form, pass);
        demand.kv_bytes *= kernel.crossings(form, pass.decodes);
        demand.kv_bytes += started(form, rates, pass.decodes);
        demand += prompts(form, rates, pass);
        demand.kv_bytes += kernel.score_bytes(form, &pass.chunks);
        Demand { weight_bytes: form.weight_bytes, ..demand }
    }

    /// Attention of decodes and prompts in one kernel, which computes tiles of rows for both.
    fn beside(&self, form: &ContextForm, rates: &Rates, pass: &Pass) -> [f64; 2] {
        let decodes = self.decoding(form, rates, pass);
        let first: f64 =
            form.decode.fixed.flops + form.decode.terms.iter().map(|(_, t)| t.flops).sum::<f64>();
        let started = first * pass.decodes as f64 * mixed_tokens(pass.longest);
        let tiles = (decodes.flops + started) * rates.mixed_rows * rates.flop;
        let moving = decodes.kv_bytes * rates.byte;
        let prompts = Demand { weight_bytes: form.weight_bytes, ..prompts(form, rates, pass) };
        let [computing, reading] = rates.time(prompts);
        if tiles > moving { [tiles + computing, reading] } else { [computing, moving + reading] }
    }

    /// The products of `rows` that are computed, with the look-ups, or of those that are sampled: what depends on nothing but
    /// their number.
    pub fn products(&self, of: Rows, rows: u64) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for (operator, rates) in self.model.operators.iter().zip(&self.rates) {
            let one = match operator.form {
                Form::Product { rows: those, ref matrix } if those == of => rates.product(rows, matrix),
                Form::Lookup { row_bytes } if of == Rows::Computed => {
                    rates.time(Demand { weight_bytes: row_bytes * rows as f64, ..Demand::default() })
                }
                _ => continue,
            };
            sum[0] += one[0] * operator.layers as f64;
            sum[1] += one[1] * operator.layers as f64;
        }
        sum
    }

    /// One microbatch through all stages; the products are those of its rows, [`Rows::Computed`] and [`Rows::Sampled`].
    #[inline(always)]
    pub fn pass(&self, pass: &Pass, [computed, sampled]: [[f64; 2]; 2]) -> Shares<f64> {
        let mut shares = Shares { compute: computed[0], memory: computed[1], ..Shares::default() };
        let mut attention = Shares::default();
        for &(index, attends) in &self.varying {
            let [compute, memory] = self.time(index, pass);
            let shares = if attends { &mut attention } else { &mut shares };
            shares.compute += compute;
            shares.memory += memory;
        }
        shares.compute += sampled[0];
        shares.memory += sampled[1];
        self.finish(pass, shares).plus(attention)
    }

    /// The same with its products.
    fn whole(&self, pass: &Pass) -> Shares<f64> {
        let products = [self.products(Rows::Computed, pass.rows), self.products(Rows::Sampled, pass.sampled)];
        self.pass(pass, products)
    }

    /// Adds to everything but attention what a pass has besides. The host's launches go on beside all of that; attention,
    /// which grows with the context, is counted on top.
    #[inline(always)]
    fn finish(&self, pass: &Pass, mut shares: Shares<f64>) -> Shares<f64> {
        let overhead = &self.overhead;
        let rows = number(pass.rows);
        shares.communication += overhead.messages.time(rows) + overhead.link * rows;
        shares.host += overhead.step + overhead.sequence * number(pass.sequences);
        shares.host += if pass.ends { overhead.ending } else { 0.0 };
        shares.memory += overhead.token * rows + overhead.routed * number(pass.tokens);
        let launched = pass.longest > 0 && pass.rows > overhead.captured;
        let launches = if launched { overhead.prefill_launches } else { overhead.launches };
        shares.host += waiting(shares.total(), launches);
        shares
    }

    /// What a step takes on top for `tokens` of a rank that pass `adapters` distinct LoRA adapters, each like `adapter`: the
    /// step reads each once.
    pub fn adapters(&self, adapter: &Operator, adapters: u64, tokens: u64) -> Shares<f64> {
        let Form::Product { matrix: Matrix { elements, weight_bytes, .. }, .. } = adapter.form else {
            return Shares::default();
        };
        let [compute, memory] = self.coefficients.rates(adapter, self.model.bandwidth).time(Demand {
            flops: 2.0 * elements * tokens as f64,
            weight_bytes: weight_bytes * adapters as f64,
            kv_bytes: 0.0,
        });
        Shares { compute, memory, ..Shares::default() }
    }

    /// A step of `n` sequences that decode one token each and nothing else.
    pub fn decode(&self, n: u64) -> AffineStep {
        let within = vec![0; self.model.reaches.len()];
        let (mut slope, mut slopes) = (0.0, vec![0.0; within.len()]);
        // All microbatches are alike.
        let nothing = Contexts::Seen(Seen { all: 0, within: &within });
        let Some(pass) = self.model.passes(n, nothing, &[]).next() else {
            return AffineStep { fixed: Shares::default(), slope, slopes };
        };
        for (operator, rates) in self.model.operators.iter().zip(&self.rates) {
            let Form::Context(form) = &operator.form else { continue };
            let crossings = match self.backend(operator) {
                Some(kernel) => kernel.crossings(form, pass.decodes),
                None => rates.slowdown_of_few(form, pass.decodes),
            };
            for (reach, term) in &form.decode.terms {
                let index = self.model.reaches.partition_point(|r| r < reach);
                let layers = operator.layers as f64;
                let term = Demand { kv_bytes: term.kv_bytes * crossings, ..*term };
                let seconds = slopes.get_mut(index).unwrap_or(&mut slope);
                *seconds += rates.time(term).iter().sum::<f64>() * layers * pass.share;
            }
        }
        AffineStep { fixed: self.whole(&pass), slope, slopes }
    }

    /// A step: the longest of its microbatches.
    pub fn step<'a>(&self, passes: impl Iterator<Item = Pass<'a>>) -> Shares<f64> {
        let all = passes.map(|pass| self.whole(&pass));
        all.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
    }

    /// Whether the attention of decodes is bound by memory in some operator.
    pub fn attention_is_memory_bound(&self) -> bool {
        self.model.operators.iter().zip(&self.rates).any(|(operator, rates)| match &operator.form {
            Form::Context(form) => {
                form.decode.terms.iter().any(|(_, t)| t.kv_bytes * rates.byte > t.flops * rates.flop)
            }
            _ => false,
        })
    }
}

#[inline]
fn rows_of(rows: Rows, pass: &Pass) -> u64 {
    match rows {
        Rows::Computed => pass.rows,
        Rows::Sampled => pass.sampled,
    }
}

/// What the prompts of a pass demand of an operator, without its weights: all that tiles compute, with queries and values that
/// cross the bus, where it is not a limit's.
#[inline(always)]
fn prompts(form: &ContextForm, rates: &Rates, pass: &Pass) -> Demand {
    let mut demand = form.demand(&pass.chunks);
    if !rates.exact {
        demand.flops += form.tiles(&pass.chunks, rates.tail);
        demand.kv_bytes += form.row_bytes(&pass.chunks);
    }
    if rates.start > 0.0 {
        let single = pass.chunks.iter().filter(|s| !s.is_prompt()).map(|s| s.count).sum();
        demand.kv_bytes += started(form, rates, single);
    }
    demand
}

/// Bytes that starting `sequences` of one token each is worth.
fn started(form: &ContextForm, rates: &Rates, sequences: u64) -> f64 {
    if rates.start > 0.0 { rates.start * form.token_bytes() * number(sequences) } else { 0.0 }
}

/// What the decoding sequences of a pass demand of an operator, without its weights.
#[inline(always)]
fn decoding(model: &StepModel, form: &ContextForm, pass: &Pass) -> Demand {
    match &pass.contexts {
        Contexts::Groups(groups) => form.demand(groups),
        Contexts::Seen(seen) => {
            let mut demand = form.decode.fixed.times(number(pass.decodes));
            for (reach, term) in &form.decode.terms {
                let tokens = if *reach == u64::MAX {
                    seen.all
                } else {
                    let index = model.reaches.partition_point(|r| r < reach);
                    seen.within.get(index).copied().unwrap_or_default()
                };
                demand += term.times(number(tokens) * pass.share);
            }
            demand
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::{Deployment, Options};
    use crate::model::config;
    use crate::quantized_kernel::RowBlocks;
    use std::borrow::Cow;

    /// Qwen3-30B-A3B in bf16 on an H100: 48 layers, each of whose experts has 3·2048·768 weights. 16 tokens are few: each of
    /// their 128 copies reads an expert in 2.817 µs at 3.35 TB/s, and computes 9.437 MFLOP in 9.54 ns at 989.4 TFLOP/s, of which
    /// nothing is hidden. 64 tokens fill tiles, are bound by memory and hide what they compute.
    #[test]
    fn few_tokens_read_their_experts_one_by_one() {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model("Qwen/Qwen3-30B-A3B").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let deployment = Deployment::resolve(model, chip, &Options::default()).unwrap();
        let mut coefficients = Coefficients::ideal(1.0, 1.0);
        let blocks = RowBlocks { few: 31, at_once: 1, tile: 32, width: None, resident: 0 };
        coefficients.regimes.expert_rows = Some(blocks);
        let timing = Timing::new(Arc::new(StepModel::compile(&deployment)), Arc::new(coefficients));
        let experts = timing.model.operators.iter().position(|o| o.kind == OperatorKind::Experts).unwrap();
        let of = |tokens| {
            let pass = Pass {
                rows: tokens,
                sampled: tokens,
                sequences: tokens,
                tokens,
                decodes: tokens,
                share: 1.0,
                contexts: Contexts::Groups(Cow::Borrowed(&[])),
                chunks: Cow::Borrowed(&[]),
                longest: 0,
                ends: false,
            };
            timing.time(experts, &pass)
        };
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
        let [compute, memory] = of(16);
        near(compute, 48.0 * 128.0 * 9.437e6 / 989.4e12);
        near(memory, 48.0 * 128.0 * 9.437e6 / 3.35e12);
        // 512 copies touch 512/(1 + 4) experts.
        let [compute, memory] = of(64);
        near(memory, 48.0 * 102.4 * 9.437e6 / 3.35e12);
        assert_eq!(compute, 0.0);
    }
}
