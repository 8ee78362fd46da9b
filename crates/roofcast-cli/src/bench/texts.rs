//! Prompts that a user brings: JSON Lines in ShareGPT's form, or plainer ones.
//!
//! Knows: the keys that hold a prompt and how long its answer may be. Knows nothing about tokens.

use roofcast::{Error, Result};
use serde::Deserialize;

/// What one side said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The user, else the server.
    pub(crate) user: bool,
    /// The words.
    pub(crate) text: String,
}

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) turns: Vec<Turn>,
    /// Tokens to ask for, where the line says so.
    pub(crate) output_len: Option<u64>,
}

#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    #[serde(alias = "messages")]
    conversations: Option<Vec<Message>>,
    #[serde(alias = "max_tokens")]
    output_len: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(alias = "role")]
    from: String,
    #[serde(alias = "content")]
    value: String,
}

const ACCEPTED: &str = "a line as {\"prompt\": \"…\", \"output_len\": 100}, or with \"conversations\": [{\"from\": \"human\", \
                        \"value\": \"…\"}], or with \"messages\": [{\"role\": \"user\", \"content\": \"…\"}]";

/// Reads a file of one prompt a line; blank lines are left out. Of a conversation, all up to the last turn of its user
/// is the prompt.
pub(crate) fn parse(place: &str, text: &str) -> Result<Vec<Text>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let texts =
        lines.map(|(n, line)| one(&format!("{place}:{}", n + 1), line)).collect::<Result<Vec<_>>>()?;
    if texts.is_empty() {
        return Err(Error::field(place, "prompts", "none", ACCEPTED));
    }
    Ok(texts)
}

fn one(place: &str, line: &str) -> Result<Text> {
    let parsed: serde_json::Result<Line> = serde_json::from_str(line);
    let line = parsed
        .map_err(|e| Error::Parse { place: place.into(), message: format!("{e}; accepted: {ACCEPTED}") })?;
    let user = |from: &str| matches!(from, "human" | "user");
    let turns = match (line.prompt, line.conversations) {
        (Some(text), None) => vec![Turn { user: true, text }],
        (None, Some(said)) => {
            let last = said.iter().rposition(|m| user(&m.from)).map_or(0, |last| last + 1);
            said.into_iter().take(last).map(|m| Turn { user: user(&m.from), text: m.value }).collect()
        }
        _ => Vec::new(),
    };
    if turns.iter().all(|turn| turn.text.trim().is_empty()) {
        return Err(Error::field(place, "prompt", "nothing that a user says", ACCEPTED));
    }
    let fits = |n: &u64| (1..=1 << 30).contains(n);
    match line.output_len {
        Some(n) if !fits(&n) => Err(Error::field(place, "output_len", n, "1 to 2^30 tokens")),
        output_len => Ok(Text { turns, output_len }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let text = r#"{"prompt": "one two", "output_len": 9}

            {"id": "x", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "max_tokens": 4}"#;
        let texts = parse("p.jsonl", text).unwrap();
        let said: Vec<Vec<_>> =
            texts.iter().map(|t| t.turns.iter().map(|t| (t.user, t.text.as_str())).collect()).collect();
        let talk = vec![(true, "a"), (false, "b"), (true, "c")];
        assert_eq!(said, [vec![(true, "one two")], vec![(true, "a")], talk]);
        assert_eq!(texts.iter().map(|t| t.output_len).collect::<Vec<_>>(), [Some(9), None, Some(4)]);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, says) in [
            ("{\"prompt\": \"a\"}\n{", "p.jsonl:2"),
            ("{\"prompt\": 7}", "p.jsonl:1"),
            ("{}", "prompt"),
            ("{\"conversations\": []}", "prompt"),
            ("{\"prompt\": \" \"}", "prompt"),
            ("{\"prompt\": \"a\", \"output_len\": 0}", "output_len"),
            ("", "none"),
        ] {
            let error = parse("p.jsonl", text).unwrap_err().to_string();
            assert!(
                error.contains(says) && error.contains("conversations") | error.contains("tokens"),
                "{error}"
            );
        }
    }
}
