//! Bands of a forecast: the intervals around its means, with the widths of its calibration.
//!
//! Knows: the band of each metric, the class of a load, and that no band extends below a limit. `calibrate` derives the
//! widths.

use crate::coefficients::{Band, Coefficients, Evidence, Load, ends};
use roofcast_ask::spec::CostKind;
use roofcast_ask::workload::{Arrivals, Workload};
use serde::Serialize;

/// Bands of a forecast: each contains the forecast, and the measured value in eight cases of ten.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bands {
    /// Depth of evidence: how much of the deployment has been measured.
    pub evidence: Evidence,
    /// Sentence that names the measurements behind the forecast.
    pub rests_on: String,
    /// Class of the measured loads whose errors the bands have: `closed_loop` for users, `open_loop` for requests at a
    /// rate, `at_once` for requests that all arrive at one time, `prompt` for prompts without further tokens,
    /// `disaggregated` for pools.
    pub load: Load,
    /// Mean time to first token, in ms.
    pub ttft_ms: Span,
    /// Mean time per output token, in ms; `None` if no request has two tokens.
    pub tpot_ms: Option<Span>,
    /// Mean end-to-end latency, in ms.
    pub e2el_ms: Span,
    /// Output tokens per second; `None` if the load fixes the throughput.
    pub output_tok_s: Option<Span>,
}

/// 10th and 90th percentile of one metric, around its forecast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Span {
    /// 10th and 90th percentile of the ratio measured / forecast.
    pub factors: [f64; 2],
    /// The forecast times `factors`, widened by the sampling error of a simulation, in the metric's unit.
    pub range: [f64; 2],
}

/// Means of a forecast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecastMeans {
    /// Mean time to first token, in ms.
    pub ttft_ms: f64,
    /// Mean time per output token, in ms; `None` if no request has two tokens.
    pub tpot_ms: Option<f64>,
    /// Lower bound (roofline) of the mean time per output token, in ms.
    pub limit_tpot_ms: f64,
    /// Mean end-to-end latency, in ms.
    pub e2el_ms: f64,
    /// Output tokens per second; `None` if the load fixes the throughput.
    pub output_tok_s: Option<f64>,
    /// Class of the load.
    pub load: Load,
}

/// Class of the load that `workload` is, if it has `requests` requests. A load that arrives over time is an open loop;
/// users who all have one request send everything at one time.
pub fn class(workload: &Workload, requests: u64) -> Load {
    let arrives = &workload.arrivals;
    if workload.output_mean() <= 1.0 {
        return Load::Prompt;
    }
    match arrives {
        Arrivals::ClosedLoop { concurrency, .. } if *concurrency < requests => Load::ClosedLoop,
        Arrivals::ClosedLoop { .. } | Arrivals::Offline | Arrivals::Burst { every_s: None, .. } => {
            Load::AtOnce
        }
        // A client that waits for answers does not send at the offered rate.
        _ if workload.max_concurrency.is_some() => Load::ClosedLoop,
        _ => Load::OpenLoop,
    }
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
            tpot_ms: self.tpot_ms.zip(others.tpot_ms).map(|(a, b)| both(a, b)),
            e2el_ms: both(self.e2el_ms, others.e2el_ms),
            output_tok_s: self.output_tok_s.zip(others.output_tok_s).map(|(a, b)| both(a, b)),
        }
    }

    /// Returns the bands with ranges that also contain sampling errors of the means, shares of the means of TTFT, TPOT and E2EL: of
    /// two independent errors the widths add as squares, as logarithms. Factors stay those of step times.
    pub fn widened(self, [ttft, tpot, e2el]: [f64; 3]) -> Bands {
        let wider = |span: Span, error: f64| {
            let mean = span.range[1] / span.factors[1];
            let out = |end: f64| (end / mean).ln().hypot(error.ln_1p()).exp();
            let [low, high] = span.range;
            // An end at the limit stays there.
            let at_limit = low > mean * span.factors[0] * (1.0 + 1e-9);
            let lower = if at_limit { low } else { mean / out(low) };
            Span { range: [lower, mean * out(high)], ..span }
        };
        let wider = |span: Span, error: f64| if error > 0.0 { wider(span, error) } else { span };
        Bands {
            ttft_ms: wider(self.ttft_ms, ttft),
            tpot_ms: self.tpot_ms.map(|span| wider(span, tpot)),
            e2el_ms: wider(self.e2el_ms, e2el),
            ..self
        }
    }

    fn around(means: &ForecastMeans, band: &Band, rests_on: &str) -> Bands {
        let span =
            |mean: f64, width: f64| Span { factors: ends(width), range: ends(width).map(|f| f * mean) };
        let widths = band.widths(means.load);
        // The mean TPOT of a run may be below the limit of its mean step, and the band must contain it.
        let above = |mean: f64| {
            let Span { factors, range } = span(mean, widths.tpot);
            Span { factors, range: range.map(|ms| ms.max(means.limit_tpot_ms.min(mean))) }
        };
        Bands {
            evidence: band.evidence,
            rests_on: rests_on.to_owned(),
            load: means.load,
            ttft_ms: span(means.ttft_ms, widths.ttft),
            tpot_ms: means.tpot_ms.map(above),
            e2el_ms: span(means.e2el_ms, widths.e2e),
            output_tok_s: means.output_tok_s.map(|rate| span(rate, widths.throughput)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coefficients::Widths;

    #[test]
    fn means_are_at_the_centre_and_no_step_is_below_its_limit() {
        let closed_loop = Widths { ttft: 2.0, tpot: 1.25, e2e: 1.5, throughput: 1.6 };
        let open_loop = Widths { ttft: 4.0, ..closed_loop };
        let band = Band {
            evidence: Evidence::Engine,
            step: closed_loop,
            prompt: closed_loop,
            closed_loop,
            at_once: closed_loop,
            open_loop,
            disaggregated: closed_loop,
        };
        let means = ForecastMeans {
            ttft_ms: 40.0,
            tpot_ms: Some(8.0),
            limit_tpot_ms: 7.0,
            e2el_ms: 300.0,
            output_tok_s: Some(80.0),
            load: Load::ClosedLoop,
        };
        let bands = Bands::around(&means, &band, "vllm on h100-sxm");
        // 40 / 2 and 40 · 2; 8 / 1.25 = 6.4 is below the limit of 7, 8 · 1.25 = 10; 300 / 1.5 and 300 · 1.5; 80 / 1.6
        // and 80 · 1.6.
        assert_eq!(bands.ttft_ms.range, [20.0, 80.0]);
        assert_eq!(bands.tpot_ms, Some(Span { factors: [0.8, 1.25], range: [7.0, 10.0] }));
        assert_eq!(Bands::around(&ForecastMeans { tpot_ms: None, ..means }, &band, "").tpot_ms, None);
        let near = |range: [f64; 2], low: f64, high: f64| {
            assert!((range[0] - low).abs() < 1e-9 && (range[1] - high).abs() < 1e-9, "{range:?}");
        };
        near(bands.e2el_ms.range, 200.0, 450.0);
        near(bands.output_tok_s.unwrap().range, 50.0, 128.0);
        assert_eq!(
            Bands::around(&ForecastMeans { output_tok_s: None, ..means }, &band, "").output_tok_s,
            None
        );
        // A limit is a bound and has no band.
        let measured = Coefficients { band: Some(band), ..Coefficients::ideal(1.0, 1.0) };
        assert_eq!(Bands::of(&measured, CostKind::Limit, &means), None);
        assert_eq!(Bands::of(&measured, CostKind::Forecast, &means).unwrap().ttft_ms, bands.ttft_ms);
        // An open loop has separate widths: 40 / 4 and 40 · 4.
        let open = Bands::around(&ForecastMeans { load: Load::OpenLoop, ..means }, &band, "");
        assert_eq!((open.ttft_ms.range, open.load), ([10.0, 160.0], Load::OpenLoop));
    }

    /// 40 ms of x0.5 to x2 and a sampling error of a tenth: √(ln² 2 + ln² 1.1) = 0.69967, whose exponential is 2.01309.
    #[test]
    fn a_sampling_error_widens_a_range() {
        let span = Span { factors: [0.5, 2.0], range: [20.0, 80.0] };
        let bands = Bands {
            evidence: Evidence::Engine,
            rests_on: String::new(),
            load: Load::OpenLoop,
            ttft_ms: span,
            tpot_ms: None,
            e2el_ms: span,
            output_tok_s: None,
        };
        let wider = bands.widened([0.1, 0.0, 0.0]);
        let [low, high] = wider.ttft_ms.range;
        assert!((high - 80.5236).abs() < 1e-3 && (low - 40.0 / 2.013_09).abs() < 1e-3, "{low} {high}");
        assert_eq!((wider.ttft_ms.factors, wider.e2el_ms), (span.factors, span));
    }

    /// One token of output is a prompt alone. Four users with eight requests follow one another, with four they send all at
    /// once; a bound on requests in flight makes a rate wait for answers.
    #[test]
    fn classes_of_loads() {
        let class = |keys: &str| {
            let text = format!("[workload]\nrequests = 8\ninput_len = 10\n{keys}\n");
            let spec = roofcast_ask::spec::Spec::parse("spec.toml", &text).unwrap();
            class(&spec.workload.unwrap(), 8)
        };
        let users = |count: u64| {
            class(&format!("output_len = 2\narrivals = {{ kind = \"closed_loop\", concurrency = {count} }}"))
        };
        assert_eq!([4, 8].map(users), [Load::ClosedLoop, Load::AtOnce]);
        let rate = "arrivals = { kind = \"poisson\", rate = 2.0 }";
        assert_eq!(class(&format!("output_len = 1\n{rate}")), Load::Prompt);
        assert_eq!(class(&format!("output_len = 2\n{rate}")), Load::OpenLoop);
        assert_eq!(class(&format!("output_len = 2\nmax_concurrency = 4\n{rate}")), Load::ClosedLoop);
    }

    /// Two kinds of accelerators serve parts of the requests: 20 to 80 ms and 30 to 120 are 20 to 120, the widths of 2 and
    /// of 2 stay; a TPOT of 6.4 to 10 and one of 8 / 1.6 to 8 · 1.6 are 5 to 12.8. Evidence is the weaker one's.
    #[test]
    fn a_second_kind_of_accelerator_widens_the_band() {
        let widths = |tpot: f64| Widths { ttft: 2.0, tpot, e2e: 1.5, throughput: 1.6 };
        let bands = |ttft_ms: f64, tpot: f64, evidence: Evidence, name: &str| {
            let all = widths(tpot);
            let band = Band {
                evidence,
                step: all,
                prompt: all,
                closed_loop: all,
                at_once: all,
                open_loop: all,
                disaggregated: all,
            };
            let means = ForecastMeans {
                ttft_ms,
                tpot_ms: Some(8.0),
                limit_tpot_ms: 1.0,
                e2el_ms: 300.0,
                output_tok_s: Some(80.0),
                load: Load::ClosedLoop,
            };
            Bands::around(&means, &band, name)
        };
        let serving_bands = bands(40.0, 1.25, Evidence::Engine, "h100");
        let beside = bands(60.0, 1.6, Evidence::Nothing, "l4");
        for (both, names) in [
            (serving_bands.clone().with_beside(beside.clone()), "h100; beside: l4"),
            (beside.with_beside(serving_bands), "l4; beside: h100"),
        ] {
            assert_eq!((both.ttft_ms.range, both.ttft_ms.factors), ([20.0, 120.0], [0.5, 2.0]));
            assert_eq!(both.tpot_ms, Some(Span { factors: [0.625, 1.6], range: [5.0, 12.8] }));
            assert_eq!((both.evidence, both.rests_on.as_str()), (Evidence::Nothing, names));
        }
        // In disaggregated serving the first token is the prompts' and the rest the decodes'; the weaker evidence counts.
        let (decodes, prompts) =
            (bands(40.0, 1.25, Evidence::Engine, "h100"), bands(60.0, 1.6, Evidence::Nothing, "l4"));
        for (both, ttft, tpot, names) in [
            (decodes.clone().with_prompts(prompts.clone()), 30.0, 6.4, "prompts: l4; decodes: h100"),
            (prompts.with_prompts(decodes), 20.0, 5.0, "prompts: h100; decodes: l4"),
        ] {
            assert_eq!((both.ttft_ms.range[0], both.tpot_ms.unwrap().range[0]), (ttft, tpot));
            assert_eq!((both.evidence, both.rests_on.as_str()), (Evidence::Nothing, names));
        }
    }
}
