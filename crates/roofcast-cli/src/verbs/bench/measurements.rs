//! Measured points as rows for `roofcast calibrate` and `validate`.
//!
//! Knows: the columns of a row that a measured point fills in. Invalid points are skipped.

use super::{Point, setup::Setup};
use crate::show::target::Target;
use anyhow::{Context, Result};
use roofcast::Error;

const COLUMNS: [&str; 23] = [
    "id",
    "source",
    "kind",
    "model",
    "hardware",
    "gpus",
    "tp",
    "pp",
    "ep",
    "attention_dp",
    "engine",
    "engine_version",
    "weights",
    "kv_cache",
    "input_len",
    "output_len",
    "concurrency",
    "request_rate",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "stat",
    "workload",
];

/// Refuses, before anything is measured, to write rows if the hardware is not known.
pub(super) fn check(setup: &Setup) -> Result<()> {
    setup
        .workload
        .without_classes("arguments", "omitted with --measurements, whose rows are one kind of requests")?;
    setup.workload.without_images("arguments", "omitted with --measurements, whose rows are text")?;
    if setup.deployment.is_some() {
        return Ok(());
    }
    let accepted = "--hardware with it, and a model that the catalog or a config.json has";
    Err(Error::field("arguments", "--measurements", "without a machine", accepted).into())
}

/// Writes the valid points.
pub(super) fn write(file: &Target, setup: &Setup, points: &[&Point]) -> Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    let valid = points.iter().filter(|point| point.report.valid);
    for (index, row) in valid.filter_map(|point| row(setup, point)).enumerate() {
        writer.write_record([format!("bench-{index}")].into_iter().chain(row))?;
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error())?;
    file.text(&String::from_utf8(bytes).context("the rows as text")?)
}

/// All columns of a row except its id; `None` without a machine.
fn row(setup: &Setup, point: &Point) -> Option<Vec<String>> {
    let d = setup.deployment.as_ref()?;
    let s = &point.report.summary;
    let requested = point.report.requested;
    let kind = match (requested.concurrency, requested.rate, point.workload["arrivals"]["kind"].as_str()) {
        (Some(_), ..) => "closed_loop",
        (None, None, Some("offline" | "burst")) => "burst_all_at_once",
        (None, ..) => "open_loop",
    };
    let mean = |tokens: u64| (tokens as f64 / s.completed as f64).round().to_string();
    // Zero means not measured: without streaming there is no TTFT, and with one token there is no TPOT.
    let known = |ms: f64| if ms > 0.0 { ms.to_string() } else { String::new() };
    let p = d.parallelism;
    let mut row = vec![setup.url.clone(), kind.to_owned(), d.model.name.clone(), d.accelerator.id.clone()];
    row.extend([p.count(), p.tp, p.pp, p.ep, p.attention_dp].map(|n| n.to_string()));
    let engine = &setup.spec.engine;
    row.extend([engine.name().to_owned(), engine.version.clone().unwrap_or_default()]);
    row.extend([d.weights.clone(), d.kv.name.to_string()]);
    row.extend([mean(s.total_input_tokens), mean(s.total_output_tokens)]);
    row.push(requested.concurrency.map_or(String::new(), |n| n.to_string()));
    row.push(requested.rate.map_or(String::new(), |r| r.to_string()));
    row.extend([known(s.ttft.median), known(s.tpot.median), known(s.e2el.median)]);
    row.push("median".to_owned());
    row.push(point.workload.to_string());
    Some(row)
}
