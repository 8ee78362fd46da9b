//! Which levels a row has, how far each may move, and what a row is fitted to.
//!
//! Knows: a level takes what its wider levels cannot: a chip beyond its generation, a pair beyond both of its parts, a
//! version beyond the next one. What a server adds has levels of its own. Knows nothing about how the least is found.

use crate::calibration::{Place, Selector};
use crate::coefficients::Coefficient;
use crate::deployment::Deployment;
use crate::measurement::{Kind, Measurement};
use crate::step::Mixers;
use crate::version::Version;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Standard deviation of the widest factors, in logarithms.
const FIRST_SCALE: f64 = 1.0;
/// The same of shares: kernel times say what they are, and a chip, engine or format that is far from them has a level of its
/// own. With 1, slow runs of one generation lowered the shares of all others.
const SHARES_SCALE: f64 = 0.1;
/// What a server can add to: host time before the first token, in a step and of its sequences.
const HOST: [Coefficient; 7] = [
    Coefficient::Step,
    Coefficient::PrefillStep,
    Coefficient::Sequence,
    Coefficient::Request,
    Coefficient::PythonRequest,
    Coefficient::Ingest,
    Coefficient::IngestToken,
];

/// The versions of each engine among rows.
#[derive(Debug, Default)]
pub(super) struct Versions {
    by_engine: BTreeMap<String, BTreeSet<String>>,
}

impl Versions {
    pub(super) fn add(&mut self, place: &Place) {
        let known = self.by_engine.entry(place.engine.name().to_owned()).or_default();
        known.extend(place.engine.version.clone());
    }

    /// Those among these that have an order, ascending.
    pub(super) fn ordered<'a>(among: impl Iterator<Item = &'a String>) -> Vec<String> {
        let mut all: Vec<&String> = among.filter(|v| Version::parse(v).is_some()).collect();
        all.sort_by(|a, b| Version::compare(a, b).unwrap_or(Ordering::Equal));
        all.dedup_by(|a, b| Version::compare(a, b) == Some(Ordering::Equal));
        all.into_iter().cloned().collect()
    }

    /// The versions whose levels a place has, beside the newest, which is the engine's own level: its own and those after
    /// it, or its own name where that has no order.
    fn levels(&self, place: &Place) -> Vec<String> {
        let Some(version) = &place.engine.version else { return Vec::new() };
        if Version::parse(version).is_none() {
            return vec![version.clone()];
        }
        let known = self.by_engine.get(place.engine.name()).into_iter().flatten();
        let mut ordered = Versions::ordered(known);
        ordered.pop();
        ordered.retain(|v| Version::compare(version, v).is_some_and(Ordering::is_le));
        ordered
    }
}

/// Whether a level holds everywhere, or for every server.
pub(super) fn is_widest(at: &Selector) -> bool {
    *at == (Selector { served: at.served, ..Selector::default() })
}

/// Standard deviation of a level's factor around 1, in logarithms; none where it does not move: a server adds host time, and
/// a version changes times, not what a kernel reaches of a chip's rates. A chip or generation whose kernels nobody timed, which
/// is not among `timed`, may be further from what its datasheet says than one whose shares are known, and a format there further
/// from the other formats: else fp8 on MI300X would say what fp8 reaches on an H200. Half and double the scales of single levels
/// and pairs, the tables of rows left out move by half a point; those of shares everywhere, of untimed generations and of formats
/// there (0.2, 0.4 and 1 were tried) were chosen among few, and move some of them by ten.
pub(super) fn scale(at: &Selector, coefficient: Coefficient, timed: &BTreeSet<&str>) -> Option<f64> {
    let fixed = at.served.is_some() && !HOST.contains(&coefficient)
        || at.version.is_some() && !coefficient.is_time()
        || coefficient.is_of_small_m() && !is_of_software(at);
    if fixed {
        return None;
    }
    // Every row but those of one source has both: how they part is known everywhere at once, or not at all.
    if coefficient == Coefficient::PythonRequest && *at != Selector::default() {
        return None;
    }
    if is_widest(at) {
        return Some(if coefficient.is_share() { SHARES_SCALE } else { FIRST_SCALE });
    }
    let before_first = (Coefficient::Request..=Coefficient::IngestToken).contains(&coefficient);
    let keys =
        [at.accelerator.is_some(), at.architecture.is_some(), at.engine.is_some(), at.weights.is_some()];
    let keys = keys.iter().filter(|key| **key).count();
    let untimed = |key: &Option<String>| key.as_deref().is_some_and(|chip| !timed.contains(chip));
    Some(match (keys, before_first) {
        _ if coefficient.is_of_small_m() => FIRST_SCALE,
        (1, _) if untimed(&at.architecture) && coefficient.is_share() => FIRST_SCALE,
        (2, _) if untimed(&at.architecture) && at.weights.is_some() && coefficient.is_share() => 0.4,
        (1, _) if untimed(&at.accelerator) && coefficient.is_share() => 0.5,
        (1, _) if at.accelerator.is_some() => 0.2,
        (_, true) => 0.8,
        _ if at.version.is_some() => 0.25,
        (1, _) => 0.4,
        _ if at.accelerator.is_some() => 0.1,
        _ => 0.2,
    })
}

/// Whether a level is of an engine, a format or both, on any chip. Small-M GEMMs are a matter of kernels: those of tables
/// (16 bits, fp8, four-bit floats) compute few rows in proportion, others each in their own way.
fn is_of_software(at: &Selector) -> bool {
    let hardware = at.accelerator.is_some() || at.architecture.is_some();
    (at.engine.is_some() || at.weights.is_some()) && !hardware && at.version.is_none()
}

/// The least that a level's factor may be, as a logarithm: what a server adds makes nothing faster.
pub(super) fn least(at: &Selector) -> f64 {
    if at.served.is_some() { 0.0 } else { f64::NEG_INFINITY }
}

/// Whether the row's forecast can depend on the coefficient.
pub(super) fn matters(deployment: &Deployment, row: &Measurement, coefficient: Coefficient) -> bool {
    let p = deployment.parallelism;
    match coefficient {
        Coefficient::ExpertMemory
        | Coefficient::ExpertCompute
        | Coefficient::ExpertExposed
        | Coefficient::ExpertActivation
        | Coefficient::ExpertLayer => deployment.model.is_moe(),
        Coefficient::PrefillLayer => row.kind != Kind::DecodeStep,
        Coefficient::PrefillExpert => row.kind != Kind::DecodeStep && deployment.model.is_moe(),
        Coefficient::PrefillLatent => Mixers::of(&deployment.model).latent > 0,
        Coefficient::PrefillLinear => Mixers::of(&deployment.model).linear > 0,
        Coefficient::AllReduce => p.tp > 1,
        Coefficient::Link => p.count() > 1,
        Coefficient::Request => row.kind.served(),
        Coefficient::PythonRequest | Coefficient::Ingest | Coefficient::IngestToken => {
            row.kind.served() && deployment.options.engine.has_python_server()
        }
        Coefficient::MixedRows => false,
        kernels if kernels.is_of_kernels_alone() => false,
        Coefficient::EagerLayer => deployment.options.engine.enforce_eager == Some(true),
        _ => true,
    }
}

/// The levels of a place beside the first: everywhere, engine and its versions, generation and chip, weight format, their
/// pairs, and what a server adds.
pub(super) fn selectors(place: &Place, versions: &Versions) -> Vec<Selector> {
    let anywhere = Selector::default;
    let of_engine = Selector { engine: Some(place.engine.name().to_owned()), ..anywhere() };
    let of_weights = Selector { weights: Some(place.format().to_owned()), ..anywhere() };
    let sibling = Selector { architecture: Some(place.accelerator.architecture.clone()), ..anywhere() };
    let chip = Selector { accelerator: Some(place.accelerator.id.clone()), ..anywhere() };
    let engine = &of_engine.engine;
    let mut all = vec![
        anywhere(),
        Selector { weights: of_weights.weights.clone(), ..of_engine.clone() },
        Selector { weights: of_weights.weights.clone(), ..sibling.clone() },
        Selector { engine: engine.clone(), ..sibling.clone() },
        Selector { engine: engine.clone(), ..chip.clone() },
    ];
    let version = |v| Selector { engine: engine.clone(), version: Some(v), ..anywhere() };
    all.extend(versions.levels(place).into_iter().map(version));
    if place.engine.served() {
        let served = Some(true);
        all.extend([
            Selector { served, ..anywhere() },
            Selector { served, engine: engine.clone(), ..anywhere() },
        ]);
    }
    all.extend([of_engine, of_weights, sibling, chip]);
    all.sort();
    all
}

/// The metrics that a row is fitted to, by their index, with the noise of each: what repeated runs differ by, and what no
/// model of this form can follow. A TTFT that holds what a server does only once says nothing of the next one.
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
        Kind::ClosedLoop if row.is_cold() && !row.median => vec![(TPOT, 0.06)],
        Kind::ClosedLoop | Kind::OpenLoop | Kind::BurstAllAtOnce | Kind::Disaggregated => {
            vec![(TPOT, 0.06), (TTFT, 0.15)]
        }
        Kind::OfflineStaticBatch | Kind::OfflineMaxThroughput => vec![(OUTPUT, 0.15)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::read;

    /// Shares move in the level of a generation whose kernels were not timed, hardly everywhere; the cost of small M moves in
    /// levels of engines and formats alone.
    #[test]
    fn what_a_level_may_move() {
        let timed = BTreeSet::from(["h100-sxm", "hopper"]);
        let any = Selector::default;
        let of = |at: Selector, coefficient| scale(&at, coefficient, &timed);
        let generation = |name: &str| Selector { architecture: Some(name.into()), ..any() };
        let chip = |name: &str| Selector { accelerator: Some(name.into()), ..any() };
        let (share, small) = (Coefficient::GemmCompute, Coefficient::SmallMMost);
        assert_eq!([of(any(), share), of(any(), Coefficient::Layer)], [Some(0.1), Some(1.0)]);
        assert_eq!([of(generation("hopper"), share), of(generation("cdna3"), share)], [Some(0.4), Some(1.0)]);
        assert_eq!([of(chip("h100-sxm"), share), of(chip("mi300x"), share)], [Some(0.2), Some(0.5)]);
        let fp8 = |name: &str| Selector { weights: Some("fp8".into()), ..generation(name) };
        assert_eq!([of(fp8("hopper"), share), of(fp8("cdna3"), share)], [Some(0.2), Some(0.4)]);
        assert_eq!(of(fp8("cdna3"), Coefficient::Layer), Some(0.2));
        let engine = || Selector { engine: Some("llama.cpp".into()), ..any() };
        let on_chip = Selector { accelerator: Some("m2-ultra".into()), ..engine() };
        let at = [any(), chip("mi300x"), generation("cdna3"), on_chip.clone(), engine()];
        assert_eq!(at.map(|at| of(at, small)), [None, None, None, None, Some(1.0)]);
        assert_eq!([of(on_chip, share), of(engine(), share)], [Some(0.1), Some(0.4)]);
    }

    /// TTFT is 0 and TPOT 1 of a row's metrics. A median says nothing of the first requests.
    #[test]
    fn the_first_token_of_a_cold_run_is_not_fitted() {
        let metrics = |version: &str, stat: &str| -> Vec<usize> {
            let header = "source,kind,model,hardware,engine,engine_version,weights,input_len,output_len,concurrency,stat";
            let line = format!("inferencex,closed_loop,m,h200-sxm,vllm,{version},fp8,1024,1024,4,{stat}");
            let row = read("f.csv", &format!("{header}\n{line}\n")).unwrap().remove(0);
            targets(&row).into_iter().map(|(metric, _)| metric).collect()
        };
        assert_eq!(metrics("", "mean"), [1]);
        assert_eq!([metrics("", "median"), metrics("0.18.0", "mean")], [[1, 0], [1, 0]]);
    }
}
