//! A recorded run of a real engine, compared request by request with its replay.
//!
//! Knows: `meta.json` (engine settings, KV blocks) and `requests.jsonl` (times at which each request was queued and got
//! its first and last token). The replay has the run's own arrivals, lengths, settings and blocks; nothing is fitted to
//! the run. Knows nothing about how a replay is simulated.

use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::{CostKind, EngineSpec, Spec};
use roofcast_ask::summary::Statistics;
use roofcast_cost::calibration::Calibration;
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::simulate::{self, simulate};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Errors of the replay of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replay {
    /// Name of the run.
    pub name: String,
    /// Errors by metric; times are measured from the queueing of a request.
    pub metrics: RunMetrics,
}

/// Errors of each metric of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunMetrics {
    /// Time to first token.
    pub ttft_ms: Compared,
    /// Time per output token after the first.
    pub tpot_ms: Compared,
    /// End-to-end latency.
    pub e2e_ms: Compared,
}

/// One metric, measured and replayed; errors are predicted/measured − 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    /// Mean of the measured values.
    pub mean_measured: f64,
    /// Mean of the forecast values.
    pub mean_predicted: f64,
    /// Forecast over measured mean, minus 1.
    pub mean_error: f64,
    /// Median of the measured values.
    pub(crate) p50_measured: f64,
    /// Median of the forecast values.
    pub(crate) p50_predicted: f64,
    /// Forecast over measured median, minus 1.
    pub p50_error: f64,
    /// 99th percentile of the measured values.
    pub(crate) p99_measured: f64,
    /// 99th percentile of the forecast values.
    pub(crate) p99_predicted: f64,
    /// Forecast over measured 99th percentile, minus 1.
    pub p99_error: f64,
}

impl Compared {
    fn of(measured: &Statistics, predicted: &Statistics) -> Compared {
        let error = |measured: f64, predicted: f64| predicted / measured.max(1e-9) - 1.0;
        Compared {
            mean_measured: measured.mean,
            mean_predicted: predicted.mean,
            mean_error: error(measured.mean, predicted.mean),
            p50_measured: measured.median,
            p50_predicted: predicted.median,
            p50_error: error(measured.median, predicted.median),
            p99_measured: measured.p99,
            p99_predicted: predicted.p99,
            p99_error: error(measured.p99, predicted.p99),
        }
    }
}

/// The keys of `meta.json` that determine a replay.
#[derive(Debug, Clone, Deserialize)]
struct Meta {
    model: String,
    #[serde(default)]
    vllm_version: Option<String>,
    engine_kwargs: Kwargs,
    #[serde(default)]
    kv_cache: Option<Cache>,
    #[serde(default)]
    hardware: Option<Device>,
}

#[derive(Debug, Clone, Deserialize)]
struct Kwargs {
    #[serde(default)]
    tensor_parallel_size: Option<u64>,
    #[serde(default)]
    max_num_seqs: Option<u64>,
    #[serde(default)]
    max_num_batched_tokens: Option<u64>,
    #[serde(default)]
    max_model_len: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
struct Cache {
    #[serde(default)]
    num_gpu_blocks: Option<u64>,
    #[serde(default)]
    block_size: Option<u64>,
    #[serde(default)]
    gpu_memory_utilization: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
struct Device {
    #[serde(default)]
    device_name: Option<String>,
}

/// One request of `requests.jsonl`; times are in seconds on one clock.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Served {
    input_toks: u64,
    output_toks: u64,
    queued_ts: f64,
    first_token_ts: f64,
    last_token_ts: f64,
}

/// Replays the run `name` from the texts of its two files, and compares the replay with the run.
pub fn replay(
    name: &str,
    meta: &str,
    requests: &str,
    catalog: &Catalog,
    calibration: &Calibration,
) -> Result<Replay> {
    let place = format!("{name}/meta.json");
    let meta: Meta = serde_json::from_str(meta)
        .map_err(|e| Error::Parse { place: place.clone(), message: e.to_string() })?;
    let served = served(&format!("{name}/requests.jsonl"), requests)?;
    let chip = chip(catalog, &place, name, &meta)?;
    let model = catalog.named(&meta.model)?.model()?;
    let deployment = Deployment::resolve(Arc::new(model), Arc::new(chip.clone()), &options(&meta))?;
    let forecaster = Forecaster::new(deployment, calibration);
    let text = "[workload.arrivals]\nkind = \"trace\"\npath = \"requests\"\nformat = \"own\"\n";
    let mut spec = Spec::parse(name, text)?;
    if let Some(workload) = &mut spec.workload {
        workload.load(name, |_| Ok::<String, Error>(arrivals(&served)))?;
    }
    let options = simulate::RunOptions { leap: true, ..simulate::RunOptions::default() };
    let predicted = simulate(&forecaster, &spec, name, options)?.summary;
    let statistics_of = |metric: &dyn Fn(&Served) -> Option<f64>| {
        Statistics::of(&mut served.iter().filter_map(|s| metric(s).map(|t| t * 1e3)).collect::<Vec<f64>>())
    };
    let ttft = statistics_of(&|s| Some(s.first_token_ts - s.queued_ts));
    let tpot = statistics_of(&|s| {
        (s.output_toks > 1).then(|| (s.last_token_ts - s.first_token_ts) / (s.output_toks - 1) as f64)
    });
    let e2e = statistics_of(&|s| Some(s.last_token_ts - s.queued_ts));
    Ok(Replay {
        name: name.to_owned(),
        metrics: RunMetrics {
            ttft_ms: Compared::of(&ttft, &predicted.ttft),
            tpot_ms: Compared::of(&tpot, &predicted.tpot),
            e2e_ms: Compared::of(&e2e, &predicted.e2el),
        },
    })
}

fn served(place: &str, text: &str) -> Result<Vec<Served>> {
    let mut all: Vec<Served> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let place = format!("{place}:{}", index + 1);
        let request: Served = serde_json::from_str(line)
            .map_err(|e| Error::Parse { place: place.clone(), message: e.to_string() })?;
        let ordered =
            request.queued_ts <= request.first_token_ts && request.first_token_ts <= request.last_token_ts;
        if !ordered || request.input_toks == 0 || request.output_toks == 0 {
            let accepted = "queued_ts ≤ first_token_ts ≤ last_token_ts, and at least a token each way";
            return Err(Error::field(place, "times and tokens", line, accepted));
        }
        all.push(request);
    }
    if all.is_empty() {
        return Err(Error::field(place, "requests", 0, "a line of JSON for each request"));
    }
    all.sort_by(|a, b| a.queued_ts.total_cmp(&b.queued_ts));
    Ok(all)
}

/// The requests in the CSV format of roofcast's traces.
fn arrivals(served: &[Served]) -> String {
    let start = served.first().map_or(0.0, |s| s.queued_ts);
    let line = |s: &Served| format!("{:.9},{},{}\n", s.queued_ts - start, s.input_toks, s.output_toks);
    std::iter::once("arrival_s,input_len,output_len\n".to_owned()).chain(served.iter().map(line)).collect()
}

/// The accelerator whose catalog id is contained in the device's name or in the run's name; the longest such id.
fn chip<'a>(catalog: &'a Catalog, place: &str, name: &str, meta: &Meta) -> Result<&'a Accelerator> {
    let device = meta.hardware.as_ref().and_then(|h| h.device_name.clone()).unwrap_or_default();
    catalog.device(&format!("{device} {name}")).ok_or_else(|| {
        let accepted = "a device name, or a folder named after an accelerator of the catalog";
        Error::field(place, "hardware.device_name", format!("{device:?}"), accepted)
    })
}

fn options(meta: &Meta) -> DeploymentOptions {
    let k = &meta.engine_kwargs;
    let tp = k.tensor_parallel_size.unwrap_or(1);
    let cache = meta.kv_cache.as_ref();
    DeploymentOptions {
        parallelism: RequestedParallelism {
            count: Some(tp),
            tp: Some(tp),
            ..RequestedParallelism::default()
        },
        engine: EngineSpec {
            version: meta.vllm_version.clone(),
            cost: CostKind::Forecast,
            max_num_seqs: k.max_num_seqs,
            max_num_batched_tokens: k.max_num_batched_tokens,
            max_model_len: k.max_model_len,
            num_gpu_blocks: cache.and_then(|c| c.num_gpu_blocks),
            block_size: cache.and_then(|c| c.block_size),
            gpu_memory_utilization: cache.and_then(|c| c.gpu_memory_utilization),
            ..EngineSpec::default()
        },
        ..DeploymentOptions::default()
    }
}
