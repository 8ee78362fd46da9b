//! Tool calls, if a client asks for one.

use super::{Server, TINY};
use serde_json::{Value, json};

/// The body of a chat that offers two tools.
fn chat(choice: Value) -> Value {
    let weather = json!({"type": "object", "required": ["city", "unit", "days"], "properties": {
        "city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7}}});
    json!({"messages": [{"role": "user", "content": "is it raining"}], "tool_choice": choice, "max_tokens": 200,
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": weather}},
            {"type": "function", "function": {"name": "clock"}}]})
}

fn ask(server: &Server, body: &Value) -> Value {
    let answer = server.post("/v1/chat/completions", &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn a_call_has_the_arguments_that_the_tool_takes() {
    let server = Server::start(TINY, "");
    let answer = ask(&server, &chat(json!("required")));
    let (choice, message) = (&answer["choices"][0], &answer["choices"][0]["message"]);
    assert_eq!(
        (choice["finish_reason"].as_str(), message["content"].as_str()),
        (Some("tool_calls"), Some(""))
    );
    let call = &message["tool_calls"][0];
    assert_eq!(
        (call["type"].as_str(), call["function"]["name"].as_str()),
        (Some("function"), Some("weather"))
    );
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["city"].is_string() && (1..=7).contains(&arguments["days"].as_i64().unwrap()));
    assert!(["C", "F"].contains(&arguments["unit"].as_str().unwrap()));
    // A call of the named tool ends with finish reason `stop`; a tool without a schema gets no arguments.
    let named = ask(&server, &chat(json!({"type": "function", "function": {"name": "clock"}})));
    assert_eq!(named["choices"][0]["finish_reason"], "stop");
    assert_eq!(named["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{}");
    // If the client leaves the choice to the model, the answer is text by default.
    let free = ask(&server, &chat(json!("auto")));
    assert!(free["choices"][0]["message"].get("tool_calls").is_none());
    // A call that is longer than the token limit is cut off.
    let mut short = chat(json!("required"));
    short["max_tokens"] = 2.into();
    let short = ask(&server, &short);
    assert_eq!(
        (short["choices"][0]["finish_reason"].as_str(), short["usage"]["completion_tokens"].as_u64()),
        (Some("length"), Some(2))
    );
}

/// The pieces of a streamed call add up to the whole call; its name and id occur once.
#[test]
fn a_stream_of_a_call_adds_up() {
    let server = Server::start(TINY, "");
    let mut body = chat(json!("required"));
    let whole = ask(&server, &body);
    let call = &whole["choices"][0]["message"]["tool_calls"][0]["function"];
    body["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &body.to_string()).events();
    let pieces: Vec<&Value> =
        events.iter().filter_map(|e| e["choices"][0]["delta"]["tool_calls"].get(0)).collect();
    let arguments: String = pieces.iter().map(|p| p["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, call["arguments"].as_str().unwrap());
    assert!(pieces.len() as u64 == whole["usage"]["completion_tokens"].as_u64().unwrap());
    let names: Vec<&Value> = pieces.iter().filter_map(|p| p["function"].get("name")).collect();
    assert_eq!(names, [&call["name"]]);
    assert_eq!(pieces.iter().filter(|p| p.get("id").is_some()).count(), 1);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

/// With a share of 1 all answers that may call do. With up to three calls, the tools get one in turn, and a streamed
/// answer adds up to the whole.
#[test]
fn the_model_may_call_and_more_than_once() {
    let server = Server::start(TINY, "--auto-tool-calls 1 --max-tool-calls 3");
    let calls = |answer: &Value| {
        answer["choices"][0]["message"]["tool_calls"].as_array().cloned().unwrap_or_default()
    };
    let mut counts = Vec::new();
    for day in 0..12 {
        let mut body = chat(json!("auto"));
        body["messages"][0]["content"] = format!("is it raining on day {day}").into();
        let whole = ask(&server, &body);
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
        let called = calls(&whole);
        let names: Vec<&str> = called.iter().map(|call| call["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["weather", "clock", "weather"][..names.len()]);
        for call in &called {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
        }
        let mut ids: Vec<&Value> = called.iter().map(|call| &call["id"]).collect();
        ids.dedup();
        assert_eq!(ids.len(), called.len());
        counts.push(called.len());
        body["stream"] = true.into();
        let mut arguments = vec![String::new(); called.len()];
        for event in server.post("/v1/chat/completions", &body.to_string()).events() {
            let Some(piece) = event["choices"][0]["delta"]["tool_calls"].get(0) else { continue };
            let at = piece["index"].as_u64().unwrap() as usize;
            arguments[at] += piece["function"]["arguments"].as_str().unwrap();
        }
        let whole: Vec<&str> =
            called.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
        assert_eq!(arguments, whole);
        body["stream"] = false.into();
        body["parallel_tool_calls"] = false.into();
        assert_eq!(calls(&ask(&server, &body)).len(), 1);
    }
    assert!((1..=3).all(|count| counts.contains(&count)), "{counts:?}");
    // With a share of a half, some answers call and some do not.
    let server = Server::start(TINY, "--auto-tool-calls 0.5");
    let called = (0..40).filter(|day| {
        let mut body = chat(json!("auto"));
        body["messages"][0]["content"] = format!("is it raining on day {day}").into();
        !calls(&ask(&server, &body)).is_empty()
    });
    // Of 40 draws with probability a half, fewer than 8 or more than 32 occur once in 10,000 tries; the draws are
    // seeded by the prompts.
    assert!((8..=32).contains(&called.count()));
}

/// A second turn with the call and the tool's result finds the first turn in the cache, like a turn of text.
#[test]
fn a_call_that_comes_back_is_found_in_the_cache() {
    let server = Server::start(TINY, "");
    let mut body = chat(json!("required"));
    body["messages"][0]["content"] =
        "is it raining in the town where the river meets the sea, and will it tomorrow".into();
    let first = ask(&server, &body);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "tool", "content": "rain"}));
    body["tool_choice"] = "none".into();
    let second = ask(&server, &body);
    let computed = first["usage"]["total_tokens"].as_u64().unwrap() - 1;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached, Some(computed / 16 * 16));
}

#[test]
fn what_cannot_be_called_is_refused() {
    let server = Server::start(TINY, "");
    let mut without = chat(json!("required"));
    without.as_object_mut().unwrap().remove("tools");
    for (body, word) in [
        (chat(json!("any")), "Invalid value"),
        (chat(json!({"type": "function", "function": {"name": "nope"}})), "does not match"),
        (without, "`tools` must be set"),
    ] {
        let answer = server.post("/v1/chat/completions", &body.to_string());
        assert!(answer.status == 400 && answer.body.contains(word), "{}", answer.body);
    }
}
