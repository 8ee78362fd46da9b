//! Clients that vanish, read nothing or send too much, and the end of a server.

use super::soak::resident;
use super::{Server, TINY, begin, read};
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

const LONG: &str = r#"{"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true}"#;

/// The request of a vanished client is removed from the engine, and its blocks are freed; vLLM's metrics do not count
/// it.
#[test]
fn a_client_that_vanishes_is_aborted() {
    let server = Server::start(TINY, "--time-scale 0.2");
    let mut streams: Vec<_> = (0..3).map(|_| begin(&server, LONG)).collect();
    let whole = begin(&server, &LONG.replace(", \"stream\": true", ""));
    server.until("vllm:num_requests_running", |n| n == 4.0);
    // One client vanishes within its stream, one before it has read anything, one that asked for an answer in one
    // piece.
    let mut piece = [0; 512];
    assert!(streams[0].read(&mut piece).unwrap() > 0);
    drop(streams);
    drop(whole);
    server.until("vllm:num_requests_running", |n| n == 0.0);
    server.until("vllm:kv_cache_usage_perc", |n| n == 0.0);
    let aborted =
        "vllm:request_success_total{engine=\"0\",model_name=\"Qwen/Qwen3-0.6B\",finished_reason=\"abort\"}";
    assert_eq!(server.metric(aborted), 0.0);
}

/// On SIGTERM, answers in progress are completed, new connections are refused, and the exit code is 0.
#[test]
fn a_server_that_is_told_to_stop_ends_what_it_began() {
    let mut server = Server::start(TINY, "--time-scale 0.5");
    let body = r#"{"prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": true}"#;
    let stream = begin(&server, body);
    server.until("vllm:num_requests_running", |n| n == 1.0);
    let id = server.process.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
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

/// A log that is read no more, as after `| head -1`, ends no server; a disk that is full before the address is out is said by exit code 2.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let mut server = Server::start(TINY, "");
    drop(server.process.stdout.take());
    let body = r#"{"prompt": "a", "max_tokens": 4}"#;
    for _ in 0..3 {
        assert_eq!(server.post("/v1/completions", body).status, 200);
    }
    assert!(server.process.try_wait().unwrap().is_none());

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["emulate", "--model", "Qwen/Qwen3-0.6B", "--hardware", "h100-sxm", "--port", "0"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("No space left"));
}

/// A body of 100 MB, chunked or not, is refused before it is read, and so is a head without end. The server keeps
/// running.
#[test]
fn too_much_is_refused() {
    let server = Server::start(TINY, "--max-body 1");
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
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
    // Half a request is not a request.
    let mut half = server.connect();
    half.write_all(format!("{head}content-length: 50\r\n\r\n{{\"pro").as_bytes()).unwrap();
    drop(half);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.metric("vllm:num_requests_running"), 0.0);
}

/// Number of connections that this machine allows a process, minus a reserve for the test itself.
fn connections(most: u64) -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft = line.split_whitespace().nth(3).and_then(|limit| limit.parse().ok()).unwrap_or(most);
    most.min(soft.saturating_sub(500))
}

/// 10,000 idle connections, if the machine allows as many, and a hundred that have sent half a head do not disturb
/// other clients, and take bounded memory: a connection has its buffers (8 KiB for reading) and its state.
#[test]
#[allow(clippy::print_stderr)] // fewer connections are said
fn idle_connections_do_not_hurt() {
    let server = Server::start(TINY, "");
    let body = r#"{"prompt": "a", "max_tokens": 4}"#;
    assert_eq!(server.post("/v1/completions", body).status, 200);
    let before = resident(&server);
    let count = connections(10_000);
    if count < 10_000 {
        eprintln!("with {count} connections: the machine allows no more");
    }
    let mut idle: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for stream in idle.iter_mut().take(100) {
        stream.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-half").unwrap();
    }
    assert_eq!(server.post("/v1/completions", body).status, 200);
    let each = resident(&server).saturating_sub(before) / count;
    assert!(each < 32, "{each} kB a connection");
    drop(idle);
    assert_eq!(server.get("/health").status, 200);
}

/// A client that reads nothing does not disturb others: its request ends in the engine, and others are served.
#[test]
fn a_client_that_reads_nothing_does_not_hurt() {
    let server = Server::start(TINY, "--time-scale 5");
    let silent: Vec<_> = (0..20).map(|_| begin(&server, LONG)).collect();
    server.until("vllm:generation_tokens_total", |n| n > 20.0);
    assert_eq!(server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": 4}"#).status, 200);
    server.until("vllm:num_requests_running", |n| n == 0.0);
    assert_eq!(server.metric("vllm:generation_tokens_total"), 20.0 * 2000.0 + 4.0);
    drop(silent);
}
