//! Table of transformers' configuration classes, by `model_type`: `catalog/architectures.jsonl`, which
//! `scripts/architectures` writes.
//!
//! Knows: the defaults of a class, the lists that it derives, other names of its keys, the type of its text part, the
//! parts of a layer and the parameters of its default model. Knows nothing about how keys are read.

use super::habits::{Habits, LLAMA, QkNorm};
use serde_json::{Map, Value};

/// Rows of the table, one a line; the first line is its version.
const ROWS: &str = include_str!("../../../catalog/architectures.jsonl");

/// Version of transformers that the table was written from.
pub(super) const VERSION: &str = "5.24.0";

/// Row of the table.
pub(super) struct Architecture(Map<String, Value>);

/// Row of `model_type`; `None` for a type that transformers lacks.
pub(super) fn architecture(model_type: &str) -> Option<Architecture> {
    let beginning = format!("{{\"model_type\":{},", Value::from(model_type));
    let line = ROWS.lines().find(|line| line.starts_with(&beginning))?;
    serde_json::from_str(line).ok().map(Architecture)
}

/// All rows by type.
#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = (&'static str, Architecture)> {
    let name = |line: &'static str| line.strip_prefix("{\"model_type\":\"")?.split('"').next();
    ROWS.lines().filter_map(name).filter_map(|name| Some((name, architecture(name)?)))
}

impl Architecture {
    /// Keys with the values that the class takes where a file omits them.
    pub(super) fn defaults(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.object("defaults")
    }

    /// Default of one key.
    pub(super) fn default(&self, key: &str) -> Option<&Value> {
        self.0.get("defaults")?.get(key)
    }

    /// Lists of one entry a layer, made for `layers` layers.
    pub(super) fn lists(&self, layers: usize) -> impl Iterator<Item = (&str, Vec<Value>)> {
        self.object("lists").filter_map(move |(key, parts)| {
            let [start, cycle] = [0, 1].map(|i| parts.get(i).and_then(Value::as_array));
            let whole = start?.iter().chain(cycle?.iter().cycle()).take(layers).cloned().collect();
            Some((key, whole))
        })
    }

    /// Names that the class accepts for a key, each with the key.
    pub(super) fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.object("aliases").filter_map(|(alias, key)| Some((alias, key.as_str()?)))
    }

    /// Keys that the reader knows by another name, each with that name.
    pub(super) fn renamed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.object("renamed").filter_map(|(key, name)| Some((key, name.as_str()?)))
    }

    /// Type of the text part of a model with towers.
    pub(super) fn text(&self) -> Option<&str> {
        self.0.get("text")?.as_str().filter(|name| !name.is_empty())
    }

    /// Parameters of the class's default model.
    pub(super) fn parameters(&self) -> Option<u64> {
        self.0.get("parameters")?.as_u64()
    }

    /// Parts of a layer that no key names.
    pub(super) fn habits(&self) -> Option<Habits> {
        let layer = self.0.get("layer")?;
        let is = |key: &str| layer.get(key).and_then(Value::as_bool);
        Some(Habits {
            gated: is("gated")?,
            qkv_bias: is("qkv_bias")?,
            o_bias: is("o_bias")?,
            mlp_bias: is("mlp_bias")?,
            norms: layer.get("norms")?.as_u64()?,
            norm_bias: is("norm_bias")?,
            tied: self.default("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(LLAMA.tied),
            qk_norm: match layer.get("qk_norm")?.as_str()? {
                "head" => QkNorm::Head,
                "full" => QkNorm::Full,
                _ => QkNorm::No,
            },
            ..LLAMA
        })
    }

    fn object(&self, key: &str) -> impl Iterator<Item = (&str, &Value)> {
        let entries = self.0.get(key).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(key, value)| (key.as_str(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gpt-oss: heads of 64, windows of 128 in every other layer, from the first on.
    #[test]
    fn a_row_by_hand() {
        let row = architecture("gpt_oss").unwrap();
        assert_eq!(
            [row.default("head_dim"), row.default("sliding_window")],
            [Some(&64.into()), Some(&128.into())]
        );
        let lists: Vec<_> = row.lists(3).collect();
        let kinds = ["sliding_attention", "full_attention", "sliding_attention"].map(Value::from);
        assert_eq!(lists, [("layer_types", kinds.to_vec())]);
        assert_eq!(architecture("qwen3_vl_moe").unwrap().text(), Some("qwen3_vl_moe_text"));
        assert!(architecture("nobody_knows").is_none());
        assert!(ROWS.starts_with(&format!("{{\"transformers\": \"{VERSION}\"}}")));
    }
}
