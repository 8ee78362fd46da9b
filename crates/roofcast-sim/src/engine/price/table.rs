//! Values by number that are computed on first use.
//!
//! Knows: places of values, allocated by the page and shared by clones. Knows nothing about the values.

use std::sync::{Arc, OnceLock};

/// Number of places.
const PLACES: usize = 1 << 16;
/// Number of places of a page.
const PAGE: usize = 1 << 10;

/// Values of consecutive numbers, each computed on first use.
type Page<T> = Box<[OnceLock<T>]>;

/// Values by number, computed on first use; clones share them.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Table<T> {
    pages: Arc<[OnceLock<Page<T>>]>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { pages: (0..PLACES / PAGE).map(|_| OnceLock::new()).collect() }
    }
}

impl<T> Table<T> {
    /// The place of the value of `number`; `None` beyond the last one.
    #[inline(always)]
    pub(super) fn place(&self, number: u64) -> Option<&OnceLock<T>> {
        let number = number as usize;
        let page = self.pages.get(number / PAGE)?;
        page.get_or_init(|| (0..PAGE).map(|_| OnceLock::new()).collect()).get(number % PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_what_one_computes() {
        let table = Table::default();
        let clone = table.clone();
        let number = PAGE as u64 + 1;
        assert_eq!(table.place(number).map(|place| *place.get_or_init(|| 7)), Some(7));
        assert_eq!(clone.place(number).and_then(OnceLock::get), Some(&7));
        assert_eq!(clone.place(number + 1).and_then(OnceLock::get), None);
        assert!(table.place(PLACES as u64 - 1).is_some() && table.place(PLACES as u64).is_none());
    }
}
