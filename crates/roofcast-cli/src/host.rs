//! A program that calls the verbs in the place of a person: the Python package.
//!
//! Knows: the inputs of such a program in addition to arguments (a spec's text, a watcher of long work) and the outputs
//! that replace a terminal (text, notes, a picture, records). All state is per thread, so that several threads may ask
//! in parallel. Knows nothing about arguments: [`crate::ask`] runs the verb.

use roofcast::record::Record;
use std::cell::RefCell;
use std::sync::Arc;

/// The path of `--svg` that stands for a picture in memory.
pub const PICTURE: &str = "memory:picture.svg";

/// Receives the progress of long work, possibly from several threads, and may end it.
pub trait Watch: Send + Sync {
    /// Reports `done` of `all`; `all` is 0 if the total is unknown.
    fn at(&self, done: u64, all: u64);
    /// True if the work shall continue.
    fn goes_on(&self) -> bool;
}

/// A question of the host.
pub struct Question {
    /// The verb and its arguments, as they follow `roofcast` on a command line.
    pub arguments: Vec<String>,
    /// The text of the spec that the argument `-` stands for.
    pub spec: Option<String>,
    /// True to collect the record of each request of a simulation.
    pub records: bool,
    /// Watcher of long work.
    pub watch: Arc<dyn Watch>,
}

/// Results of a question.
#[derive(Default)]
pub struct Answer {
    /// Text for standard output.
    pub text: String,
    /// Lines for standard error.
    pub notes: Vec<String>,
    /// The picture, if `--svg` was [`PICTURE`].
    pub picture: Option<String>,
    /// Record of each request, if records were asked for.
    pub records: Vec<Record>,
}

/// The state of a question in progress.
struct Asked {
    question: Question,
    answer: Answer,
}

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Runs `work` for the host's `question`; returns the collected output and the result of `work`.
pub(crate) fn answered<T>(question: Question, work: impl FnOnce() -> T) -> (Answer, T) {
    ASKED.set(Some(Asked { question, answer: Answer::default() }));
    let done = work();
    (ASKED.take().map(|asked| asked.answer).unwrap_or_default(), done)
}

/// Applies `what` to the question in progress; `None` without a host.
fn with<T>(what: impl FnOnce(&mut Asked) -> T) -> Option<T> {
    ASKED.with_borrow_mut(|asked| asked.as_mut().map(what))
}

/// True if a host asked the question that runs on this thread.
pub(crate) fn asks() -> bool {
    with(|_| ()).is_some()
}

/// Collects `text` instead of printing it; false without a host.
pub(crate) fn printed(text: &str) -> bool {
    with(|asked| asked.answer.text.push_str(text)).is_some()
}

/// Collects a line for standard error; false without a host.
pub(crate) fn noted(line: &str) -> bool {
    with(|asked| asked.answer.notes.push(line.to_owned())).is_some()
}

/// Collects a picture; false without a host.
pub(crate) fn drawn(svg: &str) -> bool {
    with(|asked| asked.answer.picture = Some(svg.to_owned())).is_some()
}

/// True if `path` stands for a picture in memory.
pub(crate) fn draws(path: &std::path::Path) -> bool {
    path == std::path::Path::new(PICTURE) && asks()
}

/// True if the host wants the record of each request.
pub(crate) fn wants_records() -> bool {
    with(|asked| asked.question.records).unwrap_or(false)
}

/// Moves `records` to the host's answer.
pub(crate) fn recorded(records: &mut Vec<Record>) {
    with(|asked| asked.answer.records = std::mem::take(records));
}

/// The text of the spec for the argument `-`, if a host supplies one.
pub(crate) fn spec() -> Option<String> {
    with(|asked| asked.question.spec.clone()).flatten()
}

/// The watcher of the host, if there is one.
pub(crate) fn watch() -> Option<Arc<dyn Watch>> {
    with(|asked| Arc::clone(&asked.question.watch))
}
