//! A plan that starts from a running deployment: an engine's command and a client's result against it.
//!
//! Knows: without a spec, the load of the run is the plan's load, and settings given by the command may change in the
//! search. The library compares run and forecast.

use crate::args::PlanArgs;
use crate::input::scenario::{EMPTY, Scenario, Source};
use crate::input::{self, filled};
use anyhow::Result;
use roofcast::deployment::DeploymentOptions;
use roofcast::measurement::benchmark::Subject;
use roofcast::measurement::{Lengths, Measurement, MeasurementKind, results};
use roofcast::spec::settings::Setting;
use roofcast::{Catalog, Error};
use std::path::Path;
use toml::Value;

/// The question of the plan, and the run in the file at `path`.
pub(super) fn scenario(args: &PlanArgs, path: &Path) -> Result<(Scenario, Option<Measurement>)> {
    let source = Source::read(args.spec.as_deref(), EMPTY, &args.source, &[&args.flags.settings])?;
    let first = source.scenario(&[])?;
    let (spec, options) = (&first.spec, DeploymentOptions::of(&first.spec));
    let lacking = |field: &str, accepted: &str| Error::field("arguments", field, "missing", accepted);
    let hardware = spec.hardware.accelerator.clone();
    let subject = Subject {
        model: spec.model.name.clone().unwrap_or_default(),
        hardware: hardware.ok_or_else(|| {
            lacking("--set hardware.accelerator=…", "the accelerators that the run was measured on")
        })?,
        parallelism: options.parallelism,
        engine: spec.engine.name().to_owned(),
        version: spec.engine.version.clone().unwrap_or_default(),
        weights: spec.precision.weights.clone().unwrap_or_default(),
        kv: spec.precision.kv.clone().unwrap_or_default(),
        drafts: spec.engine.speculative.is_some(),
        input_len: None,
        output_len: None,
    };
    let row = measured(path, &subject, &first.catalog)?;
    let mut more = if spec.workload.is_none() { load(&row)? } else { Vec::new() };
    let search = spec.search.clone().unwrap_or_default();
    let listed = |own: Option<u64>, others: [u64; 2]| -> Value {
        let all = own.into_iter().chain(others.into_iter().filter(|n| Some(*n) != own));
        Value::from(all.filter_map(|n| i64::try_from(n).ok()).collect::<Vec<i64>>())
    };
    if search.max_num_batched_tokens.is_empty() {
        let batched_tokens = spec.engine.max_num_batched_tokens;
        more.push(Setting::new("search.max_num_batched_tokens", listed(batched_tokens, [2048, 8192])));
    }
    if let Some(own) = spec.engine.max_num_seqs.filter(|_| search.max_num_seqs.is_empty()) {
        more.push(Setting::new("search.max_num_seqs", listed(Some(own), [256, 1024])));
    }
    Ok((source.scenario(&more)?, Some(row)))
}

/// The only run in the file at `path`, with the traces of its load.
fn measured(path: &Path, subject: &Subject, catalog: &Catalog) -> Result<Measurement> {
    let place = path.display().to_string();
    let text = filled(path, "a benchmark client's result as JSON")?;
    let mut runs = results::read(&place, &text, subject, catalog)?;
    if runs.len() > 1 {
        return Err(Error::field(&place, "runs", runs.len(), "a file with one run").into());
    }
    let mut row = runs.remove(0).row?;
    row.load(|trace| input::text(Path::new(trace)))?;
    Ok(row)
}

/// The load of a run as keys of a spec.
fn load(row: &Measurement) -> Result<Vec<Setting>, Error> {
    if let Some(workload) = &row.workload {
        let table = Value::try_from(workload).map_err(|e| Error::field(&row.id, "workload", "carried", e))?;
        return Ok(vec![Setting::new("workload", table)]);
    }
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let arrivals = match (row.kind, row.request_rate, row.concurrency) {
        (MeasurementKind::OpenLoop, Some(rate), _) => vec![
            Setting::new("workload.arrivals.kind", "poisson"),
            Setting::new("workload.arrivals.rate", rate),
        ],
        (MeasurementKind::ClosedLoop, _, Some(users)) => vec![
            Setting::new("workload.arrivals.kind", "closed_loop"),
            Setting::new("workload.arrivals.concurrency", whole(users)),
        ],
        _ => {
            let accepted = "a run at a rate or with max_concurrency; or a spec with [workload]";
            return Err(Error::field(&row.id, "request_rate", "all at once", accepted));
        }
    };
    let length = |lengths: Option<Lengths>| match lengths {
        Some(Lengths { min, max }) if min < max => {
            let keys =
                [("kind", Value::from("uniform")), ("min", whole(min).into()), ("max", whole(max).into())];
            Value::from(keys.map(|(key, value)| (key.to_owned(), value)).into_iter().collect::<toml::Table>())
        }
        lengths => Value::from(whole(lengths.map_or(1, |l| l.max))),
    };
    let lengths = [("workload.input_len", length(row.input)), ("workload.output_len", length(row.output))];
    let lengths = lengths.map(|(key, value)| Setting::new(key, value));
    Ok(arrivals.into_iter().chain(lengths).collect())
}
