//! The requests of a workload, one after another.
//!
//! Knows: what each request is and when it is due, drawn as it is asked for. An open loop takes constant memory,
//! a closed one a word per user. Knows nothing about how requests are served: it is told when an answer is there.

use super::arrivals::{Arrivals, Clock};
use super::length::Sampler;
use super::random::{Purpose, Stream};
use super::{DEFAULT_REQUESTS, Workload};
use crate::error::Result;
use crate::kv_cache::prefix::Run;
use crate::units::Picoseconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One request as the workload offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// When it is due.
    pub at: Picoseconds,
    /// Prompt tokens, at least 1.
    pub input_len: u32,
    /// Tokens to generate, at least 1.
    pub output_len: u32,
    /// Smaller goes first.
    pub priority: i32,
    /// In a closed loop its user, in a conversation its session, else 0.
    pub user: u32,
    /// What its tokens are.
    pub prompt: Prompt,
}

/// What a prompt's tokens are, as far as prefix caches care: a token is a segment and a position in it. Traffic numbers
/// its segments from 0; those from [`Traffic::OWN_SEGMENTS`] on are left to whoever serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// No other request has any of them.
    Own,
    /// The first are shared, the rest are its own.
    Shared {
        /// Whose they are.
        segment: u32,
        /// How many.
        length: u32,
    },
    /// All of them, run by run.
    Runs(Box<[Run]>),
}

/// A workload being offered.
#[derive(Debug, Clone)]
pub struct Traffic {
    source: Source,
    draws: Draws,
    total: u64,
    left: u64,
}

#[derive(Debug, Clone)]
enum Source {
    /// Times that nothing changes; the next one is drawn ahead.
    Open { clock: Clock, due: Picoseconds },
    /// Users who wait for their answers.
    Closed(Users),
}

#[derive(Debug, Clone)]
struct Users {
    /// When who sends next; a user stands here once at most, so the order is total.
    due: BinaryHeap<Reverse<(Picoseconds, u32)>>,
    /// Mean seconds between an answer and the next request.
    think: f64,
    stream: Stream,
}

/// Everything about a request but its time.
#[derive(Debug, Clone)]
struct Draws {
    input: Sampler,
    output: Sampler,
    input_stream: Stream,
    output_stream: Stream,
}

impl Draws {
    fn request(&mut self, at: Picoseconds, user: u32) -> Request {
        Request {
            at,
            input_len: self.input.draw(&mut self.input_stream),
            output_len: self.output.draw(&mut self.output_stream),
            priority: 0,
            user,
            prompt: Prompt::Own,
        }
    }
}

impl Traffic {
    /// The first segment that traffic never uses.
    pub const OWN_SEGMENTS: u32 = 1 << 31;

    /// The traffic of a workload, from its first request; `place` names the workload's file in errors.
    pub fn new(workload: &Workload, place: &str) -> Result<Traffic> {
        workload.check(place)?;
        let seed = workload.seed;
        let total = workload.requests.unwrap_or(DEFAULT_REQUESTS);
        let source = match (Clock::new(&workload.arrivals, seed), &workload.arrivals) {
            (Some(mut clock), _) => Source::Open { due: clock.next(), clock },
            (None, Arrivals::ClosedLoop { concurrency, think_s }) => {
                Source::Closed(Users::new((*concurrency).min(total), think_s.unwrap_or(0.0), seed))
            }
            (None, _) => Source::Closed(Users::new(0, 0.0, seed)),
        };
        let draws = Draws {
            input: workload.input_len.sampler(),
            output: workload.output_len.sampler(),
            input_stream: Stream::new(seed, Purpose::Input),
            output_stream: Stream::new(seed, Purpose::Output),
        };
        Ok(Traffic { source, draws, total, left: total })
    }

    /// When the next request that is known is due. None at the end, and in a closed loop while every user waits.
    pub fn peek(&self) -> Option<Picoseconds> {
        if self.left == 0 {
            return None;
        }
        match &self.source {
            Source::Open { due, .. } => Some(*due),
            Source::Closed(users) => users.due.peek().map(|Reverse((at, _))| *at),
        }
    }

    /// Takes the next request: in order of time, and of users where times are equal.
    #[allow(clippy::should_implement_trait)] // an iterator's end would be final: a closed loop goes on after an answer
    pub fn next(&mut self) -> Option<Request> {
        self.left.checked_sub(1)?;
        let (at, user) = match &mut self.source {
            Source::Open { clock, due } => (std::mem::replace(due, clock.next()), 0),
            Source::Closed(users) => users.due.pop().map(|Reverse(next)| next)?,
        };
        self.left -= 1;
        Some(self.draws.request(at, user))
    }

    /// The user's answer is there, its tokens being `output_segment`; the user thinks and then sends the next request.
    pub fn completed(&mut self, user: u32, at: Picoseconds, output_segment: u32) {
        // Answers become part of prompts in conversations only.
        let _ = output_segment;
        if let Source::Closed(users) = &mut self.source {
            users.answered(user, at);
        }
    }

    /// Whether an answer may bring another request.
    pub fn is_closed(&self) -> bool {
        matches!(self.source, Source::Closed(_))
    }

    /// Whether prompts may have tokens in common.
    pub fn shares_prompts(&self) -> bool {
        false
    }

    /// How many requests there are in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many have not been taken yet.
    pub fn remaining(&self) -> u64 {
        self.left
    }
}

impl Users {
    fn new(count: u64, think: f64, seed: u64) -> Users {
        let due = (0..count as u32).map(|user| Reverse((Picoseconds::ZERO, user))).collect();
        Users { due, think, stream: Stream::new(seed, Purpose::Think) }
    }

    fn answered(&mut self, user: u32, at: Picoseconds) {
        let think = if self.think > 0.0 { self.think * self.stream.exponential() } else { 0.0 };
        self.due.push(Reverse((at + Picoseconds::from_seconds(think), user)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Length, LengthKind};

    fn workload(arrivals: Arrivals) -> Workload {
        Workload {
            requests: Some(20_000),
            seed: 1,
            arrivals,
            input_len: Length::Drawn(LengthKind::Lognormal { mu: 6.0, sigma: 0.5, min: None, max: None }),
            output_len: Length::Drawn(LengthKind::Uniform { min: 10, max: 20 }),
        }
    }

    fn all(workload: &Workload) -> Vec<Request> {
        let mut traffic = Traffic::new(workload, "test").unwrap();
        std::iter::from_fn(|| {
            let due = traffic.peek();
            let next = traffic.next();
            assert_eq!(due, next.as_ref().map(|r| r.at));
            next
        })
        .collect()
    }

    #[test]
    fn drawn_means_are_within_five_standard_errors() {
        let requests = all(&workload(Arrivals::Poisson { rate: 10.0 }));
        let n = requests.len() as f64;
        assert_eq!(n, 20_000.0);
        let mean = |f: fn(&Request) -> f64| requests.iter().map(f).sum::<f64>() / n;
        // The 20,000th arrival of rate 10 is gamma: mean 2000 s, deviation √20,000/10 = 14.1 s.
        assert!((requests[19_999].at.seconds() - 2000.0).abs() < 5.0 * 14.2);
        assert!(requests.is_sorted_by_key(|r| r.at));
        // exp(6 + ½·0.25) = 457.14; deviation 457.14 √(e^0.25 − 1) = 243.6, over √20,000 = 1.73.
        assert!((mean(|r| f64::from(r.input_len)) - 457.14).abs() < 5.0 * 1.73);
        // 10..=20: mean 15, deviation √(120/12) = 3.16, over √20,000 = 0.0224.
        assert!((mean(|r| f64::from(r.output_len)) - 15.0).abs() < 5.0 * 0.0224);
        assert!(requests.iter().all(|r| (10..=20).contains(&r.output_len)));
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced_without_drift() {
        let requests = all(&workload(Arrivals::Constant { rate: 3.0 }));
        assert_eq!(requests[0].at, Picoseconds(0));
        // 1/3 s = 333,333,333,333 ps; 3000/3 s = 1000 s exactly.
        assert_eq!(requests[1].at, Picoseconds(333_333_333_333));
        assert_eq!(requests[3000].at, Picoseconds(1_000_000_000_000_000));
    }

    #[test]
    fn a_closed_loop_sends_when_it_is_answered() {
        let three = workload(Arrivals::ClosedLoop { concurrency: 3, think_s: None });
        let mut traffic = Traffic::new(&Workload { requests: Some(5), ..three }, "test").unwrap();
        let users: Vec<_> = (0..3).filter_map(|_| traffic.next()).map(|r| (r.at.0, r.user)).collect();
        assert_eq!(users, [(0, 0), (0, 1), (0, 2)]);
        assert_eq!((traffic.peek(), traffic.next(), traffic.remaining()), (None, None, 2));
        traffic.completed(1, Picoseconds(70), 0);
        traffic.completed(0, Picoseconds(70), 0);
        assert_eq!(traffic.peek(), Some(Picoseconds(70)));
        assert_eq!(traffic.next().map(|r| r.user), Some(0));
        assert_eq!(traffic.next().map(|r| r.user), Some(1));
        traffic.completed(0, Picoseconds(99), 0);
        assert_eq!((traffic.peek(), traffic.next(), traffic.remaining()), (None, None, 0));
    }

    #[test]
    fn the_seed_decides_and_streams_do_not_touch() {
        let base = workload(Arrivals::Poisson { rate: 10.0 });
        assert_eq!(all(&base), all(&base));
        assert_ne!(all(&base), all(&Workload { seed: 2, ..base.clone() }));
        let other = all(&Workload { input_len: Length::Tokens(7), ..base.clone() });
        let kept = |r: &Request| (r.at, r.output_len);
        assert!(all(&base).iter().map(kept).eq(other.iter().map(kept)));
        let other = all(&Workload { arrivals: Arrivals::Constant { rate: 1.0 }, ..base.clone() });
        let kept = |r: &Request| (r.input_len, r.output_len);
        assert!(all(&base).iter().map(kept).eq(other.iter().map(kept)));
    }
}
