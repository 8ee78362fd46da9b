//! The deployment of a model's vision tower, on the ranks of the model.
//!
//! Knows: the tower's weights are divided over tensor-parallel ranks, or whole on each rank for whole images
//! (`mm_encoder_tp_mode`), and its kernels are launched one by one, without a captured graph. Knows nothing about images.

use super::{Deployment, DeploymentOptions};
use crate::parallelism::RequestedParallelism;
use crate::spec::{EncoderTpMode, EngineKind, EngineSpec};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{ImageSize, ImageTokens, Model};
use std::sync::Arc;

/// Returns `model` with the bounds on images that vLLM's `mm_processor_kwargs` set, and notes keys that set none. Other
/// engines read no section of vLLM's.
///
/// # Errors
/// Fails for a text that is no JSON object, for bounds that are out of range, and for a model without a tower.
pub(super) fn with_processor(
    model: Arc<Model>,
    engine: &EngineSpec,
    assumptions: &mut Vec<String>,
) -> Result<Arc<Model>> {
    const PLACE: &str = "engine.vllm.mm_processor_kwargs";
    let is_read = EngineKind::of(engine.name()) == EngineKind::Vllm;
    let Some(text) = engine.vllm.mm_processor_kwargs.as_ref().filter(|_| is_read) else { return Ok(model) };
    let mut bounded = Model::clone(&model);
    let Some(tower) = &mut bounded.tower else {
        let accepted = format!("omitted: {} has no vision tower that is read", model.name);
        return Err(Error::field("engine", "vllm.mm_processor_kwargs", text, accepted));
    };
    let idle = tower.bound(PLACE, text)?;
    assumptions
        .extend(idle.iter().map(|key| format!("mm_processor_kwargs: {key} sets no bound that is counted")));
    Ok(Arc::new(bounded))
}

impl Deployment {
    /// Tokens of an image by the rule of the model.
    ///
    /// # Errors
    /// Fails for the reasons of [`Deployment::encoder`], and for a size in pixels if the config does not decide the tokens.
    pub fn image_tokens(&self, size: ImageSize) -> Result<ImageTokens> {
        self.encoder()?;
        if let Some(most) = self.model.tower.and_then(|tower| tower.exceeds(size)) {
            let accepted = format!("sides of at most 1 : {most}, as the model's processor accepts");
            let shown_size = match size {
                ImageSize::Pixels(width, height) => format!("{width} × {height} pixels"),
                ImageSize::Frames(width, height, frames) => {
                    format!("{frames} frames of {width} × {height} pixels")
                }
                ImageSize::Tokens(tokens) => format!("{tokens} tokens"),
            };
            return Err(Error::field("images", "size", shown_size, accepted));
        }
        let fewest = self.model.tower.map_or(1, |tower| tower.fewest_frames());
        if let ImageSize::Frames(.., frames) = size
            && frames < fewest
        {
            let accepted = format!("at least {fewest} frames, as the model's processor accepts");
            return Err(Error::field("images", "frames", frames, accepted));
        }
        self.model.tower.and_then(|tower| tower.tokens_of(size)).ok_or_else(|| {
            let unit = if matches!(size, ImageSize::Frames(..)) { "frames" } else { "pixels" };
            let shown_size =
                format!("in {unit} with {}, whose config does not decide their tokens", self.model.name);
            Error::field("images", "size", shown_size, "a number of tokens")
        })
    }

    /// Resolves the deployment of the vision tower.
    ///
    /// # Errors
    /// Fails for a model without a tower, or whose tower's config does not determine its work, and if the engine loads no
    /// tower.
    pub fn encoder(&self) -> Result<Deployment> {
        let model = &self.model;
        let refused =
            |field: &str, found: String, accepted: &str| Err(Error::field("images", field, found, accepted));
        if self.engine.language_model_only {
            return refused(
                "language_model_only",
                "true".to_owned(),
                "false, so that the engine loads its encoder",
            );
        }
        let Some(tower) = model.tower.and_then(|tower| tower.as_model(model)) else {
            let accepted = "a model whose config has a vision tower with layers, widths, heads and patches";
            return refused(
                "model.name",
                format!("{}, whose config has no vision tower that is read", model.name),
                accepted,
            );
        };
        let tp = match self.engine.mm_encoder_tp_mode {
            EncoderTpMode::Weights => self.parallelism.tp,
            EncoderTpMode::Data => 1,
        };
        let name = self.asked.engine.name.clone();
        let version = self.asked.engine.version.clone();
        let options = DeploymentOptions {
            parallelism: RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() },
            engine: EngineSpec { name, version, enforce_eager: Some(true), ..EngineSpec::default() },
            ideal: self.ideal,
            ..DeploymentOptions::default()
        };
        Deployment::resolve(Arc::new(tower), Arc::clone(&self.accelerator), &options).map_err(|e| {
            e.within("the vision tower (mm_encoder_tp_mode \"data\" needs no division of its heads)")
        })
    }
}
