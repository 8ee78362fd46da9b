//! Tokens of a video's frames, by the rules of Qwen's video processors.
//!
//! Knows: Qwen's towers compute two frames as one image, and how frames share a video's bounds. Knows nothing about how many
//! frames a server samples.

/// Fewest and most pixels of all frames of a video together, of Qwen3-VL and later (`size` of its
/// `video_preprocessor_config.json`); Qwen2-VL's and Qwen2.5-VL's frames have an image's bounds each, which their one
/// `preprocessor_config.json` sets.
pub(super) const QWEN3_VIDEO: [u64; 2] = [4096, 25_165_824];
/// Frames that Qwen's towers compute together (`temporal_patch_size`).
const PAIR: u64 = 2;

/// Rule for the frames of a video (`video_processing_qwen2_vl.py`, `video_processing_qwen3_vl.py` of transformers 5.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VideoRule {
    /// Each frame has the bounds of an image.
    Each,
    /// All frames share these bounds in pixels.
    Shared([u64; 2]),
    /// The rule is not modelled.
    Unknown,
}

/// Number of images that a tower computes for a video of `frames` frames: pairs, of which the last may be filled up.
pub fn frame_pairs(frames: u64) -> u64 {
    frames.div_ceil(PAIR)
}

impl VideoRule {
    /// Bounds in pixels, and the number of frames that they bound together, of a video of `frames` frames, where an image
    /// has the bounds `image`; `None` if the rule is not modelled.
    pub(super) fn bounds(self, image: [u64; 2], frames: u64) -> Option<([u64; 2], u64)> {
        match self {
            VideoRule::Each => Some((image, 1)),
            VideoRule::Shared(bounds) => Some((bounds, PAIR * frame_pairs(frames.max(1)))),
            VideoRule::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageSize, Tower};
    use super::*;
    use crate::model::keys::Keys;

    fn made(kind: &str, patch: u64) -> Tower {
        let config = serde_json::json!({ "vision_config": {
            "model_type": kind, "num_hidden_layers": 24, "hidden_size": 1024, "patch_size": patch
        }});
        Tower::read(&Keys::new("config.json", &config).unwrap(), kind, 4096).unwrap()
    }

    /// A pair of frames of 1280 × 720 has 46 · 26 tokens of 28 pixels in Qwen2.5-VL. Qwen3-VL's 768 frames share 25,165,824
    /// pixels, 32 tokens of 32 pixels each: 40 · 22.5 tokens are shrunk by √(900 / 32) = 5.303 to 7 · 4. Of 32 frames each
    /// has 768 tokens: shrunk by √(900 / 768) = 1.0825 to 36 · 20.
    #[test]
    fn videos_by_hand() {
        let pair = |tower: &Tower, frames| {
            tower.tokens_of(ImageSize::Frames(1280, 720, frames)).map(|image| (image.tokens, image.patches))
        };
        let older = made("qwen2_5_vl", 14);
        assert_eq!(pair(&older, 32), Some((46 * 26, 4 * 46 * 26)));
        let newer = made("qwen3_vl", 16);
        assert_eq!([pair(&newer, 768), pair(&newer, 32)], [Some((28, 112)), Some((720, 2880))]);
        assert_eq!(pair(&made("glm4v_moe", 14), 32), None);
        assert_eq!([frame_pairs(32), frame_pairs(33)], [16, 17]);
    }
}
