//! Lines of listings, one for each entry, read from `catalog/index.csv` without parsing the entry.
//!
//! Knows: the facts of an entry that a line shows. A test compares the file with the entries and `UPDATE_INDEX=1
//! cargo test -p roofcast the_index` rewrites it. Entries of a user's file have no line there and are parsed instead.

use super::{Catalog, ModelEntry};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::model::config;
use crate::precision::Dtype;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

const PLACE: &str = "catalog/index.csv";
const TEXT: &str = include_str!("../../catalog/index.csv");

/// Kind of entry that a line describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// An accelerator.
    Accelerator,
    /// A model.
    Model,
}

/// The facts of one entry in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EntryLine {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// The entry's id.
    pub id: String,
    /// Family of a model (`model_type`), or generation of an accelerator.
    pub family: String,
    /// Maker of an accelerator, or organisation of a model.
    pub vendor: String,
    /// Bytes of an accelerator's nominal memory, or of a model's weights as published.
    pub bytes: u64,
    /// Number formats, as in `fp16+fp8`: those in which an accelerator computes, or in which a model's weights are
    /// published.
    pub formats: String,
    /// Parameters of a model.
    pub parameters: Option<u64>,
    /// Parameters of a model that are active per token.
    pub active: Option<u64>,
    /// Price of an accelerator in dollars per hour.
    pub usd_per_hour: Option<f64>,
    /// Memory bandwidth of an accelerator in bytes per second.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Dense peak FLOP/s in 16-bit formats.
    pub sixteen_bit: Option<f64>,
    /// Dense peak FLOP/s in the faster 8-bit format: a TPU v6e has twice as many in int8 as in fp8.
    pub eight_bit: Option<f64>,
    /// Dense peak FLOP/s in 4-bit formats.
    pub four_bit: Option<f64>,
    /// Name of the link within a node.
    pub link: Option<String>,
    /// Rate of the link in bytes per second, in one direction.
    pub link_bytes_per_s: Option<f64>,
    /// Number of accelerators that the link joins.
    pub node_size: Option<u64>,
}

/// Line of a listing, with all names of its entry.
#[derive(Debug, Clone)]
pub struct ListedEntry<'a> {
    /// Facts of the entry.
    pub line: Cow<'a, EntryLine>,
    /// Id and aliases.
    pub names: Vec<&'a str>,
}

impl EntryLine {
    /// Makes the line of an accelerator.
    pub fn accelerator(chip: &Accelerator) -> EntryLine {
        let rates = |dtypes: [Dtype; 2]| dtypes.map(|d| chip.peak_flops.get(&d).map(|r| r.0));
        let fastest = |dtypes| rates(dtypes).into_iter().flatten().max_by(f64::total_cmp);
        EntryLine {
            kind: EntryKind::Accelerator,
            id: chip.id.clone(),
            family: chip.architecture.clone(),
            vendor: chip.vendor.clone(),
            bytes: chip.memory_bytes.0,
            formats: chip.peak_flops.keys().map(|d| d.name()).collect::<Vec<_>>().join("+"),
            parameters: None,
            active: None,
            usd_per_hour: chip.price.as_ref().map(|p| p.usd_per_hour),
            bandwidth_bytes_per_s: Some(chip.bandwidth_bytes_per_s.0),
            sixteen_bit: rates([Dtype::Bf16, Dtype::Fp16]).into_iter().flatten().next(),
            eight_bit: fastest([Dtype::Fp8, Dtype::Int8]),
            four_bit: fastest([Dtype::Fp4, Dtype::Int4]),
            link: chip.link.as_ref().map(|l| l.kind.clone()),
            link_bytes_per_s: chip.link.as_ref().map(|l| l.bytes_per_s.0),
            node_size: Some(chip.node_size),
        }
    }

    /// Makes the line of a model.
    pub(crate) fn model(entry: &ModelEntry) -> Result<EntryLine> {
        let model = config::read(&entry.id, &format!("catalog entry {}", entry.id), &entry.config)?;
        let parameters = model.parameters();
        Ok(EntryLine {
            kind: EntryKind::Model,
            id: entry.id.clone(),
            family: model.architecture.clone(),
            vendor: entry.id.split_once('/').map_or("", |(organisation, _)| organisation).to_owned(),
            bytes: model.weight_bytes().0,
            formats: model.weight_formats().join("+"),
            parameters: Some(parameters.total),
            active: Some(parameters.active),
            usd_per_hour: None,
            bandwidth_bytes_per_s: None,
            sixteen_bit: None,
            eight_bit: None,
            four_bit: None,
            link: None,
            link_bytes_per_s: None,
            node_size: None,
        })
    }

    /// Bytes of an accelerator's memory or of a model's weights.
    pub fn size(&self) -> Bytes {
        Bytes(self.bytes)
    }
}

impl Catalog {
    /// A line for each accelerator and each model, in catalog order.
    pub fn listing(&self) -> Result<Vec<ListedEntry<'_>>> {
        let mut known = index()?;
        let mut all = Vec::new();
        for slot in self.accelerators.iter() {
            let line = match known.remove(slot.id.as_ref()).filter(|_| slot.is_embedded()) {
                Some(line) => line,
                None => EntryLine::accelerator(slot.get()?),
            };
            all.push(ListedEntry { line: Cow::Owned(line), names: slot.names().collect() });
        }
        for slot in self.models.iter() {
            let line = match known.remove(slot.id.as_ref()).filter(|_| slot.is_embedded()) {
                Some(line) => line,
                None => EntryLine::model(slot.get()?)?,
            };
            all.push(ListedEntry { line: Cow::Owned(line), names: slot.names().collect() });
        }
        Ok(all)
    }
}

/// The embedded lines by id.
fn index() -> Result<BTreeMap<String, EntryLine>> {
    let failed = |e: csv::Error| Error::Parse { place: PLACE.into(), message: e.to_string() };
    let lines = csv::Reader::from_reader(TEXT.as_bytes()).into_deserialize::<EntryLine>();
    lines.map(|line| line.map(|l| (l.id.clone(), l)).map_err(failed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `catalog/index.csv` equals the generated text byte for byte, in catalog order.
    #[test]
    fn the_index_says_what_the_entries_say() {
        let catalog = Catalog::embedded().unwrap();
        let mut writer = csv::Writer::from_writer(Vec::new());
        for chip in catalog.accelerators().unwrap() {
            writer.serialize(EntryLine::accelerator(chip)).unwrap();
        }
        for entry in catalog.models().unwrap() {
            writer.serialize(EntryLine::model(entry).unwrap()).unwrap();
        }
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        if std::env::var_os("UPDATE_INDEX").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/index.csv"), &text).unwrap();
        } else {
            assert!(text == TEXT, "UPDATE_INDEX=1 cargo test -p roofcast the_index writes catalog/index.csv");
        }
    }

    #[test]
    fn a_users_entry_is_read() {
        let mut mine = Catalog::embedded().unwrap().clone();
        let mut changed = mine.accelerator("rtx-4090").unwrap().clone();
        changed.node_size = 3;
        mine.accelerators.add(changed);
        let lines = mine.listing().unwrap();
        let node_sizes: Vec<_> =
            lines.iter().filter(|l| l.line.id == "rtx-4090").map(|l| l.line.node_size).collect();
        assert_eq!(node_sizes, [Some(8), Some(3)]);
    }
}
