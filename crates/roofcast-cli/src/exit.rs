//! Exit codes: 0; 2 bad input; 3 invalid measurement or interrupted run; 4 a valid question without a feasible answer.

use crate::args::foreign;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use roofcast::Error;
use std::error::Error as _;
use std::ffi::OsString;
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
    for told in advised(error).lines() {
        drop(writeln!(std::io::stderr(), "roofcast: {}", in_brief(told)));
    }
    match error.chain().any(|e| matches!(e.downcast_ref(), Some(Error::WillNotStart(_)))) {
        true => infeasible(),
        false => ExitCode::from(2),
    }
}

/// A message in which words of more than 240 characters, which are values that it repeats, are cut; paths are shorter.
fn in_brief(message: &str) -> String {
    let cut = |word: &str| match word.char_indices().nth(240) {
        Some(_) => roofcast::error::cut(word).into_owned(),
        None => word.to_owned(),
    };
    message.split_inclusive(char::is_whitespace).map(cut).collect()
}

/// Most characters of a flag's name.
const LONGEST_NAME: usize = 100;

/// Refuses a flag whose name is longer than that of any flag, which would be compared with each.
pub(crate) fn overlong(arguments: &[OsString]) -> Option<ExitCode> {
    let flags = arguments.iter().take_while(|argument| *argument != "--").filter_map(|flag| flag.to_str());
    let mut names = flags.filter(|flag| flag.starts_with("--")).filter_map(|flag| flag.split('=').next());
    let long = names.find(|name| name.len() > LONGEST_NAME)?;
    Some(fail(&Error::field("arguments", long, "no flag here", "a flag that --help lists").into()))
}

/// The message of an error, with the flags that the library's advice does not know.
fn advised(error: &anyhow::Error) -> String {
    let message = format!("{error:#}");
    match error.chain().find_map(|error| error.downcast_ref()) {
        Some(Error::Unknown { hint, .. }) if hint.ends_with('?') => {
            message + " `roofcast catalog --search` finds others"
        }
        Some(Error::Unknown { .. }) => message.replace("are a sweep of ", "are a sweep: --sweep "),
        _ => message,
    }
}

/// Reports arguments that do not parse, or prints requested help. Invalid values are reported like values in files, and
/// all together: `parse` is called again without the arguments that are already reported, until none is refused.
pub(crate) fn misused(
    error: &clap::Error,
    mut arguments: Vec<OsString>,
    parse: impl Fn(Vec<OsString>) -> Option<clap::Error>,
) -> ExitCode {
    if let Some(verb) = left_out(error) {
        return fail(
            &Error::field("arguments", "the verb", format!("{verb}, which this build leaves out"), WITH_IT)
                .into(),
        );
    }
    if let Some((flag, instead)) = foreign_flag(error) {
        return fail(&Error::field("arguments", flag, "not a flag here", instead).into());
    }
    let Some(first) = value_error(error) else {
        // If stderr is closed, too, nothing can be reported.
        match error.to_string() {
            text if in_brief(&text) != text => drop(write!(std::io::stderr(), "{}", in_brief(&text))),
            _ => drop(error.print()),
        }
        if let Some(word) = unknown_flag(error) {
            drop(writeln!(
                std::io::stderr(),
                "roofcast: `roofcast keys {word}` searches every key of a spec and its flag"
            ));
        }
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    };
    let mut causes = vec![first.to_string()];
    let mut wrong = without_value(error, &mut arguments).then(|| parse(arguments.clone())).flatten();
    while let Some(next) = wrong.take() {
        let Some(text) = value_error(&next).map(|error| error.to_string()) else { break };
        // If two equal pairs of flag and value exist, the valid one may have been removed.
        if causes.contains(&text) {
            break;
        }
        causes.push(text);
        wrong = without_value(&next, &mut arguments).then(|| parse(arguments.clone())).flatten();
    }
    fail(&anyhow::anyhow!(causes.join("\n")))
}

/// Instructions to install a build with every verb.
const WITH_IT: &str = "a build with it: `cargo install --locked --path crates/roofcast-cli --features full`, or a release's archive";

/// The verb in the arguments that this build lacks, if another build has it.
fn left_out(error: &clap::Error) -> Option<&str> {
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_left_out = match verb.as_str() {
        "bench" | "emulate" | "serve" => !cfg!(feature = "network"),
        "schema" => !cfg!(feature = "schema"),
        _ => false,
    };
    is_left_out.then_some(verb)
}

/// A flag that this verb does not have, with its dashes, and the flags with that purpose.
fn foreign_flag(error: &clap::Error) -> Option<(&str, &'static str)> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => {
            let name = flag.strip_prefix("--")?.split('=').next()?;
            Some((flag.split('=').next()?, foreign::counterpart(name)?))
        }
        _ => None,
    }
}

/// The flag in the arguments that resembles no flag of the verb, without its dashes.
fn unknown_flag(error: &clap::Error) -> Option<&str> {
    let near = error.get(ContextKind::SuggestedArg).is_some();
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument && !near => {
            flag.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name))
        }
        _ => None,
    }
}

/// Removes from `arguments` the flag and the value that clap refused; false if they are not found.
fn without_value(error: &clap::Error, arguments: &mut Vec<OsString>) -> bool {
    let Some((flag, found)) = refused(error) else { return false };
    let joined = OsString::from(format!("{flag}={found}"));
    let named = |pair: &[OsString]| pair[0] == *flag && pair[1] == *found;
    // The user may have written an alias, while clap reports the flag's main name.
    let alias = |pair: &[OsString]| pair[0].to_string_lossy().starts_with('-') && pair[1] == *found;
    if let Some(at) = arguments.iter().position(|one| *one == joined) {
        arguments.remove(at);
        return true;
    }
    let pairs = || arguments.windows(2);
    let Some(at) = pairs().position(named).or_else(|| pairs().position(alias)) else { return false };
    arguments.drain(at..at + 2);
    true
}

/// The error as text, without clap's usage hints.
pub(crate) fn misuse(error: &clap::Error) -> String {
    value_error(error).map_or_else(
        || {
            let whole_message = error.to_string();
            let message = whole_message.strip_prefix("error: ").unwrap_or(&whole_message);
            message.split("\n\nUsage").next().unwrap_or(message).trim().to_owned()
        },
        |told| told.to_string(),
    )
}

/// The flag and the value that clap refused, if it refused a value.
fn refused(error: &clap::Error) -> Option<(&str, &str)> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?;
    let value = text(ContextKind::InvalidValue)?;
    // The forms are `--rate <RATE>`, `--disaggregated[=<true|false>]`, `[SPEC.toml]...`.
    let flag = flag.trim_start_matches(['[', '<']).split([' ', '=', '[', ']', '>']).next().unwrap_or(flag);
    Some((flag, value))
}

/// The error for a refused value: the flag, the value found and the accepted values.
fn value_error(error: &clap::Error) -> Option<Error> {
    let (flag, found) = refused(error)?;
    let accepted = match error.kind() {
        ErrorKind::ValueValidation => accepted(error)?,
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(names)) if !found.is_empty() => {
                let chips = if flag == "--compare" {
                    "; for accelerators --sweep hardware=h100-sxm,mi300x"
                } else {
                    ""
                };
                names.join(", ") + chips
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(Error::field("arguments", flag, format!("{found:?}"), accepted))
}

/// The accepted values, from the error of a flag's own parser.
fn accepted(error: &clap::Error) -> Option<String> {
    let source = error.source()?;
    if source.is::<ParseIntError>() {
        return Some("a whole number from 0".to_owned());
    }
    if source.is::<ParseFloatError>() {
        return Some("a number".to_owned());
    }
    let source_text = source.to_string();
    if let Some((_, range)) = source_text.split_once(" is not in ") {
        return Some(range.replace("..=", " to "));
    }
    Some(
        source_text
            .rsplit_once("accepted: ")
            .map_or(source_text.clone(), |(_, accepted)| accepted.to_owned()),
    )
}
