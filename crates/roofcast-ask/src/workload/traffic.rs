//! The requests of a workload, generated one after another.
//!
//! Knows: lengths, tokens and time of each request, which are drawn when the request is taken. An open loop needs
//! constant memory, a closed loop one word per user. Knows nothing about how requests are served: the caller reports
//! each answer.

use super::Workload;
use super::adapters;
use super::agents::{Agents, scaled};
use super::arrivals::{Arrivals, Clock};
use super::draws::Draws;
use super::request::Request;
use super::sessions::Sessions;
use super::trace::Trace;
use super::users::{Cap, Think, Users};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::units::Picoseconds;
use std::sync::Arc;

/// Generator of a workload's requests.
#[derive(Debug, Clone)]
pub struct Traffic {
    source: Source,
    draws: Draws,
    cap: Option<Cap>,
    /// True if an answer may cause another request.
    closed: bool,
    /// Time before which requests are additional to the run's requests.
    ramped: Picoseconds,
    total: u64,
    left: u64,
}

#[derive(Debug, Clone)]
enum Source {
    /// Times that do not depend on answers; the next time is drawn in advance.
    Open { clock: Clock, due: Picoseconds },
    /// Users, each of whom waits for an answer before the next request.
    Closed(Users),
    /// Conversations.
    Sessions(Box<Sessions>),
    /// Recorded times, from that of request `next` on.
    Recorded { trace: Arc<Trace>, next: usize, scale: f64 },
    /// Recorded sessions.
    Agents(Box<Agents>),
}

impl Traffic {
    /// The traffic of a workload, from its first request on; `place` names the workload's file in errors. The
    /// workload's files must be loaded.
    pub fn new(workload: &Workload, place: &str) -> Result<Traffic> {
        workload.check(place)?;
        if workload.images.is_some_and(|images| images.tokens.is_none()) {
            let accepted = "tokens, or a simulation, whose model gives the tokens of an image";
            return Err(Error::field(place, "workload.images", "of a width and height", accepted));
        }
        let missing =
            || Error::field(place, "workload", "not loaded", "a workload whose files have been read");
        let total = workload.total();
        let draws = Draws::new(workload).ok_or_else(missing)?;
        let source = Source::new(workload, total).ok_or_else(missing)?;
        let cap = workload.max_concurrency.map(Cap::new);
        let closed =
            cap.is_some() || matches!(source, Source::Closed(_) | Source::Sessions(_) | Source::Agents(_));
        let ramped = workload.arrivals.ramped();
        Ok(Traffic { source, draws, cap, closed, ramped, total, left: total })
    }

    /// Returns the traffic for a client that itself takes the time between an answer and the next request.
    #[must_use]
    pub fn without_turn_round(self) -> Traffic {
        let source = match self.source {
            Source::Closed(users) => Source::Closed(users.without_turn_round()),
            other => other,
        };
        Traffic { source, cap: self.cap.map(Cap::without_turn_round), ..self }
    }

    /// Send time of the next known request. `None` at the end, and while every user waits for an answer.
    #[inline]
    pub fn peek(&self) -> Option<Picoseconds> {
        match (&self.source, &self.cap) {
            _ if self.left == 0 => None,
            (Source::Open { due, .. }, None) => Some(*due),
            _ => self.sends(),
        }
    }

    fn sends(&self) -> Option<Picoseconds> {
        let due = self.due()?;
        self.cap.as_ref().map_or(Some(due), |cap| cap.sends(due))
    }

    fn due(&self) -> Option<Picoseconds> {
        match &self.source {
            Source::Open { due, .. } => Some(*due),
            Source::Closed(users) => users.peek(),
            Source::Sessions(sessions) => sessions.peek(),
            Source::Agents(agents) => agents.peek(),
            Source::Recorded { trace, next, scale } => {
                trace.requests.get(*next).map(|request| scaled(request.at, *scale))
            }
        }
    }

    /// Takes the next request in order of time; for equal times in order of users, or of the trace.
    #[allow(clippy::should_implement_trait)] // an iterator's end would be final: a closed loop goes on after an answer
    #[inline(always)]
    pub fn next(&mut self) -> Option<Request> {
        let sent = self.peek()?;
        if let Some(cap) = &mut self.cap {
            cap.sent();
        }
        let request = match &mut self.source {
            Source::Open { clock, due } => {
                let at = *due;
                // After the last request no time is drawn.
                if self.left > 1 {
                    *due = clock.next();
                }
                self.draws.request(at, 0)
            }
            Source::Closed(users) => {
                let (at, user) = users.next()?;
                self.draws.request(at, user)
            }
            Source::Sessions(sessions) => sessions.next(&mut self.draws)?,
            Source::Agents(agents) => agents.next()?,
            Source::Recorded { trace, next, scale } => {
                let recorded = trace.requests.get(*next)?;
                *next += 1;
                self.draws.request(scaled(recorded.at, *scale), recorded.user)
            }
        };
        self.left -= u64::from(sent >= self.ramped);
        Some(Request { at: sent, ..request })
    }

    /// Records an answer at `at`: the user thinks, and then sends the next request. In a conversation, the answer's
    /// tokens, `output_segment` from 0 on, become part of all later prompts.
    pub fn completed(&mut self, user: u32, at: Picoseconds, output_segment: u32) {
        match &mut self.source {
            Source::Closed(users) => users.answered(user, at),
            Source::Sessions(sessions) => sessions.answered(user, at, output_segment),
            Source::Agents(agents) => agents.answered(user, at, output_segment),
            Source::Open { .. } | Source::Recorded { .. } => {}
        }
        if let Some(cap) = &mut self.cap {
            cap.answered(at);
        }
    }

    /// Records that the user's request will not be answered: a user in a closed loop thinks and sends the next request,
    /// a conversation ends.
    pub fn refused(&mut self, user: u32, at: Picoseconds) {
        match &mut self.source {
            Source::Closed(users) => users.answered(user, at),
            Source::Sessions(sessions) => sessions.end(user, at),
            Source::Agents(agents) => agents.refused(user, at),
            Source::Open { .. } | Source::Recorded { .. } => {}
        }
        if let Some(cap) = &mut self.cap {
            cap.answered(at);
        }
    }

    /// True if an answer may cause another request.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if prompts may have tokens in common.
    pub fn shares_prompts(&self) -> bool {
        self.draws.shares_prefixes() || matches!(self.source, Source::Sessions(_) | Source::Agents(_))
    }

    /// Durations of ended recorded sessions, from first turn to last answer; empty for other traffic.
    pub fn tasks(&self) -> &[Picoseconds] {
        match &self.source {
            Source::Agents(agents) => &agents.tasks,
            _ => &[],
        }
    }

    /// Total number of requests.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of requests that have not been taken.
    pub fn remaining(&self) -> u64 {
        self.left
    }
}

impl Source {
    /// The source of a workload's arrivals; `None` if a file is not loaded.
    fn new(workload: &Workload, total: u64) -> Option<Source> {
        let seed = workload.seed;
        Some(match &workload.arrivals {
            closed @ Arrivals::ClosedLoop { concurrency, think_s, turn_round_s, .. } => {
                let think = Think::new(*think_s, seed);
                Source::Closed(Users::new((*concurrency).min(total), think, closed.ramped(), *turn_round_s))
            }
            Arrivals::PacedUsers { concurrency, every_s } => {
                let every = Picoseconds::from_seconds(*every_s);
                Source::Closed(Users::paced((*concurrency).min(total), every, seed))
            }
            Arrivals::Trace(replay) if replay.has_sessions() => {
                Source::Agents(Box::new(Agents::new(Arc::clone(replay.recorded.as_ref()?), replay, seed)))
            }
            Arrivals::Trace(replay) => Source::Recorded {
                trace: Arc::clone(replay.recorded.as_ref()?),
                next: 0,
                scale: replay.scale.unwrap_or(1.0),
            },
            sessions @ Arrivals::Sessions { .. } => {
                let prefixes = workload.prefix.map_or(0, |prefix| prefix.count);
                let prefixes =
                    prefixes * (1 + adapters::count(workload.adapters.as_ref(), &workload.classes));
                Source::Sessions(Box::new(Sessions::new(sessions, prefixes, total, seed)?))
            }
            open => {
                let mut clock = Clock::new(open, seed)?;
                Source::Open { due: clock.next(), clock }
            }
        })
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
            prefix: None,
            images: None,
            adapters: None,
            priorities: Vec::new(),
            classes: Vec::new(),
            max_tokens: None,
            max_concurrency: None,
            recorded: None,
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
        // The 20,000th arrival at rate 10 is gamma-distributed: mean 2000 s, standard deviation √20,000/10 = 14.1 s.
        assert!((requests[19_999].at.seconds() - 2000.0).abs() < 5.0 * 14.2);
        assert!(requests.is_sorted_by_key(|r| r.at));
        // exp(6 + ½·0.25) = 457.14; standard deviation 457.14 √(e^0.25 − 1) = 243.6, over √20,000 = 1.73.
        assert!((mean(|r| f64::from(r.input_len)) - 457.14).abs() < 5.0 * 1.73);
        // 10..=20: mean 15, standard deviation √(120/12) = 3.16, over √20,000 = 0.0224.
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
        let three = workload(Arrivals::ClosedLoop {
            concurrency: 3,
            think_s: None,
            ramp_s: None,
            turn_round_s: Some(0.0),
        });
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

    /// A user's next request is at the server a millisecond after the answer; 250 µs after it if the spec sets that; at
    /// once if the client itself takes the time.
    #[test]
    fn a_closed_loop_turns_round() {
        let next = |turn_round_s: Option<f64>, own: bool| {
            let one_user =
                workload(Arrivals::ClosedLoop { concurrency: 1, think_s: None, ramp_s: None, turn_round_s });
            let traffic = Traffic::new(&one_user, "test").unwrap();
            let mut traffic = if own { traffic.without_turn_round() } else { traffic };
            traffic.next();
            traffic.completed(0, Picoseconds(70), 0);
            traffic.peek()
        };
        assert_eq!(next(None, false), Some(Picoseconds(1_000_000_070)));
        assert_eq!(next(Some(250e-6), false), Some(Picoseconds(250_000_070)));
        assert_eq!(next(None, true), Some(Picoseconds(70)));
    }

    /// One request per second, at most two in flight: the third waits for the first answer; the fourth, due at 3 s, for
    /// the second.
    #[test]
    fn a_capped_client_sends_when_one_is_answered() {
        let base = workload(Arrivals::Constant { rate: 1.0 });
        let capped = Workload { requests: Some(5), max_concurrency: Some(2), ..base };
        let mut traffic = Traffic::new(&capped, "test").unwrap().without_turn_round();
        let second = |s: u64| Some(Picoseconds(s * 1_000_000_000_000));
        let mut sent = || traffic.next().map(|r| r.at);
        assert_eq!([sent(), sent(), sent()], [second(0), second(1), None]);
        traffic.completed(0, second(5).unwrap(), 0);
        assert_eq!(
            (traffic.peek(), traffic.next().map(|r| r.at), traffic.peek()),
            (second(5), second(5), None)
        );
        traffic.refused(0, second(6).unwrap());
        traffic.completed(0, second(7).unwrap(), 0);
        assert_eq!([traffic.next(), traffic.next()].map(|r| r.map(|r| r.at)), [second(6), second(7)]);
        assert_eq!((traffic.peek(), traffic.next(), traffic.remaining()), (None, None, 0));
        let users = Workload {
            arrivals: Arrivals::ClosedLoop {
                concurrency: 3,
                think_s: None,
                ramp_s: None,
                turn_round_s: None,
            },
            ..capped
        };
        assert!(Traffic::new(&users, "test").unwrap_err().to_string().contains("workload.max_concurrency"));
    }

    #[test]
    fn the_seed_decides_and_streams_do_not_touch() {
        let base = workload(Arrivals::Poisson { rate: 10.0 });
        assert_eq!(all(&base), all(&base));
        assert_ne!(all(&base), all(&Workload { seed: 2, ..base.clone() }));
        let other = all(&Workload { input_len: Length::Tokens(7), ..base.clone() });
        let arrivals_of = |r: &Request| (r.at, r.output_len);
        assert!(all(&base).iter().map(arrivals_of).eq(other.iter().map(arrivals_of)));
        let other = all(&Workload { arrivals: Arrivals::Constant { rate: 1.0 }, ..base.clone() });
        let lengths_of = |r: &Request| (r.input_len, r.output_len);
        assert!(all(&base).iter().map(lengths_of).eq(other.iter().map(lengths_of)));
    }
}
