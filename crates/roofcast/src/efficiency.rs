//! What machines reach of their limits: the generic efficiency, one set of figures for every chip and engine.
//!
//! Knows: a forecast is `Σ max(bytes/(e_m BW), FLOPs/(e_c peak)) + overheads`. Calibrations per chip, operator family
//! and engine take its place where they exist.

use crate::deployment::Deployment;
use crate::operator::collective::Communication;
use crate::operator::{Batch, Family, Work};
use crate::units::{ByteRate, Bytes, FlopRate, Picoseconds};

/// One set of efficiencies and overheads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Efficiency {
    /// What it is called in reports.
    pub name: &'static str,
    /// Share of the peak in matrix products.
    pub compute: f64,
    /// Share of the bandwidth.
    pub memory: f64,
    /// Share of the peak in experts.
    pub expert_compute: f64,
    /// Per layer.
    pub layer: Picoseconds,
    /// Per layer with experts, on top.
    pub expert_layer: Picoseconds,
    /// Per all-reduce.
    pub all_reduce: Picoseconds,
    /// Per step.
    pub step: Picoseconds,
    /// Per sequence and step.
    pub sequence: Picoseconds,
    /// 10th and 90th percentile of measured over forecast.
    pub band: [f64; 2],
}

/// A forecast with its band.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The median.
    pub time: Picoseconds,
    /// 10th to 90th percentile.
    pub band: [Picoseconds; 2],
}

impl Efficiency {
    /// One set for every chip and engine. The figures are a prototype's, fitted to 2,228 public closed-loop points (vLLM,
    /// SGLang and TensorRT-LLM on H100 to B300 and MI3xx); of its two shares of the peak in dense products, 0.62 in steps
    /// and 0.75 in prefill, the latter stands here, since steps are seldom compute-bound. The band is as wide as the
    /// prototype's errors left out in turn (median 11.5 %, 90th percentile 32 % in TPOT); this formula's own errors have not
    /// been judged on data unseen.
    pub const GENERIC: Efficiency = Efficiency {
        name: "generic",
        compute: 0.75,
        memory: 0.89,
        expert_compute: 0.12,
        layer: Picoseconds(38_000_000),
        expert_layer: Picoseconds(28_000_000),
        all_reduce: Picoseconds(3_200_000),
        step: Picoseconds(456_000_000),
        sequence: Picoseconds(28_000_000),
        band: [0.75, 1.32],
    };

    /// The expected time of a forward pass; never below its limit with communication.
    pub fn forecast(
        &self,
        deployment: &Deployment,
        works: &[Work],
        batch: &Batch,
        communication: &Communication,
    ) -> Forecast {
        let bandwidth = ByteRate(deployment.bandwidth().0 * self.memory);
        let mut time = self.step + communication.total();
        let mut layers = 0;
        for work in works {
            let share = if work.family == Family::Moe { self.expert_compute } else { self.compute };
            let computing = Picoseconds::computing(work.flops, FlopRate(work.rate.0 * share));
            let moving = Picoseconds::moving(work.weight_bytes + work.kv_bytes, bandwidth);
            time += computing.max(moving) * work.layers;
            if work.family == Family::Moe {
                time += self.expert_layer * work.layers;
            }
            if work.family == Family::Attention && (work.kv_bytes > Bytes::ZERO) {
                layers += work.layers;
            }
        }
        let p = deployment.parallelism;
        let sequences = batch.sequences().div_ceil(p.replicas * p.attention_dp);
        time += self.layer * layers + self.all_reduce * communication.all_reduces + self.sequence * sequences;
        let scaled = |share: f64| Picoseconds::from_seconds(time.seconds() * share);
        Forecast { time, band: self.band.map(scaled) }
    }
}
