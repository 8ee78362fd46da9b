//! The text of the cost of the image or the video of `limits --image`.

use crate::show::number::{grouped, ms};
use crate::show::table;
use roofcast::limits::ImageCost;

/// The text of an image's cost.
pub(super) fn people(cost: &ImageCost) -> String {
    let pairs = [
        ("tokens", format!("{} of {} patches", grouped(cost.tokens), grouped(cost.patches))),
        ("encoder", format!("{} ms at the limit, {} ms as forecast", ms(cost.limit), ms(cost.forecast))),
        ("memory", format!("weights {} on a rank, cache {}", cost.weight_bytes.gb(), cost.cache_bytes.gb())),
    ];
    let kind = if cost.frame_pairs > 1 { "video" } else { "image" };
    format!("\n{kind}\n\n{}", table::pairs(&pairs))
}
