//! The earliest of many times, one for each index, as in a knockout tournament.
//!
//! Knows: a change of one time costs a comparison per round, up to the round whose winner stays. Knows nothing about the meaning of times.

/// Times by index.
#[derive(Debug, Clone)]
pub(super) struct Earliest<T> {
    /// Winners of all matches: the tournament's at 1, winners of the two matches before node n at 2 n and 2 n + 1, and
    /// the times of the indices in the second half.
    winners: Vec<Option<(T, usize)>>,
}

impl<T: Copy + Ord> Earliest<T> {
    /// No times, for `count` indices.
    pub(super) fn new(count: usize) -> Earliest<T> {
        Earliest { winners: vec![None; 2 * count.next_power_of_two()] }
    }

    /// Sets the time of an index.
    pub(super) fn set(&mut self, index: usize, time: Option<T>) {
        let mut at = self.winners.len() / 2 + index;
        self.winners[at] = time.map(|time| (time, index));
        while at > 1 {
            at /= 2;
            let winner = earlier(self.winners[2 * at], self.winners[2 * at + 1]);
            // Later rounds depend on this one alone.
            if self.winners[at] == winner {
                break;
            }
            self.winners[at] = winner;
        }
    }

    /// The earliest time and its index; the smallest index if times are equal.
    pub(super) fn first(&self) -> Option<(T, usize)> {
        self.winners[1]
    }

    /// The earliest time of all other indices.
    pub(super) fn first_besides(&self, index: usize) -> Option<T> {
        let mut at = self.winners.len() / 2 + index;
        let mut first = None;
        while at > 1 {
            first = earlier(first, self.winners[at ^ 1]);
            at /= 2;
        }
        first.map(|(time, _)| time)
    }
}

fn earlier<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times 5, 3, none, 3, 7: index 1 is first, and 3 is also the earliest time besides index 1; when indices 1 and 3
    /// have no time, index 0 is first.
    #[test]
    fn the_smallest_index_of_equal_times_is_first() {
        let mut times = Earliest::new(5);
        assert_eq!(times.first(), None);
        for (index, time) in [(0, 5), (1, 3), (3, 3), (4, 7)] {
            times.set(index, Some(time));
        }
        assert_eq!((times.first(), times.first_besides(1)), (Some((3, 1)), Some(3)));
        times.set(1, None);
        assert_eq!((times.first(), times.first_besides(3)), (Some((3, 3)), Some(5)));
        times.set(3, None);
        assert_eq!((times.first(), times.first_besides(0)), (Some((5, 0)), Some(7)));
        let mut alone = Earliest::new(1);
        alone.set(0, Some(1));
        assert_eq!((alone.first(), alone.first_besides(0)), (Some((1, 0)), None));
    }
}
