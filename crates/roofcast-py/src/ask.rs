//! A question from Python: its arguments, the thread that answers it, and progress and signals meanwhile.

use crate::error::Error;
use crate::table::Table;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};
use roofcast_cli::ask::Value;
use roofcast_cli::cells;
use roofcast_cli::host::{self, Question, Watch};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest delay of a signal or a progress report.
const PATIENCE: Duration = Duration::from_millis(50);

/// Result of a question.
#[pyclass(frozen, module = "roofcast._native")]
pub(crate) struct Answer {
    /// The document that `--json` prints.
    #[pyo3(get)]
    text: String,
    /// The program's lines on standard error.
    #[pyo3(get)]
    notes: Vec<String>,
    /// The picture as SVG, if one was asked for.
    #[pyo3(get)]
    picture: Option<String>,
    /// Each request of a simulation, if records were asked for.
    #[pyo3(get)]
    records: Option<Py<Table>>,
}

/// Progress of the work and the conditions that end it, shared between two threads.
struct Watched {
    done: AtomicU64,
    all: AtomicU64,
    stopped: AtomicBool,
    until: Option<Instant>,
}

impl Watch for Watched {
    fn at(&self, done: u64, all: u64) {
        self.done.store(done, Relaxed);
        self.all.store(all, Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stopped.load(Relaxed) && self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Answers `roofcast VERB FILES FLAGS --json`.
///
/// `flags` is a list of (name, value); `spec` is the text of a spec instead of a file; `picture` asks for the SVG,
/// `records` for every request of a simulation. `progress` is called by the asking thread, at most 20 times a second,
/// with the number of finished parts and the total, which is 0 if unknown; an exception from it ends the work, as
/// Ctrl-C does. After `time_limit_s` seconds the work ends early.
#[pyfunction]
#[pyo3(signature = (verb, files, flags, *, spec=None, picture=false, records=false, progress=None, time_limit_s=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn ask(
    py: Python<'_>,
    verb: &str,
    files: Vec<String>,
    flags: Vec<(String, Bound<'_, PyAny>)>,
    spec: Option<String>,
    picture: bool,
    records: bool,
    progress: Option<Bound<'_, PyAny>>,
    time_limit_s: Option<f64>,
) -> PyResult<Answer> {
    let mut arguments: Vec<String> = verb.split(' ').map(str::to_owned).collect();
    for (name, value) in &flags {
        arguments.extend(roofcast_cli::ask::flag(verb, name, said(name, value)?));
    }
    arguments.extend(picture.then(|| format!("--svg={}", host::PICTURE)));
    arguments.push("--json".to_owned());
    arguments.extend(spec.is_some().then(|| "-".to_owned()));
    if !files.is_empty() {
        arguments.push("--".to_owned());
        arguments.extend(files);
    }
    let limit = time_limit_s.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|_| Error::new_err("time_limit_s: accepted: seconds from 0"))?;
    let watched = Arc::new(Watched {
        done: AtomicU64::new(0),
        all: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        until: limit.and_then(|limit| Instant::now().checked_add(limit)),
    });
    let question = Question { arguments, spec, records, watch: Arc::<Watched>::clone(&watched) };
    let (done, answers) = channel();
    let answers = Mutex::new(answers);
    let worker = thread::spawn(move || done.send(roofcast_cli::ask::answer(question)));
    let waited = wait(py, &answers, &watched, progress.as_ref());
    watched.stopped.store(true, Relaxed);
    // The worker's result has already arrived through the channel.
    py.detach(|| drop(worker.join()));
    let reply = waited?.map_err(Error::new_err)?;
    let table = records.then(|| Py::new(py, Table::of_records(&reply.records)?)).transpose()?;
    Ok(Answer { text: reply.text, notes: reply.notes, picture: reply.picture, records: table })
}

/// Waits for the answer without holding Python's global interpreter lock; checks signals and reports progress
/// meanwhile.
fn wait(
    py: Python<'_>,
    answers: &Mutex<Receiver<Result<host::Answer, String>>>,
    watched: &Watched,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Result<host::Answer, String>> {
    let mut reported = (0, 0);
    loop {
        let waited =
            py.detach(|| answers.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE));
        match waited {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new_err(
                    "the work ended without an answer, which is a defect of roofcast",
                ));
            }
        }
        let now = (watched.done.load(Relaxed), watched.all.load(Relaxed));
        if let Some(progress) = progress.filter(|_| reported != now) {
            progress.call1(now)?;
            reported = now;
        }
    }
}

/// Converts a Python value to a flag's value: a switch, a number or a word, or several.
fn said(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(on) = value.cast::<PyBool>() {
        return Ok(Value::Switch(on.is_true()));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let words = value.try_iter()?.map(|item| Ok(item?.str()?.to_string()));
        return Ok(Value::Words(words.collect::<PyResult<_>>()?));
    }
    let word = value.str()?.to_string();
    if word.contains('\0') {
        return Err(Error::new_err(format!("{name}: a NUL character; accepted: text without")));
    }
    Ok(Value::Word(word))
}

/// The flags of `verb`, each with the kind of its value and a one-line description.
#[pyfunction]
pub(crate) fn flags(verb: &str) -> Vec<(String, &'static str, String)> {
    roofcast_cli::ask::flags(verb)
}

/// The values of a key in the syntax of --sweep, as a JSON list.
#[pyfunction]
pub(crate) fn values(text: &str) -> PyResult<String> {
    let parsed = roofcast_cli::ask::values(text).map_err(Error::new_err)?;
    Ok(serde_json::Value::from(parsed).to_string())
}

/// Answers stored in a folder, by key.
#[pyfunction]
pub(crate) fn kept(py: Python<'_>, folder: PathBuf) -> PyResult<BTreeMap<String, String>> {
    py.detach(|| cells::kept(&folder)).map_err(Error::new_err)
}

/// Stores answers in a folder, each a key and a text, in a file that appears whole or not at all.
#[pyfunction]
pub(crate) fn keep(py: Python<'_>, folder: PathBuf, answers: Vec<(String, String)>) -> PyResult<()> {
    py.detach(|| cells::keep(&folder, &answers)).map_err(Error::new_err)
}

/// Converts a spec from JSON to TOML.
#[pyfunction]
pub(crate) fn toml(json: &str) -> PyResult<String> {
    let refused =
        |why: String| Error::new_err(format!("spec: {why}; accepted: keys and values of a spec file"));
    let value: serde_json::Value = serde_json::from_str(json).map_err(|e| refused(e.to_string()))?;
    let table = ::toml::Table::try_from(without_null(value)).map_err(|e| refused(e.to_string()))?;
    Ok(table.to_string())
}

/// Removes keys with a null value, because TOML has no null. Floats without a fraction become integers, because NumPy
/// and JavaScript write whole numbers with a decimal point: 1000.0 requests are 1000.
fn without_null(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(keys) => {
            keys.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_null(v))).collect()
        }
        serde_json::Value::Array(items) => items.into_iter().map(without_null).collect(),
        serde_json::Value::Number(number) => {
            match number.as_f64().filter(|v| number.is_f64() && v.fract() == 0.0 && v.abs() < 9e15) {
                Some(whole) => (whole as i64).into(),
                None => number.into(),
            }
        }
        other => other,
    }
}
