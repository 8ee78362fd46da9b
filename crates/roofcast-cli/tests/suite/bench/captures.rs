//! Recorded responses of real servers, byte for byte: streams cut at any place, refusals, and reads at their recorded
//! times.

use super::{CALM, at_least};
use crate::scripted::{self, Stream};
use crate::support::{data, json};
use roofcast::record::{Outcome, Record};
use serde_json::Value;
use std::time::{Duration, Instant};

fn capture(name: &str) -> Vec<u8> {
    std::fs::read(data(&format!("captures/{name}"))).unwrap()
}

/// Request k gets the recorded response in two pieces, split after k bytes: in the head, in an HTTP chunk's length or
/// within a token. All results are equal.
#[test]
fn a_recorded_wire_cut_anywhere() {
    // Counted by eye: tokens, chunks with tokens, prompt tokens if the recording reports usage.
    for (name, endpoint, tokens, chunks, prompt) in [
        ("llama-chat-stream-rawchunked.txt", "chat", 4, 4, 0),
        ("vllm-chat-stream-rawchunked.txt", "chat", 4, 4, 0),
        ("vllm-cmpl-stream-interval4-raw.txt", "completions", 14, 5, 2),
    ] {
        let wire = capture(name);
        let requests = wire.len();
        let (url, _) = scripted::start(move |n, stream| {
            let (first, rest) = wire.split_at(n.min(wire.len()));
            drop(stream.write_all(first));
            std::thread::sleep(Duration::from_millis(2));
            stream.write_all(rest).is_ok()
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let (answer, _) = json(&format!(
            "bench --url {url} --model m --endpoint {endpoint} --concurrency 16 --requests {requests} --output-len {tokens} \
             --assume-tokens --records {} {CALM}",
            path.display()
        ));
        assert_eq!(answer["completed"], requests, "{name}: {}", answer["failures"]);
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let record = Record::from_line(name, line).unwrap();
            assert_eq!(record.outcome, Outcome::Completed);
            assert_eq!((record.output_len, record.itl.len()), (tokens, chunks - 1), "{name}: {line}");
            assert!(prompt == 0 || record.input_len == prompt, "{name}: {line}");
        }
    }
}

/// Every recorded refusal counts as a failure, under its status and with the server's message.
#[test]
fn recorded_refusals() {
    for (name, status, words) in [
        ("llama-err-503-loading", "503", "Loading model"),
        ("llama-err-badjson", "400", "parse_error"),
        ("llama-err-badparam", "400", "max_tokens"),
        ("llama-err-method", "404", "File Not Found"),
        ("llama-err-notfound", "404", "File Not Found"),
        ("llama-err-toolong", "400", "exceeds the available context size"),
        ("vllm-err-503-queue-full", "503", "cannot accept new requests"),
        ("vllm-err-badjson", "400", "json_invalid"),
        ("vllm-err-badmodel", "404", "does not exist"),
        ("vllm-err-badparam", "400", "max_tokens"),
        ("vllm-err-method", "405", "Method Not Allowed"),
        ("vllm-err-notfound", "404", "Not Found"),
        ("vllm-err-toolong", "400", "maximum context length"),
    ] {
        let response = capture(&format!("{name}.txt"));
        let (url, _) = scripted::start(move |_, stream| stream.write_all(&response).is_ok());
        let (answer, code) =
            json(&format!("bench --url {url} --model m --requests 2 --assume-tokens {CALM}"));
        let failed = &answer["failures"]["http_status"];
        assert_eq!((code, &failed["count"]), (3, &2.into()), "{name}: {answer}");
        let first = failed["first"].as_str().unwrap();
        assert!(first.starts_with(status) && first.contains(words), "{name}: {first}");
    }
}

/// llama.cpp's response is sent with its recorded intervals at a tenth of their length; a client cannot measure less
/// than these.
#[test]
fn recorded_reads_at_their_times() {
    let text = capture("timed-reads-gemma.json");
    let recorded: Value = serde_json::from_slice(&text).unwrap();
    let reads: Vec<(f64, String)> = serde_json::from_value(recorded[0]["reads"].clone()).unwrap();
    let after = |seconds: f64| Duration::from_secs_f64(seconds / 10.0);
    // Reads: the head, 16 tokens, and the end with its usage and `[DONE]`.
    let (first, last) = (after(reads[1].0), after(reads[16].0));
    let (url, _) = scripted::start(move |_, stream: &mut dyn Stream| {
        let start = Instant::now();
        for (at, bytes) in &reads {
            std::thread::sleep(after(*at).saturating_sub(start.elapsed()));
            drop(stream.write_all(bytes.as_bytes()));
        }
        false
    });
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 1 --output-len 16 --assume-tokens {CALM}"));
    let count = |key: &str| answer[key].as_u64();
    assert_eq!((count("total_input_tokens"), count("total_output_tokens")), (Some(41), Some(16)), "{answer}");
    at_least(&answer, "mean_ttft_ms", first.as_secs_f64() * 1e3);
    at_least(&answer, "mean_e2el_ms", last.as_secs_f64() * 1e3);
}
