//! Numbers of block contents: a content has one number for as long as anything refers to it, so that what is known of
//! contents are arrays. Contents that follow each other have consecutive numbers as far as possible.
//!
//! Knows: lines of contents, in a tree: a line begins with the content of one block after another line's, and has the
//! tokens of its blocks as runs, so that naming a prompt costs as many comparisons as it has runs. Numbers that nothing
//! refers to any more are collected from time to time. Knows nothing about who refers to a content.

use super::cursor::Cursor;
use super::prefix::{Content, ContentMap, Tokens};
use super::spans::{NONE, Spans, Supply};
use roofcast_ask::workload::request::Run;
use roofcast_facts::slab::Slab;
use std::ops::Range;

/// Number of a content.
pub type Name = u32;

/// Bit of the names of contents that only their owner can hold.
const OWN: u32 = 1 << 31;
/// Fewest new numbers between two collections.
const FEW: usize = 1 << 16;

/// True if only one request can hold the content.
pub(crate) fn is_own(name: Name) -> bool {
    name & OWN != 0
}

/// Index of a name in arrays.
pub(crate) fn index(name: Name) -> usize {
    (name & !OWN) as usize
}

/// Consecutive names.
#[derive(Debug, Clone)]
struct Line {
    names: Range<Name>,
    /// The content before the first one.
    before: Name,
    /// Key of the line among the lines after `before`; `None` if only the owner can hold it.
    key: Option<Content>,
    /// Tokens of the blocks, and of those after the last block that its content covers.
    runs: Vec<Run>,
}

/// The named contents. Blocks of each group of layers have their own contents.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Tokens of a block, and tokens after it that its content covers.
    block: u64,
    ahead: u64,
    lines: Slab<Line>,
    /// Line of each name; [`NONE`] for numbers without content.
    line_of: Vec<u32>,
    /// Lines by [`Line::key`].
    starts: ContentMap<u32>,
    supply: Supply,
    named: usize,
    /// Number of names that the last collection kept.
    kept: usize,
    groups: u32,
    /// Identity of each content, if changes of the cache are watched.
    contents: Option<Vec<Content>>,
}

impl Names {
    /// No names, for blocks of `block` tokens whose contents cover `ahead` further tokens, in `groups` groups of layers.
    pub(crate) fn new((block, ahead): (u64, u64), groups: usize) -> Names {
        // A group's first name is the empty content before its first block.
        let groups = groups as u32;
        let supply = Supply::from(groups);
        Names {
            block,
            ahead,
            lines: Slab::default(),
            line_of: vec![NONE; groups as usize],
            starts: ContentMap::default(),
            supply,
            named: 0,
            kept: 0,
            groups,
            contents: None,
        }
    }

    /// Starts to keep the identities of contents.
    pub(crate) fn watch(&mut self) {
        self.contents = Some(vec![Content::START; self.line_of.len()]);
    }

    /// Identity of a content, if identities are kept.
    pub(crate) fn content(&self, name: Name) -> Content {
        self.contents.as_ref().and_then(|contents| contents.get(index(name))).copied().unwrap_or_default()
    }

    /// Appends the names of the contents of `tokens` from `at` on to `names`, up to `count` names in all, and moves `at`.
    /// `names` are the names before in this group.
    pub(crate) fn extend(
        &mut self,
        (group, names): (usize, &mut Spans),
        runs: &[Run],
        at: &mut Cursor,
        count: usize,
    ) {
        let mut before = names.last().unwrap_or(group as Name);
        while names.len() < count {
            let left = (count - names.len()) as u64;
            let next = match self.next(before, runs, at, left) {
                Some(known) => known,
                None => self.create(before, runs, at, left as u32),
            };
            before = next.end - 1;
            names.push(next);
        }
    }

    /// Appends names of contents that only `owner` can hold, up to `count` names in all.
    pub(crate) fn extend_own(&mut self, (group, names): (usize, &mut Spans), owner: u64, count: usize) {
        while names.len() < count {
            let before = names.last().unwrap_or(group as Name);
            let taken = self.supply.take((count - names.len()) as u32);
            self.put(taken.clone());
            if let Some(contents) = &mut self.contents {
                let first = names.len();
                taken.clone().for_each(|name| {
                    contents[name as usize] = Content::own(owner, first + (name - taken.start) as usize)
                });
            }
            let numbers = taken.start | OWN..taken.end | OWN;
            let last = self.line(before).filter(|_| before + 1 == numbers.start);
            let line = match last {
                Some(line) => {
                    self.lines[line as usize].names.end = numbers.end;
                    line
                }
                None => {
                    self.lines.insert(Line { names: numbers.clone(), before, key: None, runs: Vec::new() })
                        as u32
                }
            };
            self.line_of[taken.start as usize..taken.end as usize].fill(line);
            names.push(numbers);
        }
    }

    /// Names of the first whole blocks of `tokens` in the first group, up to the first without a name.
    pub(crate) fn known(&self, tokens: &Tokens) -> Spans {
        let count = tokens.len().saturating_sub(self.ahead) / self.block;
        let mut names = Spans::default();
        let mut at = Cursor::default();
        while let Some(next) =
            self.next(names.last().unwrap_or(0), tokens.runs(), &mut at, count - names.len() as u64)
        {
            names.push(next);
        }
        names
    }

    /// Known names of up to `most` contents of `runs` from `at` on, which follow `before`; moves `at` past them.
    fn next(&self, before: Name, runs: &[Run], at: &mut Cursor, most: u64) -> Option<Range<Name>> {
        if most == 0 {
            return None;
        }
        if let Some(line) = self.line(before) {
            let start = before + 1;
            let next = self.common((line, start), runs, at, most);
            if !next.is_empty() {
                return Some(next);
            }
        }
        let line = *self.starts.get(&self.key(before, runs, *at))?;
        let start = self.lines[line as usize].names.start;
        Some(self.common((line, start), runs, at, most)).filter(|next| !next.is_empty())
    }

    fn line(&self, name: Name) -> Option<u32> {
        self.line_of.get(index(name)).copied().filter(|line| *line != NONE)
    }

    fn key(&self, before: Name, runs: &[Run], at: Cursor) -> Content {
        at.page(runs, self.block + self.ahead).below(before)
    }

    /// Names of a line from `start` on, at most `most`, whose tokens follow in `runs` from `at` on; moves `at` past them.
    fn common(&self, (line, start): (u32, Name), runs: &[Run], at: &mut Cursor, most: u64) -> Range<Name> {
        let Line { names, runs: same, .. } = &self.lines[line as usize];
        let left = u64::from(names.end - start).min(most);
        if left == 0 || is_own(start) {
            return start..start;
        }
        let mut from = Cursor::default();
        from.take(same, u64::from(start - names.start) * self.block, |_| {});
        let tokens = at.common(runs, (same, from), left * self.block + self.ahead);
        let blocks = tokens.saturating_sub(self.ahead) / self.block;
        at.take(runs, blocks * self.block, |_| {});
        start..start + blocks as Name
    }

    /// Names up to `count` contents of `runs` from `at` on, which follow `before`; moves `at` past them.
    fn create(&mut self, before: Name, runs: &[Run], at: &mut Cursor, count: u32) -> Range<Name> {
        let names = self.supply.take(count);
        self.put(names.clone());
        let tokens = u64::from(names.end - names.start) * self.block;
        if let Some(contents) = &mut self.contents {
            let mut each = *at;
            let mut past = contents[index(before)];
            for name in names.clone() {
                let mut covered = past;
                let mut to = each;
                to.take(runs, self.block, |run| covered = covered.then(run));
                each = to;
                to.take(runs, self.ahead, |run| covered = covered.then(run));
                contents[name as usize] = covered;
                past = covered;
            }
        }
        let last = self.line(before).filter(|_| before + 1 == names.start);
        let line = match last {
            Some(line) => line,
            None => {
                let key = self.key(before, runs, *at);
                let line = Line { names: names.start..names.start, before, key: Some(key), runs: Vec::new() };
                let line = self.lines.insert(line) as u32;
                self.starts.insert(key, line);
                line
            }
        };
        let Line { names: all, runs: own, .. } = &mut self.lines[line as usize];
        let mut new = *at;
        let covered = if Range::is_empty(all) { 0 } else { self.ahead };
        new.take(runs, covered, |_| {});
        new.take(runs, tokens + self.ahead - covered, |run| own.push(run));
        all.end = names.end;
        at.take(runs, tokens, |_| {});
        self.line_of[names.start as usize..names.end as usize].fill(line);
        names
    }

    /// Counts new names, and makes room for them in the arrays.
    fn put(&mut self, names: Range<u32>) {
        self.named += names.len();
        let end = names.end as usize;
        if self.line_of.len() < end {
            self.line_of.resize(end, NONE);
        }
        if let Some(contents) = &mut self.contents
            && contents.len() < end
        {
            contents.resize(end, Content::START);
        }
    }

    /// True if so many names are new that those without use are to be collected.
    pub(crate) fn is_due(&self) -> bool {
        self.named > 3 * self.kept + FEW
    }

    /// Frees all names that are not in `used` and precede none that is.
    pub(crate) fn collect(&mut self, used: impl Iterator<Item = Range<Name>>) {
        // For each line, the number of its first names that stay.
        let mut stays = vec![0_u32; self.lines.len()];
        for range in used {
            let mut at = index(range.start);
            let end = at + range.len();
            while at < end
                && let Some(line) = self.line(at as Name)
            {
                let Line { names, .. } = &self.lines[line as usize];
                at = (index(names.start) + names.len()).min(end);
                self.keep(line, at, &mut stays);
            }
        }
        for (line, stay) in (0..).zip(&stays) {
            let Line { names, key, runs, .. } = &mut self.lines[line as usize];
            let gone = names.start + stay..names.end;
            if gone.is_empty() {
                continue;
            }
            self.line_of[index(gone.start)..index(gone.start) + gone.len()].fill(NONE);
            names.end = gone.start;
            let tokens = if *stay > 0 { u64::from(*stay) * self.block + self.ahead } else { 0 };
            let whole = std::mem::take(runs);
            Cursor::default().take(&whole, tokens, |run| runs.push(run));
            if *stay == 0 {
                key.take().map(|key| self.starts.remove(&key));
                self.lines.vacate(line as usize);
            }
        }
        let Names { line_of, supply, groups, .. } = self;
        supply.refill(|number| number >= *groups && line_of[number as usize] == NONE);
        self.named = line_of.iter().filter(|line| **line != NONE).count();
        self.kept = self.named;
    }

    /// Keeps the names of a line with indices below `end`, and all names that precede them.
    fn keep(&self, line: u32, end: usize, stays: &mut [u32]) {
        let mut line = line;
        let mut end = end;
        loop {
            let Line { names, before, .. } = &self.lines[line as usize];
            let stay = (end - index(names.start)) as u32;
            let known = stays[line as usize];
            stays[line as usize] = stay.max(known);
            if known > 0 {
                return;
            }
            let Some(above) = self.line(*before) else { return };
            (line, end) = (above, index(*before) + 1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a list of one range is meant
mod tests {
    use super::*;

    fn runs(parts: &[(u32, u64, u64)]) -> Vec<Run> {
        parts.iter().map(|&(segment, start, length)| Run { segment, start, length }).collect()
    }

    fn named(names: &mut Names, runs: &[Run], count: usize) -> Spans {
        let mut all = Spans::default();
        names.extend((0, &mut all), runs, &mut Cursor::default(), count);
        all
    }

    /// Blocks of 4 tokens: 6 blocks of segment 1, and 2 of these followed by 3 of segment 2. The names of the common
    /// blocks are the same, and a third request finds the second's. When only the second's fourth block is in use, its
    /// fifth and the first's others are given again; blocks before the fourth stay.
    #[test]
    fn equal_beginnings_have_equal_names() {
        let mut names = Names::new((4, 0), 1);
        let whole = named(&mut names, &runs(&[(1, 0, 24)]), 6);
        let other = runs(&[(1, 0, 8), (2, 0, 12)]);
        let two = named(&mut names, &other, 5);
        assert_eq!(whole.ranges().collect::<Vec<_>>(), [1..7]);
        assert_eq!(two.ranges().collect::<Vec<_>>(), [1..3, 7..10]);
        assert_eq!(named(&mut names, &other, 5), two);
        let fourth = two.get(3).unwrap();
        names.collect([fourth..fourth + 1].into_iter());
        assert_eq!(named(&mut names, &other, 4).ranges().collect::<Vec<_>>(), [1..3, 7..9]);
        // Names 3 to 6 and 9 are free: a request of other tokens gets them.
        let three = named(&mut names, &runs(&[(3, 0, 24)]), 6);
        assert_eq!(three.ranges().collect::<Vec<_>>(), [3..7, 9..11]);
    }

    /// A content that covers the token after its block differs if that token does.
    #[test]
    fn contents_look_ahead() {
        let mut names = Names::new((4, 1), 1);
        let first = named(&mut names, &runs(&[(1, 0, 9)]), 2);
        let two = named(&mut names, &runs(&[(1, 0, 8), (2, 0, 1)]), 2);
        assert_eq!((first.get(0), first.get(1) == two.get(1)), (two.get(0), false));
        // A longer request goes on where the first one ended.
        let longer = named(&mut names, &runs(&[(1, 0, 13)]), 3);
        assert_eq!(longer.parts(0..2).collect::<Vec<_>>(), first.parts(0..2).collect::<Vec<_>>());
        assert_eq!(named(&mut names, &runs(&[(1, 0, 13)]), 3), longer);
    }

    #[test]
    fn own_contents_are_never_found() {
        let mut names = Names::new((4, 0), 1);
        let mut mixed = named(&mut names, &runs(&[(1, 0, 4)]), 1);
        names.extend_own((0, &mut mixed), 7, 3);
        assert!(mixed.get(1).is_some_and(is_own) && !mixed.get(0).is_some_and(is_own));
        // Contents that a store knows by index are kept, too.
        names.collect([2..3].into_iter());
        assert!(names.line(mixed.get(1).unwrap()).is_some() && names.line(mixed.get(2).unwrap()).is_none());
        let all = named(&mut names, &runs(&[(1, 0, 12)]), 3);
        assert!(all.get(0) == mixed.get(0) && all.ranges().all(|range| !is_own(range.start)));
    }
}
