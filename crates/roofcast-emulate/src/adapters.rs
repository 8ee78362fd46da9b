//! LoRA adapters of one server: loaded and unloaded while the server runs, requested by their names as models.
//!
//! Knows: names and paths, with the checks and messages of vLLM 0.32 (`entrypoints/openai/models/serving.py`). Weights
//! are not read. Knows nothing about engines, which identify adapters by number.

use super::fields::Fields;
use super::refusal::Refusal;
use hyper::StatusCode;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A loaded adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adapter {
    /// Number of the adapter, counted from 1, as vLLM counts adapters.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) path: String,
}

/// The adapters of one server.
#[derive(Debug)]
pub(crate) struct Adapters {
    /// Names of the base model.
    bases: Vec<String>,
    loaded: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    adapters: BTreeMap<String, Arc<Adapter>>,
    /// Number of adapters loaded so far, for numbering.
    given: u32,
}

/// vLLM's type of error for an invalid adapter.
const INVALID: &str = "InvalidUserInput";

impl Adapters {
    /// The adapters that a server starts with; `modules` are names and paths.
    pub(crate) fn new(bases: Vec<String>, modules: &[(String, String)]) -> Adapters {
        let adapters = Adapters { bases, loaded: Mutex::default() };
        modules.iter().for_each(|(name, path)| adapters.put(name, path));
        adapters
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, name: &str, path: &str) {
        let mut state = self.state();
        let known = state.adapters.get(name).map(|adapter| adapter.number);
        let number = known.unwrap_or(state.given + 1);
        state.given = state.given.max(number);
        let adapter = Adapter { number, name: name.to_owned(), path: path.to_owned() };
        state.adapters.insert(name.to_owned(), Arc::new(adapter));
    }

    /// The loaded adapter of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Adapter>> {
        self.state().adapters.get(name).cloned()
    }

    /// All loaded adapters, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<Adapter>> {
        self.state().adapters.values().cloned().collect()
    }

    /// Loads the adapter that a request's body names; returns vLLM's message of success.
    pub(crate) fn load(&self, body: &[u8]) -> Result<String, Refusal> {
        let fields = Fields::parse(body)?;
        let text = |field: &str| fields.string(field).map(|found| found.unwrap_or_default().to_owned());
        let name = text("lora_name")?;
        let path = text("lora_path")?;
        let invalid = |message: String| Err(Refusal::named(StatusCode::BAD_REQUEST, INVALID, message));
        if name.is_empty() || path.is_empty() {
            return invalid("Both 'lora_name' and 'lora_path' must be provided.".to_owned());
        }
        if self.bases.contains(&name) {
            return invalid(format!("The lora adapter '{name}' conflicts with a served base model."));
        }
        if !fields.flag("load_inplace")?.unwrap_or(false) && self.get(&name).is_some() {
            return invalid(format!(
                "The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set \
                 'load_inplace' to True."
            ));
        }
        self.put(&name, &path);
        Ok(format!("Success: LoRA adapter '{name}' added successfully."))
    }

    /// Unloads the adapter that a request's body names; its requests in progress continue. Returns vLLM's message of
    /// success.
    pub(crate) fn unload(&self, body: &[u8]) -> Result<String, Refusal> {
        let fields = Fields::parse(body)?;
        let name = fields.string("lora_name")?.unwrap_or_default();
        if name.is_empty() {
            let message = "'lora_name' needs to be provided to unload a LoRA adapter.".to_owned();
            return Err(Refusal::named(StatusCode::BAD_REQUEST, INVALID, message));
        }
        if self.state().adapters.remove(name).is_none() {
            let message = format!("The lora adapter '{name}' cannot be found.");
            return Err(Refusal::named(StatusCode::NOT_FOUND, "NotFoundError", message));
        }
        Ok(format!("Success: LoRA adapter '{name}' removed successfully."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_an_adapters_own() {
        let adapters = Adapters::new(vec!["base".into()], &[("a".into(), "/a".into())]);
        assert!(adapters.load(br#"{"lora_name": "b", "lora_path": "/b"}"#).is_ok());
        assert_eq!(adapters.get("b").unwrap().number, 2);
        let again = br#"{"lora_name": "a", "lora_path": "/c", "load_inplace": true}"#;
        assert!(adapters.load(again).is_ok());
        assert_eq!((adapters.get("a").unwrap().number, adapters.get("a").unwrap().path.as_str()), (1, "/c"));
        assert!(adapters.unload(br#"{"lora_name": "b"}"#).is_ok());
        assert!(adapters.load(br#"{"lora_name": "d", "lora_path": "/d"}"#).is_ok());
        assert_eq!(adapters.get("d").unwrap().number, 3);
        for wrong in
            [r#"{"lora_name": "a", "lora_path": "/a"}"#, r#"{"lora_name": "base", "lora_path": "/"}"#, "{}"]
        {
            assert_eq!(adapters.load(wrong.as_bytes()).unwrap_err().status, StatusCode::BAD_REQUEST);
        }
        assert_eq!(adapters.unload(br#"{"lora_name": "b"}"#).unwrap_err().status, StatusCode::NOT_FOUND);
    }
}
