//! The table of a sweep for people: a row for each run, what all runs have in common, and the bands of the forecasts.

use super::{Run, about};
use crate::input::dimensions::{Dimension, word};
use crate::show::column::{Column, Columns, Figure, Tabled};
use crate::show::number::{grouped, percent};
use crate::show::table;
use crate::verbs::simulate::text::{answered_per_s, good_per_s};
use crate::verbs::{band_factors, common_title, question};
use roofcast::workload::Workload;

pub(super) fn people(dimensions: &[Dimension], runs: &[Run]) -> String {
    let title =
        common_title(&runs.iter().map(|run| about(&run.deployment, &run.simulation)).collect::<Vec<_>>());
    let keys: Vec<&str> = dimensions.iter().map(Dimension::short).collect();
    let columns = Columns::of(COLUMNS, runs.iter(), false);
    let header: Vec<&str> = keys.iter().copied().chain(columns.names()).collect();
    let row = |run: &Run| run.values.iter().map(word).chain(columns.row(run)).collect();
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let overloaded: Vec<String> =
        runs.iter().filter(|run| run.simulation.load.overloaded).map(Run::name).collect();
    let note = if overloaded.is_empty() {
        String::new()
    } else {
        let at = overloaded.join("; ");
        table::line(&format!("Overload at {at}: the queue grows for as long as requests come."))
    };
    // Columns to drop are found by name, because goodput is not always present.
    let spare = ["J/token", "preempted", "empty", "E2EL p50", "KV held", "running", "ITL p99", "E2EL p99"];
    let spare: Vec<usize> =
        spare.iter().filter_map(|name| header.iter().position(|column| column == name)).collect();
    let text = table::fitted(&header, &rows, keys.len(), &spare);
    format!("{title}{}{text}{}{note}{}", table::pairs(&asked(runs)), caches(&keys, runs), spans(runs))
}

/// The table for the page.
pub(super) fn table(runs: &[Run]) -> Tabled {
    Columns::of(COLUMNS, runs.iter(), false).table(runs.iter())
}

/// The load and SLO that all runs have in common, by name; the varied keys are in the table.
pub(super) fn asked(runs: &[Run]) -> Vec<(&'static str, String)> {
    let common = |of: &dyn Fn(&Run) -> Option<String>| {
        let first = of(runs.first()?)?;
        runs.iter().all(|run| of(run).as_ref() == Some(&first)).then_some(first)
    };
    let features: fn(&Workload) -> String = |workload| question::features(workload).join(", ");
    let part = |say: fn(&Workload) -> String| common(&|run| run.workload.as_ref().map(say));
    let load: Vec<String> =
        [part(question::arrivals), part(question::lengths), part(features)].into_iter().flatten().collect();
    let load = load.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
    let load = (!load.is_empty()).then(|| ("load", load.join(", ")));
    let slo = common(&|run| Some(question::slo(&run.slo))).map(|slo| ("SLO", slo));
    load.into_iter().chain(slo).collect()
}

/// The bands of the forecasts, one line for all values with equal bands.
fn spans(runs: &[Run]) -> String {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let Some(bands) = &run.simulation.bands else { continue };
        let line = band_factors(bands);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, values)) => values.push(run.name()),
            None => lines.push((line, vec![run.name()])),
        }
    }
    let where_held = |values: &[String]| {
        if values.len() == runs.len() { String::new() } else { format!(", at {}", values.join("; ")) }
    };
    let text = |(line, values): &(String, Vec<String>)| {
        table::line(&format!("80 % interval of the means{}: {line}", where_held(values)))
    };
    lines.iter().map(text).collect()
}

/// External fragmentation and block-table traffic, for runs that have either.
fn caches(keys: &[&str], runs: &[Run]) -> String {
    let all = || runs.iter().map(|run| run.simulation.kv_cache);
    let gaps = all().any(|k| k.external_fragmentation > 0.0);
    let tables = all().any(|k| k.tables.is_some());
    if !gaps && !tables {
        return String::new();
    }
    let mut header = [keys, &["blocks", "of tokens"]].concat();
    header.extend(gaps.then_some(["external fragmentation", "scattered refusals"]).into_iter().flatten());
    header.extend(tables.then_some(["table bytes a layer reads", "sent a step"]).into_iter().flatten());
    let row = |run: &Run| {
        let k = run.simulation.kv_cache;
        let mut row: Vec<String> = run.values.iter().map(word).collect();
        row.extend([k.blocks, k.block_size].map(grouped));
        if gaps {
            row.extend([percent(k.external_fragmentation), grouped(k.scattered_refusals)]);
        }
        if tables {
            let bytes = k.tables.map_or([0.0; 2], |t| [t.read_bytes, t.sent_bytes]);
            row.extend(bytes.map(|bytes| grouped(bytes.round() as u64)));
        }
        row
    };
    table::table(&header, &runs.iter().map(row).collect::<Vec<_>>(), keys.len())
}

const COLUMNS: &[Column<Run>] = &[
    Column::shown("req/s", |run| of_answers(run, answered_per_s(&run.simulation))),
    Column::shown("good/s", |run: &Run| {
        good_per_s(&run.simulation).map_or(Figure::Absent, |v| of_answers(run, v))
    })
    .only(|run| run.simulation.summary.request_goodput().is_some()),
    Column::shown("refused", |run: &Run| Figure::Count(run.simulation.refused))
        .only(|run| run.simulation.refused > 0),
    Column::shown("rejected", |run: &Run| Figure::Count(run.simulation.rejected))
        .only(|run| run.simulation.rejected > 0),
    Column::shown("output tok/s", |run| of_answers(run, run.simulation.summary.output_throughput())),
    Column::shown("TTFT p50", |run| of_answers(run, run.simulation.summary.ttft.median)),
    Column::shown("p99", |run| of_answers(run, run.simulation.summary.ttft.p99)),
    Column::shown("TPOT p50", |run| of_gaps(run, run.simulation.summary.tpot.median)),
    Column::shown("p99", |run| of_gaps(run, run.simulation.summary.tpot.p99)),
    Column::shown("ITL p99", |run| of_gaps(run, run.simulation.summary.itl.p99)),
    Column::shown("E2EL p50", |run| of_answers(run, run.simulation.summary.e2el.median)),
    Column::shown("E2EL p99", |run| of_answers(run, run.simulation.summary.e2el.p99)),
    Column::shown("running", |run| of_answers(run, run.simulation.activity.mean_running)),
    Column::shown("replicas", |run: &Run| {
        Figure::known(run.simulation.fleet.autoscale.map(|scaling| scaling.mean_replicas))
    })
    .only(|run| run.simulation.fleet.autoscale.is_some()),
    Column::shown("KV held", |run| Figure::Share(run.simulation.kv_cache.mean_usage)),
    Column::shown("empty", |run| Figure::Share(run.simulation.kv_cache.internal_fragmentation)),
    Column::shown("preempted", |run| Figure::Count(run.simulation.activity.preemptions)),
    Column::shown("J/token", |run: &Run| {
        run.simulation.expense.joules_per_output_token.map_or(Figure::Absent, |v| of_answers(run, v))
    })
    .only(|run| run.simulation.expense.joules_per_output_token.is_some()),
];

/// A figure of a run, if it answered a request.
fn of_answers(run: &Run, figure: f64) -> Figure {
    Figure::known((run.simulation.summary.completed > 0).then_some(figure))
}

/// A figure of the gaps between tokens, if an answer has any.
fn of_gaps(run: &Run, figure: f64) -> Figure {
    let summary = &run.simulation.summary;
    Figure::known((summary.tpot.count > 0 && summary.completed > 0).then_some(figure))
}
