//! The current deployment: its measurement compared with forecast and limit, and the effect of single changes to its
//! settings.
//!
//! Knows: a measured run calibrates the forecast of its own deployment by one factor on step times, so that the
//! forecast of the run's TPOT (else of its E2EL, else of its TTFT) equals the measurement. Changes are made singly, use
//! no more accelerators than exist, and are simulated under the plan's workload. Knows nothing about the search for
//! other deployments.

use super::demand::TrafficDemand;
use super::feasibility::deployment;
use super::proof::{Runner, Trial, asked, lengthened, missed};
use super::refused::{self, UNPLANNED_IMAGES};
use crate::measurement::{Lengths, Measurement, MeasurementKind, Metrics};
use crate::validate::point;
use roofcast_ask::spec::Spec;
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use roofcast_sim::router::Routing;
use roofcast_sim::simulate::Simulation;
use serde::Serialize;
use std::sync::Arc;

/// Most iterations for fitting the factor; at a given rate, the number of running requests depends on the factor.
const FITS: usize = 8;
/// The fit ends when the factor changes by less than this fraction.
const CLOSE: f64 = 1e-3;
/// Factors that need no explanation.
const USUAL: [f64; 2] = [0.5, 2.0];
/// Token budgets of a step that are tried.
const BUDGETS: [u64; 4] = [1024, 2048, 8192, 16_384];

/// The current deployment, and alternatives to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Current {
    /// Total number of accelerators.
    pub count: u64,
    /// Catalog id of the accelerator.
    pub accelerator: String,
    /// Dollars per hour; `None` if the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// Measured figures of the run.
    pub measured: Metrics,
    /// Forecast figures before calibration.
    pub forecast: Metrics,
    /// Figures at the hardware's limits.
    pub limit: Metrics,
    /// Factor of measured over forecast step times.
    pub slower: f64,
    /// Sentences on how the run was read, and on a factor that is far from 1.
    pub notes: Vec<String>,
    /// Results under the plan's workload, with the fitted factor.
    pub now: Alternative,
    /// Results of single changes, the best first.
    pub changes: Vec<Alternative>,
}

/// A deployment on the existing accelerators, with one setting changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ChangedDeployment"))]
pub struct Alternative {
    /// Text of the change, as keys of the spec.
    pub change: String,
    /// True if the alternative meets the SLO.
    pub meets: bool,
    /// Text of the reason if it misses the SLO.
    pub(crate) because: Option<String>,
    /// 99th percentile of the time to first token in milliseconds.
    pub ttft_p99_ms: f64,
    /// 99th percentile of the time per output token in milliseconds.
    pub tpot_p99_ms: f64,
    /// Mean end-to-end latency in milliseconds.
    pub e2el_ms: f64,
    /// Output tokens per second.
    pub output_tok_s: f64,
    /// Fraction by which answers are faster than now: mean end-to-end latency now over the alternative's, less 1.
    pub gain: f64,
}

/// Compares the measurement `row` with the deployment of `spec`, and simulates changes under the spec's workload.
///
/// # Errors
/// The spec has no accelerator or workload, the deployment does not fit, or the run is faster than its limit.
pub fn current(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    row: &Measurement,
    runner: Runner,
) -> Result<Current> {
    let lacking = |field: &str, accepted: &str| Error::field("spec", field, "missing", accepted);
    let named = spec.hardware.accelerator.as_deref();
    let named = named
        .ok_or_else(|| lacking("hardware.accelerator", "the accelerators that the run was measured on"))?;
    let workload = spec.workload.as_ref().ok_or_else(|| lacking("workload", "the load of the plan"))?;
    refused::unjudged(workload)?;
    workload.without_images("spec", UNPLANNED_IMAGES)?;
    let chip = catalog.accelerator(named)?;
    let mut base = spec.clone();
    base.search = None;
    let demand = TrafficDemand::of(workload, "spec")?;
    base.workload = Some(lengthened(workload, &demand, &spec.slo, asked(spec)?));
    let forecaster = Forecaster::embedded(deployment(&base, model, chip)?)?;
    let point::RowLimits { whole: limit, least } = point::limits(row, &forecaster.deployment);
    let forecast = point::forecast(row, &forecaster)?;
    let slower = slower(row, &forecaster, &least)?;
    let explained = explanation(row, &forecaster, &forecast, slower)?;
    let notes = row.notes.iter().cloned().chain(explained).collect();
    let mut trials = vec![trial("as it is".to_owned(), &base, model, chip, slower)?];
    // Do not offer settings that are invalid on this chip.
    trials.extend(
        changed(&base, &forecaster)
            .into_iter()
            .filter_map(|(change, spec)| trial(change, &spec, model, chip, slower).ok()),
    );
    let runs = runner(&trials.iter().map(|(_, trial)| trial.clone()).collect::<Vec<_>>());
    let mut all = Vec::new();
    for ((change, _), run) in trials.into_iter().zip(runs) {
        let miss = missed(&run, &spec.slo).map(|miss| miss.reason);
        match run {
            Ok(run) => all.push(alternative(change, miss, &run)),
            Err(error) if all.is_empty() => return Err(error),
            Err(_) => {}
        }
    }
    let now = all.remove(0);
    for one in &mut all {
        one.gain = now.e2el_ms / one.e2el_ms.max(f64::MIN_POSITIVE) - 1.0;
    }
    all.sort_by(|a, b| b.meets.cmp(&a.meets).then(b.gain.total_cmp(&a.gain)));
    let count = forecaster.deployment.parallelism.count();
    Ok(Current {
        count,
        accelerator: chip.id.clone(),
        cost_per_hour: chip.price.as_ref().map(|price| price.usd_per_hour * count as f64),
        measured: row.measured,
        forecast,
        limit,
        slower,
        notes,
        now,
        changes: all,
    })
}

/// Function that returns one of the figures of a run.
type Figure = fn(&Metrics) -> Option<f64>;

/// The factor on step times with which the forecast equals the run's measured figure.
fn slower(row: &Measurement, forecaster: &Forecaster, limit: &Metrics) -> Result<f64> {
    let figures: [(&str, Figure); 3] =
        [("tpot_ms", |m| m.tpot_ms), ("e2e_ms", |m| m.e2e_ms), ("ttft_ms", |m| m.ttft_ms)];
    let known = figures.into_iter().find_map(|(name, of)| Some((name, of, of(&row.measured)?)));
    let Some((name, of, measured)) = known else {
        return Err(Error::field(&row.id, "times", "missing", "a TPOT, an E2EL or a TTFT"));
    };
    if let Some(least) = of(limit).filter(|least| measured < *least) {
        let accepted =
            format!("{least:.2} or more, the limit of this deployment: does it run as the command says?");
        return Err(Error::field(&row.id, name, format!("{measured:.2} ms"), accepted));
    }
    let mut factor = 1.0;
    for _ in 0..FITS {
        let slowed = point::forecast(row, &forecaster.clone().slowed(factor))?;
        let Some(forecast) = of(&slowed).filter(|ms| *ms > 0.0) else { break };
        let step = measured / forecast;
        factor *= step;
        if (step - 1.0).abs() < CLOSE {
            break;
        }
    }
    Ok(factor)
}

/// Explains a factor far from 1 in a sentence; `None` for a usual factor.
///
/// # Errors
/// With the factor, steps would be faster than the hardware permits: the run had another load or deployment.
fn explanation(
    row: &Measurement,
    forecaster: &Forecaster,
    forecast: &Metrics,
    slower: f64,
) -> Result<Option<String>> {
    if (USUAL[0]..=USUAL[1]).contains(&slower) {
        return Ok(None);
    }
    let time_of = |m: &Metrics| m.tpot_ms.or(m.e2e_ms).or(m.ttft_ms);
    let ratio = time_of(&row.measured)
        .zip(time_of(forecast))
        .map_or(slower, |(measured, forecast)| measured / forecast);
    if slower > USUAL[1] {
        let times = format!("the run is {ratio:.1} times as slow as the forecast of its stated load");
        return Ok(Some(format!(
            "{times}: was the server shared, throttled, or of another model or format?"
        )));
    }
    let step = Measurement {
        kind: MeasurementKind::DecodeStep,
        workload: None,
        context: Some(row.longest()),
        concurrency: Some(row.concurrency.unwrap_or(1)),
        ..row.clone()
    };
    let limit_ms = point::limits(&step, &forecaster.deployment).least.tpot_ms;
    let steps = point::forecast(&step, forecaster)?.tpot_ms;
    let cached = cached(row, forecaster)?;
    let why = match cached {
        Some(ms) => format!(
            "with all but the last token of each prompt cached it would be {ms:.1} ms: were prompts cached?"
        ),
        None => "is the run of another model, format or load, or did the engine draft tokens?".to_owned(),
    };
    let text = format!("the run takes {ratio:.2} of the forecast of its stated load; {why}");
    match limit_ms.zip(steps) {
        Some((limit_ms, steps)) if slower * steps < limit_ms => {
            let accepted =
                format!("a run that its load explains, with steps of {limit_ms:.2} ms or more: {text}");
            Err(Error::field(&row.id, "step times", format!("{:.4} ms", slower * steps), accepted))
        }
        _ => Ok(Some(text)),
    }
}

/// The forecast of the run's first known figure if all prompts were cached but for their last token, in ms; `None` if
/// that does not explain the run.
fn cached(row: &Measurement, forecaster: &Forecaster) -> Result<Option<f64>> {
    if row.workload.is_some() {
        return Ok(None);
    }
    let single_token = Some(Lengths { min: 1, max: 1 });
    let warm = Measurement { input: single_token, ..row.clone() };
    let time_of = |m: &Metrics| m.tpot_ms.or(m.e2e_ms).or(m.ttft_ms);
    let warm = time_of(&point::forecast(&warm, forecaster)?);
    let explains = |ms: &f64| {
        time_of(&row.measured).is_some_and(|measured| (USUAL[0]..=USUAL[1]).contains(&(measured / ms)))
    };
    Ok(warm.filter(explains))
}

fn trial(
    change: String,
    spec: &Spec,
    model: &Arc<Model>,
    chip: &Accelerator,
    slower: f64,
) -> Result<(String, Trial)> {
    let forecaster =
        Forecaster::embedded(deployment(spec, model, chip)?)?.under(spec.workload.as_ref())?.slowed(slower);
    Ok((change, Trial { spec: spec.clone(), forecaster, end_when_missed: false, prices: Arc::default() }))
}

fn alternative(change: String, because: Option<String>, run: &Simulation) -> Alternative {
    let s = &run.summary;
    Alternative {
        change,
        meets: because.is_none(),
        because,
        ttft_p99_ms: s.ttft.p99,
        tpot_p99_ms: s.tpot.p99,
        e2el_ms: s.e2el.mean,
        output_tok_s: s.output_throughput(),
        gain: 0.0,
    }
}

/// Specs that differ from `base` in one setting and use at most its number of accelerators.
fn changed(base: &Spec, forecaster: &Forecaster) -> Vec<(String, Spec)> {
    let d = &forecaster.deployment;
    let mut all: Vec<(String, Spec)> = Vec::new();
    let mut with = |change: String, set: &dyn Fn(&mut Spec)| {
        let mut spec = base.clone();
        set(&mut spec);
        all.push((change, spec));
    };
    for tokens in BUDGETS.into_iter().filter(|n| *n != d.engine.max_num_batched_tokens) {
        with(format!("engine.max_num_batched_tokens={tokens}"), &|s| {
            s.engine.max_num_batched_tokens = Some(tokens)
        });
    }
    for seqs in [d.engine.max_num_seqs / 2, d.engine.max_num_seqs * 2].into_iter().filter(|n| *n > 0) {
        with(format!("engine.max_num_seqs={seqs}"), &|s| s.engine.max_num_seqs = Some(seqs));
    }
    if ["bf16", "fp16"].contains(&d.kv.name) {
        with("precision.kv=fp8".to_owned(), &|s| s.precision.kv = Some("fp8".to_owned()));
    }
    if ["bf16", "fp16"].contains(&d.weights.as_str()) {
        with("precision.weights=fp8".to_owned(), &|s| s.precision.weights = Some("fp8".to_owned()));
    }
    let p = d.parallelism;
    let ranks = p.tp * p.replicas;
    let widths = (0..).map(|n| 1 << n).take_while(|tp| *tp <= ranks.min(d.accelerator.node_size));
    for tp in widths.filter(|tp| ranks.is_multiple_of(*tp) && *tp != p.tp) {
        let replicas = ranks / tp;
        with(format!("parallelism.tp={tp}, parallelism.replicas={replicas}"), &|s| {
            s.parallelism.tp = Some(tp);
            s.parallelism.replicas = Some(replicas);
            s.hardware.count = None;
        });
    }
    if p.replicas > 1 && base.fleet.router != Routing::LeastLoaded {
        with("fleet.router=least_loaded".to_owned(), &|s| s.fleet.router = Routing::LeastLoaded);
    }
    if base.engine.enable_prefix_caching == Some(false) {
        with("engine.enable_prefix_caching=true".to_owned(), &|s| {
            s.engine.enable_prefix_caching = Some(true)
        });
    }
    if base.engine.enforce_eager == Some(true) {
        with("engine.enforce_eager=false".to_owned(), &|s| s.engine.enforce_eager = Some(false));
    }
    all
}
