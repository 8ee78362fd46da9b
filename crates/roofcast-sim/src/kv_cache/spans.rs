//! Lists and sets of numbers of which most follow each other, held as ranges; and the supply of such numbers.
//!
//! Knows: a prompt's blocks, and their contents, are numbered together, so that a list of a thousand numbers is a few
//! ranges. Knows nothing about what is numbered.

use std::ops::Range;

/// Stands for a place without a number.
pub(crate) const NONE: u32 = u32::MAX;

/// List of numbers in order. A place may have no number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<Span>);

/// Consecutive numbers of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// First number; [`NONE`] for places without numbers.
    start: u32,
    /// Index in the list behind the last number.
    end: usize,
}

impl Spans {
    pub(crate) fn len(&self) -> usize {
        self.0.last().map_or(0, |span| span.end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends consecutive numbers.
    pub(crate) fn push(&mut self, numbers: Range<u32>) {
        let count = numbers.len();
        if count == 0 {
            return;
        }
        let before = self.0.len().checked_sub(2).map_or(0, |at| self.0[at].end);
        match self.0.last_mut() {
            Some(Span { start, end })
                if *start != NONE && *start + (*end - before) as u32 == numbers.start =>
            {
                *end += count
            }
            _ => self.0.push(Span { start: numbers.start, end: self.len() + count }),
        }
    }

    /// Appends `count` places without numbers.
    pub(crate) fn skip(&mut self, count: usize) {
        if count > 0 {
            self.0.push(Span { start: NONE, end: self.len() + count });
        }
    }

    /// Appends the numbers of another list from index `from` on.
    pub(crate) fn extend(&mut self, others: &Spans, from: usize) {
        let at = others.0.partition_point(|span| span.end <= from);
        for index in at..others.0.len() {
            let (first, numbers) = others.part(index, &(from..others.len()));
            match others.0[index].start {
                NONE => self.skip(others.0[index].end - first),
                _ => self.push(numbers),
            }
        }
    }

    /// Number at an index, if there is one.
    pub(crate) fn get(&self, index: usize) -> Option<u32> {
        let at = self.0.partition_point(|span| span.end <= index);
        let span = self.0.get(at)?;
        (span.start != NONE).then(|| span.start + (index - self.begin(at)) as u32)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Consecutive numbers at the indices `at`, each range with its first index; places without numbers are left out.
    pub(crate) fn parts(
        &self,
        at: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (usize, Range<u32>)> + Clone + '_ {
        let from = self.0.partition_point(|span| span.end <= at.start);
        let to = if at.is_empty() { from } else { self.0.partition_point(|span| span.end < at.end) + 1 };
        let spans = from..to.min(self.0.len());
        spans.filter(|index| self.0[*index].start != NONE).map(move |index| self.part(index, &at))
    }

    /// All consecutive numbers.
    pub(crate) fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u32>> + Clone + '_ {
        self.parts(0..self.len()).map(|(_, numbers)| numbers)
    }

    /// The numbers at the indices `at`, as a list.
    pub(crate) fn slice(&self, at: Range<usize>) -> Spans {
        let mut slice = Spans::default();
        self.parts(at).for_each(|(_, numbers)| slice.push(numbers));
        slice
    }

    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.0[before].end)
    }

    /// The part of a span within the indices `at`: its first index, and the numbers.
    fn part(&self, index: usize, at: &Range<usize>) -> (usize, Range<u32>) {
        let begin = self.begin(index);
        let Span { start, end } = self.0[index];
        let first = begin.max(at.start);
        if start == NONE {
            return (first, 0..0);
        }
        let number = start + (first - begin) as u32;
        (first, number..number + (end.min(at.end) - first) as u32)
    }
}

/// Set of numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges(Vec<Range<u32>>);

impl Ranges {
    /// The set of all numbers in `ranges`.
    pub(crate) fn of(mut ranges: Vec<Range<u32>>) -> Ranges {
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Ranges(ranges)
    }

    /// Adds numbers; returns those that the set did not have, in order.
    pub(crate) fn add(&mut self, numbers: Range<u32>) -> Vec<Range<u32>> {
        if numbers.is_empty() {
            return Vec::new();
        }
        // The ranges that overlap or touch the new one become one.
        let from = self.0.partition_point(|range| range.end < numbers.start);
        let to = self.0.partition_point(|range| range.start <= numbers.end);
        let mut new = Vec::new();
        let mut at = numbers.start;
        for range in &self.0[from..to] {
            if at < range.start {
                new.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < numbers.end {
            new.push(at..numbers.end);
        }
        let touched = &self.0[from..to];
        let start = touched.first().map_or(numbers.start, |range| range.start.min(numbers.start));
        let end = touched.last().map_or(numbers.end, |range| range.end.max(numbers.end));
        self.0.splice(from..to, std::iter::once(start..end));
        new
    }

    /// Removes numbers; returns how many the set had.
    pub(crate) fn remove(&mut self, numbers: &Range<u32>) -> usize {
        let from = self.0.partition_point(|range| range.end <= numbers.start);
        let to = self.0.partition_point(|range| range.start < numbers.end);
        if from >= to {
            return 0;
        }
        let cut = self.0[from..to].to_vec();
        let inside = |range: &Range<u32>| range.start.max(numbers.start)..range.end.min(numbers.end);
        let removed = cut.iter().map(|range| inside(range).len()).sum();
        let left = cut.first().map(|range| range.start..numbers.start.max(range.start));
        let right = cut.last().map(|range| numbers.end.min(range.end)..range.end);
        let rest = left.into_iter().chain(right).filter(|range| !range.is_empty());
        self.0.splice(from..to, rest.collect::<Vec<_>>());
        removed
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        let at = self.0.partition_point(|range| range.end <= number);
        self.0.get(at).is_some_and(|range| range.start <= number)
    }

    /// True if the set has any of the numbers.
    pub(crate) fn overlap(&self, numbers: &Range<u32>) -> bool {
        let at = self.0.partition_point(|range| range.end <= numbers.start);
        self.0.get(at).is_some_and(|range| range.start < numbers.end)
    }

    /// The numbers, ascending.
    pub(crate) fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u32>> + '_ {
        self.0.iter().cloned()
    }
}

/// True if two ranges have a number in common.
pub(crate) fn overlap(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Ranges of the numbers whose values have a property; the first of `values` belongs to number `start`.
pub(crate) fn runs(values: &[u32], start: u32, has: impl Fn(u32) -> bool) -> Vec<Range<u32>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < values.len() {
        let count = values[at..].iter().take_while(|value| has(**value)).count();
        if count > 0 {
            runs.push(start + at as u32..start + (at + count) as u32);
        }
        at += count;
        at += values[at..].iter().take_while(|value| !has(**value)).count();
    }
    runs
}

/// Supply of numbers, consecutive as far as possible.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supply {
    /// Numbers that may be given again, the lowest last.
    vacant: Vec<Range<u32>>,
    /// First number that was never given.
    pub(crate) end: u32,
}

impl Supply {
    /// A supply whose lowest number is `first`.
    pub(crate) fn from(first: u32) -> Supply {
        Supply { vacant: Vec::new(), end: first }
    }

    /// Gives up to `count` consecutive numbers.
    pub(crate) fn take(&mut self, count: u32) -> Range<u32> {
        let Some(range) = self.vacant.last_mut() else {
            self.end += count;
            return self.end - count..self.end;
        };
        let taken = range.start..range.start + count.min(range.len() as u32);
        range.start = taken.end;
        if Range::is_empty(range) {
            self.vacant.pop();
        }
        taken
    }

    /// True if no number may be given again.
    pub(crate) fn is_spent(&self) -> bool {
        self.vacant.is_empty()
    }

    /// Makes the numbers for which `is_vacant` is true available again.
    pub(crate) fn refill(&mut self, is_vacant: impl Fn(u32) -> bool) {
        self.vacant.clear();
        let mut at = self.end;
        while at > 0 {
            let end = at;
            while at > 0 && is_vacant(at - 1) {
                at -= 1;
            }
            if at < end {
                self.vacant.push(at..end);
            } else {
                at -= 1;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a list of one range is meant
mod tests {
    use super::*;

    /// Numbers 7, 8, no number, 3 to 5 and 6, which continues 5.
    #[test]
    fn a_list_is_ranges() {
        let mut list = Spans::default();
        list.push(7..9);
        list.skip(1);
        list.push(3..6);
        list.push(6..7);
        assert_eq!((list.len(), list.last()), (7, Some(6)));
        let numbers: Vec<_> = (0..8).map(|index| list.get(index)).collect();
        assert_eq!(numbers, [Some(7), Some(8), None, Some(3), Some(4), Some(5), Some(6), None]);
        assert_eq!(list.parts(1..5).collect::<Vec<_>>(), [(1, 8..9), (3, 3..5)]);
        assert_eq!(list.parts(2..3).count(), 0);
        let mut other = Spans::default();
        other.extend(&list, 1);
        assert_eq!((other.len(), other.get(0), other.get(1), other.get(5)), (6, Some(8), None, Some(6)));
        assert_eq!(list.slice(1..5).ranges().collect::<Vec<_>>(), [8..9, 3..5]);
    }

    #[test]
    fn a_set_says_what_is_new() {
        let mut set = Ranges::default();
        assert_eq!(set.add(4..6), [4..6]);
        assert_eq!(set.add(9..10), [9..10]);
        assert_eq!(set.add(2..12), [2..4, 6..9, 10..12]);
        assert!(set.add(3..5).is_empty() && set.has(11) && !set.has(12));
        assert_eq!((set.remove(&(5..7)), set.remove(&(5..8))), (2, 1));
        assert_eq!(set.ranges().collect::<Vec<_>>(), [2..5, 8..12]);
        assert_eq!((set.add(5..8), set.ranges().count()), (vec![5..8], 1));
        let set = Ranges::of(vec![8..9, 1..4, 2..3, 4..6]);
        assert_eq!(set.ranges().collect::<Vec<_>>(), [1..6, 8..9]);
        assert_eq!(runs(&[0, 5, 6, 0, 7], 10, |value| value > 0), [11..13, 14..15]);
    }

    #[test]
    fn numbers_are_given_again() {
        let mut supply = Supply::default();
        assert_eq!((supply.take(5), supply.take(2)), (0..5, 5..7));
        supply.refill(|number| number != 2 && number < 6);
        assert_eq!(
            [supply.take(9), supply.take(2), supply.take(9), supply.take(1)],
            [0..2, 3..5, 5..6, 7..8]
        );
        assert!(supply.is_spent());
    }
}
