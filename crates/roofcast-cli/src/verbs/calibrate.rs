//! `roofcast calibrate FILE…`: fits a calibration to kernel times and to measured points, and judges it on groups left out.

mod kernels;

use crate::args::CalibrateArgs;
use crate::show::progress::Progress;
use crate::show::table::line;
use crate::show::target::Target;
use crate::verbs::validate::{CSV, csv_rows, people, per_row};
use crate::{exit, input, show};
use roofcast::calibrate::Fit;
use roofcast::calibrate::kernels::Fitted;
use roofcast::calibration::Calibration;
use roofcast::kernel::Kernels;
use roofcast::measurement::Measurement;
use roofcast::validate::{Report, report};
use roofcast::{Catalog, Error};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::process::ExitCode;

#[derive(Default, Serialize)]
struct Answer {
    levels: usize,
    kernels: Vec<Fitted>,
    kernels_skipped: u64,
    kernels_unread: BTreeSet<String>,
    /// Whether Ctrl-C came before the fit was judged: then there is no calibration.
    interrupted: bool,
    undetermined: Vec<String>,
    in_sample: Option<Report>,
    left_out: Option<Report>,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let out = Target::asked("--out", args.out.as_ref())?;
    let rows_file = Target::asked("--per-row", args.per_row.as_ref())?;
    if args.source.is_some() && out.is_none() {
        let accepted = "it with --out, whose calibration says it";
        return Err(Error::field("arguments", "--source", "without --out", accepted).into());
    }
    input::measurements::idle(&args.files, &args.runs)?;
    let mut catalog = input::catalog(&args.catalog)?;
    let (mut kernels, rows) = read(args, &mut catalog)?;
    let (tables, kernels_unread) = input::tables::read(&args.kernels, &catalog)?;
    kernels.all.extend(tables.all);
    kernels.skipped += tables.skipped;
    let source = args.source.clone().unwrap_or_else(|| {
        let names: Vec<_> = args.files.iter().chain(&args.kernels).map(|f| f.display().to_string()).collect();
        names.join(", ")
    });
    let fits = roofcast::calibrate::kernels::fit(&kernels.all);
    let levels = roofcast::calibrate::kernels::levels(&fits, &source);
    let mut calibration = Calibration::embedded()?.with_kernels(levels);
    let mut answer =
        Answer { kernels: fits, kernels_skipped: kernels.skipped, kernels_unread, ..Answer::default() };
    if kernels.all.is_empty() && args.kernels.is_empty() || !rows.is_empty() {
        calibration = serving(&rows, &catalog, &calibration, &source, &mut answer, rows_file.as_ref())?;
    }
    answer.levels = calibration.levels.len();
    if let Some(out) = out.as_ref().filter(|_| !answer.interrupted) {
        out.text(&calibration.to_toml())?;
    }
    if args.output.json {
        show::json("roofcast/calibrate/1", &answer)?;
    } else if args.output.csv {
        csv(&answer)?;
    } else {
        show::text(&text(&answer))?;
    }
    Ok(if answer.interrupted { exit::invalid() } else { ExitCode::SUCCESS })
}

/// Kernel times and measured points, each file by what it has.
fn read(
    args: &CalibrateArgs,
    catalog: &mut Cow<'static, Catalog>,
) -> anyhow::Result<(Kernels, Vec<Measurement>)> {
    let mut all = Kernels::default();
    let mut rows = Vec::new();
    for path in &args.files {
        let place = path.display().to_string();
        let kernels = if path.is_dir() {
            kernels::profile(path, catalog)?
        } else {
            let text = input::text(path)?;
            if !roofcast::kernel::is_table(&text) {
                rows.extend(input::measurements::of_file(path, &text, &args.runs, catalog)?);
                continue;
            }
            roofcast::kernel::read(&place, &text, catalog)?
        };
        all.skipped += kernels.skipped;
        all.all.extend(kernels.all);
    }
    Ok((all, rows))
}

/// Fits whole steps and runs on top of `prior`.
fn serving(
    rows: &[Measurement],
    catalog: &Catalog,
    prior: &Calibration,
    source: &str,
    answer: &mut Answer,
    rows_file: Option<&Target>,
) -> anyhow::Result<Calibration> {
    let progress = Progress::new("phases: fit, judge what is left out")?;
    progress.at(0, 2);
    let fit = Fit::new(rows, catalog, prior)?;
    if !progress.at(1, 2) {
        answer.interrupted = true;
        answer.in_sample = Some(report(&fit.in_sample()));
        return Ok(prior.clone());
    }
    let left_out = fit.left_out();
    drop(progress);
    let fitting = fit.finish(&left_out, source);
    if let Some(file) = rows_file {
        file.text(&per_row(&left_out)?)?;
    }
    answer.undetermined = fitting.undetermined;
    answer.in_sample = Some(report(&fit.in_sample()));
    answer.left_out = Some(report(&left_out));
    Ok(fitting.calibration)
}

/// Errors of the rows where there are any, else the fits to kernel times.
fn csv(answer: &Answer) -> anyhow::Result<()> {
    let sets = [("in_sample", &answer.in_sample), ("left_out", &answer.left_out)];
    let reports = sets.iter().filter_map(|(set, report)| Some((set, report.as_ref()?)));
    let rows: Vec<_> = reports.flat_map(|(set, report)| csv_rows(set, report, answer.interrupted)).collect();
    if rows.is_empty() {
        return show::csv(&kernels::HEADER, &kernels::rows(&answer.kernels));
    }
    show::csv(&CSV, &rows)
}

fn text(answer: &Answer) -> String {
    let mut text = match answer.interrupted {
        true => line("PARTIAL: interrupted before the fit was judged; no calibration is written"),
        false => format!("{} levels\n", answer.levels),
    };
    if !answer.kernels.is_empty() {
        text.push_str(&kernels::table(&answer.kernels, answer.kernels_skipped));
    }
    if !answer.kernels_unread.is_empty() {
        let names: Vec<_> = answer.kernels_unread.iter().map(String::as_str).collect();
        text.push_str(&line(&format!("not modelled, left out: {}", names.join(", "))));
    }
    if !answer.undetermined.is_empty() {
        let names = answer.undetermined.join(", ");
        text.push_str(&line(&format!("hardly moved, the data do not tell them apart: {names}")));
    }
    if let Some(report) = &answer.in_sample {
        text.push_str(&format!("\nfitted to every group\n{}", people(report)));
    }
    if let Some(report) = &answer.left_out {
        text.push_str(&format!("every group left out in turn\n{}", people(report)));
    }
    text
}
