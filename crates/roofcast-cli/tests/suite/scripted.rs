//! A server whose answers a test scripts: right, wrong or none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request as the server received it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
}

/// Requests received so far, shared with the test.
pub(crate) type Seen = Arc<Mutex<Vec<Asked>>>;

/// Starts a server; `reply` gets the number of the request and the connection, and closes the connection by returning
/// false.
pub(crate) fn start(
    reply: impl Fn(usize, &mut dyn Stream) -> bool + Send + Sync + 'static,
) -> (String, Seen) {
    start_reading(move |n, _, stream| reply(n, stream))
}

/// Starts a server whose `reply` also sees the request.
pub(crate) fn start_reading(
    reply: impl Fn(usize, &Asked, &mut dyn Stream) -> bool + Send + Sync + 'static,
) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let (reply, kept, count) = (Arc::new(reply), Arc::clone(&seen), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (reply, seen, count) = (Arc::clone(&reply), Arc::clone(&kept), Arc::clone(&count));
            std::thread::spawn(move || serve(stream, &*reply, &seen, &count));
        }
    });
    (url, seen)
}

/// Starts a server whose `reply` gets true for the first request of a connection.
pub(crate) fn start_first(
    reply: impl Fn(bool, &mut dyn Stream) -> bool + Send + Sync + 'static,
) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (seen, reply) = (Seen::default(), Arc::new(reply));
    let kept = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (reply, seen) = (Arc::clone(&reply), Arc::clone(&kept));
            std::thread::spawn(move || {
                let reply = |n, _: &Asked, stream: &mut dyn Stream| reply(n == 0, stream);
                serve(stream, &reply, &seen, &AtomicUsize::new(0));
            });
        }
    });
    (url, seen)
}

/// Starts a server with TLS, with a certificate for 127.0.0.1 that the authority `tests/fixtures/tls/ca.pem` signed.
pub(crate) fn start_tls(reply: impl Fn(usize, &mut dyn Stream) -> bool + Send + 'static) -> String {
    let file = |name: &str| crate::support::root().join("crates/roofcast-cli/tests/fixtures/tls").join(name);
    let chain = CertificateDer::pem_file_iter(file("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let reply = |n, _: &Asked, stream: &mut dyn Stream| reply(n, stream);
            serve(StreamOwned::new(session, stream), &reply, &Seen::default(), &AtomicUsize::new(0));
        }
    });
    url
}

/// A connection, plain or TLS.
pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Answers the requests of one connection until `reply` closes it.
pub(crate) fn serve(
    mut stream: impl Stream,
    reply: &dyn Fn(usize, &Asked, &mut dyn Stream) -> bool,
    seen: &Seen,
    count: &AtomicUsize,
) {
    let mut buffer = Vec::new();
    while let Some(asked) = next(&mut stream, &mut buffer) {
        seen.lock().unwrap().push(asked.clone());
        if !reply(count.fetch_add(1, Ordering::SeqCst), &asked, &mut stream) {
            return;
        }
    }
}

fn next(stream: &mut impl Stream, buffer: &mut Vec<u8>) -> Option<Asked> {
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            let length = head.split("content-length:").nth(1).and_then(|t| t.split_whitespace().next());
            let length: usize = length.map_or(0, |t| t.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).unwrap_or_default();
                buffer.drain(..end + 4 + length);
                return Some(Asked { head, body });
            }
        }
        let read = stream.read(&mut piece).ok().filter(|n| *n > 0)?;
        buffer.extend_from_slice(&piece[..read]);
    }
}

/// Head of a response that is an event stream.
pub(crate) const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One chunk of HTTP's chunked encoding.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// The event of one token of the completions endpoint, in a chunk of its own.
pub(crate) fn token() -> String {
    chunk("data: {\"choices\":[{\"index\":0,\"text\":\" a\",\"finish_reason\":null}]}\n\n")
}

/// Writes a JSON answer in one piece.
pub(crate) fn tells(body: &str, stream: &mut dyn Stream) -> bool {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
    stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes()).is_ok()
}

/// Writes a correct answer of two tokens without token counts.
pub(crate) fn uncounted(stream: &mut dyn Stream) -> bool {
    let end = chunk(
        "data: {\"choices\":[{\"index\":0,\"text\":\" b\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
    );
    stream.write_all(format!("{HEAD}{}{end}0\r\n\r\n", token()).as_bytes()).is_ok()
}

/// Writes a correct answer of two tokens with token counts.
pub(crate) fn good(stream: &mut dyn Stream) -> bool {
    let usage = chunk(
        "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n\
         data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
    );
    stream.write_all(format!("{HEAD}{}{}{usage}0\r\n\r\n", token(), token()).as_bytes()).is_ok()
}

/// Address of an unused port, which refuses connections.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
