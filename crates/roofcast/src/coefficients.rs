//! Coefficients of a deployment's times: measured kernels, efficiencies of unmeasured kernels, and the engine's own
//! times.
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
use crate::quantized_kernel::Regimes;
pub(crate) use attention::AttentionKernel;
pub use band::{Band, Evidence, Factors, Load};
pub use engine_times::{Constant, EngineTimes, ServerLoop};
pub(crate) use launches::Launches;
pub(crate) use skew::{SKEW, busiest};
use std::borrow::Cow;
pub(crate) use waiting::waiting;

/// Kernel times, an engine's numbers and the band of one deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Coefficients {
    /// Description of the measurements behind a forecast.
    pub name: String,
    /// Source of operators' times.
    pub kernels: KernelTimes,
    /// Behaviour of the quantized-weight kernel by number of rows.
    pub regimes: Regimes,
    /// Attention backend on request; `None` for the measured one.
    pub attention: Option<AttentionKernel>,
    /// Multiprocessors of the chip, where their number is known.
    pub multiprocessors: Option<u64>,
    /// Host, launches and server of the engine.
    pub engine: EngineTimes,
    /// Launches of a layer counted one by one; `None` if the engine's times include them.
    pub launches: Option<Launches>,
    /// Host time that the server's loop adds to the engine's own.
    pub server: ServerLoop,
    /// Depth of evidence: how much of the deployment was measured.
    pub evidence: Evidence,
    /// Bands of a forecast; `None` if none were derived.
    pub band: Option<Band>,
    /// Factor on every time; 1 except for what-if questions about a slower machine.
    pub factor: f64,
}

/// Source of operators' times.
#[derive(Debug, Clone, PartialEq)]
pub enum KernelTimes {
    /// Fixed efficiencies of peaks and bandwidth, and nothing else: a limit.
    Ideal {
        /// Fraction of the peak rates.
        mfu: f64,
        /// Fraction of the memory bandwidth.
        mbu: f64,
    },
    /// Measured times, and [`Shares`] for unmeasured kernels.
    Measured {
        /// The measured times.
        profiles: Cow<'static, Profiles>,
        /// Efficiencies of unmeasured kernels.
        shares: KernelEfficiency,
    },
}

/// Efficiencies of kernels without measurements, as fractions of a chip's rates, and the seconds that each needs to
/// start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelEfficiency {
    /// GEMM: fraction of the peak, and of the bandwidth.
    pub gemm: [f64; 2],
    /// Routed experts: fraction of the peak, and of the bandwidth.
    pub experts: [f64; 2],
    /// Attention and recurrences: fraction of the peak, and of the bandwidth.
    pub attention: [f64; 2],
    /// All-reduce: fraction of the link's bandwidth.
    pub link: f64,
    /// Seconds before a kernel runs at these efficiencies.
    pub start: f64,
}

impl KernelEfficiency {
    /// Round figures for use without a calibration.
    pub(crate) const UNKNOWN: KernelEfficiency = KernelEfficiency {
        gemm: [0.7, 0.8],
        experts: [0.5, 0.7],
        attention: [0.5, 0.7],
        link: 0.6,
        start: 4e-6,
    };
}

impl Coefficients {
    /// Coefficients of a limit: fractions `mfu` of the peaks and `mbu` of the bandwidth, and nothing else.
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
