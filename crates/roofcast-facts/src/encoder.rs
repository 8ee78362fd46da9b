//! Time of a vision tower for the images of a prompt.
//!
//! Knows: images, or videos, lie one after another in a prompt, and the step that
//! first computes a token of an image waits for its encoder, as vLLM's scheduler arranges. The images of a step are one
//! call of the encoder, or several where its budget ends. Knows nothing about the tower.

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
    /// Seconds of calls of the encoder over one image, over two, and so on, by bottleneck; there is at least one.
    calls: Vec<BottleneckShares<f64>>,
    /// Number of ranks that each encode whole images.
    ranks: u64,
}

impl EncoderTime {
    /// The time for `images` if `calls` has the seconds of a call over one image, over two, and so on, up to the most
    /// of a call, and `ranks` ranks each encode whole images.
    pub fn new(images: PromptImages, calls: Vec<BottleneckShares<f64>>, ranks: u64) -> EncoderTime {
        EncoderTime { images, calls, ranks }
    }

    /// Seconds of one image, by bottleneck.
    pub fn one(&self) -> BottleneckShares<f64> {
        self.calls.first().copied().unwrap_or_default()
    }

    /// Seconds of `images` images on one rank.
    fn of(&self, images: u64) -> BottleneckShares<f64> {
        let largest_call = self.calls.len().max(1) as u64;
        let call = |images: u64| match images.checked_sub(1) {
            Some(index) => self.calls.get(index as usize).copied().unwrap_or_default(),
            None => BottleneckShares::default(),
        };
        call(largest_call).scaled((images / largest_call) as f64).plus(call(images % largest_call))
    }

    /// Seconds that a step with these chunks of prompts waits for the encoder.
    pub fn beside(&self, chunks: &[Sequences]) -> BottleneckShares<f64> {
        self.of(self.images.reached(chunks).div_ceil(self.ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls over one and two images take 3 and 4 s: five images on one rank are two calls over two and one over one, on two
    /// ranks a call over two and one over one.
    #[test]
    fn images_of_a_step_share_calls() {
        let images = PromptImages { start: 0, count: 5, image: ImageTokens::image(100, 400) };
        let seconds = |memory: f64| BottleneckShares { memory, ..BottleneckShares::default() };
        let time = |ranks, new| {
            let encoder = EncoderTime::new(images, vec![seconds(3.0), seconds(4.0)], ranks);
            encoder.beside(&[Sequences::prompt(new, new, false)]).memory
        };
        assert_eq!([time(1, 500), time(2, 500), time(1, 150)], [4.0 + 4.0 + 3.0, 4.0 + 3.0, 4.0]);
    }

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
