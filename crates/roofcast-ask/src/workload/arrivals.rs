//! Arrival times of requests.
//!
//! Knows: arrival processes, their rates, and how the next time of an open process is drawn. Knows nothing about the
//! requests that arrive.

use super::bounds::{check_concurrency, number};
use super::length::Length;
use super::profile::{self, Profile};
use super::random::{Ahead, Purpose, Stream};
use super::replay::Replay;
use super::series::{self, Points, Series};
use super::trace::MOST_SECONDS;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::Picoseconds;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An arrival process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Independent arrivals (a Poisson process).
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Evenly spaced arrivals, the first at time 0.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Gamma-distributed gaps between arrivals; burstiness 1 is Poisson, smaller values are burstier.
    Gamma {
        /// Requests per second.
        rate: f64,
        /// Shape parameter of the gaps' distribution.
        burstiness: f64,
    },
    /// Independent arrivals at a rate that changes as counts of a recording do, and begins anew after the last one.
    Profile {
        /// Mean requests per second.
        rate: f64,
        /// Numbers of requests in consecutive intervals, each so long that their mean gives the rate.
        counts: Arc<[u32]>,
    },
    /// Independent arrivals at a rate that changes linearly and then stays constant.
    Ramp {
        /// Requests per second at the start.
        from: f64,
        /// Requests per second at the end.
        to: f64,
        /// Duration of the change, in seconds.
        over_s: f64,
    },
    /// Independent arrivals at a rate that changes linearly from point to point and then stays constant.
    Series {
        /// Seconds and requests per second at each point, the first at 0 s.
        points: Points,
    },
    /// `size` requests at once, every `every_s` seconds; all requests at once if neither is given.
    Burst {
        /// Number of requests per burst.
        size: Option<u64>,
        /// Seconds from one burst to the next.
        every_s: Option<f64>,
    },
    /// All requests arrive at the start.
    Offline,
    /// A fixed number of users, each with one request in flight or thinking.
    ClosedLoop {
        /// Number of users.
        concurrency: u64,
        /// Mean in seconds of the exponentially distributed time from an answer to the user's next request; 0 if
        /// absent.
        think_s: Option<f64>,
        /// Seconds over which the users begin, one after another; all begin at once if absent. Requests sent during
        /// this time are additional to the run's requests and are not judged.
        ramp_s: Option<f64>,
        /// Seconds from a request's last step until the user's next request is at the server, without think time;
        /// [`TURN_ROUND`](super::TURN_ROUND) if absent.
        turn_round_s: Option<f64>,
    },
    /// Users who each send at their own rate: a request every `every_s` seconds, or when the answer to the one before has
    /// come, if that is later. They begin one after another within the first `every_s`.
    PacedUsers {
        /// Number of users.
        concurrency: u64,
        /// Seconds from one request of a user to the next.
        every_s: f64,
    },
    /// Conversations: the prompt of each turn is all earlier text of the conversation plus new text. Prompt lengths
    /// count only the new text.
    Sessions {
        /// New conversations per second, independent of each other; an alternative to `concurrency`.
        rate: Option<f64>,
        /// Number of conversations in progress at one time; the next begins when one ends.
        concurrency: Option<u64>,
        /// Number of turns per conversation.
        turns: Length,
        /// Mean in seconds of the exponentially distributed time from an answer to the next turn; 0 if absent.
        think_s: Option<f64>,
    },
    /// Recorded requests, at their times or at another pace.
    Trace(Replay),
}

/// Conversations that begin at a rate, whatever the number in progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conversations {
    /// Conversations that begin per second.
    pub per_s: f64,
    /// Mean number of turns.
    pub turns: f64,
    /// Mean seconds between an answer and the next turn.
    pub think_s: f64,
}

impl Arrivals {
    /// Mean requests per second: of users with a rate each if answers come in time, of a ramp while it rises, of a series up to its last point, of a trace over its duration. `None` for conversations, and
    /// if arrivals depend on answers or all come at once.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Arrivals::Poisson { rate }
            | Arrivals::Constant { rate }
            | Arrivals::Gamma { rate, .. }
            | Arrivals::Profile { rate, .. } => Some(*rate),
            Arrivals::Ramp { from, to, .. } => Some((from + to) / 2.0),
            Arrivals::Series { points } => Some(series::mean(points)),
            Arrivals::PacedUsers { concurrency, every_s } => Some(*concurrency as f64 / every_s),
            Arrivals::Burst { size: Some(size), every_s: Some(every) } => Some(*size as f64 / every),
            Arrivals::Trace(replay) => replay.requests_per_s(),
            _ => None,
        }
    }

    /// Number of requests of a recording's counts, or that a series brings up to its last point; `None` for others.
    pub(super) fn expected(&self) -> Option<u64> {
        match self {
            Arrivals::Profile { counts, .. } => Some(counts.iter().map(|count| u64::from(*count)).sum()),
            Arrivals::Series { points } => series::expected(points),
            _ => None,
        }
    }

    /// Most requests, at least 1, that come before a run has lasted as long as it may; `u64::MAX` if answers or a
    /// recording set the times.
    pub fn most_requests(&self) -> u64 {
        let rate = match self {
            Arrivals::Series { points } => return series::most_requests(points),
            Arrivals::Ramp { to, .. } => Some(*to),
            Arrivals::Sessions { rate, .. } => *rate,
            Arrivals::Trace(_) => None,
            _ => self.rate(),
        };
        rate.map_or(u64::MAX, |rate| ((rate * (MOST_SECONDS - 1.0)) as u64).max(1))
    }

    /// Conversations that begin at a rate; `None` for other arrivals.
    pub fn conversations(&self) -> Option<Conversations> {
        let Arrivals::Sessions { rate: Some(per_s), turns, think_s, .. } = self else { return None };
        let turns = turns.mean(super::empirical::LengthSide::Input);
        Some(Conversations { per_s: *per_s, turns, think_s: think_s.unwrap_or(0.0) })
    }

    /// Number of users whose first requests, out of `total` requests, are all sent at the start; 0 if users begin one
    /// after another, if every user has but one request, and for other arrivals.
    pub fn first_wave(&self, total: u64) -> u64 {
        match self {
            Arrivals::ClosedLoop { concurrency, .. }
                if self.ramped() == Picoseconds::ZERO && (2..total).contains(concurrency) =>
            {
                *concurrency
            }
            _ => 0,
        }
    }

    /// Time at which all users of a closed loop have begun.
    pub fn ramped(&self) -> Picoseconds {
        match self {
            Arrivals::ClosedLoop { ramp_s: Some(ramp), .. }
            | Arrivals::Trace(Replay { ramp_s: Some(ramp), .. }) => Picoseconds::from_seconds(*ramp),
            _ => Picoseconds::ZERO,
        }
    }

    /// The squared coefficient of variation of the gaps between arrivals. In bursts of n, n − 1 gaps are 0 and one is
    /// the whole interval, which gives n − 1.
    pub fn cv2(&self) -> f64 {
        match self {
            Arrivals::Poisson { .. } | Arrivals::Ramp { .. } | Arrivals::Series { .. } => 1.0,
            Arrivals::Gamma { burstiness, .. } => 1.0 / burstiness,
            Arrivals::Burst { size: Some(size), .. } => *size as f64 - 1.0,
            Arrivals::Profile { counts, .. } => profile::cv2(counts),
            Arrivals::Trace(replay) => replay.recorded.as_ref().map_or(0.0, |trace| trace.cv2()),
            _ => 0.0,
        }
    }

    pub(super) fn check(&self, place: &str, requests: u64) -> Result<()> {
        let positive = |field: &str, v: f64| {
            number(place, field, v, v > 0.0 && v <= 1e9, "a number above 0, up to 10^9")
        };
        let think = |v: &Option<f64>| {
            let v = v.unwrap_or(0.0);
            number(place, "think_s", v, (0.0..=1e6).contains(&v), "seconds from 0 to 10^6")
        };
        let ends = |field: &str, v: f64, rate: f64| {
            let accepted = format!("all {requests} requests within {MOST_SECONDS} s");
            number(place, field, v, requests as f64 / rate <= MOST_SECONDS, &accepted)
        };
        let lasts = |field: &str, rate: f64| ends(field, rate, rate);
        match self {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } => {
                positive("rate", *rate).and_then(|()| lasts("rate", *rate))
            }
            Arrivals::Gamma { rate, burstiness } => {
                positive("rate", *rate).and_then(|()| lasts("rate", *rate))?;
                let sane = (1e-3..=1e6).contains(burstiness);
                number(place, "burstiness", *burstiness, sane, "a number from 0.001 to 10^6")
            }
            Arrivals::Profile { rate, counts } => {
                positive("rate", *rate).and_then(|()| lasts("rate", *rate))?;
                profile::check(place, counts)
            }
            Arrivals::Ramp { from, to, over_s } => {
                number(place, "from", *from, (0.0..=1e9).contains(from), "a number from 0")?;
                positive("to", *to).and_then(|()| lasts("to", *to))?;
                number(place, "over_s", *over_s, *over_s > 0.0 && *over_s <= MOST_SECONDS, "seconds above 0")
            }
            Arrivals::Series { points } => {
                series::check(place, points).and_then(|()| series::check_end(place, points, requests))
            }
            Arrivals::Burst { size: None, every_s: None } | Arrivals::Offline => Ok(()),
            Arrivals::Burst { size: Some(size), every_s: Some(every) } => {
                positive("size", *size as f64)?;
                positive("every_s", *every)?;
                ends("every_s", *every, *size as f64 / every)
            }
            Arrivals::Burst { .. } => {
                Err(Error::field(place, "workload.arrivals", "one of `size` and `every_s`", "both, or none"))
            }
            Arrivals::ClosedLoop { concurrency, think_s, ramp_s, turn_round_s } => {
                check_concurrency(place, *concurrency)?;
                let ramp = ramp_s.unwrap_or(0.0);
                number(place, "ramp_s", ramp, (0.0..=1e6).contains(&ramp), "seconds from 0 to 10^6")?;
                let turn_round = turn_round_s.unwrap_or(0.0);
                let sane = (0.0..=1e6).contains(&turn_round);
                number(place, "turn_round_s", turn_round, sane, "seconds from 0 to 10^6")?;
                think(think_s)
            }
            Arrivals::PacedUsers { concurrency, every_s } => {
                check_concurrency(place, *concurrency)?;
                positive("every_s", *every_s)?;
                ends("every_s", *every_s, *concurrency as f64 / every_s)
            }
            Arrivals::Sessions { .. } => self.check_sessions(place, requests).and_then(|()| match self {
                Arrivals::Sessions { think_s, .. } => think(think_s),
                _ => Ok(()),
            }),
            Arrivals::Trace(replay) => replay.check(place),
        }
    }

    /// Refuses arrivals that bring no request, or more than `most`, to a run for which no number of requests is `given`.
    pub(super) fn check_expected(&self, place: &str, given: Option<u64>, most: u64) -> Result<()> {
        match self {
            Arrivals::Series { points } if given.is_none() => series::check_expected(place, points, most),
            _ => Ok(()),
        }
    }

    fn check_sessions(&self, place: &str, requests: u64) -> Result<()> {
        let Arrivals::Sessions { rate, concurrency, turns, .. } = self else { return Ok(()) };
        turns.check(place, "workload.arrivals.turns", super::empirical::LengthSide::Input)?;
        if turns.source().is_some() {
            let accepted = "a whole number, or kind = \"fixed\", \"uniform\" or \"lognormal\"";
            return Err(Error::field(place, "workload.arrivals.turns", "empirical", accepted));
        }
        match (rate, concurrency) {
            (Some(rate), None) => {
                let sane = *rate > 0.0 && *rate <= 1e9 && requests as f64 / rate <= MOST_SECONDS;
                number(place, "rate", *rate, sane, "a number above 0 that ends within 10^7 s")
            }
            (None, Some(users)) => check_concurrency(place, *users),
            _ => Err(Error::field(
                place,
                "workload.arrivals",
                "not one pace",
                "one of `rate` and `concurrency`",
            )),
        }
    }
}

/// Clock of an open arrival process: produces its times in order.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    pace: Pace,
    stream: Stream,
    at: Picoseconds,
    drawn: u64,
}

#[derive(Debug, Clone)]
enum Pace {
    Poisson {
        mean: f64,
        gaps: Ahead<Picoseconds>,
    },
    Gamma {
        mean: f64,
        shape: f64,
    },
    Constant {
        rate: f64,
    },
    /// `sum` is the expected number of arrivals so far; each arrival adds an exponential draw.
    Series {
        series: Series,
        sum: f64,
    },
    Burst {
        size: u64,
        every: f64,
    },
    /// `sum` is the expected number of arrivals so far.
    Profile {
        profile: Profile,
        sum: f64,
    },
}

impl Clock {
    /// The clock of an open process; `None` for traces, and if arrivals depend on answers.
    pub(super) fn new(arrivals: &Arrivals, seed: u64) -> Option<Clock> {
        let pace = match arrivals.clone() {
            Arrivals::Poisson { rate } | Arrivals::Sessions { rate: Some(rate), .. } => {
                Pace::Poisson { mean: 1.0 / rate, gaps: Ahead::new() }
            }
            Arrivals::Gamma { rate, burstiness } => {
                Pace::Gamma { mean: 1.0 / (rate * burstiness), shape: burstiness }
            }
            Arrivals::Constant { rate } => Pace::Constant { rate },
            Arrivals::Profile { rate, counts } => {
                Pace::Profile { profile: Profile::new(&counts, rate), sum: 0.0 }
            }
            Arrivals::Ramp { from, to, over_s } => {
                Pace::Series { series: Series::new(&[[0.0, from], [over_s, to]].into()), sum: 0.0 }
            }
            Arrivals::Series { points } => Pace::Series { series: Series::new(&points), sum: 0.0 },
            Arrivals::Burst { size, every_s } => {
                Pace::Burst { size: size.unwrap_or(u64::MAX), every: every_s.unwrap_or(0.0) }
            }
            Arrivals::Offline => Pace::Burst { size: u64::MAX, every: 0.0 },
            Arrivals::ClosedLoop { .. }
            | Arrivals::PacedUsers { .. }
            | Arrivals::Sessions { .. }
            | Arrivals::Trace(_) => return None,
        };
        let stream = Stream::new(seed, Purpose::Arrivals);
        Some(Clock { pace, stream, at: Picoseconds::ZERO, drawn: 0 })
    }

    /// The next arrival time. Random processes start with a gap, the others at 0.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Picoseconds {
        let drawn = self.drawn;
        self.drawn += 1;
        self.at = match &mut self.pace {
            Pace::Poisson { mean, gaps } => {
                let stream = &mut self.stream;
                self.at + gaps.next(|| stream.exponentials().map(|draw| gap(*mean * draw)))
            }
            Pace::Gamma { mean, shape } => self.at + gap(*mean * self.stream.gamma(*shape)),
            Pace::Constant { rate } => Picoseconds::from_seconds(drawn as f64 / *rate),
            Pace::Burst { size, every } => Picoseconds::from_seconds((drawn / *size) as f64 * *every),
            Pace::Profile { profile, sum } => {
                *sum += self.stream.exponential();
                Picoseconds::from_seconds(profile.time_s(*sum))
            }
            Pace::Series { series, sum } => {
                *sum += self.stream.exponential();
                Picoseconds::from_seconds(series.time_s(*sum))
            }
        };
        self.at
    }
}

/// A gap of `seconds`, rounded by adding one half: `round` would be a function call on plain x86-64.
fn gap(seconds: f64) -> Picoseconds {
    Picoseconds((seconds * 1e12 + 0.5) as u64)
}

#[cfg(test)]
mod tests;
