//! Changes to a server while it runs: sleep, adapters, pinned gauges; KV caches from other instances; `/v1/responses`.

use super::{Server, TINY, accepted, begin, read};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/completions";
const BODY: &str = r#"{"prompt": "a", "max_tokens": 8, "ignore_eos": true}"#;
const LONG: &str = r#"{"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true}"#;

/// A sleeping server aborts its current requests and queues new ones; after waking it serves them.
#[test]
fn a_server_sleeps_and_wakes() {
    let server = Server::start(TINY, "--enable-sleep-mode --time-scale 0");
    assert_eq!(server.get("/is_sleeping").json(), json!({"is_sleeping": false}));
    let under_way = begin(&server, LONG);
    server.until("vllm:num_requests_running", |n| n == 1.0);
    let asleep = server.advancing(|| server.post("/sleep?level=1&mode=abort", "")).json();
    assert_eq!(asleep, json!({"status": "sleeping", "level": 1}));
    let events = read(under_way).events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "abort");
    assert!(events.len() < 2000);
    let state = |state: &str| {
        server.metric(&format!(
            "vllm:engine_sleep_state{{engine=\"0\",model_name=\"Qwen/Qwen3-0.6B\",sleep_state=\"{state}\"}}"
        ))
    };
    assert_eq!([state("awake"), state("weights_offloaded"), state("discard_all")], [0.0, 1.0, 0.0]);
    let waiting = begin(&server, BODY);
    server.until("vllm:num_requests_waiting{", |n| n == 1.0);
    server.advance(1.0);
    assert_eq!(server.metric("vllm:num_requests_running"), 0.0);
    // The server is awake once both its memories, weights and KV cache, are awake.
    let woken = server.post("/wake_up?tags=weights", "").json();
    assert_eq!(woken, json!({"status": "sleeping", "tags": ["weights"]}));
    assert_eq!(server.get("/is_sleeping").json(), json!({"is_sleeping": true}));
    assert_eq!(server.post("/wake_up", "").json(), json!({"status": "awake", "tags": null}));
    assert_eq!(server.advancing(|| read(waiting)).json()["usage"]["completion_tokens"], 8);
    assert_eq!(server.post("/sleep?level=7", "").status, 400);
    assert_eq!(server.post("/sleep?mode=never", "").status, 400);
}

/// In mode `keep`, requests continue after the pause with the tokens that they had. No time passes for them while the
/// clock is advanced; the engine has seen this time when it counts a request that arrives after it.
#[test]
fn kept_requests_go_on() {
    let server = Server::start(TINY, "--enable-sleep-mode --time-scale 0");
    let body = r#"{"prompt": "a", "max_tokens": 300, "ignore_eos": true, "stream": true}"#;
    let under_way = begin(&server, body);
    server.advance_until("vllm:generation_tokens_total", |n| n > 3.0);
    assert_eq!(server.advancing(|| server.post("/sleep?level=0&mode=keep", "")).status, 200);
    let before = server.metric("vllm:generation_tokens_total");
    server.advance(1000.0);
    let later = begin(&server, BODY);
    server.until("vllm:num_requests_waiting{", |n| n == 1.0);
    assert_eq!(server.metric("vllm:generation_tokens_total"), before);
    assert_eq!(server.post("/wake_up", "").status, 200);
    assert_eq!(server.advancing(|| read(under_way)).events().len(), 300);
    assert_eq!(server.advancing(|| read(later)).json()["usage"]["completion_tokens"], 8);
    assert_eq!(server.metric("vllm:num_requests_running"), 0.0);
}

/// In mode `wait`, the sleep request is answered when the current requests have all their tokens, and new requests
/// wait. After level 1 the prompt is computed again; after level 0 three of its four blocks are found, and the fourth
/// is computed for its last token.
#[test]
fn running_requests_end_before_sleep() {
    let server = Server::start(TINY, "--enable-sleep-mode --time-scale 0");
    let prompt: Vec<u32> = (1000..1064).collect();
    let mut body = json!({"prompt": prompt, "max_tokens": 100, "ignore_eos": true, "stream": true});
    let under_way = begin(&server, &body.to_string());
    server.until("vllm:num_requests_running", |n| n == 1.0);
    let asleep = server.advancing(|| server.post("/sleep?level=1&mode=wait", "")).json();
    assert_eq!(asleep, json!({"status": "sleeping", "level": 1}));
    assert_eq!(server.metric("vllm:generation_tokens_total"), 100.0);
    let events = read(under_way).events();
    assert_eq!((events.len(), &events[99]["choices"][0]["finish_reason"]), (100, &json!("length")));
    (body["stream"], body["max_tokens"]) = (false.into(), 4.into());
    for (level, cached) in [(1, Value::Null), (0, json!({"cached_tokens": 48}))] {
        assert_eq!(server.post(&format!("/sleep?level={level}&mode=wait"), "").status, 200);
        let waiting = begin(&server, &body.to_string());
        server.until("vllm:num_requests_waiting{", |n| n == 1.0);
        assert_eq!(server.metric("vllm:num_requests_running"), 0.0);
        assert_eq!(server.post("/wake_up", "").status, 200);
        assert_eq!(
            server.advancing(|| read(waiting)).json()["usage"]["prompt_tokens_details"],
            cached,
            "level {level}"
        );
    }
}

#[test]
fn sleep_has_to_be_enabled() {
    let server = Server::start(TINY, "");
    assert_eq!(server.post("/sleep", "").status, 404);
    assert_eq!(server.post("/v1/load_lora_adapter", "{}").status, 404);
}

/// An adapter is loaded, listed, requested by its name, shown in the metric by which routers know affinity, and
/// unloaded.
#[test]
fn adapters_come_and_go() {
    let server = Server::start(
        TINY,
        "--enable-lora --max-loras 2 --lora-modules first=/adapters/first --time-scale 0.05",
    );
    let load = r#"{"lora_name": "second", "lora_path": "/adapters/second"}"#;
    let loaded = server.post("/v1/load_lora_adapter", load);
    assert_eq!(
        (loaded.status, loaded.body.as_str()),
        (200, "Success: LoRA adapter 'second' added successfully.")
    );
    let again = server.post("/v1/load_lora_adapter", load);
    assert_eq!((again.status, again.json()["error"]["type"].as_str()), (400, Some("InvalidUserInput")));
    let models = server.get("/v1/models").json();
    let cards: Vec<_> =
        models["data"].as_array().unwrap().iter().map(|m| (m["id"].clone(), m["parent"].clone())).collect();
    let base = json!("Qwen/Qwen3-0.6B");
    assert_eq!(cards, [(base.clone(), Value::Null), (json!("first"), base.clone()), (json!("second"), base)]);
    let answer = server.post(PATH, r#"{"model": "second", "prompt": "a", "max_tokens": 2}"#).json();
    assert_eq!(answer["model"], "second");
    let _stream = begin(&server, &LONG.replace("{\"prompt\"", "{\"model\": \"first\", \"prompt\""));
    let info =
        "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"first\",waiting_lora_adapters=\"\"}";
    let start = Instant::now();
    while !server.get("/metrics").body.contains(info) {
        assert!(start.elapsed() < Duration::from_secs(30), "no {info}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.post("/v1/unload_lora_adapter", r#"{"lora_name": "second"}"#).status, 200);
    assert_eq!(server.post("/v1/unload_lora_adapter", r#"{"lora_name": "second"}"#).status, 404);
    assert_eq!(server.post(PATH, r#"{"model": "second", "prompt": "a"}"#).status, 404);
}

/// For each rank of an adapter, a layer of Qwen3-0.6B has 22,528 inputs and outputs: q and o 1024 + 2048, k and v
/// 1024 + 1024, gate, up and down 1024 + 3072. With rank 256 in 28 layers these are 161 million weights, 323 MB,
/// which take 96.4 µs to read at 3.35 TB/s, in each of ten gaps between eleven tokens.
#[test]
fn adapters_take_time() {
    let flags = "--enable-lora --max-lora-rank 256 --lora-modules first=/adapters/first";
    let server = Server::start(TINY, flags);
    let gaps = |model: &str| {
        let sum = || server.metric("vllm:inter_token_latency_seconds_sum");
        let before = sum();
        let body = json!({"model": model, "prompt": "a", "max_tokens": 11, "ignore_eos": true});
        assert_eq!(server.post(PATH, &body.to_string()).status, 200);
        sum() - before
    };
    let longer = gaps("first") - gaps("Qwen/Qwen3-0.6B");
    let expected = 10.0 * 22_528.0 * 256.0 * 28.0 * 2.0 / 3.35e12;
    assert!((longer / expected - 1.0).abs() < 1e-3, "{longer} s for {expected}");
}

/// A pinned gauge shows its value in a scrape and in the head of an answer; names that are not gauges are refused.
#[test]
fn gauges_are_pinned() {
    let server = Server::start(TINY, "--allow-faults");
    let pin = r#"{"vllm:num_requests_waiting": {"value": 12},
        "vllm:kv_cache_usage_perc": {"ramp": {"from": 0.5, "to": 0.9, "seconds": 0.001}}}"#;
    assert_eq!(server.post("/admin/metrics", pin).status, 200);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(server.metric("vllm:num_requests_waiting{"), 12.0);
    assert_eq!(server.metric("vllm:kv_cache_usage_perc"), 0.9);
    let answer = server.post_with(PATH, BODY, "endpoint-load-metrics-format: TEXT\r\n");
    assert!(answer.head.contains("num_requests_waiting=12.0"), "{}", answer.head);
    assert!(server.get("/admin/metrics").body.contains("\"ramp\""));
    for wrong in
        [r#"{"vllm:generation_tokens_total": {"value": 1}}"#, r#"{"vllm:kv_cache_usage_perc": 1}"#, "[]"]
    {
        assert_eq!(server.post("/admin/metrics", wrong).status, 400, "{wrong}");
    }
    let end =
        server.raw("DELETE /admin/metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"");
    assert_eq!(end.json(), json!({"pinned": {}}));
    assert_eq!(server.metric("vllm:num_requests_waiting{"), 0.0);
}

/// One instance computes a prompt, and another continues the answer: it receives the location of the KV cache, fetches
/// the cache over the link, and computes one token.
#[test]
fn a_prompt_computed_elsewhere_is_not_computed_again() {
    let (prefill, decode) = (Server::start(TINY, ""), Server::start(TINY, "--transfer-link pcie"));
    let prompt: Vec<u32> = (100..1124).collect();
    let body = json!({"prompt": prompt, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": true}});
    let params = prefill.post(PATH, &body.to_string()).json()["kv_transfer_params"].clone();
    assert_eq!((&params["do_remote_prefill"], &params["remote_num_tokens"]), (&json!(true), &json!(1024)));
    // 1024 tokens are 64 blocks of 16.
    assert_eq!(params["remote_block_ids"][0].as_array().unwrap().len(), 64);
    let body = json!({"prompt": prompt, "max_tokens": 5, "ignore_eos": true, "kv_transfer_params": params});
    let answer = decode.post(PATH, &body.to_string()).json();
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    let source = |server: &Server, source: &str| {
        let labels = format!("engine=\"0\",model_name=\"Qwen/Qwen3-0.6B\",source=\"{source}\"");
        server.metric(&format!("vllm:prompt_tokens_by_source_total{{{labels}}}"))
    };
    assert_eq!(source(&prefill, "local_compute"), 1024.0);
    assert_eq!([source(&decode, "local_compute"), source(&decode, "external_kv_transfer")], [0.0, 1024.0]);
    // Qwen3-0.6B has 28 layers x 2 x 8 heads x 128 x 2 bytes = 114,688 bytes of KV a token: 117 MB for 1024 tokens,
    // which PCIe at 25 GB/s transfers in 4.7 ms. The first token cannot be earlier.
    let [sum, count] =
        ["sum", "count"].map(|of| decode.metric(&format!("vllm:time_to_first_token_seconds_{of}")));
    assert!(count == 1.0 && sum >= 0.0046, "{sum} s");
}

/// Input is a text or messages, output one message, in one piece and as events that add up to its text.
#[test]
fn responses_in_their_simplest_form() {
    let server = Server::start(TINY, "--time-scale 100");
    let mut body =
        json!({"input": "tell me", "instructions": "be brief", "max_output_tokens": 6, "ignore_eos": true});
    let whole = server.post("/v1/responses", &body.to_string()).json();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(whole["usage"]["output_tokens"], 6);
    let text = whole["output"][0]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(!text.is_empty());
    body["stream"] = true.into();
    let streamed = server.post("/v1/responses", &body.to_string());
    let data = streamed.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> =
        data.filter(|d| *d != "[DONE]").map(|d| serde_json::from_str(d).unwrap()).collect();
    let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    // Four events at the beginning, six tokens, four events at the end.
    assert_eq!(events.len(), 14);
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), text);
    let last = events.last().unwrap();
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], text);
    // At the token limit, too, the last event is `response.completed`; the response in it says `incomplete`.
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.completed"), &json!("incomplete"))
    );
    let messages = json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]});
    assert_eq!(server.post("/v1/responses", &messages.to_string()).status, 200);
    assert_eq!(server.post("/v1/responses", "{}").status, 400);
}

/// A stopped clock shows the sum of its advances, and only a stopped clock can be advanced. With a first token 200 ms after the
/// request and a token each 100 ms after it, three tokens are released at 0.45 s: at 0.2, 0.3 and 0.4 s.
#[test]
fn a_stopped_clock_is_advanced() {
    let server = Server::start(TINY, "--time-scale 0 --ttft 200 --itl 100");
    let _stream = accepted(&server, LONG);
    assert_eq!(server.get("/admin/clock").json(), json!({"seconds": 0.0}));
    server.advance(0.25);
    server.until("vllm:generation_tokens_total", |n| n == 1.0);
    assert_eq!(server.post("/admin/clock", r#"{"advance_seconds": 0.2}"#).json(), json!({"seconds": 0.45}));
    server.until("vllm:generation_tokens_total", |n| n == 3.0);
    assert_eq!(server.metric("vllm:time_to_first_token_seconds_sum"), 0.2);
    assert!((server.metric("vllm:inter_token_latency_seconds_sum") - 0.2).abs() < 1e-9);
    for wrong in [r#"{"advance_seconds": -1}"#, r#"{"advance_seconds": "1"}"#, "{}", "nonsense"] {
        assert_eq!(server.post("/admin/clock", wrong).status, 400, "{wrong}");
    }
    assert_eq!(Server::start(TINY, "").get("/admin/clock").status, 404);
}

/// SIGTERM ends a server in the middle of a step that its stopped clock never ends.
#[test]
fn a_stopped_clock_holds_no_exit() {
    let mut server = Server::start(TINY, "--time-scale 0 --drain 0.1");
    let _stream = accepted(&server, LONG);
    server.until("vllm:num_requests_running", |n| n == 1.0);
    let id = server.process.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}
