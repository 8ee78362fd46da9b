//! Connections: accepted, limited in size and time of requests, drained at the end.
//!
//! Knows: HTTP/1.1 by hyper, TLS below it, time limits, shutdown. Knows nothing about the content of requests.

use crate::patient::Patient;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Longest idle time of a connection, and longest time to receive a request's head; vLLM's server has such a limit,
/// too.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// Longest time for which a client may read nothing of a response.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of a request's head.
const MOST_HEAD: usize = 64 << 10;
/// Pause before the next accept if the system cannot open more connections.
const PAUSE: Duration = Duration::from_millis(20);

/// Extension of a response which asks to cut the connection before the first byte of the response.
#[derive(Debug, Clone, Copy)]
pub struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut")
    }
}

impl Error for Cut {}

/// Handler of requests.
pub trait Service: Send + Sync + 'static {
    /// Type of the response bodies.
    type Sent: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request; an error is a response, too.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Self::Sent>> + Send;
}

/// Serves until `stop` fires, over TLS if there is an acceptor. Then waits until all requests are answered, for at most
/// `drain`.
pub async fn serve(
    listener: TcpListener,
    service: Arc<impl Service>,
    tls: Option<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) {
    // Every connection holds a sender; the receiver ends when all of them are closed.
    let (open, mut closed) = mpsc::channel::<()>(1);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    drop(stream.set_nodelay(true));
                    let service = Arc::clone(&service);
                    let tls = tls.clone();
                    let stop = stop.clone();
                    let held = open.clone();
                    tokio::spawn(async move {
                        let stream = Patient::new(stream, PATIENCE);
                        match tls {
                            None => connection(stream, service, stop).await,
                            Some(tls) => {
                                // A handshake that fails or takes too long affects only its client.
                                if let Ok(Ok(stream)) = timeout(HEAD_TIME, tls.accept(stream)).await {
                                    connection(stream, service, stop).await;
                                }
                            }
                        }
                        drop(held);
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            _ = stop.changed() => break,
        }
    }
    drop(listener);
    drop(open);
    drop(timeout(drain, closed.recv()).await);
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: Arc<impl Service>,
    mut stop: watch::Receiver<bool>,
) {
    let handler = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move {
            let response = service.answer(request).await;
            match response.extensions().get::<Cut>() {
                Some(cut) => Err(*cut),
                None => Ok(response),
            }
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MOST_HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), handler));
    // An error here means that the client ended the connection early, which needs no report.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.changed() => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}
