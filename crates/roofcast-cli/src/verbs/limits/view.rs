//! Data for the page about a machine's limits: the answer, the memory capacity with the engine's verdict at start-up,
//! the datasheet of the accelerator, and the chart of cost against latency.

use super::{Answer, SCHEMA};
use crate::show::Document;
use crate::show::picture::{Picture, pictures};
use crate::verbs::capacity::{self, view::Verdict};
use roofcast::accelerator::Accelerator;
use roofcast::capacity::Capacity;
use roofcast::limits::{Limits, LimitsQuestion, cost_curves};
use roofcast::report::economy;
use roofcast::{Deployment, Forecaster};
use serde::Serialize;

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LimitsAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    capacity: Document<capacity::Answer<'a>>,
    accelerator: &'a Accelerator,
    #[serde(flatten)]
    verdict: Verdict,
    /// The chart of cost against latency over the batch; empty if not one sequence fits.
    economy: Vec<Picture>,
}

impl<'a> View<'a> {
    pub(crate) fn of(
        forecaster: &'a Forecaster,
        question: &LimitsQuestion,
        limits: &'a Limits,
        capacity: &'a Capacity,
    ) -> View<'a> {
        let deployment = &forecaster.deployment;
        let curves = cost_curves(forecaster, question);
        let drawn = || pictures(|width| economy::drawn(deployment, &curves, width));
        View {
            report: Document { schema: SCHEMA, body: Answer::of(deployment, question, limits) },
            capacity: Document {
                schema: capacity::SCHEMA,
                body: capacity::Answer::of(deployment, &asked(question), capacity),
            },
            accelerator: &deployment.accelerator,
            verdict: Verdict::of(deployment, question.context),
            economy: if curves.is_empty() { Vec::new() } else { drawn() },
        }
    }
}

/// The memory capacity of the deployment for `question`.
pub(crate) fn capacity_of(deployment: &Deployment, question: &LimitsQuestion) -> Capacity {
    roofcast::capacity::capacity(deployment, &asked(question))
}

fn asked(question: &LimitsQuestion) -> roofcast::capacity::CapacityQuestion {
    let LimitsQuestion { batch, context, .. } = *question;
    roofcast::capacity::CapacityQuestion { context, batch, oversubscription_percent: 100, users: None }
}
