//! JSON Schemas of the documents of `--json` and of the page's answers, derived from the structs that are serialized.
//!
//! Knows: every document by the name and version of its schema. Tests write from them the tables of `docs/json.md`, the
//! TypeScript of the page and the dataclasses of the Python package; `UPDATE_TYPES=1` writes the files anew.

#[cfg(test)]
mod python;
#[cfg(test)]
mod shape;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod typescript;

#[cfg(test)]
use crate::serve::{accuracy, api, measure};
use crate::verbs::{
    bench, calibrate, capacity, catalog, conformance, hardware, keys, limits, plan, seeds, simulate, validate,
};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// The documents and answers, with the definitions to which their schemas refer.
pub(crate) struct Schemas {
    pub(crate) documents: Vec<Schema>,
    /// Answers to the page, which are no documents.
    #[cfg(test)]
    page: Vec<Schema>,
    definitions: Map<String, Value>,
}

/// The schema of a document or answer.
pub(crate) struct Schema {
    /// Name and version, as in `limits/1`; of the page's answers the name of the type.
    pub(crate) id: &'static str,
    /// Name of the type in TypeScript and Python.
    #[cfg(test)]
    name: String,
    value: Value,
}

impl Schema {
    /// Description of the document.
    pub(crate) fn about(&self) -> &str {
        self.value["description"].as_str().unwrap_or_default()
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator, id: &'static str) -> Schema {
    Schema {
        id,
        #[cfg(test)]
        name: T::schema_name().into_owned(),
        value: cleaned(T::json_schema(generator).to_value()),
    }
}

impl Schemas {
    /// All documents and answers.
    pub(crate) fn all() -> Schemas {
        let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let g = &mut generator;
        let documents = vec![
            schema::<limits::Answer>(g, "limits/1"),
            schema::<limits::sweep::Answer>(g, "limits-sweep/2"),
            schema::<limits::Compared>(g, "limits-compare/1"),
            schema::<limits::Curve>(g, "intensity/1"),
            schema::<capacity::Answer>(g, "capacity/1"),
            schema::<capacity::sweep::Answer>(g, "capacity-sweep/1"),
            schema::<plan::Answer>(g, "plan/3"),
            schema::<plan::curves::Answer>(g, "curves/1"),
            schema::<simulate::Answer>(g, "simulate/2"),
            schema::<simulate::find::Answer>(g, "simulate-find/1"),
            schema::<simulate::sweep::Sweep>(g, "simulate-sweep/3"),
            schema::<simulate::sweep::cells::Share>(g, "simulate-shard/1"),
            schema::<simulate::sweep::cells::Missing>(g, "merge-missing/1"),
            schema::<bench::Answer>(g, "bench/2"),
            schema::<bench::sweep::Answer>(g, "bench-sweep/2"),
            schema::<bench::search::Answer>(g, "bench-search/2"),
            schema::<bench::runs::Answer>(g, "bench-runs/1"),
            schema::<seeds::Answer>(g, "seeds/1"),
            schema::<conformance::Answer>(g, "conformance/1"),
            schema::<keys::Answer>(g, "keys/1"),
            schema::<hardware::Answer>(g, "hardware-measure/1"),
            schema::<catalog::Entries>(g, "catalog/1"),
            schema::<roofcast::accelerator::Accelerator>(g, "accelerator/1"),
            schema::<catalog::entry::Alone>(g, "model/1"),
            schema::<roofcast::preset::Preset>(g, "workload/1"),
            schema::<validate::Answer>(g, "validate/2"),
            schema::<validate::ranking::Answer>(g, "ranking/1"),
            schema::<calibrate::Answer>(g, "calibrate/2"),
            schema::<calibrate::times::Answer>(g, "kernel-times/1"),
        ];
        #[cfg(test)]
        let page = vec![
            schema::<api::Listing>(g, "CatalogAnswer"),
            schema::<limits::view::View>(g, "LimitsAnswer"),
            schema::<limits::sweep::View>(g, "LimitsSweepAnswer"),
            schema::<capacity::view::View>(g, "CapacityAnswer"),
            schema::<simulate::view::View>(g, "RunAnswer"),
            schema::<simulate::sweep::View>(g, "RunSweepAnswer"),
            schema::<plan::view::View>(g, "PlanAnswer"),
            schema::<plan::curves::View>(g, "CurvesAnswer"),
            schema::<measure::Answer>(g, "MeasureAnswer"),
            schema::<validate::view::View>(g, "ValidateAnswer"),
            schema::<accuracy::Answer>(g, "AccuracyAnswer"),
        ];
        let definitions = generator.take_definitions(true).into_iter();
        let definitions = definitions.map(|(name, value)| (name, cleaned(value))).collect();
        Schemas {
            documents,
            #[cfg(test)]
            page,
            definitions,
        }
    }

    /// The self-contained JSON Schema of a document.
    pub(crate) fn whole(&self, document: &Schema) -> Value {
        let name = format!("roofcast/{}", document.id);
        let part_of = |part: &str| document.value.get(part).cloned();
        let mut properties =
            json!({"schema": {"const": name, "description": "Name and version of this schema."}});
        if let (Value::Object(all), Some(Value::Object(keys))) = (&mut properties, part_of("properties")) {
            all.extend(keys);
        }
        let mut required = vec![Value::from("schema")];
        if let Some(Value::Array(keys)) = part_of("required") {
            required.extend(keys);
        }
        let mut used = Vec::new();
        referred(&document.value, &self.definitions, &mut used);
        used.sort();
        let used = used.into_iter().map(|name| (name.clone(), self.definitions[&name].clone()));
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": name,
            "description": document.value["description"],
            "type": "object",
            "properties": properties,
            "required": required,
            "$defs": Value::Object(used.collect()),
        })
    }
}

/// Collects the names of definitions to which `schema` refers at any depth.
fn referred(schema: &Value, definitions: &Map<String, Value>, found: &mut Vec<String>) {
    match schema {
        Value::Object(keys) => {
            let name = keys.get("$ref").and_then(Value::as_str).and_then(|target| target.rsplit('/').next());
            if let Some(name) = name.filter(|name| !found.iter().any(|known| known == name)) {
                found.push(name.to_owned());
                referred(&definitions[name], definitions, found);
            }
            keys.values().for_each(|value| referred(value, definitions, found));
        }
        Value::Array(items) => items.iter().for_each(|item| referred(item, definitions, found)),
        _ => {}
    }
}

/// Removes Rust's notation from descriptions, and the prohibition of further keys, which later versions may have. A key
/// that may be absent is absent in place of `null`.
fn cleaned(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(keys) => {
            if keys.get("additionalProperties") == Some(&Value::Bool(false)) {
                keys.remove("additionalProperties");
            }
            let required = keys.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            if let Some(Value::Object(properties)) = keys.get_mut("properties") {
                let always = |key: &String| required.contains(&json!(key));
                properties.iter_mut().filter(|(key, _)| !always(key)).for_each(|(_, value)| absent(value));
            }
            for (key, value) in keys.iter_mut() {
                *value = match value.take() {
                    Value::String(text) if key == "description" => Value::String(plain(&text)),
                    other => cleaned(other),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = cleaned(item.take())),
        _ => {}
    }
    schema
}

/// Removes `null` from the schema of a key that may be absent.
fn absent(schema: &mut Value) {
    if let Some(options) = schema["anyOf"].as_array_mut() {
        options.retain(|option| option["type"] != "null");
    }
    if let Value::Array(names) = &mut schema["type"] {
        names.retain(|name| name != "null");
        schema["type"] = names[0].take();
    }
    if let Value::String(about) = &schema["description"] {
        schema["description"] = about.replace("`None`", "absent").into();
    }
    if let Value::Object(keys) = schema {
        keys.retain(|_, value| !value.is_null());
    }
}

/// A doc comment as text: one line, links as code without their paths, `null` for `None`.
fn plain(doc: &str) -> String {
    let words = doc.split_whitespace().collect::<Vec<_>>().join(" ").replace("`None`", "`null`");
    let mut parts = words.split("[`");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once("`]").unwrap_or((part, ""));
        let rest =
            rest.strip_prefix('(').and_then(|path| path.split_once(')')).map_or(rest, |(_, rest)| rest);
        text += &format!("`{}`{rest}", link.rsplit("::").next().unwrap_or(link));
    }
    text
}
