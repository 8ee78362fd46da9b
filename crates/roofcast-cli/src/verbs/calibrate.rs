//! `roofcast calibrate FILE…`: fits a calibration to kernel times and to measured points, and judges it on groups left out.

mod kernels;

use crate::args::CalibrateArgs;
use crate::show::target::Target;
use crate::verbs::validate::{people, per_row};
use crate::{input, show};
use roofcast::Catalog;
use roofcast::calibrate::kernels::Fitted;
use roofcast::calibrate::{Fit, LeaveOut};
use roofcast::calibration::Calibration;
use roofcast::kernel::Kernels;
use roofcast::measurement::Measurement;
use roofcast::validate::{Point, Report, report};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Default, Serialize)]
struct Answer {
    levels: usize,
    kernels: Vec<Fitted>,
    kernels_skipped: u64,
    kernels_unread: BTreeSet<String>,
    undetermined: Vec<String>,
    in_sample: Option<Report>,
    left_out: BTreeMap<LeaveOut, Report>,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let out = Target::asked("--out", args.out.as_ref())?;
    let rows_file = Target::asked("--per-row", args.per_row.as_ref())?;
    let mut catalog = input::catalog(&args.catalog)?;
    let Data { mut kernels, rows, files } = read(args, &mut catalog)?;
    let (tables, kernels_unread) = input::tables::read(&args.kernels, &catalog)?;
    kernels.all.extend(tables.all);
    kernels.skipped += tables.skipped;
    let source = args.source.clone().unwrap_or_else(|| {
        let name = |f: &PathBuf| f.file_name().map(|n| n.to_string_lossy().into_owned());
        let names: Vec<_> = args.files.iter().chain(&args.kernels).filter_map(name).collect();
        names.join(", ")
    });
    let fits = roofcast::calibrate::kernels::fit(&kernels.all);
    let levels = roofcast::calibrate::kernels::levels(&fits);
    let mut calibration = Calibration::embedded()?.with_kernels(levels);
    let mut answer =
        Answer { kernels: fits, kernels_skipped: kernels.skipped, kernels_unread, ..Answer::default() };
    if kernels.all.is_empty() && args.kernels.is_empty() || !rows.is_empty() {
        let fit = Fit::new(&rows, files, &catalog, &calibration)?;
        calibration = serving(args, &fit, &source, &mut answer, rows_file.as_ref())?;
    }
    answer.levels = calibration.levels.len();
    if let Some(out) = &out {
        out.text(&calibration.to_toml())?;
    }
    if args.json {
        show::json("roofcast/calibrate/1", &answer)?;
    } else {
        show::text(&text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What files say.
struct Data {
    kernels: Kernels,
    rows: Vec<Measurement>,
    /// The file that rows of each source stand in.
    files: BTreeMap<String, String>,
}

/// Kernel times and measured points, each file by what it has.
fn read(args: &CalibrateArgs, catalog: &mut Cow<'static, Catalog>) -> anyhow::Result<Data> {
    let mut all = Kernels::default();
    let mut rows = Vec::new();
    let mut files = BTreeMap::new();
    for path in &args.files {
        let place = path.display().to_string();
        let kernels = if path.is_dir() {
            kernels::profile(path, catalog)?
        } else {
            let text = input::text(path)?;
            if !roofcast::kernel::is_table(&text) {
                let measured = input::measurements::of_file(path, &text, &args.runs, catalog)?;
                let name = path.file_name().map_or(place, |n| n.to_string_lossy().into_owned());
                files.extend(measured.iter().map(|row| (row.source.clone(), name.clone())));
                rows.extend(measured);
                continue;
            }
            roofcast::kernel::read(&place, &text, catalog)?
        };
        all.skipped += kernels.skipped;
        all.all.extend(kernels.all);
    }
    Ok(Data { kernels: all, rows, files })
}

/// The calibration of a fit of whole steps and runs, and how far it is from what was measured.
fn serving(
    args: &CalibrateArgs,
    fit: &Fit,
    source: &str,
    answer: &mut Answer,
    rows_file: Option<&Target>,
) -> anyhow::Result<Calibration> {
    let tables: BTreeMap<LeaveOut, Vec<Point>> =
        args.leave_out.protocols().into_iter().map(|what| (what, fit.left_out(what))).collect();
    let fitting = fit.finish(&tables, source);
    if let Some(file) = rows_file {
        file.text(&per_row(tables.values().next().map_or(&[], Vec::as_slice))?)?;
    }
    answer.undetermined = fitting.undetermined;
    answer.in_sample = Some(report(&fit.in_sample()));
    answer.left_out = tables.iter().map(|(what, points)| (*what, report(points))).collect();
    Ok(fitting.calibration)
}

fn text(answer: &Answer) -> String {
    let mut text = format!("{} levels\n", answer.levels);
    if !answer.kernels.is_empty() {
        text.push_str(&kernels::table(&answer.kernels, answer.kernels_skipped));
    }
    if !answer.kernels_unread.is_empty() {
        let names: Vec<_> = answer.kernels_unread.iter().map(String::as_str).collect();
        text.push_str(&format!("not modelled, left out: {}\n", names.join(", ")));
    }
    if !answer.undetermined.is_empty() {
        let names = answer.undetermined.join(", ");
        text.push_str(&format!("hardly moved, the data do not tell them apart: {names}\n"));
    }
    if let Some(report) = &answer.in_sample {
        text.push_str(&format!("\nfitted to every group\n{}", people(report)));
    }
    for (what, report) in &answer.left_out {
        text.push_str(&format!("every {} left out in turn\n{}", what.words(), people(report)));
    }
    text
}
