//! The verbs, one per file: resolve the input, call the library, show the answer.

#[cfg(feature = "network")]
pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod capacity;
pub(crate) mod catalog;
pub(crate) mod completions;
pub(crate) mod conformance;
#[cfg(feature = "network")]
pub(crate) mod emulate;
pub(crate) mod hardware;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod man;
pub(crate) mod plan;
mod question;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub(crate) mod seeds;
pub(crate) mod simulate;
pub(crate) mod validate;

use crate::show::number::significant;
use crate::show::table::line;
use roofcast::bands::{Bands, Span};
use roofcast::coefficients::Load;
use roofcast::{Deployment, Forecaster};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Sections of a spec that describe the model, the hardware and the engine.
pub(crate) const MACHINE: [&str; 5] = ["model", "hardware", "precision", "parallelism", "engine"];

/// The deployment that an answer is about, as in the JSON document.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct About<'a> {
    /// Id of the served model.
    model: &'a str,
    /// Id of the accelerator.
    hardware: Cow<'a, str>,
    /// Total number of accelerators.
    count: u64,
    /// Degrees of parallelism, and replicas.
    parallelism: roofcast::parallelism::Parallelism,
    /// Format of the weights.
    weights: &'a str,
    /// Format of the KV cache.
    kv: &'a str,
    /// Dtype of everything that is not quantized.
    activations: roofcast::precision::Dtype,
    /// Settings of the engine by vLLM's names, with defaults filled in.
    engine: &'a roofcast::engine_settings::EngineSettings,
    /// Counting rules: `default`, or `seed-003` for nominal memory without any reserve.
    convention: &'static str,
    /// True for nominal memory without any reserve.
    ideal: bool,
    /// Assumptions for settings that the input does not contain, one sentence each.
    assumptions: &'a [String],
    /// Power limit of each accelerator in watts, if one is set.
    #[serde(skip)]
    power_limit_w: Option<f64>,
}

impl<'a> About<'a> {
    pub(crate) fn of(d: &'a Deployment) -> About<'a> {
        About {
            model: &d.model.name,
            hardware: Cow::from(&d.accelerator.id),
            count: d.parallelism.count(),
            parallelism: d.parallelism,
            weights: &d.weights,
            kv: d.kv.name,
            activations: d.base,
            engine: &d.engine,
            convention: if d.is_nominal() { "seed-003" } else { "default" },
            ideal: d.ideal,
            assumptions: &d.assumptions,
            power_limit_w: d.accelerator.power_limit_w,
        }
    }

    /// The deployment in words, as in `Llama-3.1-8B on 4 × h100-sxm (tp 4), bf16 weights, bf16 KV`.
    pub(crate) fn name(&self) -> String {
        let p = self.parallelism;
        let degrees = [
            ("tp", p.tp),
            ("pp", p.pp),
            ("ep", p.ep),
            ("attention dp", p.attention_dp),
            ("replicas", p.replicas),
        ];
        let shares: Vec<_> =
            degrees.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name} {n}")).collect();
        let shares = if shares.is_empty() { String::new() } else { format!(" ({})", shares.join(", ")) };
        let power = self.power_limit_w.map_or(String::new(), |w| format!(", {w} W each"));
        format!(
            "{} on {} × {}{shares}{power}, {} weights, {} KV",
            self.model, self.count, self.hardware, self.weights, self.kv
        )
    }

    /// The deployment in words, then the assumptions, a line each.
    pub(crate) fn title(&self) -> String {
        line(&self.name()) + &assumed(self.assumptions) + "\n"
    }
}

/// The kernels of a forecast that nobody timed, the first line of an answer; empty if all notable ones were timed.
pub(crate) fn warned(forecaster: &Forecaster) -> String {
    forecaster.not_measured().map_or(String::new(), |text| line(&text))
}

/// Title of several answers: the common one if all are equal, otherwise the assumptions of all.
pub(crate) fn common_title(abouts: &[About]) -> String {
    let first = abouts.first().map(About::title).unwrap_or_default();
    if abouts.iter().all(|about| about.title() == first) {
        return first;
    }
    let mut seen = BTreeSet::new();
    let all = abouts.iter().flat_map(|about| about.assumptions);
    let all: Vec<String> = all.filter(|assumption| seen.insert(*assumption)).cloned().collect();
    if all.is_empty() { String::new() } else { assumed(&all) + "\n" }
}

/// Title of a sweep's picture: the deployment in words if all answers share it; otherwise the model, if they share it,
/// and the swept keys.
pub(crate) fn sweep_title(abouts: &[About], keys: &[&str]) -> String {
    let Some(first) = abouts.first() else { return String::new() };
    let name = first.name();
    if abouts.iter().all(|about| about.name() == name) {
        return name;
    }
    let swept = keys.join(", ");
    match abouts.iter().all(|about| about.model == first.model) {
        true => format!("{} over {swept}", first.model),
        false => format!("Sweep of {swept}"),
    }
}

/// The assumptions of an answer, a line each.
pub(crate) fn assumed(assumptions: &[String]) -> String {
    assumptions.iter().map(|assumption| line(&format!("assumed: {assumption}"))).collect()
}

/// The bands of the latencies that a forecast has.
fn times(b: &Bands) -> impl Iterator<Item = (&'static str, Span)> {
    let all = [("TTFT", Some(b.ttft_ms)), ("TPOT", b.tpot_ms), ("E2EL", Some(b.e2el_ms))];
    all.into_iter().filter_map(|(name, span)| Some((name, span?)))
}

/// The bands of a forecast in one line.
pub(crate) fn bands(b: &Bands) -> String {
    let range =
        |name: &str, s: &Span| format!("{name} {} to {}", significant(s.range[0]), significant(s.range[1]));
    let rate = b.output_tok_s.map(|s| format!("; {} tok/s", range("output", &s))).unwrap_or_default();
    let times = times(b).map(|(name, s)| range(name, &s)).collect::<Vec<_>>().join(", ");
    let load = match b.load {
        Load::OpenLoop => "rates",
        Load::AtOnce => "requests that all arrive at one time",
        Load::Prompt | Load::Step => "prompts alone",
        Load::Disaggregated => "disaggregated pools",
        Load::ClosedLoop => "users",
    };
    format!("{times} ms{rate} (based on {}; errors under loads of {load})", b.rests_on)
}

/// The bands of a forecast in one line, as factors on the means.
pub(crate) fn band_factors(b: &Bands) -> String {
    let factors = |name: &str, s: &Span| format!("{name} x{:.2} to x{:.2}", s.factors[0], s.factors[1]);
    let rate = b.output_tok_s.map(|s| format!(", {}", factors("output tok/s", &s))).unwrap_or_default();
    let times = times(b).map(|(name, s)| factors(name, &s)).collect::<Vec<_>>().join(", ");
    format!("{times}{rate} (based on {})", b.rests_on)
}
