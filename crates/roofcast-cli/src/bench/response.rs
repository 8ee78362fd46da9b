//! An answer as it arrives: from bytes and the times at which they were read, to tokens and an outcome.
//!
//! Knows: how a [`Record`]'s times and counts accumulate, for streams and whole answers, with bounds on memory. Pure:
//! it receives bytes and times and never sees a socket.

use super::dialect::{self, Chunk, Counts, DONE, Tokens, Usage};
use super::failure::{Failure, shown};
use super::stream::{Event, Events};
use super::target::Endpoint;
use roofcast::record::Outcome;
use roofcast::units::Picoseconds;
use std::collections::BTreeMap;

/// Most bytes of an answer that is not streamed, and of a stream in addition to its tokens.
const MOST_BYTES: u64 = 64 << 20;

/// Most bytes of a streamed token on average.
const MOST_TOKEN_BYTES: u64 = 64 << 10;

/// Most bytes that are kept of a body of unexpected type, to show them in an error.
const MOST_HEAD: usize = 4 << 10;

/// The most choices of one request.
const MOST_CHOICES: u32 = 128;

/// Properties that a request expects of its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) endpoint: Endpoint,
    pub(super) stream: bool,
    pub(super) keep_text: bool,
    /// Output tokens of each choice.
    pub(super) tokens: u64,
    pub(super) choices: u64,
}

/// What a stream shows of an answer that the server counts otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Number of chunks with tokens.
    pub(super) chunks: u64,
    /// Tokens of the first chunk by the server's count, if it counts with every chunk; else 0.
    pub(super) first: u64,
    /// Reasoning tokens that the server counts and the stream does not show.
    pub(super) hidden: u64,
    /// Events without content that the API defines.
    pub(super) passed_over: u64,
}

/// State of an answer that is being received.
#[derive(Debug)]
pub(super) struct Response {
    expected: Expected,
    /// Requested output tokens, over all choices.
    pub(super) asked: u64,
    /// Content type of the body, if it is not the expected one.
    kind: Option<String>,
    /// First bytes of a body with an unexpected type, until an event arrives.
    head: Vec<u8>,
    /// True if an event has arrived.
    spoken: bool,
    events: Events,
    body: Vec<u8>,
    bytes: u64,
    done: bool,
    all_had_length: bool,
    finished: u64,
    chunks: u64,
    named: u64,
    /// Time of the last chunk that may have brought a token but showed no text, until a chunk shows text. It counts as
    /// the time of the first token if no text ever comes.
    unseen: Option<Picoseconds>,
    /// Time at which each choice last received tokens.
    last: Vec<Option<Picoseconds>>,
    /// Time of the first token.
    pub(super) first_token: Option<Picoseconds>,
    /// Time of the last token.
    pub(super) last_token: Option<Picoseconds>,
    /// Gaps between consecutive chunks of one choice, of all choices.
    pub(super) itl: Vec<Picoseconds>,
    /// Token counts reported by the server; `completion_tokens` covers all choices.
    pub(super) usage: Option<Usage>,
    /// Counts of the events so far, if several of one answer report them.
    counts: Counts,
    /// Tokens of the first chunk, by a count that came with it.
    first: u64,
    /// True if the stream showed reasoning.
    reasoned: bool,
    passed_over: u64,
    /// Tokens of each choice, if the server counts them separately.
    counted: BTreeMap<u32, u64>,
    /// Text of the answer, if it is kept.
    pub(super) text: String,
}

impl Response {
    pub(super) fn new(expected: Expected) -> Response {
        Response {
            expected,
            asked: expected.tokens.saturating_mul(expected.choices),
            kind: None,
            head: Vec::new(),
            spoken: false,
            events: Events::default(),
            body: Vec::new(),
            bytes: 0,
            done: false,
            all_had_length: true,
            finished: 0,
            chunks: 0,
            named: 0,
            unseen: None,
            last: Vec::new(),
            first_token: None,
            last_token: None,
            itl: Vec::new(),
            usage: None,
            counts: Counts::default(),
            first: 0,
            reasoned: false,
            passed_over: 0,
            counted: BTreeMap::new(),
            text: String::new(),
        }
    }

    /// Records an unexpected content type, which an error names if the body is not a stream either.
    pub(super) fn called(&mut self, kind: String) {
        self.kind = Some(kind);
    }

    /// Processes bytes that were read at time `at`.
    pub(super) fn feed(&mut self, bytes: &[u8], at: Picoseconds) -> Result<(), Failure> {
        self.bytes += bytes.len() as u64;
        let tokens = if self.expected.stream { self.asked.saturating_mul(MOST_TOKEN_BYTES) } else { 0 };
        if self.bytes > MOST_BYTES.saturating_add(tokens) {
            return Err(Failure::new(
                Outcome::TooLarge,
                format!("an answer of more than {} bytes", self.bytes),
            ));
        }
        if !self.expected.stream {
            self.body.extend_from_slice(bytes);
            return Ok(());
        }
        if self.kind.is_some() && !self.spoken {
            let room = MOST_HEAD.saturating_sub(self.head.len()).min(bytes.len());
            self.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
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

    /// True if the answer is complete and no more events are expected.
    pub(super) fn is_over(&self) -> bool {
        self.done
    }

    /// Processes the end of the body; an error if the answer is incomplete.
    pub(super) fn end(&mut self, at: Picoseconds) -> Result<(), Failure> {
        if !self.expected.stream {
            let chunk = self.read(&self.body)?;
            self.take(chunk, at)?;
            self.whole(at)?;
            self.first_token = None;
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        let mut broken = None;
        let fed = events.end(&mut |event| {
            if broken.is_none() {
                broken = self.event(event, at).err();
            }
        });
        settle(fed.is_err(), broken)?;
        self.whole(at)
    }

    /// The failure for a body without events: an error in it keeps its message.
    fn not_a_stream(&self) -> Failure {
        let failure = self.read(&self.head).ok().and_then(|chunk| chunk.failure);
        failure.unwrap_or_else(|| {
            let kind = self.kind.as_deref().unwrap_or("none");
            let body = shown(&self.head);
            let message =
                format!("content type {kind} without an event; accepted: text/event-stream: {body}");
            Failure::new(Outcome::Malformed, message)
        })
    }

    /// Checks that the ended answer is complete: it reached its end and has at least one token.
    fn whole(&mut self, at: Picoseconds) -> Result<(), Failure> {
        if !self.spoken && !self.head.is_empty() {
            return Err(self.not_a_stream());
        }
        let wanted = self.expected.choices.max(1);
        // Some servers end without a finish when they have sent all that was requested.
        let came = self.counted_tokens().unwrap_or(self.named.max(self.chunks));
        let complete = self.done && (came == 0 || came >= self.asked);
        if self.finished < wanted && !complete {
            let message = match (wanted, self.chunks) {
                (1, chunks) => format!("the answer ended after {chunks} chunks without a finish"),
                (_, chunks) => {
                    format!(
                        "the answer ended after {chunks} chunks with a finish of {} of {wanted} choices",
                        self.finished
                    )
                }
            };
            return Err(Failure::new(Outcome::Disconnected, message));
        }
        if self.chunks > 0 || !self.expected.endpoint.generates() {
            return Ok(());
        }
        // A single special token or half a character is counted by the server and shows no text.
        if self.counted_tokens().is_none() && !self.ran_out() {
            return Err(Failure::new(Outcome::Empty, "the answer ended without a token"));
        }
        self.first_token = self.unseen.or(Some(at));
        self.last_token = self.first_token;
        self.chunks = 1;
        Ok(())
    }

    /// Output tokens by the server's own count.
    pub(super) fn counted_tokens(&self) -> Option<u64> {
        self.usage.map(|u| u.completion_tokens).filter(|n| *n > 0)
    }

    /// True if every choice ended because it reached its token limit.
    fn ran_out(&self) -> bool {
        self.all_had_length && self.finished > 0 && self.finished >= self.expected.choices
    }

    /// Reasoning tokens that the server counts and the stream does not show.
    fn hidden(&self) -> u64 {
        let usage = self.usage.filter(|_| self.expected.stream && !self.reasoned && self.chunks > 0);
        usage.map_or(0, |usage| usage.reasoning_tokens.min(usage.completion_tokens.saturating_sub(1)))
    }

    /// Tokens and events of the stream that differ from the server's counts.
    pub(super) fn shown(&self) -> Shown {
        Shown { chunks: self.chunks, first: self.first, hidden: self.hidden(), passed_over: self.passed_over }
    }

    /// Received output tokens that the stream shows: without hidden reasoning.
    pub(super) fn output_len(&self) -> u64 {
        self.generated() - self.hidden()
    }

    /// Generated output tokens: the server's own count; else the requested number if every choice reached it; else the
    /// number that chunks state; else one per chunk.
    pub(super) fn generated(&self) -> u64 {
        let ran_out = self.ran_out().then_some(self.asked);
        self.counted_tokens().or(ran_out).unwrap_or(self.named.max(self.chunks))
    }

    /// Parses an event's data or a whole body.
    fn read(&self, data: &[u8]) -> Result<Chunk, Failure> {
        dialect::read(self.expected.endpoint, data, self.expected.keep_text)
            .map_err(|e| Failure::new(Outcome::Malformed, format!("{e} in {}", shown(data))))
    }

    fn event(&mut self, event: Event, at: Picoseconds) -> Result<(), Failure> {
        self.spoken = true;
        let data = match event {
            Event::Data(data) => data,
            Event::Error(data) => {
                let failure = self.read(data).ok().and_then(|c| c.failure);
                return Err(failure.unwrap_or_else(|| Failure::new(Outcome::StreamError, shown(data))));
            }
        };
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data.trim_ascii() == DONE {
            self.done = true;
            return Ok(());
        }
        let chunk = self.read(data)?;
        self.take(chunk, at)
    }

    fn take(&mut self, chunk: Chunk, at: Picoseconds) -> Result<(), Failure> {
        if let Some(failure) = chunk.failure {
            return Err(failure);
        }
        let before = self.chunks;
        for tokens in &chunk.tokens {
            self.tokens(tokens, at)?;
        }
        self.reasoned |= chunk.reasons;
        self.passed_over += u64::from(chunk.passed_over);
        let named = chunk.tokens.iter().filter_map(|tokens| tokens.named).sum::<u64>();
        if before == 0 && self.chunks == 1 && chunk.finished.is_empty() {
            self.first = chunk.usage.map_or(named, |usage| usage.completion_tokens);
        }
        for length in &chunk.finished {
            self.finished += 1;
            self.all_had_length &= length;
        }
        if let Some(usage) = chunk.usage {
            self.count(usage, chunk.usage_of)?;
        }
        if let Some(counts) = chunk.counts {
            self.counts = self.counts.merged(counts);
            self.usage = Some(Usage::from(&self.counts));
        }
        self.text.push_str(&chunk.text);
        Ok(())
    }

    /// Stores the server's count: for choice `of`, or for all choices together.
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

    fn tokens(&mut self, tokens: &Tokens, at: Picoseconds) -> Result<(), Failure> {
        let choice = checked(tokens.choice)?;
        if self.last.len() <= choice {
            self.last.resize(choice + 1, None);
        }
        // Gateways open their stream with an empty chunk before the first token.
        if tokens.unseen && self.last.get(choice).is_none_or(Option::is_none) {
            self.unseen = Some(at);
            return Ok(());
        }
        if let Some(before) = self.last.get_mut(choice).and_then(|last| last.replace(at)) {
            self.itl.push(Picoseconds(at.0.saturating_sub(before.0)));
        }
        self.first_token.get_or_insert(at);
        self.last_token = Some(at);
        self.chunks += 1;
        self.named = self.named.saturating_add(tokens.named.unwrap_or(1));
        Ok(())
    }
}

/// The index of a choice, if it is within bounds.
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

#[cfg(test)]
mod tests;
