//! Times of steps: the step model evaluated with measured kernels, or with efficiencies.
//!
//! Knows: an operator takes, in each of its layers, the time from [`crate::kernel_time`]; a step adds the times
//! outside operators ([`Overhead`]). With the coefficients of a limit, the result is the limit. All times are in
//! seconds. Knows nothing about the origin of coefficients, and nothing about schedules.

mod affine;
mod messages;
mod overhead;
mod overlap;
mod shared;

use crate::coefficients::{AttentionKernel, Coefficients, KernelTimes};
use crate::kernel_time::{Basis, Context, KernelTime, Kernels, MeasuredTimes, RateFormula};
use crate::operator::{AdaptedTokens, Adapter, ContextForm, Form, Matrix, Operator, Rows, Work};
use crate::step::{Contexts, Pass, StepModel};
pub use affine::AffineStep;
pub(crate) use messages::Messages;
pub use overhead::Floor;
pub(crate) use overhead::{Overhead, PassOverhead};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::parallelism::Parallelism;
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::encoder::EncoderTime;
use roofcast_facts::model::OperatorKind;
use roofcast_facts::shares::BottleneckShares;
use roofcast_facts::units::number;
use std::sync::Arc;

/// Step model together with its times.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Work of a step.
    pub model: Arc<StepModel>,
    /// Coefficients behind the times.
    pub(crate) coefficients: Arc<Coefficients>,
    /// Kernel time of each operator, in the order of the model's operators.
    operators: Vec<KernelTime>,
    /// LoRA adapters; `None` if none are served.
    lora: Option<AdapterTimes>,
    /// Indices of the operators whose work depends on more than the rank's computed or sampled rows, each with true
    /// if it attends to context.
    varying: Vec<(usize, bool)>,
    overhead: Overhead,
    /// Encoder of the images in prompts; `None` without images.
    images: Option<EncoderTime>,
}

/// Times of LoRA adapters, which no table has.
#[derive(Debug, Clone)]
struct AdapterTimes {
    /// Matrices of one adapter.
    adapter: Adapter,
    /// Number of buffers of a rank.
    max_loras: u64,
    /// Time of 16-bit GEMMs from efficiencies.
    rates: RateFormula,
    /// Seconds of the kernels of a step in a captured graph, beyond their FLOPs and bytes; 0 at a limit.
    kernels: f64,
}

impl Timing {
    /// Evaluates `model`, compiled from `deployment`, with `coefficients`.
    pub fn new(deployment: &Deployment, model: Arc<StepModel>, coefficients: Arc<Coefficients>) -> Timing {
        let kernels = Kernels::of(deployment, &coefficients);
        let operators = model.operators.iter().map(|o| kernels.time(o)).collect();
        let messages = Messages::of(deployment, &model.links, &coefficients);
        let overhead = Overhead::of(&model, &coefficients, messages);
        let lora = deployment.engine.lora.as_ref().map(|settings| {
            let adapter = Adapter::of(deployment, settings);
            let times = Kernels::of(deployment, &coefficients);
            let kernels = number(adapter.kernels) * overhead.small_kernel;
            let rates = times.time(&adapter.operator(deployment)).rates;
            AdapterTimes { adapter, max_loras: settings.max_loras, rates, kernels }
        });
        let numbered = model.operators.iter().enumerate();
        let varying = numbered.filter(|(_, o)| !o.form.is_of_rows()).map(|(i, o)| (i, o.kind.attends()));
        let varying = varying.collect();
        Timing { model, coefficients, operators, lora, varying, overhead, images: None }
    }

    /// The times with an encoder of the images in prompts.
    pub fn encoding(self, images: Option<EncoderTime>) -> Timing {
        Timing { images, ..self }
    }

    /// Times of the steps of one data-parallel rank, whose sequences are not divided further.
    pub fn of_rank(self) -> Timing {
        let parallelism = Parallelism { attention_dp: 1, ..self.model.parallelism };
        Timing { model: Arc::new(StepModel { parallelism, ..(*self.model).clone() }), ..self }
    }

    /// True if ranks that step together pad their rows to the rows of the busiest rank, `rows`, because the step runs
    /// in a captured graph; `prompts` is true if it computes prompts. A limit pads nothing.
    pub fn pads(&self, rows: u64, prompts: bool) -> bool {
        matches!(self.coefficients.kernels, KernelTimes::Measured { .. })
            && self.overhead.is_captured(rows, prompts)
    }

    /// True if every step takes as long as with `other`, whose model must be equal: the coefficients may differ only
    /// for operators that the model lacks.
    pub fn equals(&self, other: &Timing) -> bool {
        self.operators == other.operators && self.overhead == other.overhead
    }

    /// Measurement or assumption behind the time of the operator at `index`.
    pub(crate) fn basis(&self, index: usize) -> &Basis {
        &self.operators[index].basis
    }

    /// Work of the operator at `index` in one layer of a pass.
    pub(crate) fn demand(&self, index: usize, pass: &Pass) -> Work {
        match &self.model.operators[index].form {
            Form::Product { rows, matrix } => matrix.work(pass.rows_of(*rows)),
            Form::Lookup { row_bytes } => {
                Work { weight_bytes: row_bytes * pass.rows as f64, ..Work::default() }
            }
            Form::Experts(experts) => experts.demand(pass.tokens),
            Form::Context(form) => {
                let mut demand = decoding(&self.model, form, pass);
                demand += form.demand(&pass.chunks);
                Work { weight_bytes: form.weight_bytes, ..demand }
            }
        }
    }

    /// Compute-bound and memory-bound seconds of the operator at `index` in all its layers.
    #[inline(always)]
    pub(crate) fn time(&self, index: usize, pass: &Pass) -> [f64; 2] {
        let operator = &self.model.operators[index];
        let kernel = &self.operators[index];
        let layer_times = match (&operator.form, &kernel.measured) {
            (Form::Product { rows, matrix }, _) => gemm(operator, kernel, pass.rows_of(*rows), matrix),
            (Form::Experts(_), Some(MeasuredTimes::Rows(curve))) => {
                bound(curve.at(number(pass.tokens)), pass.tokens > COMPUTE_BOUND_TOKENS)
            }
            (Form::Experts(_), Some(MeasuredTimes::Exchanged(curves))) => {
                let curve = &curves[usize::from(pass.has_prompts())];
                bound(curve.at(number(pass.tokens)), pass.tokens > COMPUTE_BOUND_TOKENS)
            }
            (Form::Experts(experts), _) => kernel.rates.experts(experts, pass.tokens),
            (Form::Context(form), Some(MeasuredTimes::Context(context)))
                if self.backend(operator).is_none() =>
            {
                self.attending(form, context, pass)
            }
            (Form::Context(form), _) => self.context(operator, form, &kernel.rates, pass),
            (Form::Lookup { .. }, _) => kernel.rates.time(self.demand(index, pass)),
        };
        let layer_times = match &kernel.host {
            Some(host) => host.time(self.demand(index, pass), host_rows(&operator.form, pass), layer_times),
            None => layer_times,
        };
        let sampled = matches!(operator.form, Form::Product { rows: Rows::Sampled, .. });
        let part = if sampled { 1.0 } else { self.model.pipelined(pass) };
        let layers = number(operator.layers) * part;
        [layer_times[0] * layers, layer_times[1] * layers]
    }

    /// Seconds of arithmetic of the operator at `index` in all its layers, overlapped or not.
    pub(crate) fn computing(&self, index: usize, pass: &Pass) -> f64 {
        let flop = self.operators[index].rates.flop;
        let part = self.model.pipelined(pass);
        self.demand(index, pass).flops * flop * self.model.operators[index].layers as f64 * part
    }

    /// Compute-bound and memory-bound seconds of measured attention, for the decodes and prompts of a pass.
    #[inline(always)]
    fn attending(&self, form: &ContextForm, context: &Context, pass: &Pass) -> [f64; 2] {
        let verifying = |c: &&Sequences| !c.is_prompt();
        let single: u64 = pass.chunks.iter().filter(verifying).map(|c| c.count).sum();
        let n = pass.decodes + single;
        let [start, slope] = context.decodes(number(n));
        let mut seen = seen(&self.model, form, pass);
        for chunk in pass.chunks.iter().filter(verifying) {
            let reach = form.decode.terms.first().map_or(u64::MAX, |(reach, _)| *reach);
            seen += number(chunk.count) * number(chunk.context.min(reach));
        }
        [context.prompts(form, &pass.chunks), start + slope * seen]
    }

    /// Compute-bound and memory-bound seconds of context-dependent work whose kernel was not timed, or whose backend
    /// was requested by name.
    fn context(&self, operator: &Operator, form: &ContextForm, rates: &RateFormula, pass: &Pass) -> [f64; 2] {
        let mut demand = decoding(&self.model, form, pass);
        let kernel = self.backend(operator);
        if let Some(kernel) = &kernel {
            demand.kv_bytes *= kernel.crossings(form, pass.decodes);
        }
        demand += form.demand(&pass.chunks);
        if let Some(kernel) = &kernel {
            demand.kv_bytes += kernel.score_bytes(form, &pass.chunks);
        }
        rates.time(Work { weight_bytes: form.weight_bytes, ..demand })
    }

    /// Requested attention backend for `operator`; `None` if none was requested.
    fn backend(&self, operator: &Operator) -> Option<AttentionKernel> {
        self.coefficients.attention.filter(|_| operator.kind == OperatorKind::Attention)
    }

    /// Seconds of the GEMMs and look-ups over `rows` computed rows, or over `rows` sampled rows: the part of a pass
    /// that depends on the number of rows alone.
    pub fn products(&self, of: Rows, rows: u64) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for (operator, kernel) in self.model.operators.iter().zip(&self.operators) {
            let layer_products = match operator.form {
                Form::Product { rows: those, ref matrix } if those == of => {
                    let near = gemm(operator, kernel, rows, matrix);
                    kernel.host.map_or(near, |host| host.time(matrix.work(rows), rows, near))
                }
                Form::Lookup { row_bytes } if of == Rows::Computed => {
                    let weight_bytes = row_bytes * rows as f64;
                    kernel.rates.time(Work { weight_bytes, ..Work::default() })
                }
                _ => continue,
            };
            sum[0] += layer_products[0] * operator.layers as f64;
            sum[1] += layer_products[1] * operator.layers as f64;
        }
        sum
    }

    /// Time of one microbatch through all stages; `products` are the results of [`Timing::products`] for its computed
    /// and its sampled rows.
    #[inline(always)]
    pub fn pass(&self, pass: &Pass, products: [[f64; 2]; 2]) -> BottleneckShares<f64> {
        let text = self.text_pass(pass, products);
        let busy = match &self.images {
            Some(encoder) => text.plus(encoder.beside(&pass.chunks)),
            None => text,
        };
        let floor = self.overhead.floor(pass);
        let device = busy.total();
        if floor.binds(device) { BottleneckShares::paced(floor.server, floor.seconds, device) } else { busy }
    }

    /// Time of one microbatch without encoders, and without the wait for the host's loop.
    #[inline(always)]
    fn text_pass(&self, pass: &Pass, products: [[f64; 2]; 2]) -> BottleneckShares<f64> {
        if self.overlaps(pass) {
            return self.overlapped(pass, products);
        }
        let (operators, attention) = self.operators_of(pass, products);
        let beside = self.overhead.beside(pass, operators.total()).shares();
        operators.plus(attention).plus(beside)
    }

    /// Overhead of a pass: small kernels, host, launches and links.
    pub(crate) fn beside(&self, pass: &Pass) -> PassOverhead {
        let products = self.all_products(pass);
        let beside = match self.overlaps(pass) {
            true => self.overhead_of_halves(pass, &self.halves(pass, products)),
            false => self.overhead.beside(pass, self.operators_of(pass, products).0.total()),
        };
        let floor = self.overhead.floor(pass);
        let waits = (floor.seconds - self.text_pass(pass, products).total()).max(0.0);
        let [host, server] = if floor.server { [0.0, waits] } else { [waits, 0.0] };
        PassOverhead { host: beside.host + host, server, ..beside }
    }

    /// Times of operators that do not attend to context, and of operators that do.
    #[inline(always)]
    pub(super) fn operators_of(
        &self,
        pass: &Pass,
        [computed, sampled]: [[f64; 2]; 2],
    ) -> (BottleneckShares<f64>, BottleneckShares<f64>) {
        let computed = computed.map(|seconds| seconds * self.model.pipelined(pass));
        let mut shares =
            BottleneckShares { compute: computed[0], memory: computed[1], ..BottleneckShares::default() };
        let mut attention = BottleneckShares::default();
        for &(index, attends) in &self.varying {
            let [compute, memory] = self.time(index, pass);
            let shares = if attends { &mut attention } else { &mut shares };
            shares.compute += compute;
            shares.memory += memory;
        }
        shares.compute += sampled[0];
        shares.memory += sampled[1];
        (shares, attention)
    }

    pub(super) fn all_products(&self, pass: &Pass) -> [[f64; 2]; 2] {
        [self.products(Rows::Computed, pass.rows), self.products(Rows::Sampled, pass.sampled)]
    }

    /// Time of one microbatch, its GEMMs included.
    fn whole(&self, pass: &Pass) -> BottleneckShares<f64> {
        self.pass(pass, self.all_products(pass))
    }

    /// Time that LoRA adapters add to a step for the tokens `own` of a rank, where `all` are those of all ranks that share
    /// experts; 0 if none are served.
    pub fn adapters(&self, own: AdaptedTokens, all: AdaptedTokens) -> BottleneckShares<f64> {
        // A token of another rank has the number of its buffer there (vLLM 0.33, `prepare_finalize/naive_dp_ep.py`), so that
        // a rank reads the experts of its own buffers alone.
        let Some(AdapterTimes { adapter, max_loras, rates, kernels }) = &self.lora else {
            return BottleneckShares::default();
        };
        let [compute, memory] =
            rates.time(adapter.demand(own, AdaptedTokens { adapters: all.adapters.min(*max_loras), ..all }));
        BottleneckShares { compute, memory: memory + kernels, ..BottleneckShares::default() }
    }

    /// Time of a step of `n` sequences that decode one token each, and nothing else.
    pub fn decode(&self, n: u64) -> AffineStep {
        self.decode_among(n, |_| ())
    }

    /// Like [`Timing::decode`], for a pass that `change` modifies.
    pub fn decode_among(&self, n: u64, change: impl FnOnce(&mut Pass)) -> AffineStep {
        let within = vec![0; self.model.reaches.len()];
        let mut slope = 0.0;
        let mut slopes = vec![0.0; within.len()];
        // All microbatches are equal.
        let nothing = Contexts::Seen(Seen { all: 0, within: &within });
        let Some(mut pass) = self.model.passes(n, nothing, &[]).next() else {
            return AffineStep {
                fixed: BottleneckShares::default(),
                slope,
                slopes,
                hidden: [0.0; 2],
                floor: Floor::default(),
            };
        };
        change(&mut pass);
        let decodes = self.half(&pass).map_or(pass.decodes, |half| half.decodes);
        for (operator, kernel) in self.model.operators.iter().zip(&self.operators) {
            let Form::Context(form) = &operator.form else { continue };
            let backend = self.backend(operator);
            let crossings = backend.map_or(1.0, |kernel| kernel.crossings(form, decodes));
            for (reach, term) in &form.decode.terms {
                let index = self.model.reaches.partition_point(|r| r < reach);
                let seconds = match &kernel.measured {
                    Some(MeasuredTimes::Context(context)) if backend.is_none() => {
                        context.decodes(number(decodes))[1] / form.decode.terms.len() as f64
                    }
                    _ => {
                        let term = Work { kv_bytes: term.kv_bytes * crossings, ..*term };
                        kernel.rates.without_start(term).iter().sum::<f64>()
                    }
                };
                let seconds = kernel
                    .host
                    .map_or(seconds, |host| host.time(*term, decodes, [0.0, seconds]).iter().sum());
                *slopes.get_mut(index).unwrap_or(&mut slope) += seconds * operator.layers as f64 * pass.share;
            }
        }
        let fixed = self.text_pass(&pass, self.all_products(&pass));
        AffineStep { fixed, slope, slopes, hidden: self.hidden(&pass), floor: self.overhead.floor(&pass) }
    }

    /// Time of a step: the time of its longest microbatch.
    pub fn step<'a>(&self, passes: impl Iterator<Item = Pass<'a>>) -> BottleneckShares<f64> {
        let all = passes.map(|pass| self.whole(&pass));
        all.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
    }

    /// True if the attention of decodes is memory-bound in at least one operator.
    pub fn attention_is_memory_bound(&self) -> bool {
        self.model.operators.iter().zip(&self.operators).any(|(operator, kernel)| match &operator.form {
            Form::Context(form) => {
                let rates = &kernel.rates;
                form.decode.terms.iter().any(|(_, t)| t.kv_bytes * rates.byte > t.flops * rates.flop)
            }
            _ => false,
        })
    }
}

/// Number of tokens from which on reports name experts as compute-bound.
const COMPUTE_BOUND_TOKENS: u64 = 2048;

/// Attributes a measured time to arithmetic if `computes` is true, else to memory.
#[inline(always)]
fn bound(seconds: f64, computes: bool) -> [f64; 2] {
    if computes { [seconds, 0.0] } else { [0.0, seconds] }
}

/// Compute-bound and memory-bound seconds of one GEMM of `rows` rows in one layer.
fn gemm(operator: &Operator, kernel: &KernelTime, rows: u64, matrix: &Matrix) -> [f64; 2] {
    match &kernel.measured {
        _ if rows == 0 => [0.0; 2],
        Some(MeasuredTimes::Rows(curve)) => {
            let computing = 2.0 * matrix.elements * number(rows) / operator.rate.0;
            bound(curve.at(number(rows)), computing > matrix.weight_bytes * kernel.rates.byte)
        }
        // Operators without a matrix, such as norms and biases, are counted among small kernels.
        _ if matrix.elements <= 0.0 => {
            kernel.rates.without_start(Work { weight_bytes: matrix.weight_bytes, ..Work::default() })
        }
        _ => kernel.rates.product(rows, matrix),
    }
}

/// Rows by which llama.cpp decides whether the host computes an operator.
fn host_rows(form: &Form, pass: &Pass) -> u64 {
    match form {
        Form::Product { rows, .. } => pass.rows_of(*rows),
        Form::Experts(_) => pass.tokens,
        Form::Lookup { .. } | Form::Context(_) => pass.rows,
    }
}

/// Tokens of context that the decodes of a pass read in an operator, over all sequences of the rank.
#[inline(always)]
fn seen(model: &StepModel, form: &ContextForm, pass: &Pass) -> f64 {
    let Some((reach, _)) = form.decode.terms.first() else { return 0.0 };
    match &pass.contexts {
        Contexts::Groups(groups) => {
            groups.iter().map(|g| number(g.count) * number(g.context.min(*reach))).sum()
        }
        Contexts::Seen(seen) => number(within(model, *seen, *reach)) * pass.share,
    }
}

#[inline(always)]
fn within(model: &StepModel, seen: Seen, reach: u64) -> u64 {
    if reach == u64::MAX {
        return seen.all;
    }
    let index = model.reaches.partition_point(|r| *r < reach);
    seen.within.get(index).copied().unwrap_or_default()
}

/// Work of an operator for the decoding sequences of a pass, without the operator's weights.
#[inline(always)]
fn decoding(model: &StepModel, form: &ContextForm, pass: &Pass) -> Work {
    match &pass.contexts {
        Contexts::Groups(groups) => form.demand(groups),
        Contexts::Seen(seen) => {
            let mut demand = form.decode.fixed.times(number(pass.decodes));
            for (reach, term) in &form.decode.terms {
                demand += term.times(number(within(model, *seen, *reach)) * pass.share);
            }
            demand
        }
    }
}

#[cfg(test)]
mod tests;
