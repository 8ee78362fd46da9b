//! `roofcast bench --find-rate LOW..HIGH`: the highest rate that keeps the SLO.
//!
//! Knows: that latency grows with the rate, so that the range can be halved, by ratio.

use super::setup::Setup;
use super::sweep::Key;
use super::{Point, Subject, picture, table};
use crate::args::BenchArgs;
use crate::show::target::Target;
use crate::{exit, show};
use anyhow::Result;
use roofcast::Error;
use roofcast::spec::Slo;
use serde::Serialize;
use std::process::ExitCode;

/// The search ends when what is known lies this close together.
const CLOSE: f64 = 1.05;

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    slo: Slo,
    best_rate: Option<f64>,
    points: Vec<Tried>,
}

#[derive(Serialize)]
struct Tried {
    value: f64,
    meets_slo: bool,
    #[serde(flatten)]
    point: Point,
}

/// Both ends, as in `1..100`.
pub(super) fn parse(text: &str) -> Result<(f64, f64)> {
    let rate = |t: &str| t.trim().parse::<f64>().ok().filter(|v| (1e-6..=1e9).contains(v));
    let range = text.split_once("..").and_then(|(low, high)| Some((rate(low)?, rate(high)?)));
    let accepted = "LOW..HIGH in requests per second above 0, LOW below HIGH, as 1..100";
    let wrong = || Error::field("arguments", "--find-rate", format!("{text:?}"), accepted);
    Ok(range.filter(|(low, high)| low < high).ok_or_else(wrong)?)
}

pub(super) fn run(
    args: &BenchArgs,
    setup: &mut Setup,
    (low, high): (f64, f64),
    file: Option<&Target>,
) -> Result<ExitCode> {
    let slo = setup.judge.slo;
    if slo == Slo::default() {
        let accepted = "--slo-ttft, --slo-tpot or --slo-e2el, or [slo] in the spec";
        return Err(Error::field("arguments", "--find-rate", "without an SLO", accepted).into());
    }
    let mut points: Vec<Tried> = Vec::new();
    let mut interrupted = false;
    let mut keeps = |rate: f64, points: &mut Vec<Tried>| -> Result<bool> {
        if interrupted {
            return Ok(false);
        }
        let workload = setup.at(Key::Rate.at(rate))?;
        let (point, _) = setup.measure(&workload)?;
        interrupted = point.report.interrupted;
        let meets_slo = point.report.meets(&slo);
        points.push(Tried { value: rate, meets_slo, point });
        Ok(meets_slo)
    };
    let mut best = None;
    if keeps(low, &mut points)? {
        let (mut good, mut bad) = (low, high);
        if keeps(high, &mut points)? {
            good = high;
        }
        while bad / good > CLOSE {
            let middle = (good * bad).sqrt();
            *(if keeps(middle, &mut points)? { &mut good } else { &mut bad }) = middle;
        }
        best = Some(good);
    }
    if let Some(file) = file {
        let shown: Vec<_> = points.iter().map(|p| (p.value, &p.point)).collect();
        file.text(&picture::of_sweep(setup, "rate", &shown))?;
    }
    finish(args, setup, slo, best, points, interrupted)
}

fn finish(
    args: &BenchArgs,
    setup: &Setup,
    slo: Slo,
    best_rate: Option<f64>,
    points: Vec<Tried>,
    interrupted: bool,
) -> Result<ExitCode> {
    if args.output.json {
        show::json("roofcast/bench-search/2", &Answer { subject: setup.subject(), slo, best_rate, points })?;
    } else {
        let rows: Vec<_> = points.iter().map(|p| (p.value, &p.point)).collect();
        table::show(args, &setup.subject(), "rate", &rows)?;
        if !args.output.csv {
            show::text(&match best_rate {
                Some(rate) => format!("The highest rate that keeps the SLO: {rate:.3} requests/s\n"),
                None => "Not even the lowest rate keeps the SLO.\n".to_owned(),
            })?;
        }
    }
    Ok(match best_rate {
        _ if interrupted => exit::invalid(),
        Some(_) => ExitCode::SUCCESS,
        None => exit::infeasible(),
    })
}
