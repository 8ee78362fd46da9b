//! Measured points from files: rows of a CSV, and whole runs whose deployment the flags describe.
//!
//! Knows: the kind of each file, by its contents and its suffix. The library parses the files.

use super::{folder, local, text};
use crate::args::RunsArgs;
use anyhow::Result;
use roofcast::measurement::benchmark::{ClientLoad, Subject, of_records};
use roofcast::measurement::{self, Lengths, Measurement, results};
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

impl Points {
    /// Sentences on how the files were read, each with its file.
    pub(crate) fn notes(&self) -> Vec<String> {
        let notes_of = |row: &Measurement| {
            let id = row.id.clone();
            row.notes.clone().into_iter().map(move |note| format!("{id}: {note}"))
        };
        self.rows.iter().flat_map(notes_of).collect()
    }
}

/// Reads the points of all files; refused rows are collected, not fatal.
pub(crate) fn read(
    files: &[PathBuf],
    runs: &RunsArgs,
    catalog: &mut Cow<'static, Catalog>,
) -> Result<Points> {
    let mut points = Points::default();
    for path in files {
        for row in each_of_file(path, &named_text(path)?, runs, catalog)? {
            match row {
                Ok(row) => points.rows.push(row),
                Err(error) => points.refused.push(error),
            }
        }
    }
    Ok(points)
}

/// Contents of a file, or of rows that the program carries by this name, if no file has it.
fn named_text(path: &Path) -> Result<String> {
    let carried = path.to_str().filter(|_| !path.exists()).and_then(measurement::carried);
    carried.map_or_else(|| text(path), Ok)
}

/// Refuses flags that describe a run's deployment if no file is a run.
pub(crate) fn idle(files: &[PathBuf], runs: &RunsArgs) -> Result<(), Error> {
    let given = [
        ("--model", runs.model.is_some()),
        ("--hardware", runs.hardware.is_some()),
        ("--count", runs.count.is_some()),
        ("--tp", runs.tp.is_some()),
        ("--engine", runs.engine.is_some()),
        ("--weights", runs.weights.is_some()),
        ("--engine-version", runs.engine_version.is_some()),
        ("--concurrency", runs.concurrency.is_some()),
        ("--rate", runs.rate.is_some()),
        ("--input-len", runs.input_len.is_some()),
        ("--output-len", runs.output_len.is_some()),
    ];
    // A missing file is reported when it is read.
    let run = |file: &PathBuf| {
        file.extension().is_some_and(|e| e == "json" || e == "jsonl" || e == "txt")
            || text(file).is_ok_and(|text| results::recognizes(&text))
    };
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) if !files.iter().any(run) => {
            let accepted = "it with a client's result or records of requests, which do not say what ran; rows of a CSV do";
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
    let extension = path.extension().and_then(|e| e.to_str());
    let mut rows: Vec<Result<Measurement>> = if extension == Some("json") || results::recognizes(text) {
        let runs = results::read(&place, text, &subject(runs, catalog)?, catalog)?;
        runs.into_iter().map(|run| Ok(run.row?)).collect()
    } else if extension == Some("jsonl") {
        let subject = subject(runs, catalog)?;
        let load = load(&place, runs)?;
        vec![Ok(of_records(&place, text, &subject, load)?)]
    } else {
        table(path, text, catalog)?
    };
    for row in rows.iter_mut().flatten() {
        row.load(|trace| self::text(Path::new(trace)))?;
    }
    Ok(rows)
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
fn subject(runs: &RunsArgs, catalog: &mut Cow<'static, Catalog>) -> Result<Subject> {
    let mut named = |name: &Option<String>| match name {
        Some(name) => local(name, Path::new(""), catalog),
        None => Ok(String::new()),
    };
    let model = named(&runs.model)?;
    let hardware = named(&runs.hardware)?;
    if !model.is_empty() {
        catalog.model(&model)?;
    }
    if !hardware.is_empty() {
        catalog.accelerator(&hardware)?;
    }
    let fixed = |tokens: Option<u64>| tokens.map(|tokens| Lengths { min: tokens, max: tokens });
    Ok(Subject {
        model,
        hardware,
        parallelism: RequestedParallelism {
            count: runs.count,
            tp: runs.tp,
            ..RequestedParallelism::default()
        },
        engine: runs.engine.clone().unwrap_or_default(),
        version: runs.engine_version.clone().unwrap_or_default(),
        weights: runs.weights.clone().unwrap_or_default(),
        kv: runs.kv.clone(),
        drafts: false,
        input_len: fixed(runs.input_len),
        output_len: fixed(runs.output_len),
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
