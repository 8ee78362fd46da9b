//! What the rows of a plan rest on, for people.
//!
//! Knows: rows of one accelerator, format and engine rest on the same kernel times.

use super::table::distinct;
use crate::show::table;
use roofcast::coefficients::Evidence;
use roofcast::plan::{Choice, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// A line for each accelerator, weight format and engine of the rows; empty at the limit.
pub(super) fn people(found: &Plan) -> String {
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    let rows = distinct(&found.ranked);
    let several = rows.iter().map(|c| &c.engine).collect::<BTreeSet<_>>().len() > 1;
    for c in &rows {
        let Some(bands) = &c.bands else { continue };
        let engine = if several { format!(", {}", c.engine) } else { String::new() };
        let [low, high] = bands.tpot_ms.factors;
        let sure = format!("TPOT measured x{low:.2} to x{high:.2} of it in 8 of 10");
        lines
            .entry(format!("{}, {}{engine}", c.accelerators(), c.weights))
            .or_insert_with(|| format!("{}: {sure}", basis(c).unwrap_or_else(|| bands.rests_on.clone())));
    }
    if lines.is_empty() {
        return String::new();
    }
    let pairs: Vec<(&str, String)> =
        lines.iter().map(|(name, basis)| (name.as_str(), basis.clone())).collect();
    format!("what the forecasts rest on\n\n{}{}", table::pairs(&pairs), versions(&rows))
}

/// The timed kernels of a row of one pool.
fn basis(c: &Choice) -> Option<String> {
    let timed = c.kernels.as_ref().filter(|_| c.prefill.is_none() && c.beside.is_none())?;
    let on = match c.evidence {
        Some(Evidence::Engine | Evidence::Accelerator) => timed.accelerator.clone(),
        _ => format!("{}, a sibling chip", timed.accelerator),
    };
    Some(format!("kernels of {} {} timed on {on}", timed.engine, timed.version))
}

/// A warning if rows rest on different versions of one engine.
fn versions(rows: &[&Choice]) -> String {
    let mut of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for timed in rows.iter().filter_map(|c| c.kernels.as_ref()) {
        of.entry(&timed.engine).or_default().insert(&timed.version);
    }
    let differ = of.iter().filter(|(_, versions)| versions.len() > 1);
    let line = |(engine, versions): (&&str, &BTreeSet<&str>)| {
        let versions = versions.iter().copied().collect::<Vec<_>>().join(", ");
        table::line(&format!(
            "Kernels of {engine} were timed in different versions ({versions}), the newest public ones of each chip: a \
             chip of older tables may be faster than its rows say"
        )) + "\n"
    };
    differ.map(line).collect()
}

/// The accelerators that the list by default leaves out; empty if the user `chose` them.
pub(super) fn not_searched(found: &Plan, chose: bool) -> String {
    if chose || found.not_searched.is_empty() {
        return String::new();
    }
    let ids = found.not_searched.join(", ");
    table::line(&format!("not looked at, though the catalog has a price (--hardware names them): {ids}"))
        + "\n"
}
