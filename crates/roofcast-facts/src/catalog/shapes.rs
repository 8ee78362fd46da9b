//! Models with the shape of another model, such as fine-tunes of a base model: the lines of `catalog/shapes.csv`.
//!
//! Knows: names of such models and the ids of the models whose shape they have. Used if a name is no entry's own.
//! Knows nothing about entries.

use super::names::canonical;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::sync::OnceLock;

const PLACE: &str = "catalog/shapes.csv";
const TEXT: &str = include_str!("../../catalog/shapes.csv");

/// One line of the file: names of models that share a shape.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelShape {
    /// Names without organisation, separated by semicolons; a leading `*` stands for any beginning.
    names: String,
    /// Id of the catalog's model with this shape.
    model: String,
    /// Web address of the page that states the shape.
    source: String,
}

/// Id of the model whose shape `name` has; `tagged` is true if the name is in Ollama's form `name:tag`.
pub(super) fn shape(name: &str, tagged: bool) -> Result<Option<&'static str>> {
    let is = |known: &str| is_named(known, name, tagged);
    Ok(shapes()?.iter().find(|s| s.names.split(';').any(is)).map(|s| s.model.as_str()))
}

/// True if `known`, which may begin with a `*`, means `name`.
pub(super) fn is_named(known: &str, name: &str, tagged: bool) -> bool {
    let wanted = canonical(name);
    match known.strip_prefix('*') {
        Some(end) => wanted.ends_with(&canonical(end)) && wanted.len() > canonical(end).len(),
        None => canonical(known) == wanted && (tagged || !known.contains(':')),
    }
}

/// The lines, parsed once.
fn shapes() -> Result<&'static [ModelShape]> {
    static SHAPES: OnceLock<Result<Vec<ModelShape>>> = OnceLock::new();
    let parse = || {
        let failed = |e: csv::Error| Error::Parse { place: PLACE.into(), message: e.to_string() };
        let reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(TEXT.as_bytes());
        let lines = reader.into_deserialize().collect::<std::result::Result<Vec<ModelShape>, _>>();
        let shapes = lines.map_err(failed)?;
        match shapes.iter().find(|s| s.source.is_empty() || s.names.is_empty()) {
            Some(shape) => Err(Error::field(PLACE, "source", &shape.model, "names with a source")),
            None => Ok(shapes),
        }
    };
    SHAPES.get_or_init(parse).as_deref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_tunes_have_the_shape_of_their_base() {
        let shape = |name, tagged| shape(name, tagged).unwrap();
        assert_eq!(shape("x/Any-R1-Distill-Qwen-32B", false), Some("Qwen/Qwen2.5-32B"));
        assert_eq!(shape("Distill-Qwen-32B", false), None);
        assert_eq!(shape("mistral-7b", true), Some("mistralai/Mistral-7B-v0.3"));
        assert_eq!(shape("mistral-7b", false), None);
        let catalog = crate::Catalog::embedded().unwrap();
        for known in shapes().unwrap() {
            assert!(known.source.starts_with("https://"), "{known:?}");
            assert!(catalog.model_names().any(|name| name == known.model), "{known:?}");
        }
    }
}
