//! `roofcast limits --sweep KEY=VALUES`: one row a value.

use super::super::About;
use crate::args::LimitsArgs;
use crate::input::values::{numbers, refused};
use crate::show::number::{grouped, ms, significant};
use crate::show::target::Target;
use crate::show::{self, table};
use anyhow::Result;
use roofcast::batch::Batch;
use roofcast::capacity::reshaped;
use roofcast::cost::{Bound, Cost, cost};
use roofcast::limits::{Question, decode};
use roofcast::report;
use roofcast::report::sweep::{Curve, Look, Panel, Quantity, Sweep, Values};
use roofcast::{Deployment, Error, Forecaster};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    sweep: &'a str,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    value: u64,
    limit_ms: f64,
    communication_ms: f64,
    limit_with_communication_ms: f64,
    forecast_ms: f64,
    forecast_band_ms: [f64; 2],
    bound: Bound,
    tokens_per_s: f64,
    mfu: f64,
    mbu: f64,
}

pub(super) fn run(
    args: &LimitsArgs,
    forecaster: &Forecaster,
    question: &Question,
    text: &str,
    picture: Option<&Target>,
) -> Result<ExitCode> {
    let deployment = &forecaster.deployment;
    let (key, values) = parse(text)?;
    idle(args, key)?;
    let points: Vec<Point> =
        values.iter().filter_map(|value| point(forecaster, question, key, *value)).collect();
    if points.is_empty() {
        let found = format!("{text:?} (no such deployment)");
        let accepted = "degrees that divide the model's heads and dimensions";
        return Err(Error::field("arguments", "--sweep", found, accepted).into());
    }
    if let Some(picture) = picture {
        picture.text(&report::sweep::svg(&drawn(deployment, question, key, &points)))?;
    }
    let header =
        [key, "limit ms", "of it links", "forecast ms", "p10", "p90", "bound", "tokens/s", "MFU", "MBU"];
    if args.output.json {
        show::json("roofcast/limits-sweep/1", &Answer { about: About::of(deployment), sweep: key, points })?;
    } else if args.output.csv {
        let names = [
            key,
            "limit_ms",
            "communication_ms",
            "limit_with_communication_ms",
            "forecast_ms",
            "forecast_p10_ms",
            "forecast_p90_ms",
            "bound",
            "tokens_per_s",
            "mfu",
            "mbu",
        ];
        show::csv(&names, &points.iter().map(plain).collect::<Vec<_>>())?;
    } else {
        let rows: Vec<_> = points.iter().map(people).collect();
        show::text(&(About::of(deployment).title() + &table::table(&header, &rows, 0)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The sweep as a picture: times above, what they give below.
fn drawn(deployment: &Deployment, question: &Question, key: &str, points: &[Point]) -> Sweep {
    let curve = |name: &str, series: usize, look: Look, of: fn(&Point) -> f64| {
        Curve::new(name, series, look, points.iter().map(|p| Some(of(p))))
    };
    let mut forecast = curve("forecast", 0, Look::Points, |p| p.forecast_ms);
    forecast.ranges = points.iter().map(|p| Some(p.forecast_band_ms)).collect();
    let limit = curve("limit", 7, Look::Limit, |p| p.limit_with_communication_ms);
    let times = vec![forecast, limit];
    let rates = [
        curve("forecast", 0, Look::Points, |p| {
            p.tokens_per_s * p.limit_with_communication_ms / p.forecast_ms
        }),
        curve("limit", 7, Look::Limit, |p| p.tokens_per_s),
    ];
    let (batch, context) = (grouped(question.batch), grouped(question.context));
    let (what, held) = match key {
        "prefill" => ("time of a prefill", "One prompt".to_owned()),
        "batch" => ("time of a decode step", format!("Decode steps, {context} tokens of context each")),
        "context" => ("time of a decode step", format!("Decode steps of batch {batch}")),
        _ => (
            "time of a decode step",
            format!("Decode steps of batch {batch}, {context} tokens of context each"),
        ),
    };
    let panel =
        |title: &str, quantity, curves| Panel { title: title.to_owned(), quantity, curves, most: None };
    Sweep {
        title: About::of(deployment).name(),
        note: held,
        key: key.to_owned(),
        values: Values::Numbers(points.iter().map(|p| p.value as f64).collect()),
        panels: vec![
            panel(what, Quantity::Time, times),
            panel("tokens a second", Quantity::Count, rates.into()),
        ],
    }
}

/// The point at `value`; none where that many ranks do not divide the heads.
fn point(forecaster: &Forecaster, question: &Question, key: &str, value: u64) -> Option<Point> {
    let deployment = &forecaster.deployment;
    let mut q = *question;
    let (tokens, cost) = match key {
        "context" => {
            q.context = value;
            (q.batch, decode(forecaster, &q))
        }
        "prefill" => (value, cost(forecaster, &Batch::prefill(1, value), q.utilization)),
        "tp" => (
            q.batch,
            decode(&forecaster.reshaped(reshaped(deployment, value, deployment.parallelism.pp)?), &q),
        ),
        _ => {
            q.batch = value;
            (q.batch, decode(forecaster, &q))
        }
    };
    Some(measured(value, tokens, &cost))
}

fn measured(value: u64, tokens: u64, cost: &Cost) -> Point {
    Point {
        value,
        limit_ms: cost.limit.ms(),
        communication_ms: cost.terms.communication.ms(),
        limit_with_communication_ms: cost.limit_with_communication.ms(),
        forecast_ms: cost.forecast.ms(),
        forecast_band_ms: cost.forecast_band.map(|t| t.ms()),
        bound: cost.bound,
        tokens_per_s: tokens as f64 / cost.limit_with_communication.seconds().max(1e-12),
        mfu: cost.mfu,
        mbu: cost.mbu,
    }
}

fn plain(p: &Point) -> Vec<String> {
    let bound = p.bound.name().to_owned();
    let mut row = vec![p.value.to_string()];
    let limits = [p.limit_ms, p.communication_ms, p.limit_with_communication_ms];
    row.extend(limits.into_iter().chain([p.forecast_ms]).chain(p.forecast_band_ms).map(|v| v.to_string()));
    row.extend([bound, p.tokens_per_s.to_string(), p.mfu.to_string(), p.mbu.to_string()]);
    row
}

fn people(p: &Point) -> Vec<String> {
    let time = |ms_: f64| ms(roofcast::units::Picoseconds::from_seconds(ms_ / 1e3));
    vec![
        grouped(p.value),
        time(p.limit_with_communication_ms),
        time(p.communication_ms),
        time(p.forecast_ms),
        time(p.forecast_band_ms[0]),
        time(p.forecast_band_ms[1]),
        p.bound.name().to_owned(),
        grouped(p.tokens_per_s as u64),
        significant(p.mfu),
        significant(p.mbu),
    ]
}

/// Refuses a flag that changes nothing in a sweep of `key`.
fn idle(args: &LimitsArgs, key: &str) -> Result<(), Error> {
    let flags = [
        ("--batch", args.batch.is_some(), ["context", "tp"].as_slice()),
        ("--context", args.context.is_some(), &["batch", "tp"]),
        ("--prefill", args.prefill.is_some(), &[]),
        ("--tp", args.deployment.flags.get("parallelism.tp").is_some(), &["batch", "context", "prefill"]),
    ];
    match flags.iter().find(|(_, given, used)| *given && !used.contains(&key)) {
        Some((flag, _, used)) => {
            let accepted = match used.join(", ") {
                none if none.is_empty() => {
                    "neither, as sweeps but prefill=VALUES are of decode steps".to_owned()
                }
                keys => format!("it with a sweep of {keys}"),
            };
            Err(Error::field("arguments", flag, format!("without effect beside --sweep {key}=…"), accepted))
        }
        None => Ok(()),
    }
}

/// `batch=1..512`, `batch=1..512:8`, `batch=1..512:x2`, `context=1024,8192`.
fn parse(text: &str) -> Result<(&str, Vec<u64>), Error> {
    let accepted = "batch, context, prefill or tp, then = and 1..512, 1..512:8, 1..512:x2 or 1,2,4";
    let (key, values) = text
        .split_once('=')
        .filter(|(key, _)| ["batch", "context", "prefill", "tp"].contains(key))
        .ok_or_else(|| Error::field("arguments", "--sweep", format!("{text:?}"), accepted))?;
    Ok((key, numbers(values, 1).map_err(|why| refused(text, &why))?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn keys_and_values() {
        assert_eq!(parse("batch=1..4").unwrap(), ("batch", vec![1, 2, 3, 4]));
        for wrong in ["batch", "depth=1..2", "batch=0..4", "=1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
