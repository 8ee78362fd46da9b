//! The documents of the Python package's verbs as dataclasses.

use super::Schemas;
use super::shape::{Field, Kind, Object, Type};
use std::collections::BTreeMap;

/// The documents that the package returns.
const DOCUMENTS: [&str; 14] = [
    "limits/1",
    "limits-sweep/2",
    "limits-compare/1",
    "intensity/1",
    "capacity/1",
    "simulate/2",
    "simulate-sweep/3",
    "simulate-find/1",
    "plan/3",
    "curves/1",
    "validate/2",
    "calibrate/2",
    "accelerator/1",
    "model/1",
];

/// Most characters of a line.
const WIDTH: usize = 120;

const HEAD: &str = r#""""Answers of the verbs, as dataclasses: keys of the documents of ``--json``.

Times end in ``_ms`` (milliseconds) or ``_s`` (seconds), sizes in ``_bytes``, rates in ``_per_s`` or ``_tok_s`` (tokens a
second); shares and errors are fractions of 1, money is in US dollars.

Written by ``UPDATE_TYPES=1 cargo test -p roofcast-cli --lib schemas`` from the structs that answer; do not edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from roofcast._document import Document, Part
"#;

/// Text of `answers.py`: the objects that documents contain, by name, then the documents.
pub(super) fn text(schemas: &Schemas) -> String {
    let documents = DOCUMENTS.map(|id| schemas.document(id));
    let mut parts = BTreeMap::new();
    for document in &documents {
        parts.extend(schemas.reader().parts(document).into_iter().map(|part| (part.name.clone(), part)));
    }
    for document in &documents {
        assert!(!parts.contains_key(&document.name), "{} is a document and a part of one", document.name);
    }
    let mut text = HEAD.to_owned();
    parts.values().for_each(|part| text += &class(part, "Part"));
    documents.iter().for_each(|document| text += &class(document, "Document"));
    text
}

fn class(object: &Object, base: &str) -> String {
    let mut text = format!(
        "\n\n@dataclass(init=False, repr=False, eq=False)\nclass {}({base}):\n{}",
        object.name,
        docstring(&object.about)
    );
    let (always, sometimes): (Vec<&Field>, Vec<&Field>) =
        object.fields.iter().partition(|field| field.always);
    for field in always.into_iter().chain(sometimes) {
        let (kind, default) = match (written(&field.value), field.always) {
            (kind, true) => (kind, ""),
            (kind, false) if kind.ends_with("None") || kind == "Any" => (kind, " = None"),
            (kind, false) => (kind + " | None", " = None"),
        };
        text += &format!("\n    {}: {kind}{default}\n{}", field.key, docstring(&field.about));
    }
    text
}

/// A docstring, indented by four spaces.
fn docstring(about: &str) -> String {
    let about = about.replace('\\', "\\\\").replace("`null`", "`None`").replace('`', "``");
    let mut text = "    \"\"\"".to_owned();
    let mut column = text.len();
    for (index, word) in about.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length + 3 > WIDTH {
            text += "\n    ";
            column = 4;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += length;
    }
    text + "\"\"\"\n"
}

fn written(value: &Type) -> String {
    let text = match &value.kind {
        Kind::Any | Kind::Scalar => return "Any".to_owned(),
        Kind::Boolean => "bool".to_owned(),
        Kind::Integer => "int".to_owned(),
        Kind::Number => "float".to_owned(),
        Kind::Text => "str".to_owned(),
        Kind::OneOf(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
            format!("Literal[{}]", texts.join(", "))
        }
        Kind::Part(name) => name.clone(),
        Kind::List(item) => format!("list[{}]", written(item)),
        Kind::Pair(item) => format!("tuple[{item}, {item}]", item = written(item)),
        Kind::Map(inner) => format!("dict[str, {}]", written(inner)),
    };
    if value.nullable { text + " | None" } else { text }
}
