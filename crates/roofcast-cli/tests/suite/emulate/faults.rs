//! Faults on demand, a slow start, and the load that answers report.

use super::{Server, TINY};
use serde_json::json;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/completions";
const BODY: &str = r#"{"prompt": "a", "max_tokens": 40, "ignore_eos": true}"#;
const STREAM: &str = r#"{"prompt": "a", "max_tokens": 40, "ignore_eos": true, "stream": true}"#;

fn with(server: &Server, body: &str, fault: &str) -> super::HttpResponse {
    server.post_with(PATH, body, &format!("X-Roofcast-Fault: {fault}\r\n"))
}

/// A request has the fault that its header asks for, and the next request has none.
#[test]
fn a_header_asks_for_a_fault_of_its_request() {
    let server = Server::start(TINY, "--allow-faults");
    let refused = with(&server, BODY, r#"{"status": 503}"#);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_u64()), (503, Some(503)));
    let start = Instant::now();
    assert_eq!(with(&server, BODY, r#"{"stall_seconds": 0.2}"#).status, 200);
    assert!(start.elapsed() >= Duration::from_millis(200));
    // A stream is cut after its fifth token, an answer in one piece before it begins; both requests leave the engine.
    let cut = with(&server, STREAM, r#"{"cut_after_tokens": 5}"#);
    let events = cut.body.matches("data: {").count();
    assert!((5..40).contains(&events) && !cut.body.contains("[DONE]"), "{events} events");
    let none = with(&server, BODY, r#"{"cut_after_tokens": 5}"#);
    assert_eq!((none.head.as_str(), none.body.as_str()), ("", ""));
    server.until("vllm:num_requests_running", |n| n == 0.0);
    let wrong = with(&server, BODY, "nonsense");
    assert!(wrong.status == 400 && wrong.body.contains("accepted"), "{}", wrong.body);
    assert_eq!(server.post(PATH, BODY).status, 200);
}

/// A fault of a third of all requests, set by flag, by `/admin/faults`, and removed.
#[test]
fn a_fault_meets_its_share_of_requests() {
    let server = Server::start(TINY, r#"--fault {"status":500,"share":0.5}"#);
    let statuses = |count: usize| (0..count).map(|_| server.post(PATH, BODY).status).collect::<Vec<_>>();
    assert_eq!(statuses(4), [200, 500, 200, 500]);
    let set = server.post("/admin/faults", r#"{"status": 429}"#);
    assert_eq!((set.status, set.json()["fault"]["status"].as_u64()), (200, Some(429)));
    assert_eq!(statuses(2), [429, 429]);
    assert_eq!(server.post("/admin/faults", r#"{"status": 7}"#).status, 400);
    assert_eq!(server.get("/admin/faults").json()["fault"]["status"], 429);
    let end =
        server.raw("DELETE /admin/faults HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", b"");
    assert_eq!(end.json(), json!({"fault": null}));
    assert_eq!(statuses(2), [200, 200]);
}

/// With llm-d-inference-sim's flags every second request fails, with the failure types in turn.
#[test]
fn failures_have_the_names_of_llm_d() {
    let server =
        Server::start(TINY, "--failure-injection-rate 50 --failure-types rate_limit,model_not_found");
    let statuses: Vec<u16> = (0..6).map(|_| server.post(PATH, BODY).status).collect();
    assert_eq!(statuses, [200, 429, 200, 404, 200, 429]);
}

/// Without --allow-faults there are no faults, and the header has no effect.
#[test]
fn faults_have_to_be_allowed() {
    let server = Server::start(TINY, "");
    assert_eq!(with(&server, BODY, r#"{"status": 503}"#).status, 200);
    assert_eq!(server.get("/admin/faults").status, 404);
}

#[test]
fn a_slow_start_listens_late() {
    let start = Instant::now();
    let server = Server::start(TINY, "--start-delay 0.5");
    assert!(start.elapsed() >= Duration::from_millis(500));
    assert_eq!(server.get("/health").status, 200);
}

/// Answers report the load in vLLM's two formats if a client asks for it: no request waits, and the blocks of the
/// answer are free again.
#[test]
fn answers_report_the_load_on_demand() {
    let server = Server::start(TINY, "");
    let with =
        |format: &str| server.post_with(PATH, BODY, &format!("endpoint-load-metrics-format: {format}\r\n"));
    let text = with("TEXT").head;
    assert!(text.contains("endpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc="), "{text}");
    assert!(text.contains(", named_metrics.num_requests_waiting=0.0"), "{text}");
    let head = with("json").head;
    let json = head.split("endpoint-load-metrics: JSON ").nth(1).unwrap().lines().next().unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["named_metrics"]["num_requests_waiting"], 0.0);
    assert!(!with("xml").head.contains("endpoint-load-metrics"));
}
