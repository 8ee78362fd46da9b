//! The entries of one kind, found by name. An embedded entry is parsed only when it is requested, because one run of
//! the program uses about two of hundreds.
//!
//! Knows: the lines of each entry in an embedded file, and the names in them. Knows nothing about the meaning of
//! names.

use crate::accelerator::Accelerator;
use crate::catalog::ModelEntry;
use crate::error::{Error, Result};
use crate::preset::Preset;
use memchr::{memchr, memmem};
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Contents of a whole catalog file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default, rename = "accelerator")]
    pub(super) accelerators: Vec<Accelerator>,
    #[serde(default, rename = "model")]
    pub(super) models: Vec<ModelEntry>,
    #[serde(default, rename = "workload")]
    pub(super) workloads: Vec<Preset>,
}

impl File {
    /// Reads and checks a file; `place` names it in errors.
    pub(super) fn parse(place: &str, text: &str) -> Result<File> {
        let mut file: File = toml::from_str(text).map_err(|e| Error::toml(place, text, "", &e))?;
        file.accelerators = file.accelerators.into_iter().flat_map(Accelerator::expanded).collect();
        file.accelerators.iter().try_for_each(|a| a.check(place))?;
        file.workloads.iter().try_for_each(|w| w.check(place))?;
        Ok(file)
    }
}

/// Kind of entry, which corresponds to one array of tables in a catalog file.
pub(super) trait Entry: Clone {
    /// Name of the array of tables, as in `[[model]]`.
    const TABLE: &'static str;
    /// Id of the entry.
    fn id(&self) -> &str;
    /// Further names of the entry.
    fn aliases(&self) -> Vec<String>;
    /// Takes the entries of this kind from a file.
    fn of(file: File) -> Vec<Self>;
}

impl Entry for Accelerator {
    const TABLE: &'static str = "accelerator";

    fn id(&self) -> &str {
        &self.id
    }

    /// Returns the aliases, with the maker's name as a further alias.
    fn aliases(&self) -> Vec<String> {
        self.aliases.iter().chain([&self.name]).cloned().collect()
    }

    fn of(file: File) -> Vec<Accelerator> {
        file.accelerators
    }
}

impl Entry for ModelEntry {
    const TABLE: &'static str = "model";

    fn id(&self) -> &str {
        &self.id
    }

    fn aliases(&self) -> Vec<String> {
        self.aliases.clone()
    }

    fn of(file: File) -> Vec<ModelEntry> {
        file.models
    }
}

impl Entry for Preset {
    const TABLE: &'static str = "workload";

    fn id(&self) -> &str {
        &self.id
    }

    fn aliases(&self) -> Vec<String> {
        Vec::new()
    }

    fn of(file: File) -> Vec<Preset> {
        file.workloads
    }
}

/// Lines of one table of an embedded file, and its entries once one of them has been requested.
#[derive(Debug)]
struct TableLines<T> {
    file: &'static str,
    text: &'static str,
    entries: OnceLock<Result<Vec<T>>>,
}

/// Entry of the catalog with its names.
#[derive(Debug)]
pub(super) struct Slot<T> {
    pub(super) id: Cow<'static, str>,
    pub(super) aliases: Vec<Cow<'static, str>>,
    lines: Arc<TableLines<T>>,
    /// Position among the entries that share these lines: an accelerator and its memory options do.
    at: usize,
}

impl<T: Entry> Slot<T> {
    fn read(entry: T) -> Slot<T> {
        let id = entry.id().to_owned();
        let aliases = entry.aliases();
        let lines = TableLines { file: "", text: "", entries: OnceLock::from(Ok(vec![entry])) };
        Slot {
            id: id.into(),
            aliases: aliases.into_iter().map(Cow::from).collect(),
            lines: Arc::new(lines),
            at: 0,
        }
    }

    /// Returns the id and the aliases.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.id).chain(&self.aliases).map(Cow::as_ref)
    }

    /// True for an embedded entry; a user's entry has no lines.
    pub(super) fn is_embedded(&self) -> bool {
        !self.lines.text.is_empty()
    }

    /// True if both are memory options of one accelerator.
    pub(super) fn beside(&self, other: &Slot<T>) -> bool {
        Arc::ptr_eq(&self.lines, &other.lines)
    }

    /// Returns the entry, parsed at the first call.
    pub(super) fn get(&self) -> Result<&T> {
        let TableLines { file, text, entries } = self.lines.as_ref();
        let place = || format!("catalog/{file}: {}", self.id);
        let parsed = entries.get_or_init(|| Ok(T::of(File::parse(&place(), text)?)));
        let entry = parsed.as_ref().map_err(Clone::clone)?.get(self.at);
        let message = || format!("no [[{}]] there", T::TABLE);
        entry.ok_or_else(|| Error::Parse { place: place(), message: message() })
    }
}

/// Entries in catalog order; of two entries with one id the later replaces the earlier.
#[derive(Debug, Clone)]
pub(super) struct Entries<T>(Vec<Arc<Slot<T>>>);

impl<T> Default for Entries<T> {
    fn default() -> Entries<T> {
        Entries(Vec::new())
    }
}

impl<T: Entry> Entries<T> {
    /// Adds an entry.
    pub(super) fn add(&mut self, entry: T) {
        self.0.push(Arc::new(Slot::read(entry)));
    }

    /// Adds the entries of an embedded file without parsing them.
    pub(super) fn scan(&mut self, file: &'static str, text: &'static str) -> Result<()> {
        for text in tables(text, T::TABLE) {
            let head = Head::of(text);
            let Some(id) = quoted(head.id, b'\n').next() else {
                let place = format!("catalog/{file}");
                let message = format!("a [[{}]] without id", T::TABLE);
                return Err(Error::Parse { place, message });
            };
            let aliases = quoted(head.aliases, b']').chain(quoted(head.name, b'\n').take(1));
            let mut named = vec![(id, aliases.map(Cow::from).collect::<Vec<_>>())];
            for option in head.memory_options() {
                let value = |key| option.split_once(key).map_or("", |(_, value)| value);
                let first = |key| quoted(value(key), b'\n').next().unwrap_or_default();
                let aliases = quoted(value(" aliases = ["), b']').chain([first(" name = ")]);
                named.push((first(" id = "), aliases.map(Cow::from).collect()));
            }
            let lines = Arc::new(TableLines { file, text, entries: OnceLock::new() });
            let slots = named.into_iter().enumerate().map(|(at, (id, aliases))| {
                Arc::new(Slot { id: id.into(), aliases, lines: Arc::clone(&lines), at })
            });
            self.0.extend(slots);
        }
        Ok(())
    }

    /// Adds the entries of `other`.
    pub(super) fn extend(&mut self, other: Entries<T>) {
        self.0.extend(other.0);
    }

    /// Iterates over the entries from last to first.
    pub(super) fn rev(&self) -> impl Iterator<Item = &Slot<T>> {
        self.0.iter().rev().map(Arc::as_ref)
    }

    /// Iterates over the entries in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.0.iter().map(Arc::as_ref)
    }

    /// Parses and returns all entries.
    pub(super) fn all(&self) -> Result<Vec<&T>> {
        self.iter().map(Slot::get).collect()
    }
}

/// Splits a file into the lines of each `[[table]]`, sub-tables included.
fn tables<'a>(text: &'a str, table: &str) -> Vec<&'a str> {
    let begins = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    let header = format!("[[{table}]]\n");
    let mut starts: Vec<usize> =
        memmem::find_iter(text.as_bytes(), header.as_bytes()).filter(begins).collect();
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Keys of a table that hold the entry's names, each as the text that begins at its value; empty for an absent key.
#[derive(Debug, Default)]
struct Head<'a> {
    id: &'a str,
    aliases: &'a str,
    name: &'a str,
    memory_options: &'a str,
}

impl<'a> Head<'a> {
    /// Finds the keys in a table's text, whose first line is its header and whose keys end where a sub-table begins.
    fn of(text: &'a str) -> Head<'a> {
        let mut head = Head::default();
        let mut rest = text;
        while let Some(end) = memchr(b'\n', rest.as_bytes()) {
            rest = &rest[end + 1..];
            let keys = [
                ("id = ", &mut head.id),
                ("aliases = [", &mut head.aliases),
                ("name = ", &mut head.name),
                ("memory_options = [", &mut head.memory_options),
            ];
            match rest.as_bytes().first() {
                Some(b'[') => break,
                Some(b'i' | b'a' | b'n' | b'm') => {
                    for (key, value) in keys {
                        *value = rest.strip_prefix(key).unwrap_or(*value);
                    }
                }
                _ => {}
            }
        }
        head
    }

    /// Inline tables of an accelerator's `memory_options`, each of which is an entry of its own.
    fn memory_options(&self) -> impl Iterator<Item = &'a str> {
        let list = self.memory_options;
        let list = list.split_once("\n]").map_or(list, |(list, _)| list);
        list.split('{').skip(1)
    }
}

/// Strings of a value up to `end`: the end of its line, or of its list.
fn quoted(value: &str, end: u8) -> impl Iterator<Item = &str> {
    let end = memchr(end, value.as_bytes()).unwrap_or(value.len());
    value[..end].split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_end_where_the_next_begins() {
        let text = "# head\n[[model]]\nid = \"a\"\naliases = [\n  \"b\",\n  \"c\",\n]\n[model.config]\nid = \"no\"\n[[model]]\nid = \"d\"\n";
        let entries = tables(text, "model");
        assert_eq!(entries.len(), 2);
        assert!(entries[0].ends_with("id = \"no\"\n") && entries[1] == "[[model]]\nid = \"d\"\n");
        let head = Head::of(entries[0]);
        assert_eq!(quoted(head.aliases, b']').collect::<Vec<_>>(), ["b", "c"]);
        // Keys of a sub-table do not belong to the entry.
        assert_eq!(quoted(head.id, b'\n').collect::<Vec<_>>(), ["a"]);
        assert_eq!((head.name, head.memory_options), ("", ""));
        assert!(tables(text, "accelerator").is_empty());
    }
}
