//! Needs of a gateway in addition to answers: names, keys, ids, ranks, content types of bodies, and echoed prompts.

use super::{Server, TINY, begin};
use crate::support::file;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

const PATH: &str = "/v1/completions";
const BODY: &str = r#"{"prompt": "a", "max_tokens": 1}"#;

/// A model given by an alias is served under the alias, which is listed first, and under its own name.
#[test]
fn a_model_has_the_name_that_was_typed() {
    let server = Server::start(&TINY.replace("Qwen/Qwen3-0.6B", "qwen3-0.6b"), "");
    let models = server.get("/v1/models").json();
    let names: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["qwen3-0.6b", "Qwen/Qwen3-0.6B"]);
    for name in names {
        let answer = server.post(PATH, &json!({"model": name, "prompt": "a", "max_tokens": 1}).to_string());
        assert_eq!((answer.status, answer.json()["model"].as_str()), (200, Some(name)));
    }
    assert!(server.get("/metrics").body.contains("model_name=\"qwen3-0.6b\""));
}

/// For paths at which vLLM accepts only JSON, the content type must be JSON, with any parameters after a semicolon.
#[test]
fn bodies_say_that_they_are_json() {
    let server = Server::start(TINY, "--enable-lora --enable-sleep-mode");
    let post = |path: &str, kind: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}");
        server.raw(&format!("{head}content-length: {}\r\n\r\n", body.len()), body.as_bytes())
    };
    let message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    let refusal = json!({"error": {"message": message, "type": "Bad Request", "param": null, "code": 400}});
    for path in [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/tokenize",
        "/detokenize",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    ] {
        for kind in ["", "content-type: application/x-www-form-urlencoded\r\n"] {
            let answer = post(path, kind, "{}");
            assert_eq!((answer.status, answer.json()), (400, refusal.clone()), "{path}");
        }
    }
    assert_eq!(post(PATH, "Content-Type: Application/JSON; charset=utf-8\r\n", BODY).status, 200);
    assert_eq!(post("/sleep?level=0", "", "").status, 200);
}

/// The API key is checked below a path prefix, even if there is no such path or method.
#[test]
fn a_key_is_asked_for_before_routes_are() {
    let server = Server::start(TINY, "--api-key-env KEY_OF_THE_TEST --allow-faults");
    let asked = |path: &str| server.get(path).status;
    let paths = ["/v1/nothing", "/v2/nothing", "/v1/completions", "/admin/faults", "/nothing", "/health"];
    assert_eq!(paths.map(asked), [401, 401, 401, 401, 404, 200]);
    assert_eq!(server.post_with(PATH, BODY, "Authorization: bearer secret\r\n").status, 200);
}

/// A request counts once, whatever number of choices it asks for; an unknown rank is refused.
#[test]
fn load_counts_requests_and_ranks_are_checked() {
    let server = Server::start(TINY, "--time-scale 0.05");
    let body = r#"{"prompt": ["a", "b"], "n": 2, "max_tokens": 2000, "ignore_eos": true, "stream": true}"#;
    let stream = begin(&server, body);
    server.until("vllm:num_requests_running", |n| n == 4.0);
    assert_eq!(server.get("/load").json(), json!({"server_load": 1}));
    drop(stream);
    server.until("vllm:num_requests_running", |n| n == 0.0);
    assert_eq!(server.get("/load").json(), json!({"server_load": 0}));
    let ranked = |rank: &str| server.post_with(PATH, BODY, &format!("X-data-parallel-rank: {rank}\r\n"));
    for rank in ["1", "-1"] {
        let message = format!("data_parallel_rank {rank} is out of range [0, 1).");
        let refusal =
            json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": 400}});
        assert_eq!((ranked(rank).status, ranked(rank).json()), (400, refusal));
    }
    assert_eq!(["0", "none"].map(|rank| ranked(rank).status), [200, 200]);
}

/// A request without an id gets one: the 32 hexadecimal digits of a UUID of version 4, a new one each time.
#[test]
fn requests_get_ids() {
    let server = Server::start(TINY, "--enable-request-id-headers");
    let id = || {
        let head = server.get("/health").head;
        let line = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        line.unwrap_or_else(|| panic!("{head}")).to_owned()
    };
    let ids = [id(), id()];
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert!(&id[12..13] == "4" && "89ab".contains(&id[16..17]), "{id}");
    }
}

/// "the end of" is three tokens by the built-in rule, at characters 0, 3 and 7: they precede the answer's tokens, and
/// the first has no probability. The pieces of a stream add up to this.
#[test]
fn a_prompt_comes_back_with_its_log_probabilities() {
    let server = Server::start(TINY, "");
    let mut body =
        json!({"prompt": "the end of", "max_tokens": 2, "echo": true, "logprobs": 2, "ignore_eos": true});
    let whole = server.post(PATH, &body.to_string()).json()["choices"][0].clone();
    let text = whole["text"].as_str().unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let tokens: Vec<String> =
        list(&whole["logprobs"]["tokens"]).iter().map(|t| t.as_str().unwrap().to_owned()).collect();
    assert_eq!(tokens[..3], ["the", " end", " of"]);
    assert_eq!((tokens.len(), tokens.concat().as_str()), (5, text));
    assert_eq!(whole["logprobs"]["text_offset"], json!([0, 3, 7, 10, 10 + tokens[3].len()]));
    for column in ["token_logprobs", "top_logprobs"] {
        let nulls: Vec<bool> = list(&whole["logprobs"][column]).iter().map(Value::is_null).collect();
        assert_eq!(nulls, [true, false, false, false, false], "{column}");
    }
    body["stream"] = true.into();
    let events = server.post(PATH, &body.to_string()).events();
    assert_eq!(events.len(), 2);
    for column in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let pieces = events.iter().flat_map(|event| list(&event["choices"][0]["logprobs"][column]));
        assert_eq!(pieces.collect::<Vec<_>>(), list(&whole["logprobs"][column]), "{column}");
    }
    // With max_tokens 0 the answer is only the prompt, for which vLLM computes and counts one token.
    body["max_tokens"] = 0.into();
    let events = server.post(PATH, &body.to_string()).events();
    assert_eq!(events[0]["choices"][0]["text"], "the end of");
    body["stream"] = false.into();
    let only = server.post(PATH, &body.to_string()).json();
    assert_eq!(only["choices"][0]["text"], "the end of");
    assert_eq!(only["choices"][0]["logprobs"]["tokens"], json!(["the", " end", " of"]));
    assert_eq!(
        (&only["usage"]["prompt_tokens"], &only["usage"]["completion_tokens"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(only["choices"][0]["finish_reason"], "length");
}

/// The roles of all choices precede the first word of any choice.
#[test]
fn a_chat_begins_with_all_roles() {
    let server = Server::start(TINY, "");
    let body = r#"{"messages": [{"role": "user", "content": "hi"}], "n": 3, "max_tokens": 4, "ignore_eos": true,
        "stream": true}"#;
    let events = server.post("/v1/chat/completions", body).events();
    assert_eq!(events.len(), 3 + 3 * 4);
    for (index, event) in events.iter().enumerate() {
        let choice = &event["choices"][0];
        assert_eq!(choice["delta"]["role"].is_string(), index < 3, "{event}");
        assert!(index >= 3 || choice["index"] == index, "{event}");
    }
}

/// An answer of one token has no gap between tokens: vLLM observes a time per token of 0.
#[test]
fn one_token_takes_no_time_after_the_first() {
    let server = Server::start(TINY, "");
    assert_eq!(server.post(PATH, BODY).status, 200);
    let of = |what: &str| server.metric(&format!("vllm:request_time_per_output_token_seconds_{what}"));
    assert_eq!([of("count"), of("sum")], [1.0, 0.0]);
}

/// One adapter may run at a time: a request for another adapter is counted as deferred, not as waiting for capacity.
#[test]
fn a_request_waits_for_its_adapters_slot() {
    let flags = "--enable-lora --lora-modules one=/a/one --lora-modules two=/a/two --time-scale 0.05";
    let server = Server::start(TINY, flags);
    let body = |model: &str| {
        json!({"model": model, "prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true})
            .to_string()
    };
    let first = begin(&server, &body("one"));
    server.until("vllm:num_requests_running", |n| n == 1.0);
    let _second = begin(&server, &body("two"));
    let waiting = |reason: &str| {
        let labels = format!("engine=\"0\",model_name=\"Qwen/Qwen3-0.6B\",reason=\"{reason}\"");
        format!("vllm:num_requests_waiting_by_reason{{{labels}}}")
    };
    server.until(&waiting("deferred"), |n| n == 1.0);
    assert_eq!(server.metric(&waiting("capacity")), 0.0);
    drop(first);
    server.until(&waiting("deferred"), |n| n == 0.0);
    assert_eq!(server.metric("vllm:num_requests_running"), 1.0);
}

/// Features that the scheduler or the number of replicas does not support are refused at start-up, with a hint.
#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let (_folder, path) = crate::support::file("spec.toml", TINY.as_bytes());
    let events = r#"{"endpoint":"tcp://127.0.0.1:17557","replay_endpoint":"tcp://127.0.0.1:17558"}"#;
    for (flags, says) in [
        (
            "--engine sglang --replicas 1P1D --transfer-link nvlink".to_owned(),
            ["fleet.prefill", "--scheduler vllm"],
        ),
        (
            "--engine sglang --num-speculative-tokens 3 --acceptance-rate 0.7 --draft-cost 0.1".to_owned(),
            ["scheduler", "speculative"],
        ),
        ("--engine sglang --enable-lora".to_owned(), ["enable_lora", "scheduler vllm"]),
        (format!("--engine sglang --kv-events-config {events}"), ["--kv-events-config", "--scheduler vllm"]),
        (format!("--replicas 2 --kv-events-config {events}"), ["replay_endpoint", "2 or more"]),
    ] {
        let run = crate::support::roofcast(&format!("emulate {path} --port 0 {flags}"));
        assert_eq!(run.code, 2, "{flags}: {}", run.err);
        says.iter().for_each(|part| assert!(run.err.contains(part), "{flags}: {}", run.err));
    }
}

/// A server whose model reads images says at its start that it does not count them, any other server does not.
#[test]
fn a_server_says_that_images_are_not_counted() {
    let first_lines = |model: &str| {
        let (_folder, path) = file("spec.toml", TINY.replace("Qwen/Qwen3-0.6B", model).as_bytes());
        let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["emulate", &path, "--port", "0"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
        let before: Vec<String> = lines.take_while(|line| !line.starts_with("listening on ")).collect();
        server.kill().unwrap();
        server.wait().unwrap();
        before.join(" ")
    };
    assert!(first_lines("Qwen/Qwen3-VL-8B-Instruct").contains("images in requests have no tokens"));
    assert!(!first_lines("Qwen/Qwen3-0.6B").contains("images"));
}
