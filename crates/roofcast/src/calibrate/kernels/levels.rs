//! Fits to kernel times as levels of a calibration.
//!
//! Knows: which fits are of what engines do now, which places share one, and which coefficients it tells. Knows nothing about
//! how it was found.

use super::{Fitted, OTHER_HEADS};
use crate::accelerator::Topology;
use crate::calibration::{Level, Selector};
use crate::coefficients::{Coefficient, LATENCY};
use crate::kernel::Part;
use crate::version::Version;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// An engine as specs call it; tables have short names.
fn engine(backend: &str) -> String {
    if backend == "trtllm" { "tensorrt-llm" } else { backend }.to_owned()
}

/// The fits as levels of a calibration: those of each chip, and those that its generation, or what is linked alike, borrows.
pub fn levels(fits: &[Fitted]) -> Vec<Level> {
    let mut levels: BTreeMap<Selector, Vec<&Fitted>> = BTreeMap::new();
    for fit in usual(newest(fits)) {
        let architecture = Some(fit.at.architecture.clone());
        let accelerator = Some(fit.accelerator.clone());
        let engine = Some(engine(&fit.backend)).filter(|e| !e.is_empty());
        let anywhere = Selector { weights: fit.weights.clone(), ..Selector::default() };
        let own = Selector { accelerator, ..anywhere.clone() };
        let sibling = Selector { architecture, ..anywhere.clone() };
        let by_link = Selector { link: fit.at.link, ..Selector::default() };
        let by_engine = |at: &Selector| Selector { engine: engine.clone(), ..at.clone() };
        let places = match fit.part {
            // What cards through the host take says nothing of those that reach each other.
            Part::AllReduce if fit.at.link == Some(Topology::Host) => vec![by_link],
            Part::AllReduce => vec![own, by_link],
            // Other engines have other kernels.
            Part::Mixed => vec![by_engine(&own), by_engine(&sibling)],
            _ => vec![by_engine(&own), by_engine(&sibling), own, sibling],
        };
        for at in places.into_iter().collect::<BTreeSet<_>>() {
            levels.entry(at).or_default().push(fit);
        }
    }
    let level = |(at, fits): (Selector, Vec<&Fitted>)| Level {
        at,
        kernels: Some(tables(&fits)),
        source: None,
        versions: Vec::new(),
        rows: fits.iter().map(|f| f.rows as u64).sum(),
        median_error: crate::calibrate::rounded(mean(fits.iter().map(|f| f.median_error))),
        p90_error: crate::calibrate::rounded(mean(fits.iter().map(|f| f.p90_error))),
        coefficients: coefficients(&fits),
    };
    levels.into_iter().map(level).filter(|l| !l.coefficients.is_empty()).collect()
}

/// What a fit is of, whatever the version and kernel.
fn whose(f: &Fitted) -> impl Ord + use<> {
    (f.accelerator.clone(), f.backend.clone(), f.part, f.weights.clone(), f.at.link)
}

/// The fits of each engine's newest version on each chip and link: what engines do now.
fn newest(fits: &[Fitted]) -> Vec<&Fitted> {
    let mut newest: BTreeMap<_, Option<&str>> = BTreeMap::new();
    for fit in fits {
        let known = newest.entry(whose(fit)).or_insert(fit.version.as_deref());
        let later = |a: &str, b: &str| Version::compare(a, b).is_some_and(Ordering::is_gt);
        if fit.version.as_deref().zip(*known).is_some_and(|(version, known)| later(version, known)) {
            *known = fit.version.as_deref();
        }
    }
    // Engines all-reduce with kernels of their own and hand what is too long for these to NCCL: their tables have both.
    let nccl = |f: &Fitted| f.fill_us.is_some() && f.source.as_deref() == Some("NCCL");
    let engines: BTreeSet<&str> = fits
        .iter()
        .filter(|f| f.part == Part::AllReduce && !nccl(f))
        .map(|f| f.accelerator.as_str())
        .collect();
    fits.iter()
        .filter(|f| newest.get(&whose(f)) == Some(&f.version.as_deref()))
        .filter(|f| !(nccl(f) && engines.contains(f.accelerator.as_str())))
        .collect()
}

/// Of the fits to attention, those of each engine's usual kernel. Engines choose the kernel by a model's heads: the one timed
/// for most shapes is that of most models.
fn usual(fits: Vec<&Fitted>) -> Vec<&Fitted> {
    let attends = |f: &Fitted| matches!(f.part, Part::Prefill | Part::Decode);
    let mut usual: BTreeMap<_, &Fitted> = BTreeMap::new();
    for &fit in fits.iter().filter(|f| attends(f)) {
        let most = usual.entry(whose(fit)).or_insert(fit);
        *most = if fit.rows > most.rows { fit } else { *most };
    }
    let is_usual = |f: &Fitted| usual.get(&whose(f)).is_some_and(|most| std::ptr::eq(*most, f));
    fits.into_iter().filter(|f| !attends(f) || is_usual(f)).collect()
}

/// The tables behind the fits, as in `gemm_h200_sxm_vllm.csv.gz: vllm 0.24.0`.
fn tables(fits: &[&Fitted]) -> String {
    let all: BTreeSet<&str> = fits.iter().flat_map(|f| &f.tables).map(String::as_str).collect();
    all.into_iter().collect::<Vec<_>>().join("; ")
}

/// Each coefficient's geometric mean over the fits that tell it.
fn coefficients(fits: &[&Fitted]) -> BTreeMap<Coefficient, f64> {
    let mut told: BTreeMap<Coefficient, Vec<f64>> = BTreeMap::new();
    for fit in fits {
        for (coefficient, value) in
            fit.part.coefficients().into_iter().zip([fit.compute, fit.memory, fit.exposed.or(fit.group)])
        {
            if let (Some(coefficient), Some(value)) = (coefficient, value) {
                told.entry(coefficient).or_default().push(value.ln());
            }
        }
        let [compute_spread, memory_spread] = fit.spread.map_or([None; 2], |spread| spread.map(Some));
        for (coefficient, value) in [
            (fit.part.activation(), fit.crossings),
            (Some(Coefficient::GemmInput), fit.inputs),
            (Some(Coefficient::AttentionTail), fit.tail),
            (Some(Coefficient::GemmComputeSpread), compute_spread),
            (Some(Coefficient::GemmMemorySpread), memory_spread),
            (Some(Coefficient::ExpertCopies), fit.copies),
            (Some(Coefficient::NarrowCache), fit.narrow),
            (Some(Coefficient::DecodeStart), fit.start_tokens),
            (Some(Coefficient::DecodePairs), fit.pairs),
        ] {
            if let (Some(coefficient), Some(value)) = (coefficient, value) {
                told.entry(coefficient).or_default().push(value.ln());
            }
        }
        for (head_dim, coefficient) in OTHER_HEADS {
            if let Some(factor) = fit.heads.get(&head_dim) {
                told.entry(coefficient).or_default().push(factor.ln());
            }
        }
        if let Some(rows) = fit.mixed_rows {
            told.entry(Coefficient::MixedRows).or_default().push(rows.ln());
        }
        if fit.part == Part::AllReduce && fit.at.latency > 0.0 {
            let start = |us: f64| (us * 1e-6 * LATENCY / fit.at.latency).ln();
            told.entry(Coefficient::AllReduce).or_default().push(start(fit.launch_us));
            if let (Some(fill), Some(fewer)) = (fit.fill_us, fit.fewer) {
                told.entry(Coefficient::AllReduceFill).or_default().push(start(fill));
                told.entry(Coefficient::LinkFewer).or_default().push(fewer.ln());
            }
        }
    }
    told.into_iter()
        .map(|(coefficient, logs)| (coefficient, crate::calibrate::rounded(mean(logs.into_iter()).exp())))
        .collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
