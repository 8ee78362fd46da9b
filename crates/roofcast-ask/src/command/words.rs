//! Splits a command line into words as a POSIX shell does: quotes, backslashes, lines that continue after a backslash.

use super::PLACE;
use roofcast_facts::error::{Error, Result};

/// Length in bytes of the longest command that is read.
const MOST_BYTES: usize = 1 << 20;

/// The words of `text`.
pub(super) fn split(text: &str) -> Result<Vec<String>> {
    if text.len() > MOST_BYTES {
        return Err(Error::field(PLACE, "the command", format!("{} bytes", text.len()), "at most a MiB"));
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'\n') => drop(letters.next()),
            '\\' => word.get_or_insert_default().extend(letters.next()),
            '\'' | '"' => quoted(letter, &mut letters, word.get_or_insert_default())?,
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads text up to the closing `quote`; within double quotes a backslash escapes the next character.
fn quoted(quote: char, letters: &mut impl Iterator<Item = char>, into: &mut String) -> Result<()> {
    while let Some(letter) = letters.next() {
        match letter {
            end if end == quote => return Ok(()),
            '\\' if quote == '"' => into.extend(letters.next()),
            other => into.push(other),
        }
    }
    Err(Error::field(PLACE, "the command", format!("without its closing {quote}"), "a quote for each quote"))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn quotes_backslashes_and_lines() {
        let words = split("a  'b c' \"d \\\"e\" f\\ g \\\n  h=\"i\"j ''").unwrap();
        assert_eq!(words, ["a", "b c", "d \"e", "f g", "h=ij", ""]);
        assert!(split("a 'b").is_err());
        assert_eq!(split(" \n").unwrap(), Vec::<String>::new());
    }
}
