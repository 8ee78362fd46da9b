//! Reads records one at a time from JSON lines or CSV.
//!
//! Knows: lines, their numbers for errors, and the longest accepted line. Opens no file: the caller provides the input.

use super::{Record, csv};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::io::{BufRead, Read};

/// Most bytes of a line: a record with the gaps of a million tokens.
const MOST_LINE: u64 = 16 << 20;

/// File format of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// One JSON object per line.
    JsonLines,
    /// A header line, then one record per line.
    Csv,
}

/// The records of an input, until its end or the first error.
pub struct Records<R> {
    place: String,
    input: R,
    format: RecordFormat,
    columns: Vec<&'static str>,
    line: u64,
    ended: bool,
}

impl<R: BufRead> Records<R> {
    /// Reads records from `input`, which error messages call `place`.
    pub fn new(place: &str, input: R, format: RecordFormat) -> Records<R> {
        Records { place: place.to_owned(), input, format, columns: Vec::new(), line: 0, ended: false }
    }

    /// The next line that is not blank.
    fn next_line(&mut self) -> Result<Option<String>> {
        loop {
            let mut bytes = Vec::new();
            self.line += 1;
            let read = (&mut self.input).take(MOST_LINE + 1).read_until(b'\n', &mut bytes);
            let read = read.map_err(|e| self.error(e.to_string()))?;
            if read as u64 > MOST_LINE {
                return Err(self.error(format!("a line of more than {} MiB", MOST_LINE >> 20)));
            }
            if read == 0 {
                return Ok(None);
            }
            let text = String::from_utf8(bytes).map_err(|_| self.error("not UTF-8".to_owned()))?;
            if !text.trim().is_empty() {
                return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
            }
        }
    }

    fn read(&mut self) -> Result<Option<Record>> {
        if self.format == RecordFormat::Csv && self.columns.is_empty() {
            let Some(header) = self.next_line()? else { return Ok(None) };
            self.columns = csv::columns(&header).map_err(|message| self.error(message))?;
        }
        let Some(line) = self.next_line()? else { return Ok(None) };
        let place = format!("{}:{}", self.place, self.line);
        match self.format {
            RecordFormat::JsonLines => Record::from_line(&place, &line).map(Some),
            RecordFormat::Csv => {
                let object = csv::object(&self.columns, &line).map_err(|message| self.error(message))?;
                Record::deserialize(object).map(Some).map_err(|e| self.error(e.to_string()))
            }
        }
    }

    fn error(&self, message: String) -> Error {
        Error::Parse { place: format!("{}:{}", self.place, self.line), message }
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: RecordFormat, text: &str) -> Result<Vec<Record>> {
        Records::new("x", text.as_bytes(), format).collect()
    }

    /// TTFT 5 − 1, E2EL 11 − 1, TPOT (10 − 4)/(4 − 1).
    #[test]
    fn csv_is_what_json_lines_are() {
        let first = r#"{"id":3,"outcome":"completed","input_len":10,"output_len":4,"scheduled_ms":0.5,"sent_ms":1,"first_token_ms":5,"finished_ms":11,"itl_ms":[1.5,2,2.5],"preemptions":2}"#;
        let two = r#"{"id":4,"outcome":"http_status","input_len":1,"output_len":0,"scheduled_ms":0,"sent_ms":0,"finished_ms":1,"error":"a \"b\", c"}"#;
        let records = all(RecordFormat::JsonLines, &format!("{first}\n\n{two}\n")).unwrap();
        let text: Vec<String> = records.iter().map(csv::line).collect();
        assert_eq!(text[0], "3,completed,10,4,0.5,1.0,5.0,11.0,1.5 2.0 2.5,,2,,,4.0,2.0,10.0");
        assert_eq!(text[1], r#"4,http_status,1,0,0.0,0.0,,1.0,,,,,"a ""b"", c",,,"#);
        let back =
            all(RecordFormat::Csv, &format!("{}\r\n{}\r\n{}", csv::header(), text[0], text[1])).unwrap();
        assert_eq!(back, records);
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            (RecordFormat::JsonLines, "\n{\"id\":0}", ["x:2", "outcome"]),
            (RecordFormat::Csv, "id,colour", ["x:1", "no column `colour`"]),
            (RecordFormat::Csv, "id,id", ["x:1", "twice"]),
            (RecordFormat::Csv, "id,outcome\n1", ["x:2", "1 fields; expected 2"]),
            (RecordFormat::Csv, "id,outcome\n1,lost", ["x:2", "unknown variant"]),
            (RecordFormat::Csv, "id,outcome\n\none,completed", ["x:3", "`id` is \"one\""]),
            (RecordFormat::Csv, "id,outcome\n1,completed", ["x:2", "missing field `input_len`"]),
        ];
        for (format, text, parts) in cases {
            let error = all(format, text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text:?}: {error}");
        }
        assert!(Records::new("x", &b"\xff\n"[..], RecordFormat::JsonLines).next().unwrap().is_err());
        let long = vec![b' '; (MOST_LINE + 2) as usize];
        let error = Records::new("x", &long[..], RecordFormat::Csv).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("16 MiB"), "{error}");
    }
}
