//! The library's one error type. Every message names the place, the value found and the values accepted.

use std::borrow::Cow;
use std::fmt::Display;

/// Every failure in the library: bad input, or a valid question without an answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field holds a value that cannot be used.
    #[error("{place}: `{}` is {}; accepted: {accepted}", cut(field), cut(found))]
    Field {
        /// File, flag group or catalog entry.
        place: String,
        /// Key or flag.
        field: String,
        /// The value found.
        found: String,
        /// The values accepted.
        accepted: String,
    },
    /// A file cannot be parsed.
    #[error("{place}: {message}")]
    Parse {
        /// File, with line and column where they are known.
        place: String,
        /// Message of the parser.
        message: String,
    },
    /// No catalog entry has this name.
    #[error("no {kind} named {:?} in the catalog; {hint}", cut(found))]
    Unknown {
        /// `model` or `accelerator`.
        kind: &'static str,
        /// The name that was given.
        found: String,
        /// Similar names, or how to list all names.
        hint: String,
    },
    /// A simulated engine has nothing to compute although requests wait.
    #[error("the engine is stuck: {waiting} requests wait and none can be admitted under these settings")]
    Stuck {
        /// Number of waiting requests.
        waiting: u64,
    },
    /// Requests wait for a replica, and the autoscaler starts none.
    #[error(
        "{waiting} requests wait and no replica starts: {reason}; accepted: `fleet.autoscale.min_replicas` of at least 1{other}"
    )]
    NeverScaled {
        /// Number of waiting requests.
        waiting: u64,
        /// Reason for which the rule starts none.
        reason: String,
        /// Another key that starts one, after "or"; may be empty.
        other: String,
    },
    /// Failures of replicas come so often that lost requests, which are sent again, are not answered.
    #[error(
        "no request was answered between {failures} failures in a row, which lost requests of up to {longest_s:.3} s: a \
         request takes longer than replicas stay up; accepted: a longer `fleet.failures.mtbf_s` (it is {mtbf_s}), or \
         `fleet.failures.retry` = false"
    )]
    Unanswered {
        /// Number of failures in a row.
        failures: u64,
        /// Mean seconds between the failures of a replica.
        mtbf_s: f64,
        /// Longest time that a lost request had spent on its replica, in seconds.
        longest_s: f64,
    },
    /// An engine would not start with these settings.
    #[error("{0}")]
    WillNotStart(String),
    /// A chip has no rate for a number format.
    #[error("{accelerator} has no {dtype} rate; it computes in {accepted}{advice}")]
    NoRate {
        /// Catalog id of the accelerator.
        accelerator: String,
        /// The number format that the accelerator lacks.
        dtype: String,
        /// Number formats that the accelerator has.
        accepted: String,
        /// Advice on an alternative; may be empty.
        advice: String,
    },
}

impl Error {
    /// An [`Error::Field`] from anything that can be displayed.
    pub fn field(
        place: impl Display,
        field: impl Display,
        found: impl Display,
        accepted: impl Display,
    ) -> Error {
        Error::Field {
            place: place.to_string(),
            field: field.to_string(),
            found: found.to_string(),
            accepted: accepted.to_string(),
        }
    }

    /// Returns a field error with `section` prepended to its place, for a section of a spec that contains a deployment.
    pub fn within(self, section: &str) -> Error {
        match self {
            Error::Field { place, field, found, accepted } => {
                Error::Field { place: format!("{section}, {place}"), field, found, accepted }
            }
            other => other,
        }
    }

    /// An [`Error::Parse`] from a TOML error: file, line and column, and the path of the key where it is known.
    pub fn toml(place: &str, text: &str, path: &str, error: &toml::de::Error) -> Error {
        let key = error.span().and_then(|span| within(text.get(span.start..)?, error.message()));
        let start = error.span().map(|span| span.start + key.map_or(0, |(_, offset)| offset));
        let position = start.and_then(|start| text.get(..start)).map(|before| {
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            format!(":{line}:{column}")
        });
        let place = format!("{place}{}", position.unwrap_or_default());
        let value = error.span().and_then(|span| text.get(span)).and_then(|value| value.lines().next());
        let message = match key {
            Some((key, _)) => told(&format!("{path}.{key}"), error.message(), None),
            None => told(path, error.message(), value.map(cut).as_deref()),
        };
        Error::Parse { place, message }
    }
}

/// The key of a section in which the value of `message` stands, and the offset of its line; `None` if `text` does not
/// begin with the head of a section, as `[name]`. The parser names sections that say their kind as a whole.
fn within<'a>(text: &'a str, message: &str) -> Option<(&'a str, usize)> {
    let value = literal(message.split_once(", expected ")?.0)?;
    let (head, body) = text.strip_prefix('[').filter(|rest| !rest.starts_with('['))?.split_once('\n')?;
    let lines = body.split_inclusive('\n').scan(head.len() + 2, |end, line| {
        let start = *end;
        *end += line.len();
        Some((start, line))
    });
    let mut entries = lines.take_while(|(_, line)| !line.starts_with('[')).filter_map(|(start, line)| {
        let (key, given) = line.split_once('=')?;
        Some((key.trim(), start, given.trim()))
    });
    entries.find(|(_, _, given)| given.starts_with(value)).map(|(key, start, _)| (key, start))
}

/// A parser's message, rewritten in the form of [`Error::Field`] if it states an expectation; `found` is the value as
/// written in the file.
pub fn told(path: &str, message: &str, found: Option<&str>) -> String {
    let message = message.replace('\n', " ");
    let path = if path == "." { "" } else { path };
    let message = unknown_field(&message).unwrap_or(message);
    let is = |found: &str, accepted: &str| {
        let field = if path.is_empty() { String::new() } else { format!("`{path}` is ") };
        format!("{field}{found}; accepted: {accepted}")
    };
    if let Some((head, accepted)) = message.split_once(", expected ") {
        // A list of sections (`[[name]]`) where one section is expected: its first section is read as the first key.
        if let Some(section) = found.and_then(|found| found.strip_prefix("[[")?.strip_suffix("]]")) {
            return format!("`{section}` is a list of sections; accepted: one, headed [{section}]");
        }
        if let Some(unread) = ["invalid type: ", "invalid value: "].iter().find_map(|p| head.strip_prefix(p))
        {
            return match (literal(unread), found) {
                // The parser names the section that contains the value; the key stands before the value.
                (Some(value), Some(section)) if section.starts_with('{') => {
                    let key =
                        section.split(value).next().and_then(|before| before.trim_end().strip_suffix('='));
                    let key =
                        key.and_then(|before| before.split([' ', ',', '{']).rfind(|word| !word.is_empty()));
                    let path = key.map_or(path.to_owned(), |key| format!("{path}.{key}"));
                    format!("`{path}` is {value}; accepted: {}", in_words(accepted))
                }
                (Some(value), None) => is(value, in_words(accepted)),
                (_, found) => is(found.unwrap_or(unread), in_words(accepted)),
            };
        }
        if let Some(name) = head.strip_prefix("unknown variant ") {
            return is(&name.replace('`', "\""), accepted.trim_start_matches("one of "));
        }
    }
    match found {
        // An untagged type lists its accepted values.
        Some(found) if message.starts_with("a ") => is(found, &message),
        _ if path.is_empty() => message,
        _ if message.starts_with("missing field `") => {
            let name = message.trim_start_matches("missing field ").trim_matches('`');
            format!("`{path}.{name}` is missing")
        }
        // An error about a field of the section at `path`; the parser's message names both.
        _ => match message.strip_prefix(&format!("{path}: `")) {
            Some(field) => format!("`{path}.{field}"),
            None => format!("`{path}`: {message}"),
        },
    }
}

/// Most names that a message lists one by one.
const LISTED: usize = 12;

/// The message of an unknown field, listing only similar names instead of all accepted ones; `None` for other messages,
/// or if no name is similar.
fn unknown_field(message: &str) -> Option<String> {
    let (name, rest) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    // The time of a comparison is the product of both lengths.
    let beginning: String = name.chars().take(REPEATED).collect();
    let like = |other: &&str| strsim::normalized_damerau_levenshtein(&beginning, other);
    let mut near: Vec<(f64, &str)> = known.iter().map(|other| (like(other), *other)).collect();
    near.retain(|(likeness, _)| *likeness >= 0.6);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near: Vec<String> = near.iter().take(3).map(|(_, name)| format!("`{name}`")).collect();
    match near.as_slice() {
        [] if known.len() <= LISTED => None,
        [] => Some(format!(
            "unknown field `{}`; accepted: {} keys, which `roofcast keys` lists",
            cut(name),
            known.len()
        )),
        near => Some(format!("unknown field `{}`; did you mean {}?", cut(name), near.join(" or "))),
    }
}

/// The value in a message of serde such as: string "fast", integer `3`.
fn literal(unread: &str) -> Option<&str> {
    let from = unread.find(['"', '`'])?;
    Some(unread.get(from..)?.trim_matches('`'))
}

/// The TOML name of a Rust type.
fn in_words(accepted: &str) -> &str {
    match accepted {
        "u64" | "u32" | "usize" => "a whole number from 0",
        "i64" => "a whole number",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        "variant identifier" => "a word",
        other if other.starts_with("internally tagged enum ") => "a table that says its kind",
        other if other.starts_with("struct ") => "a section with keys of its own",
        other => other,
    }
}

/// A number as a message shows it: in powers of ten if it has many digits.
pub fn shown(number: f64) -> String {
    let short = number == 0.0 || (1e-6..1e15).contains(&number.abs());
    if short { number.to_string() } else { format!("{number:e}") }
}

/// Most characters of a value, or of a word in it, that a message repeats.
const REPEATED: usize = 80;
/// Most characters of a value of several words that a message repeats.
const SENTENCE: usize = 320;

/// A value as a message repeats it: long words and long values are cut, and numbers of many digits are in powers of ten.
/// The last character stays, because it may close a quotation.
pub fn cut(value: &str) -> Cow<'_, str> {
    let is_long = |text: &str, most: usize| text.chars().nth(most).is_some();
    if value.len() > REPEATED
        && let Ok(number) = value.parse::<f64>()
    {
        return shown(number).into();
    }
    let words = || value.split_inclusive(char::is_whitespace);
    let mut shortened = match words().any(|word| is_long(word, REPEATED)) {
        true => words().take(SENTENCE).map(|word| ended(word, REPEATED)).collect::<String>().into(),
        false => Cow::Borrowed(value),
    };
    if is_long(&shortened, SENTENCE) {
        shortened = ended(&shortened, REPEATED).into_owned().into();
    }
    shortened
}

/// The text; if it has more than `most` characters, as many of them, an ellipsis, and the last one.
fn ended(text: &str, most: usize) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(most) else { return text.into() };
    let last: String = text.chars().next_back().into_iter().collect();
    format!("{}…{last}", &text[..end]).into()
}

/// Result of the library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    /// A section that says its kind is read as a whole, and the error of a value names the value's key and line.
    #[test]
    fn a_value_in_a_section_with_a_kind_has_its_key() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        enum Load {
            #[allow(dead_code)]
            Trace { spread: bool },
        }
        #[derive(Debug, serde::Deserialize)]
        struct File {
            #[allow(dead_code)]
            load: Load,
        }
        let text = "[load]\nkind = \"trace\"\nspread = \"yes\"\n";
        let error = toml::from_str::<File>(text).unwrap_err();
        let message = Error::toml("spec.toml", text, "load", &error).to_string();
        assert_eq!(message, "spec.toml:3:1: `load.spread` is \"yes\"; accepted: a boolean");
    }

    /// A word of 100 letters keeps 80, a value of many words 80 characters; both keep the last character. Powers of ten
    /// replace digits, and sentences stay.
    #[test]
    fn long_values_are_cut() {
        let word = "x".repeat(100);
        assert_eq!(cut(&format!("\"{word}\"")), format!("\"{}…\"", "x".repeat(79)));
        let words = "many words ".repeat(40);
        assert_eq!(cut(words.trim_end()), format!("{}…s", &words[..80]));
        assert_eq!(cut(&1e308.to_string()), "1e308");
        for short in [
            "bf16",
            "both `name` and `path`, of which a spec has one, because either of them decides the model",
        ] {
            assert_eq!(cut(short), short);
        }
        let message = Error::field("spec", &word, &word, "a number").to_string();
        assert!(message.len() < 250 && message.contains("accepted: a number"), "{message}");
    }
}
