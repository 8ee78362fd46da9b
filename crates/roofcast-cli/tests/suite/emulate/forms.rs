//! Answers of a required form: JSON by a schema, vectors, Anthropic's messages; and the rights of other sites' pages.

use super::{Server, TINY};
use crate::support::json as run_json;
use serde_json::{Value, json};
use std::process::Command;

fn posted(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// The request of langchain's `with_structured_output` and openai's `.parse()`: the schema of a class, with definitions
/// and an optional field; the answer must parse.
#[test]
fn an_answer_by_a_schema_parses() {
    let server = Server::start(TINY, "");
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["title", "steps", "mood", "note"],
        "$defs": {"Step": {"type": "object", "required": ["minutes"], "properties": {"minutes": {"type": "integer", "minimum": 1}}}},
        "properties": {"title": {"type": "string"}, "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
            "mood": {"enum": ["good", "bad"]}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "recipe", "strict": true, "schema": schema}});
    let messages = json!([{"role": "user", "content": "a recipe"}]);
    let check = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value["title"].is_string() && value["note"].is_string(), "{value}");
        assert!(value["steps"][0]["minutes"].as_i64().unwrap() >= 1, "{value}");
        assert!(["good", "bad"].contains(&value["mood"].as_str().unwrap()), "{value}");
    };
    let chat =
        posted(&server, "/v1/chat/completions", &json!({"messages": messages, "response_format": format}));
    assert_eq!(chat["choices"][0]["finish_reason"], "stop");
    check(chat["choices"][0]["message"]["content"].as_str().unwrap());
    let guided =
        posted(&server, "/v1/completions", &json!({"prompt": "a", "max_tokens": 200, "guided_json": schema}));
    check(guided["choices"][0]["text"].as_str().unwrap());
    let format = json!({"format": {"type": "json_schema", "name": "recipe", "schema": schema}});
    let response = posted(&server, "/v1/responses", &json!({"input": "a recipe", "text": format}));
    check(response["output"][0]["content"][0]["text"].as_str().unwrap());
    let choice = json!({"messages": messages, "structured_outputs": {"choice": ["yes", "no"]}});
    let choice = posted(&server, "/v1/chat/completions", &choice);
    assert!(
        ["yes", "no"].contains(&choice["choices"][0]["message"]["content"].as_str().unwrap()),
        "{choice}"
    );
}

/// Vectors have the model's width (1,024 of Qwen3-0.6B), as numbers and as the base64 that openai's client asks for: 4
/// bytes a number, four letters for three bytes.
#[test]
fn embeddings_are_vectors_of_the_prompts() {
    let server = Server::start(TINY, "");
    let two =
        posted(&server, "/v1/embeddings", &json!({"model": "Qwen/Qwen3-0.6B", "input": ["the of", "and"]}));
    let vectors: Vec<usize> =
        two["data"].as_array().unwrap().iter().map(|d| d["embedding"].as_array().unwrap().len()).collect();
    assert_eq!((vectors, &two["usage"]["prompt_tokens"]), (vec![1024, 1024], &3.into()));
    let packed = json!({"input": "the of", "encoding_format": "base64", "dimensions": 6});
    let packed = posted(&server, "/v1/embeddings", &packed);
    assert_eq!(packed["data"][0]["embedding"].as_str().unwrap().len(), 6 * 4 / 3 * 4);
    assert_eq!(server.post("/v1/embeddings", r#"{"input": "a", "encoding_format": "hex"}"#).status, 400);
    assert_eq!(server.post("/v1/embeddings", r#"{"input": []}"#).status, 400);
}

/// `bench` uses every emulated endpoint in its own form, and its token counts agree with the emulator's.
#[test]
fn bench_reads_every_endpoint() {
    let server = Server::start(TINY, "");
    for (endpoint, tokens) in [("chat", 12), ("responses", 12), ("messages", 12), ("embeddings", 0)] {
        let (answer, _) = run_json(&format!(
            "bench --url {} --model Qwen/Qwen3-0.6B --endpoint {endpoint} --requests 3 --input-len 40 --output-len 4 --max-lag 100000",
            server.url()
        ));
        let count = |key: &str| answer[key].as_u64();
        assert_eq!(
            (count("completed"), count("total_output_tokens")),
            (Some(3), Some(tokens)),
            "{endpoint}: {answer}"
        );
        assert_eq!(count("total_input_tokens"), Some(120), "{endpoint}: {answer}");
        assert_eq!(answer["mean_ttft_ms"].is_number(), tokens > 0, "{endpoint}: {answer}");
    }
}

/// Anthropic's clients count tokens before they ask, and read its form of errors.
#[test]
fn tokens_and_errors_are_anthropics() {
    let server = Server::start(TINY, "");
    let body = json!({"messages": [{"role": "user", "content": "the end of"}], "max_tokens": 2});
    let counted = posted(&server, "/v1/messages/count_tokens", &body);
    let answer = posted(&server, "/v1/messages", &body);
    assert_eq!(counted["input_tokens"], answer["usage"]["input_tokens"]);
    let refused = server.post("/v1/messages", r#"{"messages": []}"#);
    let error = refused.json();
    assert_eq!((refused.status, &error["type"]), (400, &json!("error")));
    assert!(error["error"]["type"].is_string() && error["error"]["message"].is_string(), "{error}");
}

/// Anthropic's message in one piece and as events, and its required bound on tokens.
#[test]
fn messages_are_anthropics() {
    let server = Server::start(TINY, "");
    let body = json!({"model": "Qwen/Qwen3-0.6B", "max_tokens": 4, "system": [{"type": "text", "text": "be terse"}],
        "messages": [{"role": "user", "content": "hello"}]});
    let whole = posted(&server, "/v1/messages", &body);
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&"message".into(), &"max_tokens".into()), "{whole}");
    assert_eq!(whole["usage"]["output_tokens"], 4);
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let stream = server.post("/v1/messages", &streamed.to_string());
    let events: Vec<&str> = stream.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let expected = ["message_start", "content_block_start", "content_block_delta"];
    assert_eq!((&events[..3], events.len()), (&expected[..], 2 + 4 + 3), "{}", stream.body);
    let text: String = stream
        .body
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(text, whole["content"][0]["text"].as_str().unwrap());
    assert_eq!(
        server.post("/v1/messages", r#"{"messages": [{"role": "user", "content": "a"}]}"#).status,
        400
    );
}

/// A page of another site may send requests and read answers, as with vLLM; it may not administer, and neither may a
/// host name that resolves to this address.
#[test]
fn pages_of_other_sites_ask_but_do_not_administer() {
    let server = Server::start(TINY, "--allow-faults");
    let ask = |method: &str, path: &str, headers: &str| {
        server.raw(
            &format!("{method} {path} HTTP/1.1\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n"),
            b"",
        )
    };
    let host = format!("host: {}\r\n", server.address);
    let elsewhere = format!("{host}origin: http://app.example\r\n");
    let before = format!(
        "{elsewhere}access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n"
    );
    let preflight = ask("OPTIONS", "/v1/chat/completions", &before);
    let said = |head: &str, line: &str| head.to_lowercase().contains(line);
    assert!(
        preflight.status == 200 && said(&preflight.head, "access-control-allow-headers: content-type"),
        "{}",
        preflight.head
    );
    let models = ask("GET", "/v1/models", &elsewhere);
    assert!(models.status == 200 && said(&models.head, "access-control-allow-origin: *"), "{}", models.head);
    assert!(!said(&ask("GET", "/v1/models", &host).head, "access-control"));
    assert_eq!(ask("GET", "/admin/faults", &host).status, 200);
    for headers in [elsewhere.as_str(), &before, "host: rebound.example\r\n"] {
        let refused = ask("GET", "/admin/faults", headers);
        assert!(
            refused.status == 403 && !said(&refused.head, "access-control"),
            "{headers}: {}",
            refused.head
        );
    }
    let paths = &ask("GET", "/openapi.json", &host).json()["paths"];
    assert!(paths["/v1/chat/completions"]["post"].is_object() && paths["/sleep"].is_null(), "{paths}");
}

/// Fixed latencies with llm-d-inference-sim's names: 40 ms to the first token, 10 ms to each of the next four, for
/// every request, whatever the load. A client cannot measure less than these; the server counts the tokens that it
/// sends.
#[test]
fn latencies_may_be_stated() {
    let server = Server::start(TINY, "--time-to-first-token 40 --inter-token-latency 10");
    let (answer, _) = run_json(&format!(
        "bench --url {} --model Qwen/Qwen3-0.6B --concurrency 4 --requests 8 --input-len 900 --output-len 5 --assume-tokens --max-lag 100000",
        server.url()
    ));
    let ms = |key: &str| answer[key].as_f64().unwrap();
    assert_eq!((&answer["completed"], &answer["total_output_tokens"]), (&8.into(), &40.into()), "{answer}");
    assert!(ms("mean_ttft_ms") >= 39.9 && ms("mean_e2el_ms") >= 79.9, "{answer}");
    assert!(ms("median_ttft_ms") < 400.0, "{answer}");
    assert_eq!(server.metric("vllm:generation_tokens_total"), 40.0);
    server.until("vllm:num_requests_running", |n| n == 0.0);
    let alone = crate::support::roofcast("emulate --model Qwen/Qwen3-0.6B --hardware h100-sxm --ttft 5");
    assert!(alone.code == 2 && alone.err.contains("--itl"), "{}", alone.err);
}

/// Changes the time to the first token from 5 ms to 200 ms while the server runs, and back. A request of two tokens takes
/// this time and one gap: 5 + 1 = 6 ms, then 200 + 100 = 300 ms.
#[test]
fn stated_latencies_change_while_the_server_runs() {
    let server = Server::start(TINY, "--time-scale 0 --ttft 5 --itl 1 --allow-faults");
    let takes = |ms: f64| {
        let sum = || server.metric("vllm:e2e_request_latency_seconds_sum");
        let (before, body) = (sum(), r#"{"prompt": "a", "max_tokens": 2, "ignore_eos": true}"#);
        assert_eq!(server.advancing(|| server.post("/v1/completions", body)).status, 200);
        (1e3 * (sum() - before) - ms).abs() < 1e-6
    };
    assert!(takes(6.0));
    let set = server.post("/admin/latencies", r#"{"ttft_ms": 200, "itl_ms": 100}"#);
    assert_eq!(set.json()["latencies"]["ttft_ms"], 200.0);
    assert!(takes(300.0));
    assert_eq!(server.get("/admin/latencies").json()["latencies"]["itl_ms"], 100.0);
    for wrong in [r#"{"ttft_ms": -1, "itl_ms": 1}"#, r#"{"ttft_ms": 1}"#, "nonsense"] {
        let refused = server.post("/admin/latencies", wrong);
        assert!(refused.status == 400 && refused.body.contains("accepted"), "{}", refused.body);
    }
    let end =
        server.raw("DELETE /admin/latencies HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"");
    assert_eq!(end.json()["latencies"]["ttft_ms"], 5.0);
    assert!(takes(6.0));
    // An engine that takes steps has no fixed latencies to change.
    assert_eq!(Server::start(TINY, "--allow-faults").get("/admin/latencies").status, 404);
}

/// The certificate is self-signed: `bench` accepts it only with --insecure.
#[test]
fn https_by_a_certificate_and_its_key() {
    let data = "crates/roofcast-cli/tests/fixtures/tls";
    let server =
        Server::start(TINY, &format!("--ssl-certfile {data}/server.pem --ssl-keyfile {data}/server.key"));
    let bench = format!(
        "bench --url https://{} --model Qwen/Qwen3-0.6B --requests 4 --input-len 50 --output-len 5 --assume-tokens --max-lag 100000",
        server.address
    );
    let (answer, _) = run_json(&format!("{bench} --insecure"));
    assert_eq!((&answer["completed"], &answer["total_output_tokens"]), (&4.into(), &20.into()), "{answer}");
    let (answer, code) = run_json(&bench);
    assert!(code == 3 || answer["completed"] == 0, "{answer}");
    // Plain HTTP at this port fails in the TLS handshake: the connection ends, and the server continues.
    assert_eq!(server.get("/health").status, 0);
    assert_eq!(run_json(&format!("{bench} --insecure")).0["completed"], 4);
    let wrong = crate::support::roofcast(&format!(
        "emulate --model Qwen/Qwen3-0.6B --hardware h100-sxm --ssl-certfile {data}/server.key --ssl-keyfile {data}/server.key"
    ));
    assert!(wrong.code == 2 && wrong.err.contains("`--ssl-certfile`"), "{}", wrong.err);
}

#[test]
fn an_empty_key_is_refused() {
    let (_folder, path) = crate::support::file("spec.toml", TINY.as_bytes());
    let output = Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["emulate", &path, "--port", "0", "--api-key-env", "EMPTY_KEY_OF_THE_TEST"])
        .env("EMPTY_KEY_OF_THE_TEST", " ")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("EMPTY_KEY_OF_THE_TEST"), "{said}");
}
