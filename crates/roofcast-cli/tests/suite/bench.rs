//! `roofcast bench` against servers of its own: exact schedules, and faults of every kind.

#[path = "bench/asking.rs"]
mod asking;
#[path = "bench/captures.rs"]
mod captures;
#[path = "bench/faults.rs"]
mod faults;
#[path = "bench/load.rs"]
mod load;
#[path = "bench/results.rs"]
mod results;
#[path = "bench/verdict.rs"]
mod verdict;

use crate::schedule::{self, Schedule};
use serde_json::Value;
use std::time::Duration;

/// Lag is the machine's while tests share it.
const CALM: &str = "--max-lag 100000";

fn exact() -> String {
    schedule::start(Schedule { ttft: Duration::from_millis(30), itl: Duration::from_millis(4) })
}

fn at_least(answer: &Value, key: &str, least: f64) {
    let found = answer[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", answer[key]));
    assert!(found >= least, "{key} is {found}, below {least}");
}
