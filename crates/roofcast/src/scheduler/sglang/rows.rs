//! The running batch: requests that decode together, in order, by two counters.
//!
//! Knows: a decode gives every row a token, and its result one later; a row is kept as what the counters were when it
//! joined, so that nothing is touched per row and step. Rows that are to finish wait in a queue by the result that ends
//! them. Knows nothing about memory or admission.

use super::RequestId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How near to a whole number a sum of tokens by a ratio is compared exactly: far more than rounding can move it.
const NEARLY_WHOLE: f64 = 1e-3;
/// Rows that are taken out of the order one by one; beyond, in one pass over all.
const FEW: usize = 8;

/// The batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    /// In the batch's order, with those that finished since the last decision.
    order: Vec<RequestId>,
    /// The places of those.
    gone: Vec<i64>,
    /// Whether the results under way are in the order of before.
    reordered: bool,
    /// Results of decodes so far.
    pub(super) results: u64,
    members: Vec<Member>,
    /// Which rows end with which result: at their bound, and before it.
    ends: [BinaryHeap<Reverse<(u64, RequestId, u64)>>; 2],
    /// Places in the order given so far, before and behind.
    first: i64,
    last: i64,
    /// Stays so far.
    stays: u64,
    /// Rows whose bounds are counted by the ratio, and those whose bounds are counted whole; how many others there are; and
    /// the results from which on every row's first is there.
    counted: [Counted; 2],
    others: u64,
    settled: u64,
}

/// Rows, and the sum over them of what was left of their bounds and the results then.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    rows: u64,
    left: u64,
}

/// What is left of a row's bound, and whether estimates count all of it or a share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) tokens: u64,
    pub(super) whole: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    /// Place in the order, and in that of the batch whose results are under way.
    place: i64,
    former: i64,
    /// The counters when it joined.
    results: u64,
    decodes: u64,
    /// Tells this stay from others; 0 where it is not in.
    stay: u64,
    /// What was left of its bound, and the results then; none where less than that is counted.
    left: Option<Left>,
}

impl Running {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many; only between the start of a decision and its end.
    pub(super) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    /// In order.
    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.order.iter().copied()
    }

    /// Place of a row, or of one that just left.
    pub(super) fn place(&self, id: RequestId) -> i64 {
        self.members[id].place
    }

    /// Puts requests in the order of the batch whose results are there.
    pub(super) fn sort_results(&mut self, ids: &mut [RequestId]) {
        let (members, reordered) = (&self.members, std::mem::take(&mut self.reordered));
        ids.sort_by_key(|id| if reordered { members[*id].former } else { members[*id].place });
    }

    /// Tokens generated of a row that had `at_start`.
    pub(super) fn generated(&self, id: RequestId, at_start: u64) -> u64 {
        at_start + self.results.saturating_sub(self.members[id].results)
    }

    /// Tokens in the cache of a row that had `at_start`, after `decodes`.
    pub(super) fn tokens(&self, id: RequestId, at_start: u64, decodes: u64) -> u64 {
        at_start + decodes - self.members[id].decodes
    }

    /// The sum over all rows of what is left of their bounds, times `ratio` where they are not counted whole. None where
    /// rows have to be added up one by one: the sum is compared with whole numbers, so that the last bits, which depend on
    /// the order, decide nothing unless it is nearly whole itself.
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

    /// A row that joined before its first result was there has it now.
    pub(super) fn sampled(&mut self, id: RequestId) {
        if let Some(left) = &mut self.members[id].left {
            left.tokens -= 1;
            self.counted[usize::from(left.whole)].left -= 1;
        }
    }

    /// A row joins, behind all others or as number `at`; `tick` says that the result of a decode without it is to come.
    /// `left` is what is left of its bound, where estimates count no less.
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
                // Places of those that join in front are given from a block of their own.
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

    /// A row that has `generated` tokens now is to finish at `output` of at most `bound`.
    pub(super) fn will_end(&mut self, id: RequestId, generated: u64, output: u64, bound: u64) {
        let member = self.members[id];
        let end = member.results + (output - generated);
        self.ends[usize::from(output < bound)].push(Reverse((end, id, member.stay)));
    }

    /// Rows that reach their bound with result `result`, taken out of the queue, in no order.
    pub(super) fn reaching_bound(&mut self, result: u64) -> Vec<RequestId> {
        let mut ids = Vec::new();
        while let Some(id) = self.due(0, result) {
            ids.push(id);
        }
        ids
    }

    /// Rows that end with the results so far, taken out of the queue, in no order.
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

    /// The results that end the next row by its bound, and before it.
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

    /// A row stops; it stays in the order until [`Running::drop_gone`].
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

    /// Takes rows that stopped out of the order; whether there were any.
    pub(super) fn drop_gone(&mut self) -> bool {
        let (members, any) = (&self.members, !self.gone.is_empty());
        if self.gone.len() > FEW {
            self.order.retain(|id| members[*id].stay > 0);
            self.gone.clear();
        }
        // Places rise in the order.
        for place in self.gone.drain(..) {
            if let Ok(at) = self.order.binary_search_by_key(&place, |id| members[*id].place) {
                self.order.remove(at);
            }
        }
        any
    }

    /// Puts the rows into another order; `late` says that results in the former one are under way.
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

    /// 300 and 501 tokens at a ratio of 0.3 and 40 whole ones are 280.3; after ten results 0.3 · 781 + 30 = 264.3.
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
        // 0.3 · (501 − 10) + 30 = 177.3; then 30 whole ones alone.
        running.stop(0);
        assert!(near(running.promised(0.3), 177.3));
        running.stop(1);
        assert_eq!(running.promised(0.3), Some(30.0));
        // 0.5 · 100 is whole, and so the last bits of a sum row by row count; so it is where a row is counted with less.
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
