//! A program that asks in the place of a person: the Python package.
//!
//! Knows: what such a program hands in beside arguments (a spec's text, what watches long work) and what it takes instead
//! of output on a terminal (text, notes, a picture, records). Everything is kept for the thread that asks, so that several
//! may ask at the same time. Knows no arguments: [`crate::ask`] runs the verb.

use roofcast::record::Record;
use std::cell::RefCell;
use std::sync::Arc;

/// The path of `--svg` that means a picture for the host.
pub const PICTURE: &str = "memory:picture.svg";

/// Hears how far long work is, perhaps from several threads, and ends it.
pub trait Watch: Send + Sync {
    /// `done` of `all` is done; 0 where it is not known how much there is.
    fn at(&self, done: u64, all: u64);
    /// Whether to go on.
    fn goes_on(&self) -> bool;
}

/// What is asked.
pub struct Question {
    /// The verb and its arguments, as behind `roofcast`.
    pub arguments: Vec<String>,
    /// The text of the spec that `-` names.
    pub spec: Option<String>,
    /// Whether each request of a simulation is kept.
    pub records: bool,
    /// Hears how far the work is.
    pub watch: Arc<dyn Watch>,
}

/// What came of it.
#[derive(Default)]
pub struct Answer {
    /// What would be on standard output.
    pub text: String,
    /// What would be said on standard error beside it, a line each.
    pub notes: Vec<String>,
    /// The picture, where `--svg` was [`PICTURE`].
    pub picture: Option<String>,
    /// Each request, where they were asked for.
    pub records: Vec<Record>,
}

/// A question that is being answered.
struct Asked {
    question: Question,
    answer: Answer,
}

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// What `work` leaves for the host that asks `question`, and what it returns.
pub(crate) fn answered<T>(question: Question, work: impl FnOnce() -> T) -> (Answer, T) {
    ASKED.set(Some(Asked { question, answer: Answer::default() }));
    let done = work();
    (ASKED.take().map(|asked| asked.answer).unwrap_or_default(), done)
}

/// Something of the question that is being answered; none where a person asks.
fn with<T>(what: impl FnOnce(&mut Asked) -> T) -> Option<T> {
    ASKED.with_borrow_mut(|asked| asked.as_mut().map(what))
}

/// Whether a host asks.
pub(crate) fn asks() -> bool {
    with(|_| ()).is_some()
}

/// Keeps `text` in the place of printing it; whether it was kept.
pub(crate) fn printed(text: &str) -> bool {
    with(|asked| asked.answer.text.push_str(text)).is_some()
}

/// Keeps a line that would be on standard error; whether it was kept.
pub(crate) fn noted(line: &str) -> bool {
    with(|asked| asked.answer.notes.push(line.to_owned())).is_some()
}

/// Keeps a picture.
pub(crate) fn drawn(svg: &str) -> bool {
    with(|asked| asked.answer.picture = Some(svg.to_owned())).is_some()
}

/// Whether `path` means a picture for the host.
pub(crate) fn draws(path: &std::path::Path) -> bool {
    path == std::path::Path::new(PICTURE) && asks()
}

/// Whether records are asked for.
pub(crate) fn wants_records() -> bool {
    with(|asked| asked.question.records).unwrap_or(false)
}

/// Keeps the records.
pub(crate) fn recorded(records: &mut Vec<Record>) {
    with(|asked| asked.answer.records = std::mem::take(records));
}

/// The text of the spec that `-` names, where a host has one.
pub(crate) fn spec() -> Option<String> {
    with(|asked| asked.question.spec.clone()).flatten()
}

/// Who watches.
pub(crate) fn watch() -> Option<Arc<dyn Watch>> {
    with(|asked| Arc::clone(&asked.question.watch))
}
