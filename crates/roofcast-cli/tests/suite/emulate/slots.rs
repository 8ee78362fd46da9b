//! Places of running requests, by engine: one request more waits. llama.cpp's slots share a cache, which may overflow.

use super::{Server, TINY, accepted, begin, read};
use serde_json::json;

/// llama.cpp with 1024 cells that four slots share.
const SHARED: &str = "[model]\nname = \"Qwen/Qwen3-0.6B\"\n[hardware]\naccelerator = \"h100-sxm\"\n[engine]\n\
    name = \"llama.cpp\"\ncost = \"limit\"\n[engine.llama-cpp]\nn_ctx = 1024\n";

/// Of one request more than there are places, one waits: vLLM and SGLang by `--max-num-seqs`, llama.cpp by its four slots
/// where the flag is absent.
#[test]
fn one_request_more_than_the_places_waits() {
    for (flags, places, running, waiting) in [
        ("--max-num-seqs 3", 3, "vllm:num_requests_running{", "vllm:num_requests_waiting{"),
        ("--engine sglang --max-num-seqs 3", 3, "sglang:num_running_reqs{", "sglang:num_queue_reqs{"),
        ("--engine llama.cpp", 4, "llamacpp:requests_processing ", "llamacpp:requests_deferred "),
        (
            "--engine llama.cpp --max-num-seqs 3",
            3,
            "llamacpp:requests_processing ",
            "llamacpp:requests_deferred ",
        ),
    ] {
        let server = Server::start(TINY, &format!("{flags} --time-scale 0"));
        let body = r#"{"prompt": "a", "max_tokens": 40, "ignore_eos": true, "stream": true}"#;
        let sent: Vec<_> = (0..=places).map(|_| accepted(&server, body)).collect();
        server.advance_until(running, |n| n == f64::from(places));
        server.advance_until(waiting, |n| n == 1.0);
        assert_eq!(server.metric(running), f64::from(places), "{flags}");
        let answers = server.advancing(|| sent.into_iter().map(read).collect::<Vec<_>>());
        assert!(answers.iter().all(|answer| answer.status == 200), "{flags}");
    }
}

/// As observed in llama-server b11549: four requests of 300 and 300 tokens, each within 1024, overflow the cells that
/// they share, and all end with 500, or in a stream with an event; one alone is served.
#[test]
fn a_shared_cache_that_overflows_ends_every_request() {
    let server = Server::start(SHARED, "--time-scale 0");
    assert_eq!(server.get("/slots").json()[3]["n_ctx"], 1024);
    let body = |number: u32, stream: bool| {
        let prompt: Vec<u32> = (0..300).map(|token| 1000 * number + token).collect();
        json!({"prompt": prompt, "n_predict": 300, "max_tokens": 300, "ignore_eos": true, "stream": stream})
            .to_string()
    };
    let sent: Vec<_> = (1..=4).map(|number| begin(&server, &body(number, number == 4))).collect();
    let mut answers = server.advancing(|| sent.into_iter().map(read).collect::<Vec<_>>());
    let error =
        json!({"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}});
    let streamed = answers.pop().unwrap();
    assert!(
        streamed.status == 200 && streamed.body.ends_with(&format!("data: {error}\n\n")),
        "{}",
        streamed.body
    );
    for answer in answers {
        assert_eq!((answer.status, answer.json()), (500, error.clone()));
    }
    let alone = server.advancing(|| server.post("/completion", &body(5, false)));
    assert_eq!((alone.status, alone.json()["tokens_predicted"].clone()), (200, json!(300)));
    let long = server.post("/completion", &json!({"prompt": vec![5; 1025]}).to_string());
    assert_eq!((long.status, long.json()["error"]["n_ctx"].clone()), (400, json!(1024)));
}

/// A slot keeps the prompt and the answer without its last token, as llama-server b11549 answered (`default` in
/// `llama-server-slots-b11549.csv`): a prompt that goes on finds 715 + 4 tokens in slot 3, another one gets slot 2 and has the idle slot
/// saved to host memory, from which a third one takes the 200 tokens that it has in common into slot 1.
#[test]
fn slots_of_llama_cpp_keep_prompts_and_answers() {
    let long = SHARED.replace("1024", "16384");
    let server = Server::start(&long, "--time-scale 0");
    let run =
        |segment: u32, tokens: u32| (0..tokens).map(move |token| 1000 * segment + token).collect::<Vec<_>>();
    let ask = |prompt: &[u32]| {
        let body = json!({"prompt": prompt, "n_predict": 5, "ignore_eos": true}).to_string();
        server.advancing(|| server.post("/completion", &body)).json()
    };
    let seen = |answer: &serde_json::Value| {
        [&answer["id_slot"], &answer["timings"]["cache_n"], &answer["timings"]["prompt_n"]]
            .map(|n| n.as_u64().unwrap())
    };
    let first = [run(3, 200), run(14, 500), run(100, 15)].concat();
    let answer = ask(&first);
    assert_eq!(seen(&answer), [3, 0, 715]);
    let tokens: Vec<u32> = serde_json::from_value(answer["tokens"].clone()).unwrap();
    let more = [first, tokens[..4].to_vec(), run(101, 20)].concat();
    assert_eq!(seen(&ask(&more)), [3, 719, 20]);
    assert_eq!(seen(&ask(&[run(1, 30), run(12, 900), run(102, 120)].concat())), [2, 0, 1050]);
    assert_eq!(seen(&ask(&[run(3, 200), run(12, 500), run(103, 120)].concat())), [1, 200, 620]);
    let idle = server.get("/slots").json();
    assert!(idle.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false), "{idle}");
}

/// Answers of llama-server b11549 with `-np 4`: a request gets the slot that it asks for, modulo the number of slots;
/// null, -1 and a text ask for none, and get the slot that was free longest.
#[test]
fn a_request_gets_the_slot_that_it_asks_for() {
    let server = Server::start(&SHARED.replace("1024", "16384"), "--time-scale 0");
    let asked = [
        (json!(null), 3),
        (json!(1), 1),
        (json!(3), 3),
        (json!(0), 0),
        (json!(-1), 2),
        (json!(-2), 2),
        (json!(4), 0),
        (json!(9), 1),
        (json!("1"), 3),
        (json!(1.7), 1),
        (json!(true), 1),
        (json!(null), 2),
        (json!(-5), 3),
        (json!(1_u64 << 40), 0),
    ];
    for (number, (id_slot, slot)) in asked.into_iter().enumerate() {
        let prompt: Vec<usize> = (0..20).map(|token| 100 * (number + 1) + token).collect();
        let body = json!({"prompt": prompt, "n_predict": 4, "ignore_eos": true, "id_slot": id_slot});
        let answer = server.advancing(|| server.post("/completion", &body.to_string())).json();
        assert_eq!(answer["id_slot"], json!(slot), "{id_slot}");
        assert_eq!(answer["timings"]["cache_n"], json!(0), "{id_slot}");
    }
}

/// As observed in llama-server b11549: requests that ask for a busy slot wait for it beside free ones, and a request that
/// asks for none is served before them.
#[test]
fn a_request_waits_for_the_busy_slot_that_it_asks_for() {
    let server = Server::start(SHARED, "--time-scale 0");
    let body = |number: u32, tokens: u32, id_slot: i32| {
        let prompt: Vec<u32> = (0..100).map(|token| 1000 * number + token).collect();
        json!({"prompt": prompt, "n_predict": tokens, "max_tokens": tokens, "ignore_eos": true, "id_slot": id_slot})
            .to_string()
    };
    let mut sent = vec![begin(&server, &body(1, 400, 1))];
    server.advance_until("llamacpp:requests_processing ", |n| n == 1.0);
    sent.extend((2..=8).map(|number| begin(&server, &body(number, 4, 1))));
    server.advance_until("llamacpp:requests_deferred ", |n| n == 7.0);
    let slots = server.get("/slots").json();
    let busy: Vec<usize> = (0..4).filter(|slot| slots[slot]["is_processing"] == true).collect();
    assert_eq!(busy, [1]);
    let free = server.advancing(|| server.post("/completion", &body(9, 4, -1))).json();
    assert_eq!(free["id_slot"], json!(3), "{free}");
    for answer in server.advancing(|| sent.into_iter().map(read).collect::<Vec<_>>()) {
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// The gauges of speed count from the last scrape, totals do not; a request for no token generates one.
#[test]
fn a_scrape_of_llama_cpp_restarts_its_gauges() {
    let server = Server::start(TINY, "--engine llama.cpp");
    let of = |predicted: u64| {
        let body = json!({"prompt": "the end of", "n_predict": predicted, "ignore_eos": true});
        server.post("/completion", &body.to_string()).json()
    };
    assert_eq!(of(20)["tokens_predicted"], 20);
    let value = |text: &str, name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("llamacpp:{name} ")));
        line.unwrap().parse().unwrap()
    };
    let speeds = ["prompt_tokens_seconds", "predicted_tokens_seconds"];
    let (first, second) = (server.get("/metrics").body, server.get("/metrics").body);
    assert!(speeds.iter().all(|name| value(&first, name) > 0.0 && value(&second, name) == 0.0), "{second}");
    assert_eq!(value(&second, "tokens_predicted_total"), 20.0);
    assert_eq!(value(&first, "n_busy_slots_per_decode"), 1.0);
    let none = of(0);
    assert_eq!((&none["tokens_predicted"], &none["stop_type"]), (&json!(1), &json!("limit")));
    assert_eq!(value(&server.get("/metrics").body, "tokens_predicted_total"), 21.0);
}
