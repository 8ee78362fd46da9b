//! Contents in order of use.
//!
//! Knows: which content was used last, and which least recently. Knows nothing about what a use is.

use super::names::{Name, index};
use std::collections::VecDeque;

/// Contents in order of use, the newest last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recency {
    /// Number of each content's last use; 0 for a content that is not in the list.
    uses: Vec<u32>,
    /// Uses in order, of which only each content's last one counts.
    order: VecDeque<(u32, Name)>,
    count: usize,
    newest: u32,
}

impl Recency {
    /// True if the content is in the list.
    pub(crate) fn has(&self, content: Name) -> bool {
        self.uses.get(index(content)).is_some_and(|used| *used > 0)
    }

    /// Number of contents.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Contents, the least recently used first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Name> {
        let order = self.order.iter().filter(|(used, content)| self.uses[index(*content)] == *used);
        order.map(|(_, content)| *content)
    }

    /// Makes a content the newest; adds it if it is missing.
    pub(crate) fn push(&mut self, content: Name) {
        if self.uses.len() <= index(content) {
            self.uses.resize(index(content) + 1, 0);
        }
        self.newest += 1;
        let before = std::mem::replace(&mut self.uses[index(content)], self.newest);
        self.count += usize::from(before == 0);
        if self.order.len() > 64 + 2 * self.count {
            let uses = &self.uses;
            self.order.retain(|(used, content)| uses[index(*content)] == *used);
        }
        self.order.push_back((self.newest, content));
    }

    /// Removes a content; returns false if it is missing.
    pub(crate) fn remove(&mut self, content: Name) -> bool {
        let is_in = self.has(content);
        if is_in {
            self.uses[index(content)] = 0;
            self.count -= 1;
            while self.order.front().is_some_and(|(used, content)| self.uses[index(*content)] != *used) {
                self.order.pop_front();
            }
        }
        is_in
    }

    /// Removes the least recently used contents until at most `most` are left.
    pub(crate) fn forget_beyond(&mut self, most: usize) {
        while self.count > most {
            let Some((used, content)) = self.order.pop_front() else { return };
            if self.uses[index(content)] == used {
                self.uses[index(content)] = 0;
                self.count -= 1;
            }
        }
    }
}
