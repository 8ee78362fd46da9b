//! What a deployment's times rest on: measured kernels, the shares of kernels that nobody timed, and what an engine adds.
//!
//! Knows: which of these hold for one deployment, as values. Knows nothing about operators' times: that is
//! [`crate::kernel_time`]'s, nor where the values come from: that is [`crate::calibration`]'s.

mod attention;
mod band;
mod engine_times;
mod launches;
mod skew;
mod waiting;

use crate::profile::Profiles;
use crate::quantized_kernel::Regimes;
pub use attention::AttentionKernel;
pub use band::{Band, Evidence, Factors, Load};
pub use engine_times::{Constant, EngineTimes, ServerLoop};
pub use launches::Launches;
pub use skew::{SKEW, busiest};
use std::borrow::Cow;
pub use waiting::waiting;

/// Kernel times, an engine's numbers and the band of one deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Coefficients {
    /// What a forecast rests on, in words.
    pub name: String,
    /// Where operators' times come from.
    pub kernels: KernelTimes,
    /// What the kernel of quantized weights does by how many rows it has.
    pub regimes: Regimes,
    /// The attention backend that was asked for; none where the measured one counts.
    pub attention: Option<AttentionKernel>,
    /// Multiprocessors of the chip, where their number is known.
    pub multiprocessors: Option<u64>,
    /// Host, launches and server of the engine.
    pub engine: EngineTimes,
    /// A layer's launches where they are counted one by one; none where the engine's times hold.
    pub launches: Option<Launches>,
    /// Host time of a server's loop that is not the engine's own.
    pub server: ServerLoop,
    /// How much of the deployment was measured.
    pub evidence: Evidence,
    /// The bands of a forecast; none where none was judged.
    pub band: Option<Band>,
    /// Factor on every time; 1 but for "as if the machine were slower".
    pub factor: f64,
}

/// Where operators' times come from.
#[derive(Debug, Clone, PartialEq)]
pub enum KernelTimes {
    /// Shares of the peaks and of the bandwidth, and nothing else: a limit.
    Ideal {
        /// Share of the peak rates.
        mfu: f64,
        /// Share of the memory bandwidth.
        mbu: f64,
    },
    /// Measured times, and [`Shares`] where there are none.
    Measured {
        /// The times.
        profiles: Cow<'static, Profiles>,
        /// Shares of kernels that nobody timed.
        shares: Shares,
    },
}

/// Shares of a chip's rates that kernels reach of which no time is known, and the seconds that each takes to start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// GEMM: of the peak, and of the bandwidth.
    pub gemm: [f64; 2],
    /// Routed experts: of the peak, and of the bandwidth.
    pub experts: [f64; 2],
    /// Attention and recurrences: of the peak, and of the bandwidth.
    pub attention: [f64; 2],
    /// Links: of the bandwidth of an all-reduce.
    pub link: f64,
    /// Seconds before a kernel works at these shares.
    pub start: f64,
}

impl Shares {
    /// Where no calibration says any: round numbers.
    pub const UNKNOWN: Shares =
        Shares { gemm: [0.7, 0.8], experts: [0.5, 0.7], attention: [0.5, 0.7], link: 0.6, start: 4e-6 };
}

impl Coefficients {
    /// A limit's: shares `mfu` of the peaks and `mbu` of the bandwidth, and nothing else.
    pub fn ideal(mfu: f64, mbu: f64) -> Coefficients {
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

    /// Whether it is a limit's: activations stay on chip, and experts are chosen evenly.
    pub fn is_ideal(&self) -> bool {
        matches!(self.kernels, KernelTimes::Ideal { .. })
    }

    /// A machine's that takes `factor` times as long.
    #[must_use]
    pub fn slowed(&self, factor: f64) -> Coefficients {
        Coefficients { factor: self.factor * factor, ..self.clone() }
    }
}
