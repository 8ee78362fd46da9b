//! Columns of a table: numbers, and words as codes of distinct values.
//!
//! Knows: the values of each row. Knows nothing about files or the meaning of columns.

use roofcast_facts::error::{Error, Result};
use std::collections::BTreeMap;

/// Columns of one table, by name.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// Name of the table in messages.
    pub(crate) place: String,
    words: BTreeMap<String, Words>,
    numbers: BTreeMap<String, Vec<f64>>,
}

/// Column of words: the distinct words, and the code of each row's word.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    distinct: Vec<String>,
    codes: Vec<u32>,
}

impl Words {
    /// Code of a row's word; 0 for every row of an absent column.
    pub(super) fn code(&self, row: usize) -> u32 {
        self.codes.get(row).copied().unwrap_or(0)
    }

    /// Word of a code; empty for an absent column.
    pub(super) fn word(&self, code: u32) -> &str {
        self.distinct.get(code as usize).map_or("", String::as_str)
    }
}

impl Columns {
    /// Creates an empty table; `place` names it in messages.
    pub fn new(place: impl Into<String>) -> Columns {
        Columns { place: place.into(), ..Columns::default() }
    }

    /// Adds a column of words.
    pub fn add_words<'a>(&mut self, name: &str, rows: impl IntoIterator<Item = &'a str>) {
        let mut codes: BTreeMap<&str, u32> = BTreeMap::new();
        let mut words = Words::default();
        for word in rows {
            let next = codes.len() as u32;
            let code = *codes.entry(word).or_insert_with(|| {
                words.distinct.push(word.to_owned());
                next
            });
            words.codes.push(code);
        }
        self.words.insert(name.to_owned(), words);
    }

    /// Adds a column of numbers; NaN marks a missing value.
    pub fn add_numbers(&mut self, name: &str, rows: Vec<f64>) {
        self.numbers.insert(name.to_owned(), rows);
    }

    /// Column of words with this name; a column of empty words if the table lacks it.
    pub(super) fn words(&self, name: &str) -> Words {
        self.words.get(name).cloned().unwrap_or_default()
    }

    /// Returns columns of numbers that the table must have.
    pub(super) fn numbers<const N: usize>(&self, names: [&str; N]) -> Result<[Numbers<'_>; N]> {
        for name in names {
            if !self.numbers.contains_key(name) {
                return Err(Error::field(&self.place, name, "missing", "a column of numbers"));
            }
        }
        Ok(names.map(|name| self.numbers_if_any(name)))
    }

    /// Column of numbers with this name; an empty column if the table lacks it.
    pub(super) fn numbers_if_any(&self, name: &str) -> Numbers<'_> {
        Numbers(self.numbers.get(name).map_or(&[], Vec::as_slice))
    }
}

/// A column of numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers<'a>(pub(super) &'a [f64]);

impl Numbers<'_> {
    /// Value of a row as a whole number; 0 if it is missing.
    pub(super) fn at(self, row: usize) -> u32 {
        // A cast of NaN to an integer gives 0.
        self.0.get(row).copied().unwrap_or(0.0).round() as u32
    }
}
