//! Records into a file, in the form that its name ends with.
//!
//! Knows: extensions. The columns are the library's.

#[cfg(feature = "parquet")]
mod parquet;

use anyhow::Result;
use roofcast::Error;
use roofcast::record::{Record, csv};
use std::path::Path;

/// The form that a file's name asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    JsonLines,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Form {
    /// The form of `path`, or the extensions that are accepted.
    pub(crate) fn of(path: &Path) -> Result<Form, Error> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("jsonl") => Ok(Form::JsonLines),
            Some("csv") => Ok(Form::Csv),
            #[cfg(feature = "parquet")]
            Some("parquet") => Ok(Form::Parquet),
            _ => Err(Error::field(
                "arguments",
                "--records",
                format!("{:?}", path.display().to_string()),
                ACCEPTED,
            )),
        }
    }
}

#[cfg(feature = "parquet")]
const ACCEPTED: &str = "a file that ends with .jsonl, .csv or .parquet";
#[cfg(not(feature = "parquet"))]
const ACCEPTED: &str =
    "a file that ends with .jsonl or .csv (.parquet in a build with the feature `parquet`)";

/// Writes `records` to `path`, whole or not at all.
pub(crate) fn write(path: &Path, form: Form, records: &[Record]) -> Result<()> {
    match form {
        Form::JsonLines => super::lines(path, records.iter().map(Record::to_line)),
        Form::Csv => super::lines(path, std::iter::once(csv::header()).chain(records.iter().map(csv::line))),
        #[cfg(feature = "parquet")]
        Form::Parquet => parquet::write(path, records),
    }
}
