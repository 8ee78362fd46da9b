//! Users of a closed loop: each waits for an answer, thinks, and sends the next request.

use super::random::{Purpose, Stream};
use roofcast_facts::units::Picoseconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Seconds from a request's last step until the user's next request is at the server: the last events of the stream,
/// the client, and its next POST. An aiohttp client takes 0.3 to 2 ms; `bench` against `emulate` on one machine takes
/// 0.1 ms from a request's end to the sending of the next. Even a microsecond makes a request miss the step that begins
/// when the user's last step ends.
pub const TURN_ROUND: f64 = 1e-3;

/// Times at which users send, in order of time and, for equal times, of users.
#[derive(Debug, Clone)]
pub(super) struct Users {
    /// Send times. A user is in the heap at most once, so the order is total.
    due: BinaryHeap<Reverse<(Picoseconds, u32)>>,
    think: Think,
    turn_round: Picoseconds,
}

impl Users {
    /// `count` users who begin one after another, evenly distributed over `ramp`.
    pub(super) fn new(count: u64, think: Think, ramp: Picoseconds, turn_round: Option<f64>) -> Users {
        let begins =
            |user: u32| Picoseconds((u128::from(ramp.0) * u128::from(user) / u128::from(count)) as u64);
        let due = (0..count as u32).map(|user| Reverse((begins(user), user))).collect();
        Users { due, think, turn_round: Picoseconds::from_seconds(turn_round.unwrap_or(TURN_ROUND)) }
    }

    pub(super) fn without_turn_round(self) -> Users {
        Users { turn_round: Picoseconds::ZERO, ..self }
    }

    pub(super) fn peek(&self) -> Option<Picoseconds> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn next(&mut self) -> Option<(Picoseconds, u32)> {
        self.due.pop().map(|Reverse(next)| next)
    }

    pub(super) fn answered(&mut self, user: u32, at: Picoseconds) {
        let at = at + self.turn_round + self.think.draw();
        self.due.push(Reverse((at, user)));
    }
}

/// The client's bound on requests in flight, and the times at which slots became free.
#[derive(Debug, Clone)]
pub(super) struct Cap {
    /// Number of slots that were never used.
    unused: u64,
    /// Time from an answer until another request is at the server.
    turn_round: Picoseconds,
    /// Times from which further requests may use a slot that an answer has freed.
    free: BinaryHeap<Reverse<Picoseconds>>,
}

impl Cap {
    pub(super) fn new(most: u64) -> Cap {
        Cap { unused: most, turn_round: Picoseconds::from_seconds(TURN_ROUND), free: BinaryHeap::new() }
    }

    pub(super) fn without_turn_round(self) -> Cap {
        Cap { turn_round: Picoseconds::ZERO, ..self }
    }

    /// Send time of a request that is due at `due`; `None` if it must wait for an answer.
    pub(super) fn sends(&self, due: Picoseconds) -> Option<Picoseconds> {
        if self.unused > 0 {
            return Some(due);
        }
        self.free.peek().map(|Reverse(at)| due.max(*at))
    }

    /// Counts a request that was sent.
    pub(super) fn sent(&mut self) {
        match self.unused.checked_sub(1) {
            Some(left) => self.unused = left,
            None => drop(self.free.pop()),
        }
    }

    /// Counts a request that was answered at `at`.
    pub(super) fn answered(&mut self, at: Picoseconds) {
        self.free.push(Reverse(at + self.turn_round));
    }
}

/// Exponential think times.
#[derive(Debug, Clone)]
pub(super) struct Think {
    mean: f64,
    stream: Stream,
}

impl Think {
    pub(super) fn new(mean: Option<f64>, seed: u64) -> Think {
        Think { mean: mean.unwrap_or(0.0), stream: Stream::new(seed, Purpose::Think) }
    }

    pub(super) fn draw(&mut self) -> Picoseconds {
        if self.mean == 0.0 {
            return Picoseconds::ZERO;
        }
        Picoseconds::from_seconds(self.mean * self.stream.exponential())
    }
}
