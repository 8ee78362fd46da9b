//! Tokens and patches of an image by its width and height, by the rules of the models' image processors.
//!
//! Knows: the rules of Qwen-VL, Gemma 3 and Pixtral; other towers take a number of tokens. Knows nothing about tokens
//! of text that mark an image's beginning and end.

use super::Tower;

/// Fewest tokens into which Qwen2-VL's and later processors enlarge an image: 3136 pixels of 28 × 28 per token, and
/// from Qwen3-VL on 65,536 of 32 × 32 (`min_pixels`, `size.shortest_edge` of `preprocessor_config.json`).
const QWEN2_LEAST: u64 = 4;
const QWEN3_LEAST: u64 = 64;
/// Tokens of every image of Gemma 3 (`mm_tokens_per_image`), which is scaled to 896 × 896 pixels.
const GEMMA3: u64 = 256;
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
        /// Fewest tokens of an image.
        least: u64,
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
    /// The rule of a model of type `model_type`, with a tower of type `kind` and tokens of `pixels` pixels along each
    /// side.
    pub(super) fn of(model_type: &str, kind: &str, pixels: u64, side: Option<u64>) -> Sizing {
        match model_type {
            _ if pixels == 0 => Sizing::Unknown,
            qwen if qwen.starts_with("qwen2") => Sizing::Qwen { pixels, least: QWEN2_LEAST },
            qwen if qwen.starts_with("qwen3") => Sizing::Qwen { pixels, least: QWEN3_LEAST },
            gemma if gemma.starts_with("gemma3") && !gemma.starts_with("gemma3n") => Sizing::Fixed(GEMMA3),
            _ if kind == "pixtral" => Sizing::Pixtral { pixels, side: side.unwrap_or(PIXTRAL_SIDE) },
            _ => Sizing::Unknown,
        }
    }
}

/// Size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSize {
    /// Width and height in pixels.
    Pixels(u64, u64),
    /// Number of tokens.
    Tokens(u64),
}

/// Tokens of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageTokens {
    /// Number of tokens that the image adds to a prompt.
    pub tokens: u64,
    /// Number of patches that the tower computes.
    pub patches: u64,
}

impl Tower {
    /// Tokens of an image; `None` if the config does not decide them.
    pub fn tokens_of(&self, size: ImageSize) -> Option<ImageTokens> {
        let (width, height) = match size {
            ImageSize::Pixels(width, height) => (width, height),
            ImageSize::Tokens(tokens) => {
                return Some(ImageTokens { tokens, patches: tokens * self.patches_per_token });
            }
        };
        let (tokens, breaks) = match self.sizing {
            Sizing::Qwen { pixels, least } => {
                let most = self.largest.unwrap_or(u64::MAX);
                (qwen(width, height, pixels, [least, most]), 0)
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
        Some(ImageTokens { tokens: tokens + breaks, patches: tokens * self.patches_per_token })
    }
}

/// Tokens of an image by Qwen's rule, between `least` and `most`.
fn qwen(width: u64, height: u64, pixels: u64, [least, most]: [u64; 2]) -> u64 {
    let unit = pixels as f64;
    let sides = [width, height].map(|side| side as f64 / unit);
    let rounded = sides.map(|side| side.round_ties_even().max(1.0));
    let area = sides[0] * sides[1];
    let product = |sides: [f64; 2]| (sides[0] * sides[1]) as u64;
    if product(rounded) > most {
        let shrink = (area / most as f64).sqrt();
        return product(sides.map(|side| (side / shrink).floor().max(1.0)));
    }
    if product(rounded) < least {
        let enlarge = (least as f64 / area).sqrt();
        return product(sides.map(|side| (side * enlarge).ceil()));
    }
    product(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Qwen3-VL, 32 pixels a token: 1024 × 768 has 32 · 24 tokens. 1920 × 1080 has 60 · 34 (33.75 rounds up). 100 × 100
    /// is enlarged by √(64/9.766) = 2.56 to 8 · 8. 8192 × 8192 would have 65,536 tokens and is halved to 128 · 128.
    #[test]
    fn qwens_rule_by_hand() {
        let tokens = |width, height| qwen(width, height, 32, [64, 16_384]);
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
    /// 256 tokens of 16 patches for any image. Gemma 4's config does not say.
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
        assert_eq!(image("google/gemma-4-31B-it", 300, 200), None);
        let stated = tower("google/gemma-4-31B-it").tokens_of(ImageSize::Tokens(280)).unwrap();
        assert_eq!((stated.tokens, stated.patches), (280, 280 * 9));
        assert_eq!(image("Qwen/Qwen3-VL-2B-Instruct", 1024, 768), Some((768, 3072)));
    }
}
