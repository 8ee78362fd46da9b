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
    /// Time from a user's request to the next, and the time of each user's last; `None` if answers alone set the pace.
    pace: Option<(Picoseconds, Vec<Picoseconds>)>,
    think: Think,
    turn_round: Picoseconds,
}

impl Users {
    /// `count` users who begin one after another, evenly distributed over `ramp`.
    pub(super) fn new(count: u64, think: Think, ramp: Picoseconds, turn_round: Option<f64>) -> Users {
        let begins =
            |user: u32| Picoseconds((u128::from(ramp.0) * u128::from(user) / u128::from(count)) as u64);
        let due = (0..count as u32).map(|user| Reverse((begins(user), user))).collect();
        let turn_round = Picoseconds::from_seconds(turn_round.unwrap_or(TURN_ROUND));
        Users { due, pace: None, think, turn_round }
    }

    /// `count` users who each send every `every`, and begin one after another within the first.
    pub(super) fn paced(count: u64, every: Picoseconds, seed: u64) -> Users {
        let users = Users::new(count, Think::new(None, seed), every, None);
        Users { pace: Some((every, vec![Picoseconds::ZERO; count as usize])), ..users }
    }

    pub(super) fn without_turn_round(self) -> Users {
        Users { turn_round: Picoseconds::ZERO, ..self }
    }

    pub(super) fn peek(&self) -> Option<Picoseconds> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn next(&mut self) -> Option<(Picoseconds, u32)> {
        let Reverse((at, user)) = self.due.pop()?;
        if let Some(last) = self.pace.as_mut().and_then(|(_, last)| last.get_mut(user as usize)) {
            *last = at;
        }
        Some((at, user))
    }

    pub(super) fn answered(&mut self, user: u32, at: Picoseconds) {
        let answered = at + self.turn_round + self.think.draw();
        let due = self.pace.as_ref().and_then(|(every, last)| Some(*last.get(user as usize)? + *every));
        let at = due.map_or(answered, |due| due.max(answered));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Picoseconds {
        Picoseconds::from_seconds(seconds)
    }

    /// Two users send every 10 s, from 0 and 5 s on. The first is answered after 3 s and sends again at 10 s; the second is answered
    /// after 12 s, at 17 s, and sends a turn-round later; then it is due 10 s after that.
    #[test]
    fn users_keep_their_own_pace() {
        let mut users = Users::paced(2, s(10.0), 1);
        assert_eq!((users.next(), users.next()), (Some((s(0.0), 0)), Some((s(5.0), 1))));
        users.answered(0, s(3.0));
        assert_eq!(users.next(), Some((s(10.0), 0)));
        users.answered(1, s(17.0));
        let late = s(17.0) + s(TURN_ROUND);
        assert_eq!(users.next(), Some((late, 1)));
        users.answered(1, s(18.0));
        assert_eq!(users.next(), Some((late + s(10.0), 1)));
    }
}
