//! Offered load: closed and open loops, sweeps, searches, workloads of a spec.

use super::{CALM, at_least, believed_json, exact};
use crate::schedule::{self, EXTRA, Schedule};
use crate::scripted::{self, HEAD, chunk, good};
use crate::support::{file, json};
use serde_json::Value;
use std::time::Duration;

/// 12 requests of 9 tokens: the first token 30 ms after its request, the others at gaps of 4 ms. An answer takes 30 + 8
/// · 4 = 62 ms, and three users need four rounds of answers. A client cannot measure less than this schedule.
#[test]
fn a_closed_loop_against_an_exact_schedule() {
    for endpoint in ["chat", "completions"] {
        let (answer, code) = believed_json(&format!(
            "bench --url {} --model m --endpoint {endpoint} --concurrency 3 --requests 12 --input-len 20 --output-len 9 {CALM}",
            exact()
        ));
        assert_eq!((code, &answer["valid"]), (0, &Value::Bool(true)), "{answer}");
        let count = |key: &str| answer[key].as_u64();
        assert_eq!(
            (count("completed"), count("failed"), count("num_prompts")),
            (Some(12), Some(0), Some(12))
        );
        // The server counts 3 tokens in addition to the words, so the prompts have 3 words less.
        assert_eq!(answer["exact_prompts"], 1.0, "{EXTRA}");
        assert_eq!((count("total_input_tokens"), count("total_output_tokens")), (Some(240), Some(108)));
        // Times are stamped at reads, and a read may have several tokens: the last gap may be short, but the sum of
        // gaps is not.
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

/// Ten requests at 50 a second have 9 even gaps: the last is sent at 180 ms and answered at least 38 ms later.
#[test]
fn an_open_loop_sends_by_its_schedule() {
    let (answer, code) = believed_json(&format!(
        "bench --url {} --model m --rate 50 --constant --requests 10 --input-len 8 --output-len 3 {CALM}",
        exact()
    ));
    assert_eq!((code, answer["completed"].as_u64()), (0, Some(10)), "{answer}");
    at_least(&answer, "duration", 0.18 + 0.0379 - 0.02);
    assert_eq!(
        (answer["request_rate"].as_f64(), answer["requested_rate"].as_f64()),
        (Some(50.0), Some(50.0))
    );
    // There are 9 gaps in 180 ms.
    assert!((answer["scheduled_rate"].as_f64().unwrap() - 50.0).abs() < 1e-6, "{answer}");
    at_least(&answer, "mean_e2el_from_schedule_ms", answer["mean_e2el_ms"].as_f64().unwrap());
    assert_eq!(answer["max_concurrency"], Value::Null);
    let gamma = format!(
        "bench --url {} --model m --rate 200 --burstiness 0.5 --requests 5 --output-len 2 {CALM}",
        exact()
    );
    let (answer, _) = json(&gamma);
    assert_eq!(
        (answer["completed"].as_u64(), answer["burstiness"].as_f64()),
        (Some(5), Some(0.5)),
        "{answer}"
    );
}

/// Point k of a sweep has the k-th number of users, in order.
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

/// A server that answers one request after another in 20 ms each: beyond 50 requests a second a queue grows, and
/// answers are late.
#[test]
fn the_highest_rate_that_keeps_an_slo() {
    let turn = std::sync::Mutex::new(());
    let (url, _) = scripted::start(move |_, stream| {
        let _one = turn.lock();
        std::thread::sleep(Duration::from_millis(20));
        good(stream)
    });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 30 --output-len 2 --assume-tokens --constant --find-rate 15..500 --slo-e2el 300 {CALM}"
    ));
    assert_eq!(code, 0, "{answer}");
    // At 500/s, 30 requests arrive within 60 ms, and the last is answered 30 · 20 − 60 = 540 ms later, which misses the
    // SLO. The rate at which the last takes 300 ms: 30 · 20 − 29/rate · 1000 = 300, rate = 97. The best rate is near
    // it, as the 99th percentile of 30 is slightly below the last.
    let best = answer["best_rate"].as_f64().unwrap();
    assert!((15.0..=100.0).contains(&best), "{answer}");
    assert!(answer["points"].as_array().unwrap().iter().any(|p| p["meets_slo"] == false));
}

/// The arrivals, lengths and shared prefixes of a spec's [workload] are offered.
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

/// A trace of three requests at 0, 1 and 2 s is replayed in a tenth of its time, with its lengths.
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

/// Two conversations of three turns: each request has all earlier messages, including the server's answers.
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

/// 3,000 users at once on one thread: each has a connection, and all are answered.
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
