//! The program as a library, for the Python package.
//!
//! Knows: how to run a verb in-process, with its output collected by [`crate::host`]; how keyword arguments become
//! flags; the flags of each verb. Knows nothing about Python.

use crate::args::Cli;
use crate::exit;
use crate::host::{self, Answer, Question};
use crate::swept;
use clap::{ArgAction, CommandFactory};
use roofcast::spec::keys::{KEYS, ValueType};
use std::ffi::OsString;

/// Answers a question as the program does.
///
/// # Errors
/// The message that the program would print on standard error before it exits with code 2.
pub fn answer(question: Question) -> Result<Answer, String> {
    let arguments: Vec<OsString> = std::iter::once("roofcast")
        .chain(question.arguments.iter().map(String::as_str))
        .map(Into::into)
        .collect();
    let (cli, files) = crate::parsed(arguments.into_iter()).map_err(|error| exit::misuse(&error))?;
    let (answer, done) = host::answered(question, || crate::run(cli, &files));
    done.map(|_| answer).map_err(|error| format!("{error:#}"))
}

/// The value of an argument.
pub enum Value {
    /// A flag that is on or off.
    Switch(bool),
    /// A number or a word.
    Word(String),
    /// Several values; joined by commas if the flag can be given only once.
    Words(Vec<String>),
}

/// Command-line arguments that set the flag `name` of `verb` to `value`.
pub fn flag(verb: &str, name: &str, value: Value) -> Vec<String> {
    let name = name.replace('_', "-");
    let mut command = Cli::command();
    command.build();
    let subcommand = command.find_subcommand(verb);
    let action = subcommand.and_then(|verb| {
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

/// The flags of `verb` that affect answers, each with its kind of value and a one-line description. Flags for output
/// are left out.
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

/// Kind of a flag's value.
fn kind(name: &str, arg: &clap::Arg) -> &'static str {
    match (KEYS.iter().find(|key| key.flag == Some(name)).map(|key| key.kind), arg.get_action()) {
        (_, ArgAction::SetTrue) | (Some(ValueType::Switch), _) => "switch",
        (_, ArgAction::Append) | (Some(ValueType::Words), _) => "words",
        (Some(ValueType::Wholes), _) => "whole numbers",
        (Some(ValueType::Whole), _) => "whole number",
        (Some(ValueType::Real), _) => "number",
        (Some(ValueType::Word | ValueType::Toml), _) => "word",
        (None, _) => "any",
    }
}

/// Expands `text`, the values of one key in the syntax of `--sweep`: `1..8:x2`, or a list of numbers and words.
///
/// # Errors A message about `text` that names the accepted forms.
pub fn values(text: &str) -> Result<Vec<serde_json::Value>, String> {
    let swept_values = swept::settings("", text).map_err(|why| swept::refused(text, &why).to_string())?;
    let json = |value| serde_json::to_value(value).map_err(|e| e.to_string());
    swept_values.into_iter().map(json).collect()
}
