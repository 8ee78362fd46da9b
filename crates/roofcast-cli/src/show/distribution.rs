//! Latencies as cumulative distributions over the requests, for the page's charts.

use roofcast::fleet::results::Sample;
use serde::Serialize;

/// Number of points of a distribution, at evenly spaced fractions of the requests.
const SHARES: usize = 200;

/// The cumulative distribution of one latency.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Distribution {
    metric: &'static str,
    ms: Vec<f64>,
    shares: Vec<f64>,
}

impl Distribution {
    pub(crate) fn of(metric: &'static str, sample: &Sample) -> Distribution {
        let (ms, shares) = sample.shares(SHARES).into_iter().unzip();
        Distribution { metric, ms, shares }
    }
}
