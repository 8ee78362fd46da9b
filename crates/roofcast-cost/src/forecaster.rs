//! A deployment with its coefficients: the object from which every verb gets times.
//!
//! Knows: the limit is the step model with ideal coefficients. Knows nothing about traffic.

use crate::calibration::{Calibration, CalibrationKey};
use crate::coefficients::{Coefficients, Evidence, KernelTimes};
use crate::evidence::{KernelEvidence, steps_of};
use crate::step::{Contexts, StepModel};
use crate::timing::Timing;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{CostKind, EncoderTpMode, EngineKind};
use roofcast_ask::workload::Workload;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::batch::{Batch, Seen, Sequences};
use roofcast_facts::encoder::{EncoderTime, PromptImages};
use roofcast_facts::error::Result;
use roofcast_facts::model::ImageTokens;
use std::sync::Arc;

/// Most images of a call of the encoder that are priced together; more are several calls, whose times are proportional by then.
const MOST_A_CALL: u64 = 256;

/// A deployment with its coefficients.
#[derive(Debug, Clone)]
pub struct Forecaster {
    /// The deployment.
    pub deployment: Deployment,
    /// Efficiencies and added times of the machine and the engine.
    pub coefficients: Arc<Coefficients>,
    /// Forecaster of the draft model.
    pub draft: Option<Box<Forecaster>>,
    /// Forecaster on the second accelerator of a fleet of two kinds.
    pub other: Option<Box<Forecaster>>,
}

impl Forecaster {
    /// Creates a forecaster with the coefficients of the embedded calibration.
    pub fn embedded(deployment: Deployment) -> Result<Forecaster> {
        Ok(Forecaster::new(deployment, Calibration::embedded()?))
    }

    /// Creates a forecaster with the coefficients for the cost model of the deployment's engine: a calibration, or
    /// ideal ones if steps are priced at the limit.
    pub fn serving(deployment: Deployment) -> Result<Forecaster> {
        match deployment.engine.cost {
            CostKind::Limit => Ok(Forecaster::ideal(deployment)),
            CostKind::Forecast => Forecaster::embedded(deployment),
        }
    }

    /// Creates a forecaster with the coefficients of `calibration` for `deployment`.
    pub fn new(deployment: Deployment, calibration: &Calibration) -> Forecaster {
        let coefficients = Arc::new(calibration.coefficients(&CalibrationKey::of(&deployment)));
        let again =
            |d: &Option<Box<Deployment>>| d.clone().map(|d| Box::new(Forecaster::new(*d, calibration)));
        let draft = again(&deployment.draft);
        let other = again(&deployment.other);
        Forecaster { deployment, coefficients, draft, other }.judged(calibration, &[])
    }

    /// Returns the forecaster whose evidence and band also count the kernels that take a notable part of the `asked` steps.
    ///
    /// # Errors
    /// Fails if the embedded calibration cannot be read.
    pub fn asked(self, asked: &[Batch]) -> Result<Forecaster> {
        if matches!(self.coefficients.kernels, KernelTimes::Ideal { .. }) {
            return Ok(self);
        }
        let other = self.other.clone().map(|f| f.asked(asked).map(Box::new)).transpose()?;
        Ok(Forecaster { other, ..self.judged(Calibration::embedded()?, asked) })
    }

    /// Returns the forecaster whose evidence and band also count steps at the mean lengths of `workload`.
    ///
    /// # Errors
    /// Fails if the embedded calibration cannot be read.
    pub fn under(self, workload: Option<&Workload>) -> Result<Forecaster> {
        let Some(workload) = workload else { return Ok(self) };
        let tokens = |mean: f64| (mean.round() as u64).max(1);
        let context = workload.input_mean() + workload.output_mean() / 2.0;
        self.asked(&steps_of(tokens(context), tokens(workload.input_mean())))
    }

    /// Sets evidence and band by the kernels that take a notable part of usual steps, or of the `asked` ones.
    fn judged(self, calibration: &Calibration, asked: &[Batch]) -> Forecaster {
        let key = CalibrationKey::of(&self.deployment);
        let KernelEvidence { depth, untimed, untimed_part, at_length, all_reduces } =
            KernelEvidence::of(&self.deployment, &self.coefficients, asked);
        let mut name = calibration.rests_on(&key, depth, &untimed, all_reduces.as_ref());
        if depth > Evidence::Family && !at_length.is_empty() {
            name += &format!(", none of {}", at_length.join(" and "));
        }
        let band = calibration.weighed_band(depth, untimed_part);
        let tables = Arc::unwrap_or_clone(self.coefficients);
        let coefficients =
            Arc::new(Coefficients { name, evidence: depth, untimed, untimed_part, band, ..tables });
        Forecaster { coefficients, ..self }
    }

    /// Sentence that says which kernels nobody timed on the chip's architecture; `None` for a limit, and if all notable families
    /// were timed there.
    pub fn not_measured(&self) -> Option<String> {
        let Coefficients { evidence, untimed, untimed_part, kernels, .. } = &*self.coefficients;
        let Accelerator { id: chip, architecture, .. } = &*self.deployment.accelerator;
        let sentence = match (kernels, evidence) {
            (KernelTimes::Measured { .. }, Evidence::Nothing) => Some(format!(
                "NOT MEASURED: nobody timed kernels on {chip}; the forecast rests on its data sheet"
            )),
            (KernelTimes::Measured { .. }, Evidence::Family) => Some(format!(
                "NOT MEASURED: nobody timed {} on {chip} or another chip of its architecture ({architecture}); \
                 their times, up to {:.0} % of a step, rest on the data sheet",
                untimed.join(" and "),
                100.0 * untimed_part
            )),
            _ => None,
        };
        sentence.or_else(|| self.other.as_ref()?.not_measured())
    }

    /// Seconds for which a token waits in the server per running request of a replica: half of the time to stream a token.
    pub fn half_a_stream(&self) -> f64 {
        let Forecaster { deployment, coefficients, .. } = self;
        let token = coefficients.server.token * coefficients.factor / deployment.accelerator.host_speed;
        token * deployment.streams() / deployment.parallelism.attention_dp as f64 / 2.0
    }

    /// Creates a forecaster that computes limits only.
    pub fn ideal(deployment: Deployment) -> Forecaster {
        let again = |d: &Option<Box<Deployment>>| d.clone().map(|d| Box::new(Forecaster::ideal(*d)));
        let draft = again(&deployment.draft);
        let other = again(&deployment.other);
        Forecaster { deployment, coefficients: Arc::new(Coefficients::ideal(1.0, 1.0)), draft, other }
    }

    /// Returns the forecaster of a machine that is slower by `factor`; no time falls below its limit.
    #[must_use]
    pub fn slowed(self, factor: f64) -> Forecaster {
        if factor == 1.0 {
            return self;
        }
        let again = |f: Option<Box<Forecaster>>| f.map(|f| Box::new(f.slowed(factor)));
        let draft = again(self.draft);
        let other = again(self.other);
        Forecaster { coefficients: Arc::new(self.coefficients.slowed(factor)), draft, other, ..self }
    }

    /// Returns a forecaster with these coefficients for `deployment`, which must have an equal model, formats,
    /// accelerator and engine.
    pub fn reshaped(&self, deployment: Deployment) -> Forecaster {
        let coefficients = Arc::clone(&self.coefficients);
        let again = |d: &Option<Box<Deployment>>, own: &Option<Box<Forecaster>>| {
            d.clone().zip(own.as_ref()).map(|(d, own)| Box::new(own.reshaped(*d)))
        };
        let draft = again(&deployment.draft, &self.draft);
        let other = again(&deployment.other, &self.other);
        Forecaster { deployment, coefficients, draft, other }
    }

    /// Returns the forecaster on the second accelerator, or this one if there is only one kind.
    pub fn elsewhere(&self) -> &Forecaster {
        self.other.as_deref().unwrap_or(self)
    }

    /// Returns the time of the vision tower for `images`, at the limit or as forecast. The images of a step are a
    /// pass of the tower over their patches. Every patch attends to every other of an image, or of two frames of a video:
    /// these are as many pairs as those of a prompt of n tokens at the end of 1.5 n.
    ///
    /// # Errors
    /// Fails if the model has no tower that can be read.
    pub fn encoder(&self, images: PromptImages, cost: CostKind) -> Result<EncoderTime> {
        let deployment = &self.deployment;
        let ranks = match deployment.engine.mm_encoder_tp_mode {
            EncoderTpMode::Weights => 1,
            EncoderTpMode::Data => deployment.parallelism.tp,
        };
        let timing = self.reshaped(deployment.encoder()?).timing(cost);
        let ImageTokens { patches, parts, .. } = images.image;
        let patches = (patches / parts).max(1);
        let within = vec![0; timing.model.reaches.len()];
        let call = |images: u64| {
            let count = parts.saturating_mul(images);
            let chunk = [Sequences { count, ..Sequences::prompt(patches, patches + patches / 2, false) }];
            let passes = || timing.model.passes(0, Contexts::Seen(Seen { all: 0, within: &within }), &chunk);
            let mut call_time = timing.step(passes());
            // The host's part of a step is counted with the step in which the image is encoded.
            call_time.host =
                (call_time.host - passes().map(|pass| timing.beside(&pass).host).sum::<f64>()).max(0.0);
            call_time
        };
        let calls = (1..=self.images_a_call(images)).map(call).collect();
        Ok(EncoderTime::new(images, calls, ranks))
    }

    /// Most images of one call of the encoder: vLLM's scheduler admits as many to a step as its encoder's budget holds, the
    /// larger of `max_num_batched_tokens` and the largest image (`compute_mm_encoder_budget`), and its runner encodes
    /// them together (`group_and_batch_mm_kwargs` in `v1/worker/gpu_model_runner.py`). Other engines encode one after another.
    fn images_a_call(&self, images: PromptImages) -> u64 {
        let engine = &self.deployment.engine;
        if engine.kind() != EngineKind::Vllm {
            return 1;
        }
        let largest = self.deployment.model.tower.and_then(|tower| tower.largest).unwrap_or(0);
        let budget = engine.max_num_batched_tokens.max(largest);
        (budget / images.image.tokens.max(1)).clamp(1, MOST_A_CALL)
    }

    /// Returns the times of steps, at the limit or as forecast.
    pub fn timing(&self, cost: CostKind) -> Timing {
        let coefficients = match cost {
            CostKind::Limit => Arc::new(Coefficients::ideal(1.0, 1.0)),
            CostKind::Forecast => Arc::clone(&self.coefficients),
        };
        Timing::new(&self.deployment, Arc::new(StepModel::compile(&self.deployment)), coefficients)
    }
}
