//! Images in prompts.
//!
//! Knows: their number and size in a request, at the beginning of its prompt after a shared prefix, and their bounds.
//! Tokens of an image of some width and height depend on the model, which fills them in. Knows nothing about encoders.

use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::ImageSize;
use serde::{Deserialize, Serialize};

/// Most frames of a video; processors sample at most 768 by default (`max_frames` of Qwen's).
const MOST_FRAMES: u64 = 10_000;

/// `[workload.images]`: images of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    /// Number of images of a request.
    #[serde(default = "one")]
    pub count: u64,
    /// Width of an image in pixels, with `height`.
    pub width: Option<u64>,
    /// Height of an image in pixels.
    pub height: Option<u64>,
    /// Number of frames of a video in place of an image, as its processor samples them.
    pub frames: Option<u64>,
    /// Tokens of an image, in place of its width and height.
    pub tokens: Option<u64>,
}

fn one() -> u64 {
    1
}

impl Images {
    pub(super) fn check(&self, place: &str) -> Result<()> {
        let refuse = |field: &str, found: String, accepted: &str| {
            Err(Error::field(place, format!("workload.images.{field}"), found, accepted))
        };
        if !(1..=1000).contains(&self.count) {
            return refuse("count", self.count.to_string(), "1 to 1000 images");
        }
        let sane = |most: u64| move |size: &u64| !(1..=most).contains(size);
        if let Some(tokens) = self.tokens.filter(sane(1_000_000)) {
            return refuse("tokens", tokens.to_string(), "1 to 10^6 tokens");
        }
        for (field, size) in [("width", self.width), ("height", self.height)] {
            if let Some(size) = size.filter(sane(100_000)) {
                return refuse(field, size.to_string(), "1 to 10^5 pixels");
            }
        }
        if let Some(frames) = self.frames.filter(|frames| self.tokens.is_some() || sane(MOST_FRAMES)(frames))
        {
            let accepted = format!("1 to {MOST_FRAMES} frames, with width and height");
            return refuse("frames", frames.to_string(), &accepted);
        }
        match (self.tokens, self.width, self.height) {
            (Some(_), None, None) | (None, Some(_), Some(_)) => Ok(()),
            (Some(_), ..) => refuse("tokens", "given with a size".to_owned(), "tokens, or width and height"),
            (None, width, _) => {
                let field = if width.is_some() { "height" } else { "width" };
                refuse(field, "missing".to_owned(), "width and height, or tokens")
            }
        }
    }

    /// Size of an image.
    pub fn size(&self) -> ImageSize {
        match (self.tokens, self.width, self.height) {
            (None, Some(width), Some(height)) => match self.frames {
                Some(frames) => ImageSize::Frames(width, height, frames),
                None => ImageSize::Pixels(width, height),
            },
            (tokens, ..) => ImageSize::Tokens(tokens.unwrap_or(1)),
        }
    }

    /// The images or videos by their number of tokens, each of `tokens`.
    pub fn sized(self, tokens: u64) -> Images {
        Images { width: None, height: None, frames: None, tokens: Some(tokens), ..self }
    }

    /// Tokens of all images of a request; 0 if their model has not filled them in.
    pub(crate) fn total(&self) -> u64 {
        self.count * self.tokens.unwrap_or(0)
    }
}
