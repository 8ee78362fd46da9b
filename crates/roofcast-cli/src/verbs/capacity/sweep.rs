//! `roofcast capacity --sweep KEY=VALUES`: the capacity, one row for each combination.
//!
//! Knows: context and batch are keys of the question; every other key belongs to the spec and makes a deployment of its
//! own.

use super::super::{About, MACHINE, common_title};
use super::question_of;
use crate::args::CapacityArgs;
use crate::exit;
use crate::input::dimensions::{self, Dimension, product, word};
use crate::input::scenario::Source;
use crate::show::column::Columns;
use crate::show::number::grouped;
use crate::show::{self, table};
use crate::verbs::limits::sweep::said;
use anyhow::{Context, Result};
use roofcast::capacity::{Capacity, CapacityQuestion, capacity};
use roofcast::memory;
use roofcast::spec::settings::Setting;
use roofcast::{Deployment, Error};
use serde::Serialize;
use std::process::ExitCode;
use toml::Value;

/// Keys of the question, in contrast to keys of the spec.
const KEYS: [&str; 2] = ["context", "batch"];

/// Name and version of the sweep's schema.
const SCHEMA: &str = "roofcast/capacity-sweep/1";

/// Capacities over the values of keys.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CapacitySweep"))]
pub(crate) struct Answer<'a> {
    /// Swept keys.
    sweep: Vec<&'a str>,
    /// Capacity at each combination of values.
    points: &'a [Point<'a>],
    /// Values at which there is no such deployment, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
}

/// The capacity at one combination of values.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CapacityPoint"))]
struct Point<'a> {
    /// Values of the point, one for each swept key.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<roofcast::schema::SweptValue>"))]
    values: &'a [Value],
    #[serde(flatten)]
    about: About<'a>,
    /// Requested tokens of context of each sequence.
    context: u64,
    /// Requested number of sequences.
    batch: u64,
    #[serde(flatten)]
    capacity: Capacity,
}

pub(super) fn run(args: &CapacityArgs, source: &Source) -> Result<ExitCode> {
    let dimensions = dimensions_of(args)?;
    let mut combinations = Vec::new();
    let mut questions: Vec<(Deployment, CapacityQuestion)> = Vec::new();
    let mut illegal = Vec::new();
    for values in product(&dimensions) {
        match asked(args, source, &dimensions, &values) {
            Ok(question) => {
                questions.push(question);
                combinations.push(values);
            }
            Err(error) if dimensions::is_illegal(&dimensions, &error) => illegal.push(error),
            Err(error) => return Err(error),
        }
    }
    if questions.is_empty() && !illegal.is_empty() {
        return Err(illegal.remove(0));
    }
    let skipped: Vec<String> = illegal.iter().map(|error| format!("{error:#}")).collect();
    let points = combinations.iter().zip(&questions).map(|(values, (deployment, question))| Point {
        values,
        about: About::of(deployment),
        context: question.context,
        batch: question.batch,
        capacity: capacity(deployment, question),
    });
    let points: Vec<Point> = points.collect();
    if args.output.json {
        let sweep = dimensions.iter().map(|d| d.path.as_str()).collect();
        show::json(SCHEMA, &Answer { sweep, points: &points, skipped })?;
    } else {
        let abouts: Vec<About> = questions.iter().map(|(deployment, _)| About::of(deployment)).collect();
        print(args, &dimensions, &points, &common_title(&abouts))?;
        if !args.output.csv {
            show::text(&said(&skipped))?;
        }
    }
    let any = points.iter().any(|point| point.capacity.max_batch >= point.batch);
    Ok(if any { ExitCode::SUCCESS } else { exit::infeasible() })
}

fn dimensions_of(args: &CapacityArgs) -> Result<Vec<Dimension>> {
    let given = [args.deployment.flags.settings.as_slice()];
    let read = |text: &String| Dimension::read(text, &KEYS, &given);
    let dimensions = args.sweep.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
    dimensions::check(&dimensions)?;
    let section = |d: &Dimension| d.path.split('.').next().unwrap_or_default().to_owned();
    let idle = |d: &&Dimension| !KEYS.contains(&d.path.as_str()) && !MACHINE.contains(&section(d).as_str());
    if let Some(d) = dimensions.iter().find(idle) {
        let useless = format!("{} without effect on memory", d.path);
        let accepted = format!("{}, or a key of {}", KEYS.join(", "), MACHINE.join(", "));
        return Err(Error::field("arguments", "--sweep", useless, accepted).into());
    }
    let twice = args.context.is_some() && dimensions.iter().any(|d| d.path == KEYS[0]);
    if twice {
        return Err(Error::field(
            "arguments",
            "--context",
            "together with --sweep context=…",
            "one of the two",
        )
        .into());
    }
    Ok(dimensions)
}

/// The deployment and the question at one combination of values.
fn asked(
    args: &CapacityArgs,
    source: &Source,
    dimensions: &[Dimension],
    values: &[Value],
) -> Result<(Deployment, CapacityQuestion)> {
    let varied = || dimensions.iter().zip(values);
    let of_spec = varied().filter(|(d, _)| !KEYS.contains(&d.path.as_str()));
    let settings: Vec<Setting> = of_spec.map(|(d, value)| Setting::new(&d.path, value.clone())).collect();
    let whole = |name: &str| {
        let value = varied().find(|(d, _)| d.path == name).and_then(|(_, value)| value.as_integer());
        value.and_then(|n| u64::try_from(n).ok())
    };
    let named: Vec<String> = varied().map(|(d, value)| format!("{} = {}", d.path, word(value))).collect();
    let resolve = || -> Result<(Deployment, CapacityQuestion)> {
        let mut deployment = source.scenario(&settings)?.deployment()?;
        memory::host_tier(&deployment, 0)?;
        let question = question_of(args, whole(KEYS[0]).or(args.context), &mut deployment);
        let batch = whole(KEYS[1]).unwrap_or(question.batch);
        Ok((deployment, CapacityQuestion { batch, ..question }))
    };
    resolve().with_context(|| format!("with {}", named.join(", ")))
}

fn print(args: &CapacityArgs, dimensions: &[Dimension], points: &[Point], title: &str) -> Result<()> {
    let csv = args.output.csv;
    let columns = Columns::of(super::COLUMNS, points.iter().map(|point| &point.capacity), csv);
    let name =
        |dimension: &'_ Dimension| if csv { dimension.path.clone() } else { dimension.short().to_owned() };
    let names: Vec<String> = dimensions.iter().map(name).collect();
    let header = names.iter().map(String::as_str).chain(columns.names());
    let header: Vec<&str> = header.chain((!csv).then_some("fits")).collect();
    let value = |value: &Value| match value.as_integer().and_then(|n| u64::try_from(n).ok()) {
        Some(whole) if !csv => grouped(whole),
        _ => word(value),
    };
    let fits = |point: &Point| match point.capacity.short_by_bytes.gb() {
        short if point.capacity.kv_tokens == 0 => format!("{short} short"),
        _ if !point.capacity.fits => "no".to_owned(),
        _ => "yes".to_owned(),
    };
    let row = |point: &Point| {
        let cells = point.values.iter().map(value).chain(columns.row(&point.capacity));
        cells.chain((!csv).then(|| fits(point))).collect()
    };
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    if csv {
        return show::csv(&header, &rows);
    }
    show::text(&(title.to_owned() + &table::table(&header, &rows, dimensions.len())))
}
