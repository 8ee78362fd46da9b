//! Begin and end of a run, and the requests in between that count.

use super::{CALM, exact};
use crate::schedule::{self, Schedule};
use crate::scripted::{self, good};
use crate::support::{file, json};
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

/// One user gets answers of 30 + 2 · 4 = 38 ms for half a second: at most 14 answers. Requests in flight at the end are
/// still answered.
#[test]
fn a_run_bound_by_time() {
    let (answer, _) =
        json(&format!("bench --url {} --model m --duration 0.5 --output-len 3 {CALM}", exact()));
    let completed = answer["completed"].as_u64().unwrap();
    assert!((1..=14).contains(&completed) && answer["failed"] == 0, "{answer}");
    assert_eq!(answer["num_prompts"], completed);
}

/// A hundred requests to a server that answers each with "busy": three are sent.
#[test]
fn a_run_that_stops_on_failures() {
    let (url, seen) = scripted::start(|_, stream| stream.write_all(BUSY.as_bytes()).is_ok());
    let (answer, code) =
        json(&format!("bench --url {url} --model m --requests 100 --assume-tokens --max-failures 3 {CALM}"));
    assert_eq!((code, &answer["num_prompts"], seen.lock().unwrap().len()), (3, &3.into(), 3), "{answer}");
    assert!(answer["invalid_because"].to_string().contains("--max-failures"), "{answer}");
}

/// Twenty requests a second to a server that answers one every 200 ms: each second fifteen more are in flight, and only
/// a part of the two minutes' requests is sent. At a tenth of the rate this does not happen.
#[test]
fn a_run_that_stops_when_the_server_falls_behind() {
    let turn = std::sync::Arc::new(std::sync::Mutex::new(()));
    let slow = move |_: usize, stream: &mut dyn scripted::Stream| {
        let _held = turn.lock();
        std::thread::sleep(Duration::from_millis(200));
        good(stream)
    };
    let (url, _) = scripted::start(slow);
    let bench = |rate: f64, requests: u64| {
        json(&format!(
            "bench --url {url} --model m --rate {rate} --constant --requests {requests} --output-len 3 --stop-oversaturated \
             --assume-tokens {CALM}"
        ))
    };
    let (answer, code) = bench(20.0, 2400);
    let sent = answer["num_prompts"].as_u64().unwrap();
    assert!(code == 3 && (100..1200).contains(&sent), "{sent}: {}", answer["invalid_because"]);
    assert!(answer["invalid_because"].to_string().contains("in flight grew"), "{answer}");
    let (answer, _) = bench(2.0, 14);
    assert_eq!((&answer["num_prompts"], &answer["completed"]), (&14.into(), &14.into()), "{answer}");
    assert!(!answer["invalid_because"].to_string().contains("in flight grew"), "{answer}");
}

/// The counter of the server's exporter grows by 20 J with each reading. At least two readings are made, so at least 20
/// J are used, for 4 × 3 tokens.
#[test]
fn energy_is_read_beside_a_run() {
    let metrics = |n: usize, stream: &mut dyn scripted::Stream| {
        let text = format!(
            "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu=\"0\"}} {}\n\
             DCGM_FI_DEV_FB_USED{{gpu=\"0\"}} 70000\n",
            1_000_000 + 20_000 * n
        );
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).is_ok()
    };
    let (exporter, seen) = scripted::start(metrics);
    let bench = |power: &str| {
        json(&format!("bench --url {} --model m --requests 4 --output-len 3 --power {power} {CALM}", exact()))
            .0
    };
    let answer = bench(&exporter);
    let readings = seen.lock().unwrap().len() as f64;
    let joules = answer["energy"]["joules"].as_f64().unwrap();
    assert!(readings >= 2.0 && joules == 20.0 * (readings - 1.0), "{joules} J by {readings} readings");
    let token = answer["energy"]["joules_per_output_token"].as_f64().unwrap();
    assert!((token - joules / 12.0).abs() < 1e-9, "{answer}");
    // The exporter reports 70,000 MiB.
    assert_eq!(answer["energy"]["memory_used_bytes"], 70_000.0 * 1_048_576.0);
    // A server whose exporter reports no energy: a note says so.
    let (other, _) = scripted::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nup 1\n").is_ok()
    });
    let without = bench(&other);
    assert!(
        without["energy"].is_null() && without["warnings"].to_string().contains("no energy"),
        "{without}"
    );
}

/// Ten requests, one every 100 ms: the first 250 ms are warm-up, the last 150 ms cool-down. The requests due at 300 to
/// 700 ms count.
#[test]
fn warm_up_and_cool_down_by_time() {
    let (answer, _) = json(&format!(
        "bench --url {} --model m --rate 10 --constant --requests 10 --output-len 3 --warmup 0.25s --cooldown 0.15s {CALM}",
        exact()
    ));
    assert_eq!((&answer["completed"], &answer["num_prompts"]), (&5.into(), &10.into()), "{answer}");
    assert_eq!(answer["window"], value!({"warmup": 0, "cooldown": 0, "warmup_s": 0.25, "cooldown_s": 0.15}));
}

/// The client cancels all requests after 10 ms, while the first token takes 1.5 s: there are no failures, and nothing
/// is measured.
#[test]
fn requests_that_the_client_gives_up() {
    let slow = Schedule { ttft: Duration::from_millis(1500), itl: Duration::from_millis(1) };
    let url = schedule::start(slow);
    let run = |share: f64| {
        json(&format!(
            "bench --url {url} --model m --requests 12 --concurrency 12 --output-len 3 --assume-tokens \
             --cancel-share {share} --cancel-after 0.01 {CALM}"
        ))
        .0
    };
    let all = run(1.0);
    let counts = (&all["cancelled"], &all["failed"], &all["failures"]);
    assert_eq!(counts, (&12.into(), &0.into(), &value!({})), "{all}");
    let some = run(0.5);
    let (cancelled, completed) = (some["cancelled"].as_u64().unwrap(), some["completed"].as_u64().unwrap());
    assert_eq!((cancelled + completed, &some["failed"]), (12, &0.into()), "{some}");
}

#[test]
fn repeated_runs_have_intervals() {
    let (answer, _) = json(&format!(
        "bench --url {} --model m --requests 6 --concurrency 2 --output-len 5 --runs 3 {CALM}",
        exact()
    ));
    assert_eq!(answer["runs"].as_array().unwrap().len(), 3);
    let valid = answer["runs"].as_array().unwrap().iter().filter(|run| run["valid"] == true).count();
    let ttft = answer["intervals"].as_array().unwrap().iter().find(|i| i["figure"] == "mean_ttft_ms");
    // A run that other work on this machine slowed down is not valid.
    if valid > 1 {
        let ttft = ttft.unwrap_or_else(|| panic!("{answer}"));
        let figure = |key: &str| ttft[key].as_f64().unwrap();
        assert!(figure("low") <= figure("mean") && figure("mean") <= figure("high"), "{ttft}");
    }
}

/// Requests 0, 2 and 4 go to one server, 1 and 3 to the other, each with its own connection.
#[test]
fn several_servers_are_asked_in_turn() {
    let [(first, to_first), (second, to_second)] =
        [scripted::start(|_, stream| good(stream)), scripted::start(|_, stream| good(stream))];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let (answer, _) = json(&format!(
        "bench --url {first} --url {second} --model m --requests 5 --output-len 2 --assume-tokens --records {} {CALM}",
        path.display()
    ));
    assert_eq!(
        (answer["completed"].as_u64(), answer["url"].as_str()),
        (Some(5), Some(&*format!("{first},{second}")))
    );
    assert_eq!((to_first.lock().unwrap().len(), to_second.lock().unwrap().len()), (3, 2));
    let replicas: Vec<u64> = std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| roofcast::record::Record::from_line("run.jsonl", line).unwrap().replica)
        .collect();
    assert_eq!(replicas, [0, 1, 0, 1, 0]);
}

/// While a server loads its model, it answers 503 twice, as llama.cpp does; the run begins after that.
#[test]
fn a_server_that_is_waited_for() {
    let (url, seen) = scripted::start_reading(|n, asked, stream| match n {
        0 | 1 => stream.write_all(BUSY.as_bytes()).is_ok(),
        _ if asked.head.starts_with("get /v1/models") => scripted::tells("{}", stream),
        _ => good(stream),
    });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --requests 2 --output-len 2 --assume-tokens --wait-ready 20 {CALM}"
    ));
    assert_eq!((&answer["completed"], seen.lock().unwrap().len()), (&2.into(), 5), "{answer}");
    let nobody = scripted::nobody();
    let run = crate::support::roofcast(&format!("bench --url {nobody} --model m --wait-ready 0.6"));
    assert!(run.code == 2 && run.err.contains("not ready after 0.6 s"), "{}", run.err);
}

/// A server accepts the probes and sends nothing: the client reports that it waits, and Ctrl-C prints the partial
/// result.
#[test]
fn a_mute_server_is_named_and_can_be_left() {
    let (url, _) = scripted::start(|_, stream| stream.read(&mut [0]).is_err());
    let mut child = Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "2", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("nothing has come") && said.contains(&url), "{said}");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    child.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((child.wait().unwrap().code(), &answer["num_prompts"]), (Some(3), &0.into()), "{answer}");
}

/// Certificates of no trusted authority: https://github.com/vllm-project/vllm/issues/29042 and
/// https://github.com/gpustack/gpustack/issues/6102.
#[test]
fn self_signed_certificates_are_taken_where_asked() {
    let url = scripted::start_tls(|_, stream| good(stream));
    let output = Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args([
            "bench",
            "--url",
            &url,
            "--model",
            "m",
            "--requests",
            "2",
            "--assume-tokens",
            "--insecure",
            "--json",
        ])
        .env("SSL_CERT_FILE", "none.pem")
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["completed"], 2, "{answer}");
}

/// A proxy receives whole URLs and resolves the server's name itself; a server on the loopback interface is reached
/// directly.
#[test]
fn servers_off_the_loopback_are_asked_through_a_proxy() {
    let (proxy, seen) = scripted::start(|_, stream| good(stream));
    let (near, at_near) = scripted::start(|_, stream| good(stream));
    for url in ["http://far.example:8000/v1", &near] {
        let output = Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["bench", "--url", url, "--model", "m", "--requests", "1", "--assume-tokens", "--json"])
            .env("http_proxy", &proxy)
            .env_remove("no_proxy")
            .env_remove("NO_PROXY")
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["completed"], 1, "{url}: {answer}");
    }
    let seen = seen.lock().unwrap();
    assert!(
        seen[0].head.starts_with("post http://far.example:8000/v1/completions http/1.1"),
        "{}",
        seen[0].head
    );
    assert_eq!((seen.len(), at_near.lock().unwrap().len()), (1, 1));
}

/// Every endpoint is asked in its own form: path, key of the prompt, and form of the answer.
#[test]
fn every_endpoint_is_asked_in_its_form() {
    let stream = |events: &[&str]| {
        let body: String = events.iter().map(|e| scripted::chunk(&format!("data: {e}\n\n"))).collect();
        format!("{}{body}0\r\n\r\n", scripted::HEAD)
    };
    let delta = r#"{"type":"response.output_text.delta","delta":"a"}"#;
    let block = r#"{"type":"content_block_delta","delta":{"text":"a"}}"#;
    let so_far = r#"{"text":"a","meta_info":{"prompt_tokens":9,"completion_tokens":1,"finish_reason":null}}"#;
    let cases = [
        (
            "responses",
            "/v1/responses",
            "input",
            stream(&[
                delta,
                delta,
                r#"{"type":"response.completed","response":{"status":"incomplete","usage":{"input_tokens":9,"output_tokens":2}}}"#,
            ]),
        ),
        (
            "messages",
            "/v1/messages",
            "messages",
            stream(&[
                r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":0}}}"#,
                block,
                block,
                r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":2}}"#,
            ]),
        ),
        (
            "generate",
            "/generate",
            "text",
            stream(&[
                so_far,
                r#"{"text":"a b","meta_info":{"prompt_tokens":9,"completion_tokens":2,"finish_reason":{"type":"length"}}}"#,
                "[DONE]",
            ]),
        ),
    ];
    for (endpoint, path, key, wire) in cases {
        let (url, seen) = scripted::start(move |_, stream| stream.write_all(wire.as_bytes()).is_ok());
        let (answer, _) = json(&format!(
            "bench --url {url} --model m --endpoint {endpoint} --requests 2 --output-len 2 --assume-tokens {CALM}"
        ));
        let count = |key: &str| answer[key].as_u64();
        assert_eq!(
            (count("completed"), count("total_output_tokens"), count("total_input_tokens")),
            (Some(2), Some(4), Some(18)),
            "{answer}"
        );
        assert!(answer["mean_ttft_ms"].is_number() && answer["endpoint"] == path, "{answer}");
        let seen = seen.lock().unwrap();
        assert!(
            seen[0].head.starts_with(&format!("post {path} ")) && !seen[0].body[key].is_null(),
            "{seen:?}"
        );
    }
}

/// Embeddings have no output tokens. A URL may name its endpoint.
#[test]
fn embeddings_and_urls_with_an_endpoint() {
    let told =
        r#"{"object":"list","data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":9,"total_tokens":9}}"#;
    let (url, seen) = scripted::start(move |_, stream| scripted::tells(told, stream));
    let (answer, _) =
        json(&format!("bench --url {url}/v1/embeddings --model m --requests 2 --assume-tokens {CALM}"));
    assert_eq!((&answer["completed"], &answer["total_input_tokens"]), (&2.into(), &18.into()), "{answer}");
    assert_eq!((&answer["total_output_tokens"], &answer["mean_ttft_ms"]), (&0.into(), &Value::Null));
    assert!(seen.lock().unwrap()[0].body["input"].is_string());
    let (_folder, path) = file("p.jsonl", b"{\"prompt\": \"a\"}");
    let run = crate::support::roofcast(&format!(
        "bench --url {url}/v1/completions --endpoint chat --model m --prompts {path}"
    ));
    assert!(run.code == 2 && run.err.contains("--endpoint"), "{}", run.err);
}
