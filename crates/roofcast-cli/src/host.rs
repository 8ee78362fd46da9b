//! A program that asks in the place of a person: the Python package.
//!
//! Knows: what such a program hands in beside arguments (a spec's text, what watches long work) and what it takes instead
//! of output on a terminal (text, notes, a picture, records). Verbs run as they do for a person. Everything is kept for the
//! thread that asks, so that several may ask at the same time.

use crate::args::Cli;
use crate::exit;
use crate::input::values;
use clap::{ArgAction, CommandFactory};
use roofcast::record::Record;
use roofcast::spec::keys::{KEYS, Kind};
use std::cell::RefCell;
use std::ffi::OsString;
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

/// Answers as the program does.
///
/// # Errors
/// What the program would print on standard error before it ended with code 2.
pub fn ask(question: Question) -> Result<Answer, String> {
    let arguments: Vec<OsString> = std::iter::once("roofcast")
        .chain(question.arguments.iter().map(String::as_str))
        .map(Into::into)
        .collect();
    let (cli, files) = crate::parsed(arguments.into_iter()).map_err(|error| exit::misuse(&error))?;
    ASKED.set(Some(Asked { question, answer: Answer::default() }));
    let done = crate::run(cli, &files);
    let answer = ASKED.take().map(|asked| asked.answer).unwrap_or_default();
    done.map(|_| answer).map_err(|error| format!("{error:#}"))
}

/// The value of an argument.
pub enum Value {
    /// A flag that is on or off.
    Switch(bool),
    /// A number or a word.
    Word(String),
    /// Several; a flag that is given once has commas between them.
    Words(Vec<String>),
}

/// The flag of `verb` called `name` with its value, as arguments.
pub fn flag(verb: &str, name: &str, value: Value) -> Vec<String> {
    let name = name.replace('_', "-");
    let mut command = Cli::command();
    command.build();
    let found = command.find_subcommand(verb);
    let action = found.and_then(|verb| {
        let arg = verb.get_arguments().find(|arg| arg.get_long() == Some(&name))?;
        Some(arg.get_action().clone())
    });
    let with = |value: &str| format!("--{name}={value}");
    match (value, action) {
        (Value::Switch(on), Some(ArgAction::SetTrue)) => Vec::from_iter(on.then(|| format!("--{name}"))),
        (Value::Switch(on), _) => vec![with(&on.to_string())],
        (Value::Word(word), _) => vec![with(&word)],
        (Value::Words(words), Some(ArgAction::Append)) => words.iter().map(|word| with(word)).collect(),
        (Value::Words(words), _) => vec![with(&words.join(","))],
    }
}

/// The flags of `verb` that ask something, each with what a value of it is and one line on it. What says how an answer is
/// shown is not among them.
pub fn flags(verb: &str) -> Vec<(String, &'static str, String)> {
    let mut command = Cli::command();
    command.build();
    let Some(verb) = command.find_subcommand(verb) else { return Vec::new() };
    let shown = ["help", "version", "wide", "json", "csv", "svg", "dump-spec"];
    let asks = |arg: &&clap::Arg| arg.get_long().is_some_and(|name| !shown.contains(&name));
    let switched_off = |arg: &&clap::Arg| arg.is_hide_set();
    let flag = |arg: &clap::Arg| {
        let name = arg.get_long().unwrap_or_default();
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        (name.to_owned(), kind(name, arg), about)
    };
    verb.get_arguments().filter(asks).filter(|arg| !switched_off(arg)).map(flag).collect()
}

/// What a value of a flag is.
fn kind(name: &str, arg: &clap::Arg) -> &'static str {
    match (KEYS.iter().find(|key| key.flag == Some(name)).map(|key| key.kind), arg.get_action()) {
        (_, ArgAction::SetTrue) | (Some(Kind::Switch), _) => "switch",
        (_, ArgAction::Append) | (Some(Kind::Words), _) => "words",
        (Some(Kind::Wholes), _) => "whole numbers",
        (Some(Kind::Whole), _) => "whole number",
        (Some(Kind::Real), _) => "number",
        (Some(Kind::Word | Kind::Toml), _) => "word",
        (None, _) => "any",
    }
}

/// The values of a key as `--sweep` has them: `1..8:x2`, or a list of numbers and words.
///
/// # Errors
/// What is wrong with `text`, and what is accepted.
pub fn values(text: &str) -> Result<Vec<serde_json::Value>, String> {
    let found = values::settings("", text).map_err(|why| values::refused(text, &why).to_string())?;
    let json = |value| serde_json::to_value(value).map_err(|e| e.to_string());
    found.into_iter().map(json).collect()
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
