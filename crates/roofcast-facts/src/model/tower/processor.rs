//! Bounds on the tokens of an image that a processor's own file sets, or a user (`mm_processor_kwargs`).
//!
//! Knows: the keys of each rule of [`super::sizing`]. Knows nothing about images.

use super::Tower;
use super::sizing::Sizing;
use crate::error::{Error, Result};
use crate::model::keys::Keys;

/// Numbers of tokens that Gemma 4's processor accepts (`_SUPPORTED_SOFT_TOKENS` of transformers'
/// `image_processing_gemma4.py`).
const GEMMA4: [u64; 5] = [70, 140, 280, 560, 1120];
/// Most tiles of an image that are accepted; a larger value shows that the file is damaged.
const MOST_TILES: u64 = 1024;

impl Tower {
    /// Takes the bounds on images from a JSON object, as `preprocessor_config.json` and `mm_processor_kwargs` have them:
    /// `min_pixels` and `max_pixels`, or `shortest_edge` and `longest_edge` of `size`, which are numbers of pixels for
    /// Qwen's rule; `max_dynamic_patch`, `max_patches`, `in_patch_limit`, `max_soft_tokens`. Returns the keys that set no
    /// bound.
    ///
    /// # Errors
    /// Fails for a text that is no JSON object, and for bounds that are no whole numbers or out of range.
    pub fn bound(&mut self, place: &str, text: &str) -> Result<Vec<String>> {
        let value =
            serde_json::from_str(text).ok().filter(serde_json::Value::is_object).ok_or_else(|| {
                Error::field(place, "bounds on images", text, r#"a JSON object, as {"max_pixels": 1003520}"#)
            })?;
        let keys = Keys::new(place, &value)?;
        let size = keys.object("size");
        let edge = |name: &str| size.as_ref().map_or(Ok(None), |size| size.count(&[name]));
        let media = keys.object("media_proc_cfg").unwrap_or(keys);
        let names: &[&str] = match &mut self.sizing {
            Sizing::Qwen { bounds, .. } => {
                let fewest_pixels =
                    keys.count(&["min_pixels"])?.or(edge("shortest_edge")?).unwrap_or(bounds[0]);
                let most_pixels = keys.count(&["max_pixels"])?.or(edge("longest_edge")?).unwrap_or(bounds[1]);
                if fewest_pixels > most_pixels {
                    return Err(keys.bad(
                        "max_pixels",
                        most_pixels,
                        format!("at least min_pixels, {fewest_pixels}"),
                    ));
                }
                *bounds = [fewest_pixels, most_pixels];
                &["min_pixels", "max_pixels", "size"]
            }
            Sizing::Tiles { most, whole, .. } => {
                let key = if *whole { "max_patches" } else { "max_dynamic_patch" };
                *most = keys.count(&[key])?.unwrap_or(*most);
                if *most > MOST_TILES {
                    return Err(keys.bad(key, *most, format!("1 to {MOST_TILES}")));
                }
                if *whole { &["max_patches"] } else { &["max_dynamic_patch"] }
            }
            Sizing::Filled { most, .. } => {
                *most = media.count(&["in_patch_limit", "max_patches"])?.unwrap_or(*most);
                &["in_patch_limit", "max_patches", "media_proc_cfg"]
            }
            Sizing::Scaled { most, .. } => {
                *most = keys.count(&["max_soft_tokens"])?.unwrap_or(*most);
                if !GEMMA4.contains(most) {
                    return Err(keys.bad("max_soft_tokens", *most, GEMMA4.map(|n| n.to_string()).join(", ")));
                }
                &["max_soft_tokens"]
            }
            Sizing::Pixtral { side, .. } => {
                *side = edge("longest_edge")?.unwrap_or(*side);
                &["size"]
            }
            Sizing::Fixed(_) | Sizing::Unknown => &[],
        };
        self.largest = self.sizing.largest().or(self.largest);
        let all = value.as_object().into_iter().flat_map(serde_json::Map::keys);
        Ok(all.filter(|key| !names.contains(&key.as_str())).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageSize, Tower};
    use crate::model::keys::Keys;

    fn made(kind: &str, text: &str, patch: u64, side: u64) -> Tower {
        let config = serde_json::json!({ "vision_config": {
            "model_type": kind, "num_hidden_layers": 24, "hidden_size": 1024, "patch_size": patch,
            "image_size": side, "pooling_kernel_size": 3
        }});
        let keys = Keys::new("config.json", &config).unwrap();
        Tower::read(&keys, text, 4096).unwrap()
    }

    /// Qwen2.5-VL with `max_pixels` 1,003,520, 1280 tokens: 4000 × 3000 is shrunk by √(12,000,000 / 1,003,520) = 3.458 to
    /// 41 · 30 tokens of 28 pixels.
    #[test]
    fn processors_bound_images() {
        let mut tower = made("qwen2_5_vl", "qwen2_5_vl", 14, 448);
        let size = ImageSize::Pixels(4000, 3000);
        for text in
            [r#"{"max_pixels": 1003520}"#, r#"{"size": {"longest_edge": 1003520, "shortest_edge": 3136}}"#]
        {
            assert_eq!(tower.bound("preprocessor_config.json", text).unwrap(), [""; 0]);
            assert_eq!(tower.tokens_of(size).unwrap().tokens, 41 * 30);
        }
        assert_eq!(tower.largest, Some(1280));
        for text in
            [r#"{"max_pixels": "many"}"#, r#"{"max_pixels": 10}"#, r#"{"max_pixels": NaN}"#, "[]", "many"]
        {
            assert!(tower.bound("mm_processor_kwargs", text).is_err(), "{text}");
        }
        assert_eq!(tower.bound("mm_processor_kwargs", r#"{"fps": 2}"#).unwrap(), ["fps"]);
        assert_eq!(tower.exceeds(ImageSize::Pixels(100_000, 100)), Some(200));
        assert_eq!(tower.exceeds(ImageSize::Pixels(20_000, 100)), None);
    }

    /// InternVL with at most 4 tiles cuts 4:3 into one (4:3 is nearer to 1 than to 2 or 3:1), Full HD into 2 × 1 and a
    /// thumbnail. Gemma 4 with 1120 tokens enlarges 640 × 480 by √(1120 · 48² / 307,200) = 2.898 to 1855 × 1391, which is
    /// 38.6 · 28.98 tokens.
    #[test]
    fn each_rule_has_its_bound() {
        let tokens_of =
            |tower: &Tower, width, height| tower.tokens_of(ImageSize::Pixels(width, height)).unwrap().tokens;
        let mut intern = made("intern_vit_6b", "qwen2", 14, 448);
        intern.bound("mm_processor_kwargs", r#"{"max_dynamic_patch": 4}"#).unwrap();
        assert_eq!([tokens_of(&intern, 640, 480), tokens_of(&intern, 1920, 1080)], [256, 3 * 256]);
        let mut gemma = made("gemma4_vision", "gemma4_text", 16, 896);
        gemma.bound("mm_processor_kwargs", r#"{"max_soft_tokens": 1120}"#).unwrap();
        assert_eq!(tokens_of(&gemma, 640, 480), 38 * 28);
        let message =
            gemma.bound("mm_processor_kwargs", r#"{"max_soft_tokens": 300}"#).unwrap_err().to_string();
        assert!(message.contains("70, 140, 280, 560, 1120"), "{message}");
    }
}
