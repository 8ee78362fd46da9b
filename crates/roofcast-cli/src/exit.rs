//! Exit codes: 0; 2 bad input; 3 invalid measurement or interrupted run; 4 a valid question without a feasible answer.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use roofcast::Error;
use std::error::Error as _;
use std::io::Write;
use std::num::{ParseFloatError, ParseIntError};
use std::process::ExitCode;

/// Exit code of a valid question without a feasible answer.
pub(crate) fn infeasible() -> ExitCode {
    ExitCode::from(4)
}

/// Exit code of an invalid measurement, or of a run that Ctrl-C has ended early.
pub(crate) fn invalid() -> ExitCode {
    ExitCode::from(3)
}

/// Prints a line for each error on stderr; bad input exits with 2, an engine that would not start with 4. A closed
/// pipe is no error, because the reader has read enough.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let closed = error.chain().any(|e| {
        e.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if closed {
        return ExitCode::SUCCESS;
    }
    // If stderr is closed, too, nothing can be reported.
    for told in format!("{error:#}").lines() {
        drop(writeln!(std::io::stderr(), "roofcast: {told}"));
    }
    match error.chain().any(|e| matches!(e.downcast_ref(), Some(Error::WillNotStart(_)))) {
        true => infeasible(),
        false => ExitCode::from(2),
    }
}

/// Exits for arguments that do not parse, or for help. An invalid value is reported like invalid values in files.
pub(crate) fn misused(error: &clap::Error) -> ExitCode {
    match value_error(error) {
        Some(told) => fail(&told.into()),
        None => {
            // If stderr is closed, too, nothing can be reported.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

/// The error as text, without clap's usage hints.
pub(crate) fn misuse(error: &clap::Error) -> String {
    value_error(error).map_or_else(
        || {
            let told = error.to_string();
            let told = told.strip_prefix("error: ").unwrap_or(&told);
            told.split("\n\nUsage").next().unwrap_or(told).trim().to_owned()
        },
        |told| told.to_string(),
    )
}

/// The error for a value: the flag, the value found and the values accepted.
fn value_error(error: &clap::Error) -> Option<Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, found) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let accepted = match error.kind() {
        ErrorKind::ValueValidation => accepted(error)?,
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(names)) if !found.is_empty() => names.join(", "),
            _ => return None,
        },
        _ => return None,
    };
    // `--rate <RATE>`, `--disaggregated[=<true|false>]`, `[SPEC.toml]...`.
    let flag = flag.trim_start_matches(['[', '<']).split([' ', '=', '[', ']', '>']).next().unwrap_or(flag);
    Some(Error::field("arguments", flag, format!("{found:?}"), accepted))
}

/// The values that a parser accepts, from its error.
fn accepted(error: &clap::Error) -> Option<String> {
    let source = error.source()?;
    if source.is::<ParseIntError>() {
        return Some("a whole number from 0".to_owned());
    }
    if source.is::<ParseFloatError>() {
        return Some("a number".to_owned());
    }
    let told = source.to_string();
    if let Some((_, range)) = told.split_once(" is not in ") {
        return Some(range.replace("..=", " to "));
    }
    Some(told.rsplit_once("accepted: ").map_or(told.clone(), |(_, accepted)| accepted.to_owned()))
}
