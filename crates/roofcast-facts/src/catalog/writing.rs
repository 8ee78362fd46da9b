//! A catalog entry from a `config.json`: only the keys that decide parameters, memory and work.
//!
//! Knows: a key decides something if the model parsed without it differs. Knows nothing about files.

use crate::error::{Error, Result};
use crate::model::{Model, config};
use serde::Serialize;
use serde_json::Value;

/// Most keys of an object from which keys are removed one by one. Larger objects are lists of modules and are kept
/// whole, because the test of each key parses the model once.
const MOST_KEYS: usize = 256;
/// Keys that are always kept, because they define the meaning of other keys.
const KEPT: [&str; 1] = ["model_type"];

#[derive(Serialize)]
struct Document<'a> {
    model: [Entry<'a>; 1],
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'a str,
    source: &'a str,
    config: &'a Value,
}

/// Parses the text of a `config.json`; `place` names the file in errors. `beside` is the text of NVIDIA's
/// `hf_quant_config.json`, whose keys fill those that the config lacks.
pub fn read_config(place: &str, text: &str, beside: Option<&str>) -> Result<Value> {
    let mut config = config::parse_json(place, text)?;
    let theirs = beside.map(|text| config::parse_json("hf_quant_config.json", text)).transpose()?;
    let theirs = theirs.and_then(|mut value| value.get_mut("quantization").map(Value::take));
    if let (Some(Value::Object(theirs)), Some(ours)) = (theirs, config.as_object_mut()) {
        match ours.get_mut("quantization_config").and_then(Value::as_object_mut) {
            // `hf_quant_config.json` alone may state the KV format.
            Some(section) if section.contains_key("kv_cache_scheme") => {}
            Some(section) => {
                section.extend(theirs.into_iter().filter(|(key, _)| key == "kv_cache_quant_algo"))
            }
            None => drop(ours.insert("quantization_config".to_owned(), Value::Object(theirs))),
        }
    }
    config::complete(&mut config);
    Ok(config)
}

/// TOML of the entry `id` with the deciding keys of `config`, which was read from `source`. The entry and the whole
/// config give equal models.
pub fn write_entry(id: &str, source: &str, config: &Value) -> Result<String> {
    let whole = config::read(id, source, config)?;
    let mut entry_keys = config.clone();
    without_nulls(&mut entry_keys);
    let same = |now: &Value| config::read(id, source, now).is_ok_and(|model: Model| model == whole);
    for path in paths(&entry_keys) {
        let mut now = entry_keys.clone();
        if remove(&mut now, &path) && same(&now) {
            entry_keys = now;
        }
    }
    if !same(&entry_keys) {
        return Err(Error::field(source, "config", "keys whose null matters", "a config.json without them"));
    }
    toml::to_string(&Document { model: [Entry { id, source, config: &entry_keys }] })
        .map_err(|e| Error::Parse { place: source.into(), message: e.to_string() })
}

/// Removes null values: TOML has no null, and a null key counts as absent.
fn without_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, v| !v.is_null());
        map.values_mut().for_each(without_nulls);
    }
}

/// Paths of all keys to a depth of two, the keys of an object before the keys inside them.
fn paths(config: &Value) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let Value::Object(map) = config else { return all };
    for (key, value) in map.iter().filter(|(key, _)| !KEPT.contains(&key.as_str())) {
        all.push(vec![key.clone()]);
        let Value::Object(inner) = value else { continue };
        let inside = inner.keys().filter(|k| inner.len() <= MOST_KEYS && !KEPT.contains(&k.as_str()));
        all.extend(inside.map(|k| vec![key.clone(), k.clone()]));
    }
    all
}

/// Removes the key at `path`; true if it was present.
fn remove(config: &mut Value, path: &[String]) -> bool {
    let Some((last, above)) = path.split_last() else { return false };
    let mut at = config;
    for key in above {
        let Some(next) = at.get_mut(key) else { return false };
        at = next;
    }
    at.as_object_mut().is_some_and(|map| map.remove(last).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;
    use serde_json::json;

    #[test]
    fn keys_that_decide_nothing_go() {
        let config = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
            "bos_token_id": null, "transformers_version": "5.0", "architectures": ["LlamaForCausalLM"],
            "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64, "damp": 0.1, "sym": true}
        });
        let text = write_entry("me/tiny", "tiny/config.json", &config).unwrap();
        for gone in ["rms_norm_eps", "bos_token_id", "transformers_version", "architectures", "damp"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        let catalog = Catalog::parse("mine.toml", &text).unwrap();
        let written = catalog.named("me/tiny").unwrap().model().unwrap();
        assert_eq!(written, config::read("me/tiny", "c", &config).unwrap());
    }

    #[test]
    fn what_is_no_model_is_refused() {
        assert!(write_entry("x", "c.json", &json!([])).is_err());
        let message = write_entry("x", "c.json", &json!({"model_type": "llama"})).unwrap_err().to_string();
        assert!(message.starts_with("c.json: `num_hidden_layers`"), "{message}");
    }
}
