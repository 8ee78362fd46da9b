//! CSV text from common tools: its separator, and the line number of each record in the file.
//!
//! Knows: commas, and the semicolons and tabs that spreadsheets write if the comma is their decimal point; comments;
//! line numbers. Does not know: columns and the meaning of their cells.

use crate::error::Error;

/// First character of a comment line.
const COMMENT: char = '#';

/// Separator of `text`, determined from its first line that is not a comment: a semicolon or a tab if the line has no
/// comma.
pub fn separator(text: &str) -> char {
    let header = text.lines().find(|line| !is_skipped(line)).unwrap_or_default();
    [',', ';', '\t'].into_iter().find(|mark| header.contains(*mark)).unwrap_or(',')
}

/// Replaces the decimal comma of a number by a point, unless commas separate cells.
pub fn pointed(text: &str, separator: char) -> String {
    if separator == ',' { text.to_owned() } else { text.replacen(',', ".", 1) }
}

/// Creates a reader of `text` that uses its separator.
pub fn reader(text: &str) -> csv::Reader<&[u8]> {
    let mut builder = csv::ReaderBuilder::new();
    builder.comment(Some(COMMENT as u8)).delimiter(separator(text) as u8).from_reader(text.as_bytes())
}

/// Line number in the file, counted from 1, of the record that was read at `position`, which precedes comments and
/// empty lines that the reader skipped.
pub fn line(text: &str, position: Option<&csv::Position>) -> u64 {
    let Some(position) = position else { return 1 };
    let from = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let rest = text.get(from..).unwrap_or_default();
    position.line() + rest.lines().take_while(|line| is_skipped(line)).count() as u64
}

/// The error for an unreadable record, with its line number in the file.
pub fn broken(place: &str, text: &str, error: &csv::Error) -> Error {
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields; accepted: {expected_len}, as in the header")
        }
        csv::ErrorKind::Utf8 { err, .. } => format!("{err}; accepted: UTF-8"),
        _ => error.to_string(),
    };
    Error::Parse { place: format!("{place}:{}", line(text, error.position())), message }
}

fn is_skipped(line: &str) -> bool {
    line.is_empty() || line.starts_with(COMMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_stand_in_the_header() {
        for (text, mark) in [
            ("a,b;c\n1,2\n", ','),
            ("# x,y\n\na;b\n1,5;2\n", ';'),
            ("a\tb\n1\t2\n", '\t'),
            ("a\n1\n", ','),
            ("", ','),
        ] {
            assert_eq!(separator(text), mark, "{text:?}");
        }
        assert_eq!((pointed("71,5", ';'), pointed("71,5", ',')), ("71.5".to_owned(), "71,5".to_owned()));
    }

    /// The header is line 2, and the records are lines 4 and 6, with any kind of line ending.
    #[test]
    fn lines_are_those_of_the_file() {
        for end in ["\n", "\r\n"] {
            let text = ["# note", "a,b", "", "1,2", "# note", "3,4", ""].join(end);
            let mut reader = reader(&text);
            let lines: Vec<u64> =
                reader.records().map(|record| line(&text, record.unwrap().position())).collect();
            assert_eq!(lines, [4, 6], "{end:?}");
        }
    }

    #[test]
    fn a_record_of_another_length_is_told_by_its_line() {
        let text = "# note\na,b\n1,2\n# note\n1,2,3\n";
        let error = reader(text).records().find_map(Result::err).unwrap();
        let message = broken("f.csv", text, &error).to_string();
        assert_eq!(message, "f.csv:5: 3 fields; accepted: 2, as in the header");
    }
}
