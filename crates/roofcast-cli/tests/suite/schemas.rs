//! Documents against their JSON Schemas, as `roofcast schema` prints them.
//!
//! Knows: the part of JSON Schema that these schemas use. Keys without a description are errors, although the schemas allow
//! them, because a later version may have more keys.

use crate::support::roofcast;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The schemas that were printed, by the names of their documents.
static PRINTED: Mutex<BTreeMap<String, Value>> = Mutex::new(BTreeMap::new());

/// The schema that the program prints for a document.
fn printed(name: &str) -> Value {
    let mut printed = PRINTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let print = || {
        let run = roofcast(&format!("schema {name}"));
        serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{name}: {e}: {}", run.err))
    };
    printed.entry(name.to_owned()).or_insert_with(print).clone()
}

/// Asserts that the document `answer` has all keys that its schema requires, no others, and values of their types.
pub(crate) fn assert_conforms(question: &str, answer: &Value) {
    let name = answer["schema"].as_str().unwrap();
    let schema = printed(name);
    check(&schema, &schema, answer, &format!("{question}: {name}"));
}

fn check(whole: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(target) = schema["$ref"].as_str() {
        let definition = whole.pointer(target.trim_start_matches('#')).unwrap();
        return check(whole, definition, value, place);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let null = |option: &&Value| option["type"] == "null";
        let option = options.iter().find(|option| null(option) == value.is_null());
        return check(whole, option.unwrap_or_else(|| panic!("{place} is null")), value, place);
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let one = |option: &Value| option["const"] == *value || has(&option["enum"], value);
        assert!(options.iter().any(one), "{place} is {value}");
        return;
    }
    assert!(schema["const"].is_null() || schema["const"] == *value, "{place} is {value}");
    assert!(schema["enum"].is_null() || has(&schema["enum"], value), "{place} is {value}");
    let kind = &schema["type"];
    let is = |name: &str| *kind == *name || has(kind, &Value::from(name));
    let fits = kinds(value).iter().any(|name| is(name));
    assert!(kind.is_null() || fits, "{place} is {value}, which is no {kind}");
    match value {
        Value::Object(keys) => object(whole, schema, keys, place),
        Value::Array(items) => {
            let pair = schema["prefixItems"].as_array();
            for (index, item) in items.iter().enumerate() {
                let schema = pair.map_or(&schema["items"], |each| &each[index]);
                check(whole, schema, item, &format!("{place}[{index}]"));
            }
        }
        _ => {}
    }
}

fn object(whole: &Value, schema: &Value, keys: &serde_json::Map<String, Value>, place: &str) {
    for key in schema["required"].as_array().into_iter().flatten() {
        assert!(keys.contains_key(key.as_str().unwrap()), "{place}: no {key}");
    }
    for (key, value) in keys {
        let described = schema["properties"].get(key).or(schema.get("additionalProperties"));
        // A schema without keys is of any object.
        if let Some(described) = described.or((!schema["properties"].is_object()).then_some(&Value::Null)) {
            check(whole, described, value, &format!("{place}.{key}"));
        } else {
            panic!("{place}: `{key}` is not in its schema");
        }
    }
}

fn has(list: &Value, value: &Value) -> bool {
    list.as_array().is_some_and(|list| list.contains(value))
}

/// Names of the JSON types that a value has.
fn kinds(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.is_f64() => &["number"],
        Value::Number(_) => &["integer", "number"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
    }
}

/// Every document is listed, and found by its name with and without its version; an unknown name is refused with the
/// names that exist.
#[test]
fn schemas_are_printed_by_name() {
    let list = roofcast("schema").out;
    let ids: Vec<&str> =
        list.lines().filter_map(|line| line.split(' ').next()).filter(|id| id.contains('/')).collect();
    assert!(ids.len() >= 29, "{list}");
    for id in ids {
        let schema = printed(&format!("roofcast/{id}"));
        assert_eq!(schema["properties"]["schema"]["const"], format!("roofcast/{id}"));
        assert_eq!(printed(id.split('/').next().unwrap()), schema);
    }
    let refused = roofcast("schema limit");
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("`NAME` is \"limit\"; accepted: limits/1, "), "{}", refused.err);
}
