//! The evidence behind the rows of a plan, for people.
//!
//! Knows: rows with equal accelerator, format and engine have equal evidence, because they use one set of kernel times;
//! the parts of the best deployment's steps whose kernels nobody timed; its intervals.

use super::table::{distinct, pools};
use crate::show::number::{dollars, percent, significant};
use crate::show::table;
use crate::verbs::bands;
use roofcast::bands::Bands;
use roofcast::coefficients::Evidence;
use roofcast::kernel_time::Timed;
use roofcast::plan::{Bounded, Choice, Plan};
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
        lines.entry(&row.name).or_insert_with(|| told(row));
    }
    if lines.is_empty() {
        return String::new();
    }
    let pairs: Vec<(&str, String)> = lines.into_iter().collect();
    format!("data behind the forecasts\n\n{}{}", table::pairs(&pairs), versions(rows))
}

/// The evidence of a row in words.
fn told(row: &Row) -> String {
    let (metric, span) = row.bands.tpot_ms.map_or(("TTFT", row.bands.ttft_ms), |span| ("TPOT", span));
    let [low, high] = span.factors;
    let basis = basis(row).unwrap_or_else(|| row.bands.rests_on.clone());
    format!("{basis}: measured {metric} was x{low:.2} to x{high:.2} of the forecast in 8 of 10 cases")
}

/// The kernels or the datasheet behind the forecast of `best`; without a chance, which has an interval of its own, also how
/// far measurements were from such forecasts.
pub(super) fn basis_of(best: &Choice) -> Option<String> {
    let kernels = best.kernels.clone().filter(|_| best.prefill.is_none() && best.beside.is_none());
    let row = Row { name: String::new(), bands: best.bands.clone()?, kernels, evidence: best.evidence };
    if best.bounds.iter().any(|bound| bound.interval.is_some()) {
        return Some(basis(&row).unwrap_or_else(|| row.bands.rests_on.clone()));
    }
    Some(told(&row))
}

/// The 80 % interval of every bounded latency, from the simulations that give the chance, or of the means if there is
/// no chance.
pub(super) fn interval(best: &Choice) -> Option<(&'static str, String)> {
    let bands_of = best.bands.as_ref()?;
    let interval_of = |bound: &Bounded| {
        let [low, high] = bound.interval?.map(significant);
        Some(format!("{} {} {low} to {high} ms", bound.metric, bound.percentile))
    };
    let all: Vec<String> = best.bounds.iter().filter_map(interval_of).collect();
    let text = match all.as_slice() {
        [] => format!("of the means, not of percentiles: {}", bands(bands_of)),
        all => format!(
            "{}; from the simulations that give the chance, whose step times vary as they did under loads of users (based \
             on {})",
            all.join(", "),
            bands_of.rests_on
        ),
    };
    Some(("80 % interval", text))
}

/// First line of a plan whose `best` deployment has kernels that nobody timed on its architecture.
pub(super) fn untimed(best: &Choice) -> Option<String> {
    let rests_on = &best.bands.as_ref()?.rests_on;
    let line = || table::line(&format!("NOT MEASURED: the best deployment rests on {rests_on}"));
    best.evidence.filter(|evidence| *evidence <= Evidence::Family).map(|_| line())
}

/// Lines with the kernels that nobody timed on the accelerator of `best`, and the price of the best deployment on timed kernels; empty if
/// all its kernels were timed there. `untimed` says which kernels nobody timed on the architecture.
pub(super) fn caveats(
    best: &Choice,
    ranked: &[Choice],
    untimed: Option<&str>,
) -> Vec<(&'static str, String)> {
    let chip = &best.accelerator;
    let timed = |c: &Choice| c.evidence.is_none_or(|evidence| evidence >= Evidence::Accelerator);
    let text = match (best.evidence, untimed) {
        (None, _) => return Vec::new(),
        (Some(_), Some(text)) => text.to_owned(),
        (Some(Evidence::Architecture), None) => {
            format!("NOT MEASURED: some kernels of {chip} are those timed on a sibling chip")
        }
        (Some(_), None) => return Vec::new(),
    };
    let mut lines = vec![("evidence", text)];
    let price = |c: &Choice| dollars(c.cost_per_hour);
    match ranked
        .iter()
        .find(|c| timed(c) && c.accelerator != best.accelerator || timed(c) && c.weights != best.weights)
    {
        Some(other) => {
            let more =
                best.cost_per_hour.zip(other.cost_per_hour).map_or_else(String::new, |(own, other)| {
                    format!(
                        " ({} {})",
                        percent((other / own - 1.0).abs()),
                        if other >= own { "more" } else { "less" }
                    )
                });
            lines.push((
                "best measured",
                format!(
                    "{} as {}, {} weights: ${}/h{more}",
                    other.hardware(),
                    pools(other),
                    other.weights,
                    price(other)
                ),
            ));
        }
        None => lines.push(("best measured", "none among the deployments that were simulated".to_owned())),
    }
    lines
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
    let mut versions_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for timed in rows.iter().filter_map(|row| row.kernels.as_ref()) {
        versions_of.entry(&timed.engine).or_default().insert(&timed.version);
    }
    let differ = versions_of.iter().filter(|(_, versions)| versions.len() > 1);
    let line = |(engine, versions): (&&str, &BTreeSet<&str>)| {
        let versions = versions.iter().copied().collect::<Vec<_>>().join(", ");
        table::line(&format!(
            "Kernels of {engine} were timed in different versions ({versions}), the newest public ones of each chip: a \
             chip of older tables may be faster than its rows say"
        )) + "\n"
    };
    differ.map(line).collect()
}

/// The accelerators whose price or power is unknown, the consequence for the answer, and the flag that helps; empty if
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
