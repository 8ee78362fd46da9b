//! Users of a closed loop: each waits for an answer, thinks, and sends the next request.

use super::random::{Purpose, Stream};
use crate::units::Picoseconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times at which users send, in order of time and then of users.
#[derive(Debug, Clone)]
pub(super) struct Users {
    /// Send times; a user is in the heap at most once, so the order is total.
    due: BinaryHeap<Reverse<(Picoseconds, u32)>>,
    think: Think,
}

impl Users {
    /// `count` users who begin one after another, evenly over `ramp`.
    pub(super) fn new(count: u64, think: Think, ramp: Picoseconds) -> Users {
        let begins =
            |user: u32| Picoseconds((u128::from(ramp.0) * u128::from(user) / u128::from(count)) as u64);
        let due = (0..count as u32).map(|user| Reverse((begins(user), user))).collect();
        Users { due, think }
    }

    pub(super) fn peek(&self) -> Option<Picoseconds> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn next(&mut self) -> Option<(Picoseconds, u32)> {
        self.due.pop().map(|Reverse(next)| next)
    }

    pub(super) fn answered(&mut self, user: u32, at: Picoseconds) {
        let at = at + self.think.draw();
        self.due.push(Reverse((at, user)));
    }
}

/// The client's bound on requests in flight, and the times at which slots became free.
#[derive(Debug, Clone)]
pub(super) struct Cap {
    /// Slots that were never used.
    unused: u64,
    /// Times of the answers that freed slots.
    free: BinaryHeap<Reverse<Picoseconds>>,
}

impl Cap {
    pub(super) fn new(most: u64) -> Cap {
        Cap { unused: most, free: BinaryHeap::new() }
    }

    /// Send time of a request that is due at `due`; `None` until an answer comes.
    pub(super) fn sends(&self, due: Picoseconds) -> Option<Picoseconds> {
        if self.unused > 0 {
            return Some(due);
        }
        self.free.peek().map(|Reverse(at)| due.max(*at))
    }

    /// Counts one request more in flight.
    pub(super) fn sent(&mut self) {
        match self.unused.checked_sub(1) {
            Some(left) => self.unused = left,
            None => drop(self.free.pop()),
        }
    }

    /// Counts one request less in flight since `at`.
    pub(super) fn answered(&mut self, at: Picoseconds) {
        self.free.push(Reverse(at));
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
