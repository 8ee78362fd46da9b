//! Sections of engines within `[engine]` of a table, before it is parsed.
//!
//! Knows: other spellings of a section's name, and that a key that one engine has may stand in `[engine]` itself. Knows
//! nothing about values.

use super::keys::{KEYS, SpecKey};
use super::release::EngineKind;
use roofcast_facts::error::{Error, Result};
use std::borrow::Borrow;
use std::hash::Hash;
use toml::map::Map;
use toml::{Spanned, Table, Value, de};

/// A value of TOML that may be a table: [`Value`], or a value with its place in a text.
pub(super) trait Node: Sized {
    /// Type of a table's keys.
    type Key: Ord + Hash + Borrow<str>;

    /// A key without a place.
    fn key(name: &'static str) -> Self::Key;

    /// A table without a place.
    fn empty() -> Self;

    /// The table, if the value is one.
    fn table(&mut self) -> Option<&mut Map<Self::Key, Self>>;
}

impl Node for Value {
    type Key = String;

    fn key(name: &'static str) -> String {
        name.to_owned()
    }

    fn empty() -> Value {
        Value::Table(Table::new())
    }

    fn table(&mut self) -> Option<&mut Table> {
        self.as_table_mut()
    }
}

impl<'i> Node for Spanned<de::DeValue<'i>> {
    type Key = Spanned<de::DeString<'i>>;

    fn key(name: &'static str) -> Self::Key {
        Spanned::new(0..0, name.into())
    }

    fn empty() -> Self {
        Spanned::new(0..0, de::DeValue::Table(Map::new()))
    }

    fn table(&mut self) -> Option<&mut Map<Self::Key, Self>> {
        match self.get_mut() {
            de::DeValue::Table(table) => Some(table),
            _ => None,
        }
    }
}

/// Spells the names of the engines' sections as [`KEYS`] does, as in `tensorrt-llm` for `trtllm`.
pub(super) fn spell<V: Node>(spec: &mut Map<V::Key, V>) {
    let Some(engine) = spec.get_mut("engine").and_then(V::table) else { return };
    let named = |name: &str| {
        let section = EngineKind::of(EngineKind::spelled(name)?).section();
        (section != name).then(|| (name.to_owned(), section))
    };
    let other: Vec<(String, &str)> = engine.keys().filter_map(|key| named(key.borrow())).collect();
    for (name, own) in other {
        // Two spellings of one section are left, so that the second is refused as unknown.
        if !engine.contains_key(own)
            && let Some(section) = engine.remove(name.as_str())
        {
            engine.insert(V::key(own), section);
        }
    }
}

/// Moves each key that one engine has from `[engine]` into the section of that engine; returns the moved keys.
///
/// # Errors
/// Fails for a key that stands in `[engine]` and in the section; `place` names the table in the error.
pub(super) fn nest<V: Node>(place: &str, spec: &mut Map<V::Key, V>) -> Result<Vec<&'static SpecKey>> {
    spell(spec);
    let mut moved = Vec::new();
    let Some(engine) = spec.get_mut("engine").and_then(V::table) else { return Ok(moved) };
    for key in KEYS {
        let Some(owner) = key.owner().filter(|_| engine.contains_key(key.name())) else { continue };
        let section = engine.entry(V::key(owner.section())).or_insert_with(V::empty);
        // A section that is no table is refused when the table is parsed.
        let Some(section) = section.table() else { continue };
        if section.contains_key(key.name()) {
            let conflict = format!("set, and so is `{}`, its other name", key.flat());
            return Err(Error::field(place, key.path, conflict, "one of the two"));
        }
        let Some((name, value)) = engine.remove_entry(key.name()) else { continue };
        if let Some(section) = engine.get_mut(owner.section()).and_then(V::table) {
            section.insert(name, value);
        }
        moved.push(key);
    }
    Ok(moved)
}

/// `table`, which parses as a spec, with each key in the section of the engine that has it.
pub fn nested(mut table: Table) -> Table {
    // The only error is a key that is set twice, which a spec refuses.
    drop(nest("spec", &mut table));
    table
}

/// `path` of an error in a table after [`nest`], as the table spelled it before.
pub(super) fn as_written(path: String, moved: &[&'static SpecKey]) -> String {
    moved.iter().find(|key| key.path == path).map_or(path, |key| key.flat())
}
