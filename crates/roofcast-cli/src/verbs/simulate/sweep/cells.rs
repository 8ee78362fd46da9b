//! Cells of a sweep that are stored in files: each process runs a part of the sweep, and a merge shows the whole.
//!
//! Knows: a cell's key, which covers everything that its answer depends on, so that another sweep finds the cells that
//! both have in common; and the cells that a process runs. Knows nothing about running a cell or showing it.

use super::super::{Answer, about};
use super::{Cell, Space};
use crate::args::{CellsArgs, SimulateArgs};
use crate::cells::{Cells, Key};
use crate::exit;
use crate::show::progress::Progress;
use crate::show::{self, number::grouped};
use anyhow::Result;
use rayon::prelude::*;
use roofcast::{Error, Forecaster, Spec};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use toml::Value;

/// Longest time for which finished cells stay in memory only.
const OFTEN: Duration = Duration::from_secs(1);

/// Summary of the part of a sweep that this process ran.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Shard"))]
pub(crate) struct Share {
    /// Number of cells in the whole sweep.
    cells: usize,
    /// Number of cells that this process is responsible for.
    asked: usize,
    /// Number of these cells that were already stored.
    kept: usize,
    /// Number of cells that this process computed.
    ran: usize,
    /// Indices of the cells that exceeded the time limit of a cell.
    late: Vec<usize>,
    /// True if Ctrl-C came before all cells had ended.
    interrupted: bool,
}

/// The key of a cell: the program's version and everything that the answer depends on.
pub(super) fn key(spec: &Spec, forecaster: &Forecaster, leap: bool) -> Result<String> {
    let mut key = Key::default();
    write!(key, "simulate {} {leap} {spec:?} {forecaster:?}", env!("CARGO_PKG_VERSION"))?;
    Ok(key.text())
}

/// Runs the part of a sweep's cells that `args` selects, and stores them in `folder`.
pub(super) fn run(space: &Space, asked: &SimulateArgs, folder: &Path) -> Result<ExitCode> {
    let args = &asked.cells;
    let output = &asked.output;
    for (flag, given) in [("--csv", output.csv), ("--svg", asked.svg.is_some())] {
        if given {
            let accepted = "it with `roofcast merge`, which prints the sweep";
            return Err(Error::field("arguments", flag, "together with --cells", accepted).into());
        }
    }
    let cells = Cells::open(folder)?;
    let numbers = share(space.points.len(), args)?;
    let progress = Progress::new("runs")?;
    progress.at(0, numbers.len() as u64);
    let buffer = Buffer { cells: &cells, waiting: Mutex::new((Instant::now(), Vec::new())) };
    let limit = args.cell_time_limit.map(Duration::from_secs_f64);
    let run_cell = |number: &usize| -> Result<Done> {
        if !progress.goes_on() {
            return Ok(Done::Interrupted);
        }
        let cell = space.cell(&space.points[*number])?;
        let key = key(&cell.scenario.spec, &cell.forecaster, space.leap)?;
        let done = match cells.answer(&key) {
            Some(_) => Done::Kept,
            None => match simulated(&cell, space, &progress, &buffer, limit)? {
                Some(answer) => buffer.add(key, answer).map(|()| Done::Ran)?,
                None if progress.goes_on() => Done::Late(*number),
                None => Done::Interrupted,
            },
        };
        progress.more(1);
        Ok(done)
    };
    let done: Vec<Result<Done>> = space.pool()?.install(|| numbers.par_iter().map(run_cell).collect());
    buffer.flush()?;
    drop(progress);
    let done = done.into_iter().collect::<Result<Vec<Done>>>()?;
    let count = |of: fn(&Done) -> bool| done.iter().filter(|d| of(d)).count();
    let share = Share {
        cells: space.points.len(),
        asked: numbers.len(),
        kept: count(|d| matches!(d, Done::Kept)),
        ran: count(|d| matches!(d, Done::Ran)),
        late: done
            .iter()
            .filter_map(|d| if let Done::Late(number) = d { Some(*number) } else { None })
            .collect(),
        interrupted: count(|d| matches!(d, Done::Interrupted)) > 0,
    };
    if output.json {
        show::json("roofcast/simulate-shard/1", &share)?
    } else {
        show::text(&people(&share))?
    }
    Ok(if share.interrupted || !share.late.is_empty() { exit::invalid() } else { ExitCode::SUCCESS })
}

/// Outcome of a cell.
enum Done {
    Kept,
    Ran,
    /// Cell of this index, which exceeded its time limit.
    Late(usize),
    Interrupted,
}

/// The answer of a cell as compact JSON; `None` if the cell exceeded its time limit or Ctrl-C came.
fn simulated(
    cell: &Cell,
    space: &Space,
    progress: &Progress,
    buffer: &Buffer,
    limit: Option<Duration>,
) -> Result<Option<String>> {
    let began = Instant::now();
    let mut watch = |_, _| {
        // Finished cells are written during a long cell, so that they are not lost if the process ends. If writing
        // fails, the run ends, and the last write reports the error.
        let is_kept = buffer.keep_if_due().is_ok();
        is_kept && progress.goes_on() && limit.is_none_or(|limit| began.elapsed() < limit)
    };
    let simulation = space.simulate(cell, &mut watch)?;
    if simulation.interrupted {
        return Ok(None);
    }
    let about = about(&cell.forecaster.deployment, &simulation);
    Ok(Some(serde_json::to_string(&Answer::of(about, &simulation))?))
}

/// Finished cells that are still to be written.
struct Buffer<'a> {
    cells: &'a Cells,
    /// Time of the last write, and the cells that have finished since then, each a key and an answer.
    waiting: Mutex<(Instant, Vec<(String, String)>)>,
}

impl Buffer<'_> {
    fn add(&self, key: String, answer: String) -> Result<()> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).1.push((key, answer));
        self.keep_if_due()
    }

    /// Writes the finished cells if [`OFTEN`] has passed since the last write.
    fn keep_if_due(&self) -> Result<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.1.is_empty() || waiting.0.elapsed() < OFTEN {
            return Ok(());
        }
        self.cells.keep(&waiting.1)?;
        *waiting = (Instant::now(), Vec::new());
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let ended = std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner).1);
        self.cells.keep(&ended)
    }
}

/// Indices of the cells to run, out of `all`: every nth from the ith, the named ones, or all.
fn share(all: usize, args: &CellsArgs) -> Result<Vec<usize>, Error> {
    if let Some(numbers) = &args.numbers {
        return match numbers.iter().find(|number| **number >= all) {
            Some(number) => {
                let accepted = format!("numbers below {all}, the cells of this sweep");
                Err(Error::field("arguments", "--numbers", *number, accepted))
            }
            None => Ok(numbers.clone()),
        };
    }
    let (shard, of) = args.shard.unwrap_or((1, 1));
    Ok((shard - 1..all).step_by(of).collect())
}

fn people(share: &Share) -> String {
    let late = match share.late.as_slice() {
        [] => String::new(),
        late => format!("; {} beyond the time that a cell may take", grouped(late.len() as u64)),
    };
    let partial = if share.interrupted { "PARTIAL: " } else { "" };
    let counts = [share.asked, share.cells, share.kept, share.ran].map(|n| grouped(n as u64));
    let [asked, cells, kept, ran] = counts;
    format!("{partial}{asked} of {cells} cells: {kept} were kept before, {ran} ran{late}\n")
}

/// Cells of a sweep that no process has run yet.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MissingCells"))]
pub(crate) struct Missing {
    /// Number of cells in the whole sweep.
    cells: usize,
    /// Numbers of the cells without an answer.
    missing: Vec<usize>,
}

/// A sweep whose points are read from files while the document is written.
#[derive(Serialize)]
struct Merged<'a> {
    sweep: Vec<&'a str>,
    interrupted: bool,
    #[serde(serialize_with = "points")]
    points: Points<'a>,
}

struct Points<'a> {
    space: &'a Space,
    cells: &'a Cells,
    /// Indices and keys of the cells that are present.
    there: &'a [(usize, String)],
}

/// Serializes the point of each cell that is present: the values, then the keys of its answer.
fn points<S: Serializer>(all: &Points, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.there.iter().filter_map(|(number, key)| all.point(*number, key)))
}

impl Points<'_> {
    fn point(&self, number: usize, key: &str) -> Option<Json> {
        let answer: Json = serde_json::from_str(self.cells.answer(key)?).ok()?;
        let mut point = serde_json::Map::new();
        point.insert("values".to_owned(), serde_json::to_value(&self.space.points[number]).ok()?);
        point.extend(answer.as_object()?.clone());
        Some(point.into())
    }
}

/// Prints the document of the whole sweep from the stored cells, as a single process would print it.
pub(super) fn merge(space: &Space, args: &SimulateArgs, folder: &Path) -> Result<ExitCode> {
    let flags = &args.cells;
    let cells = Cells::open(folder)?;
    let keys = space.pool()?.install(|| {
        let cell_key = |(number, values): (usize, &Vec<Value>)| {
            let cell = space.cell(values)?;
            Ok((number, key(&cell.scenario.spec, &cell.forecaster, space.leap)?))
        };
        space.points.par_iter().enumerate().map(cell_key).collect::<Result<Vec<(usize, String)>>>()
    })?;
    let (there, absent): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|(_, key)| cells.answer(key).is_some());
    let missing: Vec<usize> = absent.into_iter().map(|(number, _)| number).collect();
    let all = space.points.len();
    if flags.missing {
        show::json("roofcast/merge-missing/1", &Missing { cells: all, missing })?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(first) = missing.first().filter(|_| !flags.partial) {
        let gap = format!(
            "{} of {all} cells missing, the first is {}",
            missing.len(),
            space.named(&space.points[*first])
        );
        let accepted = "every cell of the sweep; or --partial";
        return Err(Error::field(folder.display(), "cells", gap, accepted).into());
    }
    let interrupted = !missing.is_empty();
    let points = Points { space, cells: &cells, there: &there };
    let served = there.iter().filter_map(|(number, key)| points.point(*number, key));
    let served = served.into_iter().any(|point| point["completed"].as_u64() > Some(0));
    if args.output.csv {
        let rows = there.iter().filter_map(|(number, key)| points.point(*number, key));
        let rows: Vec<Vec<String>> = rows.map(|point| super::row(&point, interrupted)).collect();
        show::csv(&super::header(&space.dimensions), &rows)?;
    } else {
        let sweep = space.dimensions.iter().map(|d| d.path.as_str()).collect();
        show::json(super::SCHEMA, &Merged { sweep, interrupted, points })?;
    }
    Ok(super::code(interrupted, served))
}
