//! A server with an exact schedule: the first token so long after the request, each other so long after the one before.
//!
//! One thread, one task a connection. Prompts count a token a word, and `EXTRA` for what a template would add.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Tokens that it counts beside the words.
pub(crate) const EXTRA: usize = 3;

/// When tokens come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) ttft: Duration,
    pub(crate) itl: Duration,
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, schedule: Schedule) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(stream.set_nodelay(true));
        tokio::spawn(connection(stream, schedule));
    }
}

/// Starts a server on a free port, in a thread of its own; its address.
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

async fn connection(mut stream: TcpStream, schedule: Schedule) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let (path, body) = request(&mut stream, &mut buffer).await?;
        answer(&mut stream, &path, &body, schedule).await?;
    }
}

/// The next request: its path and body.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, serde_json::Value)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            let length =
                head.split("content-length:").nth(1)?.split_whitespace().next()?.parse::<usize>().ok()?;
            if buffer.len() >= end + 4 + length {
                let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).ok()?;
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
    for k in 0..tokens {
        tokio::time::sleep_until(start + schedule.ttft + schedule.itl * k as u32).await;
        stream.write_all(token.as_bytes()).await.ok()?;
    }
    stream.write_all(end.as_bytes()).await.ok()
}
