//! Data for the page about memory: the answer, the engine's verdict at start-up, the requests that fit by their length,
//! and the datasheet of the accelerator.

use super::{Answer, SCHEMA};
use crate::show::Document;
use crate::show::number::grouped;
use crate::show::picture::{Picture, pictures};
use crate::verbs::About;
use roofcast::Deployment;
use roofcast::accelerator::Accelerator;
use roofcast::capacity::{Capacity, CapacityQuestion};
use roofcast::memory::{Memory, Refusal, Start};
use roofcast::report::sweep::{Look, Panel, Quantity, SweepCurve, SweepPicture, Values, figure};
use roofcast::units::Bytes;
use serde::Serialize;

/// Length in tokens of the shortest requests that are counted; each next length is twice as long.
const SHORTEST: u64 = 512;
/// Longest requests in tokens that are counted for a model without a maximum.
const LONGEST: u64 = 131_072;

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CapacityAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    accelerator: &'a Accelerator,
    #[serde(flatten)]
    verdict: Verdict,
    lengths: Vec<Length>,
    pictures: Vec<Picture>,
}

/// The engine's verdict at start-up.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Verdict {
    /// The engine's start-up report.
    start: Start,
    /// The engine's refusal to start, as a sentence; `None` if it starts.
    refusal: Option<String>,
}

/// Requests of one length.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Length {
    tokens: u64,
    /// Number of such requests that fit at one time.
    max_batch: u64,
    kv_bytes_per_sequence: Bytes,
}

impl Verdict {
    /// The verdict of the engine of `deployment`; `context` is the longest request if neither spec nor model states one.
    pub(crate) fn of(deployment: &Deployment, context: u64) -> Verdict {
        let start = Memory::of(deployment).start(context);
        let refusal_text = |refusal: &Refusal| refusal.told(deployment.engine.name(), start.max_model_len);
        Verdict { refusal: start.refusal.as_ref().map(refusal_text), start }
    }
}

impl<'a> View<'a> {
    pub(crate) fn of(
        deployment: &'a Deployment,
        question: &CapacityQuestion,
        capacity: &'a Capacity,
    ) -> View<'a> {
        let lengths = lengths(deployment);
        let picture = drawn(deployment, capacity, &lengths);
        View {
            report: Document { schema: SCHEMA, body: Answer::of(deployment, question, capacity) },
            accelerator: &deployment.accelerator,
            verdict: Verdict::of(deployment, question.context),
            pictures: pictures(|width| figure(&picture, width)),
            lengths,
        }
    }
}

/// The requests that fit for each length up to the longest that is served.
fn lengths(deployment: &Deployment) -> Vec<Length> {
    let longest = deployment.longest().unwrap_or(LONGEST);
    let doubled = std::iter::successors(Some(SHORTEST), |tokens| tokens.checked_mul(2));
    let memory = Memory::of(deployment);
    let length = |tokens| Length {
        tokens,
        max_batch: memory.sequences(tokens).saturating_mul(deployment.parallelism.replicas),
        kv_bytes_per_sequence: deployment.model.kv_bytes_per_sequence(deployment.kv, tokens),
    };
    doubled.take_while(|tokens| *tokens < longest).chain([longest]).map(length).collect()
}

/// The chart of the requests that fit over their length.
fn drawn(deployment: &Deployment, capacity: &Capacity, lengths: &[Length]) -> SweepPicture {
    // A length of which none fits has no point, so that the scale can be logarithmic.
    let fitting = lengths.iter().map(|length| (length.max_batch > 0).then_some(length.max_batch as f64));
    let curves = vec![SweepCurve::new("requests that fit", 0, Look::Points, fitting)];
    let title = "requests that fit at one time".to_owned();
    SweepPicture {
        title: About::of(deployment).name(),
        note: format!("{} tokens of KV cache", grouped(capacity.kv_tokens)),
        key: "length of a request, prompt and answer, in tokens".to_owned(),
        values: Values::Numbers(lengths.iter().map(|length| length.tokens as f64).collect()),
        panels: vec![Panel { title, quantity: Quantity::Count, curves, most: None }],
    }
}
