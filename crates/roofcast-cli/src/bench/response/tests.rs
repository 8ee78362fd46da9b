use super::*;
use proptest::prelude::*;

fn expected(stream: bool, tokens: u64, choices: u64) -> Expected {
    Expected { endpoint: Endpoint::Chat, stream, keep_text: false, tokens, choices }
}

/// Result of an answer: tokens, chunks with tokens, time of the first token in ps, gaps in ps, prompt tokens, failure.
type Read = (u64, u64, Option<u64>, Vec<u64>, u64, Option<Outcome>);

/// Feeds `body` in `pieces` of these sizes, and the rest as one piece; the k-th piece is read at k ps.
fn read(body: &[u8], pieces: &[usize], asked: u64, choices: u64) -> Read {
    let mut answer = Response::new(expected(true, asked, choices));
    let mut rest = body;
    let mut failure = None;
    for (at, size) in pieces.iter().chain([&usize::MAX]).enumerate() {
        let (piece, next) = rest.split_at((*size).min(rest.len()));
        rest = next;
        failure = failure.or(answer.feed(piece, Picoseconds(at as u64)).err());
    }
    failure = failure.or(answer.end(Picoseconds(99)).err());
    let gaps = answer.itl.iter().map(|t| t.0).collect();
    let prompt = answer.usage.map_or(0, |u| u.prompt_tokens);
    let first = answer.first_token.map(|t| t.0);
    (answer.output_len(), answer.chunks, first, gaps, prompt, failure.map(|f| f.outcome))
}

/// The body of a recorded response, without the chunk lengths of HTTP's chunked encoding, which some recordings kept.
fn capture(name: &str) -> Vec<u8> {
    let text = crate::bench::testing::capture(name);
    let (head, body) = text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n")).unwrap();
    assert!(head.starts_with("HTTP/1.1"), "{name}");
    body.as_bytes().to_vec()
}

/// Recorded streams and their counts, counted by eye: name, requested tokens, choices; tokens, chunks with tokens,
/// prompt tokens.
const STREAMS: [(&str, u64, u64, u64, u64, u64); 18] = [
    ("llama-chat-stream-contusage", 4, 1, 4, 4, 25),
    ("llama-chat-stream-nousage", 4, 1, 4, 4, 0),
    ("llama-chat-stream-usage", 8, 1, 8, 8, 29),
    ("llama-cmpl-stream-logprobs", 3, 1, 3, 3, 2),
    ("llama-cmpl-stream-n2", 4, 2, 8, 8, 3),
    ("llama-cmpl-stream-stop", 9, 1, 1, 1, 2),
    ("llama-cmpl-stream-tokenids", 5, 1, 5, 5, 5),
    ("llama-cmpl-stream-usage", 8, 1, 8, 8, 3),
    // The first chunk has only the role; the second has " something".
    ("vllm-chat-stream-contusage", 4, 1, 4, 4, 13),
    // Chunks of 1 + 4 + 4 + 4 + 1 tokens.
    ("vllm-chat-stream-interval4", 14, 1, 14, 5, 13),
    ("vllm-chat-stream-nousage", 4, 1, 4, 4, 0),
    ("vllm-chat-stream-usage", 8, 1, 8, 8, 15),
    ("vllm-cmpl-stream-interval4-raw", 14, 1, 14, 5, 2),
    ("vllm-cmpl-stream-logprobs", 3, 1, 3, 3, 0),
    ("vllm-cmpl-stream-n2", 4, 2, 8, 8, 2),
    ("vllm-cmpl-stream-stop", 9, 1, 1, 1, 1),
    ("vllm-cmpl-stream-tokenids", 5, 1, 5, 5, 5),
    ("vllm-cmpl-stream-usage", 8, 1, 8, 8, 2),
];

#[test]
fn recorded_streams_of_vllm_and_llama_cpp() {
    for (name, asked, choices, tokens, chunks, prompt) in STREAMS {
        let body = capture(name);
        let parsed = read(&body, &[], asked, choices);
        assert_eq!((parsed.0, parsed.1, parsed.4, parsed.5), (tokens, chunks, prompt, None), "{name}");
        // A choice's first token has no gap before it.
        assert_eq!(parsed.3.len() as u64, chunks - choices, "{name}");
    }
}

#[test]
fn recorded_streams_are_the_same_wherever_they_are_cut() {
    for (name, asked, choices, ..) in STREAMS {
        let body = capture(name);
        let whole = read(&body, &[], asked, choices);
        for cut in 0..=body.len() {
            let parsed = read(&body, &[cut], asked, choices);
            let same = |r: &Read| (r.0, r.1, r.3.len(), r.4, r.5);
            assert_eq!(same(&parsed), same(&whole), "{name} cut at {cut}");
        }
    }
}

#[test]
fn recorded_whole_answers() {
    for (name, tokens, prompt, cached) in [
        ("llama-chat-nostream", 4, 25, Some(20)),
        ("llama-cmpl-nostream", 4, 3, Some(1)),
        ("vllm-chat-nostream", 4, 13, None),
        ("vllm-cmpl-nostream", 4, 2, None),
    ] {
        let body = capture(name);
        let mut answer = Response::new(expected(false, 4, 1));
        body.chunks(7).for_each(|piece| answer.feed(piece, Picoseconds(1)).unwrap());
        assert_eq!(answer.end(Picoseconds(2)), Ok(()), "{name}");
        let usage = answer.usage.unwrap();
        let usages = (answer.output_len(), usage.prompt_tokens, usage.cached_tokens);
        assert_eq!((usages, answer.first_token), ((tokens, prompt, cached), None), "{name}");
    }
}

/// One chunk of the completions endpoint.
fn chunk(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":null}}]}}\n\n")
}

#[test]
fn times_are_those_of_the_reads() {
    let a = chunk("a");
    let b = chunk("b");
    let end = finish("stop", "") + "data: [DONE]\n\n";
    // Read at 0: half a chunk. At 1: its other half and a whole one. At 2: a keep-alive. At 3: one more and the end.
    let body = format!("{a}{b}: ping\n\n{b}{end}");
    let parsed = read(body.as_bytes(), &[10, a.len() - 10 + b.len(), 8], 9, 1);
    assert_eq!(parsed, (3, 3, Some(1), vec![0, 2], 0, None));
}

#[test]
fn reasoning_tools_and_special_tokens_are_tokens() {
    let delta =
        |d: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{d},\"finish_reason\":null}}]}}\n\n");
    for (text, tokens) in [
        (r#"{"role":"assistant","content":null}"#, 0),
        (r#"{"role":"assistant","content":""}"#, 0),
        (r#"{"role":"assistant","content":"a"}"#, 1),
        (r#"{"reasoning_content":"hm"}"#, 1),
        (r#"{"reasoning":"hm","content":null}"#, 1),
        (r#"{"tool_calls":[{"index":0}]}"#, 1),
        // An empty text before the first token may be the opening of a stream; after a token it is another token.
        (r#"{"content":""}"#, 0),
        (
            r#"{"content":"a"},"finish_reason":null}]}

data: {"choices":[{"delta":{"content":""}"#,
            2,
        ),
        (r#"{"function_call":{"name":"f","arguments":"{"}}"#, 1),
        (r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#, 1),
        (r#"{"content":"a\ud83d"}"#, 1),
        (r#"{"reasoning_text":"hm"}"#, 1),
        (r#"{"audio":{"id":"1","transcript":"a"}}"#, 1),
        (r#"{"audio":{"id":"1"}}"#, 0),
        (r#"{"reasoning_details":[{"type":"reasoning.text","text":"hm"}]}"#, 1),
        (r#"{"annotations":[{"url":"a"}],"content":null}"#, 0),
        (r#"{"content":"a"},"message":{"role":"assistant","content":"a"}"#, 1),
        ("{}", 0),
    ] {
        let body = delta(text) + "data: [DONE]\n\n";
        assert_eq!(read(body.as_bytes(), &[], 9, 1).1, tokens, "{text}");
    }
}

/// Of two choices one never ends, or both do.
#[test]
fn a_lost_choice_is_a_failure() {
    let end = |choice: u32| {
        format!("data: {{\"choices\":[{{\"index\":{choice},\"text\":\"\",\"finish_reason\":\"stop\"}}]}}\n\n")
    };
    let done = "data: [DONE]\n\n";
    let lost = format!("{}{}{done}", chunk("a"), end(0));
    assert_eq!(read(lost.as_bytes(), &[], 9, 2).5, Some(Outcome::Disconnected));
    let both = format!("{}{}{}{done}", chunk("a"), end(0), end(1));
    assert_eq!(read(both.as_bytes(), &[], 9, 2).5, None);
}

/// Eight tokens, of which four are reasoning that is not streamed; a first chunk of three tokens; an event of nobody's API.
#[test]
fn counts_and_streams_that_differ() {
    let answer = |body: &str| {
        let mut answer = Response::new(expected(true, 8, 1));
        answer.feed(body.as_bytes(), Picoseconds(1)).unwrap();
        answer.end(Picoseconds(2)).unwrap();
        (answer.output_len(), answer.generated(), answer.shown())
    };
    let delta = |text: &str, usage: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]{usage}}}\n\n")
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let hidden = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":8,\"completion_tokens_details\":{\"reasoning_tokens\":4}}}\n\n";
    let four = delta("a", "").repeat(4);
    let shown = Shown { chunks: 4, hidden: 4, ..Shown::default() };
    assert_eq!(answer(&format!("{four}{end}{hidden}")), (4, 8, shown));
    let reasoning = delta("a", "").replace("content", "reasoning_text");
    assert_eq!(answer(&format!("{reasoning}{four}{end}{hidden}")).0, 8);
    let first = delta("a b c", ",\"usage\":{\"completion_tokens\":3}");
    let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\n";
    let bundled =
        answer(&format!("data: {{\"progress\":1}}\n\n{first}{}{end}{usage}", delta("d", "").repeat(2)));
    assert_eq!(bundled, (5, 5, Shown { chunks: 3, first: 3, hidden: 0, passed_over: 1 }));
}

/// A chunk that ends the answer, with further `keys` in its choice.
fn finish(reason: &str, keys: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"\",\"finish_reason\":\"{reason}\"{keys}}}]}}\n\n")
}

#[test]
fn what_is_no_answer() {
    let a = chunk("a");
    for (body, outcome) in [
        (format!("{a}data: {{\"error\":{{\"message\":\"busy\",\"code\":500}}}}\n\n"), Outcome::StreamError),
        (format!("{a}error: {{\"code\":500,\"message\":\"x\"}}\n\n"), Outcome::StreamError),
        (format!("{a}event: error\ndata: out of memory\n\n"), Outcome::StreamError),
        ("data: {\"object\":\"error\",\"message\":\"no\"}\n\n".into(), Outcome::StreamError),
        (format!("{a}data: {{\"choices\n\n"), Outcome::Malformed),
        ("data: 7\n\n".into(), Outcome::Malformed),
        ("data: {}\n\n".into(), Outcome::Disconnected),
        (a.replace("\"index\":0", "\"index\":4000000000"), Outcome::Malformed),
        (a.clone(), Outcome::Disconnected),
        (format!("{a}data: [DONE]\n\n"), Outcome::Disconnected),
        (String::new(), Outcome::Disconnected),
        ("data: [DONE]\n\n".into(), Outcome::Empty),
        (format!("{a}{}", finish("abort", "")), Outcome::Aborted),
        (format!("{a}{}", finish("error", "")), Outcome::StreamError),
        (
            format!("{a}{}", finish("stop", ",\"error\":{\"code\":502,\"message\":\"x\"}")),
            Outcome::StreamError,
        ),
    ] {
        assert_eq!(read(body.as_bytes(), &[], 9, 1).5, Some(outcome), "{body}");
    }
}

proptest! {
    /// Any bytes, cut into any pieces, give equal results and no panic.
    #[test]
    fn anything_ends(body in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(0_usize..40, 0..9)) {
        let whole = read(&body, &[], 3, 1);
        let pieces = read(&body, &cuts, 3, 1);
        prop_assert_eq!((whole.0, whole.1, whole.5), (pieces.0, pieces.1, pieces.5));
    }

    /// Chunks, comments and errors in any order and any pieces.
    #[test]
    fn any_stream_in_any_pieces(
        kinds in proptest::collection::vec(0_usize..6, 0..12),
        cuts in proptest::collection::vec(0_usize..90, 0..20),
    ) {
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n";
        let parts = [chunk("a"), chunk("\\n"), ": ping\r\n\r\n".into(), usage.into(), "id: 3\n".into(), chunk("")];
        let end = finish("stop", "") + "data: [DONE]\n\n";
        let body: String = kinds.iter().map(|k| parts[*k].as_str()).chain([end.as_str()]).collect();
        // Empty chunks before the first one with text are not tokens.
        let shown = kinds.iter().skip_while(|k| ![0, 1].contains(*k));
        let tokens = shown.filter(|k| [0, 1, 5].contains(*k)).count() as u64;
        let parsed = read(body.as_bytes(), &cuts, 9, 1);
        let expected = match (kinds.contains(&3), tokens) {
            (true, _) => (3, tokens.max(1), None),
            (false, 0) => (0, 0, Some(Outcome::Empty)),
            (false, _) => (tokens, tokens, None),
        };
        prop_assert_eq!((parsed.0, parsed.1, parsed.5), expected);
    }
}
