//! What several tests need.

use roofcast::deployment::Options;
use roofcast::{Catalog, Deployment, Model, model};
use std::sync::Arc;

/// The embedded catalog.
pub fn catalog() -> &'static Catalog {
    Catalog::embedded().unwrap()
}

/// A catalog model.
pub fn model(name: &str) -> Arc<Model> {
    let entry = catalog().model(name).unwrap();
    Arc::new(model::config::read(&entry.id, "catalog", &entry.config).unwrap())
}

/// A deployment of catalog entries.
pub fn deployment(model_name: &str, accelerator: &str, options: &Options) -> Deployment {
    let chip = Arc::new(catalog().accelerator(accelerator).unwrap().clone());
    Deployment::resolve(model(model_name), chip, options).unwrap()
}
