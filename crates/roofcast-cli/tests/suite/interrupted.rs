//! Long work on a terminal shows its progress; Ctrl-C keeps the finished part and marks it as partial.

use super::support::{file, root};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A number of requests whose simulation does not end before it is interrupted.
const ENDLESS: &str = "90000000";

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roofcast"));
    command.args(arguments.split_whitespace()).current_dir(root());
    command
}

/// True if the process catches SIGINT by now: bit 1 of the mask of caught signals is set.
fn listens(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
}

/// Runs a command, sends SIGINT when it has computed for a second, and returns its output.
fn interrupted(arguments: &str) -> Output {
    let child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    stopped(&child, arguments);
    child.wait_with_output().unwrap()
}

/// Sends SIGINT when the process has caught signals for a second.
fn stopped(child: &Child, arguments: &str) {
    signalled(child, arguments, Signal::INT);
}

/// Sends `signal` when the process has caught signals for a second.
fn signalled(child: &Child, arguments: &str, signal: Signal) {
    let begun = Instant::now();
    while !listens(child) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{arguments}: does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Output of a run on a terminal; the run is interrupted when it has shown `until`, or ends by itself.
fn on_terminal(arguments: &str, until: Option<&str>) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut child = command(arguments)
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(Stdio::from(side))
        .spawn()
        .unwrap();
    // When the process has ended, reading the terminal is an error.
    let (mut seen, mut piece, mut awaited) = (String::new(), [0; 4096], until);
    let mut terminal = std::fs::File::from(terminal);
    while let Ok(count @ 1..) = terminal.read(&mut piece) {
        seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        if awaited.is_some_and(|awaited| seen.contains(awaited)) {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            awaited = None;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(if until.is_none() { 0 } else { 3 }), "{seen}");
    seen
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_run_that_is_interrupted_says_so_in_every_form() {
    let run = interrupted(&format!("simulate --requests {ENDLESS}"));
    let out = text(&run.stdout);
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(out.contains("PARTIAL: interrupted after") && out.contains("TTFT"), "{out}");

    let run = interrupted(&format!("simulate --requests {ENDLESS} --json"));
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let completed = answer["completed"].as_u64().unwrap();
    assert_eq!(answer["interrupted"], true);
    assert!((1..90_000_000).contains(&completed), "{completed}");
    // An interrupted run cannot show overload.
    assert_eq!(answer["load"]["overloaded"], false);

    let run = interrupted(&format!("simulate --requests {ENDLESS} --csv"));
    let out = text(&run.stdout);
    assert!(out.lines().skip(1).all(|line| line.ends_with(",true")), "{out}");
}

/// Kubernetes, Slurm and `timeout` end a process by SIGTERM.
#[test]
fn sigterm_keeps_what_ctrl_c_keeps() {
    for (arguments, says) in [
        (format!("simulate --requests {ENDLESS}"), "PARTIAL: interrupted after"),
        ("limits --model llama-3.1-8b --hardware h100-sxm --sweep batch=1..100 --sweep max-num-batched-tokens=1..1000".to_owned(), "PARTIAL: interrupted when"),
        ("hardware measure --threads 1".to_owned(), "PARTIAL: interrupted before"),
    ] {
        let child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        signalled(&child, &arguments, Signal::TERM);
        let run = child.wait_with_output().unwrap();
        let (out, err) = (text(&run.stdout), text(&run.stderr));
        assert_eq!(run.status.code(), Some(3), "{arguments}: {out}{err}");
        assert!(out.contains(says), "{arguments}: {out}");
    }
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
fn a_sweep_of_which_no_run_ended_is_empty_and_says_so() {
    let sweep = format!("simulate --threads 1 --requests {ENDLESS} --sweep rate=16..64:x2");
    let run = interrupted(&sweep);
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    // The values are 16, 32 and 64 a second.
    assert_eq!(text(&run.stdout), "PARTIAL: interrupted when 0 of 3 runs had ended\n");
    let run = interrupted(&format!("{sweep} --json"));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert_eq!(answer["interrupted"], true);
    assert_eq!(answer["points"].as_array().map(Vec::len), Some(0));
    let run = interrupted(&format!("{sweep} --csv"));
    assert_eq!((run.status.code(), text(&run.stdout).lines().count()), (Some(3), 1));
}

#[test]
fn a_plan_that_judged_nothing_does_not_say_that_nothing_meets_the_slo() {
    let plan = "plan examples/plan-70b.toml --exhaustive --set search.requests=10000000";
    let run = interrupted(plan);
    let out = text(&run.stdout);
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(out.contains("PARTIAL: interrupted after 0 simulations"), "{out}");
    assert!(out.contains("none was simulated") && !out.contains("no deployment"), "{out}");
    assert!(
        out.split_whitespace().collect::<Vec<_>>().join(" ").contains(" 0 more expensive ones skipped"),
        "{out}"
    );
    let run = interrupted(&format!("{plan} --json"));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let count = |key: &str| answer.pointer(key).and_then(serde_json::Value::as_u64).unwrap();
    let pruned: u64 = ["/pruned/memory", "/pruned/limit", "/pruned/estimate"].into_iter().map(count).sum();
    // Without a best deployment none can cost more than the best: every deployment that was not ruled out is unjudged.
    assert_eq!((count("/dearer"), count("/unjudged")), (0, count("/considered") - pruned));
}

#[test]
fn a_calibration_ends_at_once_and_writes_nothing() {
    // A fit uses an even sample of each deployment's rows, so a few hundred deployments are needed to make it slow.
    let mut rows = "kind,model,hardware,weights,engine,tpot_ms,context_len\n".to_owned();
    for chip in ["h100-sxm", "h200-sxm", "a100-sxm-80gb", "l40s", "rtx-4090", "b200-sxm"] {
        for (model, weights) in ["llama-3.1-8b", "qwen3-8b", "mistral-7b"]
            .into_iter()
            .flat_map(|m| [(m, "bf16"), (m, "gptq-int4")])
        {
            for engine in ["vllm", "sglang", "tensorrt-llm"] {
                for n in 0..12 {
                    rows += &format!("decode_step,{model},{chip},{weights},{engine},30,{}\n", 100 + 300 * n);
                }
            }
        }
    }
    let (folder, path) = file("m.csv", rows.as_bytes());
    let out = folder.path().join("c.toml");
    let out = out.to_str().unwrap();
    let begun = Instant::now();
    let run = interrupted(&format!("calibrate {path} --out {out}"));
    let took = begun.elapsed();
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains("PARTIAL: interrupted before the fit was done; nothing is written"));
    assert!(!std::path::Path::new(out).exists());
    // The fit checks for signals after each pass over all rows; SIGINT arrives a second after the start.
    assert!(took < Duration::from_secs(30), "{took:?}");
    on_terminal(&format!("calibrate {path}"), Some("0/30 runs of all rows"));
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

/// A file with more rows than can be forecast before the interruption.
fn rows() -> (tempfile::TempDir, String) {
    let row = "decode_step,llama-3.1-8b,h100-sxm,9,";
    let rows: String = (0..200_000).map(|n| format!("{row}{}\n", 100 + n % 4000)).collect();
    file("m.csv", format!("kind,model,hardware,tpot_ms,context_len\n{rows}").as_bytes())
}

#[test]
fn rows_that_are_forecast_by_then_are_judged() {
    let (_folder, path) = rows();
    let run = interrupted(&format!("validate {path} --json"));
    assert_eq!(run.status.code(), Some(3), "{}", text(&run.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let rows = answer["rows"].as_u64().unwrap();
    assert_eq!(answer["interrupted"], true);
    assert!((1..200_000).contains(&rows), "{rows}");
}

#[test]
fn a_terminal_sees_how_far_it_is_and_a_pipe_does_not() {
    let seen = on_terminal("simulate --requests 100000", None);
    assert!(seen.contains("/100000 requests"), "{seen}");
    // The number of simulations of a plan is unknown until it has an answer.
    let seen = on_terminal("plan examples/plan-70b.toml --exhaustive", Some(" simulations, "));
    assert!(seen.contains(" simulations, ") && !seen.contains("/0 simulations"), "{seen}");
    let piped = command("simulate --requests 1000").output().unwrap();
    assert!(piped.status.success() && piped.stderr.is_empty(), "{}", text(&piped.stderr));
}
