//! Clients that vanish, read nothing or send too much, and the end of a server.

use super::recorded::begin;
use super::{Server, TINY, read};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const LONG: &str = r#"{"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true}"#;

/// Whoever goes away is taken out of the engine, and its blocks are free.
#[test]
fn a_client_that_vanishes_is_aborted() {
    let server = Server::start(TINY, "--time-scale 0.2");
    let mut streams: Vec<_> = (0..3).map(|_| begin(&server, LONG)).collect();
    let whole = begin(&server, &LONG.replace(", \"stream\": true", ""));
    server.until("vllm:num_requests_running", |n| n == 4.0);
    // One goes in the middle of its stream, one before it has read anything, one that asked for a whole answer.
    let mut piece = [0; 512];
    assert!(streams[0].read(&mut piece).unwrap() > 0);
    drop(streams);
    drop(whole);
    server.until("vllm:num_requests_running", |n| n == 0.0);
    server.until("vllm:kv_cache_usage_perc", |n| n == 0.0);
    let aborted =
        "vllm:request_success_total{engine=\"0\",model_name=\"Qwen/Qwen3-0.6B\",finished_reason=\"abort\"}";
    assert_eq!(server.metric(aborted), 4.0);
}

/// Answers under way are said to their end, new connections are refused, and the exit code is 0.
#[test]
fn a_server_that_is_told_to_stop_ends_what_it_began() {
    let mut server = Server::start(TINY, "--time-scale 0.5");
    let body = r#"{"prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": true}"#;
    let stream = begin(&server, body);
    server.until("vllm:num_requests_running", |n| n == 1.0);
    server.signal("TERM");
    let answer = read(stream);
    assert_eq!(answer.events().len(), 200);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = server.process.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    assert!(std::net::TcpStream::connect(&server.address).is_err());
}

/// A body of 100 MB is refused before it is read, chunked or not; heads without end, too. The server lives on.
#[test]
fn too_much_is_refused() {
    let server = Server::start(TINY, "--max-body 1");
    let head = "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n";
    let told = server.raw(&format!("{head}content-length: 100000000\r\n\r\n"), b"");
    assert_eq!(told.status, 413);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "a".repeat(1 << 16));
    let untold =
        server.raw(&format!("{head}transfer-encoding: chunked\r\n\r\n"), chunk.repeat(32).as_bytes());
    assert_eq!(untold.status, 413);
    let flood = "x-filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(20_000);
    let flooded = server.raw(&format!("{head}{flood}\r\n"), b"");
    assert!([0, 400, 431].contains(&flooded.status), "{}", flooded.head);
    let nested = "[".repeat(100_000);
    for broken in
        ["", "nonsense", "[1]", "{\"prompt\": 3}", "{\"prompt\": {}}", nested.as_str(), "\"\\ud800\""]
    {
        let answer = server.post("/v1/completions", broken);
        assert_eq!(answer.status, 400, "{broken:.30}: {}", answer.body);
    }
    // Half a request is no request.
    let mut half = server.connect();
    half.write_all(format!("{head}content-length: 50\r\n\r\n{{\"pro").as_bytes()).unwrap();
    drop(half);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.metric("vllm:num_requests_running"), 0.0);
}

/// Idle connections cost nobody else anything.
#[test]
fn idle_connections_do_not_hurt() {
    let server = Server::start(TINY, "");
    let idle: Vec<_> = (0..500).map(|_| server.connect()).collect();
    assert_eq!(server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": 4}"#).status, 200);
    drop(idle);
}
