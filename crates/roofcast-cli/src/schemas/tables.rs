//! The keys of documents as tables of `docs/json.md`.
//!
//! Knows: a block between `<!-- keys: limits/1 -->` and `<!-- end -->` is the table of a document, the block `parts` the
//! tables of all objects that documents contain. Keys that another table has are not repeated, but referred to.

use super::Schemas;
use super::shape::{Field, Kind, Object, Type};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end -->";

/// The chapter with the present tables in its blocks.
pub(super) fn filled(schemas: &Schemas, chapter: &str) -> String {
    let mut blocks = blocks(schemas);
    let mut pieces = chapter.split(BEGIN);
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (id, rest) = piece.split_once(" -->").unwrap();
        let (_, rest) = rest.split_once(END).unwrap_or_else(|| panic!("docs/json.md: no {END} after {id}"));
        let block =
            blocks.remove(id).unwrap_or_else(|| panic!("docs/json.md: no document {id}, or a second block"));
        text += &format!("{BEGIN}{id} -->\n\n{block}\n{END}{rest}");
    }
    assert!(blocks.is_empty(), "docs/json.md: no block for {:?}", blocks.keys());
    text
}

/// Fewest keys of a table to which others refer.
const FEWEST: usize = 5;

/// An object with the link to its table.
struct Table {
    link: String,
    object: Object,
}

fn blocks(schemas: &Schemas) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    let mut tables =
        vec![Table { link: "[every document](#in-every-document)".to_owned(), object: every(schemas) }];
    for document in &schemas.documents {
        let object = schemas.object(document);
        parts.extend(schemas.reader().parts(&object).into_iter().map(|part| (part.name.clone(), part)));
        let anchor = format!("#roofcast{}", document.id.replace('/', ""));
        tables.push(Table { link: format!("[`roofcast/{}`]({anchor})", document.id), object });
    }
    let written = |part: &Object| Table { link: link(&part.name), object: part.clone() };
    tables.extend(parts.values().map(written));
    // Of two tables with equal keys, the latter is written.
    tables.sort_by_key(|table| Reverse(table.object.fields.len()));
    let mut blocks = BTreeMap::from([("every".to_owned(), rows(&every(schemas).fields))]);
    for document in &schemas.documents {
        blocks.insert(document.id.to_owned(), table(&schemas.object(document), &tables));
    }
    let part = |part: &Object| format!("### {}\n\n{}\n\n{}", part.name, part.about, table(part, &tables));
    blocks.insert("parts".to_owned(), parts.values().map(part).collect::<Vec<_>>().join("\n"));
    blocks
}

/// The keys of every document about a deployment.
fn every(schemas: &Schemas) -> Object {
    let [mut one, other] = ["capacity/1", "limits-compare/1"].map(|id| schemas.document(id));
    let end = one.fields.iter().zip(&other.fields).take_while(|(a, b)| a == b).count();
    one.fields.truncate(end);
    one.name = String::new();
    one
}

/// The table of an object, with references to the tables of objects whose keys it has.
fn table(object: &Object, tables: &[Table]) -> String {
    let mut fields: Vec<&Field> = object.fields.iter().collect();
    let mut text = String::new();
    for base in tables {
        let smaller = base.object.fields.len() < object.fields.len();
        let base_has = |field: &&Field| base.object.fields.contains(field);
        if smaller
            && base.object.fields.len() >= FEWEST
            && base.object.fields.iter().all(|f| fields.contains(&f))
        {
            fields.retain(|field| !base_has(field));
            text += &format!("The keys of {}, and:\n\n", base.link);
        }
    }
    text + &rows(fields)
}

fn rows<'a>(fields: impl IntoIterator<Item = &'a Field>) -> String {
    let mut text = "| key | type | meaning |\n|---|---|---|\n".to_owned();
    for field in fields {
        let absent = if field.always { "" } else { ", or absent" };
        let about = field.about.replace('|', "\\|");
        text += &format!("| `{}` | {}{absent} | {about} |\n", field.key, written(&field.value));
    }
    text
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// A type in words, with links to the tables of objects.
fn written(value: &Type) -> String {
    let text = match &value.kind {
        Kind::Any => "any".to_owned(),
        Kind::Scalar => "boolean, number or string".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer => "integer".to_owned(),
        Kind::Number => "number".to_owned(),
        Kind::Text => "string".to_owned(),
        Kind::OneOf(texts) => texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", "),
        Kind::Part(name) => link(name),
        Kind::List(item) => format!("list of {}", written(item)),
        Kind::Pair(item) => format!("two of {}", written(item)),
        Kind::Map(inner) => format!("map to {}", written(inner)),
    };
    if value.nullable { text + " or `null`" } else { text }
}
