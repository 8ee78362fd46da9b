//! The body of a response: in one piece, or a stream that follows the engine.
//!
//! Knows: a stream is written when the connection has room, from the tokens released so far; a client that disconnects
//! aborts its request. Knows nothing about the text.

use super::dialect::Dialect;
use super::metrics::Answering;
use super::outlet::{Failure, Out, Outlet, Progress};
use super::refusal::Refusal;
use super::replica::EngineHandle;
use super::wire::Writer;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

/// Body type of every response.
pub(crate) type Sent = Either<Full<Bytes>, Stream>;

/// Error that breaks off the body of a request whose answer the engine aborted.
#[derive(Debug)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the engine gave the request up")
    }
}

impl std::error::Error for Broken {}

impl From<std::convert::Infallible> for Broken {
    fn from(never: std::convert::Infallible) -> Broken {
        match never {}
    }
}

/// Token of a request in progress, which `/load` counts until the token is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicU64>);

impl Counted {
    pub(crate) fn new(count: &Arc<AtomicU64>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests in an engine; dropping this value aborts them, because their client is gone.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Engines that may hold the requests.
    pub(crate) engines: Vec<Arc<EngineHandle>>,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) numbers: Vec<u64>,
    pub(crate) over: bool,
    /// Token by which `/load` counts the requests.
    pub(crate) _counted: Counted,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.over {
            self.outlet.leave();
            for engine in &self.engines {
                self.numbers.iter().for_each(|number| engine.abort(*number));
            }
        }
    }
}

/// A streamed answer.
#[derive(Debug)]
pub struct Stream {
    in_flight: InFlight,
    writer: Writer,
    out: Vec<Out>,
    /// Number of tokens after which the connection is cut, if a fault asks for it.
    cut: Option<u64>,
    /// True if the bytes before the cut had time to be sent.
    flushed: bool,
    /// The request in the metrics of HTTP, which count it when the stream is dropped.
    pub(crate) answering: Option<Answering>,
}

impl Stream {
    pub(crate) fn new(in_flight: InFlight, writer: Writer, cut: Option<u64>) -> Stream {
        let out = vec![Out::default(); in_flight.numbers.len()];
        Stream { in_flight, writer, out, cut, flushed: false, answering: None }
    }

    /// True if enough tokens are released to cut the connection.
    fn is_cut(&self) -> bool {
        let sent_tokens: u64 = self.out.iter().map(|out| out.tokens).sum();
        self.cut.is_some_and(|cut| sent_tokens >= cut)
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let stream = self.get_mut();
        if stream.in_flight.over {
            return Poll::Ready(None);
        }
        if stream.is_cut() {
            if !std::mem::replace(&mut stream.flushed, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err(Broken)));
        }
        let mut bursts = Vec::new();
        let progress = ready!(stream.in_flight.outlet.poll(&mut stream.out, &mut bursts, cx));
        let mut bytes = stream.writer.begin();
        stream.writer.write(&stream.out, &bursts, &mut bytes);
        match progress {
            Progress::Open => {}
            Progress::Ended => {
                stream.writer.end(&stream.out, &mut bytes);
                stream.in_flight.over = true;
            }
            Progress::Failed(Failure::Overflow) => {
                let error = Refusal::overflow().written(Dialect::LlamaCpp);
                bytes.extend(format!("data: {error}\n\n").as_bytes());
                stream.in_flight.over = true;
            }
            Progress::Failed(Failure::Aborted) => {
                stream.in_flight.over = true;
                return Poll::Ready(Some(Err(Broken)));
            }
        }
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.in_flight.over
    }
}
