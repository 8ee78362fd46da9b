//! The demand of a workload: mean and largest lengths and rates.
//!
//! Knows: means and quantiles of the requests that a run draws, and variants of the workload with more requests or
//! longer prompts. Knows nothing about hardware.

use roofcast_ask::workload::{
    Arrivals, Class, DrawnLoad, Length, LengthKind, Prefix, Replay, Traffic, Workload,
};
use roofcast_facts::error::Result;
use std::sync::Arc;

/// Number of requests drawn as a sample.
const SAMPLE: usize = 4096;

/// Rates and lengths of the requests of a workload.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TrafficDemand {
    /// Requests per second; `None` if arrivals depend on answers.
    pub(super) rate: Option<f64>,
    /// Constant number of requests in flight; `None` if arrivals do not keep it constant.
    pub(super) users: Option<u64>,
    /// Mean number of prompt tokens.
    pub(super) input: f64,
    /// Mean number of prompt tokens that cannot be in the prefix cache.
    pub(super) fresh: f64,
    /// Mean number of prompt tokens that a prefix cache without bound does not have.
    pub(super) uncached: f64,
    /// Mean number of generated tokens.
    pub(super) output: f64,
    /// True if prompts share tokens.
    pub(super) shared: bool,
    /// Numbers of prompt tokens that cannot be in the prefix cache, in ascending order.
    inputs: Vec<u64>,
    /// Numbers of generated tokens, in ascending order.
    outputs: Vec<u64>,
    /// Number of tokens of the longest request of the sample.
    pub(super) longest: u64,
}

impl TrafficDemand {
    /// The demand of `workload`; `place` names it in errors.
    pub(super) fn of(workload: &Workload, place: &str) -> Result<TrafficDemand> {
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
        Ok(TrafficDemand {
            rate: workload.arrivals.rate(),
            users: users(workload),
            input: workload.input_mean(),
            fresh: if shared { 0.0 } else { workload.input_mean() },
            uncached: match shared {
                true => DrawnLoad::of(workload, place)?.new_input,
                false => workload.input_mean(),
            },
            output: workload.output_mean(),
            shared,
            inputs: if shared || sessions { Vec::new() } else { sorted(|r| r.0) },
            outputs: sorted(|r| r.1),
            longest: drawn.iter().map(|(input, output)| input + output).max().unwrap_or(1),
        })
    }

    /// The demand if `users` users always have one request in flight each.
    pub(super) fn of_users(&self, users: u64) -> TrafficDemand {
        TrafficDemand { rate: None, users: Some(users), ..self.clone() }
    }

    /// Uncached tokens of a long prompt, for a bound that a fraction `kept` of the requests must meet: two times as
    /// many requests are longer as may miss the bound.
    pub(super) fn long_input(&self, kept: f64) -> u64 {
        long(&self.inputs, kept)
    }

    /// Tokens of a long output, at the quantile of [`Demand::long_input`].
    pub(super) fn long_output(&self, kept: f64) -> u64 {
        long(&self.outputs, kept)
    }

    /// Mean number of tokens of a request when half of its output is generated.
    pub(super) fn context(&self) -> u64 {
        (self.input + self.output / 2.0).round().max(1.0) as u64
    }

    /// Mean number of tokens of a whole request.
    pub(super) fn full(&self) -> u64 {
        (self.input + self.output).round().max(1.0) as u64
    }

    /// Output tokens per second at the offered load.
    pub(super) fn output_per_s(&self) -> Option<f64> {
        self.rate.map(|rate| rate * self.output)
    }
}

/// The value that exceeds a fraction 2·`kept` − 1 of the list.
fn long(ascending: &[u64], kept: f64) -> u64 {
    let below = (2.0 * kept - 1.0).max(0.0);
    let at = (ascending.len() as f64 * below) as usize;
    ascending.get(at).or(ascending.last()).copied().unwrap_or(1)
}

/// Constant number of requests in flight; `None` if the arrivals of `workload` do not keep it constant.
pub(super) fn users(workload: &Workload) -> Option<u64> {
    match workload.arrivals {
        Arrivals::ClosedLoop { concurrency, think_s, .. } if think_s.unwrap_or(0.0) == 0.0 => {
            Some(concurrency)
        }
        _ => None,
    }
}

/// `workload` with users who all begin at once; `None` if they do already, for one user, and for other arrivals.
pub(super) fn at_once(workload: &Workload) -> Option<Workload> {
    let mut arrivals = workload.arrivals.clone();
    match &mut arrivals {
        Arrivals::ClosedLoop { concurrency: 2.., ramp_s, .. } if ramp_s.is_some_and(|s| s > 0.0) => {
            *ramp_s = Some(0.0);
            Some(Workload { arrivals, ..workload.clone() })
        }
        _ => None,
    }
}

/// `workload` with `factor` times the rate or the users; `None` if its pace is not one number.
pub(super) fn scaled(workload: &Workload, factor: f64) -> Option<Workload> {
    let arrivals = match &workload.arrivals {
        Arrivals::Poisson { rate } => Arrivals::Poisson { rate: rate * factor },
        Arrivals::Constant { rate } => Arrivals::Constant { rate: rate * factor },
        Arrivals::Gamma { rate, burstiness } => {
            Arrivals::Gamma { rate: rate * factor, burstiness: *burstiness }
        }
        Arrivals::Profile { rate, counts } => {
            Arrivals::Profile { rate: rate * factor, counts: Arc::clone(counts) }
        }
        Arrivals::PacedUsers { concurrency, every_s } => {
            Arrivals::PacedUsers { concurrency: *concurrency, every_s: every_s / factor }
        }
        Arrivals::Series { points } => {
            Arrivals::Series { points: points.iter().map(|[time, rate]| [*time, rate * factor]).collect() }
        }
        Arrivals::ClosedLoop { concurrency, think_s, ramp_s, turn_round_s } => {
            let concurrency = (*concurrency as f64 * factor).round().max(1.0) as u64;
            Arrivals::ClosedLoop {
                concurrency,
                think_s: *think_s,
                ramp_s: *ramp_s,
                turn_round_s: *turn_round_s,
            }
        }
        Arrivals::Trace(replay) => Arrivals::Trace(Replay {
            scale: Some(replay.scale.unwrap_or(1.0) / factor).filter(|_| replay.rate.is_none()),
            rate: replay.rate.map(|rate| rate * factor),
            concurrency: replay.concurrency.map(|users| (users as f64 * factor).round().max(1.0) as u64),
            ..replay.clone()
        }),
        _ => return None,
    };
    Some(Workload { arrivals, ..workload.clone() })
}

/// `workload` with prompts of twice the length, including their shared prefixes; `None` if lengths are recorded.
pub(super) fn longer(workload: &Workload) -> Option<Workload> {
    let prefix = workload.prefix.map(|prefix| Prefix { length: 2 * prefix.length, ..prefix });
    let class = |class: &Class| Some(Class { input_len: doubled(&class.input_len)?, ..class.clone() });
    let classes = workload.classes.iter().map(class).collect::<Option<_>>()?;
    Some(Workload { input_len: doubled(&workload.input_len)?, prefix, classes, ..workload.clone() })
}

/// Twice the length `length`; `None` if it is recorded.
fn doubled(length: &Length) -> Option<Length> {
    Some(match length {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::spec::Spec;

    /// A prompt of 1000 shared and 100 unique tokens becomes one of 2000 and 200.
    #[test]
    fn prompts_grow_with_their_shared_beginning() {
        let text = "[workload]\ninput_len = 100\noutput_len = 10\nprefix = { length = 1000, share = 0.5 }\n\
                    arrivals = { kind = \"poisson\", rate = 1 }\n";
        let workload = Spec::parse("t", text).unwrap().workload.unwrap();
        let twice = longer(&workload).unwrap();
        let prefix = twice.prefix.unwrap();
        assert_eq!((twice.input_len, prefix.length, prefix.share), (Length::Tokens(200), 2000, 0.5));
    }
}
