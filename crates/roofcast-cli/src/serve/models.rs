//! Models that were dropped on the page: a GGUF's header, or a `config.json` with its accompanying files.
//!
//! Knows: the last few models, in memory, under unique names. Nothing is written, and a restart forgets them.

use super::question::PLACE;
use anyhow::Result;
use roofcast::checkpoint::{compare, gguf, safetensors};
use roofcast::model::config;
use roofcast::{Error, Model};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Most models that are kept; a further one replaces the oldest.
const KEPT: usize = 16;
/// Most characters of a model's name.
const MOST_NAME: usize = 80;

/// The models that were dropped last, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Models(Mutex<VecDeque<Arc<Model>>>);

/// A dropped `config.json` with its accompanying files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dropped {
    /// Name of the model for people.
    name: String,
    /// Text of `config.json`.
    config: String,
    /// Headers of `.safetensors` files.
    #[serde(default)]
    headers: Vec<Header>,
    /// Text of `model.safetensors.index.json`.
    index: Option<String>,
}

/// The JSON header at the start of a `.safetensors` file, and the file's size in bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    text: String,
    length: u64,
}

/// Description of a stored model for the page.
#[derive(Debug, Serialize)]
pub(super) struct Known {
    /// Name by which questions refer to the model.
    id: String,
    family: String,
    parameters: u64,
    active: u64,
    max_context: Option<u64>,
    formats: String,
    notes: Vec<String>,
}

impl Models {
    /// All stored models, for resolving a question.
    pub(super) fn all(&self) -> Vec<Arc<Model>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn keep(&self, model: Model) -> Known {
        let parameters = model.parameters();
        let known = Known {
            id: model.name.clone(),
            family: model.architecture.clone(),
            parameters: parameters.total,
            active: parameters.active,
            max_context: model.max_context,
            formats: model.weight_formats().join("+"),
            notes: model.assumptions.clone(),
        };
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|other| other.name != model.name);
        models.push_back(Arc::new(model));
        if models.len() > KEPT {
            models.pop_front();
        }
        known
    }

    /// Stores the model of a GGUF, from the header at the start of the file.
    pub(super) fn gguf(&self, name: &str, bytes: &[u8]) -> Result<Known> {
        let header = gguf::header(name, bytes)?;
        Ok(self.keep(gguf::model(&id(name, bytes), name, &header)?))
    }

    /// Stores the model of a config with its accompanying files.
    pub(super) fn config(&self, dropped: &Dropped) -> Result<Known> {
        let mut model =
            config::parse(&id(&dropped.name, dropped.config.as_bytes()), "config.json", &dropped.config)?;
        let mut tensors = Vec::new();
        for file in &dropped.headers {
            let framed = [&(file.text.len() as u64).to_le_bytes(), file.text.as_bytes()].concat();
            tensors.extend(safetensors::header(&file.name, file.length, framed.as_slice())?);
        }
        if !tensors.is_empty() {
            let notes = compare::differences(&model, &tensors).into_iter().map(|d| {
                format!("{}: {} parameters by the config, {} in the files", d.place, d.config, d.file)
            });
            model.assumptions.extend(notes.take(KEPT));
        }
        if let Some(index) = &dropped.index {
            let parsed: Value = serde_json::from_str(index)
                .map_err(|e| Error::field(PLACE, "index", e, "model.safetensors.index.json"))?;
            let ours = model.weight_bytes().0;
            let theirs = parsed["metadata"]["total_size"].as_u64();
            model.assumptions.extend(theirs.filter(|theirs| *theirs != ours).map(|theirs| {
                format!("the index counts {theirs} bytes of weights, the config's formats come to {ours}")
            }));
        }
        Ok(self.keep(model))
    }
}

/// A name that no catalog entry has: the file's name with a hash of its contents.
fn id(name: &str, bytes: &[u8]) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MOST_NAME).collect();
    let mark: String = Sha256::digest(bytes).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("dropped:{mark}:{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(layers: u64) -> Dropped {
        let config = format!(
            r#"{{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": {layers},
            "num_attention_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16"}}"#
        );
        let index = Some(r#"{"metadata": {"total_size": 5}}"#.to_owned());
        Dropped { name: "config.json".to_owned(), config, headers: Vec::new(), index }
    }

    #[test]
    fn the_last_ones_are_kept_by_what_they_hold() {
        let models = Models::default();
        let first = models.config(&dropped(1)).unwrap();
        assert_eq!(models.config(&dropped(1)).unwrap().id, first.id);
        assert_eq!(models.all().len(), 1);
        assert!(first.notes.iter().any(|note| note.contains("counts 5 bytes")), "{:?}", first.notes);
        (2..=KEPT as u64 + 1).for_each(|layers| drop(models.config(&dropped(layers)).unwrap()));
        assert_eq!(models.all().len(), KEPT);
        assert!(models.all().iter().all(|model| model.name != first.id));
    }
}
