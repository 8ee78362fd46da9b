//! One request, from its sending to its record.
//!
//! Knows: the bytes that are sent, the moment that counts as sent, and that every failure of an answer ends in a
//! record, in time. Knows nothing about other requests.

use super::client::{self, Client, Incoming};
use super::failure::{Failure, shown};
use super::request::Form;
use super::response::{Expected, Response, Shown};
use super::servers::Servers;
use super::turn::Turn;
use bytes::Bytes;
use hyper::Method;
use hyper::http::response::Parts;
use roofcast::record::{Outcome, Record};
use roofcast::units::Picoseconds;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the end of a body after its last event. After it the connection is closed instead of reused.
const GRACE: Duration = Duration::from_secs(1);

/// Longest wait for a tokenizer's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes that are read of a tokenizer's answer.
const MOST_TOKENIZED: usize = 1 << 20;

/// Response of `/tokenize`: vLLM sends a count, llama.cpp a list of tokens.
#[derive(Deserialize)]
struct Tokenized {
    count: Option<u64>,
    tokens: Option<Vec<IgnoredAny>>,
}

/// Settings for sending requests.
pub(super) struct Asker {
    pub(super) servers: Arc<Servers>,
    pub(super) form: Form,
    /// Timeout of a request, from its sending.
    pub(super) timeout: Duration,
    /// True if the answer's text is kept.
    pub(super) keep_text: bool,
}

/// One request to be sent.
pub(super) struct Question {
    pub(super) id: u64,
    pub(super) scheduled: Picoseconds,
    pub(super) input_len: u64,
    pub(super) output_len: u64,
    pub(super) turns: Vec<Turn>,
    /// Keys of the body that the prompt's row has.
    pub(super) keys: Map<String, Value>,
    /// Time after its sending at which the client cancels this request; `None` if it is not cancelled.
    pub(super) given_up_after: Option<Duration>,
    /// Time until which the request is repeated if the server refuses it and names a time to wait; `None` if it is not
    /// repeated.
    pub(super) repeats_until: Option<Picoseconds>,
}

/// Result of a request, with times of the client's clock.
pub(super) struct Asked {
    pub(super) record: Record,
    /// Time at which the answer was over, including the usage chunk and the end of the body.
    pub(super) ended: Picoseconds,
    pub(super) text: String,
    /// Prompt tokens by the server's count.
    pub(super) counted: Option<u64>,
    /// Requested output tokens, over all choices.
    pub(super) tokens_asked: u64,
    /// Generated tokens; the record has those that the stream shows.
    pub(super) generated: u64,
    pub(super) shown: Shown,
    /// True if the server counted the tokens of its answer.
    pub(super) tokens_counted: bool,
    /// True if the server reported the cached part of the prompt.
    pub(super) cache_told: bool,
    /// Number of tries that were refused and repeated.
    pub(super) repeated: u64,
}

impl Asker {
    pub(super) fn new(servers: &Arc<Servers>, form: &Form, timeout: Duration, keep_text: bool) -> Asker {
        Asker { servers: Arc::clone(servers), form: form.clone(), timeout, keep_text }
    }

    /// Sends the request and waits for the answer's end, its failure or the timeout.
    pub(super) async fn ask(&self, question: Question) -> Asked {
        let body = self.form.body(&question.turns, &question.keys, question.output_len);
        let mut answer = Response::new(Expected {
            endpoint: self.form.endpoint,
            stream: self.form.stream,
            keep_text: self.keep_text,
            tokens: self.form.asked(question.output_len),
            choices: self.form.choices,
        });
        let (replica, client) = self.servers.of(question.id);
        let sent = client.clock.now();
        let mut repeated = 0;
        let exchange = self.patient_exchange(client, body, (&question, &mut repeated), &mut answer);
        let patience = question.given_up_after.unwrap_or(self.timeout);
        let ended = tokio::time::timeout(patience, exchange).await.unwrap_or_else(|_| {
            let waited = patience.as_secs_f64();
            Err(match question.given_up_after {
                Some(_) => Failure::new(Outcome::Cancelled, format!("given up after {waited} s, as asked")),
                None => Failure::new(Outcome::Timeout, format!("no end after {waited} s")),
            })
        });
        Asked { repeated, ..self.record(&question, (sent, replica), answer, ended.err()) }
    }

    /// Tokens of a prompt by the server's tokenizer, if it has an endpoint for that.
    pub(super) async fn tokenized(&self, body: Bytes) -> Option<u64> {
        let request = async {
            let (_, client) = self.servers.of(0);
            let (parts, mut incoming) = client.send(Method::POST, "/tokenize", body).await.ok()?;
            parts.status.is_success().then_some(())?;
            let answer: Tokenized = serde_json::from_slice(&incoming.head(MOST_TOKENIZED).await).ok()?;
            answer.count.or(answer.tokens.map(|tokens| tokens.len() as u64))
        };
        tokio::time::timeout(self.timeout.min(PATIENCE), request).await.ok().flatten().filter(|n| *n > 0)
    }

    /// Sends a request until the server takes it, and reads its answer. Between tries it waits for as long as the server
    /// says, or until no try may be made any more.
    async fn patient_exchange(
        &self,
        client: &Client,
        body: Bytes,
        (question, repeated): (&Question, &mut u64),
        answer: &mut Response,
    ) -> Result<(), Failure> {
        loop {
            let ended = self.exchange(client, body.clone(), answer).await;
            let wait = ended.as_ref().err().and_then(|failure| failure.retry_after);
            let Some((wait, until)) = wait.zip(question.repeats_until) else { return ended };
            let left = Picoseconds(until.0.saturating_sub(client.clock.now().0)).seconds();
            tokio::time::sleep(wait.min(Duration::from_secs_f64(left))).await;
            if client.clock.now() >= until {
                return ended;
            }
            *repeated += 1;
        }
    }

    async fn exchange(&self, client: &Client, body: Bytes, answer: &mut Response) -> Result<(), Failure> {
        let path = self.form.endpoint.path();
        let (parts, mut incoming) = client.send(Method::POST, path, body).await?;
        if !parts.status.is_success() {
            return Err(client::refusal(&parts, incoming).await);
        }
        if let Some(kind) = self.accept(&parts)? {
            answer.called(kind);
        }
        while let Some(read) = incoming.next().await {
            let (bytes, at) = read?;
            answer.feed(&bytes, at)?;
            if answer.is_over() {
                finish(client, incoming).await;
                return answer.end(at);
            }
        }
        answer.end(client.clock.now())?;
        client.keep(incoming.connection);
        Ok(())
    }

    /// Refuses compressed bodies. Returns the content type if it is not the one of an event stream: gateways and older
    /// servers send events under other types, or none, so only the body shows if it is a stream.
    fn accept(&self, parts: &Parts) -> Result<Option<String>, Failure> {
        let header = |name: &str| parts.headers.get(name).map(|v| shown(v.as_bytes()));
        if let Some(encoding) = header("content-encoding").filter(|e| e != "identity") {
            return Err(Failure::new(
                Outcome::Malformed,
                format!("a body in {encoding}, which was not requested"),
            ));
        }
        let kind = header("content-type").unwrap_or_else(|| "none".into());
        let expected = kind.to_ascii_lowercase().starts_with("text/event-stream") || !self.form.stream;
        Ok((!expected).then_some(kind))
    }

    fn record(
        &self,
        question: &Question,
        (sent, replica): (Picoseconds, u64),
        answer: Response,
        failure: Option<Failure>,
    ) -> Asked {
        let now = self.servers.clock.now();
        let usage = answer.usage;
        let counted = usage.map(|u| u.prompt_tokens).filter(|n| *n > 0);
        let tokens_counted = answer.counted_tokens().is_some() || answer.asked == 0;
        let finished = if failure.is_some() { now } else { answer.last_token.unwrap_or(now) };
        let generated = answer.generated();
        let shown = answer.shown();
        let record = Record {
            id: question.id,
            outcome: failure.as_ref().map_or(Outcome::Completed, |f| f.outcome),
            input_len: counted.unwrap_or(question.input_len),
            output_len: answer.output_len(),
            scheduled: question.scheduled,
            sent,
            first_token: answer.first_token,
            finished,
            itl: answer.itl,
            cached_tokens: usage.and_then(|u| u.cached_tokens).unwrap_or(0),
            preemptions: 0,
            replica,
            error: failure.map(|f| f.message),
        };
        Asked {
            record,
            ended: now,
            counted,
            tokens_asked: answer.asked,
            generated,
            shown,
            tokens_counted,
            cache_told: usage.is_some_and(|u| u.cached_tokens.is_some()),
            text: answer.text,
            repeated: 0,
        }
    }
}

/// Reads the end of a body, after the last event, so that the connection can be reused.
async fn finish(client: &Client, mut incoming: Incoming) {
    let end = async { while let Some(Ok(_)) = incoming.next().await {} };
    if tokio::time::timeout(GRACE, end).await.is_ok() {
        client.keep(incoming.connection);
    }
}
