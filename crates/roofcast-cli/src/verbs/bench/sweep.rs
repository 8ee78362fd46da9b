//! `roofcast bench --sweep KEY=VALUES`: one run and one row per value.

use super::setup::Setup;
use super::{Files, Point, Subject, measurements, picture, table};
use crate::args::BenchArgs;
use crate::swept::{numbers, refused};
use crate::{exit, show};
use anyhow::Result;
use roofcast::Error;
use roofcast::spec::settings::Setting;
use serde::Serialize;
use std::process::ExitCode;

/// Keys that can be swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Concurrency,
    Rate,
    InputLen,
    OutputLen,
}

impl Key {
    const ALL: [(&'static str, Key); 4] = [
        ("concurrency", Key::Concurrency),
        ("rate", Key::Rate),
        ("input-len", Key::InputLen),
        ("output-len", Key::OutputLen),
    ];

    pub(super) fn name(self) -> &'static str {
        Key::ALL.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| name)
    }

    /// The setting that gives the swept key this value.
    pub(super) fn at(self, value: f64) -> Setting {
        match self {
            Key::Concurrency => Setting::new("workload.arrivals.concurrency", value as i64),
            Key::Rate => Setting::new("workload.arrivals.rate", value),
            Key::InputLen => Setting::new("workload.input_len", value as i64),
            Key::OutputLen => Setting::new("workload.output_len", value as i64),
        }
    }
}

/// Runs over the values of one option.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchSweep"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    /// Swept option.
    sweep: &'static str,
    /// Run at each value.
    points: Vec<Swept>,
}

/// A run at one value of the swept option.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchSweepPoint"))]
struct Swept {
    /// Value of the swept option.
    value: f64,
    #[serde(flatten)]
    point: Point,
}

/// Parses a key and its values, as in `concurrency=1,2,4` or `input-len=1..500:50`.
pub(super) fn parse(text: &str) -> Result<(Key, Vec<f64>)> {
    let wrong = || {
        let accepted =
            "concurrency, rate, input-len or output-len, `=` and values as 1,2,4 or 1..500:50 or 1..128:x2";
        Error::field("arguments", "--sweep", format!("{text:?}"), accepted)
    };
    let (name, values) = text.split_once('=').ok_or_else(wrong)?;
    let (_, key) = *Key::ALL.iter().find(|(known, _)| *known == name).ok_or_else(wrong)?;
    let rate = |v: &str| {
        let rate = v.trim().parse::<f64>().ok().filter(|v| (1e-6..=1e9).contains(v));
        rate.ok_or_else(|| format!("{:?} is no rate above 0", v.trim()))
    };
    let values = match key {
        Key::Rate if !values.contains("..") => values.split(',').map(rate).collect::<Result<Vec<f64>, _>>(),
        _ => numbers(values, 1).map(|v| v.into_iter().map(|n| n as f64).collect()),
    };
    Ok((key, values.map_err(|why| refused(text, &why))?))
}

pub(super) fn run(
    args: &BenchArgs,
    setup: &mut Setup,
    key: Key,
    values: &[f64],
    files: &Files,
) -> Result<ExitCode> {
    let mut points = Vec::new();
    for value in values {
        let workload = setup.at(key.at(*value))?;
        let (point, _) = setup.measure(&workload)?;
        let stopped = point.report.interrupted;
        points.push(Swept { value: *value, point });
        if stopped {
            break;
        }
    }
    if let Some(file) = &files.picture {
        let shown: Vec<_> = points.iter().map(|p| (p.value, &p.point)).collect();
        file.text(&picture::of_sweep(setup, key.name(), &shown))?;
    }
    if let Some(rows) = &files.rows {
        measurements::write(rows, setup, &points.iter().map(|p| &p.point).collect::<Vec<_>>())?;
    }
    let valid = points.iter().all(|p| p.point.report.valid);
    if args.output.json {
        let answer = Answer { subject: setup.subject(), sweep: key.name(), points };
        show::json("roofcast/bench-sweep/2", &answer)?;
    } else {
        let rows: Vec<_> = points.iter().map(|p| (p.value, &p.point)).collect();
        table::show(args, &setup.subject(), key.name(), &rows)?;
    }
    Ok(if valid { ExitCode::SUCCESS } else { exit::invalid() })
}
