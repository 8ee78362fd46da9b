//! `roofcast emulate` as a process, and helpers that send requests to it.

use crate::support::{file, root};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server, stopped when it is dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    /// Address of the first port; the next field has the addresses of all ports.
    pub(crate) address: String,
    pub(crate) addresses: Vec<String>,
    /// Addresses at which KV events are published and replayed.
    pub(crate) kv_events: Vec<String>,
    _folder: tempfile::TempDir,
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A small and fast deployment: a decode step takes some milliseconds, the context is 4096 tokens.
pub(crate) const TINY: &str = "[model]\nname = \"Qwen/Qwen3-0.6B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\n\
    cost = \"limit\"\nmax_model_len = 4096\n";

/// Seconds of one advance of a stopped clock: about five decode steps of [`TINY`].
const QUANTUM: f64 = 0.002;

impl Server {
    pub(crate) fn start(spec: &str, flags: &str) -> Server {
        Server::start_on(1, spec, flags)
    }

    /// Starts a server that listens on `ports` ports.
    pub(crate) fn start_on(ports: usize, spec: &str, flags: &str) -> Server {
        let (folder, path) = file("spec.toml", spec.as_bytes());
        let mut process = Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["emulate", &path, "--port", "0"])
            .args(flags.split_whitespace())
            .current_dir(root())
            .env("KEY_OF_THE_TEST", "secret")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut kv_events, mut addresses) = (Vec::new(), Vec::new());
        for line in BufReader::new(process.stdout.as_mut().unwrap()).lines().map_while(Result::ok) {
            kv_events.extend(line.strip_prefix("KV events at ").map(str::to_owned));
            let address = line.strip_prefix("listening on ").and_then(|url| url.split_once("://"));
            addresses.extend(address.map(|(_, address)| address.to_owned()));
            if addresses.len() == ports {
                break;
            }
        }
        assert_eq!(addresses.len(), ports, "it listens on {addresses:?}");
        Server { process, address: addresses[0].clone(), addresses, kv_events, _folder: folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends `head` and `body` unchanged; returns everything that arrives until the server closes or the response is
    /// complete.
    pub(crate) fn raw(&self, head: &str, body: &[u8]) -> HttpResponse {
        let mut stream = self.connect();
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse the request before all of the body is sent.
        _ = stream.write_all(body);
        read(stream)
    }

    pub(crate) fn get(&self, path: &str) -> HttpResponse {
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"), b"")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> HttpResponse {
        self.post_with(path, body, "")
    }

    pub(crate) fn post_with(&self, path: &str, body: &str, headers: &str) -> HttpResponse {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{headers}\r\n"
        );
        self.raw(&head, body.as_bytes())
    }

    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find(|line| line.starts_with(sample) && !line.starts_with('#'));
        line.unwrap_or_else(|| panic!("no {sample}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until `holds` is true for the value of a metric.
    pub(crate) fn until(&self, sample: &str, holds: impl Fn(f64) -> bool) {
        let start = Instant::now();
        while !holds(self.metric(sample)) {
            assert!(start.elapsed() < Duration::from_secs(30), "{sample} is {}", self.metric(sample));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Advances the server's stopped clock (`--time-scale 0`).
    pub(crate) fn advance(&self, seconds: f64) {
        let body = format!("{{\"advance_seconds\": {seconds}}}");
        assert_eq!(self.post("/admin/clock", &body).status, 200);
    }

    /// Advances the stopped clock until `holds` is true for the value of a metric.
    pub(crate) fn advance_until(&self, sample: &str, holds: impl Fn(f64) -> bool) {
        let start = Instant::now();
        while !holds(self.metric(sample)) {
            assert!(start.elapsed() < Duration::from_secs(60), "{sample} is {}", self.metric(sample));
            self.advance(QUANTUM);
        }
    }

    /// Does `work` on another thread, and advances the stopped clock until it is done.
    pub(crate) fn advancing<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            while !work.is_finished() {
                self.advance(QUANTUM);
            }
            work.join().unwrap()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Reads a response to its end, and decodes its chunks.
pub(crate) fn read(mut stream: TcpStream) -> HttpResponse {
    let mut bytes = Vec::new();
    _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { dechunked(rest) } else { rest.to_owned() };
    HttpResponse { status, head: head.to_owned(), body }
}

/// A body without its chunked encoding.
pub(crate) fn dechunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The events of a stream, without `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let events: Vec<&str> = data.collect();
        assert_eq!(events.last(), Some(&"[DONE]"), "{}", self.body);
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

pub(crate) fn begin(server: &Server, body: &str) -> std::net::TcpStream {
    use std::io::Write;
    let mut stream = server.connect();
    let length = body.len();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
    stream
}

/// Sends a request for a stream, and waits until its response begins: the server has chosen an engine then.
pub(crate) fn accepted(server: &Server, body: &str) -> TcpStream {
    let stream = begin(server, body);
    assert!(stream.peek(&mut [0]).unwrap() > 0);
    stream
}
