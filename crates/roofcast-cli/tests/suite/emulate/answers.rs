//! Texts and lengths of answers, and their reuse from the prefix cache.

use super::{Server, TINY};
use serde_json::{Value, json};

fn completion(server: &Server, body: Value) -> Value {
    let answer = server.post("/v1/completions", &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn lengths_stops_and_echo() {
    let server = Server::start(TINY, "--enable-request-id-headers");
    let whole = completion(&server, json!({"prompt": "the end of", "max_tokens": 30, "ignore_eos": true}));
    let text = whole["choices"][0]["text"].as_str().unwrap();
    let usage = |answer: &Value, key: &str| answer["usage"][key].as_u64().unwrap();
    assert_eq!((usage(&whole, "prompt_tokens"), usage(&whole, "completion_tokens")), (3, 30));
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    // A repeated prompt gets an equal answer; a stop string ends the answer before the string.
    let words: Vec<&str> = text.split(' ').collect();
    let body = json!({"prompt": "the end of", "max_tokens": 30, "ignore_eos": true, "stop": words[7]});
    let stopped = completion(&server, body);
    let first = words.iter().position(|w| *w == words[7]).unwrap();
    let choice = &stopped["choices"][0];
    assert_eq!(
        (choice["finish_reason"].as_str(), choice["stop_reason"].as_str()),
        (Some("stop"), Some(words[7]))
    );
    let cut = choice["text"].as_str().unwrap();
    assert!(
        text.starts_with(cut)
            && !cut.contains(words[7])
            && usage(&stopped, "completion_tokens") <= first as u64
    );
    let body =
        json!({"prompt": ["the", "of the"], "n": 2, "max_tokens": 2, "echo": true, "ignore_eos": true});
    let many = completion(&server, body);
    let texts: Vec<_> =
        many["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert!(texts.len() == 4 && texts[1].starts_with("the ") && texts[2].starts_with("of the "));
    assert_ne!(texts[0], texts[1]);
    let given = server.post_with("/v1/completions", r#"{"prompt": "a"}"#, "X-Request-Id: mine\r\n");
    assert_eq!(given.json()["id"], "cmpl-mine");
    assert!(given.head.contains("x-request-id: mine"));
}

/// The tokens of a stream add up to the text of the answer that is not streamed.
#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = Server::start(TINY, "");
    let mut body = json!({"messages": [{"role": "user", "content": "tell me"}], "max_tokens": 40, "n": 3, "ignore_eos": true});
    let whole = server.post("/v1/chat/completions", &body.to_string()).json();
    body["stream"] = true.into();
    let mut said = vec![String::new(); 3];
    for event in server.post("/v1/chat/completions", &body.to_string()).events() {
        let choice = &event["choices"][0];
        let text = &mut said[choice["index"].as_u64().unwrap() as usize];
        text.push_str(choice["delta"]["content"].as_str().unwrap());
    }
    for (choice, said) in said.iter().enumerate() {
        assert_eq!(whole["choices"][choice]["message"]["content"].as_str(), Some(said.as_str()));
    }
}

/// A second turn repeats the first turn's messages and answer: the cache has all of these tokens except the last,
/// incomplete block of 16.
#[test]
fn a_second_turn_finds_the_first_in_the_cache() {
    let server = Server::start(TINY, "");
    let ask = "the quick brown fox jumps over the lazy dog and runs home again before it is dark";
    let mut messages = vec![json!({"role": "user", "content": ask})];
    let turn = |messages: &[Value]| {
        let body = json!({"messages": messages, "max_tokens": 64, "ignore_eos": true});
        server.post("/v1/chat/completions", &body.to_string()).json()
    };
    let first = turn(&messages);
    assert_eq!(first["usage"]["prompt_tokens_details"], Value::Null);
    messages.push(json!({"role": "assistant", "content": first["choices"][0]["message"]["content"]}));
    messages.push(json!({"role": "user", "content": "and then"}));
    let second = turn(&messages);
    let computed = first["usage"]["total_tokens"].as_u64().unwrap() - 1;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached, Some(computed / 16 * 16));
    assert_eq!(server.metric("vllm:prefix_cache_hits_total"), (computed / 16 * 16) as f64);
}

#[test]
fn text_goes_to_tokens_and_back() {
    let server = Server::start(TINY, "");
    let tokens = server.post("/tokenize", r#"{"prompt": "the café is open"}"#).json();
    assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
    let back = server.post("/detokenize", &json!({"tokens": tokens["tokens"]}).to_string()).json();
    assert_eq!(back["prompt"], "the café is open");
    let chat = server.post("/tokenize", r#"{"messages": [{"role": "user", "content": "hi"}]}"#).json();
    let asked = server.post(
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}"#,
    );
    assert_eq!(chat["count"], asked.json()["usage"]["prompt_tokens"]);
    assert_eq!(server.get("/version").json()["version"], "0.32.0");
    assert_eq!(server.get("/load").json()["server_load"], 0);
}

#[test]
fn a_key_is_asked_for_where_one_is_set() {
    let server = Server::start(TINY, "--api-key-env KEY_OF_THE_TEST");
    let body = r#"{"prompt": "a", "max_tokens": 1}"#;
    assert_eq!(server.post("/v1/completions", body).status, 401);
    assert_eq!(server.post_with("/v1/completions", body, "Authorization: Bearer wrong\r\n").status, 401);
    assert_eq!(server.post_with("/v1/completions", body, "Authorization: Bearer secret\r\n").status, 200);
    assert_eq!(server.get("/health").status, 200);
}

/// If clients set no bound, answers end by themselves, with the workload's lengths.
#[test]
fn free_answers_are_as_long_as_the_workloads() {
    let length = |name: &str, tokens: u64| {
        format!("[workload.{name}]\nkind = \"uniform\"\nmin = {tokens}\nmax = {tokens}\n")
    };
    let arrivals = "[workload]\nrequests = 10\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n";
    let spec = format!("{TINY}{arrivals}{}{}", length("input_len", 8), length("output_len", 23));
    let server = Server::start(&spec, "");
    let answer = completion(&server, json!({"prompt": "a", "max_tokens": 100}));
    assert_eq!(answer["usage"]["completion_tokens"], 23);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

/// A client that states no length gets answers of `--output-len`.
#[test]
fn answers_without_a_bound_have_the_stated_length() {
    let server = Server::start(TINY, "--output-len 7");
    let body = json!({"messages": [{"role": "user", "content": "the end"}]});
    let answer = server.post("/v1/chat/completions", &body.to_string()).json();
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &answer["choices"][0]["finish_reason"]),
        (&json!(7), &json!("stop"))
    );
}

/// Three drafts, all accepted: nine tokens are 1 + 4 + 4, and a step is an event on every endpoint, as in vLLM. Two steps
/// have six drafts, of which all are accepted.
#[test]
fn a_step_with_drafts_is_one_event() {
    let drafts =
        "[engine.speculative]\nnum_speculative_tokens = 3\nacceptance_rate = 1.0\ndraft_cost = 0.1\n";
    let server = Server::start(&format!("{TINY}{drafts}"), "");
    let body = r#"{"prompt": "the of", "max_tokens": 9, "ignore_eos": true, "stream": true, "return_token_ids": true}"#;
    let events = server.post("/v1/completions", body).events();
    let ids = |event: &serde_json::Value| event["choices"][0]["token_ids"].as_array().map_or(0, Vec::len);
    assert_eq!(events.iter().map(ids).collect::<Vec<_>>(), [1, 4, 4]);
    let metrics = server.get("/metrics").body;
    let count = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok())
    };
    let names = ["num_drafts_total", "num_draft_tokens_total", "num_accepted_tokens_total"];
    let found = names.map(|name| count(&format!("vllm:spec_decode_{name}")));
    assert_eq!(found, [Some(2.0), Some(6.0), Some(6.0)], "{metrics}");
    for (path, body, delta) in [
        (
            "/v1/responses",
            r#"{"input": "a", "max_output_tokens": 9, "ignore_eos": true, "stream": true}"#,
            "output_text.delta",
        ),
        (
            "/v1/messages",
            r#"{"messages": [{"role": "user", "content": "a"}], "max_tokens": 9, "ignore_eos": true, "stream": true}"#,
            "content_block_delta",
        ),
    ] {
        let answer = server.post(path, body).body;
        let deltas = answer.lines().filter(|line| line.starts_with("event: ") && line.ends_with(delta));
        assert_eq!(deltas.count(), 3, "{path}: {answer}");
    }
}
