//! `roofcast bench` against servers that the tests start: exact schedules, and faults of every kind.

#[path = "bench/asking.rs"]
mod asking;
#[path = "bench/bounds.rs"]
mod bounds;
#[path = "bench/captures.rs"]
mod captures;
#[path = "bench/faults.rs"]
mod faults;
#[path = "bench/kinds.rs"]
mod kinds;
#[path = "bench/load.rs"]
mod load;
#[path = "bench/prepared.rs"]
mod prepared;
#[path = "bench/reported.rs"]
mod reported;
#[path = "bench/results.rs"]
mod results;
#[path = "bench/verdict.rs"]
mod verdict;

use crate::schedule::{self, Schedule};
use serde_json::Value;
use std::time::Duration;

/// Flag that tolerates any lag: while tests share the machine, lag is the machine's, not the client's.
const CALM: &str = "--max-lag 100000";

fn exact() -> String {
    schedule::start(Schedule { ttft: Duration::from_millis(30), itl: Duration::from_millis(4) })
}

fn at_least(answer: &Value, key: &str, least: f64) {
    let found = answer[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", answer[key]));
    assert!(found >= least, "{key} is {found}, below {least}");
}

/// Runs the command until the run is valid: a run that reports that other work on this machine slowed it down is
/// repeated.
fn believed(arguments: &str) -> crate::support::Run {
    let mut run = crate::support::roofcast(arguments);
    for _ in 0..9 {
        if run.code != 3 || !run.out.contains("fell short of the load") {
            break;
        }
        run = crate::support::roofcast(arguments);
    }
    run
}

/// The answer and exit code of the first valid run.
fn believed_json(arguments: &str) -> (serde_json::Value, i32) {
    let run = believed(&format!("{arguments} --json"));
    (serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{arguments}: {e}: {}", run.err)), run.code)
}
