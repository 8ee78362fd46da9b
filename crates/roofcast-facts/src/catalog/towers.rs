//! Vision towers of models that the catalog knows by the shape of their text model: `catalog/towers.toml`.
//!
//! Knows: names of such models, their towers, and words of names of models with a tower that is not known. Knows nothing
//! about entries.

use super::names::words;
use super::shapes::is_named;
use crate::error::{Error, Result};
use crate::model::{Model, Tower};
use serde::Deserialize;
use std::sync::OnceLock;

const PLACE: &str = "catalog/towers.toml";
const TEXT: &str = include_str!("../../catalog/towers.toml");
/// Sentence for reports on a tower that is not known.
const UNKNOWN: &str = "memory and time of the text model alone: the tower for images or sound is not counted, because its \
                       dimensions are not in the catalog";

/// Contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Towers {
    /// Parts of words in names of models with a tower.
    parts: Vec<String>,
    /// Names of further models with a tower that is not known.
    uncounted: Vec<String>,
    tower: Vec<NamedTower>,
}

/// Tower of the models with `names`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedTower {
    /// Names of models, as in `catalog/shapes.csv`.
    names: Vec<String>,
    /// Web address of the page that states the dimensions.
    source: String,
    /// Type of the whole model.
    model_type: String,
    /// Keys and values as in `config.json`.
    vision_config: serde_json::Value,
}

/// Adds the tower of the model with one of `names` to `model`, whose entry has none, or the assumption that it is not counted.
pub(super) fn add(model: &mut Model, names: &[&str]) -> Result<()> {
    if model.tower.is_some() {
        return Ok(());
    }
    let towers = towers()?;
    let is_among =
        |list: &[String]| list.iter().any(|known| names.iter().any(|name| is_named(known, name, true)));
    if let Some(known) = towers.tower.iter().find(|tower| is_among(&tower.names)) {
        let config =
            serde_json::json!({ "model_type": known.model_type, "vision_config": known.vision_config });
        model.tower = Tower::of_config(PLACE, &config, &known.model_type, model.hidden)?;
        model.assumptions.push(Model::WITHOUT_TOWERS.to_owned());
        return Ok(());
    }
    let says_so =
        |word: &str| towers.parts.iter().any(|part| word.contains(part.as_str())) || is_numbered_vision(word);
    if names.iter().flat_map(|name| words(name)).any(|word| says_so(&word)) || is_among(&towers.uncounted) {
        model.assumptions.push(UNKNOWN.to_owned());
    }
    Ok(())
}

/// True for words as `1v` of `GLM-4.1V` and `glm4v`.
fn is_numbered_vision(word: &str) -> bool {
    word.strip_suffix('v').is_some_and(|version| version.ends_with(|c: char| c.is_ascii_digit()))
}

/// The file, parsed once.
fn towers() -> Result<&'static Towers> {
    static TOWERS: OnceLock<Result<Towers>> = OnceLock::new();
    let parse = || {
        let towers: Towers = toml::from_str(TEXT).map_err(|e| Error::toml(PLACE, TEXT, "", &e))?;
        match towers.tower.iter().find(|tower| tower.source.is_empty() || tower.names.is_empty()) {
            Some(tower) => Err(Error::field(PLACE, "source", &tower.model_type, "names with a source")),
            None => Ok(towers),
        }
    };
    TOWERS.get_or_init(parse).as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ImageSize;

    fn model(name: &str) -> Model {
        crate::Catalog::embedded().unwrap().named(name).unwrap().model().unwrap()
    }

    /// Qwen2.5-VL-7B has 32 layers of width 1280, with an MLP of 3 × 3420, patches of 14 × 14 in two frames, and a merger from
    /// 5120 to the text model's 3584; 1920 × 1080 pixels are 69 × 39 tokens of 28 pixels. The Instruct model in 4 bits is the
    /// same.
    #[test]
    fn a_tower_by_its_models_name() {
        let layers = 32 * (4 * 1280 * 1280 + 3 * 1280 * 3420);
        let parameters = layers + 3 * 14 * 14 * 2 * 1280 + 5120 * (5120 + 3584);
        for name in ["Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "qwen2.5-vl-7b"] {
            let tower = model(name).tower.unwrap();
            assert_eq!(tower.parameters, parameters, "{name}");
            assert_eq!(tower.tokens_of(ImageSize::Pixels(1920, 1080)).unwrap().tokens, 69 * 39, "{name}");
        }
    }

    #[test]
    fn every_tower_is_read_or_said() {
        for known in &towers().unwrap().tower {
            assert!(known.source.starts_with("https://"), "{known:?}");
            for name in &known.names {
                assert!(model(name).tower.is_some(), "{name}");
            }
        }
        for name in
            towers().unwrap().uncounted.iter().map(String::as_str).chain(["Kimi-VL-A3B", "InternVL2-8B"])
        {
            let model = model(name);
            assert!(model.tower.is_none() && model.assumptions.iter().any(|said| said == UNKNOWN), "{name}");
        }
        let vision_or_sound = [
            "zai-org/GLM-4.1V-9B-Thinking",
            "zai-org/GLM-4.5V",
            "zai-org/GLM-4.6V-FP8",
            "GLM-4.6V-Flash",
            "microsoft/Phi-4-multimodal-instruct",
            "Qwen/Qwen2-Audio-7B-Instruct",
            "moonshotai/Kimi-Audio-7B-Instruct",
            "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning",
            "ServiceNow-AI/Apriel-1.6-15b-Thinker",
            "mistral3 14B",
        ];
        for name in vision_or_sound {
            assert!(model(name).assumptions.iter().any(|said| said == UNKNOWN), "{name}");
        }
        assert!(model("llama4:scout").tower.is_some());
        assert!(model("Qwen/Qwen2.5-7B-Instruct").assumptions.iter().all(|said| said != UNKNOWN));
    }
}
