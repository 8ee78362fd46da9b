//! Tests of the library through its public interface, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // helpers of tests are tests too

#[path = "suite/adapters.rs"]
mod adapters;
#[path = "suite/admission.rs"]
mod admission;
#[path = "suite/agents.rs"]
mod agents;
#[path = "suite/attention.rs"]
mod attention;
#[path = "suite/bent.rs"]
mod bent;
#[path = "suite/caches.rs"]
mod caches;
#[path = "suite/comments.rs"]
mod comments;
#[path = "suite/conformance.rs"]
mod conformance;
#[path = "suite/context_parallel.rs"]
mod context_parallel;
#[path = "suite/corpus.rs"]
mod corpus;
#[path = "suite/counted.rs"]
mod counted;
#[path = "suite/curves.rs"]
mod curves;
#[path = "suite/driven.rs"]
mod driven;
#[path = "suite/engine.rs"]
mod engine;
#[path = "suite/failures.rs"]
mod failures;
#[path = "suite/families.rs"]
mod families;
#[path = "suite/fleets.rs"]
mod fleets;
#[path = "suite/formulas.rs"]
mod formulas;
#[path = "suite/hostile.rs"]
mod hostile;
#[path = "suite/house.rs"]
mod house;
#[path = "suite/hybrids.rs"]
mod hybrids;
#[path = "suite/ids.rs"]
mod ids;
#[path = "suite/images.rs"]
mod images;
#[path = "suite/invariants.rs"]
mod invariants;
#[path = "suite/judge.rs"]
mod judge;
#[path = "suite/launch.rs"]
mod launch;
#[path = "suite/leaps.rs"]
mod leaps;
#[path = "suite/machines.rs"]
mod machines;
#[path = "suite/measured.rs"]
mod measured;
#[path = "suite/models.rs"]
mod models;
#[path = "suite/narrow.rs"]
mod narrow;
#[path = "suite/over_time.rs"]
mod over_time;
#[path = "suite/pairs.rs"]
mod pairs;
#[path = "suite/physics.rs"]
mod physics;
#[path = "suite/plan.rs"]
mod plan;
#[path = "suite/polling.rs"]
mod polling;
#[path = "suite/registered.rs"]
mod registered;
#[path = "suite/routing.rs"]
mod routing;
#[path = "suite/runs.rs"]
mod runs;
#[path = "suite/sampling.rs"]
mod sampling;
#[path = "suite/scaling.rs"]
mod scaling;
#[path = "suite/sections.rs"]
mod sections;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/sglang.rs"]
mod sglang;
#[path = "suite/slots.rs"]
mod slots;
#[path = "suite/speculation.rs"]
mod speculation;
#[path = "suite/startup.rs"]
mod startup;
#[path = "suite/summary.rs"]
mod summary;
#[path = "suite/support.rs"]
mod support;
#[path = "suite/tiers.rs"]
mod tiers;
#[path = "suite/traces.rs"]
mod traces;
#[path = "suite/wide_experts.rs"]
mod wide_experts;
#[path = "suite/workload.rs"]
mod workload;
