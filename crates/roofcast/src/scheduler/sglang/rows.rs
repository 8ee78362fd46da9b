//! The running batch: requests that decode together, in order, by two counters.
//!
//! Knows: a decode gives every row a token, and its result one later; a row is kept as what the counters were when it
//! joined, so that nothing is touched per row and step. Rows that are to finish wait in a queue by the result that ends
//! them. Knows nothing about memory or admission.

use super::RequestId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    /// In the batch's order, with those that finished since the last decision.
    order: Vec<RequestId>,
    /// Whether there are any of those.
    gone: bool,
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
    /// How many rows there are; of those whose bound is counted whole, the sum of what was left of it and the results then;
    /// how many others there are; and the results from which on every row's first is there.
    rows: u64,
    left: u64,
    others: u64,
    settled: u64,
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
    /// What was left of its bound, and the results then, where that is counted whole.
    left: Option<u64>,
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

    /// Tokens left of the bounds of all rows, where they are counted whole.
    pub(super) fn left(&self) -> Option<u64> {
        let whole = self.others == 0 && self.results >= self.settled;
        whole.then(|| self.left - self.rows * self.results)
    }

    /// A row that joined before its first result was there has it now.
    pub(super) fn sampled(&mut self, id: RequestId) {
        if let Some(left) = &mut self.members[id].left {
            *left -= 1;
            self.left -= 1;
        }
    }

    /// A row joins, behind all others or as number `at`; `tick` says that the result of a decode without it is to come.
    /// `left` is what is left of its bound, where that is counted whole.
    pub(super) fn join(
        &mut self,
        id: RequestId,
        at: Option<usize>,
        tick: bool,
        decodes: u64,
        left: Option<u64>,
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
        let left = left.map(|left| left + results);
        self.rows += 1;
        self.settled = self.settled.max(results);
        match left {
            Some(left) => self.left += left,
            None => self.others += 1,
        }
        self.members[id] = Member { place, former: place, results, decodes, stay: self.stays, left };
    }

    /// A row that has `generated` tokens now is to finish at `output` of at most `bound`.
    pub(super) fn expect(&mut self, id: RequestId, generated: u64, output: u64, bound: u64) {
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
        self.rows -= 1;
        match member.left {
            Some(left) => self.left -= left,
            None => self.others -= 1,
        }
        self.gone = true;
    }

    /// Takes rows that stopped out of the order; whether there were any.
    pub(super) fn drop_gone(&mut self) -> bool {
        if std::mem::take(&mut self.gone) {
            let members = &self.members;
            self.order.retain(|id| members[*id].stay > 0);
            return true;
        }
        false
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
