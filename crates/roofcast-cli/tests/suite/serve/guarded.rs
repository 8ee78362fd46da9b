//! Requests that the server refuses: from other hosts, origins and sites, for files of the machine, with endless
//! bodies.

use super::{LLAMA, Server, machine};
use crate::support::{json, root};
use serde_json::{Value, json};
use std::net::TcpStream;

#[test]
fn it_listens_on_loopback_unless_told_otherwise() {
    let server = Server::start("");
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    let port = server.address.rsplit_once(':').unwrap().1;
    // The server does not listen on another loopback address.
    assert!(TcpStream::connect(format!("127.0.0.2:{port}")).is_err());
    assert!(Server::start("--host 127.0.0.2").address.starts_with("127.0.0.2:"));
}

#[test]
fn other_hosts_origins_and_sites_are_refused() {
    let server = Server::start("--allow-host bench.lan");
    for (head, status) in [
        ("Host: evil.example\r\n", 403),
        ("Host: bench.lan:7663\r\n", 200),
        ("Host: localhost\r\n", 200),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
    ] {
        assert_eq!(server.raw("GET /api/catalog", head, b"").status, status, "{head}");
    }
    // A form on another page cannot send either of the content types that questions have.
    let body = json!({"spec": machine(json!({}))}).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let answer = server.raw("POST /api/limits", &format!("Content-Type: {kind}\r\n"), body.as_bytes());
        assert_eq!(answer.status, 415, "{kind}");
    }
}

#[test]
fn every_answer_has_the_headers_that_keep_a_browser_in() {
    let server = Server::start("");
    for path in ["/", "/api/catalog", "/api/accuracy", "/nowhere"] {
        let head = server.get(path).head;
        let policy = head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
        assert!(
            !policy.contains("unsafe-inline") && !policy.contains("unsafe-eval") && !policy.contains("http"),
            "{policy}"
        );
        for header in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header}");
        }
        assert!(!head.contains("access-control-allow"), "{path}");
    }
    // The page has no inline script, so the policy allows only scripts from the page's own files.
    let page = server.get("/").body;
    let scripts = page
        .split("<script")
        .skip(1)
        .filter(|rest| !rest.split('>').next().unwrap().contains("src=\"/page.js\""));
    assert_eq!(scripts.count(), 0);
}

#[test]
fn no_file_of_the_machine_is_read() {
    let server = Server::start("");
    let folder = root().join("examples/own-model").canonicalize().unwrap().display().to_string();
    let config = format!("{folder}/config.json");
    let limits = |model: Value, hardware: &str| {
        let spec = json!({"model": model, "hardware": {"accelerator": hardware}});
        server.post("/api/limits", &json!({"spec": spec, "batch": 1, "context": 64}))
    };
    // The command line accepts each of these files; the server must not.
    assert!(json(&format!("limits --model {config} --hardware rtx-4090")).1 == 0);
    for model in [
        json!({"name": config}),
        json!({"name": folder}),
        json!({"path": config}),
        json!({"name": "examples/own-model/config.json"}),
    ] {
        let answer = limits(model.clone(), "rtx-4090");
        assert_eq!(answer.status, 400, "{model}: {}", answer.body);
        assert!(!answer.body.contains("decode"), "{model}");
    }
    let toml = root().join("Cargo.toml").canonicalize().unwrap().display().to_string();
    let answer = limits(json!({"name": LLAMA}), &toml);
    assert!(answer.status == 400 && answer.body.contains("no accelerator named"), "{}", answer.body);
    let arrivals =
        json!({"arrivals": {"kind": "trace", "path": "/etc/passwd"}, "input_len": 1, "output_len": 1});
    let lengths = json!({"arrivals": {"kind": "offline"}, "input_len": {"kind": "empirical", "path": "/etc/passwd"}, "output_len": 1});
    for workload in [arrivals, lengths] {
        let answer = server.post("/api/simulate", &json!({"spec": machine(json!({"workload": workload}))}));
        assert!(answer.status == 400 && !answer.body.contains("root:"), "{}", answer.body);
    }
    let draft = json!({"engine": {"speculative": {"num_speculative_tokens": 1, "acceptance_rate": 0.5, "draft_model": config}}});
    let answer = server.post("/api/limits", &json!({"spec": machine(draft)}));
    assert_eq!(answer.status, 400, "{}", answer.body);
    for path in ["/../Cargo.toml", "/page.js/../../etc/passwd", "/%2e%2e/Cargo.toml", "/etc/passwd"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    // Rows name accelerators and models; the server treats a name as a name even if such a file exists.
    let rows = format!(
        "kind,model,hardware,tpot_ms,context_len,concurrency\ndecode_step,{config},h100-sxm,9,100,1\n"
    );
    let (last, _) = server.followed("/api/validate", &json!({"name": "m.csv", "text": rows}));
    let left_out = last["answer"]["measured"]["rows"][0]["left_out"].as_str().unwrap();
    assert!(left_out.contains("no model named"), "{left_out}");
}

#[test]
fn bodies_are_limited() {
    let server = Server::start("");
    let head = "Content-Type: application/json\r\n";
    assert_eq!(server.raw("POST /api/limits", head, &vec![b' '; (1 << 20) + 1]).status, 413);
    // An excessive declared length is refused before the body is read.
    let told = "Content-Type: application/json\r\nContent-Length: 99999999999\r\n";
    assert_eq!(server.raw("POST /api/measure", told, b"").status, 413);
    for (path, body, part) in [
        ("/api/limits", "{", "the request"),
        ("/api/limits", "{\"spec\": {}, \"more\": 1}", "more"),
        ("/api/limits", "{\"spec\": {\"model\": 3}}", "model"),
        ("/api/limits", "{\"spec\": {}, \"batch\": 0}", "model"),
    ] {
        let answer = server.raw(&format!("POST {path}"), head, body.as_bytes());
        assert!(answer.status == 400 && answer.body.contains(part), "{body}: {}", answer.body);
    }
    assert_eq!(server.get("/api/limits").status, 405);
    assert_eq!(server.raw("DELETE /", "", b"").status, 405);
}
