//! The choice of a data-parallel rank for each request of a replica.
//!
//! Knows: the rules of [`Balance`]. vLLM's server gives a request to the first rank with the smallest 4 × waiting +
//! running requests and counts it there as waiting; a coordinator replaces the counts every 100 ms by those that the
//! ranks reported after their last step (vLLM 0.33, `v1/engine/core_client.py`, `DPLBAsyncMPClient`, and
//! `v1/engine/coordinator.py`). Knows nothing about the caches of the ranks, and nothing about further API servers,
//! each of which counts for itself.

use crate::scheduler::config::Balance;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;

/// Time between two reports of the coordinator: 100 ms.
const REPORTED: Picoseconds = Picoseconds(100_000_000_000);
/// Weight of a waiting request relative to a running one.
const WAITING: u64 = 4;

/// Number of waiting and of running requests of a rank.
pub(super) type Counts = [u64; 2];

/// Balancer of one replica.
#[derive(Debug, Clone)]
pub(super) struct Balancer {
    balance: Balance,
    /// Rank of the next request in turn.
    turn: usize,
    /// Counts of each rank as the server knows them.
    known: Vec<Counts>,
    /// Time of the next report.
    next: Ticks,
}

impl Balancer {
    /// A balancer over `ranks` idle ranks.
    pub(super) fn new(balance: Balance, ranks: usize) -> Balancer {
        Balancer { balance, turn: 0, known: vec![[0; 2]; ranks], next: Ticks::ZERO }
    }

    /// Resets the counts and the turn: all ranks are idle.
    pub(super) fn restart(&mut self) {
        (self.turn, self.next) = (0, Ticks::ZERO);
        self.known.fill([0; 2]);
    }

    /// Chooses the rank of a request that arrives at time `at`; `reported` are the counts that the ranks reported last.
    pub(super) fn choose(&mut self, at: Ticks, reported: &[Counts]) -> usize {
        if self.balance == Balance::Score && at >= self.next {
            self.known.copy_from_slice(reported);
            let period = Ticks::from(REPORTED);
            self.next = Ticks((at / period + 1) * period.0);
        }
        let rank = self.preferred();
        self.turn = (rank + 1) % self.known.len();
        self.known[rank][0] += 1;
        rank
    }

    /// The rank that a request would get before the next report.
    pub(super) fn preferred(&self) -> usize {
        let score = |rank: &usize| WAITING * self.known[*rank][0] + self.known[*rank][1];
        match self.balance {
            Balance::RoundRobin => self.turn,
            Balance::Score => (0..self.known.len()).min_by_key(score).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Ticks {
        Ticks::from(Picoseconds(ms * 1_000_000_000))
    }

    /// Two ranks report 1 waiting and 0 running, and 0 waiting and 6 running requests: scores 4 and 6. The first
    /// request makes it 8 and 6, the second 8 and 10, the third 12 and 10, the fourth 12 and 14. A report at 100 ms of
    /// 2 and 3 running requests gives scores of 2 and 3, whatever was counted before.
    #[test]
    fn four_requests_on_two_ranks_by_score() {
        let mut balancer = Balancer::new(Balance::Score, 2);
        let reported = [[1, 0], [0, 6]];
        let chosen = [0, 20, 40, 60].map(|at| balancer.choose(ms(at), &reported));
        assert_eq!(chosen, [0, 1, 0, 1]);
        assert_eq!(balancer.choose(ms(99), &[[9, 9], [0, 0]]), 0);
        assert_eq!([100, 101].map(|at| balancer.choose(ms(at), &[[0, 2], [0, 3]])), [0, 1]);
    }

    /// Without differences the first rank is chosen, and ranks in turn ignore the counts.
    #[test]
    fn requests_go_to_ranks_in_turn() {
        let mut equal = Balancer::new(Balance::Score, 3);
        assert_eq!([0; 4].map(|at| equal.choose(ms(at), &[[0, 0]; 3])), [0, 1, 2, 0]);
        let mut turns = Balancer::new(Balance::RoundRobin, 3);
        assert_eq!(
            [0, 200, 400, 600].map(|at| turns.choose(ms(at), &[[9, 9], [0, 0], [1, 1]])),
            [0, 1, 2, 0]
        );
    }
}
