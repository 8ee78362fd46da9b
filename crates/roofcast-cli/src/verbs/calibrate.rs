//! `roofcast calibrate FILE…`: fits a calibration to measured points and judges it on groups left out.

use crate::args::CalibrateArgs;
use crate::verbs::validate::{people, per_row};
use crate::{input, show};
use roofcast::calibrate::Fit;
use roofcast::calibration::Calibration;
use roofcast::validate::{Report, report};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Answer {
    levels: usize,
    undetermined: Vec<String>,
    in_sample: Report,
    left_out: Report,
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let catalog = input::catalog(&args.catalog)?;
    let rows = input::measurements::read(&args.files, &args.runs, &catalog)?;
    let fit = Fit::new(&rows, &catalog, Calibration::embedded()?)?;
    let left_out = fit.left_out();
    let source = args.source.clone().unwrap_or_else(|| {
        let names: Vec<_> = args.files.iter().map(|f| f.display().to_string()).collect();
        names.join(", ")
    });
    let fitting = fit.finish(&left_out, &source);
    if let Some(path) = &args.out {
        show::file(path, &fitting.calibration.to_toml())?;
    }
    if let Some(path) = &args.per_row {
        show::file(path, &per_row(&left_out)?)?;
    }
    let answer = Answer {
        levels: fitting.calibration.levels.len(),
        undetermined: fitting.undetermined,
        in_sample: report(&fit.in_sample()),
        left_out: report(&left_out),
    };
    if args.json {
        show::json("roofcast/calibrate/1", &answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("{} levels fitted\n", answer.levels);
    if !answer.undetermined.is_empty() {
        text.push_str(&format!(
            "hardly moved, the data do not tell them apart: {}\n",
            answer.undetermined.join(", ")
        ));
    }
    text.push_str(&format!("\nfitted to every group\n{}", people(&answer.in_sample)));
    text.push_str(&format!("every group left out in turn\n{}", people(&answer.left_out)));
    show::text(&text)?;
    Ok(ExitCode::SUCCESS)
}
