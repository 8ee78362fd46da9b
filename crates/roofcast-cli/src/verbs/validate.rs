//! `roofcast validate FILE…`: compares forecasts with measurements.

pub(crate) mod ranking;
mod split;
mod tables;
pub(crate) mod view;

pub(crate) use tables::{CSV, csv_rows, per_row};

use crate::args::ValidateArgs;
use crate::input::measurements::Points;
use crate::page::Alone;
use crate::show::number::significant;
use crate::show::progress::Progress;
use crate::show::table::{line, table};
use crate::show::target::Target;
use crate::{exit, input, show};
use rayon::prelude::*;
use roofcast::calibration::Calibration;
use roofcast::measurement::Measurement;
use roofcast::report::{measured, scatter};
use roofcast::validate::run::{self, Compared, Replay};
use roofcast::validate::{ErrorReport, RowForecast, points, report};
use roofcast::{Catalog, Error};
use serde::Serialize;
use split::Split;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use view::View;

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/validate/2";

/// Errors of forecasts against measurements.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Validation"))]
pub(crate) struct Answer {
    #[serde(flatten)]
    report: ErrorReport,
    /// The side of the split that is shown, and the number of rows on each side.
    split: Split,
    /// Reasons for refused rows, each with its file and line.
    refused: Vec<String>,
    /// Sentences on how results of clients were read.
    notes: Vec<String>,
    /// Recorded runs, replayed with their own arrivals, settings and KV blocks.
    runs: Vec<Replay>,
    /// True if rows are missing because Ctrl-C came before they were forecast.
    interrupted: bool,
}

/// Number of rows that a thread forecasts between checks for Ctrl-C. Data that these rows have in common is resolved
/// once.
const PIECE: usize = 256;

pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let files = Files::asked(args)?;
    let mut catalog = input::catalog(&args.catalog)?;
    let calibration = input::calibration(args.calibration.as_deref())?;
    let (folders, tables): (Vec<PathBuf>, Vec<PathBuf>) =
        args.files.iter().cloned().partition(|f| f.is_dir());
    let measured = input::measurements::read(&tables, &args.runs, &mut catalog)?;
    let notes = measured.notes();
    let Points { mut rows, mut refused } = measured;
    if rows.is_empty() && !refused.is_empty() {
        return Err(refused.swap_remove(0));
    }
    if let Some(words) = &args.group {
        keep(&mut rows, words)?;
    }
    let split = Split::keep(args.split, &mut rows)?;
    if rows.is_empty() && folders.is_empty() {
        let names: Vec<_> = tables.iter().map(|f| f.display().to_string()).collect();
        return Err(Error::field(names.join(", "), "rows", 0, "a row or more below the header").into());
    }
    if args.output.csv && !tables.is_empty() && !folders.is_empty() {
        let accepted = "only files or only folders: their columns differ";
        return Err(Error::field("arguments", "--csv", "together with files and folders", accepted).into());
    }
    let runs = folders
        .iter()
        .map(|f| replayed(f, &catalog, &calibration))
        .collect::<anyhow::Result<Vec<Replay>>>()?;
    let points = in_parallel(&rows, &catalog, &calibration)?;
    let interrupted = points.len() < rows.len();
    files.write(&points)?;
    if args.ranking {
        return ranking::run(args, &points, interrupted);
    }
    let report = split.shown(report(&points));
    if let Some(page) = &files.page {
        page.write("accuracy", &View::of(&report, &points))?;
    }
    let reasons = refused.iter().map(|error| format!("{error:#}")).collect();
    let answer = Answer { report, split, refused: reasons, notes, runs, interrupted };
    if args.output.json {
        show::json(SCHEMA, &answer)?;
    } else if args.output.csv && tables.is_empty() {
        let rows = of_runs(&answer.runs, |share| share.to_string(), |v| v.to_string());
        show::csv(
            &["run", "metric", "mean_measured", "mean_forecast", "mean_error", "p50_error", "p99_error"],
            &rows,
        )?;
    } else if args.output.csv {
        show::csv(&CSV, &csv_rows("forecast", &answer.report, interrupted))?;
    } else {
        let partial =
            format!("PARTIAL: interrupted when {} of {} rows were forecast", points.len(), rows.len());
        let mut text = if interrupted { line(&partial) + "\n" } else { String::new() };
        text += &if tables.is_empty() { String::new() } else { answer.people() };
        show::text(&(text + &compared(&answer.runs)))?;
    }
    let mut code = ExitCode::SUCCESS;
    for error in &refused {
        code = exit::fail(error);
    }
    Ok(if interrupted { exit::invalid() } else { code })
}

impl Answer {
    /// Text for people: the selected rows, the number with a forecast, and their errors.
    fn people(&self) -> String {
        let first = line(&format!("{} ({})", tables::counted(&self.report), self.split.words()));
        let notes: String = self.notes.iter().map(|note| line(note) + "\n").collect();
        format!("{first}\n{notes}{}", tables::errors(&self.report))
    }
}

/// The files to write in addition to the answer.
struct Files {
    per_row: Option<Target>,
    scatter: Option<Target>,
    curves: Option<Target>,
    page: Option<Alone>,
}

impl Files {
    /// Checks the targets of all files before any work.
    fn asked(args: &ValidateArgs) -> anyhow::Result<Files> {
        split::refuse_rows(args)?;
        input::measurements::idle(&args.files, &args.runs)?;
        Ok(Files {
            per_row: Target::asked("--per-row", args.per_row.as_ref())?,
            scatter: Target::asked("--svg", args.svg.as_ref())?,
            curves: Target::asked("--curves", args.curves.as_ref())?,
            page: Alone::asked(args.html.as_ref())?,
        })
    }

    /// Writes the file of rows and the pictures.
    fn write(&self, points: &[RowForecast]) -> anyhow::Result<()> {
        if let Some(file) = &self.per_row {
            file.text(&per_row(points)?)?;
        }
        if let Some(file) = &self.scatter {
            let accepted = "one or more rows that are measured and forecast";
            let picture = scatter::svg(points)
                .ok_or_else(|| Error::field("arguments", "--svg", "no such rows", accepted))?;
            file.text(&picture)?;
        }
        if let Some(file) = &self.curves {
            let accepted = "three or more rows that differ only in batch, prompt or context";
            let picture = measured::svg(points)
                .ok_or_else(|| Error::field("arguments", "--curves", "no curve in these rows", accepted))?;
            file.text(&picture)?;
        }
        Ok(())
    }
}

/// Keeps the rows whose source, group and kind together contain every word of `words`.
fn keep(rows: &mut Vec<Measurement>, words: &str) -> anyhow::Result<()> {
    rows.retain(|row| {
        let text = format!("{} {} {}", row.source, row.group(), row.kind.name()).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    });
    if rows.is_empty() {
        let accepted =
            "words of a source, model, accelerator, engine, weight format and kind of the files' rows";
        return Err(Error::field("arguments", "--group", format!("{words:?}"), accepted).into());
    }
    Ok(())
}

/// Replays the folder of a recorded run: `meta.json` and `requests.jsonl`.
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

/// Table rows of replayed runs, one for each metric; `error` formats a fraction, `figure` a value.
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

/// Forecasts the rows on all cores, until Ctrl-C; rows are independent of one another.
fn in_parallel<'a>(
    rows: &'a [Measurement],
    catalog: &Catalog,
    calibration: &Calibration,
) -> anyhow::Result<Vec<RowForecast<'a>>> {
    let progress = Progress::new("rows")?;
    progress.at(0, rows.len() as u64);
    let piece = |rows: &'a [Measurement]| {
        let forecasts = if progress.goes_on() { points(rows, catalog, calibration) } else { Vec::new() };
        progress.more(forecasts.len() as u64);
        forecasts
    };
    Ok(rows.par_chunks(PIECE).flat_map_iter(piece).collect())
}
