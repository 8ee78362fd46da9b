//! Servers that fail in every way: each request ends, and counts under one kind of failure.

use super::CALM;
use crate::scripted::{self, HEAD, Stream, chunk, good, token};
use crate::support::json;
use serde_json::Value;
use std::time::Duration;

/// Runs three requests of one user, of which `fault` answers the second; returns the kind of its failure and its
/// message.
fn faulty(fault: impl Fn(&mut dyn Stream) -> bool + Send + Sync + 'static, flags: &str) -> (String, String) {
    let (url, _) = scripted::start(move |n, stream| if n == 1 { fault(stream) } else { good(stream) });
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 3 --output-len 2 --assume-tokens {CALM} {flags}"
    ));
    assert_eq!((code, &answer["valid"]), (3, &Value::Bool(false)), "{answer}");
    // The other requests are answered, and every request has an end.
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(2), Some(1)), "{answer}");
    assert_eq!(answer["total_output_tokens"], 4);
    let failures = answer["failures"].as_object().unwrap();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let (kind, what) = failures.iter().next().unwrap();
    assert_eq!(what["count"], 1);
    (kind.clone(), what["first"].as_str().unwrap().to_owned())
}

/// A reply that writes `text` and closes the connection.
fn says(text: String) -> impl Fn(&mut dyn Stream) -> bool + Send + Sync + 'static {
    move |stream| {
        drop(stream.write_all(text.as_bytes()));
        false
    }
}

fn assert_fault(found: (String, String), kind: &str, message: &str) {
    assert_eq!(found.0, kind, "{}", found.1);
    assert!(found.1.contains(message), "{message:?} is not in {:?}", found.1);
}

#[test]
fn where_every_request_failed_nothing_is_measured() {
    let body = "no such model; ".repeat(20);
    let (head, length) = ("HTTP/1.1 404 Not Found\r\ncontent-length", body.len());
    let (url, _) = scripted::start(move |_, stream: &mut dyn Stream| {
        stream.write_all(format!("{head}: {length}\r\n\r\n{body}").as_bytes()).is_ok()
    });
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("s.svg");
    let base = format!("bench --url {url} --model m --output-len 2 --requests 2 {CALM}");
    let run = crate::support::roofcast(&base);
    assert_eq!(run.code, 3, "{}", run.err);
    for name in ["TTFT", "TPOT", "ITL", "E2EL"] {
        let row = run.out.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        assert_eq!(row.split_whitespace().skip(1).collect::<Vec<_>>(), ["–"; 5], "{}", run.out);
    }
    assert!(run.out.contains("404") && run.out.contains("no such model"), "{}", run.out);
    assert!(run.out.lines().all(|line| line.chars().count() <= 100), "{}", run.out);
    let swept = format!("{base} --sweep concurrency=1,2 --svg {}", svg.display());
    assert_eq!(crate::support::roofcast(&swept).code, 3);
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(!picture.contains("<circle"), "{picture}");
}

#[test]
fn a_server_that_dies_in_the_middle() {
    assert_fault(faulty(says(format!("{HEAD}{}", token())), ""), "disconnected", "");
    // The connection ends within an HTTP chunk.
    assert_fault(faulty(says(format!("{HEAD}64\r\ndata: {{")), ""), "disconnected", "");
    // The connection ends after the headers.
    assert_fault(faulty(says(HEAD.to_owned()), ""), "disconnected", "");
    // The HTTP framing is complete and the stream inside it is not.
    let cut = format!("{HEAD}{}0\r\n\r\n", token());
    assert_fault(faulty(says(cut), ""), "disconnected", "without a finish");
}

#[test]
fn a_server_that_hangs() {
    let silent = |stream: &mut dyn Stream| stream.read(&mut [0]).is_ok_and(|n| n > 0);
    assert_fault(faulty(silent, "--timeout 0.2"), "timeout", "0.2 s");
    let halfway = move |stream: &mut dyn Stream| {
        drop(stream.write_all(format!("{HEAD}{}", token()).as_bytes()));
        silent(stream)
    };
    assert_fault(faulty(halfway, "--timeout 0.2"), "timeout", "0.2 s");
    // The answer takes longer than the timeout, although the server is never silent for long.
    let slow = |stream: &mut dyn Stream| {
        drop(stream.write_all(HEAD.as_bytes()));
        while stream.write_all(chunk(": ping\n\n").as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    };
    assert_fault(faulty(slow, "--timeout 0.2"), "timeout", "0.2 s");
}

#[test]
fn a_server_that_sends_something_else() {
    assert_fault(faulty(says("\x16\x03garbage\r\n\r\n".into()), ""), "malformed", "");
    assert_fault(faulty(says(format!("{HEAD}zz\r\ndata: x\r\n")), ""), "malformed", "");
    let garbage = format!("{HEAD}{}", chunk("data: \u{1}{{{\n\n"));
    assert_fault(faulty(says(garbage), ""), "malformed", "{{{");
    let typed = |kind: &str| format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: 2\r\n\r\nhi");
    assert_fault(faulty(says(typed("content-type: text/html")), ""), "malformed", "text/event-stream");
    assert_fault(faulty(says(typed("x-y: z")), ""), "malformed", "content type none");
    let packed = typed("content-type: text/event-stream\r\ncontent-encoding: gzip");
    assert_fault(faulty(says(packed), ""), "malformed", "gzip");
}

/// Writes `piece` until the client closes the connection.
fn endless(
    head: &'static str,
    piece: &'static [u8],
) -> impl Fn(&mut dyn Stream) -> bool + Send + Sync + 'static {
    move |stream| {
        drop(stream.write_all(head.as_bytes()));
        while stream.write_all(piece).is_ok() {}
        false
    }
}

#[test]
fn a_server_that_sends_without_end() {
    const PLAIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ";
    assert_fault(faulty(endless(PLAIN, &[b'x'; 65536]), ""), "too_large", "a line above");
    assert_fault(faulty(endless("HTTP/1.1 200 OK\r\nx: ", &[b'x'; 65536]), ""), "too_large", "");
    assert_fault(faulty(endless(PLAIN, &[b'\n'; 65536]), ""), "too_large", "an answer of more than");
}

#[test]
fn a_server_that_says_no() {
    let status = |line: &str, body: &str| {
        says(format!(
            "HTTP/1.1 {line}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    for line in ["429 Too Many Requests", "503 Service Unavailable", "400 Bad Request", "500 Oops"] {
        let found = faulty(status(line, "{\"error\":{\"message\":\"busy\"}}"), "");
        assert_fault(found.clone(), "http_status", "busy");
        assert!(found.1.starts_with(&line[..3]), "{}", found.1);
    }
    let moved = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n";
    assert_fault(faulty(says(moved.into()), ""), "http_status", "http://elsewhere/");
    let error = chunk("data: {\"error\":{\"message\":\"out of blocks\",\"code\":500}}\n\n");
    assert_fault(faulty(says(format!("{HEAD}{}{error}", token())), ""), "stream_error", "out of blocks");
}

/// A server that silently closes each connection a while after its answer: no request fails because of it.
#[test]
fn connections_that_are_closed_while_they_are_idle() {
    let (url, _) = scripted::start(|_, stream| {
        good(stream);
        false
    });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --rate 10 --constant --requests 5 --output-len 2 --assume-tokens {CALM}"
    ));
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(5), Some(0)), "{answer}");
}

/// A server that promises to keep a connection and closes it when the next request arrives, as llama.cpp's does:
/// requests 0, 2 and 4 are answered, 1 and 3 are sent again on new connections.
#[test]
fn connections_that_are_closed_as_they_are_used_again() {
    let (url, seen) = scripted::start(|number, stream| number % 2 == 0 && good(stream));
    let (answer, _) =
        json(&format!("bench --url {url} --model m --requests 3 --output-len 2 --assume-tokens {CALM}"));
    assert_eq!((answer["completed"].as_u64(), answer["failed"].as_u64()), (Some(3), Some(0)), "{answer}");
    assert_eq!(seen.lock().unwrap().len(), 5);
}

/// If new connections are closed silently, too, the server is gone and requests fail.
#[test]
fn connections_that_are_always_closed() {
    let (url, _) = scripted::start(|_, _| false);
    let (answer, code) =
        json(&format!("bench --url {url} --model m --requests 4 --output-len 2 --assume-tokens {CALM}"));
    assert_eq!((code, &answer["failures"]["disconnected"]["count"]), (3, &4.into()), "{answer}");
}

#[test]
fn nobody_there() {
    let (answer, code) =
        json(&format!("bench --url {} --model m --requests 3 --assume-tokens {CALM}", scripted::nobody()));
    assert_eq!((code, answer["completed"].as_u64()), (3, Some(0)));
    assert_eq!(answer["failures"]["connect"]["count"], 3);
}

#[test]
fn an_interrupt_keeps_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let (url, seen) =
        scripted::start(|n, stream| if n < 3 { good(stream) } else { stream.read(&mut [0]).is_err() });
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "9", "--assume-tokens", "--json"])
        .args(["--max-lag", "100000", "--records"])
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while seen.lock().unwrap().len() < 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), answer["completed"].as_u64()), (Some(3), Some(3)));
    assert_eq!(answer["failures"]["unfinished"]["count"], 1);
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 4);
}

/// A server that accepts connections and never speaks TLS: requests fail with that message when their timeout has
/// passed.
#[test]
fn a_server_that_hangs_before_it_is_asked() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let (answer, code) = json(&format!(
        "bench --url {url} --model m --requests 2 --concurrency 2 --assume-tokens --timeout 0.2 {CALM}"
    ));
    assert_eq!((code, &answer["failures"]["timeout"]["count"]), (3, &2.into()), "{answer}");
}

/// A server that never speaks TLS, and a user who interrupts while connections are opened.
#[test]
fn an_interrupt_before_the_first_request() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &format!("https://{}", silent.local_addr().unwrap()), "--model", "m"])
        .args(["--requests", "2", "--assume-tokens", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let _opened = silent.accept().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["num_prompts"]), (Some(3), &0.into()), "{answer}");
    assert!(answer["invalid_because"].to_string().contains("interrupted"), "{answer}");
}

/// Records that find no room leave no file, and a results file that finds none fails the command; the server had answered
/// every request.
#[test]
fn a_full_disk_leaves_no_part_of_the_records() {
    let (url, _) = scripted::start(|_, stream| good(stream));
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.jsonl");
    let base = format!("bench --url {url} --model m --requests 40 --output-len 2 --assume-tokens {CALM}");
    for (limits, end, says) in [
        ("ulimit -f 4;", format!("--records {}", records.display()), "File too large"),
        ("", "--json > /dev/full".to_owned(), "No space left"),
    ] {
        let script = format!("{limits} exec {} {base} {end}", env!("CARGO_BIN_EXE_roofcast"));
        let run = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{end}: {said}");
        assert!(said.contains(says), "{end}: {said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{end}");
    }
}
