//! Bands of a forecast: the forecast's means times the factors of its calibration's bands.
//!
//! Knows: the band of each metric, and that no band extends below a limit. `calibrate` computes the factors.

use crate::coefficients::{Band, Coefficients, Evidence, Load};
use roofcast_ask::spec::CostKind;
use serde::Serialize;

/// Bands of a forecast: each contains the measured value in eight cases of ten.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bands {
    /// Depth of evidence: how much of the deployment has been measured.
    pub evidence: Evidence,
    /// Sentence that names the measurements behind the forecast.
    pub rests_on: String,
    /// Class of the measured loads whose errors the bands have: `open_loop` for requests at a rate, `closed_loop` for
    /// users, and for a rate where no rates were measured.
    pub load: &'static str,
    /// Mean time to first token, in ms.
    pub ttft_ms: Span,
    /// Mean time per output token, in ms.
    pub tpot_ms: Span,
    /// Mean end-to-end latency, in ms.
    pub e2el_ms: Span,
    /// Output tokens per second; `None` if the load fixes the throughput.
    pub output_tok_s: Option<Span>,
}

/// 10th and 90th percentile of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Span {
    /// 10th and 90th percentile of the ratio measured / forecast.
    pub factors: [f64; 2],
    /// The forecast times `factors`, in the metric's unit.
    pub range: [f64; 2],
}

/// Means of a forecast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastMeans {
    /// Mean time to first token, in ms.
    pub ttft_ms: f64,
    /// Mean time per output token, in ms.
    pub tpot_ms: f64,
    /// Lower bound (roofline) of the mean time per output token, in ms.
    pub limit_tpot_ms: f64,
    /// Mean end-to-end latency, in ms.
    pub e2el_ms: f64,
    /// Output tokens per second; `None` if the load fixes the throughput.
    pub output_tok_s: Option<f64>,
    /// True if requests arrived at a given rate, whether or not earlier ones had ended (an open loop).
    pub open_loop: bool,
}

impl Bands {
    /// Returns the bands of a forecast made with `coefficients`; `None` if steps are priced at their limit, which is
    /// a bound and no forecast.
    pub fn of(coefficients: &Coefficients, cost: CostKind, means: &ForecastMeans) -> Option<Bands> {
        let band = coefficients.band.filter(|_| cost == CostKind::Forecast)?;
        Some(Bands::around(means, &band, &coefficients.name))
    }

    /// Returns bands of disaggregated serving: times of decodes from `self`, the time to first token from `prompts`,
    /// the bands of the accelerator that computes prompts.
    pub fn with_prompts(self, prompts: Bands) -> Bands {
        Bands {
            evidence: self.evidence.min(prompts.evidence),
            rests_on: format!("prompts: {}; decodes: {}", prompts.rests_on, self.rests_on),
            ttft_ms: prompts.ttft_ms,
            ..self
        }
    }

    /// Returns bands that cover both `self` and `others`, the bands of a second kind of accelerator that serves some
    /// of the requests: from the lower minimum to the higher maximum.
    pub fn with_beside(self, others: Bands) -> Bands {
        let both = |a: Span, b: Span| {
            let widest = |a: [f64; 2], b: [f64; 2]| [a[0].min(b[0]), a[1].max(b[1])];
            Span { factors: widest(a.factors, b.factors), range: widest(a.range, b.range) }
        };
        Bands {
            evidence: self.evidence.min(others.evidence),
            rests_on: format!("{}; beside: {}", self.rests_on, others.rests_on),
            load: self.load,
            ttft_ms: both(self.ttft_ms, others.ttft_ms),
            tpot_ms: both(self.tpot_ms, others.tpot_ms),
            e2el_ms: both(self.e2el_ms, others.e2el_ms),
            output_tok_s: self.output_tok_s.zip(others.output_tok_s).map(|(a, b)| both(a, b)),
        }
    }

    fn around(means: &ForecastMeans, band: &Band, rests_on: &str) -> Bands {
        let span = |mean: f64, factors: [f64; 2]| Span { factors, range: factors.map(|f| f * mean) };
        let open = means.open_loop && band.open_loop.is_some();
        let factors = band.factors(if open { Load::Open } else { Load::Closed });
        let mut tpot_ms = span(means.tpot_ms, factors.tpot);
        // The mean TPOT of a run may be below the limit of its mean step, and the band must contain it.
        let least = means.limit_tpot_ms.min(means.tpot_ms);
        tpot_ms.range = tpot_ms.range.map(|ms| ms.max(least));
        Bands {
            evidence: band.evidence,
            rests_on: rests_on.to_owned(),
            load: if open { "open_loop" } else { "closed_loop" },
            ttft_ms: span(means.ttft_ms, factors.ttft),
            tpot_ms,
            e2el_ms: span(means.e2el_ms, factors.e2e),
            output_tok_s: means.output_tok_s.map(|rate| span(rate, factors.throughput)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::Factors;

    #[test]
    fn means_are_scaled_and_no_step_is_below_its_limit() {
        let band = Band {
            evidence: Evidence::Engine,
            ttft: [0.5, 2.0],
            tpot: [0.75, 1.25],
            e2e: [0.9, 1.5],
            throughput: [0.8, 1.1],
            step: None,
            open_loop: None,
        };
        let means = ForecastMeans {
            ttft_ms: 40.0,
            tpot_ms: 8.0,
            limit_tpot_ms: 7.0,
            e2el_ms: 200.0,
            output_tok_s: Some(50.0),
            open_loop: true,
        };
        let bands = Bands::around(&means, &band, "vllm on h100-sxm");
        // 40 · (0.5, 2); 8 · 0.75 = 6 is below the limit of 7, 8 · 1.25 = 10; 200 · (0.9, 1.5); 50 · (0.8, 1.1).
        assert_eq!(bands.ttft_ms.range, [20.0, 80.0]);
        // The band has no factors of open loops.
        assert_eq!(bands.load, "closed_loop");
        assert_eq!((bands.tpot_ms.range, bands.tpot_ms.factors), ([7.0, 10.0], [0.75, 1.25]));
        assert_eq!(bands.e2el_ms.range, [180.0, 300.0]);
        let rate = bands.output_tok_s.unwrap().range;
        assert!((rate[0] - 40.0).abs() < 1e-9 && (rate[1] - 55.0).abs() < 1e-9, "{rate:?}");
        assert_eq!(
            Bands::around(&ForecastMeans { output_tok_s: None, ..means }, &band, "").output_tok_s,
            None
        );
        // An open loop has separate factors: 40 · (0.25, 4).
        let own = Factors { ttft: [0.25, 4.0], ..band.factors(Load::Closed) };
        let band = Band { open_loop: Some(own), ..band };
        let ttft = |open_loop| Bands::around(&ForecastMeans { open_loop, ..means }, &band, "").ttft_ms.range;
        assert_eq!((ttft(true), ttft(false)), ([10.0, 160.0], [20.0, 80.0]));
    }
}
