//! Data for the page that compares forecasts with measurements: errors by part, and every row.

use super::SCHEMA;
use crate::show::Document;
use roofcast::coefficients::Evidence;
use roofcast::measurement::{Lengths, MeasurementKind, Metrics};
use roofcast::parallelism::RequestedParallelism;
use roofcast::validate::{ErrorReport, RowForecast};
use serde::Serialize;

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ValidateAnswer"))]
pub(crate) struct View<'a> {
    report: Document<&'a ErrorReport>,
    rows: Vec<Row<'a>>,
}

/// A measured point with its forecast.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Row<'a> {
    id: &'a str,
    source: &'a str,
    kind: MeasurementKind,
    model: &'a str,
    hardware: &'a str,
    /// Parallelism, as in `tp 4 pp 2`.
    topology: String,
    engine: &'a str,
    engine_version: &'a str,
    weights: &'a str,
    kv: &'a str,
    input_len: Option<f64>,
    output_len: Option<f64>,
    concurrency: Option<u64>,
    request_rate: Option<f64>,
    measured: Metrics,
    forecast: Option<Metrics>,
    limit: Metrics,
    /// Reason why the point has no forecast.
    left_out: Option<&'a str>,
    evidence: Evidence,
    /// 10th and 90th percentile of measured over forecast, for each metric in the order of the keys above.
    bands: Vec<Option<[f64; 2]>>,
}

impl<'a> View<'a> {
    pub(crate) fn of(report: &'a ErrorReport, points: &'a [RowForecast]) -> View<'a> {
        View { report: Document { schema: SCHEMA, body: report }, rows: points.iter().map(Row::of).collect() }
    }
}

impl<'a> Row<'a> {
    fn of(point: &'a RowForecast) -> Row<'a> {
        let row = point.row;
        Row {
            id: &row.id,
            source: &row.source,
            kind: row.kind,
            model: &row.model,
            hardware: &row.hardware,
            topology: topology(&row.parallelism),
            engine: &row.engine,
            engine_version: &row.version,
            weights: &row.weights,
            kv: &row.kv,
            input_len: row.input.map(Lengths::mean),
            output_len: row.output.map(Lengths::mean),
            concurrency: row.concurrency,
            request_rate: row.request_rate,
            measured: row.measured,
            forecast: point.forecast.as_ref().ok().copied(),
            limit: point.limit,
            left_out: point.forecast.as_ref().err().map(String::as_str),
            evidence: point.evidence,
            bands: (0..Metrics::NAMES.len()).map(|index| point.band(index)).collect(),
        }
    }
}

/// The degrees of parallelism above one, and the total number of accelerators.
fn topology(asked: &RequestedParallelism) -> String {
    let degrees = [
        ("tp", asked.tp),
        ("pp", asked.pp),
        ("ep", asked.ep),
        ("dp", asked.attention_dp),
        ("replicas", asked.replicas),
    ];
    let named = degrees.into_iter().filter_map(|(name, degree)| Some((name, degree.filter(|n| *n > 1)?)));
    let parts: Vec<String> = named.map(|(name, degree)| format!("{name} {degree}")).collect();
    match (parts.is_empty(), asked.count) {
        (true, Some(count)) if count > 1 => format!("{count} accelerators"),
        (true, _) => "1 accelerator".to_owned(),
        (false, _) => parts.join(" "),
    }
}
