//! Data for the page about a plan: the answer, the bounds of the SLO, and the tokens of a request.

use super::{Answer, SCHEMA};
use crate::input::scenario::Scenario;
use crate::show::Document;
use crate::verbs::question::asked;
use roofcast::Model;
use roofcast::plan::Plan;
use roofcast::spec::{Metric, Percentile};
use serde::Serialize;

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PlanAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    /// The load and the SLO, in words.
    question: String,
    ttft_p99_ms: Option<f64>,
    tpot_p99_ms: Option<f64>,
    e2el_p99_ms: Option<f64>,
    /// Mean tokens of a prompt; the next field has an output's.
    input_mean: Option<f64>,
    output_mean: Option<f64>,
}

impl<'a> View<'a> {
    pub(crate) fn of(scenario: &'a Scenario, model: &'a Model, plan: &'a Plan) -> View<'a> {
        let slo = &scenario.spec.slo;
        let workload = scenario.spec.workload.as_ref();
        View {
            report: Document { schema: SCHEMA, body: Answer::of(scenario, model, plan, None) },
            question: asked(workload, slo),
            ttft_p99_ms: slo.get(Metric::Ttft, Percentile::P99),
            tpot_p99_ms: slo.get(Metric::Tpot, Percentile::P99),
            e2el_p99_ms: slo.get(Metric::E2el, Percentile::P99),
            input_mean: workload.map(|w| w.input_mean()),
            output_mean: workload.map(|w| w.output_mean()),
        }
    }
}
