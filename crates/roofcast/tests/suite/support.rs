//! Helpers that several tests use.

use roofcast::{Catalog, Model, model};
use std::sync::Arc;

/// The embedded catalog.
pub(crate) fn catalog() -> &'static Catalog {
    Catalog::embedded().unwrap()
}

/// The catalog model of this name.
pub(crate) fn model(name: &str) -> Arc<Model> {
    let entry = catalog().model(name).unwrap();
    Arc::new(model::config::read(&entry.id, "catalog", &entry.config).unwrap())
}

/// Path of a file of the tests' own data.
pub(crate) fn data(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// Path of a file or folder of the data beside the checkout; tests that read it are ignored where it is absent.
pub(crate) fn shared(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path)
}

/// The names that a type accepts, sorted, as its error for another name lists them.
pub(crate) fn accepted(error: &serde_json::Error) -> Vec<String> {
    let error = error.to_string();
    let (_, list) = error.split_once("expected one of").unwrap();
    let mut names: Vec<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    names.sort();
    names
}
