//! Bands: widths of the 80 % intervals around a forecast.
//!
//! Knows: an interval has the forecast at its centre: it reaches from the forecast over w to the forecast times w, with w
//! by depth of evidence, class of load and metric. A bias of forecasts is no part of an interval. `calibrate`
//! derives the widths.

use serde::{Deserialize, Serialize};

/// Widths of intervals for one depth of evidence, by class of load. A deeper evidence never has a larger width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Depth of evidence that the widths apply to.
    pub evidence: Evidence,
    /// Widths of single steps of decodes, and of batches whose phases were timed.
    pub step: Widths,
    /// Widths of prompts alone, without a queue.
    pub prompt: Widths,
    /// Widths of closed loops: requests arrive as others end.
    pub closed_loop: Widths,
    /// Widths of bursts and offline batches, whose requests all arrive at one time.
    pub at_once: Widths,
    /// Widths of open loops, in which a slower step also lengthens queues.
    pub open_loop: Widths,
    /// Widths of closed loops over one pool that computes prompts and one that decodes.
    pub disaggregated: Widths,
}

/// Class of load; errors of forecasts differ by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Single steps of decodes, or a batch whose phases were timed.
    Step,
    /// Prompts alone, without a queue.
    Prompt,
    /// Closed loop: requests arrive as others end.
    ClosedLoop,
    /// All requests arrive at one time.
    AtOnce,
    /// Open loop: requests arrive at a given rate, however many are in flight.
    OpenLoop,
    /// Closed loop over one pool that computes prompts and one that decodes.
    Disaggregated,
}

impl Load {
    /// Every class.
    pub const ALL: [Load; 6] =
        [Load::Step, Load::Prompt, Load::ClosedLoop, Load::AtOnce, Load::OpenLoop, Load::Disaggregated];
}

/// Factors w of 80 % intervals, by metric: in eight cases of ten the measured value is between the forecast over w and
/// the forecast times w.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Widths {
    /// Width of the time to first token.
    pub ttft: f64,
    /// Width of the time of a step, and of the time per output token.
    pub tpot: f64,
    /// Width of the end-to-end latency.
    pub e2e: f64,
    /// Width of the throughput.
    pub throughput: f64,
}

impl Widths {
    /// Widths of a step of which `part` has the widths `wide`, and the rest has these.
    fn mixed(&self, wide: Widths, part: f64) -> Widths {
        let mixed = |narrow: f64, wide: f64| narrow + (wide - narrow) * part;
        Widths {
            ttft: mixed(self.ttft, wide.ttft),
            tpot: mixed(self.tpot, wide.tpot),
            e2e: mixed(self.e2e, wide.e2e),
            throughput: mixed(self.throughput, wide.throughput),
        }
    }

    /// All widths, in the order of the fields.
    pub fn all(&self) -> [f64; 4] {
        [self.ttft, self.tpot, self.e2e, self.throughput]
    }
}

/// Ends of the interval of width `w`, as factors on the forecast.
pub fn ends(w: f64) -> [f64; 2] {
    [1.0 / w, w]
}

/// Least width of a deployment with a notable family of kernels that nobody timed: in eight cases of ten the tables' times differ
/// from shares of the limit by a factor of 1.5 for GEMMs, 1.6 for routed experts and 2.5 for attention.
pub const UNTIMED: f64 = 2.0;

/// The 90th percentile of a standard normal.
pub const Z90: f64 = 1.281_551_565_544_6;

/// The value at the normal deviate `z` of the log-normal distribution whose 90th percentile is `w` and whose median is 1.
pub fn at_deviate(w: f64, z: f64) -> f64 {
    libm::exp(libm::log(w) * z / Z90)
}

impl Band {
    /// Returns the widths of a class of load.
    pub fn widths(&self, load: Load) -> Widths {
        match load {
            Load::Step => self.step,
            Load::Prompt => self.prompt,
            Load::ClosedLoop => self.closed_loop,
            Load::AtOnce => self.at_once,
            Load::OpenLoop => self.open_loop,
            Load::Disaggregated => self.disaggregated,
        }
    }

    /// Band of a deployment of whose steps `part` has the widths `wide`, and the rest those of `self`.
    pub(crate) fn mixed(&self, wide: &Band, part: f64) -> Band {
        Band::of_loads(wide.evidence, |load| self.widths(load).mixed(wide.widths(load), part))
    }

    /// Band with the widths that `of` has for each class of loads.
    pub fn of_loads(evidence: Evidence, of: impl Fn(Load) -> Widths) -> Band {
        Band {
            evidence,
            step: of(Load::Step),
            prompt: of(Load::Prompt),
            closed_loop: of(Load::ClosedLoop),
            at_once: of(Load::AtOnce),
            open_loop: of(Load::OpenLoop),
            disaggregated: of(Load::Disaggregated),
        }
    }

    /// True if no width is below 1, or below the width of `deeper` for an equal class and metric.
    pub(crate) fn is_around(&self, deeper: &Band) -> bool {
        Load::ALL.into_iter().all(|load| {
            let [wide, narrow] = [self, deeper].map(|band| band.widths(load).all());
            wide.into_iter()
                .zip(narrow)
                .all(|(wide, narrow)| wide.is_finite() && wide >= narrow && narrow >= 1.0)
        })
    }
}

/// Depth of evidence: how much of a deployment has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// No kernel of the chip or of its architecture was measured.
    Nothing,
    /// Kernels of the chip's architecture were measured, but not a family of them that takes a notable part of a step.
    Family,
    /// Another chip of the chip's architecture was measured.
    Architecture,
    /// The chip was measured.
    Accelerator,
    /// The chip was measured with the engine.
    Engine,
}

impl Evidence {
    /// Every depth, from the shallowest to the deepest.
    pub const ALL: [Evidence; 5] = [
        Evidence::Nothing,
        Evidence::Family,
        Evidence::Architecture,
        Evidence::Accelerator,
        Evidence::Engine,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarter of a step has the width 2 and the rest 1.2: 1.2 + 0.8 / 4 = 1.4; no step and a whole step have the widths 1.2 and 2.
    #[test]
    fn a_width_is_weighed_by_the_part_of_a_step() {
        let widths = |width: f64| Widths { ttft: width, tpot: width, e2e: width, throughput: width };
        for (part, expected) in [(0.0, 1.2), (0.25, 1.4), (1.0, 2.0)] {
            let mixed = widths(1.2).mixed(widths(2.0), part).all();
            assert!(mixed.into_iter().all(|width| (width - expected).abs() < 1e-12), "{mixed:?}");
        }
    }

    /// An interval of width 2 ends at 1/2 and 2, at ∓z90; half of z90 is 2^0.5.
    #[test]
    fn deviates_of_a_width() {
        for (z, value) in [(-Z90, 0.5), (0.0, 1.0), (Z90 / 2.0, 2f64.sqrt()), (Z90, 2.0)] {
            assert!((at_deviate(2.0, z) - value).abs() < 1e-12, "{z}");
        }
        assert_eq!(ends(2.0), [0.5, 2.0]);
    }
}
