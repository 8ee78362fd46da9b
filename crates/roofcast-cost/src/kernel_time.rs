//! The time of one operator: measured if a table has its kernel, else its limit over an efficiency.
//!
//! Knows: the scaling of measured times to an operator of another size or on a sibling chip, and the basis of each
//! operator's time. Knows nothing about steps.

mod all_reduce;
mod choice;
mod context;
mod exchange;
mod formula;
mod gate;
mod host;
mod older;
mod scale;

use crate::coefficients::{Coefficients, Evidence, KernelTimes};
use crate::operator::{Form, Operator};
use crate::profile::{Curve, Profiles};
use choice::Asking;
pub use choice::Timed;
pub use choice::timed;
pub(crate) use context::Context;
pub(crate) use formula::RateFormula;
use host::HostTime;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::All2AllBackend;
use roofcast_facts::accelerator::Accelerator;
use serde::Serialize;

/// Time of one operator, with its basis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KernelTime {
    /// Time from efficiencies: for limits, and for unmeasured kernels.
    pub(crate) rates: RateFormula,
    /// Measured times, if the kernel was timed.
    pub(crate) measured: Option<MeasuredTimes>,
    /// Measurement or assumption that the time is based on.
    pub(crate) basis: Basis,
    /// Time with weights or cache in the host's memory; `None` if they are on the accelerator.
    pub(crate) host: Option<HostTime>,
}

/// Measured times of one operator in one layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MeasuredTimes {
    /// Curve of seconds over rows, or over tokens for routed experts.
    Rows(Curve),
    /// Curves of seconds over tokens of routed experts behind an exchange: in steps of decodes, and with prompts.
    Exchanged([Curve; 2]),
    /// Times of attention or of a recurrence.
    Context(Context),
}

/// Measurement or assumption that an operator's time is based on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Basis {
    /// Depth of evidence: how similar the measured kernel is.
    pub evidence: Evidence,
    /// True if exactly this operator's shape was timed.
    pub exact: bool,
    /// Name of the kernel, as in `vllm 0.31.0 deepgemm, h100-sxm`.
    pub kernel: String,
    /// Name of the kernel that the engine's rule names, if its measured times are implausible beside those of other
    /// kernels on the chip, so that `kernel` counts in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<String>,
}

impl Basis {
    /// Basis of a time that is computed from an efficiency.
    fn share(kernel: &str) -> Basis {
        Basis { evidence: Evidence::Nothing, exact: false, kernel: kernel.to_owned(), in_place_of: None }
    }

    /// Basis of a kernel that counts in place of the implausible `kernel`: the engine itself was not timed with it.
    fn in_place_of(self, kernel: String) -> Basis {
        Basis {
            evidence: self.evidence.min(Evidence::Accelerator),
            exact: false,
            in_place_of: Some(kernel),
            ..self
        }
    }

    /// Basis of routed experts with weights in `format`: experts of AWQ, which have zero points, were timed nowhere, and those of
    /// GPTQ stand for them.
    fn standing_for(self, format: &str) -> Basis {
        match format {
            "awq-int4" => Basis { exact: false, evidence: Evidence::Nothing, ..self },
            _ => self,
        }
    }
}

/// Source of the times of a deployment's operators.
pub(crate) struct Kernels<'a> {
    coefficients: &'a Coefficients,
    deployment: &'a Deployment,
    chip: &'a Accelerator,
    asking: Asking<'a>,
    weights: &'a str,
    /// DeepEP's kernels, if they exchange tokens of experts.
    deepep: Option<All2AllBackend>,
}

impl<'a> Kernels<'a> {
    /// Creates the source of kernel times for `deployment`.
    pub(crate) fn of(deployment: &'a Deployment, coefficients: &'a Coefficients) -> Kernels<'a> {
        Kernels {
            coefficients,
            deployment,
            chip: &deployment.accelerator,
            asking: Asking {
                chip: &deployment.accelerator,
                engine: &deployment.engine.release,
                ep: deployment.parallelism.ep,
                kernel: deployment.engine.quantization_kernel.as_deref(),
            },
            weights: &deployment.weights,
            deepep: deployment.experts.deepep(),
        }
    }

    /// Returns the time of `operator` and its basis.
    pub(crate) fn time(&self, operator: &Operator) -> KernelTime {
        let rates = RateFormula::of(self, operator);
        let kernel_times = self.profiles().and_then(|profiles| {
            let timed = self.timed(profiles, operator)?;
            Some(self.no_slower_than_older(profiles, operator, timed))
        });
        let host = HostTime::of(self.deployment, self.coefficients, operator);
        let (measured, basis) = kernel_times.unzip();
        let basis = match (basis, host) {
            (_, Some(_)) => Basis::share("the host's memory"),
            (Some(basis), None) => basis,
            (None, None) => self.described(operator),
        };
        KernelTime { rates, measured, basis, host }
    }

    /// Times of `operator` from tables, and their basis; `None` if no kernel of the kind was timed.
    fn timed(&self, profiles: &Profiles, operator: &Operator) -> Option<(MeasuredTimes, Basis)> {
        match &operator.form {
            Form::Product { matrix, .. } => {
                self.gemm(profiles, operator, matrix, &RateFormula::of(self, operator))
            }
            Form::Experts(experts) => self
                .exchanged(profiles, operator, experts)
                .or_else(|| self.experts(profiles, operator, experts)),
            Form::Context(form) => self.context(profiles, operator, form),
            Form::Lookup { .. } => None,
        }
    }

    fn profiles(&self) -> Option<&Profiles> {
        match &self.coefficients.kernels {
            KernelTimes::Measured { profiles, .. } => Some(profiles),
            KernelTimes::Ideal { .. } => None,
        }
    }

    /// Basis of an unmeasured time: the published figures of a kernel on chips of the architecture, or a share of the
    /// limit.
    fn described(&self, operator: &Operator) -> Basis {
        let regimes = &self.coefficients.regimes;
        let quantized = operator.kind.is_product() && !operator.is_unquantized();
        match (&self.coefficients.kernels, regimes.name.filter(|_| quantized && regimes.is_measured)) {
            (KernelTimes::Ideal { .. }, _) => Basis::share("limit"),
            (KernelTimes::Measured { .. }, None) => Basis::share("share of the limit"),
            (KernelTimes::Measured { .. }, Some(name)) => Basis {
                evidence: Evidence::Architecture,
                ..Basis::share(&format!("published figures of {name}"))
            },
        }
    }
}
