//! `roofcast calibrate --kernels FOLDER --out FILE`: converts measured kernel times into a file of profiles.
//!
//! Knows: the companion file that lists the sources of the times. Knows nothing about looking up times for a model.

use crate::args::CalibrateArgs;
use crate::input::tables::Tables;
use crate::show::table::line;
use crate::show::target::Target;
use crate::{input, show};
use roofcast::profile::build::{BuildReport, Built, ExclusionReason, SectionReport, build};
use roofcast::{Catalog, Error};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Largest file of times in bytes; the file is embedded in the program.
const MOST_BYTES: usize = 1_950_000;
/// Extension of the file that lists the sources of the times.
const SOURCES: &str = "sources.csv";

/// Columns of the table with one row per section of the file.
const HEADER: [&str; 11] = [
    "table",
    "chip",
    "engine",
    "version",
    "kernel",
    "format",
    "shapes",
    "predicted",
    "faster",
    "line %",
    "line p90 %",
];
/// Indices of the columns that a narrow page drops, in this order.
const SPARE: [usize; 4] = [10, 8, 3, 9];

/// The file of kernel times that was built from tables.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "KernelTimes"))]
pub(crate) struct Answer {
    #[serde(flatten)]
    report: BuildReport,
    /// Number of table files that are not used, by kind.
    unused: BTreeMap<String, usize>,
}

/// Builds the file of times and writes it to `out`, if given.
pub(super) fn run(args: &CalibrateArgs, catalog: &Catalog, out: Option<&Target>) -> anyhow::Result<ExitCode> {
    let sources = args.out.as_ref().map(|path| path.with_extension(SOURCES));
    let sources = Target::asked("--output", sources.as_ref())?;
    let Tables { readings, unused } = input::tables::read(&args.kernels, catalog)?;
    let Built { profiles, report } = build(readings, catalog, MOST_BYTES)?;
    let answer = Answer { report, unused };
    if profiles.sections.is_empty() {
        let accepted = "tables of GEMM, experts, attention, recurrences or all-reduces";
        let left_out_text = left_out(&answer).join("; ");
        return Err(Error::field("arguments", "--kernels", left_out_text, accepted).into());
    }
    if let Some((out, sources)) = out.zip(sources) {
        out.write(|file| file.write_all(&profiles.to_bytes()))?;
        sources.text(&provenance(args, &answer)?)?;
    }
    if args.output.json {
        show::json("roofcast/kernel-times/1", &answer)?;
    } else if args.output.csv {
        show::csv(&HEADER, &rows(&answer.report.sections))?;
    } else {
        show::text(&text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(sections: &[SectionReport]) -> Vec<Vec<String>> {
    let percent = |s: Option<f64>| s.map_or_else(|| "–".to_owned(), |s| format!("{:.1}", s * 100.0));
    let row = |s: &SectionReport| {
        let names = [s.table, &s.chip, &s.engine, &s.version, &s.kernel, &s.format].map(str::to_owned);
        let counts = [s.shapes, s.predicted, s.faster].map(|n| n.to_string());
        let errors = [0, 1].map(|at| percent(s.line_errors.map(|errors| errors[at])));
        names.into_iter().chain(counts).chain(errors).collect()
    };
    sections.iter().map(row).collect()
}

fn text(answer: &Answer) -> String {
    let report = &answer.report;
    let mut text = crate::show::table::fitted(&HEADER, &rows(&report.sections), 6, &SPARE);
    text.push('\n');
    left_out(answer).iter().for_each(|words| text.push_str(&line(words)));
    let rows: usize = report.files.iter().map(|file| file.rows).sum();
    text.push_str(&line(&format!(
        "{rows} rows of {} tables in {} sections, {} bytes",
        report.files.len(),
        report.sections.len(),
        report.bytes
    )));
    text
}

/// Lists the rows that rules drop and the files that are not used, a line each.
fn left_out(answer: &Answer) -> Vec<String> {
    let counted = ExclusionReason::ALL.map(|rule| (rule, answer.report.dropped.of(rule)));
    let counted = counted.into_iter().filter(|(_, count)| *count > 0);
    let mut lines: Vec<_> =
        counted.map(|(rule, count)| format!("omitted: {count} {}", rule.words())).collect();
    let predictions = answer.report.predictions;
    if predictions.shapes > 0 {
        lines.push(format!(
            "shapes that others predict are off by {:.1} % in the median, {:.1} % at the 90th percentile",
            predictions.median_error * 100.0,
            predictions.p90_error * 100.0
        ));
    }
    if !answer.report.host_bound.is_empty() {
        lines.push(format!("with the host in them: {}", answer.report.host_bound.join(", ")));
    }
    if !answer.unused.is_empty() {
        let names: Vec<_> = answer.unused.iter().map(|(name, files)| format!("{name} ({files})")).collect();
        lines.push(format!("not used, with files: {}", names.join(", ")));
    }
    lines
}

/// The file that lists the sources of the times: one row per table, then the dropped rows as comments.
fn provenance(args: &CalibrateArgs, answer: &Answer) -> anyhow::Result<String> {
    let mut text = String::new();
    let remarks = args.source.iter().flat_map(|source| source.lines()).map(str::to_owned);
    remarks.chain(left_out(answer)).for_each(|words| text.push_str(&format!("# {words}\n")));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["file", "version", "rows", "points used"])?;
    for file in &answer.report.files {
        let within =
            |folder: &PathBuf| PathBuf::from(&file.file).strip_prefix(folder).ok().map(PathBuf::from);
        let shown = args.kernels.iter().find_map(within).filter(|path| path.components().next().is_some());
        let shown = shown.map_or_else(|| file.file.clone(), |path| path.display().to_string());
        writer.write_record([shown, file.version.clone(), file.rows.to_string(), file.used.to_string()])?;
    }
    text.push_str(&String::from_utf8(writer.into_inner()?)?);
    Ok(text)
}
