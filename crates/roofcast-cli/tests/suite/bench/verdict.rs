//! Validity of a run.

use super::{CALM, exact};
use crate::scripted::{self, HEAD, chunk, good, token};
use crate::support::json;
use serde_json::Value;
use std::time::Duration;

#[test]
fn a_run_is_invalid_where_the_client_lags() {
    let (answer, code) =
        json(&format!("bench --url {} --model m --requests 3 --output-len 3 --max-lag 0.000001", exact()));
    assert_eq!((code, &answer["valid"]), (3, &Value::Bool(false)));
    let why = answer["invalid_because"].to_string();
    assert!(why.contains("lagged"), "{why}");
}

/// A client that was stopped for a third of a second read nothing in that time; the run is invalid even if its figures
/// look good.
#[test]
fn a_client_that_stood_still_says_so() {
    let (url, seen) = scripted::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(50));
        good(stream)
    });
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(["bench", "--url", &url, "--model", "m", "--requests", "8", "--assume-tokens", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while seen.lock().unwrap().len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(333));
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["completed"]), (Some(3), &8.into()), "{answer}");
    assert!(answer["invalid_because"].to_string().contains("the client lagged"), "{answer}");
    assert!(answer["client"]["lag_ms_max"].as_f64().unwrap() > 100.0, "{answer}");
}

/// A server that takes ten times as long to end an answer as to send its tokens. Users wait for the end, so their
/// requests count as in flight until then. By last tokens they would be in flight for 20 of 220 ms, 0.2 of two users.
#[test]
fn an_answer_is_in_flight_until_its_end() {
    let (url, _) = scripted::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(20));
        drop(stream.write_all(format!("{HEAD}{}{}", token(), token()).as_bytes()));
        std::thread::sleep(Duration::from_millis(200));
        let end = chunk(
            "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
        );
        stream.write_all(format!("{end}0\r\n\r\n").as_bytes()).is_ok()
    });
    let (answer, _) = json(&format!(
        "bench --url {url} --model m --requests 6 --concurrency 2 --output-len 2 --assume-tokens {CALM}"
    ));
    assert!(answer["achieved_concurrency"].as_f64().unwrap() > 1.0, "{answer}");
}
