//! The page's answers as TypeScript interfaces.

use super::Schemas;
use super::shape::{Kind, Object, Type};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Text of `web/src/generated.ts`: the answers, then the objects that they contain, by name.
pub(super) fn text(schemas: &Schemas) -> String {
    let mut text = "// Written by `UPDATE_TYPES=1 cargo test -p roofcast-cli --lib schemas` from the structs that answer; do not edit.\n".to_owned();
    let answers: Vec<Object> = schemas.page.iter().map(|answer| schemas.object(answer)).collect();
    let mut parts = BTreeMap::new();
    for answer in &answers {
        parts.extend(schemas.reader().parts(answer).into_iter().map(|part| (part.name.clone(), part)));
    }
    answers.iter().for_each(|answer| {
        parts.remove(&answer.name);
    });
    for object in answers.iter().chain(parts.values()) {
        text += &interface(object);
    }
    text
}

fn interface(object: &Object) -> String {
    let mut text = format!("\nexport interface {} {{\n", object.name);
    for field in &object.fields {
        let optional = if field.always { "" } else { "?" };
        writeln!(text, "  {}{optional}: {};", field.key, written(&field.value)).unwrap();
    }
    text + "}\n"
}

fn written(value: &Type) -> String {
    let text = match &value.kind {
        Kind::Any => return "unknown".to_owned(),
        Kind::Scalar => "boolean | number | string".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer | Kind::Number => "number".to_owned(),
        Kind::Text => "string".to_owned(),
        Kind::OneOf(texts) => texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(" | "),
        Kind::Part(name) => name.clone(),
        Kind::List(item) => match written(item) {
            item if item.contains('|') => format!("({item})[]"),
            item => format!("{item}[]"),
        },
        Kind::Pair(item) => format!("[{item}, {item}]", item = written(item)),
        Kind::Map(inner) => format!("Record<string, {}>", written(inner)),
    };
    if value.nullable { text + " | null" } else { text }
}
