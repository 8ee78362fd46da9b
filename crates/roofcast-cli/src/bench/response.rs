//! An answer as it comes in: bytes and the times they were read, to tokens and how it ended.
//!
//! Knows: what adds up to a [`Record`]'s times and counts, for streams and whole answers, with bounds on what is kept.
//! Pure: it is fed bytes and never sees a socket.

use super::dialect::{self, Chunk, DONE, Usage};
use super::stream::{Event, Events};
use roofcast::record::Outcome;
use roofcast::units::Picoseconds;
use std::collections::BTreeMap;

/// The most bytes of a whole answer, and of a stream beside what its tokens take.
const MOST_BYTES: u64 = 64 << 20;

/// The most bytes that a streamed token may take in the mean.
const MOST_TOKEN_BYTES: u64 = 64 << 10;

/// The most choices of one request.
const MOST_CHOICES: u32 = 128;

/// Why an answer is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Its kind.
    pub(super) outcome: Outcome,
    /// In words.
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Failure {
        Failure { outcome, message: message.into() }
    }
}

/// An answer so far.
#[derive(Debug)]
pub(super) struct Response {
    streamed: bool,
    keep_text: bool,
    /// Tokens that were asked for, all choices together.
    asked: u64,
    choices: u64,
    events: Events,
    body: Vec<u8>,
    bytes: u64,
    done: bool,
    all_had_length: bool,
    finished: u64,
    chunks: u64,
    named: u64,
    /// When each choice last brought tokens.
    last: Vec<Option<Picoseconds>>,
    /// When the first token came.
    pub(super) first_token: Option<Picoseconds>,
    /// When the last one did.
    pub(super) last_token: Option<Picoseconds>,
    /// Gaps between chunks of one choice.
    pub(super) itl: Vec<Picoseconds>,
    /// Token counts as the server has them; `completion_tokens` of the whole answer.
    pub(super) usage: Option<Usage>,
    /// Tokens of each choice, where the server counts them apart.
    counted: BTreeMap<u32, u64>,
    /// What was said, where it is kept.
    pub(super) text: String,
}

impl Response {
    /// An answer of `asked` tokens in each of `choices`.
    pub(super) fn new(streamed: bool, keep_text: bool, asked: u64, choices: u64) -> Response {
        Response {
            streamed,
            keep_text,
            asked: asked.saturating_mul(choices),
            choices,
            events: Events::default(),
            body: Vec::new(),
            bytes: 0,
            done: false,
            all_had_length: true,
            finished: 0,
            chunks: 0,
            named: 0,
            last: Vec::new(),
            first_token: None,
            last_token: None,
            itl: Vec::new(),
            usage: None,
            counted: BTreeMap::new(),
            text: String::new(),
        }
    }

    /// Takes bytes that were read at `at`.
    pub(super) fn feed(&mut self, bytes: &[u8], at: Picoseconds) -> Result<(), Failure> {
        self.bytes += bytes.len() as u64;
        let tokens = if self.streamed { self.asked.saturating_mul(MOST_TOKEN_BYTES) } else { 0 };
        if self.bytes > MOST_BYTES.saturating_add(tokens) {
            return Err(Failure::new(
                Outcome::TooLarge,
                format!("an answer of more than {} bytes", self.bytes),
            ));
        }
        if !self.streamed {
            self.body.extend_from_slice(bytes);
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        let mut broken = None;
        let fed = events.feed(bytes, &mut |event| {
            if broken.is_none() {
                broken = self.event(event, at).err();
            }
        });
        self.events = events;
        settle(fed.is_err(), broken)
    }

    /// Whether nothing more is to come.
    pub(super) fn is_over(&self) -> bool {
        self.done
    }

    /// The body has ended: whether the answer is whole.
    pub(super) fn end(&mut self, at: Picoseconds) -> Result<(), Failure> {
        if !self.streamed {
            let chunk = dialect::read(&self.body, self.keep_text)
                .map_err(|e| Failure::new(Outcome::Malformed, format!("{e} in {}", shown(&self.body))))?;
            self.take(chunk, at)?;
            self.first_token = None;
            return self.whole();
        }
        let mut events = std::mem::take(&mut self.events);
        let mut broken = None;
        let fed = events.end(&mut |event| {
            if broken.is_none() {
                broken = self.event(event, at).err();
            }
        });
        settle(fed.is_err(), broken)?;
        self.whole()
    }

    fn whole(&self) -> Result<(), Failure> {
        if self.done || self.finished >= self.choices.max(1) {
            return Ok(());
        }
        let message = format!("the answer ended after {} chunks without a finish", self.chunks);
        Err(Failure::new(Outcome::Disconnected, message))
    }

    /// Tokens that came: the server's own count; else what was asked where every choice ran to that length; else those
    /// that chunks name; else one a chunk.
    pub(super) fn output_len(&self) -> u64 {
        let counted = self.usage.map(|u| u.completion_tokens).filter(|n| *n > 0);
        let ran_out = self.all_had_length && self.finished > 0 && self.finished >= self.choices;
        counted.or(ran_out.then_some(self.asked)).unwrap_or(self.named.max(self.chunks))
    }

    fn event(&mut self, event: Event, at: Picoseconds) -> Result<(), Failure> {
        let data = match event {
            Event::Data(data) => data,
            Event::Error(data) => {
                let message = dialect::read(data, false).ok().and_then(|c| c.error);
                return Err(Failure::new(Outcome::StreamError, message.unwrap_or_else(|| shown(data))));
            }
        };
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data.trim_ascii() == DONE {
            self.done = true;
            return Ok(());
        }
        let chunk = dialect::read(data, self.keep_text)
            .map_err(|e| Failure::new(Outcome::Malformed, format!("{e} in {}", shown(data))))?;
        self.take(chunk, at)
    }

    fn take(&mut self, chunk: Chunk, at: Picoseconds) -> Result<(), Failure> {
        if let Some(message) = chunk.error {
            return Err(Failure::new(Outcome::StreamError, message));
        }
        for (choice, named) in &chunk.tokens {
            self.tokens(checked(*choice)?, *named, at);
        }
        for length in &chunk.finished {
            self.finished += 1;
            self.all_had_length &= length;
        }
        if let Some(usage) = chunk.usage {
            self.count(usage, chunk.usage_of)?;
        }
        self.text.push_str(&chunk.text);
        Ok(())
    }

    /// Takes the server's count: of one choice, or of all.
    fn count(&mut self, usage: Usage, of: Option<u32>) -> Result<(), Failure> {
        let completion_tokens = match of {
            Some(choice) => {
                checked(choice)?;
                self.counted.insert(choice, usage.completion_tokens);
                self.counted.values().fold(0, |all, n| n.saturating_add(all))
            }
            None => usage.completion_tokens,
        };
        self.usage = Some(Usage { completion_tokens, ..usage });
        Ok(())
    }

    fn tokens(&mut self, choice: usize, named: Option<u64>, at: Picoseconds) {
        if self.last.len() <= choice {
            self.last.resize(choice + 1, None);
        }
        if let Some(before) = self.last.get_mut(choice).and_then(|last| last.replace(at)) {
            self.itl.push(Picoseconds(at.0.saturating_sub(before.0)));
        }
        self.first_token.get_or_insert(at);
        self.last_token = Some(at);
        self.chunks += 1;
        self.named = self.named.saturating_add(named.unwrap_or(1));
    }
}

/// The index of a choice, if there can be so many.
fn checked(choice: u32) -> Result<usize, Failure> {
    if choice < MOST_CHOICES {
        return Ok(choice as usize);
    }
    Err(Failure::new(Outcome::Malformed, format!("a choice with index {choice}")))
}

fn settle(too_long: bool, broken: Option<Failure>) -> Result<(), Failure> {
    let too_long = too_long
        .then(|| Failure::new(Outcome::TooLarge, format!("a line above {} bytes", super::stream::MOST_LINE)));
    broken.or(too_long).map_or(Ok(()), Err)
}

/// The start of what came, for a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..200).unwrap_or(bytes)).into_owned();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What an answer added up to: tokens, chunks with tokens, the time of the first, gaps, prompt tokens, how it ended.
    type Read = (u64, u64, Option<u64>, Vec<u64>, u64, Option<Outcome>);

    /// Feeds `body` in `pieces` of so many bytes, the rest in one; the k-th piece is read at k ps.
    fn read(body: &[u8], pieces: &[usize], asked: u64, choices: u64) -> Read {
        let mut answer = Response::new(true, false, asked, choices);
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

    /// The body of a recorded response. Lengths of HTTP chunks, where they were kept, are no fields of an event.
    fn capture(name: &str) -> Option<Vec<u8>> {
        let text = crate::bench::testing::capture(name)?;
        let (head, body) = text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1"), "{name}");
        Some(body.as_bytes().to_vec())
    }

    /// Counted in the recordings by eye: name, tokens asked, choices; tokens, chunks with tokens, prompt tokens.
    const STREAMS: [(&str, u64, u64, u64, u64, u64); 18] = [
        ("llama-chat-stream-contusage", 4, 1, 4, 4, 25),
        ("llama-chat-stream-nousage", 4, 1, 4, 4, 0),
        ("llama-chat-stream-usage", 8, 1, 8, 8, 29),
        ("llama-cmpl-stream-logprobs", 3, 1, 3, 3, 2),
        ("llama-cmpl-stream-n2", 4, 2, 8, 8, 3),
        ("llama-cmpl-stream-stop", 9, 1, 1, 1, 2),
        ("llama-cmpl-stream-tokenids", 5, 1, 5, 5, 5),
        ("llama-cmpl-stream-usage", 8, 1, 8, 8, 3),
        // The first chunk has the role alone; the second names " something".
        ("vllm-chat-stream-contusage", 4, 1, 4, 4, 13),
        // 1 + 4 + 4 + 4 + 1 tokens.
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
            let Some(body) = capture(name) else { return };
            let found = read(&body, &[], asked, choices);
            assert_eq!((found.0, found.1, found.4, found.5), (tokens, chunks, prompt, None), "{name}");
            // A first token has no gap before it, of each choice.
            assert_eq!(found.3.len() as u64, chunks - choices, "{name}");
        }
    }

    #[test]
    fn recorded_streams_are_the_same_wherever_they_are_cut() {
        for (name, asked, choices, ..) in STREAMS {
            let Some(body) = capture(name) else { return };
            let whole = read(&body, &[], asked, choices);
            for cut in 0..=body.len() {
                let found = read(&body, &[cut], asked, choices);
                let same = |r: &Read| (r.0, r.1, r.3.len(), r.4, r.5);
                assert_eq!(same(&found), same(&whole), "{name} cut at {cut}");
            }
        }
    }

    #[test]
    fn recorded_whole_answers() {
        for (name, tokens, prompt, cached) in [
            ("llama-chat-nostream", 4, 25, 20),
            ("llama-cmpl-nostream", 4, 3, 1),
            ("vllm-chat-nostream", 4, 13, 0),
            ("vllm-cmpl-nostream", 4, 2, 0),
        ] {
            let Some(body) = capture(name) else { return };
            let mut answer = Response::new(false, false, 4, 1);
            body.chunks(7).for_each(|piece| answer.feed(piece, Picoseconds(1)).unwrap());
            assert_eq!(answer.end(Picoseconds(2)), Ok(()), "{name}");
            let usage = answer.usage.unwrap();
            let found = (answer.output_len(), usage.prompt_tokens, usage.cached_tokens);
            assert_eq!((found, answer.first_token), ((tokens, prompt, cached), None), "{name}");
        }
    }

    /// One chunk of the completions endpoint.
    fn chunk(text: &str) -> String {
        format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":null}}]}}\n\n")
    }

    #[test]
    fn times_are_those_of_the_reads() {
        let (a, b) = (chunk("a"), chunk("b"));
        let end = "data: [DONE]\n\n";
        // Read at 0: half a chunk. At 1: its end and a whole one. At 2: a keep-alive. At 3: one more and the end.
        let body = format!("{a}{b}: ping\n\n{b}{end}");
        let found = read(body.as_bytes(), &[10, a.len() - 10 + b.len(), 8], 9, 1);
        assert_eq!(found, (3, 3, Some(1), vec![0, 2], 0, None));
    }

    #[test]
    fn reasoning_tools_and_special_tokens_are_tokens() {
        let delta = |d: &str| {
            format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{d},\"finish_reason\":null}}]}}\n\n")
        };
        for (text, tokens) in [
            (r#"{"role":"assistant","content":null}"#, 0),
            (r#"{"role":"assistant","content":""}"#, 0),
            (r#"{"role":"assistant","content":"a"}"#, 1),
            (r#"{"reasoning_content":"hm"}"#, 1),
            (r#"{"reasoning":"hm","content":null}"#, 1),
            (r#"{"tool_calls":[{"index":0}]}"#, 1),
            (r#"{"content":""}"#, 1),
            ("{}", 0),
        ] {
            let body = delta(text) + "data: [DONE]\n\n";
            assert_eq!(read(body.as_bytes(), &[], 9, 1).1, tokens, "{text}");
        }
    }

    #[test]
    fn what_is_no_answer() {
        let a = chunk("a");
        for (body, outcome) in [
            (
                format!("{a}data: {{\"error\":{{\"message\":\"busy\",\"code\":500}}}}\n\n"),
                Outcome::StreamError,
            ),
            (format!("{a}error: {{\"code\":500,\"message\":\"x\"}}\n\n"), Outcome::StreamError),
            (format!("{a}event: error\ndata: out of memory\n\n"), Outcome::StreamError),
            ("data: {\"object\":\"error\",\"message\":\"no\"}\n\n".into(), Outcome::StreamError),
            (format!("{a}data: {{\"choices\n\n"), Outcome::Malformed),
            ("data: 7\n\n".into(), Outcome::Malformed),
            ("data: {}\n\n".into(), Outcome::Malformed),
            (a.replace("\"index\":0", "\"index\":4000000000"), Outcome::Malformed),
            (a.clone(), Outcome::Disconnected),
            (String::new(), Outcome::Disconnected),
        ] {
            assert_eq!(read(body.as_bytes(), &[], 9, 1).5, Some(outcome), "{body}");
        }
    }

    proptest! {
        /// Any bytes, in any pieces: the same end, and no panic.
        #[test]
        fn anything_ends(body in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(0_usize..40, 0..9)) {
            let (whole, pieces) = (read(&body, &[], 3, 1), read(&body, &cuts, 3, 1));
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
            let body: String = kinds.iter().map(|k| parts[*k].as_str()).chain(["data: [DONE]\n\n"]).collect();
            let tokens = kinds.iter().filter(|k| [0, 1, 5].contains(*k)).count() as u64;
            let found = read(body.as_bytes(), &cuts, 9, 1);
            let expected = if kinds.contains(&3) { 3 } else { tokens };
            prop_assert_eq!((found.0, found.1, found.5), (expected, tokens, None));
        }
    }
}
