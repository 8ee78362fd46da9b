//! `roofcast calibrate FILE…`: fits a calibration to kernel times and to measured points, and judges it on groups left out.

mod kernels;
mod times;
mod work;

use crate::args::CalibrateArgs;
use crate::show::table::line;
use crate::show::target::Target;
use crate::verbs::validate::{CSV, csv_rows, people};
use crate::{exit, input, show};
use roofcast::calibrate::LeaveOut;
use roofcast::calibrate::kernels::Fitted;
use roofcast::calibration::Calibration;
use roofcast::kernel::Kernels;
use roofcast::measurement::Measurement;
use roofcast::validate::Report;
use roofcast::{Catalog, Error};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use work::Work;

#[derive(Default, Serialize)]
struct Answer {
    levels: usize,
    kernels: Vec<Fitted>,
    kernels_skipped: u64,
    /// Whether Ctrl-C came before the fit was judged: then there is no calibration.
    interrupted: bool,
    undetermined: Vec<String>,
    /// Rows that were judged but not fitted, as they contradict their limit or others that say the same.
    contradicted: usize,
    in_sample: Option<Report>,
    left_out: BTreeMap<LeaveOut, Report>,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let out = Target::asked("--out", args.out.as_ref())?;
    let rows_file = Target::asked("--per-row", args.per_row.as_ref())?;
    if args.source.is_some() && out.is_none() {
        let accepted = "it with --out, whose calibration says it";
        return Err(Error::field("arguments", "--source", "without --out", accepted).into());
    }
    let scatter_file = Target::asked("--svg", args.svg.as_ref())?;
    input::measurements::idle(&args.files, &args.runs)?;
    let mut catalog = input::catalog(&args.catalog)?;
    if !args.kernels.is_empty() {
        return times::run(args, &catalog, out.as_ref());
    }
    let Data { kernels, rows, files } = read(args, &mut catalog)?;
    let source = args.source.clone().unwrap_or_else(|| {
        let name = |f: &PathBuf| f.file_name().map(|n| n.to_string_lossy().into_owned());
        let names: Vec<_> = args.files.iter().filter_map(name).collect();
        names.join(", ")
    });
    let fits = roofcast::calibrate::kernels::fit(&kernels.all);
    let levels = roofcast::calibrate::kernels::levels(&fits);
    let mut calibration = Calibration::embedded()?.with_kernels(levels);
    let mut answer = Answer { kernels: fits, kernels_skipped: kernels.skipped, ..Answer::default() };
    if kernels.all.is_empty() || !rows.is_empty() {
        let work = Work {
            rows,
            files,
            catalog: catalog.into_owned(),
            prior: calibration.clone(),
            protocols: args.leave_out.protocols(),
            source,
            per_row: rows_file.is_some(),
            scatter: scatter_file.is_some(),
        };
        match work.watched()? {
            Some(judged) => calibration = judged.shown([rows_file, scatter_file], &mut answer)?,
            None => answer.interrupted = true,
        }
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

/// Errors of the rows where there are any, else the fits to kernel times.
fn csv(answer: &Answer) -> anyhow::Result<()> {
    let in_sample = answer.in_sample.iter().map(|report| ("in_sample".to_owned(), report));
    let left_out = answer.left_out.iter().map(|(what, report)| (format!("{} left out", what.name()), report));
    let reports = in_sample.chain(left_out);
    let rows: Vec<_> = reports.flat_map(|(set, report)| csv_rows(&set, report, answer.interrupted)).collect();
    if rows.is_empty() {
        return show::csv(&kernels::HEADER, &kernels::rows(&answer.kernels));
    }
    show::csv(&CSV, &rows)
}

fn text(answer: &Answer) -> String {
    let mut text = match answer.interrupted {
        true => line("PARTIAL: interrupted before the fit was judged; nothing is written"),
        false => format!("{} levels\n", answer.levels),
    };
    if !answer.kernels.is_empty() {
        text.push_str(&kernels::table(&answer.kernels, answer.kernels_skipped));
    }
    if !answer.undetermined.is_empty() {
        let names = answer.undetermined.join(", ");
        text.push_str(&line(&format!("hardly moved, the data do not tell them apart: {names}")));
    }
    if answer.contradicted > 0 {
        text.push_str(&line(&format!(
            "not fitted: {} rows, 100 times over their limit or 1.8 times slower than others that say the same",
            answer.contradicted
        )));
    }
    if let Some(report) = &answer.in_sample {
        text.push_str(&format!("\nfitted to every group\n{}", people(report)));
    }
    for (what, report) in &answer.left_out {
        text.push_str(&format!("every {} left out in turn\n{}", what.words(), people(report)));
    }
    text
}
