//! Contents in order of use.
//!
//! Knows: which content was used last, and which least recently. Knows nothing about what a use is.

use super::names::{Name, NameMap};
use std::collections::BTreeMap;

/// Contents in order of use, the newest last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recency {
    places: NameMap<u64>,
    contents: BTreeMap<u64, Name>,
    newest: u64,
}

impl Recency {
    /// True if the content is in the list.
    pub(crate) fn has(&self, content: Name) -> bool {
        self.places.has(content)
    }

    /// Number of contents.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Contents, the least recently used first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Name> {
        self.contents.values().copied()
    }

    /// Makes a content the newest; adds it if it is missing.
    pub(crate) fn push(&mut self, content: Name) {
        self.remove(content);
        self.newest += 1;
        self.places.insert(content, self.newest);
        self.contents.insert(self.newest, content);
    }

    /// Removes a content; returns false if it is missing.
    pub(crate) fn remove(&mut self, content: Name) -> bool {
        let place = self.places.remove(content);
        place.is_some_and(|place| self.contents.remove(&place).is_some())
    }

    /// Removes the least recently used contents until at most `most` are left.
    pub(crate) fn forget_beyond(&mut self, most: usize) {
        while self.len() > most {
            let Some((_, content)) = self.contents.pop_first() else { return };
            self.places.remove(content);
        }
    }
}
