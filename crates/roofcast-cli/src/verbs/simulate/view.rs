//! Data for the page about a run: the answer, latencies as cumulative distributions, levels over time, and the first
//! steps one by one.

use super::{Answer, SCHEMA, about};
use crate::show::Document;
use crate::show::distribution::Distribution;
use crate::verbs::question::asked;
use roofcast::clock::Ticks;
use roofcast::simulate::Simulation;
use roofcast::spec::Slo;
use roofcast::timeline::series::SeriesPoint;
use roofcast::timeline::trace::{EventTrace, TraceEvent};
use roofcast::{Deployment, Spec};
use serde::Serialize;
use std::collections::BTreeMap;

/// Number of step and request events that the page shows individually.
pub(crate) const EVENTS: u64 = 12_000;

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RunAnswer"))]
pub(crate) struct View<'a> {
    report: Document<Answer<'a>>,
    /// The load and the SLO, in words.
    question: String,
    slo: Slo,
    distributions: Vec<Distribution>,
    /// Levels over time of each replica.
    series: &'a [Vec<SeriesPoint>],
    /// First events of each replica.
    timelines: Vec<Timeline>,
}

/// The first events of one replica.
#[derive(Serialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Timeline {
    steps: Vec<Step>,
    requests: Vec<Life>,
    /// Time at which the recorded events end, if the run is longer.
    cut_at_ms: Option<f64>,
}

/// A step, or several equal steps that were simulated at once.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Step {
    start_ms: f64,
    end_ms: f64,
    steps: u64,
    running: u64,
    decodes: u64,
    waiting: u64,
    chunks: u64,
    prefill_tokens: u64,
    output_tokens: u64,
    kv_blocks: u64,
    bound: &'static str,
}

/// A request with its phases.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Life {
    number: u64,
    input: u32,
    output: u32,
    phases: Vec<Stay>,
}

/// A phase of a request, with its start and end.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Stay {
    phase: &'static str,
    start_ms: f64,
    end_ms: f64,
}

impl<'a> View<'a> {
    /// The view of a run that recorded its series and [`EVENTS`] events.
    pub(crate) fn of(deployment: &'a Deployment, simulation: &'a Simulation, spec: &Spec) -> View<'a> {
        View {
            report: Document { schema: SCHEMA, body: Answer::of(about(deployment, simulation), simulation) },
            question: asked(spec.workload.as_ref(), &spec.slo),
            slo: spec.slo,
            distributions: simulation
                .latencies
                .iter()
                .map(|(metric, sample)| Distribution::of(metric, sample))
                .collect(),
            series: &simulation.series,
            timelines: simulation.traces.iter().cloned().map(Timeline::of).collect(),
        }
    }
}

impl Timeline {
    fn of(trace: EventTrace) -> Timeline {
        let (events, cut) = trace.close();
        let mut timeline = Timeline { cut_at_ms: cut.map(Ticks::ms), ..Timeline::default() };
        let mut places = BTreeMap::new();
        let mut open: BTreeMap<u64, f64> = BTreeMap::new();
        for (at, event) in events {
            match event {
                TraceEvent::Steps(s) => timeline.steps.push(Step {
                    start_ms: s.start.ms(),
                    end_ms: s.end.ms(),
                    steps: s.steps,
                    running: s.running,
                    decodes: s.decodes,
                    waiting: s.waiting,
                    chunks: s.chunks,
                    prefill_tokens: s.prefill_tokens,
                    output_tokens: s.output_tokens,
                    kv_blocks: s.blocks[1],
                    bound: s.bound,
                }),
                TraceEvent::Arrived { number, input, output } => {
                    places.insert(number, timeline.requests.len());
                    timeline.requests.push(Life { number, input, output, phases: Vec::new() });
                }
                TraceEvent::Begins(number, _) => drop(open.insert(number, at.ms())),
                TraceEvent::Ends(number, phase) => {
                    let life = places.get(&number).and_then(|place| timeline.requests.get_mut(*place));
                    if let Some((life, start_ms)) = life.zip(open.remove(&number)) {
                        life.phases.push(Stay { phase: phase.name(), start_ms, end_ms: at.ms() });
                    }
                }
                TraceEvent::Idle | TraceEvent::Left(_) => {}
            }
        }
        timeline
    }
}
