//! The words of a command that starts a deployment.
//!
//! Knows: how the values of keys become words of the engine's parser, by the table with which commands are read, and
//! which keys a command cannot set. Knows nothing about the deployment. `roofcast_plan::plan` decides which keys it sets.

use super::flags::Flags;
use crate::spec::{EngineKind, EngineSpec};
use std::collections::BTreeSet;
use toml::Value;

/// Keys that describe the forecast, or the machine and the answers' texts that it assumes, and no setting of a server.
const ASSUMED: [&str; 11] = [
    "engine.name",
    "engine.version",
    "engine.scheduler",
    "engine.cost",
    "engine.reservation",
    "engine.speculative.draft_share",
    "engine.speculative.acceptance_rate",
    "engine.speculative.acceptance_length",
    "engine.speculative.acceptance",
    "engine.speculative.acceptance_by_position",
    "engine.speculative.accepted_per_position",
];

/// Keys that a forecast assumes of a server that chooses by itself.
const CHOSEN: [&str; 7] = [
    "engine.served",
    "engine.frontend",
    "engine.kv_layout",
    "engine.attention_backend",
    "engine.quantization_kernel",
    "engine.fuse_layers",
    "engine.experts.expert_imbalance",
];

/// A command while it is written.
#[derive(Debug)]
pub struct CommandLine {
    engine: EngineKind,
    flags: Flags,
    words: Vec<String>,
    /// JSON objects whose fields are keys: each flag, the index of its word, and its fields.
    objects: Vec<(String, usize, serde_json::Map<String, serde_json::Value>)>,
    /// Keys that the words set.
    keys: BTreeSet<String>,
}

impl CommandLine {
    /// A command of `engine` that begins with `words`.
    ///
    /// # Errors
    /// The reason why the engine has no command.
    pub fn of(engine: EngineKind, words: &[&str]) -> Result<CommandLine, String> {
        let flags = Flags::of(engine).map_err(|error| error.to_string())?;
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(CommandLine { engine, flags, words, objects: Vec::new(), keys: BTreeSet::new() })
    }

    /// Sets `key`, a key of a spec or a name of the engine's table.
    ///
    /// # Errors
    /// The reason why no flag sets it.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<(), String> {
        let flag = self.flags.flag(key)?;
        self.keys.insert(key.to_owned());
        let value = value.into();
        match (flag.split_once('.'), value) {
            (Some((object, field)), value) => self.field(object, field, &value),
            (None, Value::Boolean(true)) => self.words.push(flag),
            (None, Value::Boolean(false)) if self.flags.negatives => {
                self.words.push(flag.replacen("--", "--no-", 1));
            }
            (None, Value::Boolean(false)) => {}
            (None, Value::String(word)) => self.words.extend([flag, word]),
            (None, Value::Float(number)) => self.words.extend([flag, number.to_string()]),
            (None, value) => self.words.extend([flag, value.to_string()]),
        }
        Ok(())
    }

    /// Sets `key` unless the value is `own`, the engine's default.
    ///
    /// # Errors
    /// The reason why no flag sets it.
    pub fn beyond(&mut self, key: &str, value: u64, own: u64) -> Result<(), String> {
        self.keys.insert(key.to_owned());
        if value == own { Ok(()) } else { self.set(key, whole(value)) }
    }

    /// Adds a flag, which is no key, with its value.
    pub fn word(&mut self, flag: &str, value: &str) {
        self.words.extend([flag.to_owned(), value.to_owned()]);
    }

    /// Takes `keys` as set by the words so far.
    pub fn covers(&mut self, keys: &[&str]) {
        self.keys.extend(keys.iter().map(|key| (*key).to_owned()));
    }

    /// Sets every further key of `[engine]` that `spec` sets and that this engine has.
    ///
    /// # Errors
    /// The first key that cannot be set, with the reason.
    pub fn rest(&mut self, spec: &EngineSpec) -> Result<(), String> {
        for (key, value) in spec.requested() {
            let foreign = key.owner().is_some_and(|owner| owner != self.engine);
            let path = key.flat();
            if !foreign && !self.keys.contains(&path) && !is_assumed(key.path) {
                self.set(&path, value)?;
            }
        }
        Ok(())
    }

    /// The words of the command.
    pub fn words(self) -> Vec<String> {
        self.words
    }

    /// Sets a field of the JSON object that is the value of `flag`.
    fn field(&mut self, flag: &str, field: &str, value: &Value) {
        let at = match self.objects.iter().position(|(known, ..)| known == flag) {
            Some(at) => at,
            None => {
                self.words.extend([flag.to_owned(), String::new()]);
                self.objects.push((flag.to_owned(), self.words.len() - 1, serde_json::Map::new()));
                self.objects.len() - 1
            }
        };
        let (_, word, fields) = &mut self.objects[at];
        fields.insert(field.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self.words[*word] = serde_json::Value::Object(fields.clone()).to_string();
    }
}

/// `number` as a value of TOML, whose whole numbers have a sign.
pub fn whole(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

/// True for a key that no server has.
pub fn is_assumed(path: &str) -> bool {
    ASSUMED.contains(&path) || CHOSEN.contains(&path)
}

/// Keys that `spec` sets and that a server chooses by itself: the forecast assumes them, a command does not set them.
pub fn chosen(spec: &EngineSpec) -> Vec<&'static str> {
    spec.requested().into_iter().map(|(key, _)| key.path).filter(|path| CHOSEN.contains(path)).collect()
}
