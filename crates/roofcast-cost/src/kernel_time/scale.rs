//! Times of GEMM and routed experts of any size, from the nearest measured shape.
//!
//! Knows: `t = start + (t_measured − start) · limit / limit_measured` if shape or chip differ: the time beyond a
//! kernel's start is proportional to the limit of its work. On another chip the start is the least time of that kernel in its table,
//! because a floor is not work. No time is below the operator's own limit, nor below its bytes at the bandwidth that the
//! chip sustains: a table's kernel, timed again and again on one matrix, may read it from a cache.

use super::choice::MeasuredKernel;
use super::gate::Subject;
use super::{Basis, Kernels, MeasuredTimes, RateFormula};
use crate::coefficients::{SKEW, busiest};
use crate::operator::{Matrix, Operator, RoutedExperts};
use crate::profile::{Curve, KernelTable, Profiles};
use roofcast_ask::spec::EngineKind;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::model::OperatorKind;
use roofcast_facts::precision::{Dtype, WeightFormat};

/// Seconds of a GEMM with hardly any work: the shortest in tables of cuBLAS, CUTLASS and DeepGEMM on H100 to B300
/// take 2 to 5 µs.
const GEMM_START: f64 = 3e-6;
/// Seconds of an expert layer with hardly any work (routing, sorting and two grouped GEMMs): 8 to 15 µs in the
/// tables.
pub(super) const EXPERTS_START: f64 = 8e-6;

/// Approximate base-2 logarithm, wrong by at most 0.09, which suffices to find the nearest shape: reads the exponent
/// and mantissa of a float as one number.
pub(super) fn log2(value: f64) -> f64 {
    f64::from((value.max(1e-3) as f32).to_bits()) / f64::from(1_u32 << 23)
}

/// Squared distance of two sizes, in octaves (factors of 2).
pub(super) fn apart(a: f64, b: f64) -> f64 {
    let octaves = log2(a) - log2(b);
    octaves * octaves
}

/// Bits per weight and dtype of the arithmetic in a table's format.
fn format(name: &str) -> (f64, Dtype) {
    match name {
        "fp8" | "fp8-dynamic" | "fp8-block" => (8.0, Dtype::Fp8),
        "w8a8-int8" => (8.0, Dtype::Int8),
        "nvfp4" => (4.5, Dtype::Fp4),
        "mxfp4-mxfp8" => (4.25, Dtype::Fp8),
        "mxfp4" => (4.25, Dtype::Bf16),
        "gptq-int4" => (4.16, Dtype::Bf16),
        _ => (16.0, Dtype::Bf16),
    }
}

/// Of a checkpoint's formats, joined by `+`, the one whose weights are as wide as an operator's, which have `bits` each.
fn part(joined: &str, bits: f64) -> &str {
    let width = |name: &str| match name.trim_end_matches("-weight-only").parse() {
        Ok(WeightFormat::Uniform(format)) => format.width.as_f64(),
        _ => format(name).0,
    };
    let difference = |name: &&str| (width(name) - bits).abs();
    joined.split('+').min_by(|a, b| difference(a).total_cmp(&difference(b))).unwrap_or(joined)
}

/// Peak FLOP/s of `chip` in `dtype`, or in 16 bits if the chip lacks `dtype`. A rate that is halved by accumulation
/// in 32 bits counts in full, because kernels scale by the unhalved rate, though no time is below the limit of the
/// actual rate.
fn rate(chip: &Accelerator, dtype: Dtype) -> f64 {
    let rate_of = |dtype| chip.peak_flops.get(&dtype).map(|rate| rate.0);
    rate_of(dtype).or(rate_of(Dtype::Bf16)).or(rate_of(Dtype::Fp16)).unwrap_or(f64::MIN_POSITIVE)
        * chip.held_back()
}

/// Limit in seconds of `m` rows of an n × k GEMM in a table's format.
fn gemm_limit(chip: &Accelerator, name: &str, [n, k]: [f64; 2], m: f64) -> f64 {
    let (bits, dtype) = format(name);
    let moving = n * k * bits / 8.0 / chip.kernel_bandwidth();
    moving.max(2.0 * m * n * k / rate(chip, dtype))
}

/// Limit in seconds of routed experts with even routing; `shape` has the axes of [`KernelTable::Experts`]: hidden,
/// inner, top-k, experts, tp, ep.
pub(super) fn experts_limit(chip: &Accelerator, name: &str, shape: [f64; 6], tokens: f64) -> f64 {
    let (moving, computing) = experts_terms(chip, name, shape, tokens);
    moving.max(computing)
}

/// Seconds in which routed experts with even routing move their weights, and compute, at the chip's rates.
fn experts_terms(chip: &Accelerator, name: &str, shape: [f64; 6], tokens: f64) -> (f64, f64) {
    let [hidden, inner, top_k, experts, tp, ep] = shape;
    let (bits, dtype) = format(name);
    // Probability that an expert is not chosen, exp(tokens ln(1 − k/E)), by libm, which is identical on every
    // machine.
    let missed = libm::exp(tokens * libm::log1p(-(top_k / experts).min(0.999_999)));
    let elements = 3.0 * hidden * inner / tp;
    let moving = experts / ep * (1.0 - missed) * elements * bits / 8.0 / chip.kernel_bandwidth();
    (moving, tokens * top_k / ep * 2.0 * elements / rate(chip, dtype))
}

/// Shape of `experts` on the axes of [`KernelTable::Experts`].
pub(super) fn experts_shape(experts: &RoutedExperts) -> [f64; 6] {
    [experts.hidden, experts.inner(), experts.per_token(), experts.count(), experts.slices, experts.ranks]
        .map(|n| n as f64)
}

impl Kernels<'_> {
    /// Format in which an operator's kernel is looked up: the deployment's weight format, of several the one of the
    /// operator's width, or 16 bits.
    pub(super) fn format_of<'a>(&'a self, operator: &Operator) -> &'a str {
        let by_bits = operator.bits();
        let weights = by_bits.map_or(self.weights, |bits| part(self.weights, bits));
        match by_bits {
            Some(bits) if bits >= 15.9 => "bf16",
            // Many 4-bit checkpoints keep attention in 8 bits.
            Some(bits) if bits > 7.0 && matches!(weights, "nvfp4" | "mxfp4") => "fp8",
            _ if operator.is_unquantized() => "bf16",
            _ if weights == "mxfp4" && operator.dtype == Dtype::Fp8 => "mxfp4-mxfp8",
            _ => weights,
        }
    }

    /// True if a table's kernel represents `operator`: 8- and 4-bit weights whose arithmetic is in 16 bits have other
    /// kernels, which `catalog/kernels.toml` describes.
    pub(super) fn is_timed(operator: &Operator, name: &str) -> bool {
        let sixteen = matches!(operator.dtype, Dtype::Bf16 | Dtype::Fp16);
        !(sixteen && matches!(name, "fp8" | "fp8-block" | "nvfp4"))
    }

    pub(super) fn gemm(
        &self,
        profiles: &Profiles,
        operator: &Operator,
        matrix: &Matrix,
        rates: &RateFormula,
    ) -> Option<(MeasuredTimes, Basis)> {
        let Matrix { elements, outputs, weight_bytes } = *matrix;
        if elements <= 0.0 || outputs <= 0.0 {
            return None;
        }
        let target = [outputs, elements / outputs];
        let curve = |kernel: &MeasuredKernel| {
            let name = kernel.section.format.as_str();
            if !Self::is_timed(operator, name) {
                return None;
            }
            let distance = |s: &[u32]| Some(apart(s[0].into(), target[0]) + apart(s[1].into(), target[1]));
            let (index, shape) = kernel.section.nearest(distance)?;
            let shape = [f64::from(shape[0]), f64::from(shape[1])];
            let limits =
                |m: f64| (gemm_limit(self.chip, name, target, m), gemm_limit(kernel.chip, name, shape, m));
            let exact = shape == target && kernel.chip.id == self.chip.id;
            let curve = scaled(&kernel.section.curve(index)?, exact, self.start(kernel, GEMM_START), limits);
            let quantizing = self.quantizing(operator, kernel);
            Some((curve.map(|_, seconds| seconds + quantizing), shape == target))
        };
        let moves = |name: &str, m: f64| {
            let (bits, dtype) = format(name);
            bits / 8.0 / self.chip.kernel_bandwidth() >= 2.0 * m / rate(self.chip, dtype)
        };
        let floor = |m: f64| {
            let moving = weight_bytes / self.chip.readable_bandwidth();
            moving.max(2.0 * elements * m / self.chip.sustained(operator.dtype, operator.rate))
        };
        let subject = Subject { table: KernelTable::Gemm, curve: &curve, moves: &moves, on_one_rank: None };
        if let Some(chosen) = self.plausible(profiles, &subject, self.format_of(operator)) {
            return Some(self.above(chosen, floor));
        }
        let untimed = |m: f64| rates.product(m as u64, matrix).into_iter().sum();
        let decide =
            |m: f64| weight_bytes / self.chip.kernel_bandwidth() >= 2.0 * elements * m / operator.rate.0;
        operator.bits().filter(|bits| *bits < 15.9)?;
        let (curve, basis) =
            self.bounded(profiles, &subject, (&untimed, self.described(operator)), &decide)?;
        Some((MeasuredTimes::Rows(curve.map(|m, seconds| seconds.max(floor(m)))), basis))
    }

    pub(super) fn experts(
        &self,
        profiles: &Profiles,
        operator: &Operator,
        experts: &RoutedExperts,
    ) -> Option<(MeasuredTimes, Basis)> {
        let target = experts_shape(experts);
        // These kernels were timed with a skew, in place of which a stated imbalance counts.
        let skew = busiest(experts.count(), experts.ranks, SKEW);
        let skew = if experts.busiest.is_some() { skew } else { 1.0 };
        let gated = experts.elements_over_gated();
        let timed = |kernel: &MeasuredKernel, target: [f64; 6]| {
            let name = kernel.section.format.as_str();
            if !Self::is_timed(operator, name) {
                return None;
            }
            // Experts without a gate were timed with two matrices of a gated expert's three, and say nothing about gated ones.
            let ungated = kernel.section.kernel.ends_with("nongated");
            if ungated && gated > 0.99 {
                return None;
            }
            let matrices = if ungated { 2.0 / 3.0 } else { 1.0 };
            // The degrees of parallelism matter less than the dimensions of one expert.
            const WEIGHTS: [f64; 6] = [1.0, 1.0, 1.0, 1.0, 0.5, 0.5];
            let distance =
                |s: &[u32]| Some((0..6).map(|i| WEIGHTS[i] * apart(s[i].into(), target[i])).sum::<f64>());
            let (index, shape) = kernel.section.nearest(distance)?;
            let shape: [f64; 6] = std::array::from_fn(|i| f64::from(shape[i]));
            let limits = |tokens: f64| {
                let own_limit = gated * experts_limit(self.chip, name, target, tokens);
                (own_limit, matrices * experts_limit(kernel.chip, name, shape, tokens))
            };
            let exact = shape == target && kernel.chip.id == self.chip.id && gated > 0.99;
            let curve =
                scaled(&kernel.section.curve(index)?, exact, self.start(kernel, EXPERTS_START), limits);
            Some((curve.map(|tokens, _| curve.at(experts.busiest_tokens(tokens) / skew)), shape == target))
        };
        let decide = |name: &str, target: [f64; 6], tokens: f64| {
            let (moving, computing) = experts_terms(self.chip, name, target, tokens);
            moving >= computing
        };
        let floor = |tokens: f64| {
            let demand = experts.demand(tokens as u64);
            let moving = demand.weight_bytes / self.chip.readable_bandwidth();
            moving.max(demand.flops / self.chip.sustained(operator.dtype, operator.rate))
        };
        let [hidden, inner, top_k, count, ..] = target;
        let whole = [hidden, inner, top_k, count, 1.0, 1.0];
        let table = KernelTable::Experts;
        let curve = |kernel: &MeasuredKernel| timed(kernel, whole);
        let moves = |name: &str, tokens: f64| decide(name, whole, tokens);
        let on_one_rank = Subject { table, curve: &curve, moves: &moves, on_one_rank: None };
        let curve = |kernel: &MeasuredKernel| timed(kernel, target);
        let moves = |name: &str, tokens: f64| decide(name, target, tokens);
        let on_one_rank = Some(&on_one_rank).filter(|_| whole != target);
        let subject = Subject { table, curve: &curve, moves: &moves, on_one_rank };
        let format = self.format_of(operator);
        let (curve, basis) = self.plausible(profiles, &subject, format)?;
        Some(self.above((curve, basis.standing_for(format)), floor))
    }

    /// Seconds of `kernel` that do not scale with its work: among shapes of a chip `usual`, on another chip the kernel's
    /// least time in its table, because the ratio of two chips' rates must not multiply a floor.
    pub(super) fn start(&self, kernel: &MeasuredKernel, usual: f64) -> f64 {
        if kernel.chip.id == self.chip.id { usual } else { kernel.section.start() }
    }

    /// Seconds of the kernel that quantizes a product's input, if the table times the product alone, as SGLang's does; tables
    /// of vLLM and TensorRT-LLM include it (shortest times of the tables, see `docs/cost-model.md`). The input of the last
    /// product of an MLP is quantized by the activation's kernel.
    fn quantizing(&self, operator: &Operator, kernel: &MeasuredKernel) -> f64 {
        let narrow = matches!(kernel.section.format.as_str(), "fp8" | "fp8-block" | "nvfp4");
        let fused = operator.kind == OperatorKind::DownProj
            || matches!(self.asking.engine.kind, EngineKind::TensorrtLlm);
        if narrow && !fused && EngineKind::of(&kernel.section.engine) == EngineKind::Sglang {
            self.coefficients.engine.small_kernel
        } else {
            0.0
        }
    }

    /// Times of the chosen kernel, never below the limit.
    fn above(&self, (curve, basis): (Curve, Basis), floor: impl Fn(f64) -> f64) -> (MeasuredTimes, Basis) {
        let factor = self.coefficients.factor;
        (MeasuredTimes::Rows(curve.map(|size, seconds| (seconds * factor).max(floor(size)))), basis)
    }
}

/// Scales a measured curve to another shape or chip; `limits` returns the limits of the operator and of the measured
/// shape at a size.
pub(super) fn scaled(curve: &Curve, exact: bool, start: f64, limits: impl Fn(f64) -> (f64, f64)) -> Curve {
    if exact {
        return curve.clone();
    }
    curve.map(|size, seconds| {
        let (asked, measured) = limits(size);
        let start = start.min(0.8 * seconds);
        start + (seconds - start) * asked / measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::Coefficients;
    use crate::operator::Form;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_ask::spec::PrecisionSpec;

    /// A measured 13 µs include a start of 3 µs: a shape with twice the limit takes 3 + 2 · 10 = 23 µs.
    #[test]
    fn what_exceeds_the_start_scales_with_the_limit() {
        let curve = Curve::new([(1.0, 13e-6)]).unwrap();
        let twice = scaled(&curve, false, 3e-6, |_| (2e-6, 1e-6)).at(1.0);
        assert!((twice / 23e-6 - 1.0).abs() < 1e-12, "{twice}");
        assert_eq!(scaled(&curve, true, 3e-6, |_| (2e-6, 1e-6)).at(1.0), 13e-6);
    }

    /// A weight of DeepSeek-V4's products has 8 bits; one of its experts has 4, and a scale of 8 bits for each 32 weights:
    /// 4.25.
    #[test]
    fn several_formats_are_told_by_their_width() {
        assert_eq!([8.0, 4.25].map(|bits| part("fp8-block+mxfp4", bits)), ["fp8-block", "mxfp4"]);
        assert_eq!([8.0, 4.5].map(|bits| part("nvfp4-weight-only+fp8", bits)), ["fp8", "nvfp4-weight-only"]);
        assert_eq!(part("gptq-int4", 8.0), "gptq-int4");
    }

    /// Products of a 4-bit checkpoint whose weights have 8 bits are those of attention, with fp8 kernels; those with 16 bits are
    /// not quantized, and those with 4.5 are the format's own.
    #[test]
    fn attention_kept_in_8_bits_has_its_kernels() {
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = roofcast_facts::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
        let chip = catalog.accelerator("b200").unwrap().clone();
        let precision = PrecisionSpec { weights: Some("nvfp4".into()), ..PrecisionSpec::default() };
        let options = DeploymentOptions { precision, ..DeploymentOptions::default() };
        let deployment = Deployment::resolve(model.into(), chip.into(), &options).unwrap();
        let coefficients = Coefficients::ideal(1.0, 1.0);
        let kernels = Kernels::of(&deployment, &coefficients);
        let operators = crate::operator::operators(&deployment);
        let product = operators.iter().find(|o| o.kind == OperatorKind::OProj).unwrap();
        let format = |bits: f64| {
            let mut operator = product.clone();
            if let Form::Product { matrix, .. } = &mut operator.form {
                matrix.weight_bytes = matrix.elements * bits / 8.0;
            }
            kernels.format_of(&operator).to_owned()
        };
        assert_eq!([16.0, 8.0, 4.5].map(format), ["bf16", "fp8", "nvfp4"]);
    }

    /// 8 is three octaves above 1, and 3 is 1.585 octaves above 1.
    #[test]
    fn octaves_are_near_enough() {
        assert_eq!(apart(8.0, 1.0), 9.0);
        assert!((log2(3.0) - log2(1.0) - 1.585).abs() < 0.09);
    }

    /// 128 experts of 3 · 2048 · 768 weights, 8 per token: one token reads 8 experts, 8 · 4.72 M · 2 bytes at 3.35
    /// TB/s in 22.5 µs; half the time with the experts on two ranks, or with each expert cut into two slices.
    #[test]
    fn limits_of_experts_by_hand() {
        let chip = Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
        let limit = |tp, ep| experts_limit(chip, "bf16", [2048.0, 768.0, 8.0, 128.0, tp, ep], 1.0);
        let whole = 8.0 * 3.0 * 2048.0 * 768.0 * 2.0 / 3.35e12;
        assert!((limit(1.0, 1.0) / whole - 1.0).abs() < 1e-9, "{}", limit(1.0, 1.0));
        assert!((limit(1.0, 2.0) / whole - 0.5).abs() < 1e-9 && (limit(2.0, 1.0) / whole - 0.5).abs() < 1e-9);
    }

    use roofcast_facts::Catalog;
}
