//! HTTP/1.1 connections that record the time of each read.
//!
//! Knows: connecting, TLS, keeping connections for the next request, and the classification of failures. Bytes are
//! stamped when they are read from the socket, before they are parsed. Knows nothing about their contents.

use super::clock::Clock;
use super::failure::{Failure, shown};
use super::target::Target;
use super::{proxy, tls};
use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming as Body;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::http::response::Parts;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use roofcast::record::Outcome;
use roofcast::units::Picoseconds;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Size of a connection's read buffer in bytes, which bounds a message's head and a piece of a body.
const MOST_BUFFER: usize = 64 << 10;

/// Statuses of a refusal that ends after a while: too many requests, unavailable, Anthropic's overloaded.
const AGAIN: [u16; 3] = [429, 503, 529];

/// Least wait before a request is repeated.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// Most bytes that are read of an error's body.
const MOST_MESSAGE: usize = 4 << 10;

/// A stream that records the time of each read.
struct Stamped<S> {
    inner: TokioIo<S>,
    clock: Clock,
    at: Arc<AtomicU64>,
    /// Time of the latest read on any connection of the client.
    any: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> Read for Stamped<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context, buf: ReadBufCursor) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if polled.is_ready() {
            let now = self.clock.now().0;
            self.at.store(now, Ordering::Relaxed);
            self.any.store(now, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> Write for Stamped<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// An open connection, with the time of its latest read.
pub(super) struct Connection {
    send: SendRequest<Full<Bytes>>,
    wire: Wire,
}

/// Driver of a connection's bytes. The task that waits for a response polls it itself, rather than a task of its own,
/// so that sent bytes reach the wire at once and received bytes are parsed as soon as they are stamped.
struct Wire {
    moving: Option<Moving>,
    at: Arc<AtomicU64>,
}

type Moving = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

impl Wire {
    /// Polls `what`, which hands over the bytes to send, before it drives the connection, so that they leave at once;
    /// returns the result of `what`.
    async fn sending<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        match std::future::poll_fn(|cx| Poll::Ready(what.as_mut().poll(cx))).await {
            Poll::Ready(out) => out,
            Poll::Pending => self.reading(what).await,
        }
    }

    /// Drives the connection until `what` completes; returns the result of `what`.
    async fn reading<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        std::future::poll_fn(|cx| {
            if self.moving.as_mut().is_some_and(|m| m.as_mut().poll(cx).is_ready()) {
                // The connection has ended; a waiting request gets that error from hyper itself.
                self.moving = None;
            }
            what.as_mut().poll(cx)
        })
        .await
    }

    fn read_at(&self) -> Picoseconds {
        Picoseconds(self.at.load(Ordering::Relaxed))
    }
}

/// A response body that is being read.
pub(super) struct Incoming {
    body: Body,
    pub(super) connection: Connection,
}

impl Incoming {
    /// The next bytes, and the time at which they were read; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<(Bytes, Picoseconds), Failure>> {
        loop {
            let frame = match self.connection.wire.reading(self.body.frame()).await? {
                Ok(frame) => frame,
                Err(e) => return Some(Err(failure(&e))),
            };
            if let Ok(data) = frame.into_data() {
                return Some(Ok((data, self.connection.wire.read_at())));
            }
        }
    }

    /// The first bytes of the body, up to `most`.
    pub(super) async fn head(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(Ok((data, _))) = self.next().await {
            bytes.extend_from_slice(&data);
            if bytes.len() >= most {
                break;
            }
        }
        bytes.truncate(most);
        bytes
    }
}

/// Failure of a connection that ended before a byte of the response.
enum Unsent {
    /// No byte of the request was written.
    Unwritten(Failure),
    /// The request was written, at least in part.
    Written(Failure),
}

/// One server, and the idle connections to it.
pub(super) struct Client {
    target: Target,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    pub(super) clock: Clock,
    idle: Mutex<Vec<Connection>>,
    /// Number of requests that were sent a second time.
    resent: AtomicU64,
    /// Time of the latest read on any connection.
    read: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(target: Target, clock: Clock) -> Result<Client> {
        let tls = if target.tls { Some(tls::connector(&target.host, target.insecure)?) } else { None };
        let resent = AtomicU64::new(0);
        let read = Arc::default();
        Ok(Client { target, tls, clock, idle: Mutex::default(), resent, read })
    }

    /// The server's URL, for messages.
    pub(super) fn url(&self) -> &str {
        &self.target.url
    }

    /// Opens connections ahead of a run, 64 at a time. A failure is ignored here, because the request that then opens a
    /// connection reports it.
    pub(super) async fn open(self: &Arc<Client>, count: usize) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        let mut left = count.saturating_sub(idle);
        while left > 0 {
            let opening: Vec<_> = (0..left.min(64))
                .map(|_| {
                    let client = Arc::clone(self);
                    tokio::spawn(async move { client.connect().await })
                })
                .collect();
            left -= opening.len();
            for one in opening {
                match one.await {
                    Ok(Ok(connection)) => self.keep(connection),
                    _ => return,
                }
            }
        }
    }

    /// Keeps a connection for reuse, after its response was read to the end.
    pub(super) fn keep(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// True if any byte was received after `at`.
    pub(super) fn was_read_since(&self, at: Picoseconds) -> bool {
        self.read.load(Ordering::Relaxed) > at.0
    }

    /// Number of requests that were sent a second time since the last call.
    pub(super) fn take_resent(&self) -> u64 {
        self.resent.swap(0, Ordering::Relaxed)
    }

    /// Sends a request, on a kept connection if there is one, and waits for the head of the response. Servers close
    /// kept connections silently, llama.cpp's after each stream. If one ends after the request was written and before a
    /// response, the server may or may not have seen the request: it is sent once more, on a new connection.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(Parts, Incoming), Failure> {
        loop {
            let idle_connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(connection) = idle_connection else { break };
            match self.send_on(connection, method.clone(), path, body.clone()).await? {
                Ok(answer) => return Ok(answer),
                Err(Unsent::Written(_)) => {
                    self.resent.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(Unsent::Unwritten(_)) => {}
            }
        }
        let fresh = self.connect().await?;
        let sent = self.send_on(fresh, method, path, body).await?;
        sent.map_err(|(Unsent::Written(failure) | Unsent::Unwritten(failure))| failure)
    }

    /// Sends a request on `connection`; the inner error means that the connection had ended.
    async fn send_on(
        &self,
        mut connection: Connection,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Result<(Parts, Incoming), Unsent>, Failure> {
        // Reads first, so that a connection closed by the server meanwhile is noticed here.
        if let Err(e) = connection.wire.reading(connection.send.ready()).await {
            return Ok(Err(Unsent::Unwritten(failure(&e))));
        }
        let request = self.request(method, path, body)?;
        match connection.wire.sending(connection.send.try_send_request(request)).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                Ok(Ok((parts, Incoming { body, connection })))
            }
            Err(mut e) => match (e.take_message(), ended(e.error())) {
                (Some(_), _) => Ok(Err(Unsent::Unwritten(failure(e.error())))),
                (None, true) => Ok(Err(Unsent::Written(failure(e.error())))),
                (None, false) => Err(failure(e.error())),
            },
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{}{path}", self.target.through(), self.target.base))
            .body(Full::new(body))
            .map_err(|e| Failure::new(Outcome::Connect, e.to_string()))?;
        *request.headers_mut() = self.target.headers.clone();
        Ok(request)
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let failed = |e: io::Error| Failure::new(Outcome::Connect, format!("cannot connect: {e}"));
        let proxy = self.target.proxy.as_ref();
        let addresses = proxy.map_or(&self.target.addresses, |proxy| &proxy.addresses);
        let mut stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match &self.tls {
            Some((connector, name)) => {
                if proxy.is_some() {
                    proxy::tunnel(&mut stream, &self.target.authority).await?;
                }
                let secured = connector.connect(name.clone(), stream).await;
                self.speak(secured.map_err(|e| Failure::new(Outcome::Connect, format!("TLS: {e}")))?).await
            }
            None => self.speak(stream).await,
        }
    }

    /// Starts HTTP/1.1 on a connected stream.
    async fn speak<S>(&self, stream: S) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let at = Arc::new(AtomicU64::new(0));
        let any = Arc::clone(&self.read);
        let io = Stamped { inner: TokioIo::new(stream), clock: self.clock, at: Arc::clone(&at), any };
        let (send, connection) = Builder::new()
            .max_buf_size(MOST_BUFFER)
            .handshake(io)
            .await
            .map_err(|e| Failure::new(Outcome::Connect, e.to_string()))?;
        Ok(Connection { send, wire: Wire { moving: Some(Box::pin(connection)), at } })
    }
}

/// The operating system's error behind `error`, if there is one.
fn kind(error: &hyper::Error) -> Option<ErrorKind> {
    error.source().and_then(|e| e.downcast_ref::<io::Error>()).map(io::Error::kind)
}

/// True if a connection ended before any byte of a response. A server that closes with an unread request in its buffer
/// resets the connection, which therefore counts too.
fn ended(error: &hyper::Error) -> bool {
    let reset = [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe];
    error.is_incomplete_message() || kind(error).is_some_and(|kind| reset.contains(&kind))
}

/// Classifies a failure below the HTTP response.
pub(super) fn failure(error: &hyper::Error) -> Failure {
    let kind = kind(error);
    // hyper's error has no method that identifies this kind, so its text is compared.
    let outcome = if error.to_string().contains("too large") {
        Outcome::TooLarge
    } else if error.is_parse() || matches!(kind, Some(ErrorKind::InvalidData | ErrorKind::InvalidInput)) {
        Outcome::Malformed
    } else {
        Outcome::Disconnected
    };
    let cause = error.source().map_or(String::new(), |e| format!(": {e}"));
    Failure::new(outcome, format!("{error}{cause}"))
}

/// The failure that a response of this status means, with the message of its body.
pub(super) async fn refusal(parts: &Parts, mut body: Incoming) -> Failure {
    let status = parts.status;
    if status.is_redirection() {
        let to = parts.headers.get("location").and_then(|v| v.to_str().ok()).unwrap_or("nowhere");
        return Failure::new(Outcome::HttpStatus, format!("{status} to {to}; redirects are not followed"));
    }
    let message = body.head(MOST_MESSAGE).await;
    let retry_after = if AGAIN.contains(&status.as_u16()) { retry_after(&parts.headers) } else { None };
    let again = retry_after.map_or(String::new(), |wait| {
        format!("; the server asks to wait {} s (Retry-After), which --retry-after does", wait.as_secs_f64())
    });
    Failure {
        retry_after,
        ..Failure::new(Outcome::HttpStatus, format!("{status}: {}{again}", shown(&message)))
    }
}

/// Time to wait by the headers of a refusal: milliseconds, seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str, unit: f64| {
        let seconds = text.parse::<f64>().ok().filter(|n| (0.0..=1e9).contains(n))? * unit;
        Some(Duration::from_secs_f64(seconds))
    };
    let wait = text("retry-after-ms").and_then(|text| seconds(text, 1e-3)).or_else(|| {
        let text = text("retry-after")?;
        let until = || httpdate::parse_http_date(text).ok();
        seconds(text, 1.0).or_else(|| Some(until()?.duration_since(SystemTime::now()).unwrap_or_default()))
    });
    wait.map(|wait| wait.max(LEAST_WAIT))
}
