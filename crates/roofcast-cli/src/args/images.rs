//! Flags of `limits` for an image or a video, and its size.

use clap::Args;
use roofcast::Error;
use roofcast::model::ImageSize;

/// Largest side in pixels, and most tokens of an image.
const MOST: u64 = 1_000_000;

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Also the encoder's time for one image: WIDTHxHEIGHT in pixels, or a number of tokens.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["sweep", "compare", "intensity", "html"])]
    pub(crate) image: Option<String>,
    /// Frames of a video of --image's size in place of the image, as sampled.
    #[arg(long, value_name = "FRAMES", requires = "image", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) video_frames: Option<u64>,
}

impl ImageArgs {
    /// The size that is asked: `1024x768` in pixels, also of each of a video's frames, or a number of tokens.
    pub(crate) fn size(&self) -> Result<Option<ImageSize>, Error> {
        let Some(text) = &self.image else { return Ok(None) };
        let number = |text: &str| text.trim().parse().ok().filter(|number| (1..=MOST).contains(number));
        let size = match text.split_once('x') {
            Some((width, height)) => {
                number(width).zip(number(height)).map(|(width, height)| match self.video_frames {
                    Some(frames) => ImageSize::Frames(width, height, frames),
                    None => ImageSize::Pixels(width, height),
                })
            }
            None => number(text).filter(|_| self.video_frames.is_none()).map(ImageSize::Tokens),
        };
        let accepted = match self.video_frames {
            Some(_) => "WIDTHxHEIGHT in pixels with --video-frames, as 1280x720",
            None => "WIDTHxHEIGHT in pixels, as 1024x768, or a number of tokens, as 1024",
        };
        size.map(Some).ok_or_else(|| Error::field("arguments", "--image", format!("{text:?}"), accepted))
    }
}
