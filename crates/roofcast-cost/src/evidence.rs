//! Families of kernels that nobody timed, by the part that they take of a deployment's steps.
//!
//! Knows: a family is notable if it takes a tenth of the kernels' time in a step of 64 decodes, or in a prompt, of 1,024
//! tokens. A deployment has the depth of evidence of its least known notable family, or [`Evidence::Family`] if only a part of its
//! families was timed. Knows nothing about intervals.

use crate::coefficients::{Coefficients, Evidence};
use crate::step::StepModel;
use crate::timing::Timing;
use roofcast_ask::deployment::Deployment;
use roofcast_facts::batch::Batch;
use roofcast_facts::model::Family;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Least part of the kernels' time in a step from which a family is notable: kernels that take four times as long as their
/// forecast then lengthen the step by a third.
const NOTABLE: f64 = 0.1;
/// Decodes and tokens of the steps by which families are notable.
const DECODES: u64 = 64;
const TOKENS: u64 = 1024;

/// Evidence of a deployment's kernels.
pub(crate) struct KernelEvidence {
    /// Depth of evidence.
    pub(crate) depth: Evidence,
    /// Names of notable families without measured times.
    pub(crate) untimed: Vec<&'static str>,
}

impl KernelEvidence {
    /// Evidence of the kernels of `deployment` in the tables of `coefficients`.
    pub(crate) fn of(deployment: &Deployment, coefficients: &Arc<Coefficients>) -> KernelEvidence {
        let model = Arc::new(StepModel::compile(deployment));
        let timing = Timing::new(deployment, model, Arc::clone(coefficients));
        let steps = [Batch::decode(DECODES, TOKENS), Batch::prefill(1, TOKENS)];
        let notable: BTreeMap<(Family, Evidence), f64> = steps
            .iter()
            .flat_map(|batch| parts(&timing, batch))
            .filter(|(_, part)| *part >= NOTABLE)
            .collect();
        let timed = notable.keys().any(|(_, depth)| *depth != Evidence::Nothing);
        let weakest = notable.keys().map(|(_, depth)| *depth).min();
        let depth = match weakest.unwrap_or(Evidence::Nothing) {
            Evidence::Nothing if timed => Evidence::Family,
            weakest => weakest,
        };
        let mut untimed: Vec<&str> = notable
            .keys()
            .filter(|(_, depth)| *depth == Evidence::Nothing)
            .map(|(family, _)| name(*family))
            .collect();
        untimed.dedup();
        KernelEvidence { depth, untimed }
    }
}

/// Part that the kernels of each family take of the kernels' time in a step, by their depth of evidence.
fn parts(timing: &Timing, batch: &Batch) -> BTreeMap<(Family, Evidence), f64> {
    let mut parts = BTreeMap::new();
    let Some(pass) = timing.model.passes_of(batch).into_iter().next() else { return parts };
    for (index, operator) in timing.model.operators.iter().enumerate() {
        let family = operator.kind.family();
        if !matches!(family, Family::Embedding | Family::Elementwise) {
            let seconds: f64 = timing.time(index, &pass).into_iter().sum();
            *parts.entry((family, timing.basis(index).evidence)).or_default() += seconds;
        }
    }
    let all: f64 = parts.values().sum();
    parts.values_mut().for_each(|seconds| *seconds /= all);
    parts
}

/// Name of a family of kernels in texts.
fn name(family: Family) -> &'static str {
    match family {
        Family::Gemm => "GEMMs",
        Family::Attention => "attention",
        Family::Indexer => "the indexer",
        Family::Moe => "routed experts",
        Family::Embedding | Family::Elementwise => "small kernels",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Calibration;
    use crate::coefficients::{Load, UNTIMED};
    use crate::forecaster::Forecaster;
    use crate::profile::Profiles;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_facts::catalog::Catalog;

    fn deployment(model: &str, chip: &str, engine: &str, weights: &str) -> Option<Deployment> {
        let catalog = Catalog::embedded().unwrap();
        let model = Arc::new(catalog.named(model).unwrap().model().unwrap());
        let chip = Arc::new(catalog.accelerator(chip).unwrap().clone());
        let mut options = DeploymentOptions::default();
        options.engine.name = Some(engine.to_owned());
        options.precision.weights = Some(weights.to_owned());
        Deployment::resolve(model, chip, &options).ok()
    }

    /// Seconds of every family of kernels in the two steps.
    fn seconds(deployment: &Deployment, calibration: &Calibration) -> Vec<(Family, Evidence, f64)> {
        let coefficients = Forecaster::new(deployment.clone(), calibration).coefficients;
        let timing = Timing::new(deployment, Arc::new(StepModel::compile(deployment)), coefficients);
        let steps = [Batch::decode(DECODES, TOKENS), Batch::prefill(1, TOKENS)];
        let mut all = Vec::new();
        for batch in &steps {
            let pass = timing.model.passes_of(batch).into_iter().next().unwrap();
            for (index, operator) in timing.model.operators.iter().enumerate() {
                let seconds: f64 = timing.time(index, &pass).into_iter().sum();
                all.push((operator.kind.family(), timing.basis(index).evidence, seconds));
            }
        }
        all
    }

    /// Factor by which the tables' times of a family differ from shares of the limit in eight cases of ten.
    fn width(family: Family) -> f64 {
        let measured = Calibration::embedded().unwrap();
        let blank = Calibration { profiles: Some(Profiles::default()), ..measured.clone() };
        let formats = [
            ("llama-3.1-8b", "bf16"),
            ("llama-3.1-8b", "fp8"),
            ("llama-3.1-8b", "nvfp4"),
            ("Qwen/Qwen3-30B-A3B", "bf16"),
            ("Qwen/Qwen3-30B-A3B", "fp8"),
            ("Qwen/Qwen3-30B-A3B", "gptq-int4"),
            ("openai/gpt-oss-20b", "mxfp4"),
        ];
        let mut logs = Vec::new();
        for chip in ["a100-sxm", "l40s", "h100-sxm", "b200-sxm"] {
            let engines = ["vllm", "sglang", "tensorrt-llm"];
            let all =
                engines.iter().flat_map(|engine| formats.map(|(model, weights)| (model, engine, weights)));
            let of = |(model, engine, weights): (&str, &&str, &str)| deployment(model, chip, engine, weights);
            for deployment in all.filter_map(of) {
                let [timed, shared] = [measured, &blank].map(|c| seconds(&deployment, c));
                let pairs = timed
                    .iter()
                    .zip(&shared)
                    .filter(|((of, depth, _), _)| *of == family && *depth > Evidence::Architecture);
                // Times of 0.3 ms in all layers are work, and no launch alone.
                let works = pairs.map(|((_, _, t), (_, _, s))| (*t, *s)).filter(|(t, _)| *t > 300e-6);
                logs.extend(works.map(|(t, s)| (t / s).ln().abs()));
            }
        }
        logs.sort_by(f64::total_cmp);
        logs[logs.len() * 4 / 5].exp()
    }

    /// The least width of intervals without times, 2, is between the widths of the families that were timed: GEMMs are nearest to
    /// shares of their limits, attention is farthest.
    #[test]
    fn shares_differ_from_tables_by_half_to_threefold() {
        let [gemm, experts, attention] = [Family::Gemm, Family::Moe, Family::Attention].map(width);
        assert!(1.3 < gemm && gemm < 1.6, "{gemm}");
        assert!(1.3 < experts && experts < UNTIMED, "{experts}");
        assert!(UNTIMED < attention && attention < 3.0, "{attention}");
        let calibration = Calibration::embedded().unwrap();
        for load in Load::ALL {
            for depth in [Evidence::Nothing, Evidence::Family] {
                let widths = calibration.band(depth).unwrap().widths(load).all();
                assert!(widths.into_iter().all(|width| width >= UNTIMED), "{depth:?} {load:?}");
            }
        }
    }

    /// The depth of evidence, and the families that nobody timed, of deployments whose kernels stand in the tables or not: Marlin
    /// has figures of Ampere and Ada alone, and no table has experts of AWQ.
    #[test]
    fn the_least_known_family_decides() {
        let of = |model, chip, weights| {
            let deployment = deployment(model, chip, "vllm", weights).unwrap();
            let coefficients = Forecaster::new(deployment, Calibration::embedded().unwrap()).coefficients;
            (coefficients.evidence, coefficients.untimed.join(" and "))
        };
        let dense = |chip, weights| of("llama-3.1-8b", chip, weights);
        let family = |names: &str| (Evidence::Family, names.to_owned());
        assert_eq!(dense("h100-sxm", "bf16"), (Evidence::Engine, String::new()));
        assert_eq!(dense("rtx-4090", "gptq-int4"), (Evidence::Architecture, String::new()));
        assert_eq!(dense("h100-sxm", "gptq-int4"), family("GEMMs"));
        assert_eq!(dense("b200-sxm", "awq-int4"), family("GEMMs"));
        assert_eq!(of("Qwen/Qwen3-30B-A3B", "h100-sxm", "gptq-int4"), family("GEMMs"));
        assert_eq!(of("Qwen/Qwen3-30B-A3B", "a100-sxm", "awq-int4"), family("routed experts"));
        assert_eq!(dense("mi355x", "bf16").0, Evidence::Nothing);
    }
}
