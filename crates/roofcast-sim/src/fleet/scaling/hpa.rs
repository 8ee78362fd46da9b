//! Kubernetes' HorizontalPodAutoscaler and KEDA, which creates one and scales from and to zero itself.
//!
//! Knows: kube-controller-manager's arithmetic (`pkg/controller/podautoscaler/replica_calculator.go` and
//! `horizontal.go` of a769d588, since 1.33, with `behavior`): ratio, tolerance, pods without metrics, stabilization windows, policies; KEDA 2's executor
//! (`pkg/scaling/executor/scale_scaledobjects.go` of 7f17c10c). A pod that starts has no metric: its server answers once the model is
//! loaded. Knows nothing about where pods run.

use super::observed::{Bounds, Observed, ticks};
use roofcast_ask::spec::{AutoscaleSpec, PolicyKind, ScalingRules, SelectPolicy};
use roofcast_facts::clock::Ticks;

/// Thousandths of a request, the unit of a metric.
const MILLI: u64 = 1000;

/// A HorizontalPodAutoscaler by the average of a metric of its pods.
#[derive(Debug, Clone)]
pub(super) struct Hpa {
    /// Target of a pod in thousandths of a request.
    target: u64,
    tolerance: f64,
    bounds: Bounds,
    period: Ticks,
    next: Ticks,
    up: ScalingRules,
    down: ScalingRules,
    recommendations: Vec<(Ticks, u64)>,
    started: Vec<(Ticks, u64)>,
    stopped: Vec<(Ticks, u64)>,
}

impl Hpa {
    pub(super) fn new(spec: &AutoscaleSpec) -> Hpa {
        let keys = spec.hpa.clone().unwrap_or_default();
        Hpa {
            target: spec.target_in_flight.unwrap_or(1) * MILLI,
            tolerance: keys.tolerance,
            bounds: Bounds::of(spec),
            period: ticks(keys.sync_period_s),
            next: Ticks::NEVER,
            up: keys.up(),
            down: keys.down(),
            recommendations: Vec::new(),
            started: Vec::new(),
            stopped: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, at: Ticks, wanted: u64) {
        self.recommendations.push((at, wanted));
        self.next = at + self.period;
    }

    pub(super) fn due(&self) -> Ticks {
        self.next
    }

    pub(super) fn decide(&mut self, seen: &Observed) -> u64 {
        let proposal = self.by_pods(seen);
        self.sync(seen.wanted, proposal)
    }

    /// Applies a proposal at the time of the sync, and sets the time of the next one. Without a metric nothing changes.
    fn sync(&mut self, current: u64, proposal: Option<u64>) -> u64 {
        let at = self.next;
        self.next = at + self.period;
        let Some(proposal) = proposal else { return current };
        let wanted = self.normalized(at, current, proposal);
        if wanted > current {
            self.started.push((at, wanted - current));
        } else if wanted < current {
            self.stopped.push((at, current - wanted));
        }
        wanted
    }

    /// True if a ratio of metric and target changes nothing.
    fn is_within(&self, ratio: f64) -> bool {
        (1.0 - self.tolerance..=1.0 + self.tolerance).contains(&ratio)
    }

    /// Proposal by the metric of each pod. Pods that start count as pods with no request for a start of more, and as
    /// pods at the target for a stop (`calcPlainMetricReplicas`).
    fn by_pods(&self, seen: &Observed) -> Option<u64> {
        let pods = seen.ready();
        if pods == 0 {
            return None;
        }
        let sum: u64 = seen.replicas.iter().map(|replica| replica.in_flight * MILLI).sum();
        let ratio = |sum: u64, pods: u64| (sum / pods) as f64 / self.target as f64;
        let alone = ratio(sum, pods);
        if seen.starting == 0 {
            let changed = (alone * pods as f64).ceil() as u64;
            return Some(if self.is_within(alone) { seen.wanted } else { changed });
        }
        let (sum, pods) = if alone < 1.0 {
            (sum + seen.starting * self.target, pods + seen.starting)
        } else if alone > 1.0 {
            (sum, pods + seen.starting)
        } else {
            (sum, pods)
        };
        let all = ratio(sum, pods);
        let turned = (alone < 1.0 && all > 1.0) || (alone > 1.0 && all < 1.0);
        if self.is_within(all) || turned {
            return Some(seen.wanted);
        }
        let changed = (all * pods as f64).ceil() as u64;
        let reversed = (all < 1.0 && changed > seen.wanted) || (all > 1.0 && changed < seen.wanted);
        Some(if reversed { seen.wanted } else { changed })
    }

    /// Proposal by a metric of all pods together (`GetExternalPerPodMetricReplicas`).
    fn by_sum(&self, seen: &Observed) -> u64 {
        let sum = (seen.in_flight() * MILLI) as f64;
        let target = self.target as f64;
        if self.is_within(sum / (target * seen.wanted as f64)) {
            return seen.wanted;
        }
        (sum / target).ceil() as u64
    }

    /// The proposal within the recommendations of the stabilization windows, the policies and the bounds
    /// (`normalizeDesiredReplicasWithBehaviors`).
    fn normalized(&mut self, at: Ticks, current: u64, proposal: u64) -> u64 {
        let [up, down] = [self.up.window_s, self.down.window_s].map(ticks);
        let within = |window: Ticks| {
            let recent = self.recommendations.iter().filter(move |(time, _)| *time + window > at);
            recent.map(|(_, count)| *count)
        };
        let lowest = within(up).fold(proposal, u64::min);
        let highest = within(down).fold(proposal, u64::max);
        let stable = current.max(lowest).min(highest);
        self.recommendations.retain(|(time, _)| *time + up.max(down) > at);
        self.recommendations.push((at, proposal));
        if stable > current {
            let limit = self.limit(&self.up, at, current).max(current as i64) as u64;
            stable.min(self.bounds.max.min(limit))
        } else if stable < current {
            let limit = self.limit(&self.down, at, current).clamp(0, current as i64) as u64;
            stable.max(self.bounds.min.max(limit))
        } else {
            stable
        }
    }

    /// The farthest number of replicas that the policies of a direction allow (`calculateScaleUpLimitWithScalingRules`
    /// and `calculateScaleDownLimitWithBehaviors`).
    fn limit(&self, rules: &ScalingRules, at: Ticks, current: u64) -> i64 {
        let rises = std::ptr::eq(rules, &self.up);
        let since = |events: &[(Ticks, u64)], period: Ticks| {
            let recent = events.iter().filter(|(time, _)| *time + period > at);
            recent.map(|(_, count)| *count as i64).sum::<i64>()
        };
        let allowed = |policy: &roofcast_ask::spec::ScalingPolicy| {
            let period = ticks(policy.period_seconds);
            let before = current as i64 - since(&self.started, period) + since(&self.stopped, period);
            let value = policy.value as f64;
            match (policy.kind, rises) {
                (PolicyKind::Pods, true) => before + policy.value as i64,
                (PolicyKind::Pods, false) => before - policy.value as i64,
                (PolicyKind::Percent, true) => (before as f64 * (1.0 + value / 100.0)).ceil() as i64,
                (PolicyKind::Percent, false) => (before as f64 * (1.0 - value / 100.0)) as i64,
            }
        };
        let all = rules.policies.iter().map(allowed);
        let limit = match (rules.select, rises) {
            (SelectPolicy::Disabled, _) => None,
            (SelectPolicy::Max, true) | (SelectPolicy::Min, false) => all.max(),
            (SelectPolicy::Max, false) | (SelectPolicy::Min, true) => all.min(),
        };
        limit.unwrap_or(current as i64)
    }
}

/// KEDA: a HorizontalPodAutoscaler by the requests of all pods, and the way from and to zero.
#[derive(Debug, Clone)]
pub(super) struct Keda {
    hpa: Hpa,
    min: u64,
    activation: f64,
    polling: Ticks,
    cooldown: Ticks,
    next: Ticks,
    active: Option<Ticks>,
}

impl Keda {
    pub(super) fn new(spec: &AutoscaleSpec) -> Keda {
        let mut hpa = Hpa::new(spec);
        hpa.bounds.min = hpa.bounds.min.max(1);
        let keys = spec.keda.unwrap_or_default();
        Keda {
            hpa,
            min: spec.min_replicas,
            activation: keys.activation_threshold,
            polling: ticks(keys.polling_interval),
            cooldown: ticks(keys.cooldown_period),
            next: Ticks::NEVER,
            active: None,
        }
    }

    /// Requests that must be exceeded to start the first replica.
    pub(super) fn activation(&self) -> f64 {
        self.activation
    }

    pub(super) fn begin(&mut self, at: Ticks, wanted: u64) {
        self.hpa.begin(at, wanted);
        self.next = at + self.polling;
    }

    pub(super) fn due(&self) -> Ticks {
        self.next.min(self.hpa.due())
    }

    /// Polls the trigger if that is due, else syncs the autoscaler, which leaves a target without pods alone.
    pub(super) fn decide(&mut self, seen: &Observed) -> u64 {
        if self.next <= self.hpa.due() {
            return self.poll(seen);
        }
        let proposal = (seen.wanted > 0).then(|| self.hpa.by_sum(seen));
        self.hpa.sync(seen.wanted, proposal)
    }

    fn poll(&mut self, seen: &Observed) -> u64 {
        let at = self.next;
        self.next = at + self.polling;
        if seen.in_flight() as f64 > self.activation {
            self.active = Some(at);
            return if seen.wanted == 0 { self.min.max(1) } else { seen.wanted };
        }
        let cool = self.active.is_none_or(|active| active + self.cooldown < at);
        if self.min == 0 && cool { 0 } else { seen.wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed::seen;
    use super::*;

    fn spec(keys: &str) -> AutoscaleSpec {
        let text = format!("target_in_flight = 10\nmax_replicas = 20\nstartup_s = 0\n{keys}");
        toml::from_str(&text).unwrap()
    }

    /// Numbers of replicas after each sync of a rule for totals that the replicas share evenly.
    fn path(rule: &mut Hpa, first: u64, totals: &[u64]) -> Vec<u64> {
        rule.begin(Ticks::ZERO, first);
        let mut wanted = first;
        let mut step = |total: &u64| {
            let loads: Vec<u64> =
                (0..wanted).map(|n| total / wanted + u64::from(n < total % wanted)).collect();
            wanted = rule.decide(&seen(wanted, &loads));
            wanted
        };
        totals.iter().map(&mut step).collect()
    }

    /// Two pods, ten requests each wanted, a sync every 15 s. 22: ratio 1.1 is within the tolerance. 23: 1.15 × 2 =
    /// 2.3, so 3. 90: 3.0 × 3 = 9, and the policies allow 3 + 4 = 7 or 2 × 3 = 6, so 7. 90: 12.857 × 7 = 90/10 = 9 (the
    /// average is cut to 12.857, × 7 = 8.9999). 0: proposals of 0, but 9 was recommended within 300 s: the syncs at 45
    /// and 60 s recommended 9, the last leaves the window with the sync at 360 s, and all may stop at once.
    #[test]
    fn a_day_of_a_horizontal_pod_autoscaler() {
        let mut rule = Hpa::new(&spec("rule = \"hpa\""));
        let mut totals = vec![22, 23, 90, 90];
        totals.extend([0; 21]);
        let mut expected = vec![2, 3, 7, 9];
        expected.extend([9; 19]);
        expected.extend([1, 1]);
        assert_eq!(path(&mut rule, 2, &totals), expected);
    }

    /// Stops of 10 % or one pod a minute, whichever is less (`Min`), without a window: from 20 replicas for 25 (3
    /// wanted): 20 × 0.9 = 18 or 20 − 1 = 19, so 19; within the same minute 19 + 1 − 1 = 19 stays; at 75 s the event at 15 s
    /// is 60 s old, and one more stops.
    #[test]
    fn policies_bound_the_way_down() {
        let keys = "rule = \"hpa\"\n[hpa.scale_down]\nstabilization_window_seconds = 0\nselect_policy = \"Min\"\n\
                    policies = [{ type = \"Percent\", value = 10, period_seconds = 60 }, \
                    { type = \"Pods\", value = 1, period_seconds = 60 }]";
        assert_eq!(path(&mut Hpa::new(&spec(keys)), 20, &[25; 6]), [19, 19, 19, 19, 18, 18]);
        let keys = "rule = \"hpa\"\n[hpa.scale_down]\nselect_policy = \"Disabled\"";
        assert_eq!(path(&mut Hpa::new(&spec(keys)), 20, &[25; 30]), [20; 30]);
    }

    /// Two pods ready, two starting. 36 requests: 1.8 alone, 36/4 = 9 on four, 0.9, within the tolerance: no change. 60:
    /// 3.0 alone, 1.5 on four: 6. 8: 0.4 alone, with two pods at the target 28/4 = 7, 0.7 × 4 = 2.8: 3. 30: 1.5 alone and
    /// 0.75 on four, which would turn the direction: no change. No pod ready: no metric.
    #[test]
    fn pods_that_start_have_no_metric() {
        let rule = Hpa::new(&spec("rule = \"hpa\""));
        let proposal = |loads: &[u64]| rule.by_pods(&seen(4, loads));
        assert_eq!(proposal(&[18, 18]), Some(4));
        assert_eq!(proposal(&[30, 30]), Some(6));
        assert_eq!(proposal(&[4, 4]), Some(3));
        assert_eq!(proposal(&[15, 15]), Some(4));
        assert_eq!(proposal(&[]), None);
    }

    /// KEDA starts at zero and polls every 30 s: 3 waiting requests do not exceed the threshold of 3, 4 do. One replica with
    /// 25 requests at the next sync (15 s): 25/10 = 3. Without requests the autoscaler keeps 3 for 300 s; KEDA stops all
    /// with the first poll more than 60 s after the trigger was last active.
    #[test]
    fn keda_goes_from_and_to_zero() {
        let keys =
            "rule = \"keda\"\nmin_replicas = 0\n[keda]\nactivation_threshold = 3\ncooldown_period = 60";
        let mut rule = Keda::new(&spec(keys));
        rule.begin(Ticks::ZERO, 0);
        let mut wanted = 0;
        let mut until = |seconds: f64, waiting: u64| {
            while rule.due() <= ticks(seconds) {
                wanted = rule.decide(&Observed { waiting, ..seen(wanted, &[]) });
            }
            wanted
        };
        assert_eq!([until(30.0, 3), until(59.0, 4), until(60.0, 4), until(75.0, 25)], [0, 0, 1, 3]);
        // Active at 60 s, last at 90 s: the polls at 120 and 150 s are not more than 60 s later, the one at 180 s is.
        assert_eq!([until(90.0, 25), until(150.0, 0), until(179.0, 0), until(180.0, 0)], [3, 3, 3, 0]);
    }
}
