//! Long work on a terminal shows how far it is; Ctrl-C keeps what is done and marks it as partial.

use super::support::{file, root};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// More than ends before it is interrupted.
const ENDLESS: &str = "90000000";

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roofcast"));
    command.args(arguments.split_whitespace()).current_dir(root());
    command
}

/// Whether the process catches SIGINT by now: bit 1 of the mask of signals that are caught.
fn listens(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
}

/// Runs, presses Ctrl-C when it has computed for a second, and gives what it printed.
fn interrupted(arguments: &str) -> Output {
    let child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !listens(&child) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{arguments}: does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_run_that_is_interrupted_says_so_in_every_form() {
    let run = interrupted(&format!("simulate --requests {ENDLESS}"));
    let out = text(&run.stdout);
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(out.contains("PARTIAL: interrupted when") && out.contains("TTFT"), "{out}");

    let run = interrupted(&format!("simulate --requests {ENDLESS} --json"));
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let completed = answer["completed"].as_u64().unwrap();
    assert_eq!(answer["interrupted"], true);
    assert!((1..90_000_000).contains(&completed), "{completed}");
    // Whether the queue would have grown is not known.
    assert_eq!(answer["load"]["overloaded"], false);

    let run = interrupted(&format!("simulate --requests {ENDLESS} --csv"));
    let out = text(&run.stdout);
    assert!(out.lines().skip(1).all(|line| line.ends_with(",true")), "{out}");
}

#[test]
fn a_sweep_keeps_the_runs_that_ended() {
    let sweep = format!("simulate --threads 1 --sweep requests=20,{ENDLESS}");
    let run = interrupted(&sweep);
    let out = text(&run.stdout);
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(out.contains("PARTIAL: interrupted when 1 of 2 runs had ended"), "{out}");
    let run = interrupted(&format!("{sweep} --json"));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let points = answer["points"].as_array().unwrap();
    assert_eq!((answer["interrupted"].as_bool(), points.len()), (Some(true), 1));
    assert_eq!((points[0]["values"][0].as_u64(), points[0]["completed"].as_u64()), (Some(20), Some(20)));
}

#[test]
fn a_plan_keeps_the_best_so_far_with_a_bound() {
    let plan = "plan examples/plan-70b.toml --exhaustive";
    let run = interrupted(plan);
    let out = text(&run.stdout);
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(out.contains("PARTIAL: interrupted after") && out.contains("meets the SLO"), "{out}");
    let run = interrupted(&format!("{plan} --json"));
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(answer["interrupted"], true);
    assert!(answer["at_least"].as_f64().unwrap() > 0.0 && answer["considered"].as_u64().unwrap() > 500);
}

#[test]
fn rows_that_are_forecast_by_then_are_judged() {
    let row = "decode_step,llama-3.1-8b,h100-sxm,9,";
    let rows: String = (0..200_000).map(|n| format!("{row}{}\n", 100 + n % 4000)).collect();
    let text_of = format!("kind,model,hardware,tpot_ms,context_len\n{rows}");
    let (_folder, path) = file("m.csv", text_of.as_bytes());
    let run = interrupted(&format!("validate {path} --json"));
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let rows = answer["rows"].as_u64().unwrap();
    assert_eq!(answer["interrupted"], true);
    assert!((1..200_000).contains(&rows), "{rows}");
}

#[test]
fn a_terminal_sees_how_far_it_is_and_a_pipe_does_not() {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let arguments = "simulate --requests 100000";
    let mut child = command(arguments)
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(Stdio::from(side))
        .spawn()
        .unwrap();
    // The other end closes when the process has ended: that reads as an error.
    let mut seen = Vec::new();
    let _ = std::fs::File::from(terminal).read_to_end(&mut seen);
    assert!(child.wait().unwrap().success());
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains("/100000 requests"), "{seen}");
    let piped = command("simulate --requests 1000").output().unwrap();
    assert!(piped.status.success() && piped.stderr.is_empty(), "{}", text(&piped.stderr));
}
