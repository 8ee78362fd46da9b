//! Cost of an image, or a video: its tokens, and the time and the memory of its encoder.
//!
//! Knows: one of them alone. Knows nothing about prompts.

use crate::forecaster::Forecaster;
use roofcast_ask::spec::CostKind;
use roofcast_facts::encoder::PromptImages;
use roofcast_facts::error::Result;
use roofcast_facts::model::ImageSize;
use roofcast_facts::units::{Bytes, Picoseconds};
use serde::Serialize;

/// Cost of an image or a video.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageCost {
    /// Number of tokens that it adds to a prompt.
    pub tokens: u64,
    /// Number of patches that the encoder computes.
    pub patches: u64,
    /// Number of pairs of frames, whose patches attend to each other alone; 1 of an image.
    pub frame_pairs: u64,
    /// Bytes of the encoder's weights on one rank.
    pub weight_bytes: Bytes,
    /// Bytes of its tokens in the encoder's cache, until the prompt has passed them.
    pub cache_bytes: Bytes,
    /// Limit of the encoder's time.
    #[serde(rename = "limit_ms")]
    pub limit: Picoseconds,
    /// Forecast of the encoder's time, for which a step with it waits.
    #[serde(rename = "forecast_ms")]
    pub forecast: Picoseconds,
}

/// The cost of an image or a video of size `size`.
///
/// # Errors
/// Fails if the model has no tower that can be read, or if its config does not decide its tokens.
pub fn image(forecaster: &Forecaster, size: ImageSize) -> Result<ImageCost> {
    let deployment = &forecaster.deployment;
    let image = deployment.image_tokens(size)?;
    let images = PromptImages { start: 0, count: 1, image };
    let time = |cost| {
        let image_time = forecaster.encoder(images, cost)?.one();
        Ok::<_, roofcast_facts::Error>(Picoseconds::from_seconds(image_time.total()))
    };
    Ok(ImageCost {
        tokens: image.tokens,
        patches: image.patches,
        frame_pairs: image.parts,
        weight_bytes: deployment.tower_bytes(),
        cache_bytes: Bytes(image.tokens * deployment.model.hidden)
            .scale(u64::from(deployment.base.bits()), 8),
        limit: time(CostKind::Limit)?,
        forecast: time(CostKind::Forecast)?,
    })
}
