//! One step with other kernels: attention backends, launches, kernels of quantized weights, layouts of the cache.
//!
//! Knows: the settings of each kind; settings that a deployment refuses are left out. Times come from
//! [`crate::cost`].

use super::Question;
use crate::batch::Batch;
use crate::calibration::Calibration;
use crate::cost::cost;
use crate::deployment::Deployment;
use crate::forecaster::Forecaster;
use crate::model::OperatorKind;
use crate::quantized_kernel::kernels;
use crate::spec::{AttentionBackend, CostKind, EngineSpec, KvLayout};
use crate::units::Picoseconds;
use serde::Serialize;
use std::sync::Arc;

/// Kind of comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// `attention_backend`.
    Attention,
    /// `enforce_eager` and `fuse_layers`.
    Launches,
    /// `quantization_kernel`.
    Kernels,
    /// `kv_layout` and `block_size`.
    Layouts,
}

/// One setting with its forecast.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// The setting, as in `naive`.
    pub name: String,
    /// A decode step.
    #[serde(rename = "decode_ms")]
    pub decode: Picoseconds,
    /// Time of attention kernels within the decode step, without their launches.
    #[serde(rename = "attention_ms")]
    pub attention: Picoseconds,
    /// A prompt.
    #[serde(rename = "prefill_ms")]
    pub prefill: Picoseconds,
}

/// Every setting of a kind that `deployment` can have, with its forecaster.
pub fn settings(deployment: &Deployment, comparison: Comparison) -> Vec<(String, Forecaster)> {
    let own = &deployment.options.engine;
    let with = |(name, engine): (String, EngineSpec)| {
        let mut options = deployment.options.clone();
        options.engine = engine;
        let (model, chip) = (Arc::clone(&deployment.model), Arc::clone(&deployment.accelerator));
        let other = Deployment::resolve(model, chip, &options).ok()?;
        Some((name, Forecaster::new(other, Calibration::embedded().ok()?)))
    };
    specs(own, comparison).into_iter().filter_map(with).collect()
}

fn specs(own: &EngineSpec, comparison: Comparison) -> Vec<(String, EngineSpec)> {
    let own = || own.clone();
    match comparison {
        Comparison::Attention => AttentionBackend::ALL
            .map(|b| (b.name().to_owned(), EngineSpec { attention_backend: Some(b), ..own() }))
            .into(),
        Comparison::Kernels => {
            let all = kernels().unwrap_or_default().iter();
            all.map(|k| (k.name.clone(), EngineSpec { quantization_kernel: Some(k.name.clone()), ..own() }))
                .collect()
        }
        Comparison::Launches => {
            let of = |name: &str, eager, fused| {
                // transformers captures no graphs, so the comparison with graphs is vLLM.
                let engine = if eager { own().name } else { Some("vllm".into()) };
                let spec = EngineSpec {
                    name: engine,
                    enforce_eager: Some(eager),
                    fuse_layers: Some(fused),
                    ..own()
                };
                (name.to_owned(), spec)
            };
            vec![
                of("graph, fused", false, true),
                of("graph, separate", false, false),
                of("eager, fused", true, true),
                of("eager, separate", true, false),
            ]
        }
        Comparison::Layouts => {
            let paged = |layout: KvLayout, block: u64| {
                let spec = EngineSpec { kv_layout: Some(layout), block_size: Some(block), ..own() };
                (format!("{}, block {block}", layout.name()), spec)
            };
            let mut all: Vec<_> = [32, 16, 8, 1].map(|block| paged(KvLayout::Paged, block)).into();
            all.push(paged(KvLayout::Flashinfer, 16));
            for layout in [KvLayout::Vattention, KvLayout::Contiguous] {
                let spec = EngineSpec { kv_layout: Some(layout), block_size: None, ..own() };
                all.push((layout.name().to_owned(), spec));
            }
            all
        }
    }
}

/// The forecast for `question` with each setting.
pub fn alternatives(
    deployment: &Deployment,
    comparison: Comparison,
    question: &Question,
) -> Vec<Alternative> {
    let all = settings(deployment, comparison).into_iter();
    all.map(|(name, forecaster)| {
        let step = super::decode(&forecaster, question);
        let prompt = cost(&forecaster, &Batch::prefill(1, question.prefill), question.utilization);
        let attention = attention(&forecaster, question);
        Alternative { name, decode: step.forecast, attention, prefill: prompt.forecast }
    })
    .collect()
}

/// Time of attention kernels in all layers of a decode step, without launches.
fn attention(forecaster: &Forecaster, question: &Question) -> Picoseconds {
    let timing = forecaster.timing(CostKind::Forecast);
    let passes = timing.model.passes_of(&Batch::decode(question.batch, question.context));
    let operators = timing.model.operators.iter().enumerate();
    let attention = operators.filter(|(_, o)| o.kind == OperatorKind::Attention);
    let seconds = |index| passes.first().map_or(0.0, |pass| timing.time(index, pass).iter().sum());
    Picoseconds::from_seconds(attention.map(|(index, _)| seconds(index)).sum())
}
