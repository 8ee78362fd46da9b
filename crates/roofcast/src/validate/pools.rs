//! Measured points of fleets with prefill and decode apart.
//!
//! Knows: the columns of such a CSV and which fleet a row ran on. Lengths are uniform between 0.8 and 1 times the figure, as
//! InferenceX draws them. Rows faster than the limit of their decode pool ran with drafts, which they do not say: they are left out. Nothing
//! says how caches travelled: within a rack over its own link, else over the network. Knows nothing about rankings.

use super::Resolver;
use crate::calibration::Calibration;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::forecaster::Forecaster;
use crate::measurement::{Kind, Lengths, Measurement, Metrics, Settings};
use crate::parallelism::RequestedParallelism;
use crate::simulate::{Options, simulate};
use crate::spec::{CostKind, FleetSpec, LinkKind, PoolSpec, SchedulerKind, Spec};
use crate::workload::{Arrivals, Length, LengthKind, Workload};
use serde::Deserialize;

/// Requests for each that is in flight.
const WAVES: u64 = 4;
/// Requests of a run at most.
const MOST_REQUESTS: u64 = 2000;

/// A row as it stands in the file.
#[derive(Debug, Clone, Deserialize)]
pub struct PoolRow {
    /// Its name.
    pub id: String,
    /// Hugging Face id.
    pub model: String,
    /// Catalog id.
    pub hardware: String,
    engine: String,
    weights: String,
    input_len: u64,
    output_len: u64,
    concurrency: u64,
    prefill_workers: u64,
    prefill_tp: u64,
    prefill_pp: u64,
    prefill_attention_dp: u64,
    prefill_ep: u64,
    decode_workers: u64,
    decode_tp: u64,
    decode_pp: u64,
    decode_attention_dp: u64,
    decode_ep: u64,
    ttft_ms: f64,
    tpot_ms: f64,
}

/// A row with its forecast, or why it has none.
#[derive(Debug, Clone)]
pub struct PoolPoint {
    /// Model, accelerator, formats and lengths.
    pub(super) load: String,
    /// Both pools in words.
    pub(super) configuration: String,
    /// Requests in flight.
    pub(super) users: u64,
    /// Output tokens, mean.
    pub(super) output: f64,
    /// Of both pools.
    pub(super) accelerators: u64,
    /// Mean TTFT and TPOT.
    pub(super) measured: Metrics,
    /// The same as forecast.
    pub(super) forecast: Result<Metrics, String>,
}

/// Reads such a CSV; `place` names the file in errors.
pub fn read(place: &str, text: &str) -> Result<Vec<PoolRow>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let broken = |e: csv::Error| Error::Parse { place: place.into(), message: e.to_string() };
    let rows = reader.deserialize().collect::<Result<Vec<PoolRow>, _>>().map_err(broken)?;
    for row in &rows {
        let counts = [
            ("prefill_workers", row.prefill_workers),
            ("decode_workers", row.decode_workers),
            ("concurrency", row.concurrency),
            ("input_len", row.input_len),
            ("output_len", row.output_len),
        ];
        if let Some((field, found)) = counts.into_iter().find(|(_, n)| !(1..=1_000_000).contains(n)) {
            return Err(Error::field(format!("{place}: {}", row.id), field, found, "1 to 10^6"));
        }
    }
    Ok(rows)
}

/// The forecast of `row`.
pub fn forecast(row: &PoolRow, catalog: &Catalog, calibration: &Calibration) -> PoolPoint {
    let ranks = row.prefill_tp * row.prefill_pp * row.prefill_attention_dp;
    let decode = row.decode_tp * row.decode_pp * row.decode_attention_dp;
    let measured = Metrics { ttft_ms: Some(row.ttft_ms), tpot_ms: Some(row.tpot_ms), ..Metrics::default() };
    PoolPoint {
        load: format!(
            "{} | {} | {} | {} in {} out",
            row.model, row.hardware, row.weights, row.input_len, row.output_len
        ),
        configuration: format!("{}P of {ranks} + {}D of {decode}", row.prefill_workers, row.decode_workers),
        users: row.concurrency,
        output: lengths(row.output_len).mean(),
        accelerators: row.prefill_workers * ranks + row.decode_workers * decode,
        measured,
        forecast: simulated(row, catalog, calibration),
    }
}

fn lengths(most: u64) -> Lengths {
    Lengths { min: (most as f64 * 0.8) as u64, max: most }
}

/// The row as one of replicas that do both would stand, of its decode pool.
fn decoding(row: &PoolRow) -> Measurement {
    Measurement {
        id: row.id.clone(),
        source: "pools".to_owned(),
        kind: Kind::ClosedLoop,
        model: row.model.clone(),
        hardware: row.hardware.clone(),
        parallelism: RequestedParallelism {
            count: None,
            tp: Some(row.decode_tp),
            pp: Some(row.decode_pp),
            ep: Some(row.decode_ep),
            attention_dp: Some(row.decode_attention_dp),
            replicas: Some(row.decode_workers),
        },
        engine: row.engine.clone(),
        version: String::new(),
        weights: row.weights.clone(),
        kv: String::new(),
        input: Some(lengths(row.input_len)),
        output: Some(lengths(row.output_len)),
        context: None,
        concurrency: Some(row.concurrency),
        request_rate: None,
        measured: Metrics::default(),
        median: false,
        settings: Settings::default(),
    }
}

fn simulated(row: &PoolRow, catalog: &Catalog, calibration: &Calibration) -> Result<Metrics, String> {
    let one = decoding(row);
    let mut deployment = Resolver::new(catalog).deployment(&one).map_err(|e| e.to_string())?;
    let limit = super::point::limits(&one, &deployment).tpot_ms;
    if limit.is_some_and(|limit| row.tpot_ms < limit) {
        return Err("faster than the limit of its decode pool: it ran with drafts".to_owned());
    }
    // The pools are those of vLLM's scheduler; what their steps take is their engine's.
    deployment.options.engine.scheduler = SchedulerKind::Vllm;
    deployment.options.engine.cost = CostKind::Forecast;
    deployment.options.parallelism = RequestedParallelism::default();
    deployment.parallelism.replicas = 1;
    let pool = |replicas, [tp, pp, ep, attention_dp]: [u64; 4]| PoolSpec {
        replicas: Some(replicas),
        tp: Some(tp),
        pp: Some(pp),
        ep: Some(ep),
        attention_dp: Some(attention_dp),
        ..PoolSpec::default()
    };
    let racks = row.hardware.starts_with("gb");
    let length = |l: Lengths| Length::Drawn(LengthKind::Uniform { min: l.min, max: l.max });
    let spec = Spec {
        workload: Some(Workload {
            requests: Some((row.concurrency * WAVES).min(MOST_REQUESTS.max(row.concurrency))),
            seed: 0,
            arrivals: Arrivals::ClosedLoop { concurrency: row.concurrency, think_s: None },
            input_len: length(lengths(row.input_len)),
            output_len: length(lengths(row.output_len)),
            prefix: None,
            priorities: Vec::new(),
            max_tokens: None,
        }),
        fleet: FleetSpec {
            prefill: Some(pool(
                row.prefill_workers,
                [row.prefill_tp, row.prefill_pp, row.prefill_ep, row.prefill_attention_dp],
            )),
            decode: Some(pool(
                row.decode_workers,
                [row.decode_tp, row.decode_pp, row.decode_ep, row.decode_attention_dp],
            )),
            link: Some(if racks { LinkKind::Nvlink } else { LinkKind::Network }),
            ..FleetSpec::default()
        },
        ..Spec::default()
    };
    let forecaster = Forecaster::new(deployment, calibration);
    let options = Options { leap: true, ..Options::default() };
    let run = simulate(&forecaster, &spec, "pools", options).map_err(|e| e.to_string())?;
    let s = run.summary;
    Ok(Metrics { ttft_ms: Some(s.ttft.mean), tpot_ms: Some(s.tpot.mean), ..Metrics::default() })
}
