//! Rules of autoscalers: how many replicas are wanted, decided at the rule's own times.
//!
//! Knows: which rules there are, and when each decides. Knows nothing about which replicas start and stop.

use super::dynamo::Dynamo;
use super::hpa::{Hpa, Keda};
use super::observed::Observed;
use super::ray_serve::RayServe;
use roofcast_ask::spec::{AutoscaleRule, AutoscaleSpec};
use roofcast_facts::clock::Ticks;

/// The rule of an autoscaler, with its state.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    Hpa(Hpa),
    Keda(Keda),
    RayServe(Box<RayServe>),
    Dynamo(Box<Dynamo>),
}

impl Rule {
    /// The rule of a spec; `None` if an arrival starts the replicas that it needs.
    pub(super) fn of(spec: &AutoscaleSpec) -> Option<Rule> {
        Some(match spec.rule {
            AutoscaleRule::Immediate => return None,
            AutoscaleRule::Hpa => Rule::Hpa(Hpa::new(spec)),
            AutoscaleRule::Keda => Rule::Keda(Keda::new(spec)),
            AutoscaleRule::RayServe => Rule::RayServe(Box::new(RayServe::new(spec))),
            AutoscaleRule::Dynamo => Rule::Dynamo(Box::new(Dynamo::new(spec))),
        })
    }

    /// Requests that must be exceeded to start the first replica; `None` if any request starts one.
    pub(super) fn activation(&self) -> Option<f64> {
        if let Rule::Keda(rule) = self { Some(rule.activation()) } else { None }
    }

    /// Begins at `at` with `wanted` replicas.
    pub(super) fn begin(&mut self, at: Ticks, wanted: u64) {
        match self {
            Rule::Hpa(rule) => rule.begin(at, wanted),
            Rule::Keda(rule) => rule.begin(at, wanted),
            Rule::RayServe(rule) => rule.begin(at),
            Rule::Dynamo(rule) => rule.begin(at),
        }
    }

    /// Time of the next decision.
    pub(super) fn due(&self) -> Ticks {
        match self {
            Rule::Hpa(rule) => rule.due(),
            Rule::Keda(rule) => rule.due(),
            Rule::RayServe(rule) => rule.due(),
            Rule::Dynamo(rule) => rule.due(),
        }
    }

    /// Decides at [`Rule::due`] how many replicas are wanted.
    pub(super) fn decide(&mut self, seen: &Observed) -> u64 {
        match self {
            Rule::Hpa(rule) => rule.decide(seen),
            Rule::Keda(rule) => rule.decide(seen),
            Rule::RayServe(rule) => rule.decide(seen),
            Rule::Dynamo(rule) => rule.decide(seen),
        }
    }
}
