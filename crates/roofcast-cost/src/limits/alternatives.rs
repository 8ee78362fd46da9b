//! Forecasts of one step with other kernels or layouts: attention backends, launches, kernels of quantized weights,
//! layouts of the cache.
//!
//! Knows: the alternative settings of each kind; settings that a deployment refuses are left out. Times come from
//! [`crate::cost`].

use super::LimitsQuestion;
use crate::calibration::Calibration;
use crate::cost::cost;
use crate::forecaster::Forecaster;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::quantized_kernel::kernels;
use roofcast_ask::spec::{AttentionBackend, CostKind, EngineKind, EngineSpec, KvLayout};
use roofcast_facts::batch::Batch;
use roofcast_facts::model::OperatorKind;
use roofcast_facts::units::Picoseconds;
use serde::Serialize;

/// Kind of setting that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// Attention backends: `attention_backend`.
    Attention,
    /// Launches of kernels: `enforce_eager` and `fuse_layers`.
    Launches,
    /// Kernels of quantized weights: `quantization_kernel`.
    Kernels,
    /// Layouts of the KV cache: `kv_layout` and `block_size`.
    Layouts,
}

/// One setting with its forecasts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alternative {
    /// Name of the setting, as in `naive`.
    pub name: String,
    /// Time of a decode step.
    #[serde(rename = "decode_ms")]
    pub decode: Picoseconds,
    /// Time of attention kernels within the decode step, without their launches.
    #[serde(rename = "attention_ms")]
    pub attention: Picoseconds,
    /// Time of a prompt.
    #[serde(rename = "prefill_ms")]
    pub prefill: Picoseconds,
}

/// Lists every setting of a kind that `deployment` supports, each with its forecaster.
pub fn settings(deployment: &Deployment, comparison: Comparison) -> Vec<(String, Forecaster)> {
    let with = |(name, change): (String, Change)| {
        let other = deployment.varied(|options| change(&mut options.engine)).ok()?;
        Some((name, Forecaster::new(other, Calibration::embedded().ok()?)))
    };
    changes(comparison).into_iter().filter_map(with).collect()
}

/// Function that changes the settings of a deployment.
type Change = Box<dyn Fn(&mut EngineSpec)>;

fn changes(comparison: Comparison) -> Vec<(String, Change)> {
    match comparison {
        Comparison::Attention => AttentionBackend::ALL
            .map(|b| {
                (
                    b.name().to_owned(),
                    Box::new(move |e: &mut EngineSpec| e.attention_backend = Some(b)) as Change,
                )
            })
            .into(),
        Comparison::Kernels => {
            let all = kernels().unwrap_or_default().iter();
            let kernel_change = |name: &String| {
                let kernel = name.clone();
                let change = move |e: &mut EngineSpec| e.quantization_kernel = Some(kernel.clone());
                (name.clone(), Box::new(change) as Change)
            };
            all.map(|k| kernel_change(&k.name)).collect()
        }
        Comparison::Launches => {
            let graph_change = |name: &str, eager: bool, fused: bool| {
                let change = move |e: &mut EngineSpec| {
                    // transformers captures no graphs; vLLM does.
                    if !eager {
                        e.name = Some(EngineKind::Vllm.name().to_owned());
                    }
                    (e.enforce_eager, e.fuse_layers) = (Some(eager), Some(fused));
                };
                (name.to_owned(), Box::new(change) as Change)
            };
            vec![
                graph_change("graph, fused", false, true),
                graph_change("graph, separate", false, false),
                graph_change("eager, fused", true, true),
                graph_change("eager, separate", true, false),
            ]
        }
        Comparison::Layouts => {
            let layout_change = |layout: KvLayout, block: Option<u64>| {
                let size = block.map_or(String::new(), |block| format!(", block {block}"));
                let change = move |e: &mut EngineSpec| (e.kv_layout, e.block_size) = (Some(layout), block);
                (format!("{}{size}", layout.name()), Box::new(change) as Change)
            };
            let mut all: Vec<_> =
                [32, 16, 8, 1].map(|block| layout_change(KvLayout::Paged, Some(block))).into();
            all.push(layout_change(KvLayout::Flashinfer, Some(16)));
            all.extend(
                [KvLayout::Vattention, KvLayout::Contiguous].map(|layout| layout_change(layout, None)),
            );
            all
        }
    }
}

/// Answers `question` with the forecast for each setting.
pub fn alternatives(
    deployment: &Deployment,
    comparison: Comparison,
    question: &LimitsQuestion,
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
fn attention(forecaster: &Forecaster, question: &LimitsQuestion) -> Picoseconds {
    let timing = forecaster.timing(CostKind::Forecast);
    let passes = timing.model.passes_of(&Batch::decode(question.batch, question.context));
    let operators = timing.model.operators.iter().enumerate();
    let attention = operators.filter(|(_, o)| o.kind == OperatorKind::Attention);
    let seconds = |index| passes.first().map_or(0.0, |pass| timing.time(index, pass).iter().sum());
    Picoseconds::from_seconds(attention.map(|(index, _)| seconds(index)).sum())
}
