//! `roofcast serve` as browsers and others meet it: tests that run real processes on loopback.
//!
//! Knows: HTTP. The page's own code is tested in a browser (`scripts/test-web`).

#[path = "serve/guarded.rs"]
mod guarded;

use crate::support::{json, roofcast, root, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server, stopped when it is dropped.
struct Server {
    process: Child,
    address: String,
}

/// A response of the server, without chunked encoding.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

impl Server {
    fn start(flags: &str) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_roofcast"))
            .args(["serve", "--port", "0"])
            .args(flags.split_whitespace())
            .current_dir(root())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once("http://").unwrap_or_else(|| panic!("it says {line:?}")).1;
        Server { address: address.to_owned(), process }
    }

    /// Sends a request with these header lines, in addition to `Host` and length.
    fn send(&self, first: &str, head: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let host = if head.to_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        stream
            .write_all(
                format!("{first} HTTP/1.1\r\n{host}{length}Connection: close\r\n{head}\r\n").as_bytes(),
            )
            .unwrap();
        // The server may refuse the request before all of the body is sent.
        _ = stream.write_all(body);
        stream
    }

    fn raw(&self, first: &str, head: &str, body: &[u8]) -> Answer {
        let mut text = Vec::new();
        // After an early refusal the connection may be reset.
        _ = self.send(first, head, body).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{first}: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            whole(body)
        } else {
            body.to_owned()
        };
        Answer { status, head: head.to_lowercase(), body }
    }

    fn get(&self, path: &str) -> Answer {
        self.raw(&format!("GET {path}"), "", b"")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.raw(&format!("POST {path}"), "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    /// The last line of long work, and the number of lines before it.
    fn followed(&self, path: &str, body: &Value) -> (Value, usize) {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let lines: Vec<&str> = answer.body.lines().collect();
        (serde_json::from_str(lines.last().unwrap()).unwrap(), lines.len() - 1)
    }
}

/// A body without its chunked encoding.
fn whole(mut body: &str) -> String {
    let mut all = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        all.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    all
}

fn machine(rest: Value) -> Value {
    let mut spec = json!({"model": {"name": LLAMA}, "hardware": {"accelerator": "h100-sxm", "count": 1}});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    spec
}

fn traffic(requests: u64) -> Value {
    json!({"requests": requests, "seed": 3, "arrivals": {"kind": "poisson", "rate": 20.0}, "input_len": 200, "output_len": 40})
}

#[test]
fn limits_and_capacity_are_those_of_the_command_line() {
    let server = Server::start("");
    let asked =
        json!({"spec": machine(json!({"precision": {"weights": "fp8"}})), "batch": 8, "context": 2048});
    let answer: Value = serde_json::from_str(&server.post("/api/limits", &asked).body).unwrap();
    let flags =
        format!("--model {LLAMA} --hardware h100-sxm --count 1 --weights fp8 --context 2048 --batch 8");
    assert_eq!(answer["report"], json(&format!("limits {flags}")).0);
    assert_eq!(answer["capacity"], json(&format!("capacity {flags}")).0);
    assert_eq!(answer["accelerator"]["id"], "h100-sxm");
    // One request of the model's maximum length, 131,072 tokens of 131,072 B, fits in memory together with 8 GB of
    // weights.
    assert_eq!((&answer["refusal"], &answer["start"]["max_model_len"]), (&Value::Null, &json!(131_072)));
    let tight = json!({"spec": machine(json!({"engine": {"gpu_memory_utilization": 0.2}}))});
    let refused: Value = serde_json::from_str(&server.post("/api/limits", &tight).body).unwrap();
    let flags =
        format!("--model {LLAMA} --hardware h100-sxm --gpu-memory-utilization 0.2 --max-model-len 131072");
    let (told, code) = json(&format!("capacity {flags}"));
    assert_eq!(code, 4);
    assert_eq!(refused["start"], told["start"]);
    assert!(
        refused["refusal"].as_str().unwrap().starts_with("vllm does not start: "),
        "{}",
        refused["refusal"]
    );
}

#[test]
fn capacity_is_that_of_the_command_line() {
    let server = Server::start("");
    let spec = machine(json!({"engine": {"kv_offloading_size": 32.0}}));
    let asked = json!({"spec": spec, "batch": 8, "context": 2048, "users": "1k", "oversubscription": 2});
    let answer: Value = serde_json::from_str(&server.post("/api/capacity", &asked).body).unwrap();
    let flags = format!(
        "--model {LLAMA} --hardware h100-sxm --count 1 --kv-offloading-size 32 --context 2048 --batch 8 --users 1000 --oversubscription 2"
    );
    assert_eq!(answer["report"], json(&format!("capacity {flags}")).0);
    // 32 GiB over the 131,072 B of a token.
    assert_eq!(answer["report"]["host_kv_tokens"], 262_144);
    // Lengths double from 512 to the model's 131,072 tokens; each takes half as many requests, rounded down.
    let lengths = answer["lengths"].as_array().unwrap();
    assert_eq!(
        (lengths.len(), &lengths[0]["tokens"], &lengths[8]["tokens"]),
        (9, &json!(512), &json!(131_072))
    );
    assert_eq!(lengths[2]["max_batch"], answer["report"]["max_batch"]);
    let many = |length: &Value| length["max_batch"].as_u64().unwrap();
    assert!(lengths.windows(2).all(|pair| many(&pair[0]) / 2 == many(&pair[1])), "{lengths:?}");
    assert!(answer["pictures"][0]["svg"].as_str().unwrap().contains(">requests that fit at one time<"));
    let none = server.post("/api/capacity", &json!({"spec": machine(json!({})), "batch": 0}));
    assert_eq!(none.status, 400);
    assert!(none.body.contains("`batch` is 0"), "{}", none.body);
}

#[test]
fn sweeps_are_those_of_the_command_line() {
    let server = Server::start("");
    let asked = json!({"spec": machine(json!({})), "sweep": "batch=1..8:x2", "context": 1024});
    let (last, _) = server.followed("/api/limits-sweep", &asked);
    let flags = format!("--model {LLAMA} --hardware h100-sxm --count 1 --context 1024");
    assert_eq!(last["answer"]["report"], json(&format!("limits {flags} --sweep batch=1..8:x2")).0);
    assert!(last["answer"]["pictures"][2]["svg"].as_str().unwrap().contains(">time of a decode step<"));
    let spec = machine(json!({"workload": traffic(200)}));
    let asked = json!({"spec": spec, "sweep": "workload.arrivals.rate=5,10"});
    let (last, before) = server.followed("/api/simulate-sweep", &asked);
    let arrivals = "workload.arrivals={kind='poisson',rate=20.0}";
    let (told, code) = json(&format!(
        "simulate --model {LLAMA} --hardware h100-sxm --count 1 --requests 200 --seed 3 --set {arrivals} \
         --set workload.input_len=200 --set workload.output_len=40 --sweep rate=5,10"
    ));
    assert_eq!(code, 0);
    assert_eq!(last["answer"]["report"], told);
    assert!(before >= 1, "no progress was told");
    // Values that are none, a key without effect, and a run beyond the bound are refused in one line.
    for (path, sweep, why) in [
        ("/api/limits-sweep", "batch=many", "no whole number"),
        ("/api/limits-sweep", "workload.seed=1,2", "without effect on a step"),
        ("/api/simulate-sweep", "workload.requests=100,300000", "at most 200000 for one request"),
    ] {
        let spec = machine(json!({"workload": traffic(200)}));
        let (last, _) = server.followed(path, &json!({"spec": spec, "sweep": sweep}));
        assert!(last["error"].as_str().unwrap().contains(why), "{sweep}: {last}");
    }
}

#[test]
fn a_run_is_followed_and_is_that_of_the_command_line() {
    let server = Server::start("");
    let (last, before) =
        server.followed("/api/simulate", &json!({"spec": machine(json!({"workload": traffic(3000)}))}));
    let report = &last["answer"]["report"];
    let spec = format!(
        "[model]\nname = \"{LLAMA}\"\n[hardware]\naccelerator = \"h100-sxm\"\ncount = 1\n[workload]\nrequests = 3000\nseed = 3\n\
         arrivals = {{kind = \"poisson\", rate = 20.0}}\ninput_len = 200\noutput_len = 40\n"
    );
    let (_folder, path) = crate::support::file("run.toml", spec.as_bytes());
    assert_eq!(*report, json(&format!("simulate {path}")).0);
    assert!(before >= 1, "no progress was told");
    let curve = &last["answer"]["distributions"][0];
    assert_eq!(curve["shares"].as_array().unwrap().len(), 200);
    // The timeline has every request's phases from the start.
    let lives = last["answer"]["timelines"][0]["requests"].as_array().unwrap();
    assert_eq!((lives[0]["number"].as_u64(), lives[0]["input"].as_u64()), (Some(0), Some(200)));
    let (trace, _) =
        server.followed("/api/trace", &json!({"spec": machine(json!({"workload": traffic(20)}))}));
    let trace: Value = serde_json::from_str(trace["answer"].as_str().unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 20);
}

#[test]
fn numbers_are_read_as_flags_are() {
    let server = Server::start("");
    let load = json!({"arrivals": {"kind": "poisson", "rate": "1e1"}, "requests": "0.3k", "input_len": "1K", "output_len": "50"});
    let spec = json!({"model": {"name": LLAMA}, "hardware": {"accelerator": "h100-sxm"}, "workload": load, "slo": {"ttft_p99_ms": "2s"}});
    let (last, _) = server.followed("/api/simulate", &json!({"spec": spec}));
    let flags = "--rate 1e1 --requests 0.3k --input-len 1K --output-len 50 --ttft-p99 2s";
    let (told, _) = json(&format!("simulate --model {LLAMA} --hardware h100-sxm {flags}"));
    assert_eq!(last["answer"]["report"]["p99_ttft_ms"], told["p99_ttft_ms"]);
    assert_eq!(last["answer"]["report"]["total_input_tokens"], 300 * 1024);
    // What is no number is refused by the field's name, and never read as the digits at its start.
    let asked = json!({"spec": machine(json!({"workload": {"input_len": "4O", "output_len": 8}}))});
    let refused: Value = serde_json::from_str(&server.post("/api/simulate", &asked).body).unwrap();
    let error = "the request: `workload.input_len` is \"4O\"; accepted: a whole number, as 4096 or 8k";
    assert_eq!(refused, json!({"error": error, "field": "workload.input_len"}));
    // The flags that the page writes into commands are those of the verbs.
    let listed: Value = serde_json::from_str(&server.get("/api/catalog").body).unwrap();
    let flag = |verb: &str, path: &str| listed["flags"][verb][path].as_str().map(str::to_owned);
    assert_eq!(flag("simulate", "workload.input_len").as_deref(), Some("input-len"));
    assert_eq!(flag("plan", "search.requests").as_deref(), Some("requests"));
    assert_eq!((flag("plan", "workload.requests"), flag("limits", "workload.input_len")), (None, None));
}

#[test]
fn a_plan_is_that_of_the_command_line() {
    let server = Server::start("");
    let spec = json!({"model": {"name": LLAMA}, "workload": {"arrivals": {"kind": "poisson", "rate": 2.0}, "input_len": 200, "output_len": 20},
        "slo": {"tpot_p99_ms": 50}, "search": {"accelerators": ["h100-sxm"], "max_accelerators": 1, "requests": 300}});
    let (last, _) = server.followed("/api/plan", &json!({"spec": spec, "why": "accelerator=h100-sxm tp=1"}));
    let file = format!(
        "[model]\nname = \"{LLAMA}\"\n[workload]\narrivals = {{kind = \"poisson\", rate = 2.0}}\ninput_len = 200\noutput_len = 20\n\
         [slo]\ntpot_p99_ms = 50\n[search]\naccelerators = [\"h100-sxm\"]\nmax_accelerators = 1\nrequests = 300\n"
    );
    let (_folder, path) = crate::support::file("plan.toml", file.as_bytes());
    let output = run(["plan", &path, "--why", "accelerator=h100-sxm tp=1", "--json"]);
    let expected: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(last["answer"]["report"]["ranked"], expected["ranked"]);
    assert_eq!(last["answer"]["report"]["why"], expected["why"]);
}

#[test]
fn measured_points_are_forecast_as_validate_does() {
    let server = Server::start("--measured examples/measured.csv");
    let text = std::fs::read_to_string(root().join("examples/measured.csv")).unwrap();
    let (dropped, _) = server.followed("/api/validate", &json!({"name": "m.csv", "text": text}));
    let answer = server.get("/api/accuracy").body;
    let started: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
    let (expected, _) = json("validate examples/measured.csv");
    for found in [&dropped["answer"], &started["answer"]] {
        assert_eq!(found["measured"]["report"]["metrics"], expected["metrics"]);
        assert_eq!(
            found["measured"]["rows"].as_array().unwrap().len() as u64,
            expected["rows"].as_u64().unwrap()
        );
        assert_eq!(found["bands"][0]["evidence"], "engine");
    }
    let none: Value =
        serde_json::from_str(Server::start("").get("/api/accuracy").body.lines().last().unwrap()).unwrap();
    assert_eq!(none["answer"]["measured"], Value::Null);
}

#[test]
fn a_clients_results_stand_beside_forecast_and_limit() {
    let server = Server::start("");
    let result = json!({"completed": 8, "failed": 0, "num_prompts": 8, "request_rate": "inf", "max_concurrency": 4, "total_input_tokens": 1600,
        "total_output_tokens": 400, "mean_ttft_ms": 60.0, "mean_tpot_ms": 9.0, "mean_e2el_ms": 500.0});
    let asked = json!({"name": "r.json", "text": result.to_string(), "model": LLAMA, "hardware": "h100-sxm"});
    let (last, _) = server.followed("/api/measure", &asked);
    let run = &last["answer"]["runs"][0];
    assert_eq!(
        (run["source"].as_str(), run["concurrency"].as_u64(), run["bound"].as_str()),
        (Some("vLLM"), Some(4), Some("memory"))
    );
    let (measured, forecast, limit) =
        (&run["measured"]["tpot_ms"], &run["forecast"]["tpot_ms"], &run["limit"]["tpot_ms"]);
    assert_eq!(measured, 9.0);
    assert!(
        forecast.as_f64() > limit.as_f64() && run["advice"].as_str().unwrap().contains("weights"),
        "{run}"
    );
    let (error, _) = server.followed(
        "/api/measure",
        &json!({"name": "r.json", "text": "{}", "model": LLAMA, "hardware": "h100-sxm"}),
    );
    assert!(error["error"].as_str().unwrap().starts_with("r.json: `results`"), "{error}");
}

#[test]
fn a_dropped_model_is_asked_for_by_its_name() {
    let server = Server::start("");
    let config = std::fs::read_to_string(root().join("examples/own-model/config.json")).unwrap();
    let known = server.post("/api/models", &json!({"name": "config.json", "config": config}));
    assert_eq!(known.status, 200, "{}", known.body);
    let known: Value = serde_json::from_str(&known.body).unwrap();
    let id = known["id"].as_str().unwrap();
    let asked = json!({"spec": {"model": {"name": id}, "hardware": {"accelerator": "rtx-4090"}}, "batch": 1, "context": 512});
    let answer: Value = serde_json::from_str(&server.post("/api/limits", &asked).body).unwrap();
    let (expected, _) =
        json("limits --model examples/own-model/config.json --hardware rtx-4090 --batch 1 --context 512");
    assert_eq!(answer["report"]["decode"], expected["decode"]);
    assert_eq!(answer["report"]["model"], id);
    let bytes = "Content-Type: application/octet-stream\r\n";
    let wrong = server.raw("POST /api/models", bytes, b"no GGUF at all, but long enough to be read as one");
    assert_eq!((wrong.status, wrong.body.contains("dropped.gguf")), (400, true), "{}", wrong.body);
}

#[test]
fn simulated_work_is_limited() {
    let server = Server::start("");
    let asked = |requests: u64| json!({"spec": machine(json!({"workload": traffic(requests)}))});
    let (refused, _) = server.followed("/api/simulate", &asked(200_001));
    assert!(refused["error"].as_str().unwrap().contains("at most 200000"), "{refused}");
    let search = json!({"accelerators": ["h100-sxm"], "max_accelerators": 5000});
    let plan = server.post(
        "/api/plan",
        &json!({"spec": {"model": {"name": LLAMA}, "workload": traffic(10), "search": search}}),
    );
    assert!(plan.status == 400 && plan.body.contains("at most 1024"), "{}", plan.body);
}

/// Two runs are computed at once: after one is abandoned, a third completes while the other is still running.
#[test]
fn work_ends_when_its_client_goes_away() {
    let server = Server::start("");
    let asked = |requests: u64| json!({"spec": machine(json!({"workload": traffic(requests)}))});
    let body = asked(200_000).to_string();
    let long = || {
        let head = "Content-Type: application/json\r\n";
        let mut stream = server.send("POST /api/simulate", head, body.as_bytes());
        let mut first = [0; 512];
        assert!(stream.read(&mut first).unwrap() > 0, "no progress was told");
        stream
    };
    let mut kept = long();
    drop(long());
    let (last, _) = server.followed("/api/simulate", &asked(10));
    assert_eq!(last["answer"]["report"]["completed"], 10);
    // The abandoned run began later than the kept one and is as long: had it run to its end, the kept run would be
    // complete by now.
    kept.set_nonblocking(true).unwrap();
    let mut lines = Vec::new();
    _ = kept.read_to_end(&mut lines);
    let lines = String::from_utf8_lossy(&lines);
    assert!(
        !lines.contains("\"answer\"") && !lines.contains("\"error\""),
        "{}",
        &lines[..lines.len().min(300)]
    );
}

/// A build without the page says how to get it; a build with the page writes a stand-alone file for each verb.
#[test]
fn the_page_is_there_or_is_missed_by_name() {
    let server = Server::start("");
    let page = server.get("/");
    assert_eq!(page.status, 200);
    if page.head.contains("text/html") {
        assert!(page.body.contains("<title>roofcast</title>"));
        html_holds_the_answer();
        return;
    }
    for part in ["has no page", "npm --prefix web", "cargo build"] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let folder = tempfile::tempdir().unwrap();
    for (verb, _) in verbs_with_pages() {
        let path = folder.path().join("never.html").display().to_string();
        let refused = roofcast(&format!("{verb} --html {path}"));
        assert!(
            refused.code == 2 && refused.err.contains("--html") && refused.err.contains("npm"),
            "{verb}: {}",
            refused.err
        );
        assert!(!std::path::Path::new(&path).exists(), "{verb}");
    }
}

/// The verbs with `--html`, each with arguments and the name of the page's view.
fn verbs_with_pages() -> [(String, &'static str); 4] {
    [
        (format!("limits --model {LLAMA} --hardware h100-sxm"), "limits"),
        ("simulate --requests 200".to_owned(), "serve"),
        ("validate examples/measured.csv".to_owned(), "accuracy"),
        (format!("plan --model {LLAMA} --hardware h100-sxm --max-accelerators 1 --rate 1"), "plan"),
    ]
}

fn html_holds_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    for (verb, view) in verbs_with_pages() {
        let path = folder.path().join(format!("{view}.html")).display().to_string();
        let output = json(&format!("{verb} --html {path}"));
        let file = std::fs::read_to_string(&path).unwrap();
        let (_, data) = file.split_once("<script type=\"application/json\" id=\"shown\">").unwrap();
        let shown: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(shown["view"], view);
        let report = &shown["answer"]["report"];
        assert_eq!(report["schema"], output.0["schema"]);
        let key = ["decode", "mean_ttft_ms", "metrics", "ranked"]
            .into_iter()
            .find(|key| !output.0[key].is_null())
            .unwrap();
        assert_eq!(report[key], output.0[key], "{view}: {key}");
        assert!(!file.contains(" src=\"/") && !file.contains(" href=\"/"), "{view} asks for files");
    }
}
