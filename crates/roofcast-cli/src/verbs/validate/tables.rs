//! Errors as a table and as CSV, and measured rows with their forecasts.
//!
//! Knows: how the library's report is shown. The library defines an error.

use crate::show::number::significant;
use crate::show::table::{fitted, line, table};
use roofcast::measurement::Metrics;
use roofcast::validate::split::Side;
use roofcast::validate::{ErrorReport, ErrorStatistics, Errors, RowForecast};

/// Number of groups in the table, which are the groups with the largest errors.
const WORST: usize = 10;

/// Columns of the CSV of errors; errors are fractions of the measured value.
pub(crate) const CSV: [&str; 14] = [
    "set",
    "part",
    "metric",
    "rows",
    "median_ape",
    "p90_ape",
    "bias",
    "in_band",
    "kept_at_80",
    "kept_at_90",
    "groups",
    "group_median_ape",
    "group_p90_ape",
    "interrupted",
];

/// CSV rows of the errors, one for each metric of each part.
pub(crate) fn csv_rows(set: &str, report: &ErrorReport, interrupted: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut add = |name: &str, part: &ErrorStatistics| {
        for (metric, e) in &part.metrics {
            let mut row = [set, name, metric].map(str::to_owned).to_vec();
            row.push(e.n.to_string());
            row.extend([e.median_ape, e.p90_ape, e.bias, e.in_band].map(|share| share.to_string()));
            row.extend([e.kept_at_80, e.kept_at_90].map(|share| share.to_string()));
            row.push(e.groups.to_string());
            row.extend([e.group_median_ape, e.group_p90_ape].map(|share| share.to_string()));
            row.push(interrupted.to_string());
            rows.push(row);
        }
    };
    add("all", &report.whole);
    parts(report).for_each(|(name, part)| add(name, part));
    report.groups.iter().for_each(|g| add(&g.group, &g.part));
    rows
}

/// The named parts of a report, in the order in which they are shown.
fn parts(report: &ErrorReport) -> impl Iterator<Item = (&str, &ErrorStatistics)> {
    let kinds = report.kinds.iter().map(|(name, part)| (*name, part));
    let others = [&report.sources, &report.engines, &report.hardware];
    kinds.chain(others.into_iter().flatten().map(|(name, part)| (name.as_str(), part)))
}

/// Columns that identify a measured row.
const ROW: [&str; 5] = ["id", "source", "group", "side", "kind"];
/// Columns for the parts of a forecast's time, by bottleneck.
const PARTS: [&str; 7] =
    ["steps", "running", "server_ms", "memory_share", "compute_share", "communication_share", "host_share"];

/// CSV of every row: measured value, forecast and limit, and the forecast's time by bottleneck.
pub(crate) fn per_row(points: &[RowForecast]) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let of_metric = |name| ["measured", "forecast", "limit"].map(|what| format!("{name}_{what}"));
    let mut header: Vec<String> = ROW.map(str::to_owned).to_vec();
    header.extend(Metrics::NAMES.into_iter().flat_map(of_metric));
    header.extend(PARTS.into_iter().chain(["left_out", "settings"]).map(str::to_owned));
    writer.write_record(&header)?;
    for point in points {
        let row = point.row;
        let side = Side::of(row).name();
        let mut line = vec![row.id.clone(), row.source.clone(), row.group()];
        line.extend([side, row.kind.name()].map(str::to_owned));
        let none = Metrics::default();
        let forecast = point.forecast.as_ref().unwrap_or(&none).all();
        for (index, measured) in row.measured.all().into_iter().enumerate() {
            let figures = [measured, forecast[index], point.limit.all()[index]];
            line.extend(figures.map(|f| f.map(significant).unwrap_or_default()));
        }
        line.extend(parts_of(point));
        line.push(point.forecast.as_ref().err().cloned().unwrap_or_default());
        line.push(row.recipe().unwrap_or_default().to_owned());
        writer.write_record(&line)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The cells of [`PARTS`] for a row; empty without a forecast.
fn parts_of(point: &RowForecast) -> [String; PARTS.len()] {
    let Some(parts) = point.parts else { return Default::default() };
    let shares = parts.shares;
    [
        parts.steps.to_string(),
        significant(parts.running),
        significant(parts.server_ms),
        significant(shares.memory),
        significant(shares.compute),
        significant(shares.communication),
        significant(shares.host + shares.server),
    ]
}

/// The number of rows that have a forecast, in words.
pub(super) fn counted(report: &ErrorReport) -> String {
    format!("forecast: {} of {} rows", report.whole.predicted, report.whole.rows)
}

/// Text of the errors of every part, the errors by kind over groups, and the reasons for skipped rows.
pub(super) fn errors(report: &ErrorReport) -> String {
    let header =
        ["part", "metric", "rows", "median %", "p90 %", "bias %", "in band %", "80 % kept", "90 % kept"];
    let worst = report.groups.iter().take(WORST).map(|g| (g.group.as_str(), &g.part));
    let over_rows = |e: &Errors| {
        let errors = [e.median_ape, e.p90_ape, e.bias];
        let shares = [errors, [e.in_band, e.kept_at_80, e.kept_at_90]].concat().into_iter().map(percent);
        let shares: Vec<String> = shares.collect();
        [vec![e.n.to_string()], shares].concat()
    };
    let mut text = fitted(&header, &by_metric(parts(report).chain(worst), over_rows), 2, &[8, 7]);
    let header = ["each group counts once", "metric", "groups", "median %", "p90 %"];
    let over_groups = |e: &Errors| {
        let shares = [e.group_median_ape, e.group_p90_ape].map(percent);
        [vec![e.groups.to_string()], shares.to_vec()].concat()
    };
    let kinds = report.kinds.iter().map(|(name, part)| (*name, part));
    text += &table(&header, &by_metric(kinds, over_groups), 2);
    if !report.skipped.is_empty() {
        let rows: Vec<_> =
            report.skipped.iter().map(|s| vec![s.reason.clone(), s.rows.to_string()]).collect();
        text += &table(&["omitted because", "rows"], &rows, 1);
    }
    if !report.drafts.is_empty() {
        let rows = format!("{} rows of pools look like speculation, which no row says", report.drafts.len());
        text += &line(&format!(
            "{rows} (steps faster than their limit, or 1.7 times as fast as forecast): {}",
            report.drafts.join(", ")
        ));
        text.push('\n');
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Table rows for each metric of each part: its names, then the cells that `figures` makes of its errors.
fn by_metric<'a>(
    parts: impl Iterator<Item = (&'a str, &'a ErrorStatistics)>,
    figures: impl Fn(&Errors) -> Vec<String>,
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (name, part) in parts {
        for (metric, errors) in &part.metrics {
            rows.push([vec![name.to_owned(), (*metric).to_owned()], figures(errors)].concat());
        }
    }
    rows
}
