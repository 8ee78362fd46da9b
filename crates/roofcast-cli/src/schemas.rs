//! JSON Schemas of the documents of `--json` and of the page's answers, derived from the structs that are serialized,
//! and the files that follow from them: `docs/schemas`, the tables of `docs/json.md`, the TypeScript of the page and
//! the dataclasses of the Python package.
//!
//! Knows: every document by the name and version of its schema. Compiled for tests only; `UPDATE_TYPES=1` writes the
//! files anew.

mod python;
mod shape;
mod tables;
mod typescript;

use crate::serve::{accuracy, api, measure};
use crate::verbs::{
    bench, calibrate, capacity, catalog, conformance, hardware, keys, limits, plan, seeds, simulate, validate,
};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use shape::{Object, Reader};
use std::path::{Path, PathBuf};

/// The documents and answers, with the definitions to which their schemas refer.
struct Schemas {
    documents: Vec<Schema>,
    page: Vec<Schema>,
    definitions: Map<String, Value>,
}

/// The schema of a document or answer.
struct Schema {
    /// Name and version, as in `limits/1`; of the page's answers the name of the type.
    id: &'static str,
    /// Name of the type in TypeScript and Python.
    name: String,
    value: Value,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator, id: &'static str) -> Schema {
    Schema { id, name: T::schema_name().into_owned(), value: cleaned(T::json_schema(generator).to_value()) }
}

impl Schemas {
    fn all() -> Schemas {
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
        Schemas { documents, page, definitions }
    }

    fn reader(&self) -> Reader<'_> {
        Reader { definitions: &self.definitions }
    }

    /// The keys of a document, without `schema`.
    fn object(&self, schema: &Schema) -> Object {
        self.reader().object(&schema.name, &schema.value).unwrap()
    }

    /// The document `id`.
    fn document(&self, id: &str) -> Object {
        self.object(self.documents.iter().find(|document| document.id == id).unwrap())
    }

    /// The self-contained JSON Schema of a document as text.
    fn file(&self, document: &Schema) -> String {
        let name = format!("roofcast/{}", document.id);
        let mut whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": name,
            "description": document.value["description"],
            "type": "object",
            "properties": {"schema": {"const": name, "description": "Name and version of this schema."}},
            "required": ["schema"],
        });
        let keys = document.value["properties"].as_object().unwrap().clone();
        whole["properties"].as_object_mut().unwrap().extend(keys);
        let required = document.value["required"].as_array().cloned().unwrap_or_default();
        whole["required"].as_array_mut().unwrap().extend(required);
        let mut used = Vec::new();
        referred(&document.value, &self.definitions, &mut used);
        used.sort();
        let used = used.into_iter().map(|name| (name.clone(), self.definitions[&name].clone()));
        whole["$defs"] = Value::Object(used.collect());
        serde_json::to_string_pretty(&whole).unwrap() + "\n"
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
            let required = keys.get("required").cloned().unwrap_or_else(|| json!([]));
            if let Some(Value::Object(properties)) = keys.get_mut("properties") {
                let always = |key: &String| required.as_array().unwrap().contains(&json!(key));
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
    schema.as_object_mut().unwrap().retain(|_, value| !value.is_null());
}

/// A doc comment as text: one line, links as code without their paths, `null` for `None`.
fn plain(doc: &str) -> String {
    let words = doc.split_whitespace().collect::<Vec<_>>().join(" ").replace("`None`", "`null`");
    let mut parts = words.split("[`");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once("`]").unwrap_or_else(|| panic!("a link without an end: {doc}"));
        let rest = match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')').unwrap().1,
            None => rest,
        };
        text += &format!("`{}`{rest}", link.rsplit("::").next().unwrap());
    }
    text
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Asserts that the file at `path` has the text `now`, or writes it with `UPDATE_TYPES=1`.
fn assert_kept(path: &str, now: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_TYPES").is_some() {
        std::fs::write(&file, now).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    let first = stored.lines().zip(now.lines()).find(|(a, b)| a != b);
    assert!(stored == now, "{path}: {first:?}; UPDATE_TYPES=1 writes it anew");
}

#[test]
fn files_of_types_are_those_of_the_answers() {
    let schemas = Schemas::all();
    let files: Vec<String> = schemas.documents.iter().map(|d| d.id.replace('/', "-") + ".json").collect();
    for (document, file) in schemas.documents.iter().zip(&files) {
        assert_kept(&format!("docs/schemas/{file}"), &schemas.file(document));
    }
    for kept in std::fs::read_dir(root().join("docs/schemas")).unwrap() {
        let name = kept.unwrap().file_name().into_string().unwrap();
        assert!(files.contains(&name), "docs/schemas/{name}: no such document; delete the file");
    }
    assert_kept("web/src/generated.ts", &typescript::text(&schemas));
    assert_kept("crates/roofcast-py/python/roofcast/answers.py", &python::text(&schemas));
    let chapter = std::fs::read_to_string(root().join("docs/json.md")).unwrap();
    assert_kept("docs/json.md", &tables::filled(&schemas, &chapter));
}

#[test]
fn every_key_of_a_document_is_described() {
    let schemas = Schemas::all();
    let mut bare = Vec::new();
    for document in &schemas.documents {
        let object = schemas.object(document);
        for part in schemas.reader().parts(&object).into_iter().chain([object]) {
            let fields = part.fields.iter().filter(|field| field.about.is_empty());
            bare.extend(fields.map(|field| format!("{}.{}", part.name, field.key)));
            bare.extend(part.about.is_empty().then(|| part.name.clone()));
        }
    }
    bare.sort();
    bare.dedup();
    let twice = schemas.definitions.keys().filter(|name| name.ends_with(|c: char| c.is_ascii_digit()));
    assert_eq!(twice.collect::<Vec<_>>(), Vec::<&String>::new(), "two structs have one name: rename one");
    assert!(bare.is_empty(), "{} without a doc comment: {}", bare.len(), bare.join(" "));
}
