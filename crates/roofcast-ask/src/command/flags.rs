//! The flags of an engine's parser, the keys of a spec that they set, and the flags in a command.
//!
//! Knows: one table for each engine (`catalog/engines`), by which commands are read and written; forms that argparse accepts (`--flag value`, `--flag=value`, negated switches,
//! unique prefixes of names) and vLLM's notation of large numbers. Knows nothing about the meaning of flags.

use super::PLACE;
use crate::spec::keys::{self, ValueType};
use crate::spec::{EngineKind, number};
use roofcast_facts::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Value;

const VLLM: &str = include_str!("../../catalog/engines/vllm.toml");
const SGLANG: &str = include_str!("../../catalog/engines/sglang.toml");
const TENSORRT_LLM: &str = include_str!("../../catalog/engines/trtllm-serve.toml");
const LLAMA_CPP: &str = include_str!("../../catalog/engines/llama-server.toml");

/// Most names that an error suggests.
const SUGGESTIONS: usize = 3;

/// The flags that an engine's parser accepts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flags {
    #[serde(rename = "source")]
    _source: String,
    switches: Vec<String>,
    values: Vec<String>,
    unmodelled: Vec<String>,
    #[serde(default)]
    refused: Vec<String>,
    #[serde(default)]
    gone: Vec<String>,
    /// True if `--no-…` turns a switch off; else every switch is off unless it is given.
    #[serde(default)]
    pub(super) negatives: bool,
    /// True if the parser's names have underscores.
    #[serde(default)]
    underscores: bool,
    /// Flags of each key. A flag with a point is a field of a JSON object.
    keys: BTreeMap<String, Vec<String>>,
    /// Keys that no flag sets, with the reason.
    #[serde(default)]
    without: BTreeMap<String, String>,
}

/// A flag of a command, by its full name, with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Given {
    pub(super) flag: String,
    /// Name after the point of the flag, as `method` in `--speculative-config.method`.
    pub(super) field: Option<String>,
    pub(super) value: String,
}

impl Flags {
    pub(super) fn of(engine: EngineKind) -> Result<Flags> {
        let (place, text) = match engine {
            EngineKind::Vllm => ("catalog/engines/vllm.toml", VLLM),
            EngineKind::Sglang => ("catalog/engines/sglang.toml", SGLANG),
            EngineKind::TensorrtLlm => ("catalog/engines/trtllm-serve.toml", TENSORRT_LLM),
            EngineKind::LlamaCpp => ("catalog/engines/llama-server.toml", LLAMA_CPP),
            EngineKind::Transformers | EngineKind::Other => {
                let accepted = "vllm, sglang, tensorrt-llm or llama.cpp, which have servers";
                return Err(Error::field("engine", "name", engine.name(), accepted));
            }
        };
        toml::from_str(text).map_err(|e| Error::toml(place, text, "", &e))
    }

    /// The spec key of a flag, or the name under which the flag is handled separately.
    pub(super) fn key(&self, given: &Given) -> Option<&str> {
        let field = given.field.as_ref().map(|field| format!("{}.{field}", given.flag));
        let names = |flag: &&String| **flag == given.flag || field.as_ref() == Some(*flag);
        self.keys.iter().find(|(_, flags)| flags.iter().any(|flag| names(&flag))).map(|(key, _)| key.as_str())
    }

    /// The flag with which commands set a key, or the name of a flag that is handled separately. The error is the reason
    /// why there is none.
    pub(super) fn flag(&self, key: &str) -> std::result::Result<String, String> {
        let Some(flag) = self.keys.get(key).and_then(|flags| flags.first()) else {
            let reason = self.without.get(key).map_or("no flag sets it", String::as_str);
            return Err(format!("{key} cannot be set: {reason}"));
        };
        let Some(name) = flag.strip_prefix("--").filter(|_| self.underscores) else {
            return Ok(flag.clone());
        };
        Ok(format!("--{}", name.replace('-', "_")))
    }

    /// The fields of a flag whose value is a JSON object, each as if it had been given alone; other flags unchanged.
    pub(super) fn fields(&self, given: Given) -> Result<Vec<Given>> {
        let within = |flag: &String| flag.strip_prefix(&given.flag).is_some_and(|rest| rest.starts_with('.'));
        if given.field.is_some() || !self.keys.values().flatten().any(within) {
            return Ok(vec![given]);
        }
        let object: Option<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(&given.value).ok();
        let object = match object {
            // Other forms of the value, as a level of optimization, are not modelled.
            None if self.is_unmodelled(&given.flag) => return Ok(vec![given]),
            object => object.ok_or_else(|| wrong(&given, "a JSON object"))?,
        };
        let field = |(name, value): (String, serde_json::Value)| Given {
            flag: given.flag.clone(),
            field: Some(name),
            value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        };
        Ok(object.into_iter().map(field).collect())
    }

    /// Flags that have a spec key, each with that key.
    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().flat_map(|(key, flags)| flags.iter().map(move |flag| (flag.as_str(), key.as_str())))
    }

    /// True if the engine's parser accepts the flag.
    #[cfg(test)]
    pub(super) fn parses(&self, flag: &str) -> bool {
        let flag = flag.split('.').next().unwrap_or_default();
        self.switches.iter().chain(&self.values).any(|own| own == flag)
    }

    /// True if a flag changes the server's behaviour but no forecast models it.
    pub(super) fn is_unmodelled(&self, flag: &str) -> bool {
        self.unmodelled.iter().any(|f| f == flag)
    }

    /// True if only older versions of the engine accept the flag.
    pub(super) fn is_gone(&self, flag: &str) -> bool {
        self.gone.iter().any(|f| f == flag)
    }

    /// Returns an error for a flag that moves weights or KV cache to a place that no forecast models, unless its value
    /// changes nothing.
    pub(super) fn refuse(&self, given: &Given) -> Result<()> {
        let idle = ["0", "0.0", "1", "false"].contains(&given.value.as_str());
        if idle || !self.refused.contains(&given.flag) {
            return Ok(());
        }
        Err(wrong(given, "omitted: no forecast counts what it moves"))
    }

    /// The flags of a command with full names and values. A first word without dashes is the model for vLLM.
    pub(super) fn given(&self, engine: EngineKind, arguments: &[String]) -> Result<Vec<Given>> {
        let mut all: Vec<Given> = Vec::new();
        let mut words = arguments.iter().peekable();
        while let Some(word) = words.next() {
            if !is_flag(word) {
                let named = all.iter().any(|g| g.flag == "--model");
                if matches!(engine, EngineKind::Sglang | EngineKind::LlamaCpp) || named {
                    let accepted = "flags with their values, and for vllm serve one model";
                    return Err(Error::field(PLACE, "a word", format!("{word:?}"), accepted));
                }
                all.push(Given { flag: "--model".to_owned(), field: None, value: word.clone() });
                continue;
            }
            let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(n, v)| (n, Some(v)));
            let (name, field) = name.split_once('.').map_or((name, None), |(n, f)| (n, Some(f.to_owned())));
            let (flag, switch) = self.find(&name.replace('_', "-"))?;
            let value = match (switch, value) {
                (Some(on), None) => on.to_string(),
                (_, Some(value)) => value.to_owned(),
                (None, None) => {
                    let mut values = Vec::new();
                    while let Some(next) = words.next_if(|word| !is_flag(word)) {
                        values.push(next.as_str());
                    }
                    values.join(" ")
                }
            };
            all.push(Given { flag, field, value });
        }
        Ok(all)
    }

    /// The full name of a flag, and the value of a switch.
    fn find(&self, name: &str) -> Result<(String, Option<bool>)> {
        let is = |list: &[String], name: &str| list.iter().any(|flag| flag == name);
        let positive = name.strip_prefix("--no-").map(|rest| format!("--{rest}"));
        if is(&self.switches, name) {
            return Ok((name.to_owned(), Some(true)));
        }
        if is(&self.values, name) {
            return Ok((name.to_owned(), None));
        }
        if is(&self.gone, name) {
            return Ok((name.to_owned(), None));
        }
        if let Some(positive) = positive.filter(|positive| is(&self.switches, positive)) {
            return Ok((positive, Some(false)));
        }
        let all = || self.switches.iter().chain(&self.values);
        let beginning: Vec<&String> = all().filter(|flag| flag.starts_with(name) && name.len() > 2).collect();
        if let [only] = beginning.as_slice() {
            return Ok(((*only).clone(), is(&self.switches, only).then_some(true)));
        }
        // The time of the comparison is the product of both lengths.
        let beginning: String = name.chars().take(LONGEST_NAME).collect();
        let mut near: Vec<(f64, &String)> =
            all().map(|flag| (strsim::normalized_damerau_levenshtein(&beginning, flag), flag)).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let near: Vec<&str> = near.iter().take(SUGGESTIONS).map(|(_, flag)| flag.as_str()).collect();
        let accepted = format!("a flag of the engine's; did you mean {}?", near.join(", "));
        Err(Error::field(PLACE, name, "no flag of this engine", accepted))
    }
}

/// Most characters of a name that are compared with those of flags.
const LONGEST_NAME: usize = 100;

/// True if a word is a flag rather than a negative number.
fn is_flag(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_ascii_alphabetic()))
}

/// The flag's value in the type of the spec key at `path`.
pub(super) fn value(path: &str, given: &Given) -> Result<Value> {
    let kind = keys::at(path).map_or(ValueType::Word, |key| key.kind);
    match kind {
        ValueType::Whole => whole(given, i64::MIN).map(Value::from),
        ValueType::Real => match given.value.parse::<f64>() {
            Ok(v) if v.is_finite() => Ok(v.into()),
            _ => Err(wrong(given, "a number")),
        },
        ValueType::Switch => {
            given.value.parse::<bool>().map(Value::from).map_err(|_| wrong(given, "no value"))
        }
        _ if given.value.is_empty() => Err(wrong(given, "a value")),
        _ => Ok(given.value.as_str().into()),
    }
}

/// A whole number of at least `least`; vLLM's `32k` (32 × 1000) and `32K` (32 × 1024) are accepted.
pub(super) fn whole(given: &Given, least: i64) -> Result<i64> {
    let count = number::whole(&given.value).filter(|n| *n >= least);
    count.ok_or_else(|| wrong(given, "a whole number, as 4096 or 32k"))
}

/// The error for a value that is not accepted.
pub(super) fn wrong(given: &Given, accepted: &str) -> Error {
    let shown =
        if given.value.is_empty() { "without a value".to_owned() } else { format!("{:?}", given.value) };
    Error::field(PLACE, &given.flag, shown, accepted)
}
