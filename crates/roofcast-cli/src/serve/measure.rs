//! A benchmark client's results compared with forecast and limit: the bottleneck, and the first setting to change.
//!
//! Knows: the answer's shape. The library reads results, `validate` makes forecasts.

use super::question::{self, MeasureAsked};
use crate::verbs::bench::advice;
use anyhow::Result;
use roofcast::batch::Batch;
use roofcast::calibration::Calibration;
use roofcast::catalog::Catalog;
use roofcast::coefficients::Evidence;
use roofcast::cost::{self, Bottleneck, Terms, Utilization};
use roofcast::measurement::benchmark::Subject;
use roofcast::measurement::{Lengths, Measurement, Metrics, results};
use roofcast::parallelism::RequestedParallelism;
use roofcast::validate::{Resolver, points};
use roofcast::{Error, Model};
use serde::Serialize;
use std::sync::Arc;

/// Most runs in one file.
const MOST_RUNS: usize = 32;

/// Data for the page.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MeasureAnswer"))]
pub(crate) struct Answer {
    file: String,
    model: String,
    hardware: String,
    engine: String,
    pub(super) runs: Vec<Run>,
}

/// One run of the client, with its comparison.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Run {
    source: &'static str,
    /// Kind of the measurement, as in `closed_loop`.
    kind: &'static str,
    concurrency: Option<u64>,
    request_rate: Option<f64>,
    input_len: Option<f64>,
    output_len: Option<f64>,
    measured: Metrics,
    forecast: Option<Metrics>,
    limit: Metrics,
    /// Reason why the run has no forecast.
    left_out: Option<String>,
    evidence: Evidence,
    /// 10th and 90th percentile of measured over forecast, by metric.
    bands: Vec<Option<[f64; 2]>>,
    /// Bottleneck at the limit of a decode step with the run's concurrency.
    bound: Bottleneck,
    terms: Terms,
    /// Limit of the time of that step over the measured time per output token.
    limit_share: Option<f64>,
    /// First setting to change, as a sentence.
    advice: String,
    /// Sentences on how the file was read.
    notes: Vec<String>,
}

/// Compares every run of the file with its forecast.
pub(super) fn found(asked: &MeasureAsked, catalog: &Catalog, models: &[Arc<Model>]) -> Result<Answer> {
    if models.iter().any(|model| model.name == asked.model) {
        let accepted = "a model of the catalog: forecasts of measured points are of these";
        return Err(Error::field(question::PLACE, "model", &asked.model, accepted).into());
    }
    let subject = subject(asked, catalog)?;
    let rows = results::read(&asked.name, &asked.text, &subject, catalog)?;
    let runs = rows.into_iter().take(MOST_RUNS).map(|point| {
        let mut row = point.row?;
        row.load(|path| {
            let accepted = "traffic that is described: no file of this machine is read";
            Err::<String, Error>(Error::field(&asked.name, "workload.arrivals.path", path, accepted))
        })?;
        run(point.client, &row, catalog)
    });
    Ok(Answer {
        file: asked.name.clone(),
        model: subject.model.clone(),
        hardware: subject.hardware.clone(),
        engine: asked.engine.clone().unwrap_or_else(|| "vllm".to_owned()),
        runs: runs.collect::<Result<_>>()?,
    })
}

fn subject(asked: &MeasureAsked, catalog: &Catalog) -> Result<Subject> {
    let hardware = catalog.accelerator(&asked.hardware)?.id.clone();
    catalog.model(&asked.model)?;
    Ok(Subject {
        model: asked.model.clone(),
        hardware,
        parallelism: RequestedParallelism {
            count: question::count("count", asked.count.as_ref())?,
            tp: question::count("tp", asked.tp.as_ref())?,
            ..RequestedParallelism::default()
        },
        engine: asked.engine.clone().unwrap_or_default(),
        version: asked.engine_version.clone().unwrap_or_default(),
        weights: asked.weights.clone().unwrap_or_default(),
        kv: asked.kv.clone().unwrap_or_else(|| "auto".to_owned()),
        ..Subject::default()
    })
}

fn run(source: &'static str, row: &Measurement, catalog: &Catalog) -> Result<Run> {
    let deployment = Resolver::new(catalog).deployment(row)?;
    let mean = |lengths: Option<Lengths>| lengths.map(Lengths::mean);
    let input = mean(row.input);
    let output = mean(row.output);
    // On average half of the answer is already in the context.
    let context = (input.unwrap_or(1.0) + output.unwrap_or(0.0) / 2.0).round().max(1.0);
    let batch = Batch::decode(row.concurrency.unwrap_or(1).max(1), context as u64);
    let decode = cost::limit(&deployment, &batch, Utilization::FULL);
    let share = row.measured.tpot_ms.map(|tpot| decode.limit_with_communication.ms() / tpot);
    let rows = std::slice::from_ref(row);
    let forecasts = points(rows, catalog, Calibration::embedded()?);
    let point = forecasts.first().ok_or_else(|| Error::field("the request", "runs", 0, "one or more"))?;
    Ok(Run {
        source,
        kind: row.kind.name(),
        concurrency: row.concurrency,
        request_rate: row.request_rate,
        input_len: input,
        output_len: output,
        measured: row.measured,
        forecast: point.forecast.as_ref().ok().copied(),
        limit: point.limit,
        left_out: point.forecast.as_ref().err().cloned(),
        evidence: point.evidence,
        bands: (0..Metrics::NAMES.len()).map(|index| point.band(index)).collect(),
        bound: decode.bound,
        terms: decode.terms,
        limit_share: share,
        advice: advice(&decode, share),
        notes: row.notes.clone(),
    })
}
