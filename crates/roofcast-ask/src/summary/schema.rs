//! JSON Schema of [`RunSummary`], which writes its own keys.
//!
//! Knows: the name, type and unit of each key. Compiled with the feature `schema` only.

use super::{FIGURES, RunSummary};
use roofcast_facts::schema::{figures, object};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

impl JsonSchema for RunSummary {
    fn schema_name() -> Cow<'static, str> {
        "RunSummary".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut keys = Map::new();
        for (key, kind, about) in [
            ("duration", json!("number"), "Seconds from the first request to the last token."),
            ("completed", json!("integer"), "Number of requests that got all their tokens."),
            ("failed", json!("integer"), "Number of requests that did not complete."),
            ("total_input_tokens", json!("integer"), "Prompt tokens of completed requests."),
            ("total_output_tokens", json!("integer"), "Output tokens of completed requests."),
            ("request_throughput", json!("number"), "Completed requests per second."),
            (
                "request_goodput",
                json!(["number", "null"]),
                "Completed requests per second within every bound of the SLO; `null` without bounds.",
            ),
            ("output_throughput", json!("number"), "Output tokens per second."),
            ("total_token_throughput", json!("number"), "Prompt and output tokens per second."),
        ] {
            keys.insert(key.to_owned(), json!({"type": kind, "description": about}));
        }
        let names = FIGURES.map(|(name, _)| name);
        for (metric, about) in [
            ("ttft_ms", "time to the first token"),
            ("tpot_ms", "time per output token after the first"),
            ("itl_ms", "gap between streamed chunks, over all gaps of all requests"),
            ("e2el_ms", "time from arrival to the last token"),
        ] {
            let all = figures(&names, metric, about);
            keys.extend(all.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        }
        let names: Vec<String> = keys.keys().cloned().collect();
        object(keys, &names)
    }
}
