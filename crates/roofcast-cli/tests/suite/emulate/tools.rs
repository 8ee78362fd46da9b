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

/// The data of a stream whose events have names and which no `[DONE]` ends.
fn data_of(body: &str) -> Vec<Value> {
    body.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// A tool and its schema, in the form of each API, called because the client requires it.
#[test]
fn every_api_calls_its_tools() {
    let server = Server::start(TINY, "");
    let schema = json!({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}});
    let response = json!({"input": "is it raining", "tool_choice": "required", "max_output_tokens": 200,
        "tools": [{"type": "function", "name": "weather", "parameters": schema, "strict": true}]});
    let message = json!({"messages": [{"role": "user", "content": "is it raining"}], "max_tokens": 200,
        "tool_choice": {"type": "any"}, "tools": [{"name": "weather", "input_schema": schema}]});
    let city = |arguments: &Value| {
        let parsed = match arguments {
            Value::String(text) => serde_json::from_str(text).unwrap(),
            parsed => parsed.clone(),
        };
        assert!(parsed["city"].is_string(), "{parsed}");
        parsed
    };
    let whole = server.post("/v1/responses", &response.to_string()).json();
    let call = &whole["output"][0];
    assert_eq!((call["type"].as_str(), call["name"].as_str()), (Some("function_call"), Some("weather")));
    assert_eq!((&whole["status"], &whole["tools"]), (&"completed".into(), &response["tools"]));
    let said = city(&call["arguments"]);
    let whole = server.post("/v1/messages", &message.to_string()).json();
    assert_eq!(
        (&whole["stop_reason"], &whole["content"][0]["name"]),
        (&"tool_use".into(), &"weather".into())
    );
    let used = city(&whole["content"][0]["input"]);
    // The pieces of a stream add up to the whole call, which the stream begins and ends once.
    let mut streamed = response.clone();
    streamed["stream"] = true.into();
    let events = data_of(&server.post("/v1/responses", &streamed.to_string()).body);
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let pieces: String =
        of("response.function_call_arguments.delta").iter().map(|e| e["delta"].as_str().unwrap()).collect();
    assert_eq!(serde_json::from_str::<Value>(&pieces).unwrap(), said);
    assert_eq!(of("response.function_call_arguments.done")[0]["arguments"], pieces);
    assert_eq!((of("response.output_item.added").len(), of("response.output_item.done").len()), (1, 1));
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let mut streamed = message.clone();
    streamed["stream"] = true.into();
    let events = data_of(&server.post("/v1/messages", &streamed.to_string()).body);
    let pieces: String = events.iter().filter_map(|e| e["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&pieces).unwrap(), used);
    assert!(events.iter().any(|event| event["delta"]["stop_reason"] == "tool_use"));
    // Calls and results in a conversation are read back.
    let back = json!([{"role": "user", "content": "is it raining"}, call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "wet"}]);
    let answer = server.post("/v1/responses", &json!({"input": back, "max_output_tokens": 3}).to_string());
    assert_eq!((answer.status, &answer.json()["output"][0]["type"]), (200, &"message".into()));
}

/// Thinking is a block of its own before the answer, within its budget, and the usage counts both.
#[test]
fn thinking_precedes_the_answer() {
    let server = Server::start(TINY, "");
    let mut body = json!({"messages": [{"role": "user", "content": "is it raining"}], "max_tokens": 60,
        "ignore_eos": true, "thinking": {"type": "enabled", "budget_tokens": 20}});
    let whole = server.post("/v1/messages", &body.to_string()).json();
    let kinds: Vec<_> =
        whole["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(
        (kinds, &whole["usage"]["output_tokens"]),
        (vec![json!("thinking"), json!("text")], &60.into())
    );
    body["stream"] = true.into();
    let events = data_of(&server.post("/v1/messages", &body.to_string()).body);
    let joined = |key: &str| events.iter().filter_map(|e| e["delta"][key].as_str()).collect::<String>();
    assert_eq!(joined("thinking"), whole["content"][0]["thinking"].as_str().unwrap());
    assert_eq!(joined("text"), whole["content"][1]["text"].as_str().unwrap());
    let thoughts = events.iter().filter(|e| e["delta"].get("thinking").is_some()).count();
    assert!((1..=20).contains(&thoughts), "{thoughts}");
    let form = json!({"format": {"type": "json_schema", "schema": {"type": "object", "required": ["city"],
        "properties": {"city": {"type": "string"}}}}});
    let body = json!({"messages": body["messages"], "max_tokens": 200, "output_config": form});
    let text = server.post("/v1/messages", &body.to_string()).json()["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(serde_json::from_str::<Value>(&text).unwrap()["city"].is_string(), "{text}");
}
