//! Check of a measured kernel against others that do equal work on the chip, and the kernel that takes its place.
//!
//! Knows: a kernel is implausible if it takes more than [`KIN`] times as long as the fastest of equal precision on the
//! chip, or as experts more than [`WIDER`] times as long as the kernel of the next wider format. Tables hold such times
//! because they time the kernel that an engine names without the tuning that the engine does at its start. The first
//! plausible kernel of a list takes the place of an implausible one, and no time exceeds the bounds: a narrower format is no
//! slower than the wider one, as far as its bytes decide or its arithmetic is faster. Knows nothing about the shapes of
//! operators.

use super::choice::{MeasuredKernel, candidates_for, formats, kin, substitutes};
use super::{Basis, Kernels};
use crate::coefficients::Evidence;
use crate::profile::{Curve, KernelTable, Profiles};
use roofcast_ask::spec::EngineKind;

/// Largest plausible ratio of a kernel's time to the fastest of equal precision on the chip: kernels of engines for
/// equal work differ by up to 2 in the tables, beyond which stand those timed without tuning.
pub(super) const KIN: f64 = 2.5;
/// Largest plausible ratio of a kernel's time to the time of the wider format. A kernel between 1 and this ratio counts with the
/// wider format's time: the tables add a launch that quantizes activations to each product, and the forecast assumes that the
/// engine does it in the kernel before.
const WIDER: f64 = 1.25;

/// Work whose measured kernels are compared.
pub(super) struct Subject<'f> {
    pub(super) table: KernelTable,
    /// Curve of a kernel for the work, and true if the shape was timed.
    pub(super) curve: &'f dyn Fn(&MeasuredKernel) -> Option<(Curve, bool)>,
    /// True if bytes of weights decide the limit of the work at a size, with weights in the named format.
    pub(super) moves: &'f dyn Fn(&str, f64) -> bool,
    /// The whole work on one rank, if the work is a part: an engine chooses the kernel of experts by format and chip, so that the
    /// work on one rank decides which kernel counts on any number of ranks.
    pub(super) on_one_rank: Option<&'f Subject<'f>>,
}

impl Subject<'_> {
    /// The work that decides which kernel counts.
    fn judged(&self) -> &Subject<'_> {
        self.on_one_rank.unwrap_or(self)
    }

    /// Curve of `kernel` from the first size of the grid on, and true if the shape was timed: the least sizes of some kernels
    /// were left out of the tables, because caches served them.
    fn whole(&self, kernel: &MeasuredKernel) -> Option<(Curve, bool)> {
        let (curve, exact) = (self.curve)(kernel)?;
        Some((curve.on_grid(self.table.grid()), exact))
    }
}

/// Times that a plausible kernel does not exceed.
struct Bounds {
    format: String,
    /// Times of the wider format.
    wider: Option<Curve>,
    /// Least times of equal precision on the chip.
    fastest: Option<Curve>,
}

impl Bounds {
    /// Bound in seconds at `size`, with the time of a wider format times `margin`; infinite without one.
    fn at(&self, subject: &Subject, size: f64, margin: f64) -> f64 {
        let bounded = !is_weight_only(&self.format) || (subject.moves)(&self.format, size);
        let wider = self.wider.as_ref().filter(|_| bounded).map(|curve| margin * curve.at(size));
        let fastest = self.fastest.as_ref().map(|curve| KIN * curve.at(size));
        wider.unwrap_or(f64::INFINITY).min(fastest.unwrap_or(f64::INFINITY))
    }

    /// True if a kernel with the times of `curve` is plausible. The table of a product includes the quantization of its input,
    /// which at few rows takes as long as the product, so that the wider format judges experts alone.
    fn hold(&self, subject: &Subject, curve: &Curve) -> bool {
        let margin = if subject.table == KernelTable::Gemm { f64::INFINITY } else { WIDER };
        curve.sizes().all(|size| curve.at(size) <= self.at(subject, size, margin))
    }
}

/// Formats with the next wider weights, for which an engine has kernels of equal work; none for 16 bits.
pub(super) fn wider(format: &str) -> &'static [&'static str] {
    match format {
        "nvfp4" | "mxfp4-mxfp8" => &["fp8", "fp8-block"],
        "fp8" | "fp8-dynamic" | "fp8-block" | "w8a8-int8" | "int8" | "gptq-int4" | "mxfp4" => &["bf16"],
        _ => &[],
    }
}

/// True for formats whose arithmetic is in 16 bits, whose kernels win by bytes alone.
fn is_weight_only(format: &str) -> bool {
    matches!(format, "gptq-int4" | "mxfp4" | "int8")
}

impl Kernels<'_> {
    /// Curve of the plausible kernel of `subject` with weights in `format`, and its basis; `None` if none was timed.
    pub(super) fn plausible(
        &self,
        profiles: &Profiles,
        subject: &Subject,
        format: &str,
    ) -> Option<(Curve, Basis)> {
        let listed = formats(&self.asking, subject.table, format);
        let chosen = candidates_for(&self.asking, profiles, subject.table, listed, format);
        let (curve, basis, kernel) = self.best(subject, &chosen)?;
        let Some(bounds) = self.bounds(profiles, subject, &kernel) else { return Some((curve, basis)) };
        let within = |(curve, basis): (Curve, Basis)| {
            (curve.map(|size, seconds| seconds.min(bounds.at(subject, size, 1.0))), basis)
        };
        let judged = subject.judged();
        let of_judged = subject.on_one_rank.and_then(|work| self.bounds(profiles, work, &kernel));
        let judge = of_judged.as_ref().unwrap_or(&bounds);
        let times = match subject.on_one_rank {
            Some(work) => work.whole(&kernel)?.0,
            None => curve.clone(),
        };
        if judge.hold(judged, &times) {
            return Some(within((curve, basis)));
        }
        let others = substitutes(&self.asking, profiles, subject.table, &kernel);
        let others = others.iter().filter_map(|other| {
            let (times, _) = judged.whole(other)?;
            let (curve, exact) = subject.whole(other).filter(|_| judge.hold(judged, &times))?;
            let exact = exact && other.section.format == kernel.section.format;
            Some((curve, other.basis(exact).in_place_of(kernel.section.kernel.clone())))
        });
        Some(within(others.into_iter().next().unwrap_or((curve, basis))))
    }

    /// Times that a plausible kernel in the place of `kernel` does not exceed; `None` for 16 bits.
    fn bounds(&self, profiles: &Profiles, subject: &Subject, kernel: &MeasuredKernel) -> Option<Bounds> {
        let format = kernel.section.format.as_str();
        let wider = wider(format);
        if wider.is_empty() {
            return None;
        }
        let wider = wider.iter().filter_map(|format| self.plausible(profiles, subject, format));
        let alike = kin(profiles, subject.table, kernel);
        let fastest = alike.iter().filter_map(|kernel| subject.whole(kernel)).map(|(curve, _)| curve);
        Some(Bounds {
            format: format.to_owned(),
            wider: wider.map(|(curve, _)| curve).reduce(|least, curve| least.least(&curve)),
            fastest: fastest.reduce(|least, curve| least.least(&curve)),
        })
    }

    /// Times of an untimed kernel of narrower weights, which exceed the times of the 16-bit kernel at no size, or at none where
    /// bytes `decide` if the kernel's figures were measured on the architecture; `None` if the engine has no tables or no 16-bit
    /// kernel was timed, or if it bounds nothing.
    pub(super) fn bounded(
        &self,
        profiles: &Profiles,
        subject: &Subject,
        (untimed, described): (&dyn Fn(f64) -> f64, Basis),
        decide: &dyn Fn(f64) -> bool,
    ) -> Option<(Curve, Basis)> {
        // A 16-bit kernel of another engine says nothing about an engine without tables.
        profiles.sections.iter().find(|section| section.engine == self.asking.engine.name)?;
        let (wider, basis) = self.plausible(profiles, subject, "bf16")?;
        let regimes = &self.coefficients.regimes;
        // Figures of the kernel itself count more than a 16-bit kernel of another chip or engine.
        if regimes.is_measured && basis.evidence != Evidence::Engine {
            return None;
        }
        let factor = self.coefficients.factor;
        let binds =
            |size: f64| (!regimes.is_measured || decide(size)) && untimed(size) > wider.at(size) * factor;
        if !wider.sizes().any(binds) {
            return None;
        }
        let curve = wider.map(|size, seconds| if binds(size) { seconds * factor } else { untimed(size) });
        let kernel = format!("{}, at most {}", described.kernel, basis.kernel);
        Some((curve, Basis { kernel, in_place_of: regimes.name.map(str::to_owned), ..described }))
    }

    /// The kernel among `kernels` that an engine runs. GEMMs are dispatched by rows, and experts of TensorRT-LLM, so that the
    /// fastest counts at each size; vLLM and SGLang choose one kernel of experts for all sizes: the one with the least product
    /// of times.
    fn best<'k>(
        &self,
        subject: &Subject,
        kernels: &[MeasuredKernel<'k>],
    ) -> Option<(Curve, Basis, MeasuredKernel<'k>)> {
        let by_rows =
            subject.table == KernelTable::Gemm || self.asking.engine.kind == EngineKind::TensorrtLlm;
        let order = |curve: &Curve| match by_rows {
            true => curve.at(1.0),
            false => curve.sizes().map(|size| libm::log(curve.at(size))).sum(),
        };
        let timed = kernels.iter().filter_map(|kernel| {
            let (curve, exact) = subject.whole(kernel)?;
            let order = match subject.on_one_rank.filter(|_| !by_rows) {
                Some(work) => order(&work.whole(kernel)?.0),
                None => order(&curve),
            };
            Some((order, (curve, kernel.basis(exact), *kernel)))
        });
        let best = timed.reduce(|least, other| {
            let (first, second) = if least.0 <= other.0 { (least, other) } else { (other, least) };
            let (order, (curve, basis, kernel)) = first;
            let curve = if by_rows { curve.least(&second.1.0) } else { curve };
            (order, (curve, basis, kernel))
        });
        best.map(|(_, best)| best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::{Coefficients, KernelEfficiency, KernelTimes};
    use crate::operator::Form;
    use crate::profile::Writer;
    use crate::step::StepModel;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_ask::spec::PrecisionSpec;
    use roofcast_facts::catalog::Catalog;
    use roofcast_facts::model::config;
    use std::borrow::Cow;
    use std::sync::Arc;

    /// Basis of the experts of Mixtral in fp8 on an H100, and their microseconds for one token, with a table of its shape:
    /// kernels of vLLM by format and name, with one time for all sizes. The file keeps times within half a percent.
    fn experts(kernels: &[(&str, &str, f64)]) -> (Basis, f64) {
        let table = KernelTable::Experts;
        let section = |(format, kernel, micros): &(&str, &str, f64)| {
            let mut writer = Writer::default();
            let times = vec![Some(micros * 1e-6); table.columns()];
            writer.shape(&[4096, 14_336, 2, 8, 1, 1], &times);
            writer.section(table, ["h100-sxm", "vllm", "0.33.0", kernel, format])
        };
        let profiles = Profiles { sections: kernels.iter().map(section).collect() };
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("mistralai/Mixtral-8x7B-Instruct-v0.1").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let precision = PrecisionSpec { weights: Some("fp8".into()), ..PrecisionSpec::default() };
        let options = DeploymentOptions { precision, ..DeploymentOptions::default() };
        let deployment = Deployment::resolve(model, chip, &options).unwrap();
        let times = KernelTimes::Measured {
            profiles: Cow::Owned(profiles),
            shares: KernelEfficiency::UNKNOWN,
            host: KernelEfficiency::UNKNOWN,
        };
        let coefficients = Coefficients { kernels: times, ..Coefficients::ideal(1.0, 1.0) };
        let step = StepModel::compile(&deployment);
        let operator = step.operators.iter().find(|o| matches!(o.form, Form::Experts(_))).unwrap();
        let time = Kernels::of(&deployment, &coefficients).time(operator);
        let Some(super::super::MeasuredTimes::Rows(curve)) = time.measured else { panic!("{time:?}") };
        (time.basis, curve.at(1.0) * 1e6)
    }

    /// vLLM's rule names FlashInfer's CUTLASS kernel for fp8 with a scale per tensor. One token reads two experts of 176 MB
    /// in 105 µs. 900 µs are 3 times the 300 of the fp8 kernel with blocks, more than 2.5, which counts in its place; 700 are 2.33
    /// times as many and within 1.25 of 600 in bf16, so that they count, and are bounded by those 600.
    #[test]
    fn an_implausible_kernel_gives_way() {
        let tables = |named: f64| {
            experts(&[
                ("fp8", "flashinfer-cutlass", named),
                ("fp8-block", "triton", 300.0),
                ("bf16", "triton", 600.0),
            ])
        };
        let (basis, micros) = tables(900.0);
        assert_eq!(basis.kernel, "vllm 0.33.0 triton, h100-sxm");
        assert_eq!(basis.in_place_of.as_deref(), Some("flashinfer-cutlass"));
        assert!(!basis.exact && (micros / 300.0 - 1.0).abs() < 5e-3, "{micros}");
        let (basis, micros) = tables(700.0);
        assert_eq!(
            (basis.kernel.as_str(), basis.in_place_of),
            ("vllm 0.33.0 flashinfer-cutlass, h100-sxm", None)
        );
        assert!(basis.exact && (micros / 600.0 - 1.0).abs() < 5e-3, "{micros}");
        let (_, micros) = tables(550.0);
        assert!((micros / 550.0 - 1.0).abs() < 5e-3, "{micros}");
    }

    /// Without any plausible kernel the bounds alone count: the wider format's 400 µs.
    #[test]
    fn bounds_count_where_no_kernel_is_plausible() {
        let (basis, micros) = experts(&[("fp8", "flashinfer-cutlass", 2000.0), ("bf16", "triton", 400.0)]);
        assert_eq!(basis.kernel, "vllm 0.33.0 flashinfer-cutlass, h100-sxm");
        assert!((micros / 400.0 - 1.0).abs() < 5e-3, "{micros}");
    }
}
