//! `roofcast limits --sweep KEY=VALUES`: one row a value.

mod columns;
mod measured;
mod picture;
mod point;

use super::super::About;
use crate::args::LimitsArgs;
use crate::input::values::{numbers, refused};
use crate::show::target::Target;
use crate::show::{self, table};
use anyhow::Result;
use columns::{COLUMNS, Column, compared};
use point::{Asked, Point};
use roofcast::limits::Question;
use roofcast::limits::alternatives::{Comparison, settings};
use roofcast::report;
use roofcast::{Error, Forecaster};
use serde::Serialize;
use std::process::ExitCode;

/// Keys that can vary.
const KEYS: [&str; 5] = ["batch", "context", "prefill", "tp", "position"];

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    sweep: &'a str,
    points: Vec<Point>,
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
    let compared = args.compare.map(|kind| settings(deployment, kind.into()));
    let asked = Asked {
        forecaster,
        question,
        key,
        output: args.output_len,
        compared: compared.as_deref().unwrap_or_default(),
    };
    let points: Vec<Point> = values.iter().filter_map(|value| asked.point(*value)).collect();
    if points.is_empty() {
        let found = format!("{text:?} (no such deployment)");
        let accepted = "degrees that divide the model's heads and dimensions";
        return Err(Error::field("arguments", "--sweep", found, accepted).into());
    }
    if let Some(picture) = picture {
        let measured = match &args.measured {
            Some(file) => measured::steps(file, &asked)?,
            None => Vec::new(),
        };
        picture.text(&report::sweep::svg(&picture::drawn(&asked, &points, &measured)))?;
    }
    if args.output.json {
        show::json("roofcast/limits-sweep/1", &Answer { about: About::of(deployment), sweep: key, points })?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(settings) = &compared {
        let names: Vec<&str> = settings.iter().map(|(name, _)| name.as_str()).collect();
        let (header, rows) = compared_rows(key, &names, &points, args.output.csv);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        return print(&header, &rows, args.output.csv, &About::of(deployment).title());
    }
    let shown: Vec<&Column> = COLUMNS.iter().filter(|c| points.iter().any(|p| (c.is)(p))).collect();
    let csv = args.output.csv;
    let header: Vec<&str> =
        std::iter::once(key).chain(shown.iter().map(|c| if csv { c.key } else { c.title })).collect();
    let row = |p: &Point| -> Vec<String> {
        let cells = shown.iter().map(|c| if csv { (c.plain)(p) } else { (c.people)(p) });
        std::iter::once(columns::value(p, csv)).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    print(&header, &rows, csv, &About::of(deployment).title())
}

/// Columns that a narrow table does without, the first to go first.
fn spare(header: &[&str]) -> Vec<usize> {
    let spare = ["MFU", "MBU", "p10", "p90", "tokens/s"];
    spare.iter().filter_map(|name| header.iter().position(|title| title == name)).collect()
}

fn print(header: &[&str], rows: &[Vec<String>], csv: bool, title: &str) -> Result<ExitCode> {
    if csv {
        show::csv(header, rows)?;
    } else {
        show::text(&(title.to_owned() + &table::fitted(header, rows, 0, &spare(header))))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A column a setting.
fn compared_rows(key: &str, names: &[&str], points: &[Point], csv: bool) -> (Vec<String>, Vec<Vec<String>>) {
    let unit = |name: &&str| if csv { format!("{name}_ms") } else { format!("{name} ms") };
    let header = std::iter::once(key.to_owned()).chain(names.iter().map(unit)).collect();
    (header, points.iter().map(|p| compared(p, csv)).collect())
}

/// Refuses a flag that changes nothing in a sweep of `key`.
fn idle(args: &LimitsArgs, key: &str) -> Result<(), Error> {
    let flags = [
        ("--batch", args.batch.is_some(), ["context", "tp", "position"].as_slice()),
        ("--context", args.context.is_some(), &["batch", "tp"]),
        ("--prefill", args.prefill.is_some(), &["position"]),
        ("--output-len", args.output_len.is_some(), &["batch", "context", "tp"]),
        (
            "--tp",
            args.deployment.flags.get("parallelism.tp").is_some(),
            &["batch", "context", "prefill", "position"],
        ),
    ];
    match flags.iter().find(|(_, given, used)| *given && !used.contains(&key)) {
        Some((flag, _, used)) => {
            let accepted = format!("it with a sweep of {}", used.join(", "));
            Err(Error::field("arguments", flag, format!("without effect beside --sweep {key}=…"), accepted))
        }
        None => Ok(()),
    }
}

/// `batch=1..512`, `batch=1..512:8`, `batch=1..512:x2`, `context=1024,8192`.
fn parse(text: &str) -> Result<(&str, Vec<u64>), Error> {
    let accepted = format!("{}, then = and 1..512, 1..512:8, 1..512:x2 or 1,2,4", KEYS.join(", "));
    let (key, values) = text
        .split_once('=')
        .filter(|(key, _)| KEYS.contains(key))
        .ok_or_else(|| Error::field("arguments", "--sweep", format!("{text:?}"), accepted))?;
    Ok((key, numbers(values, 1).map_err(|why| refused(text, &why))?))
}

impl From<crate::args::CompareArg> for Comparison {
    fn from(arg: crate::args::CompareArg) -> Comparison {
        use crate::args::CompareArg as A;
        match arg {
            A::Attention => Comparison::Attention,
            A::Launches => Comparison::Launches,
            A::Kernels => Comparison::Kernels,
            A::Layouts => Comparison::Layouts,
        }
    }
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
