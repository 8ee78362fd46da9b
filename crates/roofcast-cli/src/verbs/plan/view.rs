//! What the page shows of a plan: the answer, the bounds that it kept, and the power that its choices draw.

use super::{Answer, SCHEMA};
use crate::input::scenario::Scenario;
use crate::show::Document;
use roofcast::Model;
use roofcast::plan::Plan;
use serde::Serialize;
use std::collections::BTreeMap;

/// The view's data.
#[derive(Serialize)]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    ttft_p99_ms: Option<f64>,
    tpot_p99_ms: Option<f64>,
    e2el_p99_ms: Option<f64>,
    /// Tokens of a prompt and of an answer in the mean.
    input_mean: Option<f64>,
    output_mean: Option<f64>,
    /// Board power of each accelerator that was chosen, in watts.
    power_w: BTreeMap<String, f64>,
}

impl<'a> View<'a> {
    pub(crate) fn of(scenario: &Scenario, model: &'a Model, plan: &'a Plan) -> View<'a> {
        let slo = &scenario.spec.slo;
        let workload = scenario.spec.workload.as_ref();
        let power = |id: &String| scenario.catalog.accelerator(id).ok()?.power_w;
        let powers = plan.ranked.iter().filter_map(|c| Some((c.accelerator.clone(), power(&c.accelerator)?)));
        View {
            report: Document { schema: SCHEMA, body: Answer::of(scenario, model, plan, None) },
            ttft_p99_ms: slo.ttft_p99_ms,
            tpot_p99_ms: slo.tpot_p99_ms,
            e2el_p99_ms: slo.e2el_p99_ms,
            input_mean: workload.map(|w| w.input_mean()),
            output_mean: workload.map(|w| w.output_mean()),
            power_w: powers.collect(),
        }
    }
}
