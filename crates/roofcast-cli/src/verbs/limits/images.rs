//! The image of `limits --image`: its size, and the text of its cost.

use crate::show::number::{grouped, ms};
use crate::show::table;
use roofcast::Error;
use roofcast::limits::ImageCost;
use roofcast::model::ImageSize;

/// Largest side in pixels, and most tokens of an image.
const MOST: u64 = 1_000_000;

/// Reads a size: `1024x768` in pixels, or a number of tokens.
pub(super) fn size(text: &str) -> Result<ImageSize, Error> {
    let number = |text: &str| text.trim().parse().ok().filter(|number| (1..=MOST).contains(number));
    let size = match text.split_once('x') {
        Some((width, height)) => {
            number(width).zip(number(height)).map(|(width, height)| ImageSize::Pixels(width, height))
        }
        None => number(text).map(ImageSize::Tokens),
    };
    let accepted = "WIDTHxHEIGHT in pixels, as 1024x768, or a number of tokens, as 1024";
    size.ok_or_else(|| Error::field("arguments", "--image", format!("{text:?}"), accepted))
}

/// The text of an image's cost.
pub(super) fn people(cost: &ImageCost) -> String {
    let pairs = [
        ("tokens", format!("{} of {} patches", grouped(cost.tokens), grouped(cost.patches))),
        ("encoder", format!("{} ms at the limit, {} ms as forecast", ms(cost.limit), ms(cost.forecast))),
        (
            "memory",
            format!("weights {} on a rank, cache {} an image", cost.weight_bytes.gb(), cost.cache_bytes.gb()),
        ),
    ];
    format!("\nimage\n\n{}", table::pairs(&pairs))
}
