//! Latencies as cumulative shares of the requests, as the page draws them.

use roofcast::fleet::results::Sample;
use serde::Serialize;

/// Shares that a curve is drawn through.
const SHARES: usize = 200;

/// A latency as cumulative shares.
#[derive(Serialize)]
pub(crate) struct Curve {
    metric: &'static str,
    ms: Vec<f64>,
    shares: Vec<f64>,
}

impl Curve {
    pub(crate) fn of(metric: &'static str, sample: &Sample) -> Curve {
        let (ms, shares) = sample.shares(SHARES).into_iter().unzip();
        Curve { metric, ms, shares }
    }
}
