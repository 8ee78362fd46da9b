//! What several tests need.

use roofcast::{Catalog, Model, model};
use std::sync::Arc;

/// The embedded catalog.
pub(crate) fn catalog() -> &'static Catalog {
    Catalog::embedded().unwrap()
}

/// A catalog model.
pub(crate) fn model(name: &str) -> Arc<Model> {
    let entry = catalog().model(name).unwrap();
    Arc::new(model::config::read(&entry.id, "catalog", &entry.config).unwrap())
}
