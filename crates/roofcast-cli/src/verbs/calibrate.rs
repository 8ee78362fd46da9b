//! `roofcast calibrate FILE…`: fits the time that an engine adds to its kernels, and evaluates the fit on held-out
//! rows.

pub(crate) mod times;

use crate::args::CalibrateArgs;
use crate::input::measurements::Points;
use crate::show::number::significant;
use crate::show::progress::Progress;
use crate::show::table::{line, table};
use crate::show::target::Target;
use crate::{exit, input, show};
use roofcast::Error;
use roofcast::calibrate::{Fit, LeaveOut, Number, Residual};
use roofcast::calibration::Calibration;
use roofcast::coefficients::EngineTimes;
use roofcast::measurement::Metrics;
use roofcast::validate::split;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/calibrate/2";

/// Fitted times of engines, and their errors on held-out rows.
#[derive(Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Calibration"))]
pub(crate) struct Answer {
    /// Number of rows in the files; the next field counts the rows that the fit uses.
    rows: usize,
    /// True if Ctrl-C or SIGTERM came before the fit was done; then the other keys are empty, and no file is written.
    interrupted: bool,
    /// Sentences on how results of clients were read.
    notes: Vec<String>,
    /// Fitted numbers.
    numbers: Vec<Number>,
    /// Errors on held-out rows, by the way of choosing the rows that are held out, then by metric.
    left_out: BTreeMap<LeaveOut, BTreeMap<&'static str, Errors>>,
}

/// Relative errors of one metric, as fractions of the measured value.
#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LeftOutErrors"))]
struct Errors {
    /// Number of rows.
    n: usize,
    /// Median of the signed errors.
    bias: f64,
    /// Median of the absolute errors.
    median_ape: f64,
    /// 90th percentile of the absolute errors.
    p90_ape: f64,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let out = Target::asked("--output", args.out.as_ref())?;
    if !args.kernels.is_empty() {
        return times::run(args, &*input::catalog(&args.catalog)?, out.as_ref());
    }
    if args.source.is_some() && out.is_none() {
        let accepted = "it with --output, whose calibration says it";
        return Err(Error::field("arguments", "--source", "without --output", accepted).into());
    }
    input::measurements::idle(&args.files, &args.runs)?;
    let mut catalog = input::catalog(&args.catalog)?;
    let measured = input::measurements::read(&args.files, &args.runs, &mut catalog)?;
    let notes = measured.notes();
    let Points { mut rows, mut refused } = measured;
    if !refused.is_empty() {
        return Err(refused.swap_remove(0));
    }
    rows.retain(|row| !args.teaching || split::teaches(row));
    let rounds = 3 * EngineTimes::NAMES.len() as u64;
    let progress = Progress::phases("runs of all rows", rounds)?;
    let done = AtomicU64::new(0);
    let goes_on = || {
        progress.at(done.fetch_add(1, Ordering::Relaxed), rounds);
        progress.goes_on()
    };
    let embedded = Calibration::embedded()?;
    let known = if args.teaching { embedded.clone() } else { embedded.as_priors() };
    let fit = Fit::new(&rows, &catalog, &known, &goes_on)?;
    let mut answer = Answer { rows: rows.len(), interrupted: fit.is_none(), notes, ..Answer::default() };
    if let Some(fit) = fit {
        answer.numbers = fit.numbers();
        answer.left_out = LeaveOut::ALL.map(|protocol| (protocol, errors(&fit.left_out(protocol)))).into();
        let names = args.files.iter().filter_map(|f: &PathBuf| f.file_name()?.to_str());
        let source = args.source.clone().unwrap_or_else(|| names.collect::<Vec<_>>().join(", "));
        if let Some(out) = out {
            out.text(&Calibration { source, ..fit.with_bands() }.to_toml())?;
        }
    }
    shown(args, &answer)?;
    Ok(if answer.interrupted { exit::invalid() } else { ExitCode::SUCCESS })
}

fn shown(args: &CalibrateArgs, answer: &Answer) -> anyhow::Result<()> {
    if args.output.json {
        return show::json(SCHEMA, answer);
    }
    if args.output.csv {
        return show::csv(&HEADER, &cells(&answer.numbers));
    }
    show::text(&text(answer))
}

/// Errors by metric.
fn errors(residuals: &[Residual]) -> BTreeMap<&'static str, Errors> {
    let errors_of = |metric: usize| {
        let mut signed: Vec<f64> =
            residuals.iter().filter(|r| r.metric == metric).map(|r| r.log.exp() - 1.0).collect();
        let mut absolute: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
        signed.sort_by(f64::total_cmp);
        absolute.sort_by(f64::total_cmp);
        let n = signed.len();
        let at = |all: &[f64], share: f64| all.get((share * n as f64) as usize).copied();
        let bias = at(&signed, 0.5)?;
        let median_ape = at(&absolute, 0.5)?;
        Some((Metrics::NAMES[metric], Errors { n, bias, median_ape, p90_ape: at(&absolute, 0.9)? }))
    };
    (0..Metrics::NAMES.len()).filter_map(errors_of).collect()
}

const HEADER: [&str; 7] = ["engine", "number", "us", "prior", "least", "most", "rows"];

fn cells(numbers: &[Number]) -> Vec<Vec<String>> {
    let row = |n: &Number| {
        let us = [n.constant.us, n.constant.prior, n.constant.least, n.constant.most].map(significant);
        [vec![n.engine.clone(), n.name.clone()], us.to_vec(), vec![n.rows.to_string()]].concat()
    };
    numbers.iter().map(row).collect()
}

fn text(answer: &Answer) -> String {
    if answer.interrupted {
        return line("PARTIAL: interrupted before the fit was done; nothing is written");
    }
    let head = line(&format!("{} rows, {} numbers in microseconds", answer.rows, answer.numbers.len()));
    let notes: String = answer.notes.iter().map(|note| line(note) + "\n").collect();
    let mut text = format!("{head}\n{notes}{}", table(&HEADER, &cells(&answer.numbers), 2));
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let mut rows = Vec::new();
    for (protocol, metrics) in &answer.left_out {
        for (metric, e) in metrics {
            let errors = [e.bias, e.median_ape, e.p90_ape].map(percent);
            let first = [protocol.name().to_owned(), (*metric).to_owned(), e.n.to_string()];
            rows.push([first.to_vec(), errors.to_vec()].concat());
        }
    }
    let header = ["held out", "metric", "rows", "bias %", "median %", "p90 %"];
    text.push_str(&format!(
        "\nerrors of rows whose part of the data was not fitted\n\n{}",
        table(&header, &rows, 2)
    ));
    text
}
