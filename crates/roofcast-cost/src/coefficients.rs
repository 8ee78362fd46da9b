//! Coefficients of a deployment's times: measured kernels, efficiencies of unmeasured kernels, and times that the
//! engine adds.
//!
//! Knows: the values that apply to one deployment. [`crate::kernel_time`] computes operators' times from them;
//! [`crate::calibration`] knows their origin.

mod attention;
mod band;
mod engine_times;
mod launches;
mod skew;
mod waiting;

use crate::profile::Profiles;
pub(crate) use attention::AttentionKernel;
pub use band::{Band, Evidence, Load, UNTIMED, Widths, Z90, at_deviate, ends};
pub use engine_times::{Constant, EngineTimes, ServerLoop};
pub(crate) use launches::Launches;
use roofcast_ask::quantized_kernel::Regimes;
pub(crate) use skew::{SKEW, busiest};
use std::borrow::Cow;
pub(crate) use waiting::waiting;

/// Kernel times, engine numbers and bands of one deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Coefficients {
    /// Description of the measurements behind a forecast, for reports.
    pub name: String,
    /// Source of operators' times.
    pub kernels: KernelTimes,
    /// Behaviour of the quantized-weight kernel by number of rows of the GEMM.
    pub(crate) regimes: Regimes,
    /// Requested attention backend; `None` for the backend whose kernels were measured.
    pub(crate) attention: Option<AttentionKernel>,
    /// Number of the chip's multiprocessors, if known.
    pub(crate) multiprocessors: Option<u64>,
    /// Times that the engine adds to kernels: host, launches and server.
    pub engine: EngineTimes,
    /// Launches of a layer counted one by one; `None` if `engine` includes them.
    pub(crate) launches: Option<Launches>,
    /// Host time that the server's loop adds to the times in `engine`.
    pub(crate) server: ServerLoop,
    /// Depth of evidence: how much of the deployment was measured.
    pub evidence: Evidence,
    /// Kernels that nobody timed and that take a notable part of a step, as in `GEMMs with gptq-int4 weights`.
    pub untimed: Vec<String>,
    /// Part that kernels that nobody timed take of a step.
    pub untimed_part: f64,
    /// Bands of a forecast; `None` if none were derived.
    pub band: Option<Band>,
    /// Factor on every time: 1, except for what-if questions about a slower machine.
    pub factor: f64,
}

/// Source of operators' times.
#[derive(Debug, Clone, PartialEq)]
pub enum KernelTimes {
    /// Fixed efficiencies of peak rates and bandwidth, without any engine time: a limit.
    Ideal {
        /// Fraction of the peak rates.
        mfu: f64,
        /// Fraction of the memory bandwidth.
        mbu: f64,
    },
    /// Measured times, and [`KernelEfficiency`] for unmeasured kernels.
    Measured {
        /// The measured times.
        profiles: Cow<'static, Profiles>,
        /// Efficiencies of unmeasured kernels.
        shares: KernelEfficiency,
        /// Efficiencies of a host that computes with weights in its own memory.
        host: KernelEfficiency,
    },
}

/// Efficiencies of kernels without measurements, as fractions of a chip's rates, and a kernel's fixed start time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelEfficiency {
    /// Efficiencies of GEMMs: fraction of the peak, then of the bandwidth.
    pub(crate) gemm: [f64; 2],
    /// Efficiencies of routed experts: fraction of the peak, then of the bandwidth.
    pub(crate) experts: [f64; 2],
    /// Efficiencies of attention and recurrences: fraction of the peak, then of the bandwidth.
    pub(crate) attention: [f64; 2],
    /// Efficiency of all-reduces: fraction of the link's bandwidth.
    pub(crate) link: f64,
    /// Fixed time of each kernel in seconds, on top of its work at the efficiency.
    pub(crate) start: f64,
}

impl KernelEfficiency {
    /// Round efficiencies for chips without a calibration.
    pub(crate) const UNKNOWN: KernelEfficiency = KernelEfficiency {
        gemm: [0.7, 0.8],
        experts: [0.5, 0.7],
        attention: [0.5, 0.7],
        link: 0.6,
        start: 4e-6,
    };
}

impl Coefficients {
    /// Coefficients of a limit: efficiencies `mfu` of the peak rates and `mbu` of the bandwidth, without any engine
    /// time.
    pub(crate) fn ideal(mfu: f64, mbu: f64) -> Coefficients {
        Coefficients {
            name: "limit".to_owned(),
            kernels: KernelTimes::Ideal { mfu, mbu },
            regimes: Regimes::default(),
            attention: None,
            multiprocessors: None,
            engine: EngineTimes::default(),
            launches: None,
            server: ServerLoop::default(),
            evidence: Evidence::Nothing,
            untimed: Vec::new(),
            untimed_part: 0.0,
            band: None,
            factor: 1.0,
        }
    }

    /// Coefficients of a machine that is slower by `factor`.
    #[must_use]
    pub(crate) fn slowed(&self, factor: f64) -> Coefficients {
        Coefficients { factor: self.factor * factor, ..self.clone() }
    }
}
