//! Load for a given time: no request is lost, no state remains, memory does not grow.
//!
//! Knows: `ROOFCAST_SOAK_SECONDS` sets the time; the default is 6 seconds.

use super::{Server, TINY};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory of the server's process in kilobytes.
pub(super) fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Acts as one client, which in turn asks for answers in one piece, reads streams and abandons streams; returns the
/// number of abandoned streams.
fn ask(server: &Server, client: u64, round: u64) -> u64 {
    let number = client * 1_000_000 + round;
    let body = format!(
        "{{\"prompt\": [{}, {}, {}], \"max_tokens\": {}, \"ignore_eos\": true, \"stream\": {}}}",
        number % 97,
        number,
        round,
        1 + number % 40,
        !round.is_multiple_of(3)
    );
    let tokens = (1 + number % 40) as usize;
    match round % 3 {
        0 => {
            let answer = server.post("/v1/completions", &body).json();
            assert_eq!(answer["usage"]["completion_tokens"], tokens as u64);
            0
        }
        1 => {
            assert_eq!(server.post("/v1/completions", &body).events().len(), tokens);
            0
        }
        _ => {
            let mut stream = super::begin(server, &body);
            _ = stream.read(&mut [0; 64]);
            1
        }
    }
}

#[test]
fn a_soak_leaves_nothing_behind() {
    let seconds = std::env::var("ROOFCAST_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    // The cache is small, so that requests also wait.
    let server = Server::start(&format!("{TINY}num_gpu_blocks = 300\n"), "--time-scale 5 --max-num-seqs 8");
    let (asked, left) = (AtomicU64::new(0), AtomicU64::new(0));
    let client = |client: u64, end: Instant| {
        let mut round = 0;
        while Instant::now() < end {
            left.fetch_add(ask(&server, client, round), Ordering::Relaxed);
            asked.fetch_add(1, Ordering::Relaxed);
            round += 1;
        }
    };
    let run = |seconds: u64| {
        let end = Instant::now() + Duration::from_secs(seconds);
        std::thread::scope(|scope| (0..6).for_each(|c| drop(scope.spawn(move || client(c, end)))));
    };
    // After the first sixth of the time, memory that is allocated only once is allocated.
    run((seconds / 6).max(1));
    let before = resident(&server);
    run(seconds - (seconds / 6).max(1));
    server.until("vllm:num_requests_running", |n| n == 0.0);
    server.until("vllm:num_requests_waiting{", |n| n == 0.0);
    server.until("vllm:kv_cache_usage_perc", |n| n == 0.0);
    assert_eq!(server.get("/load").json()["server_load"], 0);
    let ended = |reason: &str| {
        let labels = format!("engine=\"0\",model_name=\"Qwen/Qwen3-0.6B\",finished_reason=\"{reason}\"");
        server.metric(&format!("vllm:request_success_total{{{labels}}}")) as u64
    };
    // A client that abandoned a stream may have received all its tokens.
    let (all, gone) = (asked.into_inner(), left.into_inner());
    let whole = ended("length");
    assert!(all - gone <= whole && whole <= all && all > 50, "{whole} of {all} requests, {gone} left");
    assert_eq!(ended("abort"), 0);
    let after = resident(&server);
    assert!(after < before + 16 * 1024, "{before} kB before, {after} kB after {all} requests");
}
