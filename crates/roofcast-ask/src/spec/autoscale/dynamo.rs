//! `[fleet.autoscale.dynamo]`: settings of NVIDIA Dynamo's planner.
//!
//! Knows: names, defaults and ranges of the planner's keys for aggregated workers (Dynamo 1.6.1,
//! `dynamo/planner/config`). Knows nothing about how the planner decides.

use super::{refuse, span};
use crate::spec::keys::about;
use roofcast_facts::error::Result;
use serde::Deserialize;

/// Aims of the planner (`optimization_target`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DynamoTarget {
    /// A replica more above 100 % of a KV cache, one fewer below 60 %.
    #[default]
    Throughput,
    /// A replica more above 40 % of a KV cache, one fewer below 10 %.
    Latency,
    /// Thresholds of `decode_scale_up_kv_rate` and `decode_scale_down_kv_rate`.
    Load,
    /// Predicted requests a second over those that a replica sustains.
    Sla,
}

/// Predictors of the next interval's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadPredictor {
    /// The last interval's.
    Constant,
    /// A Kalman filter of level and trend.
    Kalman,
    /// An ARIMA model that a search selects: the planner's default.
    Arima,
    /// Prophet.
    Prophet,
}

roofcast_facts::named! { LoadPredictor {
    Constant: "constant",
    Kalman: "kalman",
    Arima: "arima",
    Prophet: "prophet",
} }

/// `[fleet.autoscale.dynamo]`: NVIDIA Dynamo's planner for aggregated workers.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DynamoSpec {
    #[doc = about!("fleet.autoscale.dynamo.optimization_target")]
    pub optimization_target: DynamoTarget,
    #[doc = about!("fleet.autoscale.dynamo.load_adjustment_interval_seconds")]
    pub load_adjustment_interval_seconds: f64,
    #[doc = about!("fleet.autoscale.dynamo.decode_scale_up_kv_rate")]
    pub decode_scale_up_kv_rate: Option<f64>,
    #[doc = about!("fleet.autoscale.dynamo.decode_scale_down_kv_rate")]
    pub decode_scale_down_kv_rate: Option<f64>,
    #[doc = about!("fleet.autoscale.dynamo.throughput_adjustment_interval_seconds")]
    pub throughput_adjustment_interval_seconds: f64,
    #[doc = about!("fleet.autoscale.dynamo.max_throughput_scaling_replicas")]
    pub max_throughput_scaling_replicas: u64,
    #[doc = about!("fleet.autoscale.dynamo.engine_rps")]
    pub engine_rps: Option<f64>,
    #[doc = about!("fleet.autoscale.dynamo.load_predictor")]
    pub load_predictor: Option<LoadPredictor>,
    #[doc = about!("fleet.autoscale.dynamo.kalman_q_level")]
    pub kalman_q_level: f64,
    #[doc = about!("fleet.autoscale.dynamo.kalman_q_trend")]
    pub kalman_q_trend: f64,
    #[doc = about!("fleet.autoscale.dynamo.kalman_r")]
    pub kalman_r: f64,
    #[doc = about!("fleet.autoscale.dynamo.kalman_min_points")]
    pub kalman_min_points: u64,
}

impl Default for DynamoSpec {
    /// Defaults of Dynamo 1.6.1 (`dynamo/planner/config/defaults.py`).
    fn default() -> DynamoSpec {
        DynamoSpec {
            optimization_target: DynamoTarget::Throughput,
            load_adjustment_interval_seconds: 5.0,
            decode_scale_up_kv_rate: None,
            decode_scale_down_kv_rate: None,
            throughput_adjustment_interval_seconds: 180.0,
            max_throughput_scaling_replicas: 8,
            engine_rps: None,
            load_predictor: None,
            kalman_q_level: 1.0,
            kalman_q_trend: 0.1,
            kalman_r: 10.0,
            kalman_min_points: 5,
        }
    }
}

impl DynamoSpec {
    /// Refuses values that are out of range, and an aim without the keys that it needs.
    pub(super) fn check(&self, place: &str) -> Result<()> {
        let intervals = [
            ("dynamo.load_adjustment_interval_seconds", self.load_adjustment_interval_seconds),
            ("dynamo.throughput_adjustment_interval_seconds", self.throughput_adjustment_interval_seconds),
        ];
        for (key, seconds) in intervals {
            span(place, key, seconds)?;
            if seconds < 0.1 {
                return refuse(place, key, seconds, "at least 0.1 seconds");
            }
        }
        let noises = [
            ("dynamo.kalman_q_level", self.kalman_q_level),
            ("dynamo.kalman_q_trend", self.kalman_q_trend),
            ("dynamo.kalman_r", self.kalman_r),
        ];
        for (key, noise) in noises {
            if !(1e-9..=1e12).contains(&noise) {
                return refuse(place, key, noise, "a variance from 10^-9 to 10^12");
            }
        }
        if let Some(rate) = self.engine_rps.filter(|rate| !(1e-6..=1e9).contains(rate)) {
            return refuse(place, "dynamo.engine_rps", rate, "10^-6 to 10^9 requests a second");
        }
        self.check_readers(place)?;
        self.check_target(place)
    }

    /// Refuses keys that the planner does not read with its aim. A number that is the default counts as omitted.
    fn check_readers(&self, place: &str) -> Result<()> {
        let unset = DynamoSpec::default();
        let changed = |value: f64, default: f64| (value != default).then_some(value);
        let by_load = changed(self.load_adjustment_interval_seconds, unset.load_adjustment_interval_seconds);
        let interval = self.throughput_adjustment_interval_seconds;
        let by_rate = changed(interval, unset.throughput_adjustment_interval_seconds);
        let step = self.max_throughput_scaling_replicas;
        let kalman = [
            ("kalman_q_level", changed(self.kalman_q_level, unset.kalman_q_level)),
            ("kalman_q_trend", changed(self.kalman_q_trend, unset.kalman_q_trend)),
            ("kalman_r", changed(self.kalman_r, unset.kalman_r)),
            ("kalman_min_points", changed(self.kalman_min_points as f64, unset.kalman_min_points as f64)),
        ];
        let target = self.optimization_target;
        let load = (target == DynamoTarget::Load, "with optimization_target = \"load\"");
        let no_sla = (target != DynamoTarget::Sla, "with another optimization_target than \"sla\"");
        let sla = (target == DynamoTarget::Sla, "with optimization_target = \"sla\"");
        let filter = (
            sla.0 && self.load_predictor == Some(LoadPredictor::Kalman),
            "with optimization_target = \"sla\" and load_predictor = \"kalman\"",
        );
        let keys = [
            ("decode_scale_up_kv_rate", self.decode_scale_up_kv_rate, load),
            ("decode_scale_down_kv_rate", self.decode_scale_down_kv_rate, load),
            ("load_adjustment_interval_seconds", by_load, no_sla),
            ("throughput_adjustment_interval_seconds", by_rate, sla),
            (
                "max_throughput_scaling_replicas",
                changed(step as f64, unset.max_throughput_scaling_replicas as f64),
                sla,
            ),
            ("engine_rps", self.engine_rps, sla),
        ];
        let named = self.load_predictor.map(LoadPredictor::name);
        let numbers = keys.into_iter().chain(kalman.map(|(key, value)| (key, value, filter)));
        let written = numbers.map(|(key, value, reader)| (key, value.map(|value| value.to_string()), reader));
        let written = written.chain([("load_predictor", named.map(str::to_owned), sla)]);
        for (key, value, (is_read, accepted)) in written {
            if let Some(value) = value.filter(|_| !is_read) {
                return refuse(place, &format!("dynamo.{key}"), value, format!("only {accepted}"));
            }
        }
        Ok(())
    }

    fn check_target(&self, place: &str) -> Result<()> {
        match self.optimization_target {
            DynamoTarget::Throughput | DynamoTarget::Latency => Ok(()),
            DynamoTarget::Load => {
                let rates = [
                    ("dynamo.decode_scale_up_kv_rate", self.decode_scale_up_kv_rate),
                    ("dynamo.decode_scale_down_kv_rate", self.decode_scale_down_kv_rate),
                ];
                let mut given = Vec::new();
                for (key, rate) in rates {
                    let accepted = "0 to 100 per cent of the KV cache, with optimization_target \"load\"";
                    match rate {
                        Some(rate) if (0.0..=100.0).contains(&rate) => given.push(rate),
                        Some(rate) => return refuse(place, key, rate, accepted),
                        None => return refuse(place, key, "missing", accepted),
                    }
                }
                if given[0] > given[1] {
                    return Ok(());
                }
                refuse(place, rates[0].0, given[0], format!("above decode_scale_down_kv_rate, {}", given[1]))
            }
            DynamoTarget::Sla => {
                if self.engine_rps.is_none() {
                    let accepted = "requests a second that a replica sustains within the SLO (roofcast plan finds \
                                    them), in place of the planner's own model of the engine";
                    return refuse(place, "dynamo.engine_rps", "missing", accepted);
                }
                match self.load_predictor {
                    Some(LoadPredictor::Constant | LoadPredictor::Kalman) => Ok(()),
                    other => {
                        let accepted = "constant or kalman; arima (the planner's default) and prophet are fitted by \
                                        searches of pmdarima and Prophet, which are not reproduced";
                        let named = other.map_or("missing", LoadPredictor::name);
                        refuse(place, "dynamo.load_predictor", named, accepted)
                    }
                }
            }
        }
    }
}
