//! Endpoints of llama.cpp's server in addition to OpenAI's API.
//!
//! Source: answers recorded from llama.cpp b11434, and its `tools/server/README.md`.

use super::super::fields::Fields;
use super::super::response::said;
use super::{Answered, Service};
use serde_json::{Value, json};

/// Build of llama.cpp whose API is imitated.
const BUILD: &str = "b11434";

impl Service {
    /// `/tokenize`.
    pub(super) fn llama_tokenize(&self, body: &[u8]) -> Answered {
        let fields = Fields::parse(body)?;
        let text = fields.string("content")?.unwrap_or_default();
        let special = fields.flag("add_special")?.unwrap_or(false);
        let tokenizer = self.tokenizer();
        let tokens = if special { tokenizer.prompt(text)? } else { tokenizer.encode(text)? };
        Ok(said(&json!({ "tokens": tokens })))
    }

    fn slot_count(&self) -> u64 {
        self.fixed().map_or(1, |fixed| fixed.max_num_seqs)
    }

    /// `/props`.
    pub(super) fn props(&self) -> Value {
        let name = self.settings.names.first();
        json!({
            "default_generation_settings": {"params": {"n_predict": -1, "max_tokens": -1, "ignore_eos": false,
                "stream": false, "temperature": 1.0}, "n_ctx": self.max_model_len},
            "total_slots": self.slot_count(), "model_alias": name, "model_path": self.settings.root,
            "modalities": {"vision": false, "video": false, "audio": false}, "endpoint_slots": true,
            "endpoint_props": false, "endpoint_metrics": true, "ui": false, "chat_template": "",
            "bos_token": "", "eos_token": "", "build_info": BUILD, "is_sleeping": false,
        })
    }

    /// `/slots`: one slot per sequence that can run, and whether it has a request; without slots that keep prompts the
    /// first ones have, as many as requests run.
    pub(super) fn slots(&self) -> Value {
        let engines = self.group.engines();
        let running = engines.iter().map(|engine| engine.metrics().running()).sum::<u64>();
        let keeps = self.fixed().is_some_and(|fixed| fixed.enable_prefix_caching);
        let is_busy = |id: u64| engines.iter().any(|engine| engine.metrics().is_busy(id as usize));
        let slot = |id: u64| {
            json!({"id": id, "n_ctx": self.max_model_len, "speculative": false,
                "is_processing": if keeps { is_busy(id) } else { id < running }})
        };
        (0..self.slot_count()).map(slot).collect()
    }

    /// The list of models, in both forms that llama.cpp's server gives at once.
    pub(super) fn listed(&self) -> Value {
        let named = |name: &String| {
            json!({"name": name, "model": name, "modified_at": "", "size": "", "digest": "", "type": "model",
                "description": "", "tags": [""], "capabilities": ["completion"], "parameters": "",
                "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""],
                "parameter_size": "", "quantization_level": ""}})
        };
        let card = |name: &String| {
            json!({"id": name, "aliases": [name], "tags": [], "object": "model", "architecture": {
                "input_modalities": ["text"], "output_modalities": ["text"]}, "created": self.started,
                "owned_by": "llamacpp", "meta": {"n_ctx": self.max_model_len}})
        };
        let names = &self.settings.names;
        json!({"models": names.iter().map(named).collect::<Vec<_>>(), "object": "list",
            "data": names.iter().map(card).collect::<Vec<_>>()})
    }
}
