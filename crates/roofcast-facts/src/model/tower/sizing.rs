//! Tokens and patches of an image by its width and height, by the rules of the models' image processors.
//!
//! Knows: the rules of Qwen-VL, GLM-4.xV, InternVL, Llama 4, Kimi-K2.5, Gemma 3, Gemma 4 and Pixtral, and the bounds
//! that [`super::processor`] reads; [`super::video`] has the frames of videos; other towers take a number of tokens. Knows nothing about tokens of text that mark an image's beginning and end.

use super::video::{QWEN3_VIDEO, Sharers, VideoRule, frame_pairs};
use super::{MERGE, Tower};

/// Fewest and most pixels of an image of Qwen2-VL and later, and of Qwen3-VL and later: 4 and 16,384 tokens of 28 × 28
/// pixels, 64 and 16,384 of 32 × 32 (`min_pixels`, `max_pixels`, `size` of `preprocessor_config.json`).
const QWEN2_BOUNDS: [u64; 2] = [4 * 28 * 28, 16_384 * 28 * 28];
const QWEN3_BOUNDS: [u64; 2] = [64 * 32 * 32, 16_384 * 32 * 32];
/// Fewest and most pixels of both frames that GLM-4.xV's processor makes of an image: 112 × 112, and 12,288 tokens of
/// 28 × 28 (`size` of its `preprocessor_config.json`).
const GLM_BOUNDS: [u64; 2] = [112 * 112, 12_288 * 28 * 28];
const GLM_FRAMES: u64 = 2;
/// Most tiles of an image of InternVL, each with 448 × 448 pixels and 256 tokens (`max_dynamic_patch`).
const INTERN_TILES: u64 = 12;
/// Most tiles of an image of Llama 4 (`max_patches` of `image_processing_llama4_fast.py` in transformers).
const LLAMA4_TILES: u64 = 16;
/// Most patches of an image of Kimi-K2.5, and along a side (`in_patch_limit`, `patch_limit_on_one_side` of its
/// `preprocessor_config.json`).
const KIMI_PATCHES: u64 = 16_384;
const KIMI_SIDE: u64 = 512;
/// Largest ratio of an image's sides that Qwen's processors accept, and GLM's, which follow them
/// (`smart_resize` of transformers' `image_processing_qwen2_vl.py`).
const WIDEST: u64 = 200;
/// Tokens of every image of Gemma 3 (`mm_tokens_per_image`), which is scaled to 896 × 896 pixels.
const GEMMA3: u64 = 256;
/// Most tokens of an image of Gemma 4 (`max_soft_tokens` of transformers' `image_processing_gemma4.py`).
const GEMMA4_TOKENS: u64 = 280;
/// Longest side in pixels of Pixtral's images if the config does not say (`PixtralVisionConfig`).
const PIXTRAL_SIDE: u64 = 1024;

/// Rule for the tokens of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizing {
    /// Each side is rounded to a multiple of `pixels`; images beyond the bounds on tokens are scaled
    /// (`smart_resize` of transformers' `image_processing_qwen2_vl.py`).
    Qwen {
        /// Pixels of a token along each side.
        pixels: u64,
        /// Fewest and most pixels of all frames of an image.
        bounds: [u64; 2],
        /// Number of frames that an image counts as.
        frames: u64,
        /// Rule of a video's frames.
        video: VideoRule,
    },
    /// Images are cut into tiles of equal size, as many as fit their shape best, with a thumbnail if there are several
    /// (`dynamic_preprocess` of InternVL).
    Tiles {
        /// Pixels of a tile along each side.
        side: u64,
        /// Tokens of a tile.
        tokens: u64,
        /// Most tiles.
        most: u64,
        /// True for Llama 4's grid, false for InternVL's.
        whole: bool,
    },
    /// Images beyond a number of patches are scaled down; then each side is filled up to whole tokens
    /// (`navit_resize_image` of Kimi-K2.5's `media_utils.py`).
    Filled {
        /// Pixels of a patch along each side.
        patch: u64,
        /// Pixels of a token along each side.
        pixels: u64,
        /// Most patches.
        most: u64,
    },
    /// Images are scaled up or down to as many whole tokens as fit; the tower always computes the most patches
    /// (`get_aspect_ratio_preserving_size` of transformers' `image_processing_gemma4.py`).
    Scaled {
        /// Pixels of a token along each side.
        pixels: u64,
        /// Most tokens.
        most: u64,
    },
    /// Every image has this number of tokens.
    Fixed(u64),
    /// Images are scaled down to at most `side` pixels; each row of tokens ends with one more token
    /// (`image_processing_pixtral.py`, `processing_pixtral.py`).
    Pixtral {
        /// Pixels of a token along each side.
        pixels: u64,
        /// Longest side in pixels.
        side: u64,
    },
    /// The config does not decide the tokens of an image.
    Unknown,
}

impl Sizing {
    /// Tokens of the largest image; `None` if the rule states none.
    pub(super) fn largest(&self) -> Option<u64> {
        match self {
            Sizing::Qwen { pixels, bounds: [_, most], frames, .. } => Some(most / (pixels * pixels * frames)),
            Sizing::Tiles { tokens, most, .. } => Some((most + 1) * tokens),
            Sizing::Scaled { most, .. } => Some(*most),
            Sizing::Filled { patch, pixels, most } => Some(most * patch * patch / (pixels * pixels)),
            Sizing::Fixed(_) | Sizing::Pixtral { .. } | Sizing::Unknown => None,
        }
    }

    /// The rule of a model of type `model_type`, with a tower of type `kind` and tokens of `pixels` pixels along each
    /// side.
    pub(super) fn of(model_type: &str, kind: &str, pixels: u64, side: Option<u64>) -> Sizing {
        match model_type {
            _ if pixels == 0 => Sizing::Unknown,
            _ if kind.starts_with("intern") => {
                let side = side.unwrap_or(pixels);
                Sizing::Tiles { side, tokens: (side / pixels).pow(2), most: INTERN_TILES, whole: false }
            }
            _ if kind.starts_with("llama4") => {
                let side = side.unwrap_or(pixels);
                Sizing::Tiles { side, tokens: (side / pixels).pow(2), most: LLAMA4_TILES, whole: true }
            }
            _ if kind.starts_with("gemma4") => Sizing::Scaled { pixels, most: GEMMA4_TOKENS },
            "kimi_k25" => Sizing::Filled { patch: pixels / MERGE, pixels, most: KIMI_PATCHES },
            _ if kind.starts_with("glm4v") => {
                Sizing::Qwen { pixels, bounds: GLM_BOUNDS, frames: GLM_FRAMES, video: VideoRule::Unknown }
            }
            _ if !(kind.is_empty() || kind.starts_with("qwen") || kind == "pixtral")
                && model_type.starts_with("qwen") =>
            {
                Sizing::Unknown
            }
            qwen if qwen.starts_with("qwen2") => {
                Sizing::Qwen { pixels, bounds: QWEN2_BOUNDS, frames: 1, video: VideoRule::Each }
            }
            qwen if qwen.starts_with("qwen3") => {
                let video = VideoRule::Shared(QWEN3_VIDEO);
                Sizing::Qwen { pixels, bounds: QWEN3_BOUNDS, frames: 1, video }
            }
            gemma if gemma.starts_with("gemma3") && !gemma.starts_with("gemma3n") => Sizing::Fixed(GEMMA3),
            _ if kind == "pixtral" => Sizing::Pixtral { pixels, side: side.unwrap_or(PIXTRAL_SIDE) },
            _ => Sizing::Unknown,
        }
    }
}

/// Size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSize {
    /// Width and height in pixels of a video's frames, and their number.
    Frames(u64, u64, u64),
    /// Width and height in pixels.
    Pixels(u64, u64),
    /// Number of tokens.
    Tokens(u64),
}

/// Tokens of an image or a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageTokens {
    /// Number of tokens that it adds to a prompt.
    pub tokens: u64,
    /// Number of patches that the tower computes, all in one pass.
    pub patches: u64,
    /// Number of equal parts whose patches attend to each other alone: 1 of an image, pairs of frames of a video.
    pub parts: u64,
}

impl ImageTokens {
    /// The tokens of an image, whose patches all attend to each other.
    pub fn image(tokens: u64, patches: u64) -> ImageTokens {
        ImageTokens { tokens, patches, parts: 1 }
    }
}

impl Tower {
    /// Largest ratio of an image's sides that the processor accepts, if `size` exceeds it.
    pub fn exceeds(&self, size: ImageSize) -> Option<u64> {
        let (ImageSize::Pixels(width, height) | ImageSize::Frames(width, height, _), Sizing::Qwen { .. }) =
            (size, self.sizing)
        else {
            return None;
        };
        (width.max(height) > WIDEST * width.min(height)).then_some(WIDEST)
    }

    /// Fewest frames of a video that the processor accepts.
    pub fn fewest_frames(&self) -> u64 {
        if let Sizing::Qwen { video, .. } = self.sizing { video.fewest() } else { 1 }
    }

    /// Tokens of an image; `None` if the config does not decide them.
    pub fn tokens_of(&self, size: ImageSize) -> Option<ImageTokens> {
        let (width, height) = match size {
            ImageSize::Pixels(width, height) => (width, height),
            ImageSize::Frames(width, height, frames) => {
                let parts = frame_pairs(frames);
                let tokens = parts * self.tokens_of_pair(width, height, frames)?;
                return Some(ImageTokens { tokens, patches: tokens * self.patches_per_token, parts });
            }
            ImageSize::Tokens(tokens) => {
                return Some(ImageTokens::image(tokens, tokens * self.patches_per_token));
            }
        };
        let (tokens, breaks) = match self.sizing {
            Sizing::Qwen { pixels, bounds, frames, .. } => {
                (qwen(width, height, pixels, bounds, Sharers::all(frames)), 0)
            }
            Sizing::Tiles { side, tokens, most, whole } => {
                let tiles = if whole { grid } else { tiles }(width, height, side, most);
                (tokens * if tiles > 1 { tiles + 1 } else { tiles }, 0)
            }
            Sizing::Filled { patch, pixels, most } => (filled(width, height, patch, pixels, most), 0),
            Sizing::Scaled { pixels, most } => {
                let tokens = scaled(width, height, pixels, most);
                return Some(ImageTokens::image(tokens, most * self.patches_per_token));
            }
            Sizing::Fixed(tokens) => (tokens, 0),
            Sizing::Pixtral { pixels, side } => {
                let ratio = (width.max(height) as f64 / side as f64).max(1.0);
                let [columns, rows] =
                    [width, height].map(|edge| ((edge as f64 / ratio) as u64).max(1).div_ceil(pixels));
                (columns * rows, rows)
            }
            Sizing::Unknown => return None,
        };
        Some(ImageTokens::image(tokens + breaks, tokens * self.patches_per_token))
    }
}

impl Tower {
    /// Tokens of a pair of a video's frames; `None` if the config does not decide them.
    fn tokens_of_pair(&self, width: u64, height: u64, frames: u64) -> Option<u64> {
        let Sizing::Qwen { pixels, bounds, video, .. } = self.sizing else { return None };
        let (bounds, sharers) = video.bounds(bounds, frames)?;
        Some(qwen(width, height, pixels, bounds, sharers))
    }
}

/// Tokens of a frame by Qwen's rule, where `frames` have between the pixels of `bounds` together.
fn qwen(width: u64, height: u64, pixels: u64, bounds: [u64; 2], frames: Sharers) -> u64 {
    let unit = pixels as f64;
    let [least, most] = bounds.map(|bound| bound as f64 / (unit * unit));
    let sides = [width, height].map(|side| side as f64 / unit);
    let rounded = sides.map(|side| side.round_ties_even().max(1.0));
    let area = sides[0] * sides[1] * frames.scaled as f64;
    let product = |sides: [f64; 2]| (sides[0] * sides[1]) as u64;
    let compared = (product(rounded) * frames.compared) as f64;
    if compared > most {
        let shrink = (area / most).sqrt();
        return product(sides.map(|side| (side / shrink).floor().max(1.0)));
    }
    if compared < least {
        let enlarge = (least / area).sqrt();
        return product(sides.map(|side| (side * enlarge).ceil()));
    }
    product(rounded)
}

/// Grids of up to `most` tiles, as columns and rows, by their number of tiles.
fn grids(most: u64) -> Vec<(u64, u64)> {
    let columns = |columns: u64| (1..=most / columns).map(move |rows| (columns, rows));
    let mut grids: Vec<(u64, u64)> = (1..=most).flat_map(columns).collect();
    grids.sort_by_key(|(columns, rows)| columns * rows);
    grids
}

/// Number of tiles of `side` pixels into which Llama 4 cuts an image: of the grids in which the image fits without being
/// shrunk the one that enlarges it least, else the one that shrinks it least; among equals the smallest.
fn grid(width: u64, height: u64, side: u64, most: u64) -> u64 {
    let scale = |(columns, rows): (u64, u64)| {
        let across = (columns * side) as f64 / width.max(1) as f64;
        across.min((rows * side) as f64 / height.max(1) as f64)
    };
    let grids = grids(most);
    let enlarges = grids.iter().map(|grid| scale(*grid)).filter(|scale| *scale >= 1.0).reduce(f64::min);
    let chosen = enlarges.unwrap_or_else(|| grids.iter().map(|grid| scale(*grid)).fold(0.0, f64::max));
    grids.iter().find(|grid| scale(**grid) == chosen).map_or(1, |(columns, rows)| columns * rows)
}

/// Tokens of an image by Kimi's rule: whole patches are counted before scaling, so that sides filled up to whole tokens
/// may exceed the limit.
fn filled(width: u64, height: u64, patch: u64, pixels: u64, most: u64) -> u64 {
    let patch = patch.max(1);
    let whole = [width, height].map(|side| (side / patch).max(1) as f64);
    let side = (KIMI_SIDE * patch) as f64;
    let limits = [(most as f64 / (whole[0] * whole[1])).sqrt(), side / width as f64, side / height as f64];
    let scale = limits.into_iter().fold(1.0, f64::min);
    let tokens = [width, height].map(|side| ((side as f64 * scale) as u64).max(1).div_ceil(pixels));
    tokens[0] * tokens[1]
}

/// Tokens of an image by Gemma 4's rule.
fn scaled(width: u64, height: u64, pixels: u64, most: u64) -> u64 {
    let token = pixels as f64;
    let [width, height] = [width, height].map(|side| side.max(1) as f64);
    let scale = (most as f64 * token * token / (width * height)).sqrt();
    let [columns, rows] = [width, height].map(|side| (side * scale / token) as u64);
    // A side below one token is one, and the other as long as the ratio of sides allows.
    match (columns, rows) {
        (_, 0) => ((width / height) as u64).clamp(1, most),
        (0, _) => ((height / width) as u64).clamp(1, most),
        _ => columns * rows,
    }
}

/// Number of tiles of `side` pixels into which InternVL cuts an image: of the grids of up to `most` tiles the one with the
/// nearest ratio of sides; among equal ratios a larger grid if the image fills more than half of it.
fn tiles(width: u64, height: u64, side: u64, most: u64) -> u64 {
    let ratio = width as f64 / height.max(1) as f64;
    let mut nearest = f64::INFINITY;
    let mut chosen = 1;
    for (columns, rows) in grids(most) {
        let distance = (ratio - columns as f64 / rows as f64).abs();
        let fills = 2 * u128::from(width) * u128::from(height)
            > u128::from(side) * u128::from(side) * u128::from(columns * rows);
        if distance < nearest || distance == nearest && fills {
            nearest = distance;
            chosen = columns * rows;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::keys::Keys;

    /// InternVL's Full HD is 4 × 2 tiles (16:9 is nearer to 2 than to 3:2), 4:3 is 4 × 3 whatever its size, and a small
    /// square one tile; several have a thumbnail.
    #[test]
    fn tiles_by_hand() {
        let tiles_of = |width, height| tiles(width, height, 448, INTERN_TILES);
        assert_eq!(
            [tiles_of(1920, 1080), tiles_of(640, 480), tiles_of(100, 75), tiles_of(100, 100)],
            [8, 12, 12, 1]
        );
    }

    fn made(kind: &str, text: &str, patch: u64, side: u64) -> Tower {
        let config = serde_json::json!({ "vision_config": {
            "model_type": kind, "num_hidden_layers": 24, "hidden_size": 1024, "patch_size": patch, "image_size": side
        }});
        let keys = Keys::new("config.json", &config).unwrap();
        Tower::read(&keys, text, 4096).unwrap()
    }

    /// GLM-4.5V counts two frames: 4000 × 3000 is shrunk by √(2 · 12,000,000 / 9,633,792) = 1.578 to 90 · 67 tokens of
    /// 28 pixels, 1920 × 1080 has 69 · 39. InternVL's tile has (448 / 28)² = 256 tokens.
    #[test]
    fn towers_have_their_processors_rules() {
        let tokens_of = |tower: &Tower, width, height| {
            tower.tokens_of(ImageSize::Pixels(width, height)).map(|image| image.tokens)
        };
        let glm = made("glm4v_moe", "glm4v_moe_text", 14, 336);
        assert_eq!(
            [tokens_of(&glm, 4000, 3000), tokens_of(&glm, 1920, 1080)],
            [Some(90 * 67), Some(69 * 39)]
        );
        let intern = made("intern_vit_6b", "qwen2", 14, 448);
        assert_eq!(
            [tokens_of(&intern, 1920, 1080), tokens_of(&intern, 120, 90)],
            [Some(9 * 256), Some(13 * 256)]
        );
        assert_eq!(intern.largest, Some(13 * 256));
        assert_eq!(tokens_of(&made("siglip_vision_model", "qwen2", 14, 384), 640, 480), None);
    }

    /// Llama 4, tiles of 336 pixels: 640 × 480 fits 2 × 2, enlarged by min(672/640, 672/480) = 1.05; Full HD fits no
    /// grid of 16 (6 × 2 shrinks to 0.62, 5 × 3 to 0.875). 1024 × 768 fits 4 × 3 at 1.3125 = 1344/1024.
    #[test]
    fn llama_4s_grid_by_hand() {
        let grid_of = |width, height| grid(width, height, 336, LLAMA4_TILES);
        assert_eq!(
            [grid_of(640, 480), grid_of(1920, 1080), grid_of(1024, 768), grid_of(100, 100)],
            [4, 15, 12, 1]
        );
    }

    /// Kimi-K2.5, tokens of 28 pixels: Full HD has ⌈68.6⌉ · ⌈38.6⌉ tokens, 640 × 480 ⌈22.9⌉ · ⌈17.1⌉. 4000 × 3000 has
    /// 285 · 214 patches and is scaled by √(16,384 / 60,990) = 0.5183 to 2073 × 1554: 75 · 56 = 4200, beyond 4096.
    #[test]
    fn kimis_rule_by_hand() {
        let patches_of = |width, height| filled(width, height, 14, 28, KIMI_PATCHES);
        assert_eq!(
            [patches_of(1920, 1080), patches_of(640, 480), patches_of(4000, 3000)],
            [69 * 39, 23 * 18, 4200]
        );
    }

    /// Gemma 4, up to 280 tokens of 48 pixels: 640 × 480 is enlarged by √(645,120 / 307,200) = 1.449 to 927 × 695, 19 · 14
    /// tokens. Full HD has 22 · 12, a square 16 · 16. 10,000 × 10 has a row of 280, 10 × 600 is
    /// enlarged by √(645,120 / 6000) = 10.37 to 103 × 6222, 2 · 129.
    #[test]
    fn gemma_4s_rule_by_hand() {
        let scaled_tokens = |width, height| scaled(width, height, 48, 280);
        assert_eq!(
            [scaled_tokens(640, 480), scaled_tokens(1920, 1080), scaled_tokens(100, 100)],
            [266, 264, 256]
        );
        assert_eq!([scaled_tokens(10_000, 10), scaled_tokens(10, 600)], [280, 2 * 129]);
    }

    /// Qwen3-VL, 32 pixels a token: 1024 × 768 has 32 · 24 tokens. 1920 × 1080 has 60 · 34 (33.75 rounds up). 100 × 100
    /// is enlarged by √(64/9.766) = 2.56 to 8 · 8. 8192 × 8192 would have 65,536 tokens and is halved to 128 · 128.
    #[test]
    fn qwens_rule_by_hand() {
        let tokens = |width, height| qwen(width, height, 32, QWEN3_BOUNDS, Sharers::all(1));
        assert_eq!([tokens(1024, 768), tokens(1920, 1080)], [768, 2040]);
        assert_eq!([tokens(100, 100), tokens(8192, 8192)], [64, 16_384]);
    }

    fn tower(model: &str) -> Tower {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        crate::model::config::read(&entry.id, "catalog", &entry.config).unwrap().tower.unwrap()
    }

    /// Mistral-Small-3.1 merges 2 × 2 patches of 14 pixels: 1400 × 700 has 50 · 25 tokens and 25 breaks, of 5000
    /// patches. 3080 × 1540 is scaled by a half to 1540 × 770: 55 · 28 (27.5 rounds up) tokens and 28 breaks. Gemma 3 has
    /// 256 tokens of 16 patches for any image. Gemma 4 computes 280 · 9 patches for any.
    #[test]
    fn other_rules_by_hand() {
        let image = |model, width, height| {
            tower(model)
                .tokens_of(ImageSize::Pixels(width, height))
                .map(|image| (image.tokens, image.patches))
        };
        let mistral = "mistralai/Mistral-Small-3.1-24B-Instruct-2503";
        assert_eq!(image(mistral, 1400, 700), Some((50 * 25 + 25, 5000)));
        assert_eq!(image(mistral, 3080, 1540), Some((55 * 28 + 28, 4 * 55 * 28)));
        assert_eq!(image("google/gemma-3-4b-it", 300, 200), Some((256, 4096)));
        assert_eq!(image("google/gemma-4-31B-it", 640, 480), Some((266, 2520)));
        let stated = tower("google/gemma-4-31B-it").tokens_of(ImageSize::Tokens(280)).unwrap();
        assert_eq!((stated.tokens, stated.patches), (280, 280 * 9));
        assert_eq!(image("Qwen/Qwen3-VL-2B-Instruct", 1024, 768), Some((768, 3072)));
    }
}
