use super::*;

/// Sums over `events`: chunks with visible tokens, counted output tokens, prompt tokens, cached tokens, for each ended
/// choice if it reached its limit, text.
fn told(endpoint: Endpoint, events: &[&str]) -> (usize, u64, u64, Option<u64>, Vec<bool>, String) {
    let mut shown = 0;
    let mut usage = Usage::default();
    let mut finished = Vec::new();
    let mut text = String::new();
    let mut counts = Counts::default();
    for event in events {
        let chunk = read(endpoint, event.as_bytes(), true).unwrap();
        assert_eq!(chunk.failure, None, "{event}");
        shown += chunk.tokens.iter().filter(|t| !t.unseen).count();
        usage = chunk.usage.unwrap_or(usage);
        if let Some(other) = chunk.counts {
            counts = counts.merged(other);
            usage = Usage::from(&counts);
        }
        finished.extend(chunk.finished);
        text.push_str(&chunk.text);
    }
    (shown, usage.completion_tokens, usage.prompt_tokens, usage.cached_tokens, finished, text)
}

/// Kind and message of the failure in an event.
fn failure(endpoint: Endpoint, event: &str) -> (Outcome, String) {
    let failure = read(endpoint, event.as_bytes(), false).unwrap().failure.unwrap();
    (failure.outcome, failure.message)
}

#[test]
fn responses() {
    let events = [
        r#"{"type":"response.created","response":{"status":"in_progress","output":[]}}"#,
        r#"{"type":"response.output_item.added","item":{"type":"message"}}"#,
        r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#,
        r#"{"type":"response.output_text.delta","delta":"a b"}"#,
        r#"{"type":"response.output_text.done","text":"a b"}"#,
        r#"{"type":"response.completed","response":{"status":"incomplete","output":[{"type":"message","content":[{"type":"output_text","text":"a b"}]}],
            "usage":{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":3}}}}"#,
    ];
    let whole = r#"{"object":"response","status":"completed","error":null,"output":[{"content":[{"text":"a b"}]}],
        "usage":{"input_tokens":9,"output_tokens":4}}"#;
    let reads = |events: &[&str]| told(Endpoint::Responses, events);
    assert_eq!(reads(&events), (2, 4, 9, Some(3), vec![true], "a b".into()));
    assert_eq!(reads(&[whole]), (1, 4, 9, None, vec![false], "a b".into()));
    let failed =
        r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"x","message":"no"}}}"#;
    assert_eq!(failure(Endpoint::Responses, failed), (Outcome::StreamError, "no".into()));
    let error = r#"{"type":"error","message":"no","code":"x"}"#;
    assert_eq!(failure(Endpoint::Responses, error), (Outcome::StreamError, "no".into()));
    let nested = r#"{"type":"error","error":{"type":"server_error","message":"no"}}"#;
    assert_eq!(failure(Endpoint::Responses, nested), (Outcome::StreamError, "no".into()));
    assert!(read(Endpoint::Responses, b"{}", false).is_err());
    // Every delta brings tokens, whatever it is of.
    for delta in [
        r#"{"type":"response.custom_tool_call_input.delta","delta":"ls"}"#,
        r#"{"type":"response.code_interpreter_call_code.delta","delta":"1"}"#,
        r#"{"type":"response.mcp_call_arguments.delta","delta":{"path":"a"}}"#,
    ] {
        assert_eq!(reads(&[delta]).0, 1, "{delta}");
    }
}

/// Counts as floats, and null as none.
#[test]
fn counts_may_be_floats() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":7.0,"completion_tokens":3.0,"prompt_tokens_details":{"cached_tokens":null}}}"#;
    assert_eq!(told(Endpoint::Chat, &[usage]), (0, 3, 7, None, Vec::new(), String::new()));
    for wrong in ["7.5", "-1", "\"7\"", "1000000001", "1e10", "9223372036854775808", "18446744073709551615"] {
        for counted in [
            format!(r#""prompt_tokens":{wrong}"#),
            format!(r#""completion_tokens":{wrong}"#),
            format!(r#""prompt_tokens":7,"prompt_tokens_details":{{"cached_tokens":{wrong}}}"#),
        ] {
            let usage = format!(r#"{{"choices":[],"usage":{{{counted}}}}}"#);
            assert!(read(Endpoint::Chat, usage.as_bytes(), false).is_err(), "{counted}");
        }
    }
}

#[test]
fn messages() {
    let events = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":3,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":4}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let whole = r#"{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn",
        "usage":{"input_tokens":8,"output_tokens":4}}"#;
    // Anthropic counts cached tokens separately: the prompt has 5 + 3.
    assert_eq!(told(Endpoint::Messages, &events), (2, 4, 8, Some(3), vec![true], "a".into()));
    assert_eq!(told(Endpoint::Messages, &[whole]), (1, 4, 8, None, vec![false], "a".into()));
    // Prompt tokens may come in the last event alone.
    let late = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":5,"cache_read_input_tokens":3,"output_tokens":4}}"#,
    ];
    assert_eq!(told(Endpoint::Messages, &late), (0, 4, 8, Some(3), vec![false], String::new()));
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(failure(Endpoint::Messages, error), (Outcome::StreamError, "Overloaded".into()));
}

#[test]
fn generate() {
    let events = [
        r#"{"text":"a","meta_info":{"prompt_tokens":7,"completion_tokens":1,"cached_tokens":2,"finish_reason":null}}"#,
        r#"{"text":"a b","meta_info":{"prompt_tokens":7,"completion_tokens":2,"cached_tokens":2,"finish_reason":{"type":"length","length":2}}}"#,
    ];
    assert_eq!(told(Endpoint::Generate, &events), (2, 2, 7, Some(2), vec![true], "a b".into()));
    let aborted = r#"{"text":"a","meta_info":{"completion_tokens":1,"finish_reason":{"type":"abort","message":"gone"}}}"#;
    assert_eq!(failure(Endpoint::Generate, aborted), (Outcome::Aborted, "gone".into()));
    let error = r#"{"error":{"message":"too long"}}"#;
    assert_eq!(failure(Endpoint::Generate, error), (Outcome::StreamError, "too long".into()));
}

#[test]
fn embeddings() {
    let whole =
        r#"{"object":"list","data":[{"embedding":[0.5,1]}],"usage":{"prompt_tokens":6,"total_tokens":6}}"#;
    assert_eq!(told(Endpoint::Embeddings, &[whole]), (0, 0, 6, None, vec![true], String::new()));
    assert!(read(Endpoint::Embeddings, br#"{"data":[]}"#, false).is_err());
}

/// Gateways write a reason into every chunk, leave out the count of the answer, and put its first text into the block's start.
#[test]
fn what_gateways_write_differently() {
    let chat = [
        r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{"content":" b"},"finish_reason":"null"}]}"#,
        r#"{"choices":[{"delta":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":7,"total_tokens":9}}"#,
    ];
    assert_eq!(told(Endpoint::Chat, &chat), (2, 2, 7, None, vec![true], "a b".into()));
    let messages = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":5}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" b"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","input":{}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#,
    ];
    assert_eq!(told(Endpoint::Messages, &messages), (2, 2, 5, None, vec![false], "a b".into()));
}
