//! Several engines: each on its own port, behind a router, in pools, and autoscaled.

use super::{Server, TINY, accepted, begin, read};
use serde_json::json;
use std::collections::BTreeSet;

const BODY: &str = r#"{"prompt": "a", "max_tokens": 4, "ignore_eos": true}"#;
const SHORT: &str = r#"{"prompt": "a", "max_tokens": 4, "ignore_eos": true, "stream": true}"#;
const LONG: &str = r#"{"prompt": "a", "max_tokens": 300, "ignore_eos": true, "stream": true}"#;
/// A request that does not end in these tests: 4000 steps of 0.4 ms take 1.6 s.
const ENDLESS: &str = r#"{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}"#;

fn ended(server: &Server, engine: usize) -> f64 {
    let labels = format!("engine=\"{engine}\",model_name=\"Qwen/Qwen3-0.6B\",finished_reason=\"length\"");
    server.metric(&format!("vllm:request_success_total{{{labels}}}"))
}

/// Each rank has its own port, its number as `engine` label, and its own socket for events.
#[test]
fn ranks_have_ports_and_labels() {
    let config = r#"{"endpoint":"tcp://127.0.0.1:0"}"#;
    let flags = format!("--replicas 2 --data-parallel-external-lb --kv-events-config {config}");
    let server = Server::start_on(2, TINY, &flags);
    let sockets: BTreeSet<_> = server.kv_events.iter().collect();
    assert_eq!(sockets.len(), 2);
    for (rank, address) in server.addresses.iter().enumerate() {
        let stream = std::net::TcpStream::connect(address).unwrap();
        use std::io::Write;
        (&stream)
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let text = read(stream).body;
        assert!(text.contains(&format!("vllm:num_requests_running{{engine=\"{rank}\",")), "{address}");
        assert!(!text.contains(&format!("engine=\"{}\"", 1 - rank)));
    }
}

/// Round robin gives each of three engines a third; the header names a rank; one scrape has all engines, with each
/// family once.
#[test]
fn a_router_shares_requests() {
    let server = Server::start(TINY, "--replicas 3 --router round_robin");
    (0..6).for_each(|_| assert_eq!(server.post("/v1/completions", BODY).status, 200));
    assert_eq!([0, 1, 2].map(|engine| ended(&server, engine)), [2.0; 3]);
    let ranked = |rank: usize| {
        server.post_with("/v1/completions", BODY, &format!("X-data-parallel-rank: {rank}\r\n")).status
    };
    assert_eq!([ranked(1), ranked(1)], [200, 200]);
    assert_eq!([0, 1, 2].map(|engine| ended(&server, engine)), [2.0, 4.0, 2.0]);
    let text = server.get("/metrics").body;
    let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    assert_eq!(types.len(), types.iter().collect::<BTreeSet<_>>().len());
}

/// A session stays on its engine, and prompts with a common beginning go to one engine.
#[test]
fn routers_remember() {
    let server = Server::start(TINY, "--replicas 4 --router session_sticky");
    let asked = || server.post_with("/v1/completions", BODY, "X-Session-Id: mine\r\n").status;
    assert_eq!((0..5).map(|_| asked()).collect::<Vec<_>>(), [200; 5]);
    let counts = [0, 1, 2, 3].map(|engine| ended(&server, engine));
    assert!(counts.contains(&5.0), "{counts:?}");
    let server = Server::start(TINY, "--replicas 4 --router prefix_aware");
    for last in 0..5_u32 {
        let prompt: Vec<u32> = (0..100).chain([last]).collect();
        let body = json!({"prompt": prompt, "max_tokens": 4, "ignore_eos": true});
        assert_eq!(server.post("/v1/completions", &body.to_string()).status, 200);
    }
    let counts = [0, 1, 2, 3].map(|engine| ended(&server, engine));
    assert!(counts.contains(&5.0), "{counts:?}");
}

/// One engine computes prompts, the other continues the answers: each request is counted at both, and its client sees
/// one answer.
#[test]
fn pools_hand_requests_over() {
    let fleet = "[fleet]\nlink = \"nvlink\"\n[fleet.prefill]\nreplicas = 1\n[fleet.decode]\nreplicas = 1\n";
    let server = Server::start(&format!("{TINY}{fleet}"), "");
    let alone = Server::start(TINY, "");
    let prompt: Vec<u32> = (100..400).collect();
    let body = json!({"prompt": prompt, "max_tokens": 20, "ignore_eos": true, "stream": true});
    let said = |server: &Server| -> String {
        let events = server.post("/v1/completions", &body.to_string()).events();
        events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect()
    };
    assert_eq!(said(&server), said(&alone));
    let of = |name: &str, engine: usize| {
        server.metric(&format!("vllm:{name}_total{{engine=\"{engine}\",model_name=\"Qwen/Qwen3-0.6B\""))
    };
    // The prefill engine generates the first token, the decode engine the other 19.
    assert_eq!([of("generation_tokens", 0), of("generation_tokens", 1)], [1.0, 19.0]);
    let moved = "vllm:prompt_tokens_by_source_total{engine=\"1\",model_name=\"Qwen/Qwen3-0.6B\",source=\"external_kv_transfer\"}";
    assert_eq!(server.metric(moved), 300.0);
    // A client that disconnects is removed from both engines.
    let stream = begin(&server, LONG);
    drop(stream);
    for engine in [0, 1] {
        server.until(&format!("vllm:num_requests_running{{engine=\"{engine}\""), |n| n == 0.0);
    }
}

/// One engine is up; while it is full the next request starts another, which receives requests once it has started.
#[test]
fn replicas_start_where_requests_are_many() {
    let fleet = "[fleet]\nrouter = \"least_loaded\"\n[fleet.autoscale]\ntarget_in_flight = 1\nmax_replicas = 2\n\
                 startup_s = 0.04\nidle_s = 60.0\n";
    let server = Server::start(&format!("{TINY}{fleet}"), "--time-scale 0");
    assert_eq!(server.metric("roofcast:replicas_up"), 1.0);
    let _first = accepted(&server, ENDLESS);
    assert_eq!(server.metric("roofcast:replicas_up"), 1.0);
    let _second = accepted(&server, ENDLESS);
    assert_eq!(server.metric("roofcast:replicas_up"), 2.0);
    // The second engine has started at 0.04 s; until then the first has all requests.
    server.advance(0.039);
    let third = accepted(&server, SHORT);
    server.advance(0.002);
    let fourth = accepted(&server, SHORT);
    assert_eq!(server.advancing(|| [read(third), read(fourth)]).map(|said| said.events().len()), [4, 4]);
    assert_eq!([ended(&server, 0), ended(&server, 1)], [1.0, 1.0]);
}

/// An engine that is idle for 50 ms stops even if no request arrives; the first never stops. The second engine has one
/// request, of four tokens, which arrives at 2 ms and ends before 7 ms: at 52 ms it is idle for less than 50 ms, at 62 ms
/// for more than 55 ms.
#[test]
fn idle_replicas_stop() {
    let fleet = "[fleet]\nrouter = \"least_loaded\"\n[fleet.autoscale]\ntarget_in_flight = 1\nmax_replicas = 2\n\
                 startup_s = 0.001\nidle_s = 0.05\n";
    let server = Server::start(&format!("{TINY}{fleet}"), "--time-scale 0");
    let _streams = [accepted(&server, ENDLESS), accepted(&server, ENDLESS)];
    server.advance(0.002);
    let short = accepted(&server, SHORT);
    server.advance(0.005);
    assert_eq!(read(short).events().len(), 4);
    assert_eq!(ended(&server, 1), 1.0);
    server.advance(0.045);
    assert_eq!(server.metric("roofcast:replicas_up"), 2.0);
    server.advance(0.01);
    assert_eq!(server.metric("roofcast:replicas_up"), 1.0);
}

/// One of two engines dies: its stream is cut, and the router continues with the other. Without any engine the server
/// is unhealthy; engines that come back receive requests.
#[test]
fn a_router_goes_on_without_one_that_dies() {
    let flags = "--replicas 2 --router round_robin --allow-faults --time-scale 0";
    let server = Server::start(TINY, flags);
    let first = accepted(&server, LONG);
    let second = accepted(&server, ENDLESS);
    server.advance(0.01);
    let mut seen = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("data: ") {
        assert!(second.peek(&mut seen).unwrap() > 0);
    }
    assert_eq!(server.post("/admin/replicas", r#"{"down": [1]}"#).json(), json!({"down": [1]}));
    let cut = server.advancing(|| read(second)).body;
    assert!(cut.contains("data: ") && !cut.contains("[DONE]"), "{cut}");
    for headers in ["", "", "X-data-parallel-rank: 1\r\n"] {
        let answer = server.advancing(|| server.post_with("/v1/completions", BODY, headers));
        assert_eq!(answer.status, 200);
    }
    assert_eq!(server.advancing(|| read(first)).events().len(), 300);
    assert_eq!([ended(&server, 0), ended(&server, 1)], [4.0, 0.0]);
    assert_eq!(
        (server.get("/health").status, server.get("/admin/replicas").json()),
        (200, json!({"down": [1]}))
    );
    assert_eq!(server.post("/admin/replicas", r#"{"down": [0, 1]}"#).status, 200);
    assert_eq!((server.get("/health").status, server.post("/v1/completions", BODY).status), (503, 500));
    let back =
        server.raw("DELETE /admin/replicas HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"");
    assert_eq!(back.json(), json!({"down": []}));
    for _ in 0..2 {
        assert_eq!(server.advancing(|| server.post("/v1/completions", BODY)).status, 200);
    }
    assert_eq!([ended(&server, 0), ended(&server, 1)], [5.0, 1.0]);
    for wrong in [r#"{"down": [2]}"#, r#"{"down": 1}"#, "{}"] {
        assert_eq!(server.post("/admin/replicas", wrong).status, 400, "{wrong}");
    }
}

#[test]
fn half_a_fleet_is_refused() {
    let spec = format!("{TINY}[fleet.prefill]\nreplicas = 1\n");
    let (_folder, path) = crate::support::file("spec.toml", spec.as_bytes());
    let run = crate::support::roofcast(&format!("emulate {path} --port 0"));
    assert!(run.code == 2 && run.err.contains("fleet.decode"), "{}", run.err);
}
