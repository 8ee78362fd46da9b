//! Traffic: when requests arrive and how long they are.
//!
//! Knows: the distributions and their means, which is what a plan's arithmetic takes. Drawing from them comes with the
//! simulator.

use crate::error::{Error, Result};
use serde::Deserialize;

/// `[workload]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// How many requests a run has.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Seed of every draw.
    #[serde(default)]
    pub seed: u64,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// Prompt tokens.
    pub input_len: Length,
    /// Generated tokens.
    pub output_len: Length,
}

/// An arrival process.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
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
    /// A fixed number always in flight.
    ClosedLoop {
        /// Requests in flight.
        concurrency: u64,
    },
}

/// A distribution of token counts; a bare number is a fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "a whole number of tokens, or a table with kind = \"fixed\" (value), \"uniform\" (min, max) or \"lognormal\" (mu, sigma)"
)]
pub enum Length {
    /// The same for every request.
    Tokens(u64),
    /// Drawn.
    Drawn(LengthKind),
}

/// Named length distributions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LengthKind {
    /// The same for every request.
    Fixed {
        /// Tokens.
        value: u64,
    },
    /// Uniform over whole numbers.
    Uniform {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// exp of a normal draw.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl Length {
    /// The mean in tokens: exp(mu + sigma²/2) for a log-normal.
    pub fn mean(&self) -> f64 {
        match *self {
            Length::Tokens(n) | Length::Drawn(LengthKind::Fixed { value: n }) => n as f64,
            Length::Drawn(LengthKind::Uniform { min, max }) => (min as f64 + max as f64) / 2.0,
            Length::Drawn(LengthKind::Lognormal { mu, sigma }) => (mu + sigma * sigma / 2.0).exp(),
        }
    }

    /// The squared coefficient of variation: exp(sigma²) − 1 for a log-normal, (max − min)²/12 over the squared mean for
    /// a uniform one.
    pub fn cv2(&self) -> f64 {
        match *self {
            Length::Drawn(LengthKind::Uniform { min, max }) => {
                let width = max as f64 - min as f64;
                width * width / 12.0 / self.mean().powi(2)
            }
            Length::Drawn(LengthKind::Lognormal { sigma, .. }) => (sigma * sigma).exp_m1(),
            _ => 0.0,
        }
    }

    fn check(&self, place: &str, field: &str) -> Result<()> {
        let sane = match *self {
            Length::Drawn(LengthKind::Uniform { min, max }) => min >= 1 && min <= max,
            Length::Drawn(LengthKind::Lognormal { sigma, .. }) => sigma.is_finite() && sigma >= 0.0,
            _ => true,
        };
        let mean = self.mean();
        if sane && (1.0..=1e8).contains(&mean) {
            return Ok(());
        }
        Err(Error::field(
            place,
            field,
            format!("{self:?}"),
            "lengths from 1 to 10^8 tokens, min at most max, sigma at least 0",
        ))
    }
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
}

impl Workload {
    /// Refuses what no traffic can be.
    pub fn check(&self, place: &str) -> Result<()> {
        self.input_len.check(place, "workload.input_len")?;
        self.output_len.check(place, "workload.output_len")?;
        let positive = |field: &str, v: f64| {
            if v.is_finite() && v > 0.0 && v <= 1e9 {
                Ok(())
            } else {
                Err(Error::field(place, field, v, "a number above 0"))
            }
        };
        match self.arrivals {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } => {
                positive("workload.arrivals.rate", rate)
            }
            Arrivals::Gamma { rate, burstiness } => {
                positive("workload.arrivals.rate", rate)?;
                positive("workload.arrivals.burstiness", burstiness)
            }
            Arrivals::ClosedLoop { concurrency } => {
                positive("workload.arrivals.concurrency", concurrency as f64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_hand() {
        // exp(6.9 + 0.7²/2) = exp(7.145) = 1267.8.
        assert!((Length::Drawn(LengthKind::Lognormal { mu: 6.9, sigma: 0.7 }).mean() - 1267.75).abs() < 0.1);
        assert_eq!(Length::Drawn(LengthKind::Uniform { min: 10, max: 20 }).mean(), 15.0);
    }
}
