//! When requests arrive.
//!
//! Knows: arrival processes, their rates and how an open one's next time is drawn. Knows nothing about what arrives.

use super::random::{Purpose, Stream};
use crate::error::{Error, Result};
use crate::units::Picoseconds;
use serde::Deserialize;

/// An arrival process.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Independent arrivals.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Evenly spaced arrivals.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Gamma-distributed gaps; burstiness 1 is Poisson, below 1 burstier.
    Gamma {
        /// Requests per second.
        rate: f64,
        /// Shape of the gaps.
        burstiness: f64,
    },
    /// A fixed number of users, each with one request in flight or thinking.
    ClosedLoop {
        /// Users.
        concurrency: u64,
        /// Mean of the exponential time between an answer and the user's next request; 0 where absent.
        think_s: Option<f64>,
    },
}

impl Arrivals {
    /// Requests per second; none in a closed loop, where the server sets the pace.
    pub fn rate(&self) -> Option<f64> {
        match *self {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } | Arrivals::Gamma { rate, .. } => {
                Some(rate)
            }
            Arrivals::ClosedLoop { .. } => None,
        }
    }

    /// The squared coefficient of variation of the gaps.
    pub fn cv2(&self) -> f64 {
        match *self {
            Arrivals::Poisson { .. } => 1.0,
            Arrivals::Gamma { burstiness, .. } => 1.0 / burstiness,
            Arrivals::Constant { .. } | Arrivals::ClosedLoop { .. } => 0.0,
        }
    }

    pub(super) fn check(&self, place: &str) -> Result<()> {
        let positive = |field: &str, v: f64| {
            if v.is_finite() && v > 0.0 && v <= 1e9 {
                Ok(())
            } else {
                Err(Error::field(place, format!("workload.arrivals.{field}"), v, "a number above 0"))
            }
        };
        match *self {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } => positive("rate", rate),
            Arrivals::Gamma { rate, burstiness } => {
                positive("rate", rate)?;
                positive("burstiness", burstiness)
            }
            Arrivals::ClosedLoop { concurrency, think_s } => {
                positive("concurrency", concurrency as f64)?;
                think_s.filter(|t| *t != 0.0).map_or(Ok(()), |t| positive("think_s", t))
            }
        }
    }
}

/// The times of an open process, one after another.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    pace: Pace,
    stream: Stream,
    at: Picoseconds,
    drawn: u64,
}

#[derive(Debug, Clone, Copy)]
enum Pace {
    Poisson { mean: f64 },
    Gamma { mean: f64, shape: f64 },
    Constant { rate: f64 },
}

impl Clock {
    /// The clock of an open process; none where the server sets the pace.
    pub(super) fn new(arrivals: &Arrivals, seed: u64) -> Option<Clock> {
        let pace = match *arrivals {
            Arrivals::Poisson { rate } => Pace::Poisson { mean: 1.0 / rate },
            Arrivals::Gamma { rate, burstiness } => {
                Pace::Gamma { mean: 1.0 / (rate * burstiness), shape: burstiness }
            }
            Arrivals::Constant { rate } => Pace::Constant { rate },
            Arrivals::ClosedLoop { .. } => return None,
        };
        let stream = Stream::new(seed, Purpose::Arrivals);
        Some(Clock { pace, stream, at: Picoseconds::ZERO, drawn: 0 })
    }

    /// The next time. Random processes start with a gap, evenly spaced ones at 0.
    pub(super) fn next(&mut self) -> Picoseconds {
        let gap = match self.pace {
            Pace::Poisson { mean } => mean * self.stream.exponential(),
            Pace::Gamma { mean, shape } => mean * self.stream.gamma(shape),
            Pace::Constant { rate } => {
                self.at = Picoseconds::from_seconds(self.drawn as f64 / rate);
                0.0
            }
        };
        self.drawn += 1;
        self.at += Picoseconds::from_seconds(gap);
        self.at
    }
}
