//! The files that follow from the schemas of answers.

use super::shape::{Object, Reader};
use super::*;
use std::path::{Path, PathBuf};

impl Schemas {
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { definitions: &self.definitions }
    }

    /// The keys of a document, without `schema`.
    pub(super) fn object(&self, schema: &Schema) -> Object {
        self.reader().object(&schema.name, &schema.value).unwrap()
    }

    /// The document `id`.
    pub(super) fn document(&self, id: &str) -> Object {
        self.object(self.documents.iter().find(|document| document.id == id).unwrap())
    }
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
