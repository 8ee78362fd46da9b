//! The evidence behind the rows of a plan, for people.
//!
//! Knows: rows with equal accelerator, format and engine have equal evidence, because they use one set of kernel times.

use super::table::distinct;
use crate::show::table;
use roofcast::bands::Bands;
use roofcast::coefficients::Evidence;
use roofcast::kernel_time::Timed;
use roofcast::plan::{Choice, Plan};
use roofcast::spec::{Objective, SearchSpec};
use std::collections::{BTreeMap, BTreeSet};

/// A row of an answer, with the evidence for its forecast.
pub(super) struct Row {
    /// Accelerator, weight format, and the engine if there are several.
    pub(super) name: String,
    pub(super) bands: Bands,
    /// The measured kernels behind a row of one pool; `None` without measured kernels, or for two pools.
    pub(super) kernels: Option<Timed>,
    pub(super) evidence: Option<Evidence>,
}

/// Evidence for each accelerator, weight format and engine of the plan, a line each; empty if the plan is at the limit,
/// which needs no evidence.
pub(super) fn people(found: &Plan) -> String {
    let choices = distinct(&found.ranked);
    let several = choices.iter().map(|c| &c.engine).collect::<BTreeSet<_>>().len() > 1;
    let row = |c: &&Choice| -> Option<Row> {
        let engine = if several { format!(", {}", c.engine) } else { String::new() };
        let name = format!("{}, {}{engine}", c.accelerators(), c.weights);
        let one_pool = c.prefill.is_none() && c.beside.is_none();
        let kernels = c.kernels.clone().filter(|_| one_pool);
        Some(Row { name, bands: c.bands.clone()?, kernels, evidence: c.evidence })
    };
    rows(&choices.iter().filter_map(row).collect::<Vec<_>>())
}

/// Evidence for each name among `rows`, a line each; empty without rows.
pub(super) fn rows(rows: &[Row]) -> String {
    let mut lines: BTreeMap<&str, String> = BTreeMap::new();
    for row in rows {
        let [low, high] = row.bands.tpot_ms.factors;
        let sure = format!("measured TPOT was x{low:.2} to x{high:.2} of the forecast in 8 of 10 cases");
        let basis = || basis(row).unwrap_or_else(|| row.bands.rests_on.clone());
        lines.entry(&row.name).or_insert_with(|| format!("{}: {sure}", basis()));
    }
    if lines.is_empty() {
        return String::new();
    }
    let pairs: Vec<(&str, String)> = lines.into_iter().collect();
    format!("data behind the forecasts\n\n{}{}", table::pairs(&pairs), versions(rows))
}

fn basis(row: &Row) -> Option<String> {
    let timed = row.kernels.as_ref()?;
    let on = match row.evidence {
        Some(Evidence::Engine | Evidence::Accelerator) => timed.accelerator.clone(),
        _ => format!("{}, a sibling chip", timed.accelerator),
    };
    Some(format!("kernels of {} {} timed on {on}", timed.engine, timed.version))
}

/// A warning if rows use evidence of different versions of one engine.
fn versions(rows: &[Row]) -> String {
    let mut of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for timed in rows.iter().filter_map(|row| row.kernels.as_ref()) {
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

/// The accelerators whose price or power is unknown, what that means for the answer, and the flag that helps; empty if
/// there are none.
pub(super) fn unpriced(found: &Plan, search: &SearchSpec) -> String {
    let Some(first) = found.unpriced.first() else { return String::new() };
    let ids = found.unpriced.join(", ");
    let (lacks, flag) = match search.minimise {
        Objective::Energy => ("power", format!("--set 'search.power_w={{ {first} = WATTS }}'")),
        _ => ("price", format!("--price {first}=DOLLARS_PER_HOUR")),
    };
    let line = match found.minimise {
        Objective::Accelerators => format!(
            "NO {}: the catalog has none of {ids}, so deployments are ranked by their number of accelerators; {flag} ranks \
             them by the {lacks}",
            lacks.to_uppercase()
        ),
        _ => format!(
            "LEFT OUT: {ids}, of which the catalog has no {lacks}; {flag} compares it with the others"
        ),
    };
    table::line(&line) + "\n"
}

/// Text of the accelerators that a default search leaves out; empty if the user `chose` the accelerators.
pub(super) fn not_searched(found: &Plan, chose: bool) -> String {
    if chose || found.not_searched.is_empty() {
        return String::new();
    }
    let ids = found.not_searched.join(", ");
    table::line(&format!("not searched, though the catalog has a price (add with --hardware): {ids}")) + "\n"
}
