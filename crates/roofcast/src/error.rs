//! The library's one error type. Every message names the place, what was found and what is accepted.

use std::fmt::Display;

/// Everything that can go wrong in the library: bad input, or a valid question without an answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field holds a value that cannot be used.
    #[error("{place}: `{field}` is {found}; accepted: {accepted}")]
    Field {
        /// File, flag group or catalog entry.
        place: String,
        /// Key or flag.
        field: String,
        /// What was found there.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A file cannot be parsed.
    #[error("{place}: {message}")]
    Parse {
        /// File, and line and column where known.
        place: String,
        /// What the parser says.
        message: String,
    },
    /// No catalog entry has this name.
    #[error("no {kind} named {found:?} in the catalog; {hint}")]
    Unknown {
        /// `model` or `accelerator`.
        kind: &'static str,
        /// The name asked for.
        found: String,
        /// Near names, or how to list them.
        hint: String,
    },
    /// A simulated engine that has nothing to compute though requests wait.
    #[error("the engine is stuck: {waiting} requests wait and none can be admitted under these settings")]
    Stuck {
        /// How many wait.
        waiting: u64,
    },
    /// A chip has no unit for a number format.
    #[error("{accelerator} has no {dtype} rate; it computes in {accepted}{advice}")]
    NoRate {
        /// Catalog id.
        accelerator: String,
        /// The missing dtype.
        dtype: String,
        /// Dtypes that it has.
        accepted: String,
        /// What to do instead; may be empty.
        advice: String,
    },
}

impl Error {
    /// An [`Error::Field`] from anything printable.
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

    /// The same of a field, with the section that asked for it before its place.
    pub(crate) fn within(self, section: &str) -> Error {
        match self {
            Error::Field { place, field, found, accepted } => {
                Error::Field { place: format!("{section}, {place}"), field, found, accepted }
            }
            other => other,
        }
    }

    /// An [`Error::Parse`] from a TOML error: file, line and column, and the path of the key where one is known.
    pub(crate) fn toml(place: &str, text: &str, path: &str, error: &toml::de::Error) -> Error {
        let position = error.span().and_then(|span| text.get(..span.start)).map(|before| {
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            format!(":{line}:{column}")
        });
        let place = format!("{place}{}", position.unwrap_or_default());
        let message = error.message().replace('\n', " ");
        let message = if path.is_empty() || path == "." { message } else { format!("`{path}`: {message}") };
        Error::Parse { place, message }
    }
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
