//! Connections: accepted, bounded in what they may send and how long, drained at the end.
//!
//! Knows: HTTP/1.1 as hyper has it, time limits, shutdown. Knows nothing about what is asked.

use super::patient::Patient;
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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// How long a connection may be idle or take to send its head; vLLM's server closes idle ones, too.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// How long a client may take nothing of what is written.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a head.
const MOST_HEAD: usize = 64 << 10;
/// How long to wait where the system has no more connections to give.
const PAUSE: Duration = Duration::from_millis(20);

/// Among the extensions of a response: its connection is cut before a byte of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut")
    }
}

impl Error for Cut {}

/// What answers requests.
pub(crate) trait Service: Send + Sync + 'static {
    /// The bodies of its answers.
    type Sent: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request, one way or the other.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Self::Sent>> + Send;
}

/// Serves until `stop` says so, then until all that was asked is answered, at most for `drain`.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Arc<impl Service>,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) {
    // Held by every connection: when all are gone, nothing more can be received.
    let (open, mut closed) = mpsc::channel::<()>(1);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    drop(stream.set_nodelay(true));
                    let connection = connection(stream, Arc::clone(&service), stop.clone());
                    let held = open.clone();
                    tokio::spawn(async move {
                        connection.await;
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
    drop(tokio::time::timeout(drain, closed.recv()).await);
}

async fn connection(stream: TcpStream, service: Arc<impl Service>, mut stop: watch::Receiver<bool>) {
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
    let mut connection =
        pin!(builder.serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), handler));
    // What ends a connection early is its client's affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.changed() => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}
