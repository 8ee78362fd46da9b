//! Measured points from files: rows of a CSV, and whole runs whose deployment the flags describe.
//!
//! Knows: the kind of each file, by its suffix. The library parses the files.

use super::{folder, local, text};
use crate::args::RunsArgs;
use anyhow::Result;
use roofcast::measurement::benchmark::{ClientLoad, Subject, of_records, of_result};
use roofcast::measurement::{self, Measurement};
use roofcast::parallelism::RequestedParallelism;
use roofcast::{Catalog, Error};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The measured points of all files.
#[derive(Default)]
pub(crate) struct Points {
    pub(crate) rows: Vec<Measurement>,
    /// Errors of refused rows, each with its file and line.
    pub(crate) refused: Vec<anyhow::Error>,
}

/// Reads the points of all files; refused rows are collected, not fatal.
pub(crate) fn read(
    files: &[PathBuf],
    runs: &RunsArgs,
    catalog: &mut Cow<'static, Catalog>,
) -> Result<Points> {
    let mut points = Points::default();
    for path in files {
        for row in each_of_file(path, &text(path)?, runs, catalog)? {
            match row {
                Ok(row) => points.rows.push(row),
                Err(error) => points.refused.push(error),
            }
        }
    }
    Ok(points)
}

/// Refuses flags that describe a run's deployment if no file is a run.
pub(crate) fn idle(files: &[PathBuf], runs: &RunsArgs) -> Result<(), Error> {
    let given = [
        ("--model", runs.model.is_some()),
        ("--hardware", runs.hardware.is_some()),
        ("--count", runs.count.is_some()),
        ("--weights", runs.weights.is_some()),
        ("--engine-version", runs.engine_version.is_some()),
        ("--concurrency", runs.concurrency.is_some()),
        ("--rate", runs.rate.is_some()),
    ];
    let run = |file: &PathBuf| file.extension().is_some_and(|e| e == "json" || e == "jsonl");
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) if !files.iter().any(run) => {
            let accepted = "it with a .json or .jsonl, which do not say what ran; rows of a CSV do";
            Err(Error::field("arguments", flag, "without effect on these files", accepted))
        }
        _ => Ok(()),
    }
}

/// Reads the points of the file at `path` with contents `text`; rows of a table may be refused one by one.
fn each_of_file(
    path: &Path,
    text: &str,
    runs: &RunsArgs,
    catalog: &mut Cow<'static, Catalog>,
) -> Result<Vec<Result<Measurement>>> {
    let place = path.display().to_string();
    Ok(match path.extension().and_then(|e| e.to_str()) {
        Some("json") => vec![Ok(of_result(&place, text, &subject(&place, runs, catalog)?)?)],
        Some("jsonl") => {
            let (subject, load) = (subject(&place, runs, catalog)?, load(&place, runs)?);
            vec![Ok(of_records(&place, text, &subject, load)?)]
        }
        _ => table(path, text, catalog)?,
    })
}

/// The rows of a CSV. Accelerators and models given as paths, relative to the file's folder, are added to the
/// catalog.
fn table(path: &Path, text: &str, catalog: &mut Cow<'static, Catalog>) -> Result<Vec<Result<Measurement>>> {
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    let mut named = |mut row: Measurement| {
        for name in [&mut row.hardware, &mut row.model] {
            let id = match ids.get(name) {
                Some(id) => id.clone(),
                None => local(name, folder(Some(path)), catalog)?,
            };
            ids.insert(std::mem::replace(name, id.clone()), id);
        }
        Ok(row)
    };
    let rows = measurement::read_each(&path.display().to_string(), text)?;
    Ok(rows.into_iter().map(|row| named(row?)).collect())
}

/// Deployment of runs as the flags describe it: names of the catalog, or paths.
fn subject(place: &str, runs: &RunsArgs, catalog: &mut Cow<'static, Catalog>) -> Result<Subject> {
    let needed = |flag: &str, value: &Option<String>, accepted: &str| {
        value.clone().ok_or_else(|| Error::field(place, flag, "missing", accepted))
    };
    let model =
        needed("--model", &runs.model, "a catalog id or a config.json: the run does not say what ran")?;
    let hardware = needed("--hardware", &runs.hardware, "an accelerator, as h100-sxm: the run does not say")?;
    let model = local(&model, Path::new(""), catalog)?;
    let hardware = local(&hardware, Path::new(""), catalog)?;
    catalog.model(&model)?;
    catalog.accelerator(&hardware)?;
    Ok(Subject {
        model,
        hardware,
        parallelism: RequestedParallelism {
            count: runs.count,
            tp: Some(runs.tp),
            ..RequestedParallelism::default()
        },
        engine: runs.engine.clone(),
        version: runs.engine_version.clone().unwrap_or_default(),
        weights: runs.weights.clone().unwrap_or_default(),
        kv: runs.kv.clone(),
    })
}

fn load(place: &str, runs: &RunsArgs) -> Result<ClientLoad> {
    match (runs.concurrency, runs.rate) {
        (Some(users), None) => Ok(ClientLoad::Users(users)),
        (cap, Some(rate)) => Ok(ClientLoad::Rate(rate, cap)),
        (None, None) => {
            let accepted = "it or --rate: records do not say how they were sent";
            Err(Error::field(place, "--concurrency", "missing", accepted).into())
        }
    }
}
