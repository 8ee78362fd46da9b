//! Budget of one pass over the queue: memory now and later in tokens, and compute in tokens.
//!
//! Knows: the sums of `PrefillAdder` and `PrefillBudget`, and the check at the end of every request for exact output
//! lengths without cached tokens. Source: SGLang 0.5.23, `managers/schedule_policy.py` and
//! `mem_cache/prefill_budget.py`. Knows nothing about the queue.

use super::memory::Memory;
use super::tree::Node;

/// Largest bound on output tokens that estimates count; higher bounds are clipped.
pub(crate) const CLIP_MAX_NEW_TOKENS: u64 = 4096;
/// Tokens kept free per request at the end of every request, for exact output lengths.
const RESERVED: f64 = 1.0;

/// Reason why no further request is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Memory is exhausted.
    Tokens,
    /// The tokens of compute are exhausted, or another limit is reached.
    Other,
}

/// The remaining tokens of one pass over the queue.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    /// Tokens promised in total, including tokens that requests will generate.
    total: f64,
    current: u64,
    /// Number of tokens that the batch may still compute.
    input: i64,
    pub(super) chunk: Option<i64>,
    /// For each request the tokens left to generate and the tokens held, in order of the requests' ends; `None` before
    /// the first check.
    ends: Option<Vec<(f64, f64)>>,
}

impl Budget {
    /// Budget for a batch in which `mixed` running requests also decode, with `promised` tokens promised to running
    /// requests.
    pub(super) fn new(input: u64, chunk: Option<u64>, mixed: u64, promised: f64) -> Budget {
        Budget {
            total: mixed as f64 + promised,
            current: mixed,
            input: signed(input) - signed(mixed),
            chunk: chunk.map(|chunk| signed(chunk) - signed(mixed)),
            ends: None,
        }
    }

    /// Tokens of memory that are not promised after the prefix that ends at `node` is locked.
    pub(super) fn remaining_total(&self, memory: &Memory, node: Node) -> f64 {
        (memory.reclaimable() - memory.unlocked(node)) as f64 - self.total
    }

    fn remaining_current(&self, memory: &Memory) -> i64 {
        signed(memory.reclaimable()) - signed(self.current)
    }

    /// Reason why no further request is considered; `None` if the next one may be.
    pub(super) fn spent(&self, memory: &Memory) -> Option<Stop> {
        if self.remaining_total(memory, super::ROOT) <= 0.0 || self.remaining_current(memory) <= 0 {
            return Some(Stop::Tokens);
        }
        (self.input <= 0 || self.chunk.is_some_and(|chunk| chunk <= 0)).then_some(Stop::Other)
    }

    /// Number of tokens of a chunked request's `rest` that this batch computes; a chunked request never waits.
    pub(super) fn continuation(&self, memory: &Memory, rest: u64) -> u64 {
        let chunk = self.chunk.unwrap_or(i64::MAX);
        let room = chunk.min(self.remaining_total(memory, super::ROOT) as i64);
        rest.min(u64::try_from(if room > 0 { room } else { chunk }).unwrap_or(0))
    }

    /// Number of tokens of `rest` that a request computes in this batch, if `shared` of its tokens are cached; with
    /// `alone` no other request is admitted.
    pub(super) fn chunk(&self, page: u64, shared: u64, rest: u64, alone: bool) -> Result<u64, Stop> {
        let whole = signed(rest.next_multiple_of(page));
        match self.chunk {
            None if !alone && whole >= self.input => Err(Stop::Other),
            Some(chunk) if whole > chunk => {
                let chunk = u64::try_from(chunk).unwrap_or(0);
                let end = shared + chunk - chunk % page;
                (end - end % page).checked_sub(shared).filter(|new| *new > 0).ok_or(Stop::Other)
            }
            _ => Ok(rest),
        }
    }

    /// Takes `new` tokens of a prompt from the budget and promises `bound` more.
    pub(super) fn charge(&mut self, page: u64, new: u64, bound: u64) {
        let new = new.next_multiple_of(page);
        self.total += (new + page + bound) as f64;
        self.current += new + page;
        self.input -= signed(new);
        if let Some(chunk) = &mut self.chunk {
            *chunk -= signed(new);
        }
    }

    /// Returns the promised tokens of a running request to the budget.
    pub(super) fn release(&mut self, promised: f64) {
        self.total -= promised;
    }

    /// True if memory suffices at the end of every request after admission of a request of exact length, which has
    /// `left` tokens to generate, holds `held` and computes `rest` first. `others` are the running and admitted
    /// requests; they are read once.
    pub(super) fn fits_to_its_end(
        &mut self,
        memory: &Memory,
        rest: u64,
        one: (f64, f64),
        others: impl Iterator<Item = (f64, f64)>,
    ) -> bool {
        let pages = rest.next_multiple_of(memory.page) + memory.page;
        let now = self.remaining_current(memory);
        if pages as f64 > (now as f64).min(self.remaining_total(memory, super::ROOT)) {
            return false;
        }
        let ends = insert(self.ends.take(), one, others);
        let mut free = (now - signed(pages)) as f64;
        let mut fits = true;
        for (index, (left, held)) in ends.iter().enumerate() {
            let here = (ends.len() - index) as f64;
            if free - left * here <= RESERVED * here {
                fits = false;
                break;
            }
            free += held;
        }
        self.ends = Some(ends);
        fits
    }
}

/// Inserts an entry into `ends`; on first use together with the entries of `others`, in order of tokens left. A later
/// entry goes before the first with at least as many tokens left, or before the last entry if there is none.
fn insert(
    ends: Option<Vec<(f64, f64)>>,
    one: (f64, f64),
    others: impl Iterator<Item = (f64, f64)>,
) -> Vec<(f64, f64)> {
    let Some(mut ends) = ends else {
        let mut ends: Vec<_> = std::iter::once(one).chain(others).filter(|(left, _)| *left > 0.0).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        return ends;
    };
    if one.0 > 0.0 {
        let at = ends.iter().position(|(left, _)| one.0 <= *left);
        ends.insert(at.unwrap_or(ends.len().saturating_sub(1)), one);
    }
    ends
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 of 1000 tokens are promised. 200 prompt tokens and a bound of 50, in pages of 16, take 208 + 16 + 50.
    #[test]
    fn a_request_is_charged_its_pages_its_bound_and_one_page() {
        let memory = Memory::new(1000 + 8, 16, true, None);
        let mut budget = Budget::new(512, Some(256), 0, 100.0);
        assert_eq!(memory.available, 1008);
        assert_eq!(budget.chunk(16, 0, 200, true), Ok(200));
        budget.charge(16, 200, 50);
        assert_eq!(budget.remaining_total(&memory, 0), 1008.0 - 100.0 - 274.0);
        assert_eq!((budget.remaining_current(&memory), budget.input, budget.chunk), (784, 304, Some(48)));
        // The next request may compute 48 tokens: three pages.
        assert_eq!(budget.chunk(16, 0, 100, false), Ok(48));
        budget.charge(16, 48, 0);
        assert_eq!(
            (budget.spent(&memory), budget.chunk(16, 0, 100, false)),
            (Some(Stop::Other), Err(Stop::Other))
        );
        // After a promise of 600 more, less than zero remains: 1008 − 100 − 274 − 64 − 600.
        budget.charge(16, 0, 584);
        assert_eq!(budget.spent(&memory), Some(Stop::Tokens));
        assert_eq!(budget.continuation(&memory, 30), 0);
    }

    /// 100 tokens free, pages of 1. A running request holds 30 and has 20 left; a candidate computes 40 and has 10
    /// left, after which 59 are free. At the candidate's end both have taken 10: 59 − 20 > 2. Then its 50 return, and
    /// by the end of the other request one row takes 20 in total: 59 + 50 − 20 > 1.
    #[test]
    fn ends_are_gone_over() {
        let memory = Memory::new(100, 1, false, None);
        let mut budget = Budget::new(512, None, 0, 20.0);
        assert!(budget.fits_to_its_end(&memory, 40, (10.0, 40.0), [(20.0, 30.0)].into_iter()));
        budget.charge(1, 40, 10);
        // Free: 100 − 41 = 59, less 16 + 1 = 42. A third request with 15 left goes between the two: 42 − 3 × 10 > 3; +
        // 40 − 2 × 15 > 2 …
        assert!(budget.fits_to_its_end(&memory, 16, (15.0, 16.0), std::iter::empty()));
        assert_eq!(budget.ends, Some(vec![(10.0, 40.0), (15.0, 16.0), (20.0, 30.0)]));
        // A request with more tokens left than all others goes before the last entry; 5 tokens more do not fit at the
        // first end.
        assert!(!budget.fits_to_its_end(&memory, 17, (30.0, 17.0), std::iter::empty()));
        assert_eq!(budget.ends.as_ref().map(|ends| ends[2]), Some((30.0, 17.0)));
    }
}
