//! Documents against their JSON Schemas in `docs/schemas`.
//!
//! Knows: the part of JSON Schema that these files use. Keys without a description are errors, although the schemas allow
//! them, because a later version may have more keys.

use crate::support::root;
use serde_json::Value;

/// Asserts that the document `answer` has all keys that its schema requires, no others, and values of their types.
pub(crate) fn assert_conforms(question: &str, answer: &Value) {
    let name = answer["schema"].as_str().unwrap();
    let file = name.strip_prefix("roofcast/").unwrap().replace('/', "-") + ".json";
    let text = std::fs::read_to_string(root().join("docs/schemas").join(&file));
    let schema: Value =
        serde_json::from_str(&text.unwrap_or_else(|e| panic!("{question}: {file}: {e}"))).unwrap();
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
            panic!("{place}: `{key}` is not in docs/schemas");
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
