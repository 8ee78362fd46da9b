//! The time of one operator: measured where a table has its kernel, else its limit over a share.
//!
//! Knows: how a kernel's measured times become those of an operator of another size or on a sibling chip, and what each
//! operator's time rests on. Knows nothing about steps.

mod choice;
mod context;
mod formula;
mod scale;

use crate::accelerator::Accelerator;
use crate::coefficients::{Coefficients, Evidence, KernelTimes};
use crate::deployment::Deployment;
use crate::operator::{Form, Operator};
use crate::profile::{Curve, Profiles};
use choice::Asking;
pub use choice::evidence;
pub use context::Context;
pub use formula::Rates;
use serde::Serialize;

/// What one operator takes, and what that rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Its shares of the chip's rates: all of a limit, and of kernels that nobody timed.
    pub rates: Rates,
    /// Its measured times.
    pub measured: Option<Measured>,
    /// What they rest on.
    pub basis: Basis,
}

/// Measured times of one operator in one layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// Seconds over rows, or over tokens of experts.
    Rows(Curve),
    /// Attention or a recurrence.
    Context(Context),
}

/// What an operator's time rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Basis {
    /// How close what was measured is.
    pub evidence: Evidence,
    /// Whether the very shape was timed.
    pub exact: bool,
    /// The kernel, as in `vllm 0.31.0 deepgemm, h100-sxm`.
    pub kernel: String,
}

impl Basis {
    /// A share of the limit.
    fn share(kernel: &str) -> Basis {
        Basis { evidence: Evidence::Nothing, exact: false, kernel: kernel.to_owned() }
    }
}

/// What every operator of a deployment takes.
pub struct Kernels<'a> {
    coefficients: &'a Coefficients,
    chip: &'a Accelerator,
    asking: Asking<'a>,
    weights: &'a str,
}

impl<'a> Kernels<'a> {
    /// Those of `deployment`.
    pub fn of(deployment: &'a Deployment, coefficients: &'a Coefficients) -> Kernels<'a> {
        Kernels {
            coefficients,
            chip: &deployment.accelerator,
            asking: Asking {
                chip: &deployment.accelerator,
                engine: &deployment.options.engine,
                ep: deployment.parallelism.ep,
            },
            weights: &deployment.weights,
        }
    }

    /// What `operator` takes.
    pub fn time(&self, operator: &Operator) -> KernelTime {
        let rates = Rates::of(self, operator);
        let found = self.profiles().and_then(|profiles| match &operator.form {
            Form::Product { matrix, .. } => self.gemm(profiles, operator, matrix),
            Form::Experts(experts) => self.experts(profiles, operator, experts),
            Form::Context(form) => self.context(profiles, operator, form),
            Form::Lookup { .. } => None,
        });
        match found {
            Some((measured, basis)) => KernelTime { rates, measured: Some(measured), basis },
            None => KernelTime { rates, measured: None, basis: Basis::share(self.described()) },
        }
    }

    fn profiles(&self) -> Option<&Profiles> {
        match &self.coefficients.kernels {
            KernelTimes::Measured { profiles, .. } => Some(profiles),
            KernelTimes::Ideal { .. } => None,
        }
    }

    /// What a time that is a share of the limit rests on.
    fn described(&self) -> &'static str {
        match self.coefficients.kernels {
            KernelTimes::Ideal { .. } => "limit",
            KernelTimes::Measured { .. } => "share of the limit",
        }
    }
}
