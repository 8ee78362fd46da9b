//! The running batch: requests that decode together, in order, described by two counters.
//!
//! Knows: a decode gives every row a token, and the result comes one step later. A row is stored as the counters at its
//! start, so that no row is changed in a step. Rows that will finish wait in a heap, ordered by the result that ends
//! them. Knows nothing about memory or admission.

use super::RequestId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Distance from a whole number below which the product of a sum of tokens and a ratio is compared exactly; rounding
/// errors are far smaller.
const NEARLY_WHOLE: f64 = 1e-3;
/// Most rows that are removed from the order singly; more are removed in one pass.
const FEW: usize = 8;

/// The running batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    /// Rows in the order of the batch, including rows that finished since the last decision.
    order: Vec<RequestId>,
    /// Places of the finished rows in the order.
    gone: Vec<i64>,
    /// True if the results in flight follow the order before the last reordering.
    reordered: bool,
    /// Number of decodes whose results have arrived.
    pub(super) results: u64,
    members: Vec<Member>,
    /// Rows by the result that ends them: rows that reach their bound, and rows that end before it.
    ends: [BinaryHeap<Reverse<(u64, RequestId, u64)>>; 2],
    /// Next free places before the first and after the last row of the order.
    first: i64,
    last: i64,
    /// Number of times that a row has joined the batch.
    stays: u64,
    /// Rows whose bounds estimates multiply by the ratio, and rows whose bounds estimates count whole.
    counted: [Counted; 2],
    others: u64,
    settled: u64,
}

/// A number of rows, and the sum over these rows of remaining bound plus results at the row's start.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    rows: u64,
    left: u64,
}

/// Remaining bound of a row in tokens, and true if estimates count the whole bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) tokens: u64,
    pub(super) whole: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    /// Place in the order, and place in the order of the batch whose results are in flight.
    place: i64,
    former: i64,
    /// Values of the batch's counters at the row's start.
    results: u64,
    decodes: u64,
    /// Number of the row's current stay in the batch; 0 if the request is not running.
    stay: u64,
    /// Remaining bound at the row's start; `None` if estimates count less than the whole remaining bound.
    left: Option<Left>,
}

impl Running {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Number of rows; valid only during a decision.
    pub(super) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    /// Rows in the order of the batch.
    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.order.iter().copied()
    }

    /// Place of a row, or of a row that just left.
    pub(super) fn place(&self, id: RequestId) -> i64 {
        self.members[id].place
    }

    /// Sorts requests into the order of the batch whose results have arrived.
    pub(super) fn sort_results(&mut self, ids: &mut [RequestId]) {
        let members = &self.members;
        let reordered = std::mem::take(&mut self.reordered);
        ids.sort_by_key(|id| if reordered { members[*id].former } else { members[*id].place });
    }

    /// Number of tokens that a row has generated, if it had generated `at_start` when it joined.
    pub(super) fn generated(&self, id: RequestId, at_start: u64) -> u64 {
        at_start + self.results.saturating_sub(self.members[id].results)
    }

    /// Number of cached tokens of a row after `decodes` decodes, if it had `at_start` when it joined.
    pub(super) fn tokens(&self, id: RequestId, at_start: u64, decodes: u64) -> u64 {
        at_start + decodes - self.members[id].decodes
    }

    /// Sum of the remaining bounds of all rows, each times `ratio` unless it is counted whole. `None` if rows must be
    /// added singly: the sum is compared with whole numbers, so its last bits, which depend on the order of addition,
    /// matter only if it is nearly whole.
    pub(super) fn promised(&self, ratio: f64) -> Option<f64> {
        if self.others > 0 || self.results < self.settled {
            return None;
        }
        let [share, whole] = self.counted.map(|c| c.left - c.rows * self.results);
        if self.counted[0].rows == 0 {
            return Some(whole as f64);
        }
        let sum = whole as f64 + share as f64 * ratio;
        ((sum - sum.round()).abs() > NEARLY_WHOLE).then_some(sum)
    }

    /// Records the first result of a row that joined the batch before that result.
    pub(super) fn sampled(&mut self, id: RequestId) {
        if let Some(left) = &mut self.members[id].left {
            left.tokens -= 1;
            self.counted[usize::from(left.whole)].left -= 1;
        }
    }

    /// Adds a row, as the last one or as number `at`. `tick` is true if the result of a decode without this row is in
    /// flight. `left` is the row's remaining bound; `None` if estimates count less.
    pub(super) fn join(
        &mut self,
        id: RequestId,
        at: Option<usize>,
        tick: bool,
        decodes: u64,
        left: Option<Left>,
    ) {
        if self.members.len() <= id {
            self.members.resize(id + 1, Member::default());
        }
        self.stays += 1;
        let place = match at {
            None => {
                self.order.push(id);
                self.last += 1;
                self.last
            }
            Some(at) => {
                self.order.insert(at, id);
                // Rows that join in front get places from a separate range.
                if at == 0 {
                    self.first -= 1 << 32;
                }
                self.first + at as i64
            }
        };
        let results = self.results + u64::from(tick);
        let left = left.map(|left| Left { tokens: left.tokens + results, ..left });
        self.settled = self.settled.max(results);
        match left {
            Some(left) => {
                let counted = &mut self.counted[usize::from(left.whole)];
                (counted.rows, counted.left) = (counted.rows + 1, counted.left + left.tokens);
            }
            None => self.others += 1,
        }
        self.members[id] = Member { place, former: place, results, decodes, stay: self.stays, left };
    }

    /// Sets the end of a row that has generated `generated` tokens: it ends at `output` tokens, of at most `bound`.
    pub(super) fn will_end(&mut self, id: RequestId, generated: u64, output: u64, bound: u64) {
        let member = self.members[id];
        let end = member.results + (output - generated);
        self.ends[usize::from(output < bound)].push(Reverse((end, id, member.stay)));
    }

    /// Removes the rows that reach their bound with result number `result` from the heap of ends; returns them in
    /// arbitrary order.
    pub(super) fn reaching_bound(&mut self, result: u64) -> Vec<RequestId> {
        let mut ids = Vec::new();
        while let Some(id) = self.due(0, result) {
            ids.push(id);
        }
        ids
    }

    /// Removes the rows that end with the results so far from the heap of ends; returns them in arbitrary order.
    pub(super) fn ended(&mut self) -> Vec<RequestId> {
        let mut ids = self.reaching_bound(self.results);
        while let Some(id) = self.due(1, self.results) {
            ids.push(id);
        }
        ids
    }

    fn due(&mut self, kind: usize, result: u64) -> Option<RequestId> {
        while let Some(&Reverse((end, id, stay))) = self.ends[kind].peek() {
            let here = self.members[id].stay == stay;
            if here && end > result {
                return None;
            }
            self.ends[kind].pop();
            if here {
                return Some(id);
            }
        }
        None
    }

    /// Numbers of the results that end the next row at its bound, and the next row before its bound.
    pub(super) fn next_ends(&mut self) -> [Option<u64>; 2] {
        [0, 1].map(|kind| {
            while let Some(&Reverse((end, id, stay))) = self.ends[kind].peek() {
                if self.members[id].stay == stay {
                    return Some(end);
                }
                self.ends[kind].pop();
            }
            None
        })
    }

    /// Stops a row; it remains in the order until [`Running::drop_gone`].
    pub(super) fn stop(&mut self, id: RequestId) {
        let member = &mut self.members[id];
        member.stay = 0;
        match member.left {
            Some(left) => {
                let counted = &mut self.counted[usize::from(left.whole)];
                (counted.rows, counted.left) = (counted.rows - 1, counted.left - left.tokens);
            }
            None => self.others -= 1,
        }
        self.gone.push(member.place);
    }

    /// Removes stopped rows from the order; returns true if there were any.
    pub(super) fn drop_gone(&mut self) -> bool {
        let members = &self.members;
        let any = !self.gone.is_empty();
        if self.gone.len() > FEW {
            self.order.retain(|id| members[*id].stay > 0);
            self.gone.clear();
        }
        // Places increase along the order.
        for place in self.gone.drain(..) {
            if let Ok(at) = self.order.binary_search_by_key(&place, |id| members[*id].place) {
                self.order.remove(at);
            }
        }
        any
    }

    /// Reorders the rows; `late` is true if results in the former order are in flight.
    pub(super) fn reorder(&mut self, order: Vec<RequestId>, late: bool) {
        for id in &order {
            self.last += 1;
            let member = &mut self.members[*id];
            (member.former, member.place) = (member.place, self.last);
        }
        self.reordered = late;
        self.order = order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(running: &mut Running, id: RequestId, tokens: u64, whole: bool) {
        running.join(id, None, false, 0, Some(Left { tokens, whole }));
    }

    /// 300 and 501 tokens at a ratio of 0.3 and 40 tokens counted whole are 280.3; after ten results 0.3 · 781 + 30 =
    /// 264.3.
    #[test]
    fn what_rows_are_promised_is_a_sum() {
        let mut running = Running::default();
        row(&mut running, 0, 300, false);
        row(&mut running, 1, 501, false);
        row(&mut running, 2, 40, true);
        let near = |found: Option<f64>, sum: f64| found.is_some_and(|found| (found - sum).abs() < 1e-9);
        assert!(near(running.promised(0.3), 280.3));
        running.results = 10;
        assert!(near(running.promised(0.3), 264.3));
        // 0.3 · (501 − 10) + 30 = 177.3; then only the 30 that are counted whole.
        running.stop(0);
        assert!(near(running.promised(0.3), 177.3));
        running.stop(1);
        assert_eq!(running.promised(0.3), Some(30.0));
        // 0.5 · 100 is a whole number, so that the last bits of a row-by-row sum matter, as they do if a row is counted
        // with less.
        row(&mut running, 3, 100, false);
        assert_eq!(running.promised(0.5), None);
        running.join(4, None, false, 0, None);
        assert_eq!(running.promised(0.3), None);
    }

    #[test]
    fn rows_that_stopped_leave_the_order_one_by_one_or_at_once() {
        for stopped in [vec![3], vec![0, 19, 7], (0..20).step_by(2).collect::<Vec<_>>()] {
            let mut running = Running::default();
            (0..20).for_each(|id| row(&mut running, id, 9, false));
            assert!(!running.drop_gone());
            stopped.iter().for_each(|id| running.stop(*id));
            assert!(running.drop_gone() && !running.drop_gone());
            let left: Vec<RequestId> = (0..20).filter(|id| !stopped.contains(id)).collect();
            assert_eq!(running.ids().collect::<Vec<_>>(), left);
        }
    }
}
