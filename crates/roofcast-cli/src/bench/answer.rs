//! An answer as it comes in: bytes and the times they were read, to tokens and how it ended.
//!
//! Knows: what adds up to a [`Record`]'s times and counts, for streams and whole answers, with bounds on what is kept.
//! Pure: it is fed bytes and never sees a socket.

use super::dialect::{self, Chunk, DONE, Usage};
use super::stream::{Event, Events};
use roofcast::record::Outcome;
use roofcast::units::Picoseconds;

/// The most bytes of a whole answer, and of a stream beside what its tokens take.
const MOST_BYTES: u64 = 64 << 20;

/// The most bytes that a streamed token may take in the mean.
const MOST_TOKEN_BYTES: u64 = 64 << 10;

/// The most choices of one request.
const MOST_CHOICES: usize = 128;

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
pub(super) struct Answer {
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
    /// Token counts as the server has them.
    pub(super) usage: Option<Usage>,
    /// What was said, where it is kept.
    pub(super) text: String,
}

impl Answer {
    /// An answer of `asked` tokens in each of `choices`.
    pub(super) fn new(streamed: bool, keep_text: bool, asked: u64, choices: u64) -> Answer {
        Answer {
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
        for (index, named) in &chunk.tokens {
            self.tokens(*index as usize, *named, at)?;
        }
        for length in &chunk.finished {
            self.finished += 1;
            self.all_had_length &= length;
        }
        self.usage = chunk.usage.or(self.usage);
        self.text.push_str(&chunk.text);
        Ok(())
    }

    fn tokens(&mut self, choice: usize, named: Option<u64>, at: Picoseconds) -> Result<(), Failure> {
        if choice >= MOST_CHOICES {
            return Err(Failure::new(Outcome::Malformed, format!("a choice with index {choice}")));
        }
        if self.last.len() <= choice {
            self.last.resize(choice + 1, None);
        }
        if let Some(last) = self.last.get_mut(choice) {
            if let Some(before) = last.replace(at) {
                self.itl.push(Picoseconds(at.0.saturating_sub(before.0)));
            }
        }
        self.first_token.get_or_insert(at);
        self.last_token = Some(at);
        self.chunks += 1;
        self.named += named.unwrap_or(1);
        Ok(())
    }
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
