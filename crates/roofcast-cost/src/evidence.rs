//! Kernels that nobody timed, by the part that they take of a deployment's steps.
//!
//! Knows: a family is notable if it takes a tenth of the kernels' time in a step of 64 decodes, or in a prompt, of 1,024
//! tokens, or in a step of the question; so are all-reduces. Attention and the indexer that chooses its keys are one family.
//! A deployment has the depth of evidence of its least known notable family, or [`Evidence::Family`] if only a part of its
//! kernels was timed. Attention that nobody timed is named if it takes a tenth of a step of 32,768 tokens. Knows nothing
//! about intervals.

use crate::coefficients::{Coefficients, Evidence};
use crate::kernel_time::Basis;
use crate::operator::Operator;
use crate::step::{Pass, StepModel};
use crate::timing::Timing;
use roofcast_ask::deployment::Deployment;
use roofcast_facts::batch::Batch;
use roofcast_facts::model::Family;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Least part of the kernels' time in a step from which a family is notable: kernels that take four times as long as their
/// forecast then lengthen the step by a third.
const NOTABLE: f64 = 0.1;
/// Least part of the kernels' time from which an operator of a notable family is named.
const NAMED: f64 = 0.01;
/// Decodes and tokens of the steps by which families are notable.
const DECODES: u64 = 64;
const TOKENS: u64 = 1024;
/// Tokens of the steps in which attention is notable that takes little time of shorter ones.
const LONG: u64 = 32_768;

/// Evidence of a deployment's kernels.
pub(crate) struct KernelEvidence {
    /// Depth of evidence.
    pub(crate) depth: Evidence,
    /// Names of notable kernels without measured times.
    pub(crate) untimed: Vec<String>,
    /// Part that all kernels without measured times take of the step in which it is the largest.
    pub(crate) untimed_part: f64,
    /// Names of kernels of attention without measured times that are notable in long contexts.
    pub(crate) at_length: Vec<String>,
    /// Basis of all-reduces, if another table counts in place of the engine's own.
    pub(crate) all_reduces: Option<Basis>,
}

impl KernelEvidence {
    /// Evidence of the kernels of `deployment` in the tables of `coefficients`, and in the `asked` steps.
    pub(crate) fn of(
        deployment: &Deployment,
        coefficients: &Arc<Coefficients>,
        asked: &[Batch],
    ) -> KernelEvidence {
        let model = Arc::new(StepModel::compile(deployment));
        let timing = Timing::new(deployment, model, Arc::clone(coefficients));
        let usual = steps_of(TOKENS, TOKENS);
        let passes =
            usual.iter().chain(asked).filter_map(|batch| timing.model.passes_of(batch).into_iter().next());
        let steps: Vec<StepParts> = passes.map(|pass| StepParts::of(&timing, &pass)).collect();
        let all_reduces = timing.all_reduces();
        let of_links = steps.iter().any(|step| step.links >= NOTABLE).then_some(all_reduces).flatten();
        let notable: Vec<(Family, Evidence)> = steps.iter().flat_map(StepParts::notable).collect();
        let depths = notable.iter().map(|(_, depth)| *depth);
        let weakest = depths.chain(of_links.map(|basis| basis.evidence)).min();
        let operators = || timing.model.operators.iter().enumerate().filter(|(_, o)| is_kernel(o));
        let depth_of = |index: usize| timing.basis(index).evidence;
        let timed = operators().any(|(index, _)| depth_of(index) != Evidence::Nothing);
        let depth = match weakest.unwrap_or(Evidence::Nothing) {
            Evidence::Nothing if timed => Evidence::Family,
            weakest => weakest,
        };
        let is_untimed = |index: usize, operator: &Operator| {
            depth_of(index) == Evidence::Nothing
                && notable.contains(&(counted_as(operator.kind.family()), Evidence::Nothing))
        };
        let parts: Vec<(usize, String)> = operators()
            .filter(|(index, operator)| is_untimed(*index, operator))
            .map(|(index, operator)| (index, name(operator, &deployment.weights)))
            .collect();
        let part_of = |step: &StepParts, name: &str| -> f64 {
            parts.iter().filter(|(_, other)| other == name).map(|(index, _)| step.operators[*index]).sum()
        };
        let untimed = distinct(parts.iter().map(|(_, name)| name.clone()))
            .into_iter()
            .filter(|name| steps.iter().any(|step| part_of(step, name) >= NAMED))
            .collect();
        KernelEvidence {
            depth,
            untimed,
            untimed_part: steps.iter().map(|step| step.untimed).fold(0.0, f64::max),
            at_length: at_length(&timing, &deployment.weights),
            all_reduces: all_reduces.filter(|basis| basis.in_place_of.is_some()).cloned(),
        }
    }
}

/// Kernels of attention that nobody timed, if they take a notable part of long steps together.
fn at_length(timing: &Timing, weights: &str) -> Vec<String> {
    let operators = timing.model.operators.iter().enumerate();
    let untimed: Vec<(usize, &Operator)> = operators
        .filter(|(index, operator)| {
            timing.basis(*index).evidence == Evidence::Nothing
                && counted_as(operator.kind.family()) == Family::Attention
        })
        .collect();
    let part_of = |batch: &Batch| {
        let pass = timing.model.passes_of(batch).into_iter().next()?;
        let step = StepParts::of(timing, &pass);
        Some(untimed.iter().map(|(index, _)| step.operators[*index]).sum::<f64>())
    };
    let is_notable =
        !untimed.is_empty() && steps_of(LONG, LONG).iter().filter_map(part_of).any(|part| part >= NOTABLE);
    if is_notable {
        distinct(untimed.iter().map(|(_, operator)| name(operator, weights)))
    } else {
        Vec::new()
    }
}

/// `names` in their order, each once: layers of several kinds have operators of equal names.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// A step of decodes at `context` tokens, and a prompt of `prompt` tokens.
pub(crate) fn steps_of(context: u64, prompt: u64) -> [Batch; 2] {
    [Batch::decode(DECODES, context), Batch::prefill(1, prompt)]
}

/// Family in which a part of a step is counted: sparse attention is its indexer and the attention over the keys that it chooses.
fn counted_as(family: Family) -> Family {
    if family == Family::Indexer { Family::Attention } else { family }
}

/// True for an operator whose kernels have tables: neither a lookup nor a norm.
fn is_kernel(operator: &Operator) -> bool {
    !matches!(operator.kind.family(), Family::Embedding | Family::Elementwise)
}

/// Parts of a step.
struct StepParts {
    /// Part that each operator takes of the kernels' time; 0 for lookups and norms.
    operators: Vec<f64>,
    /// Part that the kernels of each family take of the kernels' time, by their depth of evidence.
    families: BTreeMap<(Family, Evidence), f64>,
    /// Messages between ranks over the time of kernels and messages.
    links: f64,
    /// Part of the whole step that kernels without measured times take.
    untimed: f64,
}

impl StepParts {
    fn of(timing: &Timing, pass: &Pass) -> StepParts {
        let mut families: BTreeMap<(Family, Evidence), f64> = BTreeMap::new();
        let mut operators = vec![0.0; timing.model.operators.len()];
        for (index, operator) in timing.model.operators.iter().enumerate().filter(|(_, o)| is_kernel(o)) {
            let seconds: f64 = timing.time(index, pass).into_iter().sum();
            let family = counted_as(operator.kind.family());
            *families.entry((family, timing.basis(index).evidence)).or_default() += seconds;
            operators[index] = seconds;
        }
        let kernels: f64 = families.values().sum();
        let links = timing.beside(pass).links;
        let untimed = families.iter().filter(|((_, depth), _)| *depth == Evidence::Nothing);
        let untimed: f64 = untimed.map(|(_, seconds)| seconds).sum();
        let step = timing.step(std::iter::once(pass.clone())).total();
        families.values_mut().chain(&mut operators).for_each(|seconds| *seconds /= kernels);
        StepParts {
            operators,
            families,
            links: links / (kernels + links),
            untimed: (untimed / step).min(1.0),
        }
    }

    /// Families of kernels that take a notable part, by their depth of evidence.
    fn notable(&self) -> impl Iterator<Item = (Family, Evidence)> + '_ {
        self.families.iter().filter(|(_, part)| **part >= NOTABLE).map(|(family, _)| *family)
    }
}

/// Name of an operator's kernels in texts: the family with the format for kernels of quantized `weights`, else the operator.
fn name(operator: &Operator, weights: &str) -> String {
    match operator.kind.family() {
        Family::Moe => format!("routed experts with {weights} weights"),
        Family::Gemm if !operator.is_unquantized() => format!("GEMMs with {weights} weights"),
        _ => operator.kind.to_string(),
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
        let steps = steps_of(TOKENS, TOKENS);
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

    /// Kernels without times take a part of a step, and widen the band from the architecture's towards the untimed family's by as much.
    #[test]
    fn the_untimed_part_of_a_step_widens_its_band() {
        let calibration = Calibration::embedded().unwrap();
        let deployment =
            deployment("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "b200-sxm", "vllm", "nvfp4");
        let coefficients = Forecaster::new(deployment.unwrap(), calibration).coefficients;
        let part = coefficients.untimed_part;
        assert!(0.0 < part && part < 0.3, "{part}");
        let [narrow, wide] = [Evidence::Architecture, Evidence::Family]
            .map(|depth| calibration.band(depth).unwrap().step.tpot);
        let band = coefficients.band.unwrap();
        assert!((band.step.tpot - (narrow + part * (wide - narrow))).abs() < 1e-12, "{band:?}");
        assert_eq!(band.evidence, Evidence::Family);
    }

    /// The depth of evidence, and the kernels that nobody timed, of deployments whose kernels stand in the tables or not: Marlin
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
        assert_eq!(dense("h100-sxm", "gptq-int4"), family("GEMMs with gptq-int4 weights"));
        assert_eq!(dense("b200-sxm", "awq-int4"), family("GEMMs with awq-int4 weights"));
        assert_eq!(of("Qwen/Qwen3-30B-A3B", "h100-sxm", "gptq-int4"), family("GEMMs with gptq-int4 weights"));
        assert_eq!(
            of("Qwen/Qwen3-30B-A3B", "a100-sxm", "awq-int4"),
            family("routed experts with awq-int4 weights")
        );
        assert_eq!(dense("mi355x", "bf16").0, Evidence::Nothing);
        // The products, experts and attention of a B200 were timed with nvfp4; on an H200 only operators in 16 bits were.
        let hybrid = |chip| of("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", chip, "nvfp4");
        assert_eq!(hybrid("b200-sxm"), family("linear_attention"));
        assert_eq!(
            hybrid("h200-sxm"),
            family("GEMMs with nvfp4 weights and linear_attention and routed experts with nvfp4 weights")
        );
    }

    /// MiniMax-M3 reads blocks of keys that an indexer chooses: no table has its attention, nor the indexer. Attention over all
    /// keys was timed.
    #[test]
    fn nobody_timed_attention_over_chosen_keys() {
        let of = |model| {
            let alone = deployment(model, "b200-sxm", "vllm", "bf16").unwrap();
            let mut options = DeploymentOptions::default();
            options.parallelism.tp = Some(8);
            let eight = Deployment::resolve(alone.model, alone.accelerator, &options).unwrap();
            Forecaster::new(eight, Calibration::embedded().unwrap()).coefficients.name.clone()
        };
        assert!(!of("llama-3.1-8b").contains("none of"), "{}", of("llama-3.1-8b"));
        let sparse = of("MiniMaxAI/MiniMax-M3");
        assert!(sparse.contains("none of attention and indexer"), "{sparse}");
    }

    /// DeepSeek-V3.2 reads 2,048 keys that an indexer chooses, in dense layers and in layers of experts: each kernel is named once.
    /// They take a tenth of prompts of 1,024 tokens, and more than a third of those of 32,768, which widens the band as much.
    #[test]
    fn evidence_is_judged_at_the_lengths_asked() {
        let alone = deployment("llama-3.1-8b", "h200-sxm", "vllm", "bf16").unwrap();
        let catalog = Catalog::embedded().unwrap();
        let mut options = DeploymentOptions::default();
        options.parallelism.tp = Some(8);
        let sparse = Arc::new(catalog.named("deepseek-ai/DeepSeek-V3.2").unwrap().model().unwrap());
        let eight = Deployment::resolve(sparse, Arc::clone(&alone.accelerator), &options).unwrap();
        let usual = Forecaster::new(eight, Calibration::embedded().unwrap());
        assert_eq!(usual.coefficients.name.matches("indexer").count(), 1, "{}", usual.coefficients.name);
        let short = usual.clone().asked(&steps_of(100, 100)).unwrap();
        assert_eq!(short.coefficients, usual.coefficients);
        let long = usual.clone().asked(&steps_of(32_768, 32_768)).unwrap();
        let sentence = long.not_measured().unwrap();
        assert!(sentence.contains("nobody timed latent_attention and indexer on h200-sxm"), "{sentence}");
        assert!(long.coefficients.name.ends_with("none of latent_attention and indexer"));
        let parts = [&usual, &long].map(|f| f.coefficients.untimed_part);
        assert!(parts[0] < 0.15 && 1.0 / 3.0 < parts[1] && parts[1] < 0.45, "{parts:?}");
        let [narrow, wide] = [&usual, &long].map(|f| f.coefficients.band.unwrap().prompt.ttft);
        assert!(narrow < wide, "{narrow} {wide}");
        // Attention over all keys was timed at every length.
        let dense = Forecaster::new(alone, Calibration::embedded().unwrap());
        assert_eq!(dense.clone().asked(&steps_of(32_768, 32_768)).unwrap().coefficients, dense.coefficients);
    }
}
