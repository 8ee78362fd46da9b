#![doc = include_str!("../README.md")]

pub mod report;

/// Measured kernel times, and how their files are built.
pub mod profile {
    pub use roofcast_cost::profile::*;
    pub use roofcast_dev::profile::build;
}

pub use roofcast_ask::{
    Deployment, Spec, arrival, carbon, command, deployment, engine_settings, explain, parallelism, resolved,
    sampling, spec, summary, workload,
};
pub use roofcast_cost::{
    Forecaster, bands, calibration, capacity, coefficients, cost, kernel_time, limits, memory, startup,
};
pub use roofcast_dev::{calibrate, conformance, seeds, testing};
#[cfg(feature = "schema")]
pub use roofcast_facts::schema;
pub use roofcast_facts::{
    Catalog, Error, Model, Result, accelerator, batch, catalog, checkpoint, clock, encoder, error, model,
    precision, preset, record, units, version,
};
pub use roofcast_plan::{measurement, plan, validate};
pub use roofcast_sim::{engine, fleet, kv_cache, router, scheduler, simulate, timeline};
