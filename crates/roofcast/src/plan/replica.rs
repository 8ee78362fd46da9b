//! One replica in steady state: what a number of requests in flight does to latency and rate.

use super::Times;
use crate::batch::Batch;
use crate::cost::{Bound, Cost, Utilization, cost};
use crate::forecaster::Forecaster;
use crate::memory;
use crate::spec::{CostKind, Slo};
use crate::workload::Workload;

/// A replica under a workload's means.
pub(super) struct Replica<'a> {
    pub(super) forecaster: &'a Forecaster,
    price: CostKind,
    /// Generated tokens.
    output: f64,
    /// Context of a request halfway through its output.
    context: u64,
    /// (c_a² + c_s²)/2 of Kingman's formula.
    variability: f64,
    prefill: Cost,
    /// Requests of full length that memory and the engine hold.
    pub(super) max_batch: u64,
}

/// A replica with `batch` requests in flight.
pub(super) struct Load {
    pub(super) batch: u64,
    pub(super) tpot_ms: f64,
    pub(super) ttft_ms: f64,
    pub(super) ttft_p99_ms: f64,
    pub(super) e2el_ms: f64,
    pub(super) requests_per_s: f64,
    pub(super) prefill_per_decode: f64,
    pub(super) bound: Bound,
}

impl<'a> Replica<'a> {
    pub(super) fn new(forecaster: &'a Forecaster, workload: &Workload, price: CostKind) -> Replica<'a> {
        let deployment = &forecaster.deployment;
        let input = workload.input_mean().round() as u64;
        let output = workload.output_mean();
        let full = input + output.round() as u64;
        let too_long = deployment.longest().is_some_and(|most| full > most);
        let held = if too_long { 0 } else { memory::sequences(deployment, full) };
        Replica {
            forecaster,
            price,
            output,
            context: input + (output / 2.0).round() as u64,
            variability: (workload.arrivals.cv2() + workload.input_cv2()) / 2.0,
            prefill: cost(forecaster, &Batch::prefill(1, input), Utilization::FULL),
            max_batch: held.min(deployment.engine.max_num_seqs),
        }
    }

    fn decode(&self, batch: u64) -> Cost {
        cost(self.forecaster, &Batch::decode(batch, self.context), Utilization::FULL)
    }

    /// TPOT with the share of prefills in it, and one prompt alone.
    pub(super) fn times(&self, batch: u64, price: CostKind) -> Times {
        let prefill_ms = ms(&self.prefill, price);
        Times {
            tpot_ms: ms(&self.decode(batch), price) + batch as f64 / self.output * prefill_ms,
            prefill_ms,
        }
    }

    /// The replica with `batch` in flight, at the rate that this sustains.
    pub(super) fn at(&self, batch: u64) -> Load {
        let decode = self.decode(batch);
        let step_ms = ms(&decode, self.price);
        let Times { tpot_ms, prefill_ms } = self.times(batch, self.price);
        let requests_per_s = batch as f64 / (self.output * tpot_ms) * 1e3;
        let busy = (requests_per_s * prefill_ms / 1e3).min(0.999);
        let wait_ms = busy / (1.0 - busy) * self.variability * prefill_ms;
        let ttft_ms = prefill_ms + step_ms + wait_ms;
        let decode_rate = batch as f64 / (self.output * step_ms) * 1e3;
        Load {
            batch,
            tpot_ms,
            ttft_ms,
            ttft_p99_ms: prefill_ms + step_ms + wait_ms * 100_f64.ln(),
            e2el_ms: ttft_ms + (self.output - 1.0).max(0.0) * tpot_ms,
            requests_per_s,
            prefill_per_decode: decode_rate * prefill_ms / 1e3,
            bound: decode.bound,
        }
    }

    /// The replica with the fewest requests in flight that sustain `rate`; none if even a full one does not.
    pub(super) fn under(&self, rate: f64) -> Option<Load> {
        self.first(|load| load.requests_per_s >= rate)
    }

    /// The replica at the highest rate that keeps `slo`: latencies and rate grow with the requests in flight.
    pub(super) fn highest(&self, slo: Slo) -> Option<Load> {
        let keeps = |batch: u64| self.at(batch).keeps(slo);
        if !keeps(1) {
            return None;
        }
        let (mut below, mut above) = (1, self.max_batch + 1);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if keeps(middle) { below = middle } else { above = middle }
        }
        Some(self.at(below))
    }

    fn first(&self, enough: impl Fn(&Load) -> bool) -> Option<Load> {
        if !enough(&self.at(self.max_batch)) {
            return None;
        }
        let (mut below, mut above) = (0, self.max_batch);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if enough(&self.at(middle)) { above = middle } else { below = middle }
        }
        Some(self.at(above))
    }
}

fn ms(cost: &Cost, price: CostKind) -> f64 {
    match price {
        CostKind::Limit => cost.limit_with_communication.ms(),
        CostKind::Forecast => cost.forecast.ms(),
    }
}
