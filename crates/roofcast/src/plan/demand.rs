//! What a workload asks of a deployment: how much of what, in the mean and at its longest.
//!
//! Knows: means and quantiles of the requests that a run draws, and the same workload with more requests or longer prompts.
//! Knows nothing about machines.

use crate::error::Result;
use crate::workload::{Arrivals, Length, LengthKind, Traffic, Workload};

/// Requests that are drawn to look at.
const SAMPLE: usize = 4096;

/// What requests need.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Demand {
    /// Requests per second; none where answers set the pace.
    pub(super) rate: Option<f64>,
    /// Requests always in flight, where that is how they come.
    pub(super) users: Option<u64>,
    /// Prompt tokens, mean.
    pub(super) input: f64,
    /// Prompt tokens that no cache can hold before, mean.
    pub(super) fresh: f64,
    /// Generated tokens, mean.
    pub(super) output: f64,
    /// Whether prompts have tokens in common.
    pub(super) shared: bool,
    /// Prompt tokens that no cache can hold, ascending.
    inputs: Vec<u64>,
    /// Generated tokens, ascending.
    outputs: Vec<u64>,
    /// Tokens of the longest request drawn.
    pub(super) longest: u64,
}

impl Demand {
    /// Of `workload`; `place` names it in errors.
    pub(super) fn of(workload: &Workload, place: &str) -> Result<Demand> {
        let mut traffic = Traffic::new(workload, place)?;
        let shared = traffic.shares_prompts();
        let mut drawn = Vec::new();
        while let Some(request) = traffic.next().filter(|_| drawn.len() < SAMPLE) {
            drawn.push((u64::from(request.input_len), u64::from(request.output_len)));
        }
        let sorted = |of: fn(&(u64, u64)) -> u64| {
            let mut values: Vec<u64> = drawn.iter().map(of).collect();
            values.sort_unstable();
            values
        };
        let sessions = matches!(workload.arrivals, Arrivals::Sessions { .. });
        Ok(Demand {
            rate: workload.arrivals.rate(),
            users: users(workload),
            input: workload.input_mean(),
            fresh: if shared { 0.0 } else { workload.input_mean() },
            output: workload.output_mean(),
            shared,
            inputs: if shared || sessions { Vec::new() } else { sorted(|r| r.0) },
            outputs: sorted(|r| r.1),
            longest: drawn.iter().map(|(input, output)| input + output).max().unwrap_or(1),
        })
    }

    /// A long prompt's tokens that no cache can hold, where a share of `kept` requests must keep a bound: exceeded by twice as
    /// many requests as may miss it.
    pub(super) fn long_input(&self, kept: f64) -> u64 {
        long(&self.inputs, kept)
    }

    /// A long answer's tokens, likewise.
    pub(super) fn long_output(&self, kept: f64) -> u64 {
        long(&self.outputs, kept)
    }

    /// Tokens of a request half way through its output.
    pub(super) fn context(&self) -> u64 {
        (self.input + self.output / 2.0).round().max(1.0) as u64
    }

    /// Tokens of a whole request.
    pub(super) fn full(&self) -> u64 {
        (self.input + self.output).round().max(1.0) as u64
    }

    /// Output tokens per second at the offered load.
    pub(super) fn output_per_s(&self) -> Option<f64> {
        self.rate.map(|rate| rate * self.output)
    }
}

/// The value that a share of 2·`kept` − 1 is below.
fn long(ascending: &[u64], kept: f64) -> u64 {
    let below = (2.0 * kept - 1.0).max(0.0);
    let at = (ascending.len() as f64 * below) as usize;
    ascending.get(at).or(ascending.last()).copied().unwrap_or(1)
}

/// Requests of `workload` that are always in flight, where that is how they come.
pub(super) fn users(workload: &Workload) -> Option<u64> {
    match workload.arrivals {
        Arrivals::ClosedLoop { concurrency, think_s } if think_s.unwrap_or(0.0) == 0.0 => Some(concurrency),
        _ => None,
    }
}

/// `workload` with `factor` times as many requests a second or users; none where its pace has no one number.
pub(super) fn scaled(workload: &Workload, factor: f64) -> Option<Workload> {
    let arrivals = match &workload.arrivals {
        Arrivals::Poisson { rate } => Arrivals::Poisson { rate: rate * factor },
        Arrivals::Constant { rate } => Arrivals::Constant { rate: rate * factor },
        Arrivals::Gamma { rate, burstiness } => {
            Arrivals::Gamma { rate: rate * factor, burstiness: *burstiness }
        }
        Arrivals::ClosedLoop { concurrency, think_s } => {
            let concurrency = (*concurrency as f64 * factor).round().max(1.0) as u64;
            Arrivals::ClosedLoop { concurrency, think_s: *think_s }
        }
        Arrivals::Trace { path, format, scale, recorded } => Arrivals::Trace {
            path: path.clone(),
            format: *format,
            scale: Some(scale.unwrap_or(1.0) / factor),
            recorded: recorded.clone(),
        },
        _ => return None,
    };
    Some(Workload { arrivals, ..workload.clone() })
}

/// `workload` with prompts twice as long; none where they are as observed.
pub(super) fn longer(workload: &Workload) -> Option<Workload> {
    let input_len = match &workload.input_len {
        Length::Tokens(n) | Length::Drawn(LengthKind::Fixed { value: n }) => Length::Tokens(2 * n),
        Length::Drawn(LengthKind::Uniform { min, max }) => {
            Length::Drawn(LengthKind::Uniform { min: 2 * min, max: 2 * max })
        }
        Length::Drawn(LengthKind::Lognormal { mu, sigma, min, max }) => {
            Length::Drawn(LengthKind::Lognormal {
                mu: mu + std::f64::consts::LN_2,
                sigma: *sigma,
                min: min.map(|n| 2 * n),
                max: max.map(|n| 2 * n),
            })
        }
        Length::Drawn(LengthKind::Empirical(_)) => return None,
    };
    Some(Workload { input_len, ..workload.clone() })
}
