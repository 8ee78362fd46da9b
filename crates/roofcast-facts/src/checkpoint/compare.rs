//! Comparison of a checkpoint with the model that its config describes, layer by layer and tensor by tensor.
//!
//! Knows: the names of the model's tensors in files. Only tensors in 16 or 32 bits and GGUF types, which keep their
//! shapes, are compared by shape: other quantized checkpoints store packed values with separate scales.

use super::Stored;
use crate::model::Model;
use std::collections::BTreeMap;

/// Difference between file and config in one place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Layer number, or `outside the layers`.
    pub place: String,
    /// Parameters there, according to the config.
    pub config: u64,
    /// Values there, according to the file.
    pub file: u64,
    /// The file's tensors there, with their shapes.
    pub tensors: Vec<String>,
}

/// Lists the layers whose parameters differ between `model` and the tensors of its checkpoint; the list is empty if
/// tensors are packed.
///
/// Multi-token-prediction layers and vision towers are not part of the model and are ignored.
pub fn differences(model: &Model, stored: &[Stored]) -> Vec<Difference> {
    if stored.iter().any(is_packed) {
        return Vec::new();
    }
    let mut places: BTreeMap<usize, (u64, Vec<String>)> = BTreeMap::new();
    let outside = model.held_layers().len();
    for tensor in stored.iter().filter(|t| belongs(t)) {
        let place = layer_of(&tensor.name).unwrap_or(outside);
        if place > outside || (place == outside && layer_of(&tensor.name).is_some()) {
            continue; // a layer behind the last: multi-token prediction
        }
        let entry = places.entry(place).or_default();
        entry.0 = entry.0.saturating_add(tensor.elements);
        entry.1.push(format!("{} {:?}", tensor.name, tensor.shape));
    }
    let expected = |place: usize| -> u64 {
        let tensors = match model.held_layers().get(place) {
            Some(layer) => layer.tensors(model.hidden),
            None => model
                .outer
                .iter()
                .filter(|t| !(model.tied && t.role == crate::model::TensorRole::Head))
                .copied()
                .collect(),
        };
        u64::try_from(tensors.iter().map(crate::model::Tensor::elements).sum::<u128>()).unwrap_or(u64::MAX)
    };
    (0..=outside)
        .filter_map(|place| {
            let config = expected(place);
            let (file, tensors) = places.remove(&place).unwrap_or_default();
            let name =
                if place == outside { "outside the layers".to_owned() } else { format!("layer {place}") };
            (config != file).then_some(Difference { place: name, config, file, tensors })
        })
        .collect()
}

/// Layer number in a tensor's name: `model.layers.3.mlp…`, `blk.3.…`, `h.3.…`.
fn layer_of(name: &str) -> Option<usize> {
    let mut parts = name.split('.');
    parts.find(|p| ["layers", "blk", "h", "blocks", "block"].contains(p))?;
    parts.next()?.parse().ok()
}

/// True if a tensor belongs to the language model: not a rotary table, a vision tower, or a second head.
fn belongs(tensor: &Stored) -> bool {
    let name = tensor.name.as_str();
    let others =
        ["visual.", "vision_", "mtp.", "multi_modal", "mm_projector", "rotary_emb", "rope_freqs", "audio_"];
    !others.iter().any(|o| name.contains(o))
        && !name.ends_with(".attn.bias")
        && !name.ends_with("masked_bias")
}

/// True if a tensor packs several values into one, or holds scales.
fn is_packed(tensor: &Stored) -> bool {
    let last = tensor.name.rsplit('.').next().unwrap_or("");
    last.contains("qweight")
        || last.contains("packed")
        || last.contains("scale")
        || last.contains("qzeros")
        || last.contains("_blocks")
}
