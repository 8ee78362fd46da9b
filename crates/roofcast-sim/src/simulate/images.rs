//! Images of a run: their tokens by the model's rule, their place in a prompt, and the time of their encoder.
//!
//! Knows: the same images in every prompt, behind a shared prefix. Knows nothing about when they are encoded.

use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::CostKind;
use roofcast_ask::workload::Workload;
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::encoder::PromptImages;
use roofcast_facts::error::Result;
use roofcast_facts::model::ImageTokens;
use serde::Serialize;

/// Images of every request, and the time of their encoder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageUse {
    /// Number of images or videos of a request.
    pub count: u64,
    /// Number of tokens that each adds to a prompt.
    pub tokens: u64,
    /// Number of patches of each.
    pub patches: u64,
    /// Milliseconds for which a step waits for the encoder of one of them.
    pub encoder_ms: f64,
}

impl ImageUse {
    /// The use of `images` on the machine of `forecaster`; steps are priced by `cost`.
    pub(super) fn of(forecaster: &Forecaster, images: PromptImages, cost: CostKind) -> Result<ImageUse> {
        let PromptImages { count, image: ImageTokens { tokens, patches, .. }, .. } = images;
        let encoder_ms = forecaster.encoder(images, cost)?.one().total() * 1e3;
        Ok(ImageUse { count, tokens, patches, encoder_ms })
    }
}

/// The workload with the tokens of its images, and the images; `None` if prompts are text.
pub(super) fn sized(
    workload: &Workload,
    deployment: &Deployment,
    place: &str,
) -> Result<(Workload, Option<PromptImages>)> {
    let Some(images) = workload.images else { return Ok((workload.clone(), None)) };
    workload.check(place)?;
    let image = deployment.image_tokens(images.size())?;
    let start = workload.prefix.map_or(0, |prefix| prefix.length);
    let sized = images.sized(image.tokens);
    let workload = Workload { images: Some(sized), ..workload.clone() };
    Ok((workload, Some(PromptImages { start, count: sized.count, image })))
}
