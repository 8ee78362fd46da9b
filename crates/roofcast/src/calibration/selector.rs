//! Where a level of a calibration holds, and what is looked up.
//!
//! Knows: which places a selector matches, and which shares a place's kernel has of its own. Knows nothing about levels.

use crate::accelerator::{Accelerator, Topology};
use crate::coefficients::{Coefficient, Values};
use crate::deployment::Deployment;
use crate::quantized_kernel::{Kernel, Regimes, kernel, measured_as};
use crate::spec::EngineSpec;
use crate::version::Version;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Where a level holds; an absent key matches everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selector {
    /// As in `hopper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Catalog id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// How accelerators are joined, as in `pcie`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Topology>,
    /// As in `vllm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The engine's version: holds for it and those before it, or for what is called exactly so where it has no order. What
    /// the newest version does is the engine's own level, and the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `true` where the level is what a server adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
    /// The weight format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// What is looked up.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The chip.
    pub accelerator: &'a Accelerator,
    /// The engine's name, version and kind of use.
    pub engine: &'a EngineSpec,
    /// The weight format.
    pub weights: &'a str,
}

impl<'a> Place<'a> {
    /// That of a deployment. Weights that another format's kernel multiplies are where that format is.
    pub fn of(deployment: &'a Deployment) -> Place<'a> {
        let (accelerator, engine) = (&*deployment.accelerator, &deployment.options.engine);
        let activations = deployment.options.precision.activations;
        let like = measured_as(engine, &deployment.weights, activations, accelerator);
        Place { accelerator, engine, weights: like.unwrap_or(&deployment.weights) }
    }

    /// The weight format that levels are looked up by: bf16 for fp16, except under engines as old as those whose rows are in
    /// fp16. What these rows take beyond bf16 is due to the engine, not to the format.
    pub fn format(&self) -> &'a str {
        let version = self.engine.version.as_deref();
        let newest = FP16_ROWS.iter().find(|(engine, _)| *engine == self.engine.name());
        let old = newest.is_some_and(|(_, newest)| newest.is_none_or(|newest| holds_for(newest, version)));
        if old { self.weights } else { timed_format(self.weights) }
    }

    /// Whether its weights have 16 bits or more.
    pub(crate) fn is_unquantized(&self) -> bool {
        is_unquantized(self.weights)
    }

    /// What the kernel of its weights does by how many rows it has.
    pub fn regimes(&self) -> Regimes {
        self.kernel().map(|kernel| kernel.regimes(self.accelerator)).unwrap_or_default()
    }

    /// `values` with the shares that the kernel of quantized weights has of its own, wherever it runs.
    pub(crate) fn with_own_shares(&self, mut values: Values) -> Values {
        let own = self.kernel().map(|kernel| {
            [(Coefficient::GemmCompute, kernel.gemm_compute), (Coefficient::GemmExposed, kernel.gemm_exposed)]
        });
        for (coefficient, share) in own.into_iter().flatten() {
            values.0[coefficient as usize] = share.unwrap_or(values.0[coefficient as usize]);
        }
        values
    }

    /// The kernel of quantized weights; a resolved deployment has one that multiplies its weights, or none has a name.
    pub(super) fn kernel(&self) -> Option<&'static Kernel> {
        kernel(self.engine, self.weights, self.accelerator).ok().flatten()
    }
}

impl Selector {
    /// Whether a level with this selector holds at `place`.
    pub fn matches(&self, place: &Place) -> bool {
        let same = |key: &Option<String>, value: &str| key.as_deref().is_none_or(|k| k == value);
        same(&self.architecture, &place.accelerator.architecture)
            && same(&self.accelerator, &place.accelerator.id)
            && same(&self.engine, place.engine.name())
            && self.version.as_deref().is_none_or(|v| holds_for(v, place.engine.version.as_deref()))
            && same(&self.weights, place.format())
            && self
                .link
                .is_none_or(|l| place.accelerator.link.as_ref().is_some_and(|link| link.topology == l))
            && self.served.is_none_or(|s| s == place.engine.served())
    }

    /// How close it describes a place: keys, a chip's before its generation's.
    pub(super) fn keys(&self) -> usize {
        let texts = [
            &self.accelerator,
            &self.accelerator,
            &self.architecture,
            &self.engine,
            &self.version,
            &self.weights,
        ];
        texts.iter().filter(|t| t.is_some()).count() + usize::from(self.served.is_some())
    }

    /// `accelerator h100-sxm, engine vllm`, or `everywhere`.
    pub fn name(&self) -> String {
        let text = |key: &str, value: &Option<String>| value.as_ref().map(|v| format!("{key} {v}"));
        let served = self.served.map(|s| if s { "served".to_owned() } else { "offline".to_owned() });
        let parts = [
            text("architecture", &self.architecture),
            text("accelerator", &self.accelerator),
            self.link.map(|l| format!("link {}", format!("{l:?}").to_lowercase())),
            text("engine", &self.engine),
            text("version", &self.version),
            served,
            text("weights", &self.weights),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "everywhere".to_owned() } else { parts.join(", ") }
    }
}

/// Engines with fitted rows in fp16, and the newest version among these rows; no version where the engine has no new ones.
const FP16_ROWS: [(&str, Option<&str>); 3] =
    [("vllm", Some("0.8.5")), ("tensorrt-llm", Some("0.14.0")), ("fastertransformer", None)];

/// The weight format whose kernel times count for `weights`. Tables have one of the two 16-bit formats: chips multiply both at
/// one rate in the same kernels.
pub(super) fn timed_format(weights: &str) -> &str {
    if weights == "fp16" { "bf16" } else { weights }
}

/// Whether weights of a format have 16 bits or more.
pub(crate) fn is_unquantized(weights: &str) -> bool {
    ["bf16", "fp16", "fp32"].contains(&weights)
}

/// Whether a level of `version` holds for the version `asked`: what is unknown is taken for its next known successor, and
/// where nothing is asked, or what is newer than all, for the newest.
fn holds_for(version: &str, asked: Option<&str>) -> bool {
    let Some(asked) = asked else { return false };
    match Version::compare(asked, version) {
        Some(order) => order != Ordering::Greater,
        None => asked == version,
    }
}
