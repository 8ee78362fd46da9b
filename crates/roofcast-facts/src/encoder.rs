//! Time of a vision tower for the images of a prompt.
//!
//! Knows: images, or videos, lie one after another in a prompt, and the step that
//! first computes a token of an image waits for its encoder, as vLLM's scheduler arranges. Knows nothing about
//! the tower.

use crate::batch::Sequences;
use crate::model::ImageTokens;
use crate::shares::BottleneckShares;

/// Images of every prompt: equal in number, size and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptImages {
    /// Position of the first image's first token.
    pub start: u64,
    /// Number of images.
    pub count: u64,
    /// Tokens and patches of an image.
    pub image: ImageTokens,
}

impl PromptImages {
    /// Number of images of which a token lies before position `end`.
    fn begun(&self, end: u64) -> u64 {
        end.saturating_sub(self.start).div_ceil(self.image.tokens.max(1)).min(self.count)
    }

    /// Number of images that chunks of prompts are the first to reach.
    pub(crate) fn reached(&self, chunks: &[Sequences]) -> u64 {
        let images_begun =
            |chunk: &Sequences| self.begun(chunk.context) - self.begun(chunk.context - chunk.new);
        chunks.iter().map(|chunk| chunk.count * images_begun(chunk)).sum()
    }
}

/// Time of the encoder for the images of prompts.
#[derive(Debug, Clone)]
pub struct EncoderTime {
    images: PromptImages,
    /// Seconds of one image, by bottleneck.
    pub one: BottleneckShares<f64>,
    /// Number of ranks that each encode whole images.
    ranks: u64,
}

impl EncoderTime {
    /// The time for `images` if `one` has the seconds of one image and `ranks` ranks each encode whole images.
    pub fn new(images: PromptImages, one: BottleneckShares<f64>, ranks: u64) -> EncoderTime {
        EncoderTime { images, one, ranks }
    }

    /// Seconds that a step with these chunks of prompts waits for the encoder.
    pub fn beside(&self, chunks: &[Sequences]) -> BottleneckShares<f64> {
        match self.images.reached(chunks).div_ceil(self.ranks) {
            0 => BottleneckShares::default(),
            rounds => self.one.scaled(rounds as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three images of 100 tokens from position 50 on. A chunk up to 40 reaches none, the next up to 151 reaches two (a
    /// token of the second is computed), the rest the third, and decodes none.
    #[test]
    fn images_are_reached_once() {
        let image = ImageTokens::image(100, 400);
        let images = PromptImages { start: 50, count: 3, image };
        let reached = |new, context| images.reached(&[Sequences::prompt(new, context, false)]);
        assert_eq!([reached(40, 40), reached(111, 151), reached(249, 400), reached(1, 401)], [0, 2, 1, 0]);
        assert_eq!(images.reached(&[Sequences::prompt(400, 400, true), Sequences::prompt(40, 40, false)]), 3);
    }
}
