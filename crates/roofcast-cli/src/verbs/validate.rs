//! `roofcast validate FILE…`: forecasts beside what was measured.

pub(crate) mod view;

use crate::args::ValidateArgs;
use crate::page::Alone;
use crate::show::number::significant;
use crate::show::progress::Progress;
use crate::show::table::{line, table};
use crate::show::target::Target;
use crate::{exit, input, show};
use rayon::prelude::*;
use roofcast::calibration::Calibration;
use roofcast::measurement::{Measurement, Metrics};
use roofcast::report::{measured, scatter};
use roofcast::validate::run::{self, Compared, Replay};
use roofcast::validate::{Part, Point, Report, points, report};
use roofcast::{Catalog, Error};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use view::View;

/// The answer's schema.
const SCHEMA: &str = "roofcast/validate/1";

#[derive(Serialize)]
pub(crate) struct Answer {
    #[serde(flatten)]
    report: Report,
    runs: Vec<Replay>,
    /// Whether rows are missing, as Ctrl-C came before they were forecast.
    interrupted: bool,
}

/// Rows that a thread forecasts before it looks whether to go on; what they have in common is resolved once for all.
const PIECE: usize = 256;

/// Groups that the table shows.
const WORST: usize = 10;

pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let rows_file = Target::asked("--per-row", args.per_row.as_ref())?;
    let scatter_file = Target::asked("--svg", args.svg.as_ref())?;
    let curves_file = Target::asked("--curves", args.curves.as_ref())?;
    let page = Alone::asked(args.html.as_ref())?;
    input::measurements::idle(&args.files, &args.runs)?;
    let mut catalog = input::catalog(&args.catalog)?;
    let calibration = input::calibration(args.calibration.as_deref())?;
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = args.files.iter().cloned().partition(|f| f.is_dir());
    let mut rows = input::measurements::read(&files, &args.runs, &mut catalog)?;
    if let Some(words) = &args.group {
        keep(&mut rows, words)?;
    }
    if rows.is_empty() && folders.is_empty() {
        let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        return Err(Error::field(names.join(", "), "rows", 0, "a row or more below the header").into());
    }
    if args.output.csv && !files.is_empty() && !folders.is_empty() {
        let accepted = "files alone, or folders alone: their columns differ";
        return Err(Error::field("arguments", "--csv", "beside files and folders", accepted).into());
    }
    let runs = folders
        .iter()
        .map(|f| replayed(f, &catalog, &calibration))
        .collect::<anyhow::Result<Vec<Replay>>>()?;
    let points = in_parallel(&rows, &catalog, &calibration)?;
    let interrupted = points.len() < rows.len();
    if let Some(file) = &rows_file {
        file.text(&per_row(&points)?)?;
    }
    if let Some(file) = &scatter_file {
        let accepted = "one or more rows that are measured and forecast";
        let picture = scatter::svg(&points)
            .ok_or_else(|| Error::field("arguments", "--svg", "no such rows", accepted))?;
        file.text(&picture)?;
    }
    if let Some(file) = &curves_file {
        let accepted = "three or more rows that differ in batch, prompt or context alone";
        let picture = measured::svg(&points)
            .ok_or_else(|| Error::field("arguments", "--curves", "no curve in these rows", accepted))?;
        file.text(&picture)?;
    }
    let report = report(&points);
    if let Some(page) = &page {
        page.write("accuracy", &View::of(&report, &points))?;
    }
    if args.output.json {
        show::json(SCHEMA, &Answer { report, runs, interrupted })?;
    } else if args.output.csv && files.is_empty() {
        let rows = of_runs(&runs, |share| share.to_string(), |v| v.to_string());
        show::csv(
            &["run", "metric", "mean_measured", "mean_forecast", "mean_error", "p50_error", "p99_error"],
            &rows,
        )?;
    } else if args.output.csv {
        show::csv(&CSV, &csv_rows("forecast", &report, interrupted))?;
    } else {
        let partial =
            format!("PARTIAL: interrupted when {} of {} rows were forecast", points.len(), rows.len());
        let mut text = if interrupted { line(&partial) + "\n" } else { String::new() };
        text += &if files.is_empty() { String::new() } else { people(&report) };
        show::text(&(text + &compared(&runs)))?;
    }
    Ok(if interrupted { exit::invalid() } else { ExitCode::SUCCESS })
}

/// Columns of the errors; shares are of what was measured.
pub(crate) const CSV: [&str; 9] =
    ["set", "part", "metric", "rows", "median_ape", "p90_ape", "bias", "in_band", "interrupted"];

/// The errors of every part.
pub(crate) fn csv_rows(set: &str, report: &Report, interrupted: bool) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut add = |name: &str, part: &Part| {
        for (metric, e) in &part.metrics {
            let figures = [e.median_ape, e.p90_ape, e.bias, e.in_band].map(|share| share.to_string());
            let names = [set, name, metric].map(str::to_owned);
            let rest = [vec![e.n.to_string()], figures.to_vec(), vec![interrupted.to_string()]].concat();
            rows.push(names.into_iter().chain(rest).collect());
        }
    };
    add("all", &report.whole);
    report.kinds.iter().for_each(|(name, part)| add(name, part));
    report.engines.iter().for_each(|(name, part)| add(name, part));
    report.hardware.iter().for_each(|(name, part)| add(name, part));
    report.groups.iter().for_each(|g| add(&g.group, &g.part));
    rows
}

/// Keeps the rows whose group and kind hold every one of `words`.
fn keep(rows: &mut Vec<Measurement>, words: &str) -> anyhow::Result<()> {
    rows.retain(|row| {
        let text = format!("{} {}", row.group(), row.kind.name()).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    });
    if rows.is_empty() {
        let accepted =
            "words of a source, model, accelerator, engine, weight format and kind of the files' rows";
        return Err(Error::field("arguments", "--group", format!("{words:?}"), accepted).into());
    }
    Ok(())
}

/// A folder of a run: `meta.json` and `requests.jsonl`.
fn replayed(folder: &Path, catalog: &Catalog, calibration: &Calibration) -> anyhow::Result<Replay> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let [meta, requests] = ["meta.json", "requests.jsonl"].map(|file| input::text(&folder.join(file)));
    Ok(run::replay(&name, &meta?, &requests?, catalog, calibration)?)
}

fn compared(runs: &[Replay]) -> String {
    let rows = of_runs(runs, |share| format!("{:+.1}", share * 100.0), significant);
    let header = ["run", "metric", "mean measured", "mean forecast", "mean %", "p50 %", "p99 %"];
    if rows.is_empty() { String::new() } else { table(&header, &rows, 2) }
}

/// A row for each metric of each run; `error` shows a share, `figure` a value.
fn of_runs(runs: &[Replay], error: fn(f64) -> String, figure: fn(f64) -> String) -> Vec<Vec<String>> {
    let row = |run: &Replay, name: &str, c: &Compared| {
        let figures = [c.mean_measured, c.mean_predicted].map(figure);
        let errors = [c.mean_error, c.p50_error, c.p99_error].map(error);
        [vec![run.name.clone(), name.to_owned()], figures.to_vec(), errors.to_vec()].concat()
    };
    runs.iter()
        .flat_map(|r| {
            let m = &r.metrics;
            [row(r, "ttft_ms", &m.ttft_ms), row(r, "tpot_ms", &m.tpot_ms), row(r, "e2e_ms", &m.e2e_ms)]
        })
        .collect()
}

/// Rows are independent: each core takes pieces of them, until Ctrl-C.
fn in_parallel<'a>(
    rows: &'a [Measurement],
    catalog: &Catalog,
    calibration: &Calibration,
) -> anyhow::Result<Vec<Point<'a>>> {
    let progress = Progress::new("rows")?;
    progress.at(0, rows.len() as u64);
    let piece = |rows: &'a [Measurement]| {
        let found = if progress.goes_on() { points(rows, catalog, calibration) } else { Vec::new() };
        progress.more(found.len() as u64);
        found
    };
    Ok(rows.par_chunks(PIECE).flat_map_iter(piece).collect())
}

/// Measured, forecast and limit of every row.
pub(crate) fn per_row(points: &[Point]) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header = vec!["id".to_owned(), "group".to_owned(), "kind".to_owned()];
    for name in Metrics::NAMES {
        header.extend(["measured", "forecast", "limit"].map(|what| format!("{name}_{what}")));
    }
    header.extend(["left_out", "settings"].map(str::to_owned));
    writer.write_record(&header)?;
    for point in points {
        let row = point.row;
        let mut line = vec![row.id.clone(), row.group(), row.kind.name().to_owned()];
        let none = Metrics::default();
        let forecast = point.forecast.as_ref().unwrap_or(&none).all();
        for (index, measured) in row.measured.all().into_iter().enumerate() {
            let figures = [measured, forecast[index], point.limit.all()[index]];
            line.extend(figures.map(|f| f.map(significant).unwrap_or_default()));
        }
        line.push(point.forecast.as_ref().err().cloned().unwrap_or_default());
        line.push(row.recipe().unwrap_or_default().to_owned());
        writer.write_record(&line)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

pub(crate) fn people(report: &Report) -> String {
    let share = |part: &Part| format!("{} of {} rows\n\n", part.predicted, part.rows);
    let mut text = format!("forecast: {}", share(&report.whole));
    let mut rows = Vec::new();
    let mut add = |name: &str, part: &Part| {
        for (metric, e) in &part.metrics {
            let percent = |share: f64| format!("{:.1}", share * 100.0);
            let errors = [e.median_ape, e.p90_ape, e.bias, e.in_band].map(percent);
            rows.push(
                [vec![name.to_owned(), (*metric).to_owned(), e.n.to_string()], errors.to_vec()].concat(),
            );
        }
    };
    report.kinds.iter().for_each(|(name, part)| add(name, part));
    report.engines.iter().for_each(|(name, part)| add(name, part));
    report.hardware.iter().for_each(|(name, part)| add(name, part));
    report.groups.iter().take(WORST).for_each(|g| add(&g.group, &g.part));
    let header = ["part", "metric", "rows", "median %", "p90 %", "bias %", "in band %"];
    text.push_str(&table(&header, &rows, 2));
    if !report.skipped.is_empty() {
        let rows: Vec<_> =
            report.skipped.iter().map(|s| vec![s.reason.clone(), s.rows.to_string()]).collect();
        text.push_str(&table(&["left out because", "rows"], &rows, 1));
    }
    if !report.drafts.is_empty() {
        let rows = format!("{} rows of pools look like speculation, which no row says", report.drafts.len());
        text.push_str(&line(&format!(
            "{rows} (steps faster than their limit, or 1.7 times as fast as forecast): {}",
            report.drafts.join(", ")
        )));
        text.push('\n');
    }
    text
}
