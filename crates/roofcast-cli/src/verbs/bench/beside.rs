//! The machine's limit and forecast, to compare with the measured values.
//!
//! Knows: the limit of a decode step at the measured concurrency and context, the limit of a prefill, and the
//! forecast of the workload. Names the bottleneck and suggests a change.

use crate::bench::report::Report;
use anyhow::Result;
use roofcast::bands::Bands;
use roofcast::batch::Batch;
use roofcast::cost::{self, Bottleneck, Cost, Terms, Utilization};
use roofcast::simulate::{RunOptions, simulate};
use roofcast::spec::CostKind;
use roofcast::summary::{RunSummary, Statistics};
use roofcast::workload::{Length, Workload};
use roofcast::{Deployment, Forecaster, Spec};
use serde::Serialize;

/// Limit and forecast, if the hardware is known.
#[derive(Serialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Beside {
    /// The limit of the load; `null` without `--hardware`.
    pub(super) limit: Option<Limit>,
    /// Forecast of the workload by simulation; `null` without `--hardware`.
    pub(super) forecast: Option<Forecast>,
}

/// The machine's limit at the load of the run.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchLimit"))]
pub(super) struct Limit {
    /// Id of the accelerator.
    pub(super) hardware: String,
    /// Sequences of the decode step to which the limit applies.
    batch: u64,
    /// Tokens of context of each sequence.
    context: u64,
    /// Tokens of the prompt.
    prompt: u64,
    /// Time of one decode step, in milliseconds; `null` if no answer has two tokens.
    pub(super) tpot_ms: Option<f64>,
    /// Limit divided by the measured median TPOT: 1 if the server is as fast as possible.
    pub(super) tpot_share: Option<f64>,
    /// Bottleneck of the decode step.
    pub(super) bound: Bottleneck,
    /// Times of the decode step by resource.
    terms: Terms,
    /// Time of one prefill without other requests, in milliseconds.
    pub(super) ttft_ms: f64,
    /// Limit over the measured median TTFT.
    pub(super) ttft_share: Option<f64>,
    /// Bottleneck of the prompt.
    prefill_bound: Bottleneck,
    /// Suggested change, as a sentence.
    pub(super) advice: String,
}

/// Result of simulating the workload in virtual time.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchForecast"))]
pub(super) struct Forecast {
    /// Basis of the forecast in words.
    pub(super) source: String,
    /// True if the forecast uses the mean lengths of the served requests, because they differ from the workload's.
    pub(super) of_served: bool,
    /// Mean time to first token.
    pub(super) mean_ttft_ms: f64,
    /// Median time to first token.
    pub(super) median_ttft_ms: f64,
    /// Mean time per output token; `null` if no answer has two tokens.
    pub(super) mean_tpot_ms: Option<f64>,
    /// Median time per output token; `null` if no answer has two tokens.
    pub(super) median_tpot_ms: Option<f64>,
    /// Mean end-to-end latency.
    pub(super) mean_e2el_ms: f64,
    /// Requests per second.
    pub(super) request_throughput: f64,
    /// Output tokens per second.
    pub(super) output_throughput: f64,
    /// Measured median divided by the forecast median.
    pub(super) ttft_ratio: Option<f64>,
    /// Measured over forecast median TPOT.
    pub(super) tpot_ratio: Option<f64>,
    /// 10th and 90th percentiles of measured over forecast, for forecasts of this kind.
    pub(super) bands: Option<Bands>,
}

/// The load of a run as a forecast and the run's result describe it.
pub(super) struct OfferedLoad {
    pub(super) workload: Workload,
    /// True if the lengths are the means of the served requests, in the place of the workload's own.
    of_served: bool,
}

impl OfferedLoad {
    /// The load of a run of `workload`. `named` is true if prompts and outputs have the lengths that the workload names,
    /// rather than lengths from a file.
    pub(super) fn of(workload: Workload, named: bool, report: &Report) -> OfferedLoad {
        let served_apart = !named || report.answered_share.is_some_and(|share| share < AS_ASKED);
        let of_served = served_apart && report.summary.completed > 0;
        let workload = if of_served { served(&workload, &report.summary) } else { workload };
        OfferedLoad { workload, of_served }
    }
}

impl Beside {
    /// Computes limit and forecast of `load`.
    pub(super) fn of(
        deployment: &Deployment,
        spec: &Spec,
        place: &str,
        load: &OfferedLoad,
        report: &Report,
    ) -> Result<Beside> {
        if report.summary.completed == 0 {
            return Ok(Beside::default());
        }
        let limit = limit(deployment, report)?;
        let mut spec = spec.clone();
        spec.workload = Some(load.workload.clone());
        let mut priced = Forecaster::embedded(deployment.clone())?.under(Some(&load.workload))?;
        priced.deployment.engine.cost = CostKind::Forecast;
        let simulated = simulate(&priced, &spec, place, RunOptions { leap: true, ..RunOptions::default() })?;
        let source = priced.coefficients.name.clone();
        let forecast = forecast(source, &simulated.summary, simulated.bands, &report.summary);
        Ok(Beside { limit: Some(limit), forecast: Some(Forecast { of_served: load.of_served, ..forecast }) })
    }
}

/// Smallest fraction of the requested output tokens at which outputs count as having the workload's lengths.
const AS_ASKED: f64 = 0.95;

/// The workload, with the mean lengths of the served prompts and outputs in the place of its own.
fn served(workload: &Workload, s: &RunSummary) -> Workload {
    let mean = |tokens: u64| Length::Tokens((tokens as f64 / s.completed as f64).round().max(1.0) as u64);
    let mut served = workload.clone();
    served.input_len = mean(s.total_input_tokens);
    served.output_len = mean(s.total_output_tokens);
    // The counted prompts include shared prefixes.
    if let Some(prefix) = served.prefix
        && let Length::Tokens(whole) = &mut served.input_len
    {
        *whole = whole.saturating_sub((prefix.length as f64 * prefix.share) as u64).max(1);
    }
    served
}

/// Limit of the load; a step with drafts verifies and gives several tokens, so that a token's limit is a fraction of the
/// step's.
fn limit(deployment: &Deployment, report: &Report) -> Result<Limit> {
    let s = &report.summary;
    let prompt = (s.total_input_tokens / s.completed.max(1)).max(1);
    let batch = (report.achieved_concurrency.round() as u64).max(1);
    // On average, half of the output is already in the context.
    let context = prompt + s.total_output_tokens / s.completed.max(1) / 2;
    let drafts = deployment.engine.drafts()?;
    let drafted =
        drafts.as_ref().map_or(0.0, |(spec, reached)| reached.len() as f64 * spec.draft_share.unwrap_or(1.0));
    let decode = Batch::verify(batch, context, drafted as u64);
    let decode = cost::limit(deployment, &decode, Utilization::FULL);
    let prefill = cost::limit(deployment, &Batch::prefill(1, prompt), Utilization::FULL);
    let accepted: f64 = drafts.map_or(0.0, |(_, reached)| reached.iter().sum());
    let steps = s.total_output_tokens > s.completed;
    let tpot_ms = steps.then(|| per_token(decode.limit_with_communication.ms(), accepted));
    let ttft_ms = prefill.limit_with_communication.ms();
    let tpot_share = share(tpot_ms, s.tpot.figure(|s| s.median));
    let ttft_share = share(Some(ttft_ms), s.ttft.figure(|s| s.median));
    Ok(Limit {
        hardware: deployment.accelerator.id.clone(),
        batch,
        context,
        prompt,
        tpot_ms,
        tpot_share,
        bound: decode.bound,
        terms: decode.terms,
        ttft_ms,
        ttft_share,
        prefill_bound: prefill.bound,
        advice: if steps { advice(&decode, tpot_share) } else { advice(&prefill, ttft_share) },
    })
}

fn forecast(source: String, expected: &RunSummary, bands: Option<Bands>, measured: &RunSummary) -> Forecast {
    let median = |s: &Statistics| s.figure(|s| s.median);
    Forecast {
        source,
        of_served: false,
        mean_ttft_ms: expected.ttft.mean,
        median_ttft_ms: expected.ttft.median,
        mean_tpot_ms: expected.tpot.figure(|s| s.mean),
        median_tpot_ms: expected.tpot.figure(|s| s.median),
        mean_e2el_ms: expected.e2el.mean,
        request_throughput: expected.request_throughput(),
        output_throughput: expected.output_throughput(),
        ttft_ratio: share(median(&measured.ttft), median(&expected.ttft)),
        tpot_ratio: share(median(&measured.tpot), median(&expected.tpot)),
        bands,
    }
}

/// Limit of a token's time, of a step in which `accepted` drafts are accepted on average: the step gives one token more.
fn per_token(step_ms: f64, accepted: f64) -> f64 {
    step_ms / (1.0 + accepted)
}

fn share(of: Option<f64>, whole: Option<f64>) -> Option<f64> {
    Some(of? / whole.filter(|whole| *whole > 0.0)?)
}

/// Fraction of the limit below which the engine rather than the hardware is the likely bottleneck.
const SLACK: f64 = 0.4;

/// Suggests a change, by the bottleneck of a decode step; `reached` is the fraction of the limit that was measured.
pub(crate) fn advice(decode: &Cost, reached: Option<f64>) -> String {
    let bottleneck = match decode.bound {
        Bottleneck::Memory if decode.terms.kv > decode.terms.weights => {
            "bottleneck: KV cache reads; try a narrower --kv, shorter contexts or more bandwidth"
        }
        Bottleneck::Memory => {
            "bottleneck: weight reads; try narrower weights or more bandwidth; more users cost little"
        }
        Bottleneck::Compute => {
            "bottleneck: compute; try a faster dtype or more accelerators; fewer users are served faster"
        }
        Bottleneck::Communication => "bottleneck: links; try a smaller tp or faster links",
    };
    match reached {
        Some(share) if share > 1.0 => {
            "faster than the limit: the server's model, weights, KV format or hardware differ from the given ones"
                .into()
        }
        Some(share) if share < SLACK => format!(
            "below {:.0} % of the limit: look first at the engine's overhead (CUDA graphs, host, prefills between \
             decodes); then at the {bottleneck}",
            SLACK * 100.0
        ),
        _ => bottleneck.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two outputs of 64 tokens where 200 were requested, for prompts of 300 tokens with a shared prefix of 100.
    #[test]
    fn lengths_are_those_that_were_served() {
        let workload_text = "requests = 2\ninput_len = 200\noutput_len = 200\n[arrivals]\nkind = \"closed_loop\"\n\
            concurrency = 1\n[prefix]\nlength = 100\n";
        let workload: Workload = toml::from_str(workload_text).unwrap();
        let summary = RunSummary {
            completed: 2,
            total_input_tokens: 600,
            total_output_tokens: 128,
            ..RunSummary::default()
        };
        let served = served(&workload, &summary);
        assert_eq!((served.input_len, served.output_len), (Length::Tokens(200), Length::Tokens(64)));
    }
}
