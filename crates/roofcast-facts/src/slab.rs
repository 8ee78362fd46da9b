//! Values with numbers, where the numbers of removed values are reused.
//!
//! Knows: which numbers are free. Knows nothing about when a value may be removed.

use std::ops::{Deref, DerefMut};

/// Values by number, stored as a slice. The value of a vacated number stays in place until the number is reused.
#[derive(Debug, Clone)]
pub struct Slab<T> {
    values: Vec<T>,
    vacant: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { values: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a value under the number that was vacated last, or under a new number.
    pub fn insert(&mut self, value: T) -> usize {
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

    /// Makes a number available for reuse.
    pub fn vacate(&mut self, index: usize) {
        self.vacant.push(index);
    }

    /// Number of values that have not been vacated.
    pub fn held(&self) -> usize {
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
