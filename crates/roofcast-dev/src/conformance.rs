//! Replays recorded scheduling decisions and compares them field by field.
//!
//! Knows: which engine a trace was recorded from. Format, loop and fields of each engine are in a separate module;
//! [`roofcast_sim::scheduler::vllm`] and [`roofcast_sim::scheduler::sglang`] make the decisions.

mod request;
pub(crate) mod sglang;
pub(crate) mod vllm;

use roofcast_facts::error::{Error, Result, told};
use serde::Serialize;
use serde_json::Value;

/// A parsed trace.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedTrace {
    /// Trace of vLLM's scheduler.
    Vllm(Box<vllm::Trace>),
    /// Trace of SGLang's scheduler.
    Sglang(Box<sglang::Trace>),
}

/// The first step in which a replay and its trace differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepDifference {
    /// Index of the step.
    pub step: u64,
    /// Fields that differ.
    pub fields: Vec<&'static str>,
    /// The recorded step; `None` if the trace has no such step.
    pub recorded: Option<Value>,
    /// The replayed step; `None` if the replay has no such step.
    pub replayed: Option<Value>,
}

/// One recorded step of any engine.
trait Recorded: PartialEq + Serialize {
    /// Index of the step.
    fn step(&self) -> u64;
    /// The fields in which `other` differs.
    fn differing(&self, other: &Self) -> Vec<&'static str>;
}

impl RecordedTrace {
    /// Name of the recorded scenario.
    pub fn name(&self) -> &str {
        match self {
            RecordedTrace::Vllm(trace) => &trace.name,
            RecordedTrace::Sglang(trace) => &trace.name,
        }
    }

    /// The engine that made the decisions, and its version.
    pub fn engine(&self) -> (&'static str, &str) {
        match self {
            RecordedTrace::Vllm(trace) => ("vLLM", &trace.version),
            RecordedTrace::Sglang(trace) => ("SGLang", &trace.version),
        }
    }

    /// Number of recorded steps.
    pub fn steps(&self) -> usize {
        match self {
            RecordedTrace::Vllm(trace) => trace.steps.len(),
            RecordedTrace::Sglang(trace) => trace.steps.len(),
        }
    }
}

/// Parses a trace; `place` names the file in errors.
pub fn parse(place: &str, text: &str) -> Result<RecordedTrace> {
    #[derive(serde::Deserialize)]
    struct File {
        meta: Meta,
    }
    #[derive(serde::Deserialize)]
    struct Meta {
        schema: String,
    }
    let File { meta } = json(place, text)?;
    match meta.schema.as_str() {
        "vllm-sched-trace/1" | "vllm-sched-trace/2" | "vllm-tier-trace/1" => {
            Ok(RecordedTrace::Vllm(Box::new(vllm::trace::parse(place, text)?)))
        }
        "sglang-sched-trace/1" | "sglang-tier-trace/1" => {
            Ok(RecordedTrace::Sglang(Box::new(sglang::trace::parse(place, text)?)))
        }
        other => {
            let accepted = "vllm-sched-trace/1, vllm-sched-trace/2, vllm-tier-trace/1, sglang-sched-trace/1, sglang-tier-trace/1";
            Err(Error::field(place, "meta.schema", format!("{other:?}"), accepted))
        }
    }
}

/// Replays `trace`; returns the first difference, or `None` if every field of every step agrees.
pub fn compare(trace: &RecordedTrace) -> Option<StepDifference> {
    match trace {
        RecordedTrace::Vllm(trace) => first_difference(&trace.steps, &vllm::replay(trace)),
        RecordedTrace::Sglang(trace) => first_difference(&trace.steps, &sglang::replay(trace)),
    }
}

/// Reads JSON text; an error names the key that is wrong.
fn json<'a, T: serde::Deserialize<'a>>(place: &str, text: &'a str) -> Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|e| Error::Parse {
        place: place.into(),
        message: told(&e.path().to_string(), &e.inner().to_string(), None),
    })
}

fn first_difference<S: Recorded>(recorded: &[S], replayed: &[S]) -> Option<StepDifference> {
    let longer = recorded.len().max(replayed.len());
    (0..longer).find_map(|i| {
        let recorded = recorded.get(i);
        let ours = replayed.get(i);
        if recorded == ours {
            return None;
        }
        let step = recorded.map_or(u64::MAX, S::step).min(ours.map_or(u64::MAX, S::step));
        let at_step =
            |s: Option<&'_ S>| s.filter(|s| s.step() == step).and_then(|s| serde_json::to_value(s).ok());
        let fields = match (recorded, ours) {
            (Some(a), Some(b)) if a.step() == b.step() => a.differing(b),
            _ => vec!["step"],
        };
        Some(StepDifference { step, fields, recorded: at_step(recorded), replayed: at_step(ours) })
    })
}
