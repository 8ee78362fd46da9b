//! Data for the page about a machine's limits: the answer, the memory capacity with the engine's verdict at start-up,
//! and the datasheet of the accelerator.

use super::{Answer, SCHEMA};
use crate::show::Document;
use crate::verbs::capacity::{self, view::Verdict};
use roofcast::Deployment;
use roofcast::accelerator::Accelerator;
use roofcast::capacity::Capacity;
use roofcast::limits::{Limits, LimitsQuestion};
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
}

impl<'a> View<'a> {
    pub(crate) fn of(
        deployment: &'a Deployment,
        question: &LimitsQuestion,
        limits: &'a Limits,
        capacity: &'a Capacity,
    ) -> View<'a> {
        View {
            report: Document { schema: SCHEMA, body: Answer::of(deployment, question, limits) },
            capacity: Document {
                schema: capacity::SCHEMA,
                body: capacity::Answer::of(deployment, &asked(question), capacity),
            },
            accelerator: &deployment.accelerator,
            verdict: Verdict::of(deployment, question.context),
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
