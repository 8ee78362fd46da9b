//! Measured steps to compare with a sweep: the rows of a CSV that were measured on the sweep's deployment, at its
//! values.

use super::point::Asked;
use crate::input::text;
use anyhow::Result;
use roofcast::measurement::{self, Measurement, MeasurementKind};
use std::path::Path;

/// Measured times of decode steps on the deployment of `asked`, by the value of the swept key.
pub(super) fn steps(path: &Path, asked: &Asked) -> Result<Vec<(u64, f64)>> {
    let deployment = &asked.machine.forecaster.deployment;
    let fixed = asked.machine.question;
    let key = asked.keys.first().map(|(key, _)| *key);
    let engine = &deployment.engine;
    let same = |row: &Measurement| {
        row.kind == MeasurementKind::DecodeStep
            && row.model == deployment.model.name
            && row.hardware == deployment.accelerator.id
            && row.engine == engine.name()
            && row.weights == deployment.weights
    };
    let rows = measurement::read(&path.display().to_string(), &text(path)?)?;
    let at = |row: &Measurement| {
        let batch = row.concurrency.unwrap_or(1);
        let context = row.context?;
        let value = match key? {
            "batch" if context == fixed.context => batch,
            "context" if batch == fixed.batch => context,
            "position" if batch == fixed.batch => context.checked_sub(fixed.prefill)?,
            _ => return None,
        };
        Some((value, row.measured.tpot_ms?))
    };
    Ok(rows.iter().filter(|row| same(row)).filter_map(at).collect())
}
