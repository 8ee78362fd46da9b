//! A deployment with the coefficients that hold for it: what every verb asks for times.
//!
//! Knows: the limit is the same step model with ideal coefficients. Knows nothing about traffic.

use crate::calibration::{Calibration, Place};
use crate::coefficients::Coefficients;
use crate::deployment::Deployment;
use crate::error::Result;
use crate::spec::CostKind;
use crate::step::StepModel;
use crate::timing::Timing;
use std::sync::Arc;

/// A deployment with its coefficients.
#[derive(Debug, Clone)]
pub struct Forecaster {
    /// What is served on what.
    pub deployment: Deployment,
    /// What machine and engine reach of the limits.
    pub coefficients: Arc<Coefficients>,
    /// The same for the model that drafts.
    pub draft: Option<Box<Forecaster>>,
    /// The same on the accelerator that computes prompts, where that is another.
    pub prefill: Option<Box<Forecaster>>,
}

impl Forecaster {
    /// With the coefficients of the embedded calibration.
    pub fn embedded(deployment: Deployment) -> Result<Forecaster> {
        Ok(Forecaster::new(deployment, Calibration::embedded()?))
    }

    /// With the coefficients that `calibration` has for `deployment`.
    pub fn new(deployment: Deployment, calibration: &Calibration) -> Forecaster {
        let coefficients = Arc::new(calibration.coefficients(&Place::of(&deployment)));
        let other =
            |d: &Option<Box<Deployment>>| d.clone().map(|d| Box::new(Forecaster::new(*d, calibration)));
        let (draft, prefill) = (other(&deployment.draft), other(&deployment.prefill));
        Forecaster { deployment, coefficients, draft, prefill }
    }

    /// With nothing but the limits.
    pub fn ideal(deployment: Deployment) -> Forecaster {
        let other = |d: &Option<Box<Deployment>>| d.clone().map(|d| Box::new(Forecaster::ideal(*d)));
        let (draft, prefill) = (other(&deployment.draft), other(&deployment.prefill));
        Forecaster { deployment, coefficients: Arc::new(Coefficients::ideal(1.0, 1.0)), draft, prefill }
    }

    /// The same on a machine that takes `factor` times as long; nothing gets faster than its limit.
    #[must_use]
    pub fn slowed(self, factor: f64) -> Forecaster {
        if factor == 1.0 {
            return self;
        }
        let other = |f: Option<Box<Forecaster>>| f.map(|f| Box::new(f.slowed(factor)));
        let (draft, prefill) = (other(self.draft), other(self.prefill));
        Forecaster { coefficients: Arc::new(self.coefficients.slowed(factor)), draft, prefill, ..self }
    }

    /// Another deployment of the same model, formats, accelerator and engine.
    pub fn reshaped(&self, deployment: Deployment) -> Forecaster {
        let coefficients = Arc::clone(&self.coefficients);
        let other = |d: &Option<Box<Deployment>>, own: &Option<Box<Forecaster>>| {
            d.clone().zip(own.as_ref()).map(|(d, own)| Box::new(own.reshaped(*d)))
        };
        let draft = other(&deployment.draft, &self.draft);
        let prefill = other(&deployment.prefill, &self.prefill);
        Forecaster { deployment, coefficients, draft, prefill }
    }

    /// Where prompts are computed by others: this, or the same on their accelerator.
    pub fn prompts(&self) -> &Forecaster {
        self.prefill.as_deref().unwrap_or(self)
    }

    /// The times of steps, at the limit or as forecast.
    pub fn timing(&self, cost: CostKind) -> Timing {
        let coefficients = match cost {
            CostKind::Limit => Arc::new(Coefficients::ideal(1.0, 1.0)),
            CostKind::Forecast => Arc::clone(&self.coefficients),
        };
        Timing::new(Arc::new(StepModel::compile(&self.deployment)), coefficients)
    }
}
