//! Keys of a replayed trace: its file, and the pace at which its requests are sent.
//!
//! Knows: which keys contradict each other, and which keys recorded sessions lack. Knows nothing about file formats
//! ([`super::trace`]), nor about the arrivals that follow ([`super::pace`]).

use super::bounds::{check_concurrency, number};
use super::trace::{MOST_SECONDS, Trace, TraceFormat};
use roofcast_facts::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `[workload.arrivals]` of kind `trace`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Path of the trace file.
    pub path: String,
    /// Format of the file; detected from the first line if absent.
    pub format: Option<TraceFormat>,
    /// Factor on recorded times; values below 1 are faster.
    pub scale: Option<f64>,
    /// True to spread the requests of one recorded time evenly until the next tick of the recording's clock.
    pub spread: Option<bool>,
    /// Mean requests per second, or sessions that begin per second: recorded times are scaled to this rate.
    pub rate: Option<f64>,
    /// With `rate`: requests arrive with gamma-distributed gaps of this shape in place of the recorded gaps.
    pub burstiness: Option<f64>,
    /// Number of users who send the recorded requests in their order, or of recorded sessions in progress, in place of
    /// the recorded times.
    pub concurrency: Option<u64>,
    /// With `concurrency`: mean seconds between an answer and the user's next request.
    pub think_s: Option<f64>,
    /// With `concurrency`: seconds over which users begin; of recorded sessions in progress, the warm-up.
    pub ramp_s: Option<f64>,
    /// With `concurrency`: seconds from a request's last step until the user's next request is at the server.
    pub turn_round_s: Option<f64>,
    /// Of recorded sessions: longest wait between an answer and the next turn in seconds.
    pub inter_turn_delay_cap_s: Option<f64>,
    /// Of recorded sessions: longest time without a request in flight in seconds; longer gaps are cut.
    pub system_idle_gap_cap_s: Option<f64>,
    /// With `concurrency`: share of a recorded session's waits that has passed at the least when the first ones begin.
    pub trajectory_start_min_ratio: Option<f64>,
    /// With `concurrency`: share of a recorded session's waits that has passed at most when the first ones begin.
    pub trajectory_start_max_ratio: Option<f64>,
    /// With `concurrency`: true if recorded sessions begin anew when all have begun.
    pub recycle: Option<bool>,
    /// Contents of the file; `None` until it is loaded.
    #[serde(skip)]
    pub recorded: Option<Arc<Trace>>,
}

impl Replay {
    /// A replay at recorded times.
    pub(super) fn of(path: &str, recorded: Arc<Trace>) -> Replay {
        Replay { path: path.to_owned(), recorded: Some(recorded), ..Replay::default() }
    }

    /// The recorded sessions; empty if the file has none or is not loaded.
    pub fn has_sessions(&self) -> bool {
        self.recorded.as_ref().is_some_and(|trace| !trace.sessions.is_empty())
    }

    /// Mean requests per second of a trace without sessions.
    pub(super) fn requests_per_s(&self) -> Option<f64> {
        let trace = self.recorded.as_ref().filter(|trace| trace.sessions.is_empty())?;
        trace.rate().map(|rate| rate / self.scale.unwrap_or(1.0))
    }

    /// Mean requests per second of the first `count` requests of a trace without sessions.
    pub fn first_per_s(&self, count: u64) -> Option<f64> {
        let trace = self.recorded.as_ref().filter(|trace| trace.sessions.is_empty())?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        trace.rate_of(count).map(|rate| rate / self.scale.unwrap_or(1.0))
    }

    /// Refuses keys that contradict each other, and keys that recorded sessions lack.
    pub(super) fn check_keys(&self, place: &str) -> Result<()> {
        let sessions = self.has_sessions();
        let refuse = |key: &str, accepted: &str| {
            Err(Error::field(place, format!("workload.arrivals.{key}"), "set", accepted))
        };
        if let Some(rate) = self.rate {
            number(place, "rate", rate, rate > 0.0 && rate <= 1e9, "a number above 0, up to 10^9")?;
        }
        if let Some(users) = self.concurrency {
            check_concurrency(place, users)?;
        }
        let users = [
            ("think_s", self.think_s.is_some()),
            ("ramp_s", self.ramp_s.is_some()),
            ("turn_round_s", self.turn_round_s.is_some()),
        ];
        self.check_protocol(place)?;
        // The warm-up of sessions in progress lasts as long as a ramp.
        let warms = self.starts_within();
        let of_users =
            users.iter().find(|(key, set)| *set && !(warms && *key == "ramp_s")).map(|(key, _)| *key);
        let of_sessions = of_users.or(self.burstiness.map(|_| "burstiness"));
        match of_sessions {
            Some(key) if sessions => {
                return refuse(
                    key,
                    "omitted: the trace has sessions, which are replayed with their recorded waits",
                );
            }
            _ => {}
        }
        if self.rate.is_some() && self.concurrency.is_some() {
            return refuse("rate", "one of rate and concurrency");
        }
        if self.scale.is_some() && (self.rate.is_some() || self.concurrency.is_some() && !sessions) {
            return refuse("scale", "omitted beside rate and concurrency, which set the pace of a trace");
        }
        match of_users {
            Some(key) if self.concurrency.is_none() => {
                return refuse(key, "omitted, or concurrency beside it");
            }
            _ => {}
        }
        match self.burstiness {
            Some(_) if self.rate.is_none() => {
                refuse("burstiness", "omitted, or rate beside it: a trace arrives as it was recorded")
            }
            _ => Ok(()),
        }
    }

    /// True if the first sessions begin within their recorded time.
    pub(super) fn starts_within(&self) -> bool {
        self.trajectory_start_min_ratio.is_some() || self.trajectory_start_max_ratio.is_some()
    }

    /// Refuses keys of benchmarks of agents where they do not apply, or are out of range.
    fn check_protocol(&self, place: &str) -> Result<()> {
        let in_progress = [
            ("trajectory_start_min_ratio", self.trajectory_start_min_ratio.is_some()),
            ("trajectory_start_max_ratio", self.trajectory_start_max_ratio.is_some()),
            ("recycle", self.recycle.is_some()),
        ];
        let caps = [
            ("inter_turn_delay_cap_s", self.inter_turn_delay_cap_s),
            ("system_idle_gap_cap_s", self.system_idle_gap_cap_s),
        ];
        let given = caps.iter().map(|(key, cap)| (*key, cap.is_some())).chain(in_progress);
        let refuse = |key: &str, accepted: &str| {
            Err(Error::field(place, format!("workload.arrivals.{key}"), "set", accepted))
        };
        match given.into_iter().find(|(_, set)| *set) {
            Some((key, _)) if !self.has_sessions() => {
                return refuse(key, "omitted: the trace has no sessions");
            }
            _ => {}
        }
        match in_progress.iter().find(|(_, set)| *set) {
            Some((key, _)) if self.concurrency.is_none() => {
                return refuse(key, "omitted, or concurrency beside it: the number of sessions in progress");
            }
            _ => {}
        }
        for (key, cap) in caps {
            let cap = cap.unwrap_or(0.0);
            number(place, key, cap, (0.0..=MOST_SECONDS).contains(&cap), "seconds from 0 to 10^7")?;
        }
        let earliest = self.trajectory_start_min_ratio.unwrap_or(0.0);
        let latest = self.trajectory_start_max_ratio.unwrap_or(1.0);
        number(
            place,
            "trajectory_start_max_ratio",
            latest,
            (0.0..=1.0).contains(&latest),
            "a share from 0 to 1",
        )?;
        let sane = (0.0..=latest).contains(&earliest);
        number(
            place,
            "trajectory_start_min_ratio",
            earliest,
            sane,
            "a share from 0 to trajectory_start_max_ratio",
        )
    }

    /// Refuses a scale that ends the trace too late, and a file without times.
    pub(super) fn check(&self, place: &str) -> Result<()> {
        if let Some(users) = self.concurrency {
            check_concurrency(place, users)?;
        }
        let recorded = self.recorded.as_deref();
        let scale = self.scale.unwrap_or(1.0);
        let last = recorded.and_then(|trace| trace.requests.last()).map_or(0.0, |last| last.at.seconds());
        let sane = scale.is_finite() && scale > 0.0 && last * scale <= MOST_SECONDS;
        number(place, "scale", scale, sane, "a number above 0 that ends the trace within 10^7 s")?;
        if recorded.is_some_and(|trace| !trace.timed) {
            let accepted =
                "a trace with times, or a rate or concurrency beside it, at which its lengths are drawn";
            return Err(Error::field(place, "workload.arrivals.path", "a file without times", accepted));
        }
        Ok(())
    }
}
