//! Kinds of measurements, and the metrics that they report.
//!
//! Knows: names, load classes and the definitions of a mean TPOT. Knows nothing about single rows.

use roofcast_cost::coefficients::Load;
use serde::Serialize;

/// Kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MeasurementKind {
    /// Time of one decode step.
    DecodeStep,
    /// Time to the first token of one prompt.
    Prefill,
    /// Time to the first tokens of one batch of prompts.
    PrefillBatch,
    /// Prefill time and mean step time of one batch.
    StaticBatchPhases,
    /// End-to-end time of one batch.
    OfflineStaticBatch,
    /// Closed loop: a fixed number of requests is always in flight.
    ClosedLoop,
    /// Open loop: requests arrive at a given rate.
    OpenLoop,
    /// Maximum throughput, with all requests queued at the beginning.
    OfflineMaxThroughput,
    /// Burst: all requests are sent at one time.
    BurstAllAtOnce,
    /// Closed loop over disaggregated pools, one for prefill and one for decode.
    Disaggregated,
}

pub(super) const KINDS: [(&str, MeasurementKind); 10] = [
    ("decode_step", MeasurementKind::DecodeStep),
    ("prefill", MeasurementKind::Prefill),
    ("prefill_batch", MeasurementKind::PrefillBatch),
    ("static_batch_phases", MeasurementKind::StaticBatchPhases),
    ("offline_static_batch", MeasurementKind::OfflineStaticBatch),
    ("closed_loop", MeasurementKind::ClosedLoop),
    ("open_loop", MeasurementKind::OpenLoop),
    ("offline_max_throughput", MeasurementKind::OfflineMaxThroughput),
    ("burst_all_at_once", MeasurementKind::BurstAllAtOnce),
    ("disaggregated", MeasurementKind::Disaggregated),
];

impl MeasurementKind {
    /// Name of the kind in the CSV.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, k)| *k == self).map_or("", |(name, _)| name)
    }

    /// Class of load; errors of forecasts differ by class.
    pub fn load(self) -> Load {
        match self {
            MeasurementKind::DecodeStep | MeasurementKind::StaticBatchPhases => Load::Step,
            MeasurementKind::Prefill | MeasurementKind::PrefillBatch => Load::Prompt,
            MeasurementKind::ClosedLoop => Load::ClosedLoop,
            MeasurementKind::OpenLoop => Load::OpenLoop,
            MeasurementKind::Disaggregated => Load::Disaggregated,
            MeasurementKind::OfflineStaticBatch
            | MeasurementKind::OfflineMaxThroughput
            | MeasurementKind::BurstAllAtOnce => Load::AtOnce,
        }
    }

    /// True if the time to first token ends when all prompts of the batch are computed.
    pub(crate) fn is_static(self) -> bool {
        matches!(
            self,
            MeasurementKind::PrefillBatch
                | MeasurementKind::StaticBatchPhases
                | MeasurementKind::OfflineStaticBatch
        )
    }

    /// True if the client reached the engine through a server.
    pub(crate) fn served(self) -> bool {
        use MeasurementKind as Kind;
        matches!(self, Kind::ClosedLoop | Kind::OpenLoop | Kind::BurstAllAtOnce | Kind::Disaggregated)
    }
}

/// Metrics of a point, measured or forecast: times in ms, and tokens per second of the whole deployment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metrics {
    /// Time to first token, in ms.
    pub ttft_ms: Option<f64>,
    /// Time per output token after the first, in ms.
    pub tpot_ms: Option<f64>,
    /// End-to-end latency, in ms.
    pub e2e_ms: Option<f64>,
    /// Output tokens per second.
    pub output_tok_s: Option<f64>,
    /// Prompt and output tokens per second.
    pub total_tok_s: Option<f64>,
}

impl Metrics {
    /// Names of the metrics, in the order of [`Metrics::all`].
    pub const NAMES: [&str; 5] = ["ttft_ms", "tpot_ms", "e2e_ms", "output_tok_s", "total_tok_s"];

    /// Values of the metrics, in the order of [`Metrics::NAMES`].
    pub fn all(&self) -> [Option<f64>; 5] {
        [self.ttft_ms, self.tpot_ms, self.e2e_ms, self.output_tok_s, self.total_tok_s]
    }
}

/// Items that have equal weight in the mean TPOT of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TpotMean {
    /// Requests: the mean of every request's time per output token.
    #[default]
    Requests,
    /// Gaps between tokens: a request counts as often as it has tokens after its first.
    Tokens,
}
