//! Writes records into a file, in the format of its extension.
//!
//! Knows: extensions. The library defines the columns.

#[cfg(feature = "parquet")]
mod parquet;

use super::target::Target;
use anyhow::Result;
use roofcast::Error;
use roofcast::record::{Record, csv};
use std::path::{Path, PathBuf};

/// The format of a file, by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    JsonLines,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Form {
    /// The format for the extension of `path`, or an error with the accepted extensions.
    fn of(path: &Path) -> Result<Form, Error> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("jsonl") => Ok(Form::JsonLines),
            Some("csv") => Ok(Form::Csv),
            #[cfg(feature = "parquet")]
            Some("parquet") => Ok(Form::Parquet),
            _ => {
                let shown_path = format!("{:?}", path.display().to_string());
                Err(Error::field("arguments", "--records", shown_path, ACCEPTED))
            }
        }
    }
}

#[cfg(feature = "parquet")]
const ACCEPTED: &str = "a file that ends with .jsonl, .csv or .parquet";
#[cfg(not(feature = "parquet"))]
const ACCEPTED: &str =
    "a file that ends with .jsonl or .csv (.parquet in a build with the feature `parquet`)";

/// The file of `--records`.
pub(crate) struct Records {
    form: Form,
    target: Target,
}

impl Records {
    /// The file that `--records` names, if the flag is given; an error if it cannot be written.
    pub(crate) fn asked(path: Option<&PathBuf>) -> Result<Option<Records>> {
        let Some(path) = path else { return Ok(None) };
        Ok(Some(Records { form: Form::of(path)?, target: Target::of("--records", path)? }))
    }

    /// Writes `records`.
    pub(crate) fn write(&self, records: &[Record]) -> Result<()> {
        let target = &self.target;
        match self.form {
            Form::JsonLines => target.lines(records.iter().map(Record::to_line)),
            Form::Csv => target.lines(std::iter::once(csv::header()).chain(records.iter().map(csv::line))),
            #[cfg(feature = "parquet")]
            Form::Parquet => target.write(|out| parquet::write(out, records)),
        }
    }
}
