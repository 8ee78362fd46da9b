//! Metadata of one architecture in a GGUF file, and the keys of a `config.json` that are made of it.
//!
//! Knows: types of values, and names of tensors. Knows nothing about the meaning of keys.

use super::Header;
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Most layers that are accepted, more than any model has.
const MOST_LAYERS: u64 = 2048;

/// Keys of one architecture, and the names of the tensors.
pub(super) struct Metadata<'a> {
    /// Place of the file, for errors.
    pub(super) place: &'a str,
    pub(super) architecture: &'a str,
    header: &'a Header,
    tensors: HashSet<&'a str>,
    /// Number of layers, except layers that predict further tokens.
    pub(super) layers: u64,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(place: &'a str, architecture: &'a str, header: &'a Header) -> Result<Metadata<'a>> {
        let tensors = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let mut metadata = Metadata { place, architecture, header, tensors, layers: 0 };
        let blocks = metadata.count("block_count").unwrap_or(0);
        if blocks > MOST_LAYERS {
            return Err(metadata.bad("block_count", blocks, format!("1 to {MOST_LAYERS}")));
        }
        metadata.layers = blocks.saturating_sub(metadata.count("nextn_predict_layers").unwrap_or(0));
        Ok(metadata)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.header.metadata.get(&format!("{}.{key}", self.architecture))
    }

    /// Number under `key`.
    pub(super) fn count(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// Numbers under `key`, layer by layer, if it is a list; a flag is 0 or 1.
    pub(super) fn list(&self, key: &str) -> Option<Vec<u64>> {
        let number = |value: &Value| value.as_u64().or(value.as_bool().map(u64::from));
        let list: Option<Vec<u64>> = self.get(key)?.as_array()?.iter().map(number).collect();
        list.filter(|list| list.len() as u64 >= self.layers)
    }

    /// True if layer `layer` has a tensor of this name, as in `ffn_gate_inp.weight`.
    pub(super) fn has(&self, layer: u64, tensor: &str) -> bool {
        self.tensors.contains(format!("blk.{layer}.{tensor}").as_str())
    }

    /// Layers with a tensor of this name.
    pub(super) fn layers_with(&self, tensor: &str) -> Vec<u64> {
        (0..self.layers).filter(|layer| self.has(*layer, tensor)).collect()
    }

    /// Shape of a tensor.
    pub(super) fn shape(&self, name: &str) -> Option<&[u64]> {
        self.header.tensors.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.shape.as_slice())
    }

    /// The error for a value of `key`.
    pub(super) fn bad(
        &self,
        key: &str,
        value: impl std::fmt::Display,
        accepted: impl std::fmt::Display,
    ) -> Error {
        Error::field(self.place, format!("{}.{key}", self.architecture), value, accepted)
    }
}

/// Keys of a `config.json`, as they are set one by one.
pub(super) struct Config(pub(super) Map<String, Value>);

impl Config {
    /// Sets `key` if there is a value.
    pub(super) fn set(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value.into());
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }
}
