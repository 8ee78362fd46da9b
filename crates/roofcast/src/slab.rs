//! Values by number, whose numbers are used again.
//!
//! Knows: which numbers are free. Knows nothing about when a value may go.

use std::ops::{Deref, DerefMut};

/// Values by number, as a slice: those given back stay where they are until their number is used again.
#[derive(Debug, Clone)]
pub(crate) struct Slab<T> {
    values: Vec<T>,
    vacant: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { values: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a value under the number given back last, or a new one.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        match self.vacant.pop() {
            Some(index) => {
                self.values[index] = value;
                index
            }
            None => self.extend(value),
        }
    }

    #[cold]
    fn extend(&mut self, value: T) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// Lets a number be used again.
    pub(crate) fn vacate(&mut self, index: usize) {
        self.vacant.push(index);
    }

    /// How many values have not been given back.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.values.len() - self.vacant.len()
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}
