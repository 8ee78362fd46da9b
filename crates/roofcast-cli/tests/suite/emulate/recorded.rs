//! Answers have the shape of answers recorded from vLLM 0.32, and errors have its messages.

use super::{Server, TINY, begin, dechunked};
use crate::support::data;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A recorded answer: its status, and its body without the chunked encoding.
pub(super) fn recorded(name: &str) -> (u16, String) {
    let text = std::fs::read_to_string(data(&format!("captures/{name}.txt"))).unwrap();
    let text = if text.contains("\r\n\r\n") { text } else { text.replace('\n', "\r\n") };
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let chunked = name.contains("raw");
    let body = if chunked { dechunked(body) } else { body.replace("\r\n", "\n") };
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

/// The shape of a value: its keys in order, with the types of their values.
pub(super) fn shape(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields: Vec<_> = map.iter().map(|(key, value)| format!("{key}: {}", shape(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(shape).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("|")
        ),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "flag".into(),
        Value::Null => "null".into(),
    }
}

pub(super) fn events(body: &str) -> Vec<Value> {
    let data = body.split("\n\n").filter_map(|event| event.trim_start().strip_prefix("data: "));
    data.filter(|d| *d != "[DONE]").map(|d| serde_json::from_str(d).unwrap()).collect()
}

fn tiny(flags: &str) -> Server {
    Server::start(TINY, &format!("--served-model-name tiny {flags}"))
}

/// The first, second, last but one and last events, and bodies in one piece, agree with the recordings key by key.
#[test]
fn answers_have_the_recorded_shape() {
    let server = tiny("");
    let chat = |more: Value| {
        with(
            json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "ignore_eos": true}),
            more,
        )
    };
    let completion =
        |more: Value| with(json!({"model": "tiny", "prompt": "def f", "ignore_eos": true}), more);
    let usage = json!({"include_usage": true});
    let continuous = json!({"include_usage": true, "continuous_usage_stats": true});
    let streams = [
        ("vllm-chat-stream-usage", chat(json!({"max_tokens": 8, "stream_options": usage}))),
        ("vllm-chat-stream-nousage", chat(json!({"max_tokens": 4}))),
        ("vllm-chat-stream-rawchunked", chat(json!({"max_tokens": 4}))),
        ("vllm-chat-stream-contusage", chat(json!({"max_tokens": 4, "stream_options": continuous}))),
        ("vllm-cmpl-stream-usage", completion(json!({"max_tokens": 8, "stream_options": usage}))),
        ("vllm-cmpl-stream-n2", completion(json!({"max_tokens": 4, "n": 2, "stream_options": usage}))),
        ("vllm-cmpl-stream-logprobs", completion(json!({"max_tokens": 3, "logprobs": 2}))),
        (
            "vllm-cmpl-stream-tokenids",
            completion(
                json!({"max_tokens": 5, "return_token_ids": true, "prompt": [300, 301, 302, 303, 304], "stream_options": usage}),
            ),
        ),
    ];
    for (name, body) in streams {
        let (status, theirs) = recorded(name);
        let path = if name.contains("chat") { "/v1/chat/completions" } else { "/v1/completions" };
        let ours = server.post(path, &with(body, json!({"stream": true})).to_string());
        assert_eq!(ours.status, status);
        assert!(ours.head.contains("content-type: text/event-stream; charset=utf-8"), "{}", ours.head);
        let shapes = |all: &[Value]| all.iter().map(shape).collect::<Vec<_>>();
        // The texts of alternatives are keys of `top_logprobs`, and differ from the recorded ones.
        let plain = |shape: Vec<String>| {
            let mut all: Vec<String> = shape.into_iter().map(|s| blurred(&s)).collect();
            // Choices are requests of their own, which begin in one step or in two, so their order varies; the usage
            // comes last.
            if let Some((_, choices)) = all.split_last_mut().filter(|_| name.ends_with("-n2")) {
                choices.sort();
            }
            all
        };
        assert_eq!(plain(shapes(&ours.events())), plain(shapes(&events(&theirs))), "{name}");
    }
    for (name, path, body) in [
        ("vllm-chat-nostream", "/v1/chat/completions", chat(json!({"max_tokens": 4}))),
        ("vllm-cmpl-nostream", "/v1/completions", completion(json!({"max_tokens": 4}))),
    ] {
        let (_, theirs) = recorded(name);
        let ours = server.post(path, &body.to_string()).json();
        assert_eq!(shape(&ours), shape(&serde_json::from_str(&theirs).unwrap()), "{name}");
    }
    let (_, theirs) = recorded("vllm-models");
    assert_eq!(shape(&server.get("/v1/models").json()), shape(&serde_json::from_str(&theirs).unwrap()));
}

/// A shape without the keys of `top_logprobs`, which are texts.
fn blurred(shape: &str) -> String {
    match shape.split_once("top_logprobs: [") {
        Some((before, after)) => format!("{before}…{}", after.split_once(']').unwrap().1),
        None => shape.to_owned(),
    }
}

fn with(mut body: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[test]
fn errors_are_the_recorded_ones() {
    let server = tiny("");
    let long: Vec<u32> = vec![5; 6201];
    let asked = [
        ("vllm-err-badjson", server.post("/v1/completions", "{\"model\":}")),
        ("vllm-err-badmodel", server.post("/v1/completions", r#"{"model": "nope", "prompt": "a"}"#)),
        ("vllm-err-badparam", server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": -3}"#)),
        (
            "vllm-err-toolong",
            server.post("/v1/completions", &json!({"prompt": long, "max_tokens": 4}).to_string()),
        ),
        ("vllm-err-method", server.get("/v1/completions")),
        ("vllm-err-notfound", server.get("/v1/nothing")),
        ("vllm-health", server.get("/health")),
    ];
    for (name, ours) in asked {
        let (status, theirs) = recorded(name);
        assert_eq!((ours.status, ours.body), (status, theirs), "{name}");
    }
    let beyond = server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 4096}).to_string());
    assert_eq!((beyond.status, beyond.json()["error"]["param"].as_str()), (400, Some("max_tokens")));
}

/// Five requests may be in the server, of which two run: a sixth is refused.
#[test]
fn a_full_queue_refuses_in_the_recorded_words() {
    let spec = format!("{TINY}max_num_seqs = 2\nmax_num_batched_tokens = 64\n");
    let server = Server::start(&spec, "--max-num-queued-reqs 5 --time-scale 0.01");
    let body = r#"{"prompt": "a", "max_tokens": 50, "ignore_eos": true}"#;
    let mut open: Vec<_> = (0..2).map(|_| begin(&server, body)).collect();
    server.until("vllm:num_requests_running", |n| n == 2.0);
    open.extend((0..3).map(|_| begin(&server, body)));
    server.until("vllm:num_requests_waiting", |n| n == 3.0);
    let refused = server.post("/v1/completions", body);
    assert_eq!((refused.status, refused.body), recorded("vllm-err-503-queue-full"));
    assert_eq!(
        server.metric(
            "vllm:admission_rejections_total{model_name=\"Qwen/Qwen3-0.6B\",reason=\"max_num_queued_reqs\"}"
        ),
        1.0
    );
}

/// Every `vllm:` metric of the recorded scrape is present with its type, its labels and its bounds, and there is no
/// other.
#[test]
fn metrics_are_the_recorded_ones() {
    let (_, theirs) = recorded("vllm-metrics");
    let server = tiny("");
    assert_eq!(server.post("/v1/completions", r#"{"prompt": "a b", "max_tokens": 3}"#).status, 200);
    let ours = server.get("/metrics");
    assert!(ours.head.contains("text/plain; version=1.0.0; charset=utf-8"));
    let (ours, theirs) = (families(&ours.body), families(&theirs));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, (kind, labels)) in theirs {
        assert_eq!(ours[&name].0, kind, "{name}");
        // The labels of this metric are cache settings, which differ from version to version; only some are emulated.
        if name != "vllm:cache_config_info" {
            assert_eq!(ours[&name].1, labels, "{name}");
        }
    }
}

/// The recorded families of HTTP requests and of the process are there, by type; requests are counted by path, method
/// and class of status, and those that vLLM does not count are not.
#[test]
fn requests_and_the_process_are_measured() {
    let (_, theirs) = recorded("vllm-metrics");
    let server = tiny("");
    assert_eq!(
        server.post("/v1/completions", r#"{"prompt": "a b", "max_tokens": 3, "stream": true}"#).status,
        200
    );
    assert_eq!(server.post("/v1/completions", "{").status, 400);
    assert_eq!(server.get("/nowhere").status, 404);
    assert_eq!(server.get("/health").status, 200);
    let ours = server.get("/metrics").body;
    let kinds = theirs
        .lines()
        .filter(|line| ["# TYPE http_", "# TYPE process_"].iter().any(|start| line.starts_with(start)));
    for kind in kinds {
        assert!(ours.lines().any(|line| line == kind), "{kind}: {ours}");
    }
    for sample in [
        r#"http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1.0"#,
        r#"http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 1.0"#,
        r#"http_requests_total{handler="none",method="GET",status="4xx"} 1.0"#,
        r#"http_request_duration_seconds_count{handler="/v1/completions",method="POST"} 2.0"#,
        "http_request_duration_highr_seconds_count 3.0",
    ] {
        assert!(ours.lines().any(|line| line == sample), "{sample}: {ours}");
    }
    assert!(!ours.contains(r#"handler="/health""#));
}

/// The user's bounds replace those of a family, as in vLLM 0.33; bounds that vLLM refuses are refused.
#[test]
fn histograms_have_the_users_bounds() {
    let server = tiny(r#"--custom-histogram-buckets {"time_to_first_token":[0.3,0.7]}"#);
    let text = server.get("/metrics").body;
    let bounds = |name: &str| {
        let bucket = format!("{name}_bucket");
        let bound = |line: &str| Some(line.split_once("le=\"")?.1.split_once('"')?.0.to_owned());
        text.lines().filter(|line| line.starts_with(&bucket)).filter_map(bound).collect::<Vec<_>>()
    };
    assert_eq!(bounds("vllm:time_to_first_token_seconds"), ["0.3", "0.7", "+Inf"]);
    assert_eq!(bounds("vllm:inter_token_latency_seconds").len(), 20);
    let base = "emulate --model Qwen/Qwen3-0.6B --hardware h100-sxm --custom-histogram-buckets";
    for (arguments, says) in
        [(r#"{"ttft":[1]}"#, "request_latency, time"), (r#"{"request_latency":[1]} --engine sglang"#, "vllm")]
    {
        let run = crate::support::roofcast(&format!("{base} {arguments}"));
        assert!(run.code == 2 && run.err.contains(says), "{}", run.err);
    }
}

/// Two prompts of 64 tokens store four blocks of 16 tokens each. When the first comes again, its first block is still on the
/// device, and the other three are loaded. Two bytes for 28 layers of 8 heads of 128 numbers, twice, are 114,688 bytes a token
/// and 1,835,008 a block. Names are those of vLLM 0.33; version 0.32 has no settings of the tier.
#[test]
fn a_host_tier_has_vllms_metrics() {
    let offers = [
        "load_bytes_total",
        "load_time_total",
        "load_size_count",
        "store_bytes_total",
        "store_time_total",
        "store_size_count",
        "total_bytes_total",
        "total_time_total",
        "size_count",
        "cpu_cache_usage_perc",
        "cpu_cache_write_usage_perc",
        "cpu_cache_read_usage_perc",
        "cpu_allocation_size_count",
        "lookup_sync_delay_seconds_count",
        "lookup_async_delay_seconds_count",
    ];
    assert!(!tiny("").get("/metrics").body.contains("kv_offload"));
    let server = tiny("--kv-offloading-size 1 --num-gpu-blocks 7 --max-model-len 80");
    let prompt = |from: u32| json!({"prompt": (from..from + 64).collect::<Vec<_>>(), "max_tokens": 2, "ignore_eos": true});
    for from in [1000, 2000, 1000] {
        assert_eq!(server.post("/v1/completions", &prompt(from).to_string()).status, 200);
    }
    let text = server.get("/metrics").body;
    for name in offers {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("vllm:kv_offload_{name}{{"))),
            "{name}: {text}"
        );
    }
    let sum = |name: &str| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let [stored, loaded] = ["store", "load"].map(|way| sum(&format!("vllm:kv_offload_{way}_bytes_total")));
    assert_eq!([stored, loaded], [8.0 * 1_835_008.0, 3.0 * 1_835_008.0], "{text}");
    assert_eq!(sum("vllm:kv_offload_total_bytes_total"), stored + loaded);
    assert!(sum("vllm:kv_offload_load_time_total") > 0.0, "{text}");
    // The last token of a prompt is always computed: 16 + 47.
    let host = |line: &&str| line.contains("cached_by_source_total") && line.contains("source=\"host\"");
    assert!(text.lines().find(host).is_some_and(|line| line.ends_with(" 47.0")), "{text}");
    // 2^30 / 1,835,008 = 585 blocks; 16 tokens each.
    assert!(text.contains(r#"cpu_num_chunks="585""#), "{text}");
    let older = tiny("--kv-offloading-size 1 --engine-version 0.32").get("/metrics").body;
    assert!(older.contains("kv_offload_load_bytes") && !older.contains("kv_offload_config_info"));
}

/// vLLM's families by name, each with its type and the label sets of its samples.
fn families(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|l| l.contains("vllm:")) {
        if let Some(named) = line.strip_prefix("# TYPE ") {
            let (name, kind) = named.split_once(' ').unwrap();
            found.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_once('{').unwrap();
            let mut labels: Vec<&str> = rest.rsplit_once('}').unwrap().0.split(',').collect();
            labels.sort();
            let suffixes = ["_bucket", "_count", "_sum"];
            let family =
                suffixes.iter().find_map(|s| name.strip_suffix(s)).filter(|f| found.contains_key(*f));
            let family: &mut (String, BTreeSet<String>) = found.get_mut(family.unwrap_or(name)).unwrap();
            family.1.insert(labels.join(","));
        }
    }
    found
}

/// The replica of the example starts, and every metric that its dashboard draws exists.
#[test]
fn the_dashboard_draws_metrics_that_there_are() {
    let folder = crate::support::root().join("examples/emulate");
    let server = Server::start(&std::fs::read_to_string(folder.join("replica.toml")).unwrap(), "");
    let dashboard = std::fs::read_to_string(folder.join("grafana/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let text = server.get("/metrics").body;
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut drawn = 0;
    for expression in targets.map(|target| target["expr"].as_str().unwrap()) {
        let words = expression.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        for name in words.filter(|word| word.starts_with("vllm:") || word.starts_with("roofcast:")) {
            assert!(text.contains(&format!("\n{name}{{")), "{name}");
            drawn += 1;
        }
    }
    assert!(drawn >= 8, "only {drawn} metrics");
}
