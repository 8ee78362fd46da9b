//! Sources to which names in a question may refer: files of this machine, or what a request over the network has.
//!
//! Knows: names of models, accelerators and traces. Knows nothing about specs.

use super::{accelerator, text};
use anyhow::Result;
use roofcast::{Catalog, Error, Model};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// Sources to which names in a question may refer.
#[derive(Debug, Clone, Default)]
pub(crate) enum Reach {
    /// The catalog, and files of this machine.
    #[default]
    Files,
    /// The catalog and these models only, because the question came over the network.
    Given(Vec<Arc<Model>>),
}

impl Reach {
    pub(super) fn model(&self, name: &str, catalog: &Catalog) -> Result<Arc<Model>> {
        match self {
            Reach::Files => super::model(name, catalog),
            Reach::Given(models) => match models.iter().find(|model| model.name == name) {
                Some(model) => Ok(Arc::clone(model)),
                None => Ok(Arc::new(catalog.named(name)?.model()?)),
            },
        }
    }

    pub(super) fn accelerator(&self, name: &str, catalog: &mut Cow<'static, Catalog>) -> Result<String> {
        match self {
            Reach::Files => accelerator(name, Path::new(""), catalog),
            Reach::Given(_) => Ok(name.to_owned()),
        }
    }

    pub(super) fn trace(&self, place: &str, path: &str) -> Result<String> {
        match self {
            Reach::Files => text(Path::new(path)),
            Reach::Given(_) => {
                let accepted = "traffic that is described: no file of this machine is read";
                Err(Error::field(place, "workload.arrivals.path", path, accepted).into())
            }
        }
    }
}
