//! Problems that users of load generators and of OpenAI-compatible servers reported, each reproduced by a small server.
//! Each test links its report.

use super::CALM;
use crate::scripted::{self, Asked, HEAD, Stream, chunk, good, tells, token};
use crate::support::{file, json, roofcast};
use serde_json::{Value, json as value};
use std::time::Duration;

/// Writes a stream of these events.
fn events(stream: &mut dyn Stream, events: &[&str]) -> bool {
    let body: String = events.iter().map(|event| chunk(&format!("data: {event}\n\n"))).collect();
    stream.write_all(format!("{HEAD}{body}0\r\n\r\n").as_bytes()).is_ok()
}

const TOKEN: &str = r#"{"choices":[{"index":0,"text":" a","finish_reason":null}]}"#;
const LENGTH: &str = r#"{"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#;
const DONE: &str = "[DONE]";

fn finished(reason: &str, keys: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"text":"","finish_reason":"{reason}"{keys}}}]}}"#)
}

fn usage(prompt: u64, completion: u64) -> String {
    format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":0}}}}"#
    )
}

/// Runs `requests` requests of one user for `tokens` tokens each, against a server that always sends these events.
fn answered(sent: &[&str], tokens: u64, requests: u64, flags: &str) -> (Value, i32) {
    let sent: Vec<String> = sent.iter().map(|e| (*e).to_owned()).collect();
    let (url, _) = scripted::start(move |_, stream| {
        std::thread::sleep(Duration::from_millis(20));
        events(stream, &sent.iter().map(String::as_str).collect::<Vec<_>>())
    });
    json(&format!(
        "bench --url {url} --model m --requests {requests} --output-len {tokens} --assume-tokens {CALM} {flags}"
    ))
}

fn says(answer: &Value, list: &str, words: &str) -> bool {
    answer[list].as_array().unwrap().iter().any(|text| text.as_str().unwrap().contains(words))
}

/// Reported problem: system and tool turns were sent as the assistant's. https://github.com/ai-dynamo/aiperf/issues/540
/// (roles within one request) and https://github.com/ai-dynamo/aiperf/issues/764 (tool calls and their results).
#[test]
fn messages_of_a_file_reach_the_server_as_they_are() {
    let said = value!([
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function",
            "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "user", "content": "thanks"}
    ]);
    let line = value!({"messages": said, "output_len": 2}).to_string();
    let (_folder, path) = file("talk.jsonl", line.as_bytes());
    let (url, seen) = scripted::start(|_, stream| good(stream));
    json(&format!("bench --url {url} --model m --endpoint chat --requests 1 --prompts {path} {CALM}"));
    assert_eq!(seen.lock().unwrap()[0].body["messages"], said);
}

/// Reported problem: the `finish_reason: "abort"` of an evicted request counted as an answer.
/// https://github.com/vllm-project/vllm/issues/57082.
#[test]
fn an_answer_that_the_server_gave_up_failed() {
    let (answer, code) = answered(&[TOKEN, &finished("abort", ""), DONE], 8, 2, "");
    assert_eq!((code, &answer["failures"]["aborted"]["count"]), (3, &2.into()), "{answer}");
    let (answer, _) = answered(&[TOKEN, &finished("error", ""), DONE], 8, 2, "");
    assert_eq!(answer["failures"]["stream_error"]["count"], 2, "{answer}");
}

/// Reported problem: an error within a choice, under status 200. https://github.com/LostRuins/koboldcpp/issues/2481.
#[test]
fn an_error_within_a_choice_keeps_its_words() {
    let broken = finished("error", r#","error":{"code":502,"message":"provider is gone"}"#);
    let (answer, code) = answered(&[TOKEN, &broken, DONE], 8, 2, "");
    assert_eq!((code, &answer["failures"]["stream_error"]["first"]), (3, &"provider is gone".into()));
}

/// Reported problem: answers of 64 tokens where 200 were requested. https://github.com/ai-dynamo/aiperf/pull/644 and
/// https://github.com/ai-dynamo/dynamo/issues/3731. The forecast next to the measurement is for 64 tokens.
#[test]
fn shorter_answers_than_asked_for_are_said() {
    let machine = "--model llama-3.1-8b --hardware h100-sxm --served-model m";
    let run = |flags: &str| {
        let mut sent = vec![TOKEN; 64];
        let (end, counted) = (finished("stop", ""), usage(5, 64));
        sent.extend([end.as_str(), counted.as_str(), DONE]);
        let sent: Vec<String> = sent.into_iter().map(str::to_owned).collect();
        let (url, _) = scripted::start(move |_, stream| {
            events(stream, &sent.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let words: Vec<&str> = flags.split_whitespace().collect();
        let asked = format!(
            "bench --url {url} {machine} --requests 2 --output-len 200 --assume-tokens {CALM} --json"
        );
        let run = crate::support::run(asked.split_whitespace().chain(words));
        serde_json::from_str::<Value>(&run.out).unwrap_or_else(|e| panic!("{e}: {}", run.err))
    };
    let answer = run("");
    assert!(says(&answer, "invalid_because", "128 of 400 tokens"), "{answer}");
    // 64 of 200 tokens arrive.
    assert_eq!((&answer["short_answers"], answer["answered_share"].as_f64()), (&2.into(), Some(0.32)));
    assert_eq!(answer["forecast"]["of_served"], true);
    // If the request lets the server stop earlier, short answers are reported and the run is valid.
    let answer = run(r#"--extra-body {"ignore_eos":null}"#);
    assert!(says(&answer, "warnings", "128 of 400 tokens"), "{answer}");
    assert!(!says(&answer, "invalid_because", "tokens"), "{answer}");
}

/// Reported problem: answers without a token counted as completed. https://github.com/vllm-project/vllm/issues/14795
/// and https://github.com/gpustack/gpustack/issues/1677.
#[test]
fn an_answer_without_a_token_failed() {
    let empty = usage(5, 0);
    for sent in [vec![DONE], vec![&finished("stop", ""), empty.as_str(), DONE]] {
        let (answer, code) = answered(&sent, 8, 2, "");
        assert_eq!((code, &answer["failures"]["empty"]["count"]), (3, &2.into()), "{sent:?}: {answer}");
    }
    // A single special token shows no text and counts because the server counts it.
    let (answer, _) = answered(&[LENGTH, &usage(5, 1), DONE], 1, 2, "");
    assert_eq!((&answer["completed"], &answer["total_output_tokens"]), (&2.into(), &2.into()), "{answer}");
}

/// If the server counts no tokens, the number is the requested one, or one per chunk:
/// https://github.com/vllm-project/vllm/pull/14673.
#[test]
fn answers_that_the_server_does_not_count_are_said() {
    let (answer, _) = answered(&[TOKEN, TOKEN, LENGTH, DONE], 8, 2, "");
    assert_eq!(answer["uncounted_answers"], 2);
    assert!(says(&answer, "warnings", "did not count the tokens of 2 answers"), "{answer}");
}

/// Reported problem: a repeated run measured the prefix cache without a note.
/// https://github.com/vllm-project/vllm/issues/52884; vLLM warns since https://github.com/vllm-project/vllm/pull/53920.
#[test]
fn a_warm_prefix_cache_is_said() {
    let warm = r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":41}}}"#;
    let (answer, _) = answered(&[TOKEN, TOKEN, LENGTH, warm, DONE], 2, 2, "--input-len 100");
    assert_eq!(answer["cached_share"], 0.41);
    assert!(says(&answer, "warnings", "41 % of the prompts' tokens"), "{answer}");
    // A server that does not report its cache, and equal words in every run.
    let (answer, _) =
        answered(&[TOKEN, TOKEN, LENGTH, &usage(100, 2), DONE], 2, 2, "--input-len 100 --seed 7");
    assert!(says(&answer, "warnings", "--seed"), "{answer}");
    // Two prompts, each sent five times.
    let (_folder, path) = file("p.jsonl", b"{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}");
    let (answer, _) =
        answered(&[TOKEN, TOKEN, LENGTH, &usage(100, 2), DONE], 2, 5, &format!("--prompts {path}"));
    assert_eq!(answer["repeated_prompts"], 3);
    assert!(says(&answer, "warnings", "3 prompts had been said before"), "{answer}");
}

/// A server that closes kept connections when they are reused (https://github.com/vllm-project/vllm-omni/issues/1374):
/// five users have five connections, and each failed request is sent again once, on a new connection, instead of on
/// every kept one.
#[test]
fn a_request_is_sent_again_once_and_counted() {
    let (url, seen) = scripted::start_first(|first, stream| {
        std::thread::sleep(Duration::from_millis(20));
        first && good(stream)
    });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --concurrency 5 --requests 10 --output-len 2 --assume-tokens {CALM}"
    ));
    assert_eq!((&answer["completed"], &answer["failed"]), (&10.into(), &0.into()), "{answer}");
    // Five requests on new connections, five on connections that are then closed, and these five again.
    assert_eq!((seen.lock().unwrap().len(), &answer["resent"]), (15, &5.into()), "{answer}");
    assert!(says(&answer, "warnings", "5 requests were sent twice"), "{answer}");
}

/// Reported problem: failed probes left prompts of another length for the whole run, without a note. The server is busy
/// during the probes and later counts two tokens a word. Prompts of another length:
/// https://github.com/vllm-project/vllm/pull/42532.
#[test]
fn probes_that_fail_are_said_and_the_prompts_judged() {
    let (url, _) = scripted::start_reading(|n, asked: &Asked, stream| {
        if n == 0 {
            let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
            return stream.write_all(busy.as_bytes()).is_ok();
        }
        let words = asked.body["prompt"].as_str().unwrap().split(' ').count() as u64;
        events(stream, &[TOKEN, TOKEN, LENGTH, &usage(2 * words, 2), DONE])
    });
    let (answer, code) =
        json(&format!("bench --url {url} --model m --requests 2 --input-len 50 --output-len 2 {CALM}"));
    assert_eq!((code, answer["exact_prompts"].as_f64()), (3, Some(0.0)), "{answer}");
    assert!(says(&answer, "warnings", "a probe failed: 503"), "{answer}");
    assert!(says(&answer, "invalid_because", "prompts have 200 tokens"), "{answer}");
}

/// Percentiles of one request or of few are their largest value: https://github.com/artilleryio/artillery/issues/429.
#[test]
fn percentiles_of_few_requests_are_said_to_be_none() {
    let sent = [TOKEN, TOKEN, LENGTH, &usage(5, 2), DONE];
    assert!(says(&answered(&sent, 2, 1, "").0, "warnings", "one request"));
    assert!(says(&answered(&sent, 2, 5, "").0, "warnings", "5 requests: the 95th"));
}

/// A search whose upper end meets the SLO finds a lower bound, not the highest rate (such a search:
/// https://github.com/vllm-project/guidellm/issues/197).
#[test]
fn a_search_that_ends_at_its_upper_end_says_so() {
    let (url, _) = scripted::start(|_, stream| good(stream));
    let search = format!(
        "bench --url {url} --model m --requests 3 --output-len 2 --assume-tokens --constant --find-rate 10..12 --slo-e2el 60000 {CALM}"
    );
    // A run that other work on this machine slowed down is not valid, and meets no SLO, so it is repeated.
    let mut tries = (0..9).map(|_| json(&search));
    let (answer, code) = tries.find(|(answer, _)| answer["at_least"] == true).unwrap();
    assert_eq!((code, &answer["best_rate"]), (0, &12.0.into()), "{answer}");
    let run = (0..9).map(|_| roofcast(&search)).find(|run| run.out.contains("at least"));
    assert!(run.unwrap().out.contains("at least 12.000 requests/s"));
}

/// A search for the most users instead of the highest rate: https://github.com/ai-dynamo/aiperf/issues/883. The server
/// answers one request after another in 20 ms each: the last of n users waits n · 20 ms, so that 300 ms allow at most
/// 14 users.
#[test]
fn the_most_users_that_keep_an_slo() {
    let turn = std::sync::Mutex::new(());
    let (url, _) = scripted::start(move |_, stream| {
        let _one = turn.lock();
        std::thread::sleep(Duration::from_millis(20));
        good(stream)
    });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 64 --output-len 2 --assume-tokens --find-users 2..64 --slo-e2el 300 {CALM}"
    ));
    let best = answer["best_users"].as_u64().unwrap_or_else(|| panic!("{answer}"));
    assert!(code == 0 && (2..=14).contains(&best), "{answer}");
    assert_eq!((&answer["best_rate"], &answer["at_least"]), (&Value::Null, &false.into()));
}

/// Streams under other content types are read: https://github.com/ajndkr/lanarky/issues/186 (text/plain),
/// https://github.com/microsoft/foundry-dev-tools/issues/195 (application/json).
#[test]
fn a_stream_by_another_name_is_read() {
    for kind in ["text/plain", "application/json", "application/x-ndjson", "Text/Event-Stream; charset=UTF-8"]
    {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
        let (url, _) = scripted::start(move |_, stream| {
            let end = chunk(&format!("data: {LENGTH}\n\ndata: [DONE]\n\n"));
            stream.write_all(format!("{head}{}{}{end}0\r\n\r\n", token(), token()).as_bytes()).is_ok()
        });
        let (answer, _) =
            json(&format!("bench --url {url} --model m --requests 2 --output-len 2 --assume-tokens {CALM}"));
        assert_eq!(
            (&answer["completed"], &answer["total_output_tokens"]),
            (&2.into(), &4.into()),
            "{answer}"
        );
    }
}

/// An error as plain JSON under status 200 keeps the server's message:
/// https://github.com/kubernetes-sigs/inference-perf/issues/713.
#[test]
fn an_error_as_json_keeps_its_words() {
    let (url, _) = scripted::start(|_, stream| tells(r#"{"error":{"message":"boom","code":500}}"#, stream));
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 2 --output-len 2 --assume-tokens {CALM}"));
    assert_eq!(answer["failures"]["stream_error"]["first"], "boom", "{answer}");
}

/// A gateway that opens its stream with an empty chunk (https://github.com/api7/aisix/pull/869): the first token is the
/// first one with text, 200 ms later.
#[test]
fn an_empty_opening_is_no_first_token() {
    let (url, _) = scripted::start(|_, stream| {
        let opening = chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n");
        drop(stream.write_all(format!("{HEAD}{opening}").as_bytes()));
        std::thread::sleep(Duration::from_millis(200));
        let token = chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n");
        let end = chunk(&format!("data: {LENGTH}\n\ndata: [DONE]\n\n"));
        stream.write_all(format!("{token}{token}{end}0\r\n\r\n").as_bytes()).is_ok()
    });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --endpoint chat --requests 1 --output-len 2 --assume-tokens {CALM}"
    ));
    assert!(answer["mean_ttft_ms"].as_f64().unwrap() >= 199.9, "{answer}");
}

/// ShareGPT's published array: the requested lengths are estimated from the recorded answers, 31 bytes as 31/4.7 = 6.6, 7
/// tokens, 3 bytes as one.
#[test]
fn recorded_answers_have_lengths() {
    let text = r#"[{"id":"a","conversations":[{"from":"human","value":"Hello"},{"from":"gpt","value":"Hi, how are you today my friend"}]},
        {"id":"b","conversations":[{"from":"human","value":"Second"},{"from":"gpt","value":"yes"}]}]"#;
    let (_folder, path) = file("sharegpt.json", text.as_bytes());
    let asked = |flags: &str| {
        let (url, seen) = scripted::start(|_, stream| good(stream));
        let (answer, _) =
            json(&format!("bench --url {url} --model m --endpoint chat --prompts {path} {flags} {CALM}"));
        let seen = seen.lock().unwrap();
        (seen.iter().map(|a| a.body["max_tokens"].as_u64()).collect::<Vec<_>>(), answer)
    };
    let (lengths, answer) = asked("");
    assert_eq!(lengths, [Some(7), Some(1)]);
    assert!(says(&answer, "warnings", "recorded answers"), "{answer}");
    assert_eq!(asked("--output-len 5").0, [Some(5), Some(5)]);
}

/// Tables with guidellm's column names: https://github.com/vllm-project/guidellm/issues/133.
#[test]
fn prompts_of_a_table() {
    let (_folder, path) =
        file("p.csv", b"\xef\xbb\xbfprompt,output_tokens_count,id\n\"one, two\",4,x\nthree,,y\n");
    let (url, seen) = scripted::start(|_, stream| good(stream));
    json(&format!("bench --url {url} --model m --output-len 9 --prompts {path} {CALM}"));
    let seen = seen.lock().unwrap();
    let said: Vec<_> =
        seen.iter().map(|a| (a.body["prompt"].as_str().unwrap(), a.body["max_tokens"].as_u64())).collect();
    assert_eq!(said, [("one, two", Some(4)), ("three", Some(9))]);
}

/// Reported problem: a proxy holds a stream back until its end. https://github.com/dstackai/dstack/issues/4269.
#[test]
fn answers_that_come_in_one_piece_are_said() {
    let (url, _) = scripted::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(50));
        let tokens = format!("data: {TOKEN}\n\n").repeat(8);
        let end = format!("data: {LENGTH}\n\ndata: {}\n\ndata: [DONE]\n\n", usage(5, 8));
        stream.write_all(format!("{HEAD}{}0\r\n\r\n", chunk(&(tokens + &end))).as_bytes()).is_ok()
    });
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 2 --output-len 8 --assume-tokens {CALM}"));
    assert!(says(&answer, "warnings", "100 % of the chunks came together"), "{answer}");
}
