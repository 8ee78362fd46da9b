//! SGLang's and llama.cpp's APIs: native endpoints, errors and metrics, compared with recorded answers where there are
//! some.

use super::recorded::{events, recorded, shape};
use super::{Server, TINY};
use serde_json::{Value, json};

fn sglang() -> Server {
    Server::start(TINY, "--engine sglang --served-model-name tiny")
}

fn llama_cpp() -> Server {
    Server::start(TINY, "--engine llama.cpp --served-model-name gemma --max-num-seqs 8 --allow-faults")
}

/// Every event of `/generate` has the whole text so far, and the last one has the reason for the end.
#[test]
fn sglang_generates() {
    let server = sglang();
    let mut body =
        json!({"text": "the end of", "sampling_params": {"max_new_tokens": 6, "ignore_eos": true}});
    let whole = server.post("/generate", &body.to_string()).json();
    let meta = &whole["meta_info"];
    assert_eq!(meta["finish_reason"], json!({"type": "length", "length": 6}));
    assert_eq!((&meta["prompt_tokens"], &meta["completion_tokens"]), (&json!(3), &json!(6)));
    assert_eq!(whole["output_ids"].as_array().unwrap().len(), 6);
    body["stream"] = true.into();
    let events = server.post("/generate", &body.to_string()).events();
    assert_eq!(events.len(), 6);
    assert_eq!(events[5]["text"], whole["text"]);
    assert!(events[5]["text"].as_str().unwrap().starts_with(events[2]["text"].as_str().unwrap()));
    assert_eq!([&events[4], &events[5]].map(|e| e["meta_info"]["finish_reason"].is_null()), [true, false]);
    let many = json!({"input_ids": [[5, 6], [7, 8, 9]], "sampling_params": {"max_new_tokens": 2}});
    let many = server.post("/generate", &many.to_string()).json();
    assert_eq!(many.as_array().unwrap().len(), 2);
    assert_eq!(many[1]["meta_info"]["prompt_tokens"], 3);
    // An answer ends at the end of the context at the latest.
    let long =
        json!({"input_ids": vec![5; 4090], "sampling_params": {"max_new_tokens": 100, "ignore_eos": true}});
    let long = server.post("/generate", &long.to_string()).json();
    assert_eq!(long["meta_info"]["completion_tokens"], 6);
}

#[test]
fn sglang_says_what_it_is() {
    let server = sglang();
    let info = server.get("/get_model_info").json();
    assert_eq!((&info["model_path"], &info["is_generation"]), (&json!("Qwen/Qwen3-0.6B"), &json!(true)));
    let info = server.get("/get_server_info").json();
    assert_eq!(
        (&info["version"], &info["tp_size"], &info["context_length"]),
        (&json!("0.5.23"), &json!(1), &json!(4096))
    );
    assert_eq!(server.get("/v1/models").json()["data"][0]["owned_by"], "sglang");
    assert_eq!(server.get("/health_generate").status, 200);
    let prompt: Vec<u32> = (0..64).collect();
    let body = json!({"prompt": prompt, "max_tokens": 1}).to_string();
    let cached = || server.post("/v1/completions", &body).json()["usage"]["prompt_tokens_details"].clone();
    // With pages of one token, all prompt tokens are found except the last, which is computed for the answer.
    assert_eq!((cached(), cached()), (Value::Null, json!({"cached_tokens": 63})));
    let flushed = server.post("/flush_cache", "");
    assert!(flushed.status == 200 && flushed.body.starts_with("Cache flushed."), "{}", flushed.body);
    assert_eq!(cached(), Value::Null);
    let wrong = server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": -1}"#);
    assert_eq!((wrong.status, &wrong.json()["object"]), (400, &json!("error")));
    assert_eq!(server.get("/version").status, 404);
}

/// Metrics have SGLang's names and labels, separate for streamed and other answers, without creation times, because
/// SGLang's server has several processes.
#[test]
fn sglang_metrics() {
    let server = sglang();
    let body = r#"{"prompt": "the end of", "max_tokens": 4, "ignore_eos": true}"#;
    assert_eq!(server.post("/v1/completions", body).status, 200);
    server.post("/v1/completions", &body.replace('}', ", \"stream\": true}")).events();
    let labels = "model_name=\"tiny\",engine_type=\"unified\"";
    for streams in ["false", "true"] {
        let labels = format!("{{{labels},is_streaming=\"{streams}\"}}");
        assert_eq!(server.metric(&format!("sglang:generation_tokens_total{labels}")), 4.0);
        assert_eq!(server.metric(&format!("sglang:time_to_first_token_seconds_count{labels}")), 1.0);
    }
    let rank = format!("{{{labels},tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\",dp_rank=\"0\"}}");
    assert_eq!(server.metric(&format!("sglang:num_running_reqs{rank}")), 0.0);
    let text = server.get("/metrics").body;
    assert!(text.contains("le=\"0.002\"") && !text.contains("_created") && !text.contains("vllm:"));
}

/// Keys and types of llama.cpp's own endpoint are among the recorded ones, in their order.
#[test]
fn llama_cpp_completes() {
    let server = llama_cpp();
    let body = json!({"prompt": "import sys", "n_predict": 4, "ignore_eos": true, "stream": true});
    let streamed = server.post("/completion", &body.to_string());
    let data = streamed.body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let ours: Vec<Value> = data.map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(ours.len(), 5);
    assert_eq!((&ours[4]["stop_type"], &ours[4]["tokens_predicted"]), (&json!("limit"), &json!(4)));
    let (_, theirs) = recorded("llama-native-completion-stream");
    let theirs = events(&theirs);
    for (ours, theirs) in ours.iter().zip(&theirs).take(4) {
        assert_eq!(shape(ours), shape(theirs));
    }
    let plain = |event: &Value| {
        let mut event = event.clone();
        // Sampler settings are not emulated, and the list of tokens at the end is empty.
        event["generation_settings"] = json!({});
        shape(&event)
    };
    assert_eq!(plain(&ours[4]), plain(&theirs[4]));
    let whole = server.post("/completion", r#"{"prompt": ["a", "b c"], "n_predict": 2}"#).json();
    assert_eq!(whole.as_array().unwrap().len(), 2);
}

#[test]
fn llama_cpp_says_what_it_is() {
    let server = llama_cpp();
    let props = server.get("/props").json();
    assert_eq!(
        (&props["total_slots"], &props["default_generation_settings"]["n_ctx"]),
        (&json!(8), &json!(4096))
    );
    let slots = server.get("/slots").json();
    assert_eq!(slots.as_array().unwrap().len(), 8);
    assert_eq!(slots[1], json!({"id": 1, "n_ctx": 4096, "speculative": false, "is_processing": false}));
    let tokens = server.post("/tokenize", r#"{"content": "the café"}"#).json();
    let back = server.post("/detokenize", &json!({"tokens": tokens["tokens"]}).to_string()).json();
    assert_eq!(back["content"], "the café");
    // Any model name is accepted.
    assert_eq!(
        server.post("/v1/completions", r#"{"model": "other", "prompt": "a", "max_tokens": 1}"#).status,
        200
    );
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let models = server.get("/v1/models").json();
    let theirs = parsed(&recorded("llama-models").1);
    assert_eq!(shape(&models["models"]), shape(&theirs["models"]));
    let keys = |value: &Value| value["data"][0].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&models), keys(&theirs));
    let health = server.get("/health");
    assert_eq!((health.status, health.body), recorded("llama-health"));
    let nothing = server.get("/nothing");
    let (status, theirs) = recorded("llama-err-notfound");
    assert_eq!((nothing.status, nothing.json()), (status, parsed(&theirs)));
    let unreadable = server.post("/v1/completions", "{\"model\":");
    assert_eq!((unreadable.status, unreadable.body), recorded("llama-err-badjson"));
    let long: Vec<u32> = vec![5; 6201];
    let ours = server.post("/completion", &json!({"prompt": long}).to_string());
    let message = "request (6201 tokens) exceeds the available context size (4096 tokens), try increasing it";
    let expected = json!({"error": {"code": 400, "message": message, "type": "exceed_context_size_error",
        "n_prompt_tokens": 6201, "n_ctx": 4096}});
    assert_eq!((ours.status, ours.json()), (400, expected));
}

/// Every family of the recorded scrape is present with its type, there is no other, and whole numbers have no decimal
/// point.
#[test]
fn llama_cpp_metrics_are_the_recorded_ones() {
    let (_, theirs) = recorded("llama-metrics");
    let server = llama_cpp();
    assert_eq!(
        server.post("/completion", r#"{"prompt": "the end of", "n_predict": 4, "ignore_eos": true}"#).status,
        200
    );
    let ours = server.get("/metrics").body;
    let types = |text: &str| -> Vec<String> {
        let kept = |line: &&str| line.starts_with("# TYPE llamacpp:");
        text.lines().filter(kept).map(str::to_owned).collect()
    };
    assert_eq!(types(&ours), types(&theirs));
    assert!(
        ours.contains("\nllamacpp:tokens_predicted_total 4\n")
            && ours.contains("\nllamacpp:prompt_tokens_total 3\n")
    );
}

#[test]
fn other_engines_have_no_server_here() {
    let (_folder, path) = crate::support::file("spec.toml", TINY.as_bytes());
    let run = crate::support::roofcast(&format!("emulate {path} --engine tensorrt-llm"));
    assert!(run.code == 2 && run.err.contains("engine.name") && run.err.contains("llama.cpp"), "{}", run.err);
}
