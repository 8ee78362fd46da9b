//! `[fleet.autoscale]`: replicas that start and stop with the load, by roofcast's own rule or by an autoscaler's.
//!
//! Knows: the keys of each rule by the autoscaler's own names, their defaults and their ranges. Knows nothing about how a
//! rule decides (`fleet::scaling` in `roofcast-sim`).

mod dynamo;

pub use dynamo::{DynamoSpec, DynamoTarget, LoadPredictor};

use super::keys::about;
use roofcast_facts::error::{Error, Result};
use serde::Deserialize;
use std::fmt::Display;

/// Most replicas with autoscaling.
pub(super) const MOST_REPLICAS: u64 = 1024;
/// Longest start-up or idle time in seconds: a day.
pub(super) const LONGEST_S: f64 = 86_400.0;

/// Rules by which replicas start and stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AutoscaleRule {
    /// Replicas start on the arrival that needs them, and stop when idle.
    #[default]
    Immediate,
    /// Kubernetes' HorizontalPodAutoscaler (autoscaling/v2), by the requests in flight of each pod.
    Hpa,
    /// KEDA: a HorizontalPodAutoscaler by the requests in flight of all pods, and scaling from and to zero.
    Keda,
    /// Ray Serve 2.60's default policy.
    RayServe,
    /// NVIDIA Dynamo 1.6's planner for aggregated workers.
    Dynamo,
}

roofcast_facts::named! { AutoscaleRule {
    Immediate: "immediate",
    Hpa: "hpa",
    Keda: "keda",
    RayServe: "ray-serve",
    Dynamo: "dynamo",
} }

impl AutoscaleRule {
    /// True if the rule reads the key `key` of `[fleet.autoscale]`, or its table of that name.
    pub fn reads(self, key: &str) -> bool {
        match key {
            "target_in_flight" | "target_ongoing_requests" => self != AutoscaleRule::Dynamo,
            "idle_s" => self == AutoscaleRule::Immediate,
            "hpa" => matches!(self, AutoscaleRule::Hpa | AutoscaleRule::Keda),
            _ => AutoscaleRule::ALL.iter().all(|rule| rule.name() != key || *rule == self),
        }
    }

    /// True if the rule can stop the last replica and start one for a request that waits.
    fn reaches_zero(self) -> bool {
        matches!(self, AutoscaleRule::Keda | AutoscaleRule::RayServe)
    }
}

/// `[fleet.autoscale]`: replicas that start and stop with the load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscaleSpec {
    #[doc = about!("fleet.autoscale.rule")]
    #[serde(default)]
    pub rule: AutoscaleRule,
    #[doc = about!("fleet.autoscale.target_in_flight")]
    #[serde(alias = "target_ongoing_requests")]
    pub target_in_flight: Option<u64>,
    #[doc = about!("fleet.autoscale.min_replicas")]
    #[serde(default = "one")]
    pub min_replicas: u64,
    #[doc = about!("fleet.autoscale.max_replicas")]
    pub max_replicas: u64,
    #[doc = about!("fleet.autoscale.startup_s")]
    pub startup_s: f64,
    #[doc = about!("fleet.autoscale.idle_s")]
    pub idle_s: Option<f64>,
    /// Settings of the HorizontalPodAutoscaler, also of the one that KEDA creates.
    pub hpa: Option<HpaSpec>,
    /// Settings of KEDA's ScaledObject.
    pub keda: Option<KedaSpec>,
    /// Settings of Ray Serve's `AutoscalingConfig`.
    #[serde(rename = "ray-serve")]
    pub ray_serve: Option<RayServeSpec>,
    /// Settings of Dynamo's planner.
    pub dynamo: Option<DynamoSpec>,
}

fn one() -> u64 {
    1
}

impl AutoscaleSpec {
    /// Refuses values that are out of range, and keys that the rule lacks.
    ///
    /// # Errors
    /// The error names the key, the value found and the accepted values.
    pub fn check(&self, place: &str) -> Result<()> {
        let fewest = u64::from(!self.rule.reaches_zero());
        let target = self.target_in_flight.unwrap_or(1);
        let counts = [
            ("target_in_flight", target, 1, 1 << 20),
            ("max_replicas", self.max_replicas, 1, MOST_REPLICAS),
            ("min_replicas", self.min_replicas, fewest, self.max_replicas),
        ];
        for (key, found, least, most) in counts {
            if !(least..=most).contains(&found) {
                return refuse(place, key, found, format!("{least} to {most}"));
            }
        }
        let needs = |key: &str, accepted: &str| refuse(place, key, "missing", accepted);
        if self.target_in_flight.is_none() && self.rule != AutoscaleRule::Dynamo {
            return needs("target_in_flight", "requests in flight that a replica should have");
        }
        if self.idle_s.is_none() && self.rule == AutoscaleRule::Immediate {
            return needs("idle_s", "seconds without a request after which a replica stops");
        }
        span(place, "startup_s", self.startup_s)?;
        self.idle_s.map_or(Ok(()), |idle| span(place, "idle_s", idle))?;
        self.check_rule(place)?;
        self.hpa.as_ref().map_or(Ok(()), |hpa| hpa.check(place))?;
        self.keda.map_or(Ok(()), |keda| keda.check(place))?;
        self.ray_serve.map_or(Ok(()), |ray_serve| ray_serve.check(place))?;
        self.dynamo.map_or(Ok(()), |dynamo| dynamo.check(place))
    }

    /// Refuses keys and tables that the rule does not read.
    fn check_rule(&self, place: &str) -> Result<()> {
        let table = |set: bool| set.then(|| "set".to_owned());
        let keys = [
            ("target_in_flight", self.target_in_flight.map(|n| n.to_string())),
            ("idle_s", self.idle_s.map(|seconds| seconds.to_string())),
            ("hpa", table(self.hpa.is_some())),
            ("keda", table(self.keda.is_some())),
            ("ray-serve", table(self.ray_serve.is_some())),
            ("dynamo", table(self.dynamo.is_some())),
        ];
        for (key, found) in keys {
            if let Some(found) = found.filter(|_| !self.rule.reads(key)) {
                let readers = AutoscaleRule::ALL.into_iter().filter(|rule| rule.reads(key));
                let readers: Vec<&str> = readers.map(AutoscaleRule::name).collect();
                let accepted = format!(
                    "omitted with rule = \"{}\", which does not read it; {} does",
                    self.rule.name(),
                    readers.join(" or ")
                );
                return refuse(place, key, found, accepted);
            }
        }
        Ok(())
    }
}

/// `[fleet.autoscale.hpa]`: Kubernetes' HorizontalPodAutoscaler.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HpaSpec {
    #[doc = about!("fleet.autoscale.hpa.sync_period_s")]
    pub sync_period_s: f64,
    #[doc = about!("fleet.autoscale.hpa.tolerance")]
    pub tolerance: f64,
    /// Rules for starts (`behavior.scaleUp`).
    pub scale_up: ScalingRulesSpec,
    /// Rules for stops (`behavior.scaleDown`).
    pub scale_down: ScalingRulesSpec,
}

impl Default for HpaSpec {
    /// Defaults of kube-controller-manager (`--horizontal-pod-autoscaler-sync-period`,
    /// `--horizontal-pod-autoscaler-tolerance`).
    fn default() -> HpaSpec {
        let rules = ScalingRulesSpec::default;
        HpaSpec { sync_period_s: 15.0, tolerance: 0.1, scale_up: rules(), scale_down: rules() }
    }
}

impl HpaSpec {
    /// Bounds on starts: at once, four pods or as many as there are within 15 s, whichever is more
    /// (`GenerateHPAScaleUpRules` in `pkg/apis/autoscaling/v2/defaults.go`).
    pub fn up(&self) -> ScalingRules {
        let pods = ScalingPolicy { kind: PolicyKind::Pods, value: 4, period_seconds: 15.0 };
        self.scale_up.resolved(0.0, vec![pods, ALL])
    }

    /// Bounds on stops: the highest recommendation of five minutes (`GenerateHPAScaleDownRules`, and
    /// `--horizontal-pod-autoscaler-downscale-stabilization`).
    pub fn down(&self) -> ScalingRules {
        self.scale_down.resolved(300.0, vec![ALL])
    }

    fn check(&self, place: &str) -> Result<()> {
        if !(0.1..=3600.0).contains(&self.sync_period_s) {
            return refuse(place, "hpa.sync_period_s", self.sync_period_s, "0.1 to 3600 seconds");
        }
        if !(0.0..1.0).contains(&self.tolerance) {
            return refuse(place, "hpa.tolerance", self.tolerance, "0 to below 1");
        }
        self.scale_up.check(place, "hpa.scale_up")?;
        self.scale_down.check(place, "hpa.scale_down")
    }
}

/// Every replica within 15 s.
const ALL: ScalingPolicy = ScalingPolicy { kind: PolicyKind::Percent, value: 100, period_seconds: 15.0 };

/// Bounds on starts or on stops (`HPAScalingRules`); absent keys have the defaults of the direction.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScalingRulesSpec {
    #[doc = about!("fleet.autoscale.hpa.scale_down.stabilization_window_seconds")]
    pub stabilization_window_seconds: Option<f64>,
    #[doc = about!("fleet.autoscale.hpa.scale_down.select_policy")]
    pub select_policy: SelectPolicy,
    #[doc = about!("fleet.autoscale.hpa.scale_down.policies")]
    pub policies: Option<Vec<ScalingPolicy>>,
}

impl ScalingRulesSpec {
    fn resolved(&self, window: f64, policies: Vec<ScalingPolicy>) -> ScalingRules {
        ScalingRules {
            window_s: self.stabilization_window_seconds.unwrap_or(window),
            select: self.select_policy,
            policies: self.policies.clone().unwrap_or(policies),
        }
    }

    fn check(&self, place: &str, section: &str) -> Result<()> {
        let key = |name: &str| format!("{section}.{name}");
        if let Some(window) = self.stabilization_window_seconds.filter(|w| !(0.0..=3600.0).contains(w)) {
            return refuse(place, &key("stabilization_window_seconds"), window, "0 to 3600 seconds");
        }
        let Some(policies) = &self.policies else { return Ok(()) };
        if policies.is_empty() {
            let accepted = "at least one, as [{ type = \"Pods\", value = 4, period_seconds = 15 }]";
            return refuse(place, &key("policies"), "empty", accepted);
        }
        for policy in policies {
            if !(1..=1_000_000).contains(&policy.value) {
                return refuse(place, &key("policies"), policy.value, "a value from 1 to 1000000");
            }
            if !(1.0..=1800.0).contains(&policy.period_seconds) {
                let accepted = "period_seconds from 1 to 1800";
                return refuse(place, &key("policies"), policy.period_seconds, accepted);
            }
        }
        Ok(())
    }
}

/// Resolved bounds on starts or on stops.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingRules {
    /// Stabilization window in seconds.
    pub window_s: f64,
    /// Choice among the policies.
    pub select: SelectPolicy,
    /// Policies; at least one.
    pub policies: Vec<ScalingPolicy>,
}

/// A bound on the change within a period (`HPAScalingPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalingPolicy {
    /// Unit of the value.
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    /// Number of pods, or per cent of them.
    pub value: u64,
    /// Length of the period in seconds.
    pub period_seconds: f64,
}

/// Unit of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PolicyKind {
    /// A number of pods.
    Pods,
    /// Per cent of the pods at the beginning of the period.
    Percent,
}

/// Choice among policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum SelectPolicy {
    /// The policy that allows the largest change.
    #[default]
    Max,
    /// The policy that allows the smallest change.
    Min,
    /// No change in this direction.
    Disabled,
}

/// `[fleet.autoscale.keda]`: KEDA's ScaledObject.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KedaSpec {
    #[doc = about!("fleet.autoscale.keda.polling_interval")]
    pub polling_interval: f64,
    #[doc = about!("fleet.autoscale.keda.cooldown_period")]
    pub cooldown_period: f64,
    #[doc = about!("fleet.autoscale.keda.activation_threshold")]
    pub activation_threshold: f64,
}

impl Default for KedaSpec {
    /// Defaults of KEDA 2 (ScaledObject specification).
    fn default() -> KedaSpec {
        KedaSpec { polling_interval: 30.0, cooldown_period: 300.0, activation_threshold: 0.0 }
    }
}

impl KedaSpec {
    fn check(&self, place: &str) -> Result<()> {
        if !(0.1..=LONGEST_S).contains(&self.polling_interval) {
            let accepted = format!("0.1 to {LONGEST_S} seconds");
            return refuse(place, "keda.polling_interval", self.polling_interval, accepted);
        }
        span(place, "keda.cooldown_period", self.cooldown_period)?;
        if !(0.0..=1e9).contains(&self.activation_threshold) {
            return refuse(
                place,
                "keda.activation_threshold",
                self.activation_threshold,
                "0 to 10^9 requests",
            );
        }
        Ok(())
    }
}

/// `[fleet.autoscale.ray-serve]`: Ray Serve's `AutoscalingConfig`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RayServeSpec {
    #[doc = about!("fleet.autoscale.ray-serve.look_back_period_s")]
    pub look_back_period_s: f64,
    #[doc = about!("fleet.autoscale.ray-serve.metrics_interval_s")]
    pub metrics_interval_s: f64,
    #[doc = about!("fleet.autoscale.ray-serve.upscale_delay_s")]
    pub upscale_delay_s: f64,
    #[doc = about!("fleet.autoscale.ray-serve.downscale_delay_s")]
    pub downscale_delay_s: f64,
    #[doc = about!("fleet.autoscale.ray-serve.downscale_to_zero_delay_s")]
    pub downscale_to_zero_delay_s: Option<f64>,
    #[doc = about!("fleet.autoscale.ray-serve.upscaling_factor")]
    pub upscaling_factor: f64,
    #[doc = about!("fleet.autoscale.ray-serve.downscaling_factor")]
    pub downscaling_factor: f64,
}

impl Default for RayServeSpec {
    /// Defaults of Ray 2.60 (`serve/config.py`, `AutoscalingConfig`).
    fn default() -> RayServeSpec {
        RayServeSpec {
            look_back_period_s: 30.0,
            metrics_interval_s: 10.0,
            upscale_delay_s: 30.0,
            downscale_delay_s: 600.0,
            downscale_to_zero_delay_s: None,
            upscaling_factor: 1.0,
            downscaling_factor: 1.0,
        }
    }
}

impl RayServeSpec {
    fn check(&self, place: &str) -> Result<()> {
        let intervals = [
            ("look_back_period_s", self.look_back_period_s),
            ("metrics_interval_s", self.metrics_interval_s),
        ];
        for (key, seconds) in intervals {
            if !(0.1..=LONGEST_S).contains(&seconds) {
                let accepted = format!("0.1 to {LONGEST_S} seconds");
                return refuse(place, &format!("ray-serve.{key}"), seconds, accepted);
            }
        }
        span(place, "ray-serve.upscale_delay_s", self.upscale_delay_s)?;
        span(place, "ray-serve.downscale_delay_s", self.downscale_delay_s)?;
        let zero = self.downscale_to_zero_delay_s.unwrap_or(0.0);
        span(place, "ray-serve.downscale_to_zero_delay_s", zero)?;
        let factors =
            [("upscaling_factor", self.upscaling_factor), ("downscaling_factor", self.downscaling_factor)];
        for (key, factor) in factors {
            if !(0.001..=1000.0).contains(&factor) {
                return refuse(place, &format!("ray-serve.{key}"), factor, "0.001 to 1000");
            }
        }
        Ok(())
    }
}

/// Refuses a duration that is negative or longer than a day.
fn span(place: &str, key: &str, seconds: f64) -> Result<()> {
    if (0.0..=LONGEST_S).contains(&seconds) {
        return Ok(());
    }
    refuse(place, key, seconds, format!("0 to {LONGEST_S} seconds"))
}

fn refuse<T>(place: &str, key: &str, found: impl Display, accepted: impl Display) -> Result<T> {
    Err(Error::field(place, format!("fleet.autoscale.{key}"), found, accepted))
}
