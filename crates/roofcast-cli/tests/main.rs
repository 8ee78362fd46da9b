//! The binary as a user meets it: tests that run real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests too

#[path = "suite/asked.rs"]
mod asked;
#[path = "suite/bench.rs"]
mod bench;
#[path = "suite/capacity.rs"]
mod capacity;
#[path = "suite/carbon.rs"]
mod carbon;
#[path = "suite/catalog.rs"]
mod catalog;
#[path = "suite/checkpoints.rs"]
mod checkpoints;
#[path = "suite/classes.rs"]
mod classes;
#[path = "suite/emulate.rs"]
mod emulate;
#[path = "suite/errors.rs"]
mod errors;
#[path = "suite/examples.rs"]
mod examples;
#[path = "suite/flags.rs"]
mod flags;
#[path = "suite/hardware.rs"]
mod hardware;
#[path = "suite/install.rs"]
mod install;
#[path = "suite/interrupted.rs"]
mod interrupted;
#[path = "suite/meant.rs"]
mod meant;
#[path = "suite/measurements.rs"]
mod measurements;
#[path = "suite/output.rs"]
mod output;
#[path = "suite/pictures.rs"]
mod pictures;
#[path = "suite/plan.rs"]
mod plan;
#[path = "suite/readme.rs"]
mod readme;
#[path = "suite/refusals.rs"]
mod refusals;
#[path = "suite/schedule.rs"]
mod schedule;
#[path = "suite/schemas.rs"]
mod schemas;
#[path = "suite/scripted.rs"]
mod scripted;
#[path = "suite/serve.rs"]
mod serve;
#[cfg(feature = "parquet")]
#[path = "suite/shards.rs"]
mod shards;
#[path = "suite/simulate.rs"]
mod simulate;
#[path = "suite/support.rs"]
mod support;
#[cfg(feature = "parquet")]
#[path = "suite/tables.rs"]
mod tables;
#[path = "suite/targets.rs"]
mod targets;
#[path = "suite/width.rs"]
mod width;
