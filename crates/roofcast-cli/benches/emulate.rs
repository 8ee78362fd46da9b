//! Cost of `roofcast emulate`: start-up, processor time per streamed token, deviation of token times from the
//! engine's, and whether 2,000 streams keep their pace. `cargo bench -p roofcast-cli --bench emulate`.
//!
//! Processor times are the server's own, from `/proc`, in hundredths of a second; the client runs on the server's
//! machine, and the kernel's part of a token is printed first. `ROOFCAST_BENCH_STREAMS` and `ROOFCAST_BENCH_TOKENS`
//! change the last part's 2,000 streams of 200 tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)] // a benchmark may stop, and prints

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A model whose steps hardly depend on the context: 12 kB of KV cache a token.
const SPEC: &str = "[model]\nname = \"Qwen/Qwen2.5-0.5B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\n\
    cost = \"limit\"\nmax_model_len = 4096\nmax_num_seqs = 4096\nmax_num_batched_tokens = 8192\n";

/// The slowest clock of `--time-scale` that runs.
const SLOWEST: f64 = 0.01;

/// The clock at which a step's time is looked up: one of 1 ms takes 50.
const PROBE: f64 = 0.02;

/// Hundredths of a second in a second: `sysconf(_SC_CLK_TCK)` of Linux.
const TICKS: f64 = 100.0;

struct Server {
    process: Child,
    address: String,
    /// Seconds until it listened.
    startup: f64,
}

impl Server {
    fn start(scale: f64) -> Server {
        let path = std::env::temp_dir().join(format!("roofcast-bench-{}.toml", std::process::id()));
        std::fs::write(&path, SPEC).unwrap();
        let begin = Instant::now();
        let mut process = Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["emulate", path.to_str().unwrap(), "--port", "0", "--time-scale", &scale.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("listening on http://").map(str::to_owned));
        Server { process, address: address.expect("it listens"), startup: begin.elapsed().as_secs_f64() }
    }

    /// Seconds of processor time so far.
    fn processor(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // utime and stime are the 14th and 15th fields, of which two stand before the name's end.
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
    }

    fn metric(&self, name: &str) -> f64 {
        let mut stream = std::net::TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.unwrap_or_else(|| panic!("{name}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// One stream: times of its tokens in seconds since `begin`.
async fn stream(address: String, tokens: usize, number: usize, begin: Instant) -> Vec<f64> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body =
        format!("{{\"prompt\":[{number}],\"max_tokens\":{tokens},\"ignore_eos\":true,\"stream\":true}}");
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut times, mut buffer, mut matched) = (Vec::with_capacity(tokens), vec![0; 4096], 0);
    // Every token's event begins with this, and nothing else has it.
    let mark = b"data: {";
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        if read == 0 {
            break;
        }
        let now = begin.elapsed().as_secs_f64();
        for byte in &buffer[..read] {
            matched = if *byte == mark[matched] { matched + 1 } else { usize::from(*byte == mark[0]) };
            if matched == mark.len() {
                matched = 0;
                times.push(now);
            }
        }
    }
    times
}

/// Runs `count` streams at one time.
fn streams(server: &Server, count: usize, tokens: usize) -> Vec<Vec<f64>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let begin = Instant::now();
    runtime.block_on(async {
        let mut all = JoinSet::new();
        for number in 0..count {
            all.spawn(stream(server.address.clone(), tokens, number, begin));
        }
        all.join_all().await
    })
}

/// Deviation of gaps between tokens from the line through them, on which steps of one batch lie: mean and 99th
/// percentile in milliseconds. The first tokens are skipped, since others still join then.
fn gap_errors(times: &[Vec<f64>]) -> (f64, f64) {
    let gaps =
        times.iter().flat_map(|t| t.windows(2).enumerate().skip(20).map(|(i, w)| (i as f64, w[1] - w[0])));
    let gaps: Vec<(f64, f64)> = gaps.collect();
    let count = gaps.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| gaps.iter().map(of).sum::<f64>() / count;
    let (x, y, xx, xy) = (mean(|g| g.0), mean(|g| g.1), mean(|g| g.0 * g.0), mean(|g| g.0 * g.1));
    let slope = (xy - x * y) / (xx - x * x);
    let mut errors: Vec<f64> =
        gaps.iter().map(|(i, gap)| 1e3 * (gap - (y + slope * (i - x))).abs()).collect();
    errors.sort_by(f64::total_cmp);
    (errors.iter().sum::<f64>() / count, errors[errors.len() * 99 / 100])
}

fn startup() {
    let mut times: Vec<f64> = (0..5).map(|_| Server::start(1.0).startup * 1e3).collect();
    times.sort_by(f64::total_cmp);
    println!(
        "start-up until it listens: {:.0} ms (median of 5, {:.0} to {:.0})",
        times[2], times[0], times[4]
    );
}

/// Seconds of processor time of this thread.
fn thread_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Microseconds of this thread's processor time that sending 280 bytes, about a token's event, on one of 256 connections of
/// the loopback takes: the kernel's part of a token, which no server can do without.
fn bare_send() -> f64 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let pairs: Vec<_> = (0..256)
        .map(|_| {
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_nonblocking(true).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.set_nodelay(true).unwrap();
            (client, server)
        })
        .collect();
    let (mut readers, mut writers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (begin, rounds) = (thread_seconds(), 400);
    let mut buffer = [0; 4096];
    let mut reading = 0.0;
    for _ in 0..rounds {
        writers.iter_mut().for_each(|writer| writer.write_all(&[b'x'; 280]).unwrap());
        let before = thread_seconds();
        readers.iter_mut().for_each(|reader| while reader.read(&mut buffer).is_ok() {});
        reading += thread_seconds() - before;
    }
    1e6 * (thread_seconds() - begin - reading) / f64::from(rounds * 256)
}

/// Prints the cost of a run of streams, with the engine's own figures.
fn run(server: &Server, count: usize, tokens: usize) {
    let (processor, begin) = (server.processor(), Instant::now());
    let times = streams(server, count, tokens);
    let (wall, processor) = (begin.elapsed().as_secs_f64(), server.processor() - processor);
    let said: usize = times.iter().map(Vec::len).sum();
    assert_eq!(said, count * tokens, "tokens are missing");
    let (mean, p99) = gap_errors(&times);
    let engine = 1e3 * server.metric("vllm:inter_token_latency_seconds_sum")
        / server.metric("vllm:inter_token_latency_seconds_count");
    let spans: f64 = times.iter().map(|t| t[t.len() - 1] - t[0]).sum();
    let client = 1e3 * spans / (count * (tokens - 1)) as f64;
    let lag = 1e3 * server.metric("roofcast:schedule_lag_seconds_sum")
        / server.metric("roofcast:schedule_lag_seconds_count");
    println!(
        "{count} streams of {tokens} tokens in {wall:.1} s: {:.1} us of processor time a token ({:.0} % of one core), \
         ITL {client:.3} ms beside the engine's {engine:.3}, gaps off by {mean:.3} ms in the mean and {p99:.3} at p99, \
         steps late by {lag:.3} ms in the mean",
        1e6 * processor / said as f64,
        100.0 * processor / wall
    );
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The time scale at which a step of `count` streams takes `seconds`: the engine's step time, measured at a clock
/// slow enough that all streams run together.
fn scale(count: usize, seconds: f64) -> f64 {
    let probe = Server::start(PROBE);
    streams(&probe, count, 40);
    let step = probe.metric("vllm:inter_token_latency_seconds_sum")
        / probe.metric("vllm:inter_token_latency_seconds_count");
    (step * PROBE / seconds).max(SLOWEST)
}

fn main() {
    startup();
    println!("a bare send of 280 bytes over the loopback: {:.1} us of processor time", bare_send());
    run(&Server::start(scale(256, 0.02)), 256, 300);
    let (count, tokens) = (number("ROOFCAST_BENCH_STREAMS", 2000), number("ROOFCAST_BENCH_TOKENS", 200));
    run(&Server::start(scale(count, 0.05)), count, tokens);
}
