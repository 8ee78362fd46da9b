//! Numbers of block contents: a content has one number for as long as anything refers to it, so that what is known of
//! contents are arrays and no look-up hashes.
//!
//! Knows: contents follow each other, most have one successor, and only further successors are found by hash. Numbers
//! that nothing refers to any more are collected from time to time. Knows nothing about who refers to a content.

use super::prefix::{Content, ContentMap};

/// Number of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u32);

/// Bit that marks contents that only their owner can hold.
const OWN: u32 = 1 << 31;
/// Marks the absence of a successor.
const NONE: Name = Name(u32::MAX);
/// Fewest new numbers between two collections.
const FEW: usize = 1 << 16;

impl Name {
    /// Name of the empty content before the first block.
    pub(crate) const START: Name = Name(0);

    /// True if only one request can hold the content.
    pub(crate) fn is_own(self) -> bool {
        self.0 & OWN != 0
    }

    /// Name of a content that several requests can hold, for tests of what is known of contents.
    #[cfg(test)]
    pub(crate) fn numbered(number: u32) -> Name {
        Name(number)
    }

    fn index(self) -> usize {
        (self.0 & !OWN) as usize
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    content: Content,
    before: Name,
    /// The successor that was named first, if it still has its number.
    first: Name,
    /// True if the content ever had another successor.
    branches: bool,
}

/// The named contents.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    slots: Vec<Slot>,
    /// Successors other than the first of a content.
    others: ContentMap<Name>,
    vacant: Vec<u32>,
    /// Number of names that the last collection kept.
    kept: usize,
}

impl Default for Names {
    fn default() -> Names {
        let start = Slot { content: Content::START, before: NONE, first: NONE, branches: false };
        Names { slots: vec![start], others: ContentMap::default(), vacant: Vec::new(), kept: 0 }
    }
}

impl Names {
    /// The content with this name.
    pub(crate) fn content(&self, name: Name) -> Content {
        self.slots[name.index()].content
    }

    /// Name of `content`, whose content before its last block is `before`; a new name if it has none.
    pub(crate) fn name(&mut self, before: Name, content: Content) -> Name {
        if let Some(name) = self.known(before, content) {
            return name;
        }
        let slot = Slot { content, before, first: NONE, branches: false };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        let name = Name(if content.is_own() { index | OWN } else { index });
        let before = &mut self.slots[before.index()];
        if before.first == NONE {
            before.first = name;
        } else {
            before.branches = true;
            self.others.insert(content, name);
        }
        name
    }

    /// Name of `content` after `before`, if it has one.
    fn known(&self, before: Name, content: Content) -> Option<Name> {
        let Slot { first, branches, .. } = self.slots[before.index()];
        if first != NONE && self.slots[first.index()].content == content {
            return Some(first);
        }
        if branches { self.others.get(&content).copied() } else { None }
    }

    /// Names of `contents`, which follow each other, up to the first without a name.
    pub(crate) fn known_of(&self, contents: &[Content]) -> Vec<Name> {
        let next = |before: &mut Name, content: &Content| {
            *before = self.known(*before, *content)?;
            Some(*before)
        };
        contents.iter().scan(Name::START, next).collect()
    }

    /// True if so many names are new that those without use are to be collected.
    pub(crate) fn is_due(&self) -> bool {
        self.slots.len() - self.vacant.len() > 3 * self.kept + FEW
    }

    /// Frees all names that are not in `used` and precede none that is.
    pub(crate) fn collect(&mut self, used: impl Iterator<Item = Name>) {
        let mut stays = vec![false; self.slots.len()];
        stays[0] = true;
        for mut name in used {
            while !std::mem::replace(&mut stays[name.index()], true) {
                name = self.slots[name.index()].before;
            }
        }
        self.vacant.clear();
        for index in (1..self.slots.len()).rev().filter(|index| !stays[*index]) {
            let Slot { before, first, .. } = &mut self.slots[index];
            (*before, *first) = (Name::START, NONE);
            self.vacant.push(index as u32);
        }
        self.others.retain(|_, name| stays[name.index()]);
        for slot in &mut self.slots {
            if slot.first != NONE && !stays[slot.first.index()] {
                slot.first = NONE;
            }
        }
        self.kept = self.slots.len() - self.vacant.len();
    }
}

/// Map from names to values.
#[derive(Debug, Clone)]
pub(crate) struct NameMap<T> {
    values: Vec<Option<(Name, T)>>,
    count: usize,
}

impl<T> Default for NameMap<T> {
    fn default() -> NameMap<T> {
        NameMap { values: Vec::new(), count: 0 }
    }
}

impl<T> NameMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn get(&self, name: Name) -> Option<&T> {
        self.values.get(name.index())?.as_ref().map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, name: Name) -> Option<&mut T> {
        self.values.get_mut(name.index())?.as_mut().map(|(_, value)| value)
    }

    pub(crate) fn has(&self, name: Name) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn insert(&mut self, name: Name, value: T) {
        if self.values.len() <= name.index() {
            self.values.resize_with(name.index() + 1, || None);
        }
        let before = self.values[name.index()].replace((name, value));
        self.count += usize::from(before.is_none());
    }

    pub(crate) fn remove(&mut self, name: Name) -> Option<T> {
        let (_, value) = self.values.get_mut(name.index())?.take()?;
        self.count -= 1;
        Some(value)
    }

    /// The names with values.
    pub(crate) fn names(&self) -> impl Iterator<Item = Name> {
        self.values.iter().flatten().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u64) -> Content {
        Content::own(number, 0)
    }

    /// Content 2 follows 1 and 3 follows 2; 4 follows 1, too. When nothing uses 2 and 3 any more, their numbers are given
    /// again; 1 keeps its number, because 4 follows it.
    #[test]
    fn contents_keep_their_names_while_in_use() {
        let mut names = Names::default();
        let first = names.name(Name::START, content(1));
        let two = names.name(first, content(2));
        let three = names.name(two, content(3));
        let four = names.name(first, content(4));
        assert_eq!((names.name(first, content(4)), names.name(first, content(2))), (four, two));
        let path = [1, 2, 3, 5].map(content);
        assert_eq!(names.known_of(&path), [first, two, three]);
        names.collect([four].into_iter());
        assert_eq!(names.known_of(&path), [first]);
        assert_eq!((names.name(first, content(4)), names.content(four)), (four, content(4)));
        assert_eq!([names.name(first, content(6)), names.name(first, content(7))], [two, three]);
        assert_eq!(names.name(first, content(4)), four);
    }

    #[test]
    fn a_map_counts_its_names() {
        let mut names = Names::default();
        let mut map = NameMap::default();
        let [one, two] = [1, 2].map(|number| names.name(Name::START, content(number)));
        map.insert(two, 'b');
        map.insert(two, 'c');
        assert_eq!((map.len(), map.get(two), map.has(one)), (1, Some(&'c'), false));
        assert_eq!((map.remove(one), map.remove(two), map.is_empty()), (None, Some('c'), true));
    }
}
