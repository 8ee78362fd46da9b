//! `[fleet.failures]` and `[fleet.slow]`: replicas that fail, and replicas that are slower than the others.

use super::keys::about;
use roofcast_facts::error::{Error, Result};
use serde::Deserialize;
use std::fmt::Display;

/// Longest restart in seconds: a day.
const LONGEST_S: f64 = 86_400.0;

/// `[fleet.failures]`: replicas that fail and restart.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailuresSpec {
    #[doc = about!("fleet.failures.mtbf_s")]
    pub mtbf_s: Option<f64>,
    #[doc = about!("fleet.failures.restart_s")]
    pub restart_s: f64,
    #[doc = about!("fleet.failures.retry")]
    #[serde(default = "yes")]
    pub retry: bool,
    #[doc = about!("fleet.failures.events")]
    #[serde(default)]
    pub events: Vec<FailureEvent>,
}

/// A planned failure.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureEvent {
    /// Index of the replica.
    pub replica: u64,
    /// Seconds from the start of the run.
    pub at_s: f64,
}

/// `[fleet.slow]`: replicas that are slower than the others.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowSpec {
    #[doc = about!("fleet.slow.replicas")]
    pub replicas: u64,
    #[doc = about!("fleet.slow.factor")]
    pub factor: f64,
}

fn yes() -> bool {
    true
}

impl FailuresSpec {
    /// Refuses values that are out of range, for a fleet of `count` replicas.
    pub fn check(&self, place: &str, count: u64) -> Result<()> {
        if let Some(mean) = self.mtbf_s.filter(|mean| !(1.0..=1e12).contains(mean)) {
            return refuse(place, "failures.mtbf_s", mean, "1 to 10^12 seconds");
        }
        if !(0.0..=LONGEST_S).contains(&self.restart_s) {
            let accepted = format!("0 to {LONGEST_S} seconds");
            return refuse(place, "failures.restart_s", self.restart_s, accepted);
        }
        if self.mtbf_s.is_some() != self.events.is_empty() {
            let given = if self.events.is_empty() { "missing" } else { "together with events" };
            return refuse(place, "failures.mtbf_s", given, "either mtbf_s or events");
        }
        for event in &self.events {
            if event.replica >= count {
                let accepted = format!("a replica from 0 to {}", count - 1);
                return refuse(place, "failures.events", event.replica, accepted);
            }
            if !(0.0..=1e12).contains(&event.at_s) {
                return refuse(place, "failures.events", event.at_s, "seconds from 0 to 10^12");
            }
        }
        Ok(())
    }
}

impl SlowSpec {
    /// Refuses values that are out of range, for a pool of `count` replicas.
    pub fn check(&self, place: &str, count: u64) -> Result<()> {
        if !(1..=count).contains(&self.replicas) {
            return refuse(place, "slow.replicas", self.replicas, format!("1 to {count}"));
        }
        if !(1.0..=100.0).contains(&self.factor) {
            return refuse(place, "slow.factor", self.factor, "1 to 100, on the times of a step");
        }
        Ok(())
    }
}

fn refuse<T>(place: &str, key: &str, found: impl Display, accepted: impl Display) -> Result<T> {
    Err(Error::field(place, format!("fleet.{key}"), found, accepted))
}
