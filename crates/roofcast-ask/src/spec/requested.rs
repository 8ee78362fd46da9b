//! The keys of `[engine]` that a spec sets.

use super::EngineSpec;
use super::keys::{KEYS, SpecKey};
use super::settings::get;
use toml::{Table, Value};

impl EngineSpec {
    /// Keys of `[engine]` and of its sections that differ from an empty spec, with their values, in the order of
    /// [`KEYS`]. Sections of engines that do not count are left out.
    pub(crate) fn requested(&self) -> Vec<(&'static SpecKey, Value)> {
        let written = table(&self.own());
        let empty = table(&EngineSpec::default());
        let differs = |key: &'static SpecKey| {
            let value = get(&written, key.path).filter(|value| get(&empty, key.path) != Some(*value))?;
            Some((key, value.clone()))
        };
        KEYS.iter().filter(|key| key.section() == "engine").filter_map(differs).collect()
    }
}

/// The section as it stands in a spec. Its numbers come from TOML, so that it can be written.
fn table(spec: &EngineSpec) -> Table {
    let section = Value::try_from(spec).unwrap_or_else(|_| Table::new().into());
    Table::from_iter([("engine".to_owned(), section)])
}
