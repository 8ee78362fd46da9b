//! Prompts that a user supplies: rows of JSON Lines, of a JSON array, of CSV or of Parquet.
//!
//! Knows: the keys by which vLLM, aiperf, guidellm, SGLang and ShareGPT name a prompt and the length of its answer. A
//! recorded answer's tokens are estimated as a quarter of its UTF-8 bytes, as `--workload` does for such files. Reads
//! no files: the rows are arguments.

use super::turn::Turn;
use roofcast::workload::estimated_tokens;
use roofcast::{Error, Result};
use serde_json::{Map, Value, json};

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Text {
    pub(crate) turns: Vec<Turn>,
    /// Keys of the row that are neither the prompt nor a length: some belong into a request's body.
    pub(crate) keys: Map<String, Value>,
    /// Output tokens to request, if the row states them.
    pub(crate) output_len: Option<u64>,
    /// Estimated tokens of the recorded answer, if the row has one.
    pub(crate) recorded: Option<u64>,
}

/// Keys of a prompt: `prompt` in vLLM's, guidellm's and roofcast's files, `text` in aiperf's.
const PROMPTS: [&str; 2] = ["prompt", "text"];

/// Keys of a conversation.
const CONVERSATIONS: [&str; 3] = ["messages", "conversations", "conversation"];

/// Key of the system prompt in a row whose messages have none.
const SYSTEM: &str = "system";

/// Keys of the answer's length in tokens: roofcast's, OpenAI's two, vLLM's custom and guidellm's, aiperf's.
const LENGTHS: [&str; 6] = [
    "output_len",
    "max_tokens",
    "max_completion_tokens",
    "output_tokens",
    "output_tokens_count",
    "output_length",
];

const ACCEPTED: &str = "a row as {\"prompt\": \"…\", \"output_len\": 100}, with \"text\" for \"prompt\", with \
                        \"conversations\": [{\"from\": \"human\", \"value\": \"…\"}], or with \"messages\": [{\"role\": \
                        \"user\", \"content\": \"…\"}]; a trace of lengths is --workload's";

/// Reads a JSON array of rows, or one row per line, with or without a byte order mark. Blank lines are ignored. A row
/// that is an array is a conversation (evalscope's form).
pub(crate) fn parse(place: &str, text: &str) -> Result<Vec<Text>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let wrong = |place: &str, e: serde_json::Error| Error::Parse {
        place: place.to_owned(),
        message: format!("{e}; accepted: {ACCEPTED}"),
    };
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
    let first = lines.peek().map_or("", |(_, line)| line.trim());
    let conversation = |row: Vec<Value>| !row.is_empty() && row.iter().all(is_message);
    let alone = || serde_json::from_str(first).is_ok_and(conversation);
    if first.starts_with('[') && !alone() {
        let rows: Vec<Value> = serde_json::from_str(text).map_err(|e| wrong(place, e))?;
        return numbered(place, rows.into_iter());
    }
    let texts = lines.map(|(n, line)| {
        let place = format!("{place}:{}", n + 1);
        let row: Value = serde_json::from_str(line).map_err(|e| wrong(&place, e))?;
        one(&place, &row)
    });
    some(place, texts.collect::<Result<_>>()?)
}

fn is_message(value: &Value) -> bool {
    value.get("role").is_some() || value.get("from").is_some()
}

/// Reads the rows of a table, each a map from column name to cell.
pub(crate) fn rows(place: &str, rows: Vec<Map<String, Value>>) -> Result<Vec<Text>> {
    numbered(place, rows.into_iter().map(Value::Object))
}

fn numbered(place: &str, rows: impl Iterator<Item = Value>) -> Result<Vec<Text>> {
    let texts = rows.enumerate().map(|(n, row)| one(&format!("{place}: row {}", n + 1), &row));
    some(place, texts.collect::<Result<_>>()?)
}

fn some(place: &str, texts: Vec<Text>) -> Result<Vec<Text>> {
    if texts.is_empty() {
        return Err(Error::field(place, "prompts", "none", ACCEPTED));
    }
    Ok(texts)
}

/// Reads one row. Of a conversation, the prompt is all messages up to the last one that is not an answer; the answer
/// after it is the recorded answer.
fn one(place: &str, row: &Value) -> Result<Text> {
    // A line of OpenAI's batch files has the request's body.
    let row = row.get("body").filter(|body| body.is_object()).unwrap_or(row);
    let first = |keys: &[&str]| keys.iter().find_map(|key| row.get(*key).filter(|v| !v.is_null()));
    let conversation = if row.is_array() { Some(row) } else { first(&CONVERSATIONS) };
    let wrong = |field: &str, found: &Value| Error::field(place, field, found, ACCEPTED);
    let mut turns = match (first(&PROMPTS), conversation) {
        (Some(Value::String(text)), None) => vec![Turn::user(text.clone())],
        (None, Some(Value::Array(said))) => {
            said.iter().map(|message| Turn::read(place, message)).collect::<Result<_>>()?
        }
        (Some(found), None) => return Err(wrong("prompt", found)),
        (None, Some(found)) => return Err(wrong("messages", found)),
        (Some(_), Some(_)) => {
            return Err(Error::field(place, "prompt", "together with a conversation", ACCEPTED));
        }
        (None, None) => Vec::new(),
    };
    // Anthropic's instructions stand beside its messages.
    if let Some(system) = row.get(SYSTEM).and_then(Value::as_str).filter(|_| !turns.is_empty()) {
        turns.insert(0, Turn::read(place, &json!({"role": "system", "content": system}))?);
    }
    let question_count = turns.iter().rposition(|turn| !turn.is_answer()).map_or(0, |last| last + 1);
    let answer = turns.split_off(question_count).into_iter().next();
    if !turns.iter().any(|turn| !turn.is_answer() && turn.says_something()) {
        return Err(Error::field(place, "prompt", "nothing that a user says", ACCEPTED));
    }
    let output_len = first(&LENGTHS).map(|found| tokens(place, found)).transpose()?;
    let recorded = answer.map(|turn| estimated_tokens(&turn.text)).filter(|n| *n > 0);
    let read = |key: &str| PROMPTS.iter().chain(&CONVERSATIONS).chain(&LENGTHS).any(|known| *known == key);
    let others = row.as_object().into_iter().flatten();
    let others = others.filter(|(key, value)| !read(key) && *key != SYSTEM && !value.is_null());
    let keys = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(Text { turns, keys, output_len, recorded })
}

/// Reads a count of tokens, which a table may hold as text.
fn tokens(place: &str, found: &Value) -> Result<u64> {
    let whole = found.as_u64().or_else(|| found.as_str()?.trim().parse().ok());
    let fits = |n: &u64| (1..=1 << 30).contains(n);
    whole.filter(fits).ok_or_else(|| Error::field(place, "output_len", found, "1 to 2^30 tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &Text) -> Value {
        text.turns.iter().map(Turn::message).collect()
    }

    #[test]
    fn every_form() {
        let text = r#"{"prompt": "one two", "output_len": 9}

            {"id": "x", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "five by"}]}
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "max_tokens": 4}
            {"text": "aiperf", "output_length": 5}
            {"prompt": "vllm", "output_tokens": 7}
            {"prompt": "guidellm", "output_tokens_count": 3, "prompt_tokens_count": 2}"#;
        let texts = parse("p.jsonl", text).unwrap();
        let parsed: Vec<Vec<_>> =
            texts.iter().map(|t| t.turns.iter().map(|t| (&*t.role, t.text.as_str())).collect()).collect();
        let talk = vec![("user", "a"), ("assistant", "b"), ("user", "c")];
        let alone = |text| vec![("user", text)];
        let single = ["aiperf", "vllm", "guidellm"].map(alone);
        assert_eq!(parsed[..3], [alone("one two"), alone("a"), talk]);
        assert_eq!(parsed[3..], single);
        let lengths: Vec<_> = texts.iter().map(|t| (t.output_len, t.recorded)).collect();
        // "five by" has 7 bytes: two tokens of at most four bytes.
        let output = |n| (Some(n), None);
        assert_eq!(lengths, [output(9), (None, Some(2)), output(4), output(5), output(7), output(3)]);
    }

    /// Roles, parts, tool calls and tool results are sent to the server as they are in the file.
    #[test]
    fn messages_are_kept() {
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "what is"}, {"type": "text", "text": "this?"}]});
        let call =
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function"}]});
        let result = json!({"role": "tool", "tool_call_id": "a", "content": "sunny"});
        let developer = json!({"role": "developer", "content": "be terse"});
        let messages_given = json!([developer, parts, call, result]);
        let texts = parse("p.jsonl", &json!({"messages": messages_given}).to_string()).unwrap();
        assert_eq!(messages(&texts[0]), messages_given);
        assert_eq!(texts[0].turns[1].text, "what is this?");
        let system = r#"[{"conversations":[{"from":"system","value":"s"},{"from":"human","value":"h"},
            {"from":"gpt","value":"g"},{"from":"human","value":"more"},{"from":"bing","value":"12345"}]}]"#;
        let texts = parse("s.json", &format!("\u{feff}{system}")).unwrap();
        let roles: Vec<_> = texts[0].turns.iter().map(|t| &*t.role).collect();
        assert_eq!((roles, texts[0].recorded), (vec!["system", "user", "assistant", "user"], Some(2)));
    }

    /// One conversation per line, in evalscope's form: https://github.com/modelscope/evalscope/pull/1309.
    #[test]
    fn rows_may_be_conversations() {
        let line = |word: &str| {
            format!(r#"[{{"role": "system", "content": "s"}}, {{"role": "user", "content": "{word}"}}]"#)
        };
        let second_turns = |text: &str| {
            let texts = parse("p.jsonl", text).unwrap();
            texts.iter().map(|t| t.turns[1].text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(second_turns(&format!("{}\n{}", line("a"), line("b"))), ["a", "b"]);
        assert_eq!(second_turns(&line("a")), ["a"]);
    }

    #[test]
    fn cells_of_tables_are_text() {
        let row = json!({"prompt": "a", "output_len": " 12 ", "other": null}).as_object().cloned().unwrap();
        assert_eq!(rows("p.csv", vec![row]).unwrap()[0].output_len, Some(12));
        let row = json!({"prompt": "a", "output_len": "many"}).as_object().cloned().unwrap();
        let error = rows("p.csv", vec![row]).unwrap_err().to_string();
        assert!(error.contains("p.csv: row 1") && error.contains("tokens"), "{error}");
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, says) in [
            ("{\"prompt\": \"a\"}\n{", "p.jsonl:2"),
            ("{\"prompt\": 7}", "p.jsonl:1"),
            ("{}", "prompt"),
            ("{\"timestamp\": 0, \"input_length\": 600, \"hash_ids\": [1]}", "--workload"),
            ("{\"conversations\": []}", "prompt"),
            ("{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\"}]}", "prompt"),
            ("{\"prompt\": \" \"}", "prompt"),
            ("{\"prompt\": \"a\", \"output_len\": 0}", "output_len"),
            ("[{\"prompt\": \"a\"}, {\"prompt\": 7}]", "row 2"),
            ("[7]", "row 1"),
            ("7", "p.jsonl:1"),
            ("[]", "none"),
            ("", "none"),
        ] {
            let error = parse("p.jsonl", text).unwrap_err().to_string();
            assert!(
                error.contains(says) && error.contains("conversations") | error.contains("tokens"),
                "{error}"
            );
        }
        let error = parse("p.jsonl", r#"{"messages": [{"role": "user", "content": 7}]}"#).unwrap_err();
        assert!(error.to_string().contains("content"), "{error}");
        let error = parse("p.jsonl", r#"{"conversations": [{"from": "nobody", "value": "a"}]}"#).unwrap_err();
        assert!(error.to_string().contains("human, user, gpt"), "{error}");
    }
}
