//! Tokens of a video's frames, by the rules of Qwen's video processors.
//!
//! Knows: Qwen's towers merge two frames into one grid of patches, and how frames share a video's bounds. Knows nothing about
//! how many frames a server samples.

/// Fewest and most pixels of all frames of a video together, of Qwen3-VL and later (`size` of its
/// `video_preprocessor_config.json`); Qwen2-VL's and Qwen2.5-VL's frames have an image's bounds each, which their one
/// `preprocessor_config.json` sets.
pub(super) const QWEN3_VIDEO: [u64; 2] = [4096, 25_165_824];
/// Frames that Qwen's towers compute together (`temporal_patch_size`).
const PAIR: u64 = 2;

/// Rule for the frames of a video (`video_processing_qwen2_vl.py`, `video_processing_qwen3_vl.py` of transformers 5.24).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VideoRule {
    /// Each frame has the bounds of an image.
    Each,
    /// All frames share these bounds in pixels.
    Shared([u64; 2]),
    /// The rule is not modelled.
    Unknown,
}

/// Frames that share bounds on pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharers {
    /// Number that counts where their pixels are compared with the bounds.
    pub(super) compared: u64,
    /// Number that counts where they are scaled to the bounds.
    pub(super) scaled: u64,
}

impl Sharers {
    /// Bounds of `frames` frames, all of which count.
    pub(super) fn all(frames: u64) -> Sharers {
        Sharers { compared: frames, scaled: frames }
    }
}

/// Number of pairs of a video of `frames` frames; the last one may be filled up.
pub(super) fn frame_pairs(frames: u64) -> u64 {
    frames.div_ceil(PAIR)
}

impl VideoRule {
    /// Bounds in pixels, and the frames that they bound together, of a video of `frames` frames, where an image has the
    /// bounds `image`; `None` if the rule is not modelled. An odd number of frames that share bounds is rounded to pairs, a
    /// half to even, where their pixels are compared with the bounds, and taken as it is where they are scaled
    /// (`smart_resize`).
    pub(super) fn bounds(self, image: [u64; 2], frames: u64) -> Option<([u64; 2], Sharers)> {
        match self {
            VideoRule::Each => Some((image, Sharers::all(1))),
            VideoRule::Shared(bounds) => {
                let pairs = (frames as f64 / PAIR as f64).round_ties_even() as u64;
                Some((bounds, Sharers { compared: PAIR * pairs, scaled: frames }))
            }
            VideoRule::Unknown => None,
        }
    }

    /// Fewest frames that the processor accepts.
    pub(super) fn fewest(self) -> u64 {
        match self {
            VideoRule::Shared(_) => PAIR,
            VideoRule::Each | VideoRule::Unknown => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageSize, Tower};
    use crate::model::keys::Keys;

    fn made(kind: &str, patch: u64) -> Tower {
        let config = serde_json::json!({ "vision_config": {
            "model_type": kind, "num_hidden_layers": 24, "hidden_size": 1024, "patch_size": patch
        }});
        Tower::read(&Keys::new("config.json", &config).unwrap(), kind, 4096).unwrap()
    }

    /// Tokens, patches and pairs of a video of 1280 × 720.
    fn video(tower: &Tower, frames: u64) -> Option<(u64, u64, u64)> {
        let video = tower.tokens_of(ImageSize::Frames(1280, 720, frames))?;
        Some((video.tokens, video.patches, video.parts))
    }

    /// Pairs of frames of 1280 × 720 have 46 · 26 tokens of 28 pixels in Qwen2.5-VL. Qwen3-VL's 768 frames share 25,165,824
    /// pixels, 32 tokens of 32 pixels each: 40 · 22.5 tokens are shrunk by √(900 / 32) = 5.303 to 7 · 4. Of 32 frames each
    /// has 768 tokens: shrunk by √(900 / 768) = 1.0825 to 36 · 20. A video's tokens are those of its pairs together.
    #[test]
    fn videos_by_hand() {
        let older = made("qwen2_5_vl", 14);
        assert_eq!(video(&older, 32), Some((16 * 46 * 26, 16 * 4 * 46 * 26, 16)));
        let newer = made("qwen3_vl", 16);
        assert_eq!(video(&newer, 768), Some((384 * 28, 384 * 112, 384)));
        assert_eq!(video(&newer, 32), Some((16 * 720, 16 * 2880, 16)));
        assert_eq!(video(&made("glm4v_moe", 14), 32), None);
    }

    /// The last of an odd number of frames is a pair of its own. 27.9 frames of 40 · 22 tokens have Qwen3-VL's 24,576. 31 frames
    /// count as 32 there, and are shrunk by √(900 · 31 / 24,576) = 1.0655 to 37 · 21; 29 count as 28 and are shrunk by
    /// √(900 · 29 / 24,576) = 1.0305 to 38 · 21. 27 count as 28, too, but the factor √(900 · 27 / 24,576) = 0.9944 leaves
    /// them 40 · 22. 33 are shrunk by √(900 · 33 / 24,576) = 1.0993 to 36 · 20.
    #[test]
    fn odd_frames_by_hand() {
        let tower = made("qwen3_vl", 16);
        let tokens = |frames| video(&tower, frames).unwrap().0;
        assert_eq!([tokens(31), tokens(29)], [16 * 37 * 21, 15 * 38 * 21]);
        assert_eq!([tokens(27), tokens(33)], [14 * 40 * 22, 17 * 36 * 20]);
    }
}
