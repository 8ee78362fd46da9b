//! Which levels a row has, how far each may move, and what a row is fitted to.
//!
//! Knows: a chip, an engine and a format have levels of their own and in pairs; figures that a row cannot depend on. Knows
//! nothing about how the least is found.

use crate::accelerator::Accelerator;
use crate::calibration::Selector;
use crate::coefficients::Coefficient;
use crate::deployment::Deployment;
use crate::measurement::{Kind, Measurement};
use crate::spec::EngineSpec;
use crate::step::Mixers;

/// Standard deviation of the widest factors, in logarithms.
const FIRST_SCALE: f64 = 1.0;

/// Whether a level holds for every server, or for every offline run.
pub(super) fn is_widest(at: &Selector) -> bool {
    at.served.is_some() && *at == (Selector { served: at.served, ..Selector::default() })
}

/// Standard deviation of a level's factor around 1, in logarithms. What servers add before the first token differs most,
/// and between versions of one engine more than between engines.
/// A level that names chip, engine and format stands for what has been measured itself and may move further than those
/// that must hold for others, too.
pub(super) fn scale(at: &Selector, figure: Coefficient) -> f64 {
    let own = at.accelerator.is_some() && at.weights.is_some();
    if is_widest(at) {
        return FIRST_SCALE;
    }
    match figure {
        Coefficient::Request | Coefficient::RequestSteps if at.version.is_some() => 1.6,
        Coefficient::Request | Coefficient::RequestSteps => 0.8,
        Coefficient::SmallMRow | Coefficient::SmallMMost | Coefficient::Group => 0.7,
        Coefficient::PrefillLatent | Coefficient::PrefillLinear | Coefficient::EagerLayer => 0.5,
        Coefficient::GemmExposed | Coefficient::ExpertExposed | Coefficient::AttentionExposed => 0.5,
        _ if own => 1.4,
        _ if figure.is_share() => 0.15,
        _ => 0.2,
    }
}

/// Whether the row's forecast can depend on the figure.
pub(super) fn matters(deployment: &Deployment, row: &Measurement, figure: Coefficient) -> bool {
    let p = deployment.parallelism;
    match figure {
        Coefficient::ExpertMemory
        | Coefficient::ExpertCompute
        | Coefficient::ExpertExposed
        | Coefficient::ExpertActivation
        | Coefficient::ExpertLayer => deployment.model.is_moe(),
        Coefficient::PrefillLatent => Mixers::of(&deployment.model).latent > 0,
        Coefficient::PrefillLinear => Mixers::of(&deployment.model).linear > 0,
        Coefficient::AllReduce => p.tp > 1,
        Coefficient::Link => p.count() > 1,
        Coefficient::Request | Coefficient::RequestSteps => row.kind.served(),
        Coefficient::MixedRows => false,
        Coefficient::EagerLayer => deployment.options.engine.enforce_eager == Some(true),
        _ => true,
    }
}

/// The levels of a place beside the first: chip and generation, engine with its version and its server, weight format,
/// and their pairs.
pub(super) fn selectors(chip: &Accelerator, engine: &EngineSpec, weights: &str) -> Vec<Selector> {
    let architecture = Some(chip.architecture.clone());
    let accelerator = Some(chip.id.clone());
    let name = Some(engine.name().to_owned());
    let served = Some(engine.served());
    let weights = Some(weights.to_owned());
    let none = Selector::default;
    let mut all = vec![
        Selector { architecture: architecture.clone(), ..none() },
        Selector { accelerator: accelerator.clone(), ..none() },
        Selector { served, ..none() },
        Selector { engine: name.clone(), ..none() },
        Selector { engine: name.clone(), served, ..none() },
        Selector { accelerator: accelerator.clone(), engine: name.clone(), served, ..none() },
        Selector { accelerator, engine: name.clone(), served, weights: weights.clone(), ..none() },
        Selector { weights: weights.clone(), ..none() },
        Selector { engine: name.clone(), weights: weights.clone(), ..none() },
        Selector { architecture, engine: name.clone(), weights, ..none() },
    ];
    if let Some(version) = &engine.version {
        all.push(Selector { engine: name, version: Some(version.clone()), ..none() });
    }
    all
}

/// The metrics that a row is fitted to, by their index, with the noise of each: what repeated runs differ by, and what no
/// model of this form can follow.
pub(super) fn targets(row: &Measurement) -> Vec<(usize, f64)> {
    const TTFT: usize = 0;
    const TPOT: usize = 1;
    const E2E: usize = 2;
    const OUTPUT: usize = 3;
    const TOTAL: usize = 4;
    match row.kind {
        Kind::DecodeStep => vec![(TPOT, 0.05)],
        Kind::Prefill | Kind::PrefillBatch => vec![(TTFT, 0.08)],
        Kind::StaticBatchPhases => vec![(TTFT, 0.1), (TPOT, 0.06)],
        Kind::OfflineStaticBatch if row.measured.e2e_ms.is_some() => vec![(E2E, 0.06)],
        Kind::OfflineStaticBatch if row.measured.total_tok_s.is_some() => vec![(TOTAL, 0.06)],
        Kind::ClosedLoop | Kind::OpenLoop | Kind::BurstAllAtOnce => vec![(TPOT, 0.06), (TTFT, 0.15)],
        Kind::OfflineStaticBatch | Kind::OfflineMaxThroughput => vec![(OUTPUT, 0.15)],
    }
}
