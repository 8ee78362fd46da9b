//! `roofcast bench`: measures a live server under load.

mod baseline;
mod beside;
mod date;
mod detailed;
mod measurements;
mod picture;
pub(crate) mod runs;
pub(crate) mod search;
mod setup;
mod speech;
pub(crate) mod sweep;
mod table;
mod view;

use crate::args::BenchArgs;
use crate::bench::energy::Energy;
use crate::bench::report::Report;
use crate::bench::scrape::ServerMetrics;
use crate::exit;
use crate::page::Alone;
use crate::show;
use crate::show::records::Records;
use crate::show::target::Target;
use anyhow::Result;
use baseline::Baseline;
use beside::Beside;
pub(crate) use beside::advice;
use detailed::Detailed;
use search::Search;
use serde::Serialize;
use serde_json::Value;
use setup::Setup;
use std::process::ExitCode;
use view::View;

/// Name and version of the answer's schema.
const SCHEMA: &str = "roofcast/bench/2";

/// The server and model that are measured, as in the JSON document.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Subject<'a> {
    /// URL of the server.
    url: &'a str,
    /// Path of the endpoint.
    endpoint: &'static str,
    /// vLLM's name of the API.
    backend: &'static str,
    /// vLLM's older key for the backend.
    endpoint_type: &'static str,
    /// Name sent as `model`.
    model_id: &'a str,
    /// The tokenizer's file if one is given, else the model.
    tokenizer_id: &'a str,
    /// Start of the run in UTC.
    date: String,
    /// Assumptions of limit and forecast, if the hardware is known.
    assumptions: &'a [String],
}

/// One measured run, with limit and forecast.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchPoint"))]
struct Point {
    /// Number of requests sent.
    num_prompts: u64,
    /// Requested requests per second, or `inf` in a closed loop.
    request_rate: Value,
    /// Shape of the gaps between requests: 1 is Poisson, and in a closed loop; `null` for even gaps.
    burstiness: Option<f64>,
    /// Users of a closed loop.
    max_concurrency: Option<u64>,
    /// The load as keys of `[workload]`: turns, prefixes, bursts and ramps included.
    workload: Value,
    #[serde(flatten)]
    report: Report,
    /// Limit and forecast, if the hardware is known.
    #[serde(flatten)]
    beside: Beside,
    /// The server's metrics, if they were read.
    server: Option<ServerMetrics>,
    /// Energy and power, if they were measured.
    energy: Option<Energy>,
}

/// The files to write in addition to the records.
struct Files {
    rows: Option<Target>,
    picture: Option<Target>,
    page: Option<Alone>,
}

/// One run against a live server, with limit and forecast.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Bench"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    subject: Subject<'a>,
    #[serde(flatten)]
    point: &'a Point,
    /// Results of earlier runs, with `--baseline`.
    baselines: &'a [Baseline],
    #[serde(flatten)]
    detailed: Option<Detailed>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    // The sweep is parsed first, so that its errors are reported before any request is sent.
    let sweep = args.sweep.as_deref().map(sweep::parse).transpose()?;
    let search = Search::asked(args)?;
    let varied = sweep.as_ref().and_then(|(key, values)| Some(key.at(*values.first()?)));
    let varied = varied.or_else(|| search.map(|search| search.key.at(search.low)));
    if args.deployment.source.dump_spec {
        setup::dump(args, varied.as_slice())?;
        return Ok(ExitCode::SUCCESS);
    }
    let baselines = args.baseline.iter().map(|path| Baseline::read(path)).collect::<Result<Vec<_>>>()?;
    let records = Records::asked(args.records.as_ref())?;
    let files = Files {
        rows: Target::asked("--measurements", args.measurements.as_ref())?,
        picture: Target::asked("--svg", args.svg.as_ref())?,
        page: Alone::asked(args.html.as_ref())?,
    };
    let mut setup = Setup::new(args, varied.as_slice())?;
    if args.measurements.is_some() {
        measurements::check(&setup)?;
    }
    if let Some((key, values)) = sweep {
        return sweep::run(args, &mut setup, key, &values, &files);
    }
    if let Some(search) = search {
        return search::run(args, &mut setup, search, files.picture.as_ref());
    }
    if let Some(count) = args.runs {
        return runs::run(args, &mut setup, count, &files);
    }
    let workload = setup.workload.clone();
    let (point, kept) = setup.measure(&workload)?;
    if let Some(records) = &records {
        records.write(&kept)?;
    }
    if let Some(file) = &files.picture {
        file.text(&picture::of_run(&setup, &point, &kept))?;
    }
    if let Some(rows) = &files.rows {
        measurements::write(rows, &setup, &[&point])?;
    }
    let detailed = args.detailed.then(|| Detailed::of(&kept));
    let answer = Answer { subject: setup.subject(), point: &point, baselines: &baselines, detailed };
    if let Some(page) = &files.page {
        page.write("measure", &View::of(&answer, &kept))?;
    }
    if args.output.json {
        show::json(SCHEMA, &answer)?;
    } else if args.output.csv {
        table::csv(&point)?;
    } else {
        show::text(&(table::title(&setup.subject()) + &table::people(&point, &baselines)))?;
    }
    Ok(if point.report.valid { ExitCode::SUCCESS } else { exit::invalid() })
}
