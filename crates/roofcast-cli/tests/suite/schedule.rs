//! A server with an exact schedule: fixed times from the request to the first token, and from each token to the next.
//!
//! Knows: one thread serves, with one task per connection. The server counts one token for each word of a prompt, and
//! `EXTRA` for a template. `GET /kept` reports how closely the schedule was kept, because timers and a busy machine
//! make any server late.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Tokens that the server counts in addition to a prompt's words.
pub(crate) const EXTRA: usize = 3;

/// Times at which tokens are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) ttft: Duration,
    pub(crate) itl: Duration,
}

/// Adherence to the schedule: numbers of first tokens and of gaps, and the sums of their times.
#[derive(Debug, Default)]
struct Kept {
    firsts: u32,
    first: Duration,
    gaps: u32,
    gap: Duration,
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, schedule: Schedule) {
    let kept = Arc::new(Mutex::new(Kept::default()));
    while let Ok((stream, _)) = listener.accept().await {
        drop(stream.set_nodelay(true));
        tokio::spawn(connection(stream, schedule, Arc::clone(&kept)));
    }
}

/// Starts a server on a free port, on its own thread; returns its address.
#[allow(dead_code)] // the example listens itself
pub(crate) fn start(schedule: Schedule) -> String {
    let (port, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
            let listener = socket.listen(4096).unwrap();
            port.send(listener.local_addr().unwrap()).unwrap();
            serve(listener, schedule).await;
        });
    });
    format!("http://{}", started.recv().unwrap())
}

async fn connection(mut stream: TcpStream, schedule: Schedule, kept: Arc<Mutex<Kept>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let (path, body) = request(&mut stream, &mut buffer).await?;
        if path == "/kept" {
            let told = told(&kept.lock().unwrap());
            stream.write_all(told.as_bytes()).await.ok()?;
        } else {
            answer(&mut stream, &path, &body, schedule, &kept).await?;
        }
    }
}

/// Reads the next request: its path and body.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, serde_json::Value)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            let length = head.split("content-length:").nth(1).and_then(|t| t.split_whitespace().next());
            let length = length.map_or(Some(0), |t| t.parse::<usize>().ok())?;
            if buffer.len() >= end + 4 + length {
                let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).unwrap_or_default();
                buffer.drain(..end + 4 + length);
                return Some((head.split_whitespace().nth(1)?.to_owned(), body));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

async fn answer(
    stream: &mut TcpStream,
    path: &str,
    body: &serde_json::Value,
    schedule: Schedule,
    kept: &Mutex<Kept>,
) -> Option<()> {
    let start = Instant::now();
    let tokens = body["max_tokens"].as_u64()?;
    let prompt = body["prompt"].as_str().or_else(|| body["messages"][0]["content"].as_str())?;
    let counted = prompt.split_whitespace().count() + EXTRA;
    let usage = format!(
        "\"usage\":{{\"prompt_tokens\":{counted},\"total_tokens\":{},\"completion_tokens\":{tokens}}}",
        counted as u64 + tokens
    );
    let chat = path.contains("chat");
    let said = if chat { "\"delta\":{\"content\":\" word\"}" } else { "\"text\":\" word\"" };
    let object = if chat { "chat.completion.chunk" } else { "text_completion" };
    let frame = "\"id\":\"cmpl-b210eebda69c2af7\",\"created\":1795228738,\"model\":\"m\"";
    let token = format!(
        "data: {{{frame},\"object\":\"{object}\",\"choices\":[{{\"index\":0,{said},\"logprobs\":null,\
         \"finish_reason\":null,\"stop_reason\":null,\"prompt_token_ids\":null,\"token_ids\":null}}]}}\n\n"
    );
    let token = format!("{:x}\r\n{token}\r\n", token.len());
    let end = format!("data: {{{frame},\"object\":\"{object}\",\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n");
    let end = format!("{:x}\r\n{end}\r\n0\r\n\r\n", end.len());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
        transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut last = start;
    for k in 0..tokens {
        tokio::time::sleep_until(start + schedule.ttft + schedule.itl * k as u32).await;
        stream.write_all(token.as_bytes()).await.ok()?;
        kept.lock().unwrap().add(k, last.elapsed());
        last = Instant::now();
    }
    stream.write_all(end.as_bytes()).await.ok()
}

impl Kept {
    fn add(&mut self, k: u64, after: Duration) {
        if k == 0 {
            self.firsts += 1;
            self.first += after;
        } else {
            self.gaps += 1;
            self.gap += after;
        }
    }
}

/// Mean times actually kept, as a JSON response.
fn told(kept: &Kept) -> String {
    let mean = |sum: Duration, count: u32| sum.as_secs_f64() * 1e3 / f64::from(count.max(1));
    let (ttft, itl) = (mean(kept.first, kept.firsts), mean(kept.gap, kept.gaps));
    let body = format!("{{\"mean_ttft_ms\":{ttft},\"mean_itl_ms\":{itl}}}");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
