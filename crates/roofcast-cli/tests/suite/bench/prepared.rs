//! Work of `bench` before and after the requests of a run: an emptied prefix cache, prompts with words of their own, the network's
//! latency, and intervals.

use super::{CALM, exact};
use crate::scripted::{self, good};
use crate::support::{file, json, roofcast};
use serde_json::Value;
use std::time::Duration;

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// One prompt that is sent three times begins with another word each time, as text and as a part.
#[test]
fn prompts_begin_with_words_of_their_own() {
    let line = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}"#;
    let (_folder, path) = file("one.jsonl", line.as_bytes());
    let (url, seen) = scripted::start(|_, stream| good(stream));
    let flags = format!("--prompts {path} --requests 3 --output-len 2 {CALM}");
    json(&format!("bench --url {url} --model m --endpoint chat --cache-bust {flags}"));
    let seen = seen.lock().unwrap();
    let mut texts: Vec<&str> =
        seen.iter().filter_map(|asked| asked.body["messages"][0]["content"][0]["text"].as_str()).collect();
    assert!(texts.len() == 3 && texts.iter().all(|text| text.ends_with(" hello")), "{texts:?}");
    texts.dedup();
    assert_eq!(texts.len(), 3);
    let refused = roofcast(&format!("bench --url {url} --model m --cache-bust"));
    assert!(refused.code == 2 && refused.err.contains("--prompts"), "{}", refused.err);
}

/// vLLM's path is asked before SGLang's, and a server that has neither is refused before a request.
#[test]
fn a_cache_is_emptied_before_a_run_or_the_run_is_refused() {
    let flags = format!("--model m --requests 2 --output-len 2 --assume-tokens --reset-cache {CALM}");
    let (url, seen) = scripted::start_reading(|_, asked, stream| match asked.head.split(' ').nth(1) {
        Some("/reset_prefix_cache") => stream.write_all(NOT_FOUND).is_ok(),
        Some("/flush_cache") => stream.write_all(OK).is_ok(),
        _ => good(stream),
    });
    let (answer, _) = json(&format!("bench --url {url} {flags}"));
    let paths: Vec<String> =
        seen.lock().unwrap().iter().map(|a| a.head.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(
        (&answer["completed"], &paths[..2]),
        (&2.into(), ["/reset_prefix_cache".to_owned(), "/flush_cache".to_owned()].as_slice()),
        "{answer}"
    );
    let (url, seen) = scripted::start_reading(|_, asked, stream| {
        if asked.head.contains("cache") { stream.write_all(NOT_FOUND).is_ok() } else { good(stream) }
    });
    let run = roofcast(&format!("bench --url {url} {flags}"));
    let named = ["--reset-cache", "/flush_cache: 404", "VLLM_SERVER_DEV_MODE=1"]
        .iter()
        .all(|part| run.err.contains(part));
    assert!(run.code != 0 && run.out.is_empty() && named, "{} {}", run.code, run.err);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

/// 5 ms less than the records' own TTFT and end-to-end latency, and the same TPOT; a server without `/health` is said.
#[test]
fn the_networks_time_is_taken_off() {
    let (_folder, path) = file("records.csv", b"");
    let load = format!("--model m --requests 4 --output-len 5 --assume-tokens {CALM}");
    let (answer, _) = json(&format!("bench --url {} {load} --network-latency 5 --records {path}", exact()));
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let mean = |name: &str| {
        let column = rows[0].iter().position(|key| *key == name).unwrap();
        rows[1..].iter().map(|row| row[column].parse::<f64>().unwrap()).sum::<f64>() / 4.0
    };
    for (key, less) in [("ttft_ms", 5.0), ("tpot_ms", 0.0), ("e2el_ms", 5.0)] {
        let reported = answer[format!("mean_{key}")].as_f64().unwrap();
        assert!((mean(key) - less - reported).abs() < 1e-6, "{key}: {} {reported}", mean(key));
    }
    assert_eq!(answer["network_latency_ms"], 5.0);
    for wrong in ["soon", "-1", "nan"] {
        let run = roofcast(&format!("bench --url {} {load} --network-latency={wrong}", exact()));
        assert!(run.code == 2 && run.err.contains("measure"), "{}", run.err);
    }
}

/// Seven requests of 0.7 s are asked for at most 5 s, of which the first may open the connection: the rest tell at least 0.7 s.
/// The user is told after a second.
#[test]
fn a_slow_network_is_measured_for_five_seconds() {
    let (url, seen) = scripted::start_reading(|_, asked, stream| match asked.head.split(' ').nth(1) {
        Some("/health") => {
            std::thread::sleep(Duration::from_millis(700));
            stream.write_all(OK).is_ok()
        }
        _ => good(stream),
    });
    let load = format!("--model m --requests 2 --output-len 2 --assume-tokens {CALM}");
    let run = roofcast(&format!("bench --url {url} {load} --network-latency measure --json"));
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    let latency = answer["network_latency_ms"].as_f64().unwrap();
    assert!((700.0..3000.0).contains(&latency), "{latency}");
    let asked = seen.lock().unwrap().iter().filter(|asked| asked.head.contains("/health")).count();
    assert!((2..=8).contains(&asked), "{asked}");
    assert!(run.err.contains("--network-latency measure"), "{}", run.err);
}

/// Every completed request is in one interval, and the text has a table of the intervals.
#[test]
fn a_run_is_reported_by_intervals() {
    let load = format!("--model m --requests 6 --output-len 5 --assume-tokens --slice-duration 0.1 {CALM}");
    let (answer, _) = json(&format!("bench --url {} {load}", exact()));
    let slices = answer["slices"].as_array().unwrap();
    let completed: u64 = slices.iter().map(|slice| slice["completed"].as_u64().unwrap()).sum();
    assert!(completed == 6 && slices.len() > 1, "{answer}");
    assert!(roofcast(&format!("bench --url {} {load}", exact())).out.contains("sent at s"));
}

/// A sweep of prompts alone has a limit and a forecast of TTFT; its limit and forecast of TPOT are absent.
#[test]
fn a_sweep_of_prompts_has_the_limit_of_ttft() {
    let load = format!("--requests 2 --output-len 1 --assume-tokens --sweep input-len=100,200 {CALM}");
    let machine = "--model llama-3.1-8b --served-model m --hardware h100-sxm";
    let run = roofcast(&format!("bench --url {} {machine} {load}", exact()));
    assert!(run.out.contains("TTFT limit"), "{}{}", run.out, run.err);
    let run = roofcast(&format!("bench --url {} {machine} {load} --csv", exact()));
    let header = run.out.lines().next().unwrap();
    assert!(header.contains("limit_ttft_ms") && header.contains("forecast_ttft_ms"), "{header}");
}
