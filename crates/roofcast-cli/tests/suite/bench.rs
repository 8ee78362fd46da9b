//! `roofcast bench` against servers of its own: exact schedules, and faults of every kind.

use crate::schedule::{self, EXTRA, Schedule};
use crate::scripted::{self, HEAD, Stream, chunk, good, token};
use crate::support::{file, json, roofcast, run, shared};
use serde_json::Value;
use std::time::Duration;

/// Lag is the machine's while tests share it.
const CALM: &str = "--max-lag 100000";

fn exact() -> String {
    schedule::start(Schedule { ttft: Duration::from_millis(30), itl: Duration::from_millis(4) })
}

fn at_least(answer: &Value, key: &str, least: f64) {
    let found = answer[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", answer[key]));
    assert!(found >= least, "{key} is {found}, below {least}");
}

/// 12 requests of 9 tokens: the first 30 ms after its request, the others 4 ms apart, so that an answer takes 30 + 8 · 4 = 62 ms
/// and three users need four rounds of it. No clock can show less.
#[test]
fn a_closed_loop_against_an_exact_schedule() {
    for endpoint in ["chat", "completions"] {
        let (answer, code) = json(&format!(
            "bench --url {} --model m --endpoint {endpoint} --concurrency 3 --requests 12 --input-len 20 --output-len 9 {CALM}",
            exact()
        ));
        assert_eq!((code, &answer["valid"]), (0, &Value::Bool(true)), "{answer}");
        let count = |key: &str| answer[key].as_u64();
        assert_eq!(
            (count("completed"), count("failed"), count("num_prompts")),
            (Some(12), Some(0), Some(12))
        );
        // The server counts 3 tokens beside the words: the prompts have so many words less.
        assert_eq!(answer["exact_prompts"], 1.0, "{EXTRA}");
        assert_eq!((count("total_input_tokens"), count("total_output_tokens")), (Some(240), Some(108)));
        // Stamps are of reads, which may come together: the last gap may be short, never the whole.
        at_least(&answer, "mean_ttft_ms", 29.9);
        at_least(&answer, "mean_e2el_ms", 61.9);
        at_least(&answer, "duration", 4.0 * 0.0619);
        at_least(&answer, "p99_ttft_from_schedule_ms", answer["p99_ttft_ms"].as_f64().unwrap());
        assert_eq!((count("requested_concurrency"), count("max_concurrent_requests")), (Some(3), Some(3)));
        at_least(&answer, "achieved_concurrency", 2.85);
        for key in ["lag_ms_p99", "send_delay_ms_p99", "cpu_s", "cpu_s_per_1k_tokens"] {
            assert!(answer["client"][key].as_f64().unwrap() >= 0.0, "{key}");
        }
    }
}

/// 9 gaps at 50 a second, evenly: the last is sent at 180 ms and answered 38 ms later, at the earliest.
#[test]
fn an_open_loop_sends_by_its_schedule() {
    let (answer, code) = json(&format!(
        "bench --url {} --model m --rate 50 --constant --requests 10 --input-len 8 --output-len 3 {CALM}",
        exact()
    ));
    assert_eq!((code, answer["completed"].as_u64()), (0, Some(10)), "{answer}");
    at_least(&answer, "duration", 0.18 + 0.0379 - 0.02);
    assert_eq!(
        (answer["request_rate"].as_f64(), answer["requested_rate"].as_f64()),
        (Some(50.0), Some(50.0))
    );
    at_least(&answer, "mean_e2el_from_schedule_ms", answer["mean_e2el_ms"].as_f64().unwrap());
    assert_eq!(answer["max_concurrency"], Value::Null);
}

#[test]
fn vllms_keys_are_all_there() {
    let Some(path) = shared("validation/vllm_bench_json/c4.json") else { return };
    let theirs = std::fs::read_to_string(path).unwrap();
    let theirs: Value = serde_json::from_str(&theirs).unwrap();
    let (ours, _) =
        json(&format!("bench --url {} --model m --requests 2 --output-len 3 --detailed {CALM}", exact()));
    // What describes their client and its queue, and what was said.
    let theirs_alone =
        ["date", "label", "tokenizer_id", "endpoint_type", "rtfx", "queue_times", "generated_texts"];
    for (key, value) in theirs.as_object().unwrap() {
        if !theirs_alone.contains(&key.as_str()) {
            assert_eq!(ours[key].is_array(), value.is_array(), "{key} is {}", ours[key]);
            assert!(ours.get(key).is_some(), "{key} is missing");
        }
    }
    // The parts of an answer are the whole of it.
    let list = |key: &str| ours[key].as_array().unwrap().clone();
    for i in 0..2 {
        let gaps: f64 = list("itls")[i].as_array().unwrap().iter().map(|g| g.as_f64().unwrap()).sum();
        let whole = list("latencies")[i].as_f64().unwrap();
        assert!((list("ttfts")[i].as_f64().unwrap() + gaps - whole).abs() < 1e-9, "{ours}");
    }
}

#[test]
fn records_are_a_line_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let run = roofcast(&format!(
        "bench --url {} --model m --concurrency 2 --requests 5 --output-len 3 --warmup 2 --cooldown 1 --records {} {CALM} --json",
        exact(),
        path.display()
    ));
    assert_eq!(run.code, 0, "{}{}", run.err, run.out);
    let text = std::fs::read_to_string(&path).unwrap();
    let records: Vec<_> =
        text.lines().map(|line| roofcast::record::Record::from_line("run.jsonl", line).unwrap()).collect();
    assert_eq!(records.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(records.iter().all(|r| r.output_len == 3 && r.itl.len() == 2 && r.scheduled <= r.sent));
    // Of five, two are warm-up and one is cool-down.
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((answer["completed"].as_u64(), answer["total_output_tokens"].as_u64()), (Some(2), Some(6)));
}

/// Runs four requests of one user; every second is answered by `fault`. The kind that it counts as, and its message.
fn faulty(fault: impl Fn(&mut dyn Stream) -> bool + Send + Sync + 'static, flags: &str) -> (String, String) {
    let (url, _) = scripted::start(move |n, stream| if n % 2 == 0 { good(stream) } else { fault(stream) });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 4 --output-len 2 --assume-tokens {CALM} {flags}"
    ));
    assert_eq!((code, &answer["valid"]), (3, &Value::Bool(false)), "{answer}");
    // What was right is kept, and every request has an end.
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(2), Some(2)), "{answer}");
    assert_eq!(answer["total_output_tokens"], 4);
    let failures = answer["failures"].as_object().unwrap();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let (kind, what) = failures.iter().next().unwrap();
    assert_eq!(what["count"], 2);
    (kind.clone(), what["first"].as_str().unwrap().to_owned())
}

/// Says `text` and closes the connection.
fn says(text: String) -> impl Fn(&mut dyn Stream) -> bool + Send + Sync + 'static {
    move |stream| {
        drop(stream.write_all(text.as_bytes()));
        false
    }
}

fn assert_fault(found: (String, String), kind: &str, message: &str) {
    assert_eq!(found.0, kind, "{}", found.1);
    assert!(found.1.contains(message), "{message:?} is not in {:?}", found.1);
}

#[test]
fn a_server_that_dies_in_the_middle() {
    assert_fault(faulty(says(format!("{HEAD}{}", token())), ""), "disconnected", "");
    // Half an HTTP chunk.
    assert_fault(faulty(says(format!("{HEAD}64\r\ndata: {{")), ""), "disconnected", "");
    // After the headers.
    assert_fault(faulty(says(HEAD.to_owned()), ""), "disconnected", "");
    // An answer that is framed as whole and is not.
    let cut = format!("{HEAD}{}0\r\n\r\n", token());
    assert_fault(faulty(says(cut), ""), "disconnected", "without a finish");
}

#[test]
fn a_server_that_hangs() {
    let silent = |stream: &mut dyn Stream| stream.read(&mut [0]).is_ok_and(|n| n > 0);
    assert_fault(faulty(silent, "--timeout 0.2"), "timeout", "0.2 s");
    let halfway = move |stream: &mut dyn Stream| {
        drop(stream.write_all(format!("{HEAD}{}", token()).as_bytes()));
        silent(stream)
    };
    assert_fault(faulty(halfway, "--timeout 0.2"), "timeout", "0.2 s");
    // Slower than the timeout, though never silent for long.
    let slow = |stream: &mut dyn Stream| {
        drop(stream.write_all(HEAD.as_bytes()));
        while stream.write_all(chunk(": ping\n\n").as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    };
    assert_fault(faulty(slow, "--timeout 0.2"), "timeout", "0.2 s");
}

#[test]
fn a_server_that_sends_something_else() {
    assert_fault(faulty(says("\x16\x03garbage\r\n\r\n".into()), ""), "malformed", "");
    assert_fault(faulty(says(format!("{HEAD}zz\r\ndata: x\r\n")), ""), "malformed", "");
    let garbage = format!("{HEAD}{}", chunk("data: \u{1}{{{\n\n"));
    assert_fault(faulty(says(garbage), ""), "malformed", "{{{");
    let typed = |kind: &str| format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: 2\r\n\r\nhi");
    assert_fault(faulty(says(typed("content-type: text/html")), ""), "malformed", "text/event-stream");
    assert_fault(faulty(says(typed("x-y: z")), ""), "malformed", "content type none");
    let packed = typed("content-type: text/event-stream\r\ncontent-encoding: gzip");
    assert_fault(faulty(says(packed), ""), "malformed", "gzip");
}

/// Writes `piece` until the client has had enough.
fn endless(
    head: &'static str,
    piece: &'static [u8],
) -> impl Fn(&mut dyn Stream) -> bool + Send + Sync + 'static {
    move |stream| {
        drop(stream.write_all(head.as_bytes()));
        while stream.write_all(piece).is_ok() {}
        false
    }
}

#[test]
fn a_server_that_sends_without_end() {
    const PLAIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ";
    assert_fault(faulty(endless(PLAIN, &[b'x'; 65536]), ""), "too_large", "a line above");
    assert_fault(faulty(endless("HTTP/1.1 200 OK\r\nx: ", &[b'x'; 65536]), ""), "too_large", "");
    assert_fault(faulty(endless(PLAIN, &[b'\n'; 65536]), ""), "too_large", "an answer of more than");
}

#[test]
fn a_server_that_says_no() {
    let status = |line: &str, body: &str| {
        says(format!(
            "HTTP/1.1 {line}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    for line in ["429 Too Many Requests", "503 Service Unavailable", "400 Bad Request", "500 Oops"] {
        let found = faulty(status(line, "{\"error\":{\"message\":\"busy\"}}"), "");
        assert_fault(found.clone(), "http_status", "busy");
        assert!(found.1.starts_with(&line[..3]), "{}", found.1);
    }
    let moved = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n";
    assert_fault(faulty(says(moved.into()), ""), "http_status", "http://elsewhere/");
    let error = chunk("data: {\"error\":{\"message\":\"out of blocks\",\"code\":500}}\n\n");
    assert_fault(faulty(says(format!("{HEAD}{}{error}", token())), ""), "stream_error", "out of blocks");
}

/// A server that closes each connection a while after its answer, without saying so: no request is lost by that.
#[test]
fn connections_that_are_closed_while_they_are_idle() {
    let (url, _) = scripted::start(|_, stream| {
        good(stream);
        false
    });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --rate 10 --constant --requests 5 --output-len 2 --assume-tokens {CALM}"
    ));
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(5), Some(0)), "{answer}");
}

/// A server that says it keeps a connection and closes it when the next request comes, as llama.cpp's does: requests 0, 2
/// and 4 are answered, 1 and 3 are sent again elsewhere.
#[test]
fn connections_that_are_closed_as_they_are_used_again() {
    let (url, seen) = scripted::start(|number, stream| number % 2 == 0 && good(stream));
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 3 --output-len 2 --assume-tokens {CALM}"));
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(3), Some(0)), "{answer}");
    assert_eq!(seen.lock().unwrap().len(), 5);
}

/// Where a new connection is closed without a word, too, the server is gone.
#[test]
fn connections_that_are_always_closed() {
    let (url, _) = scripted::start(|_, _| false);
    let (answer, code) =
        json(&format!("bench --url {url} --model m --requests 4 --output-len 2 --assume-tokens {CALM}"));
    assert_eq!((code, &answer["failures"]["disconnected"]["count"]), (3, &4.into()), "{answer}");
}

#[test]
fn nobody_there() {
    let (answer, code) = json(&format!("bench --url {} --model m --requests 3 {CALM}", scripted::nobody()));
    assert_eq!((code, answer["completed"].as_u64()), (3, Some(0)));
    assert_eq!(answer["failures"]["connect"]["count"], 3);
}

/// The k-th value of a sweep has k users, in order.
#[test]
fn sweeps_have_a_point_a_value() {
    let url = exact();
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --requests 4 --input-len 8 --output-len 2 --sweep concurrency=1,2,4 {CALM}"
    ));
    let points = answer["points"].as_array().unwrap();
    let users: Vec<_> = points.iter().map(|p| p["max_concurrent_requests"].as_u64().unwrap()).collect();
    assert_eq!((answer["sweep"].as_str(), users), (Some("concurrency"), vec![1, 2, 4]));
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --requests 2 --output-len 2 --sweep input-len=5,9 {CALM}"
    ));
    let tokens: Vec<_> = answer["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["total_input_tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(tokens, [10, 18]);
}

/// A server that answers one request after another, 20 ms each: beyond 50 a second a queue grows, and answers are late.
#[test]
fn the_highest_rate_that_keeps_an_slo() {
    let turn = std::sync::Mutex::new(());
    let (url, _) = scripted::start(move |_, stream| {
        let _one = turn.lock();
        std::thread::sleep(Duration::from_millis(20));
        good(stream)
    });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 40 --output-len 2 --assume-tokens --constant --find-rate 5..500 --slo-e2el 300 {CALM}"
    ));
    assert_eq!(code, 0, "{answer}");
    // 500/s cannot be kept: 40 requests come within 80 ms and the last waits 40 · 20 − 80 = 720 ms. No more than the rate at which the
    // last of 40 waits 300 ms: 40 · 20 − 39/rate · 1000 = 300, rate = 78.
    let best = answer["best_rate"].as_f64().unwrap();
    assert!((5.0..=80.0).contains(&best), "{answer}");
    assert!(answer["points"].as_array().unwrap().iter().any(|p| p["meets_slo"] == false));
}

#[test]
fn whole_answers_and_closed_connections() {
    let body = r#"{"choices":[{"index":0,"text":"a b","finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let (url, seen) = scripted::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        drop(stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()));
        false
    });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 3 --output-len 2 --no-stream --assume-tokens {CALM}"
    ));
    // Answers that take no time keep nobody's request in flight: the run may be invalid.
    assert!([0, 3].contains(&code), "{answer}");
    assert_eq!(
        (answer["total_output_tokens"].as_u64(), answer["mean_ttft_ms"].as_f64()),
        (Some(6), Some(0.0))
    );
    assert_eq!(seen.lock().unwrap()[0].body["stream"], false);
}

#[test]
fn prompts_differ_and_the_body_is_as_asked() {
    let (url, seen) = scripted::start(|_, stream| good(stream));
    let args = format!(
        "bench --url {url} --model m --requests 6 --concurrency 2 --input-len 30 --output-len 2 --assume-tokens --header X-Team:blue {CALM} --extra-body"
    );
    let run = run(args.split_whitespace().chain([r#"{"top_p":0.5,"temperature":null}"#]));
    // Answers that take no time keep nobody's request in flight: the run may be invalid.
    assert!([0, 3].contains(&run.code), "{}{}", run.err, run.out);
    let seen = seen.lock().unwrap();
    let mut prompts: Vec<_> = seen.iter().map(|a| a.body["prompt"].as_str().unwrap()).collect();
    assert!(prompts.iter().all(|p| p.split(' ').count() == 30), "{prompts:?}");
    prompts.sort_unstable();
    prompts.dedup();
    assert_eq!(prompts.len(), 6);
    let first = &seen[0];
    assert_eq!((&first.body["top_p"], first.body.get("temperature")), (&Value::from(0.5), None));
    assert_eq!((&first.body["max_tokens"], &first.body["model"]), (&Value::from(2), &Value::from("m")));
    assert!(first.head.contains("x-team: blue"), "{}", first.head);
}

#[test]
fn the_key_is_sent_and_never_shown() {
    let (url, seen) = scripted::start(|n, stream| n == 0 && good(stream));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "2", "--assume-tokens", "--json"])
        .env("OPENAI_API_KEY", "sk-very-secret")
        .output()
        .unwrap();
    assert!(seen.lock().unwrap()[0].head.contains("authorization: bearer sk-very-secret"));
    let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(shown.contains("\"valid\"") && !shown.contains("secret"), "{shown}");
}

#[test]
fn tls_with_the_systems_certificates() {
    let ask = |url: &str, ca: &str| {
        let ca = crate::support::root().join("crates/roofcast-cli/tests/fixtures/tls").join(ca);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["bench", "--url", url, "--model", "m", "--requests", "3", "--assume-tokens", "--json"])
            .env("SSL_CERT_FILE", ca)
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let answer = ask(&scripted::start_tls(|_, stream| good(stream)), "ca.pem");
    assert_eq!(
        (answer["completed"].as_u64(), answer["total_output_tokens"].as_u64()),
        (Some(3), Some(6)),
        "{answer}"
    );
    // A certificate that nobody vouches for.
    let answer = ask(&scripted::start_tls(|_, stream| good(stream)), "none.pem");
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(0), Some(3)));
    assert!(answer["failures"]["connect"]["first"].as_str().unwrap().starts_with("TLS"), "{answer}");
}

/// Measured at 30 ms and 4 ms beside an H100's limit for Llama-3.1-8B: (15.01 GB + KV) at 3.35 TB/s, 4.48 ms and a little for
/// one user. The server's four milliseconds are faster than that, which no server of that model can be.
#[test]
fn the_limit_and_the_forecast_stand_beside() {
    let (answer, _) = json(&format!(
        "bench --url {} --model meta-llama/Llama-3.1-8B --hardware h100-sxm --requests 4 --input-len 100 --output-len 9 {CALM}",
        exact()
    ));
    let limit = answer["limit"]["tpot_ms"].as_f64().unwrap();
    assert!((4.48..4.6).contains(&limit), "{limit}");
    let share = limit / answer["median_tpot_ms"].as_f64().unwrap();
    assert!((answer["limit"]["tpot_share"].as_f64().unwrap() - share).abs() < 1e-9);
    assert_eq!(
        (&answer["limit"]["bound"], &answer["limit"]["prefill_bound"]),
        (&"memory".into(), &"memory".into())
    );
    let forecast = answer["forecast"]["median_tpot_ms"].as_f64().unwrap();
    assert!(forecast >= limit, "{forecast} beats {limit}");
    let spec = "[model]\nname = \"meta-llama/Llama-3.1-8B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\ncost = \"forecast\"\n\
        [workload]\nrequests = 4\ninput_len = 100\noutput_len = 9\narrivals = { kind = \"closed_loop\", concurrency = 1 }\n";
    let (_folder, path) = file("same.toml", spec.as_bytes());
    let (simulated, _) = json(&format!("simulate {path}"));
    assert_eq!(answer["forecast"]["median_tpot_ms"], simulated["median_tpot_ms"]);
    assert!(!answer["limit"]["advice"].as_str().unwrap().is_empty());
}

#[test]
fn prompts_from_a_file() {
    let lines = "{\"prompt\": \"one two\", \"output_len\": 2}\n{\"conversations\": [{\"from\": \"human\", \"value\": \"three\"}]}\n";
    let (_folder, path) = file("prompts.jsonl", lines.as_bytes());
    let (answer, _) = json(&format!(
        "bench --url {} --model m --endpoint chat --output-len 3 --prompts {path} {CALM}",
        exact()
    ));
    // Two words and one, three tokens beside each; two tokens as the line says and three by default.
    let count = |key: &str| answer[key].as_u64();
    assert_eq!(
        (count("total_input_tokens"), count("total_output_tokens")),
        (Some(3 + 2 * EXTRA as u64), Some(5))
    );
    let (_folder, path) = file("prompts.jsonl", b"{\"prompt\": \"a\"}\n{\"prompt\": 1}");
    let run = roofcast(&format!("bench --url http://127.0.0.1:1 --model m --prompts {path}"));
    assert!(run.code == 2 && run.err.contains("prompts.jsonl:2"), "{}", run.err);
}

/// Arrivals, lengths and shared prefixes of a spec's [workload] are what is offered.
#[test]
fn a_specs_workload_is_offered() {
    let (url, seen) = scripted::start(|_, stream| good(stream));
    let spec = "[workload]\nrequests = 6\ninput_len = 20\noutput_len = 2\n[workload.arrivals]\nkind = \"burst\"\nsize = 3\nevery_s = 0.05\n\
        [workload.prefix]\nlength = 10\nshare = 1.0\ncount = 1\n";
    let (_folder, path) = file("spec.toml", spec.as_bytes());
    let (answer, _) = json(&format!("bench {path} --url {url} --model m --assume-tokens {CALM}"));
    assert_eq!(
        (answer["completed"].as_u64(), answer["num_prompts"].as_u64()),
        (Some(6), Some(6)),
        "{answer}"
    );
    let seen = seen.lock().unwrap();
    let prompts: Vec<Vec<&str>> =
        seen.iter().map(|a| a.body["prompt"].as_str().unwrap().split(' ').collect()).collect();
    assert!(prompts.iter().all(|p| p.len() == 30 && p[..10] == prompts[0][..10]), "{prompts:?}");
    assert_ne!(prompts[0], prompts[1]);
}

/// Three requests 0, 1 and 2 s into a trace, at a tenth of its times: lengths and times are the trace's.
#[test]
fn a_trace_is_replayed() {
    let lines = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0000000,374,4\n\
        2023-11-16 18:15:47.0000000,39,5\n2023-11-16 18:15:48.0000000,20,3\n";
    let (folder, _) = file("trace.csv", lines.as_bytes());
    let spec = folder.path().join("spec.toml");
    std::fs::write(&spec, "[workload.arrivals]\nkind = \"trace\"\npath = \"trace.csv\"\nscale = 0.1\n")
        .unwrap();
    let (answer, _) =
        json(&format!("bench {} --url {} --model m --detailed {CALM}", spec.display(), exact()));
    assert_eq!(answer["input_lens"], serde_json::json!([374, 39, 20]), "{answer}");
    assert_eq!(answer["output_lens"], serde_json::json!([4, 5, 3]));
    let sent = answer["start_times"].as_array().unwrap();
    assert!(sent[1].as_f64().unwrap() >= 0.1 && sent[2].as_f64().unwrap() >= 0.2, "{sent:?}");
}

/// Two conversations of three turns: each turn's messages are all that was said, the server's answers among them.
#[test]
fn conversations_grow_by_what_the_server_said() {
    let (url, seen) = scripted::start(|_, stream| {
        let said = chunk(
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"indeed\"},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
        );
        stream.write_all(format!("{HEAD}{said}0\r\n\r\n").as_bytes()).is_ok()
    });
    let spec = "[workload]\nrequests = 6\ninput_len = 5\noutput_len = 1\n[workload.arrivals]\nkind = \"sessions\"\nconcurrency = 1\nturns = 3\n";
    let (_folder, path) = file("spec.toml", spec.as_bytes());
    let (answer, _) =
        json(&format!("bench {path} --url {url} --model m --endpoint chat --assume-tokens {CALM}"));
    assert_eq!(answer["completed"], 6, "{answer}");
    let seen = seen.lock().unwrap();
    let turns: Vec<usize> = seen.iter().map(|a| a.body["messages"].as_array().unwrap().len()).collect();
    assert_eq!(turns, [1, 3, 5, 1, 3, 5]);
    let (first, last) = (&seen[0].body["messages"], &seen[2].body["messages"]);
    assert_eq!(
        (&last[0], &last[1]["role"], &last[1]["content"]),
        (&first[0], &"assistant".into(), &"indeed".into())
    );
}

#[test]
fn every_key_is_documented() {
    let documented = std::fs::read_to_string(crate::support::root().join("docs/json.md")).unwrap();
    let (_folder, path) = file("vllm.json", b"{\"mean_ttft_ms\": 1.0}");
    let run = format!(
        "bench --url {} --model llama-3.1-8b --requests 2 --output-len 3 {CALM} --hardware h100-sxm",
        exact()
    );
    let failing = format!("bench --url {} --model m --requests 2 {CALM}", scripted::nobody());
    for question in [
        format!("{run} --metrics --detailed --baseline {path}"),
        format!("{run} --sweep output-len=2,3"),
        format!("{run} --find-rate 5..5.1 --slo-e2el 10000"),
        failing,
    ] {
        let (answer, _) = json(&question);
        let mut keys = Vec::new();
        crate::output::collect(&answer, &mut keys);
        for key in keys {
            let named = [format!("`{key}`"), format!("`{key}[]`")];
            assert!(
                named.iter().any(|n| documented.contains(n)),
                "{question}: `{key}` is not in docs/json.md"
            );
        }
        assert!(documented.contains(answer["schema"].as_str().unwrap()));
    }
}

#[test]
fn arguments_that_cannot_be() {
    let base = "bench --model m --url http://127.0.0.1:1";
    for (arguments, says) in [
        ("bench --model m --url 127.0.0.1:1".to_owned(), "--url"),
        ("bench --url http://127.0.0.1:1".into(), "--model"),
        (format!("{base} --rate 0"), "--rate"),
        (format!("{base} --rate nan"), "--rate"),
        (format!("{base} --concurrency 0"), "--concurrency"),
        (format!("{base} --concurrency 2 --rate 1"), "--rate"),
        (format!("{base} --timeout 0"), "--timeout"),
        (format!("{base} --header nonsense"), "--header"),
        (format!("{base} --extra-body [1]"), "--extra-body"),
        (format!("{base} --sweep depth=1"), "concurrency"),
        (format!("{base} --sweep rate=0"), "--sweep"),
        (format!("{base} --find-rate 9..1 --slo-ttft 5"), "--find-rate"),
        (format!("{base} --find-rate 1..9"), "without an SLO"),
        (format!("{base} --records run.txt"), "--records"),
        (format!("{base} --baseline gone.json"), "gone.json"),
        (format!("{base} --hardware h100-sxm"), "no model named"),
        (format!("{base} gone.toml"), "gone.toml"),
    ] {
        let run = roofcast(&arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
        assert!(run.err.contains(says), "{arguments}: {says:?} is not in {:?}", run.err);
    }
}

#[test]
fn points_are_rows_that_validate_takes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.csv").display().to_string();
    let url = schedule::start(Schedule { ttft: Duration::from_millis(60), itl: Duration::from_millis(20) });
    let (_, code) = json(&format!(
        "bench --url {url} --model llama-3.1-8b --hardware h100-sxm --requests 4 --input-len 100 --output-len 5 --sweep concurrency=1,2 {CALM} --measurements {path}"
    ));
    assert_eq!(code, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    let rows = roofcast::measurement::read("points.csv", &text).unwrap();
    assert_eq!(rows.iter().map(|r| r.concurrency).collect::<Vec<_>>(), [Some(1), Some(2)], "{text}");
    let row = &rows[0];
    assert_eq!((row.kind.name(), row.hardware.as_str(), row.median), ("closed_loop", "h100-sxm", true));
    assert_eq!((row.input.unwrap().max, row.output.unwrap().max), (100, 5));
    assert!(row.measured.ttft_ms.unwrap() >= 59.9 && row.measured.e2e_ms.unwrap() >= 139.9, "{text}");
    let run = roofcast(&format!("validate {path}"));
    assert_eq!(run.code, 0, "{}{}", run.err, run.out);
    // Without a machine there is no row.
    let run = roofcast(&format!("bench --url {url} --model m --measurements {path}"));
    assert!(run.code == 2 && run.err.contains("--hardware"), "{}", run.err);
}

#[test]
fn metrics_are_read_beside_the_run() {
    let (url, _) = scripted::start(|n, stream| {
        // The requests are the second and third of four: /metrics is asked before and after.
        if n == 1 || n == 2 {
            return good(stream);
        }
        let text = format!(
            "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{{a=\"b\"}} {n}\n"
        );
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length";
        stream.write_all(format!("{head}: {}\r\n\r\n{text}", text.len()).as_bytes()).is_ok()
    });
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 2 --assume-tokens --metrics {CALM}"));
    assert_eq!(answer["server"]["samples"], 2);
    assert_eq!(answer["server"]["counters"]["vllm:generation_tokens_total"], 3.0);
}

#[test]
fn earlier_results_are_read_back() {
    let aiperf = r#"{"request_throughput":{"unit":"requests/sec","avg":2.5},"time_to_first_token":{"unit":"ms","avg":7,"p50":6,"p99":9},
        "inter_token_latency":{"unit":"ms","avg":3,"p50":2.5},"request_latency":{"unit":"ms","avg":70}}"#;
    let (_folder, path) = file("aiperf.json", aiperf.as_bytes());
    let url = exact();
    let ask = |path: &str| {
        json(&format!("bench --url {url} --model m --requests 2 --output-len 2 {CALM} --baseline {path}")).0
    };
    let answer = ask(&path);
    let (baseline, metrics) = (&answer["baselines"][0], &answer["baselines"][0]["metrics"]);
    assert_eq!((&baseline["source"], &metrics["mean_ttft_ms"]), (&"aiperf".into(), &7.0.into()));
    // Their inter-token latency is the TPOT formula.
    assert_eq!((&metrics["mean_tpot_ms"], &metrics["p99_ttft_ms"]), (&3.0.into(), &9.0.into()));
    // Our own, read back.
    let (_folder, path) = file("ours.json", answer.to_string().as_bytes());
    let again = ask(&path);
    assert_eq!(again["baselines"][0]["source"], "roofcast");
    assert_eq!(again["baselines"][0]["metrics"]["mean_ttft_ms"], answer["mean_ttft_ms"]);
    if let Some(path) = shared("validation/vllm_bench_json/c4.json") {
        let answer = ask(&path.display().to_string());
        assert_eq!(answer["baselines"][0]["metrics"]["mean_ttft_ms"], 1205.7304382501002);
    }
}

#[test]
fn a_run_is_invalid_where_the_client_lags() {
    let (answer, code) =
        json(&format!("bench --url {} --model m --requests 3 --output-len 3 --max-lag 0.000001", exact()));
    assert_eq!((code, &answer["valid"]), (3, &Value::Bool(false)));
    let why = answer["invalid_because"].to_string();
    assert!(why.contains("lagged"), "{why}");
}

/// A client that stands still for a third of a second has read nothing in that time, whatever its figures say.
#[test]
fn a_client_that_stood_still_says_so() {
    let (url, seen) = scripted::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(50));
        good(stream)
    });
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "8", "--assume-tokens", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while seen.lock().unwrap().len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(333));
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["completed"]), (Some(3), &8.into()), "{answer}");
    assert!(answer["invalid_because"].to_string().contains("the client lagged"), "{answer}");
    assert!(answer["client"]["lag_ms_max"].as_f64().unwrap() > 100.0, "{answer}");
}

#[test]
fn an_interrupt_keeps_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let (url, seen) =
        scripted::start(|n, stream| if n < 3 { good(stream) } else { stream.read(&mut [0]).is_err() });
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "9", "--assume-tokens", "--json"])
        .args(["--max-lag", "100000", "--records"])
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while seen.lock().unwrap().len() < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), answer["completed"].as_u64()), (Some(3), Some(3)));
    assert_eq!(answer["failures"]["unfinished"]["count"], 1);
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 4);
}

/// 3,000 users at once on one thread: each has its connection, and all are answered.
#[test]
fn thousands_of_streams() {
    let url = schedule::start(Schedule { ttft: Duration::from_millis(500), itl: Duration::from_millis(50) });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --concurrency 3000 --requests 3000 --input-len 8 --output-len 4 --assume-tokens {CALM}"
    ));
    assert_eq!(
        (answer["completed"].as_u64(), answer["total_output_tokens"].as_u64()),
        (Some(3000), Some(12000))
    );
}
