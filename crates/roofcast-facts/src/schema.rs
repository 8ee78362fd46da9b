//! JSON Schemas of types with their own serialization; all other answers derive theirs.
//!
//! Knows: the keys that [`Slo`] and the figures of a latency write, and the JSON types of units. Compiled with the feature
//! `schema` only.

use crate::model::OperatorKind;
use crate::slo::{Metric, Percentile, Slo, key as slo_key};
use crate::units::Picoseconds;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Implements the schema of a type that is written as another type.
macro_rules! written_as {
    ($($own:ident: $other:ty),*) => { $(impl JsonSchema for $own {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            stringify!($own).into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            <$other>::json_schema(generator)
        }
    })* };
}

written_as!(Picoseconds: f64, OperatorKind: String);

/// A value of a swept key: a boolean, a number or a string.
#[derive(Debug, Clone, Copy)]
pub struct SweptValue;

impl JsonSchema for SweptValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SweptValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["boolean", "number", "string"]})
    }
}

/// An object with the properties `keys`, of which those in `required` are always present.
pub fn object(keys: Map<String, Value>, required: &[String]) -> Schema {
    json_schema!({"type": "object", "properties": keys, "required": required})
}

/// Schema of the figures of one latency in milliseconds, a property each: the figure's name, then `suffix`.
pub fn figures(figures: &[&str], suffix: &str, about: &str) -> Schema {
    let name = |figure: &str| match figure {
        "mean" => "Mean".to_owned(),
        "std" => "Standard deviation".to_owned(),
        "median" | "p50" => "Median".to_owned(),
        "p999" => "99.9th percentile".to_owned(),
        other => format!("{}th percentile", other.trim_start_matches('p')),
    };
    let described =
        |figure: &str| format!("{} in milliseconds of the {about}; `null` without values.", name(figure));
    let names: Vec<String> = figures.iter().map(|figure| format!("{figure}_{suffix}")).collect();
    let property = |figure: &&str| json!({"type": ["number", "null"], "description": described(figure)});
    object(names.iter().cloned().zip(figures.iter().map(property)).collect(), &names)
}

impl JsonSchema for Slo {
    fn schema_name() -> Cow<'static, str> {
        "Slo".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut keys = Map::new();
        let mut always = vec!["goodput".to_owned()];
        for (metric, percentile) in Metric::ALL.into_iter().flat_map(|m| Percentile::ALL.map(|p| (m, p))) {
            let key = slo_key(metric, percentile);
            let about = format!("Bound on the {} {} in milliseconds.", metric.name(), percentile.name());
            keys.insert(key.to_owned(), json!({"type": ["number", "null"], "description": about}));
            if percentile == Percentile::P99 && metric != Metric::Itl {
                always.push(key.to_owned());
            }
        }
        let about =
            "Least fraction of requests that meet every bound; `null` if each bound is of a percentile.";
        keys.insert("goodput".to_owned(), json!({"type": ["number", "null"], "description": about}));
        let mut schema = object(keys, &always);
        schema.insert(
            "description".to_owned(),
            "Bounds on latencies, and on the fraction of good requests.".into(),
        );
        schema
    }
}
