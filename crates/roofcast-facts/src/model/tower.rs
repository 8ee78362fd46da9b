//! The vision tower that turns images into tokens: its weights, and its memory while it computes an image.
//!
//! Knows: a vision transformer by its keys: layers of attention and MLP, patches, and the merger of patches into
//! tokens. [`merger`] has that merger; [`encoder`] has the tower as a model, whose time is that of a prompt; [`sizing`] the tokens of an image by
//! its size, [`video`] those of a video's frames, [`processor`] the bounds that a user sets.

mod encoder;
mod merger;
mod processor;
mod sizing;
mod video;

use super::keys::Keys;
use crate::error::Result;
use merger::{Merger, Widths};
pub use sizing::ImageSize;
pub use sizing::ImageTokens;
use sizing::Sizing;

/// Color values of a pixel.
const CHANNELS: u64 = 3;
/// Patches that are merged into a token along each axis, if the config does not say: Gemma 3 pools 4 × 4, others
/// merge 2 × 2.
const GEMMA_POOL: u64 = 4;
const MERGE: u64 = 2;
/// Most accepted patches that are merged along an axis; a larger value shows that the file is damaged.
const MOST_MERGED: u64 = 64;

/// Vision tower of a multimodal model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tower {
    /// Parameters of the tower, kept in 16 bits even if the text model is quantized.
    pub parameters: u64,
    /// Values per patch that exist at one time: residual and normalized stream, and both sides of the MLP's
    /// activation.
    pub patch_width: u64,
    /// Number of patches that are merged into a token.
    pub patches_per_token: u64,
    /// Tokens of the largest image, if it may exceed a step's token budget.
    pub largest: Option<u64>,
    /// Number of layers.
    layers: u64,
    /// Width of the residual stream.
    width: u64,
    /// Inner width of the MLPs.
    inner: u64,
    /// True if the MLPs have a gate.
    gated: bool,
    /// Number of attention heads; `None` if the config does not say.
    heads: Option<u64>,
    /// Weights that multiply every patch before the layers.
    embedding: u64,
    /// Multiplications of every token after the layers.
    merging: u64,
    /// Number of layers with attention over the whole image, and patches of a window in the others; `None` if every
    /// layer attends to the whole image.
    windows: Option<(u64, u64)>,
    /// Rule for the tokens of an image.
    sizing: Sizing,
    /// Layers and width of the tower according to the keys `num_hidden_layers` and `hidden_size` alone, which are the
    /// keys that SGLang reads.
    pub by_plain_keys: [Option<u64>; 2],
}

impl Tower {
    /// Reads the tower of `config`, which `place` names in errors, before a text model of width `hidden`.
    ///
    /// # Errors
    /// Fails for a config that is no object.
    pub(crate) fn of_config(
        place: &str,
        config: &serde_json::Value,
        model_type: &str,
        hidden: u64,
    ) -> Result<Option<Tower>> {
        Ok(Tower::read(&Keys::new(place, config)?, model_type, hidden))
    }

    /// Reads the tower of `vision_config` that precedes a text model of width `hidden`; `None` if known keys do not
    /// determine its size.
    pub(super) fn read(keys: &Keys, model_type: &str, hidden: u64) -> Option<Tower> {
        let vision = keys.object("vision_config")?;
        let count = |names: &[&str]| vision.count(names).ok().flatten();
        let layers = count(&["depth", "num_hidden_layers", "vt_num_hidden_layers", "num_layers"])?;
        // Qwen2-VL's `hidden_size` is the width behind its merger.
        let width = count(&["embed_dim", "hidden_size", "vt_hidden_size"])?;
        let kind = vision.text("model_type").ok().flatten().unwrap_or_default();
        // GLM-4.xV's `intermediate_size` is the merger's.
        let inner = match count(&["out_hidden_size"]).filter(|_| kind.starts_with("glm4v")) {
            Some(inner) => inner,
            None => count(&["intermediate_size", "vt_intermediate_size"]).unwrap_or(4 * width),
        };
        let patch = count(&["patch_size"])?;
        let gated_kinds = ["pixtral", "qwen2_5_vl", "gemma4", "glm4v"];
        let products = if gated_kinds.iter().any(|k| kind.starts_with(k)) { 3 } else { 2 };
        let block = (4 * width).checked_mul(width)?.checked_add(products * width * inner)?;
        let frames = count(&["temporal_patch_size"]).unwrap_or(1);
        let embedding =
            CHANNELS.checked_mul(patch)?.checked_mul(patch)?.checked_mul(frames)?.checked_mul(width)?;
        let merge = count(&["spatial_merge_size"]).unwrap_or(MERGE);
        let pool = count(&["pooling_kernel_size"]).unwrap_or(GEMMA_POOL);
        let merge = if model_type.starts_with("gemma") { pool } else { merge }.min(MOST_MERGED);
        let merge = Merger::edge(kind).unwrap_or(merge);
        let merger = Merger::of(&vision, model_type, kind, Widths { patch: width, merge, text: hidden })?;
        let parameters = layers.checked_mul(block)?.checked_add(embedding)?.checked_add(merger.parameters)?;
        let window = count(&["window_size"]).map(|pixels| (pixels / patch.max(1)).pow(2)).filter(|n| *n > 0);
        let full =
            vision.value("fullatt_block_indexes").and_then(|v| v.as_array()).map(|all| all.len() as u64);
        let side = count(&["image_size"]).map(|size| size / patch / merge);
        let sizing = Sizing::of(model_type, kind, patch * merge, count(&["image_size"]));
        let largest = sizing.largest().or(side.map(|n| n * n));
        Some(Tower {
            parameters,
            patch_width: 2 * (width + inner),
            patches_per_token: merge * merge,
            largest,
            layers,
            width,
            inner,
            gated: products == 3,
            heads: count(&["num_heads", "num_attention_heads", "vt_num_attention_heads"]),
            embedding,
            merging: merger.per_token,
            windows: full.zip(window),
            sizing,
            by_plain_keys: [count(&["num_hidden_layers"]), count(&["hidden_size"])],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Qwen3-VL-30B-A3B: 27 layers of width 1152 and MLP width 4304, patches of 16 × 16 in two frames, and four
    /// mergers from 4 × 1152 to the text model's 2048.
    #[test]
    fn qwen3_vl_by_hand() {
        let config = serde_json::json!({
            "model_type": "qwen3_vl_moe", "text_config": { "hidden_size": 2048 },
            "vision_config": {
                "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16,
                "temporal_patch_size": 2, "spatial_merge_size": 2, "deepstack_visual_indexes": [8, 16, 24]
            }
        });
        let keys = Keys::new("config.json", &config).unwrap();
        let tower = Tower::read(&keys, "qwen3_vl_moe", 2048).unwrap();
        let layers = 27 * (4 * 1152 * 1152 + 2 * 1152 * 4304);
        let patches = 3 * 16 * 16 * 2 * 1152;
        assert_eq!(tower.parameters, layers + patches + 4 * (4608 * 4608 + 4608 * 2048));
        assert_eq!((tower.patch_width, tower.patches_per_token, tower.largest), (10_912, 4, Some(16_384)));
    }

    /// Qwen2.5-VL: 4 of 32 layers attend to the whole image, the others within windows of 112 pixels, 8 × 8 patches of 14.
    #[test]
    fn windows_by_hand() {
        let config = serde_json::json!({
            "model_type": "qwen2_5_vl",
            "vision_config": {
                "model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
                "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "window_size": 112,
                "fullatt_block_indexes": [7, 15, 23, 31]
            }
        });
        let keys = Keys::new("config.json", &config).unwrap();
        let tower = Tower::read(&keys, "qwen2_5_vl", 3584).unwrap();
        assert_eq!((tower.windows, tower.gated, tower.heads), (Some((4, 64)), true, Some(16)));
    }

    /// Parameters of the towers of transformers' default classes, counted by their modules, without norms, biases, classes and
    /// positions: layers, patches and mergers by hand.
    #[test]
    fn mergers_by_hand() {
        let parameters = |vision: serde_json::Value, outer: &str, hidden: u64| {
            let config = serde_json::json!({ "model_type": outer, "vision_config": vision });
            Tower::read(&Keys::new("config.json", &config).unwrap(), outer, hidden).unwrap().parameters
        };
        let qwen2 = serde_json::json!({
            "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "patch_size": 14,
            "spatial_merge_size": 2, "temporal_patch_size": 2
        });
        let layers = 32 * 12 * 1280 * 1280;
        let patches = 3 * 14 * 14 * 2 * 1280;
        assert_eq!(parameters(qwen2, "qwen2_vl", 3584), layers + patches + 5120 * (5120 + 3584));
        let glm = serde_json::json!({
            "model_type": "glm4v_vision", "depth": 24, "hidden_size": 1536, "intermediate_size": 13_696,
            "out_hidden_size": 4096, "num_heads": 12, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2
        });
        let layers = 24 * (4 * 1536 * 1536 + 3 * 1536 * 4096);
        let patches = 3 * 14 * 14 * 2 * 1536;
        let merger = 4096 * 4 * 1536 + 4096 * 4096 + 3 * 4096 * 13_696;
        assert_eq!(parameters(glm, "glm4v_text", 4096), layers + patches + merger);
        let llama = serde_json::json!({
            "model_type": "llama4_vision_model", "num_hidden_layers": 34, "hidden_size": 1408, "intermediate_size": 5632,
            "num_attention_heads": 16, "patch_size": 14, "image_size": 336, "projector_input_dim": 4096,
            "projector_output_dim": 4096
        });
        let layers = 34 * 12 * 1408 * 1408;
        let merger = 5632 * 4096 + 4096 * 4096 + 4096 * 5120;
        assert_eq!(parameters(llama, "llama4_text", 5120), layers + 3 * 14 * 14 * 1408 + merger);
        let step = serde_json::json!({
            "model_type": "step3p5_vision", "num_hidden_layers": 47, "hidden_size": 1536, "intermediate_size": 8960,
            "num_attention_heads": 16, "patch_size": 14, "image_size": 728
        });
        let layers = 47 * (4 * 1536 * 1536 + 2 * 1536 * 8960);
        let merger = 9 * 1536 * 3072 + 9 * 3072 * 6144 + 6144 * 4096;
        assert_eq!(parameters(step, "step3p5", 4096), layers + 3 * 14 * 14 * 1536 + merger);
    }

    #[test]
    fn a_tower_without_its_size_is_none() {
        let config = serde_json::json!({ "vision_config": { "hidden_size": 1152 } });
        assert_eq!(Tower::read(&Keys::new("config.json", &config).unwrap(), "llava", 4096), None);
    }
}
