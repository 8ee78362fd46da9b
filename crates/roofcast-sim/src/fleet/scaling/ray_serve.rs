//! Ray Serve's default autoscaling policy.
//!
//! Knows: the arithmetic of Ray 2.60: samples and reports of one handle (`serve/_private/router.py`), the mean over the
//! look-back period (`serve/_private/autoscaling_state.py`), factors and delays (`serve/autoscaling_policy.py`). The handle
//! reports in phase with its start. Knows nothing about several handles, or about nodes.

use super::observed::{Bounds, Observed, ticks};
use roofcast_ask::spec::{AutoscaleSpec, RayServeSpec};
use roofcast_facts::clock::Ticks;

/// Seconds between two decisions (`RAY_SERVE_CONTROL_LOOP_INTERVAL_S`).
const LOOP_S: f64 = 0.1;
/// Interval of samples over the look-back period (`RAY_SERVE_AUTOSCALING_METRIC_RECORD_INTERVAL_FACTOR`).
const SAMPLES: f64 = 0.2;

/// Ray Serve's policy with its samples.
#[derive(Debug, Clone)]
pub(super) struct RayServe {
    spec: RayServeSpec,
    target: f64,
    bounds: Bounds,
    next: Ticks,
    next_sample: Ticks,
    next_report: Ticks,
    samples: Vec<Sample>,
    report: Report,
    /// Number of requests that had arrived at the last decision.
    arrived: u64,
    /// Direction that every decision since `since` has asked for.
    rises: bool,
    since: Option<Ticks>,
}

/// Requests at one time.
#[derive(Debug, Clone)]
struct Sample {
    at: Ticks,
    queued: u64,
    /// Requests in flight by replica index.
    running: Vec<(usize, u64)>,
}

/// Total requests over time as the controller knows them, in order, and the beginning of the mean.
#[derive(Debug, Clone, Default)]
struct Report {
    totals: Vec<(Ticks, u64)>,
    since: Ticks,
}

impl Report {
    /// Time-weighted mean at `now`; the last total holds.
    fn mean(&self, now: Ticks) -> f64 {
        let Some((last, total)) = self.totals.last() else { return 0.0 };
        let end = if now > *last { now } else { *last + ticks(1e-3) };
        let ends = self.totals.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let weigh =
            |((at, total), end): (&(Ticks, u64), Ticks)| (end - (*at).max(self.since)).0 * u128::from(*total);
        let sum: u128 = self.totals.iter().zip(ends).map(weigh).sum();
        let whole = (end - self.since).0;
        if whole > 0 { sum as f64 / whole as f64 } else { *total as f64 }
    }
}

impl RayServe {
    pub(super) fn new(spec: &AutoscaleSpec) -> RayServe {
        RayServe {
            spec: spec.ray_serve.unwrap_or_default(),
            target: spec.target_in_flight.unwrap_or(1) as f64,
            bounds: Bounds::of(spec),
            next: Ticks::NEVER,
            next_sample: Ticks::NEVER,
            next_report: Ticks::NEVER,
            samples: Vec::new(),
            report: Report::default(),
            arrived: 0,
            rises: false,
            since: None,
        }
    }

    pub(super) fn begin(&mut self, at: Ticks) {
        self.next = at + ticks(LOOP_S);
        self.next_sample = self.next;
        self.next_report = self.next;
    }

    pub(super) fn due(&self) -> Ticks {
        self.next
    }

    pub(super) fn decide(&mut self, seen: &Observed) -> u64 {
        let at = self.next;
        self.next = at + ticks(LOOP_S);
        self.observe(at, seen);
        let requests = self.report.mean(at);
        let running = seen.ready();
        let up = self.spec.upscaling_factor;
        let wanted = if running == 0 && requests > 0.0 {
            // A deployment without a replica starts one at once.
            (up.ceil() as u64).max(seen.wanted)
        } else if running == 0 {
            self.delayed(at, seen.wanted, seen.wanted)
        } else {
            let desired = running as f64 * (requests / (self.target * running as f64));
            self.delayed(at, seen.wanted, self.scaled(running, desired))
        };
        wanted.clamp(self.bounds.min, self.bounds.max)
    }

    /// Takes a sample and sends a report if they are due. A request that finds no replica causes a report, too.
    fn observe(&mut self, at: Ticks, seen: &Observed) {
        for sample in &mut self.samples {
            sample.running.retain(|(index, _)| seen.replicas.iter().any(|replica| replica.index == *index));
        }
        if self.next_sample <= at {
            let interval = (SAMPLES * self.spec.look_back_period_s).min(self.spec.metrics_interval_s);
            self.next_sample += ticks(interval);
            let running = seen.replicas.iter().map(|replica| (replica.index, replica.in_flight)).collect();
            self.samples.push(Sample { at, queued: seen.waiting, running });
        }
        let arrives = seen.arrived > self.arrived;
        self.arrived = seen.arrived;
        let due = self.next_report <= at;
        if due {
            self.next_report += ticks(self.spec.metrics_interval_s);
        }
        if due || (arrives && seen.replicas.is_empty() && seen.waiting > 0) {
            self.send(at, seen);
        }
    }

    /// Reports the samples of the look-back period. The mean begins with the first sample in which every running
    /// replica takes part; one that has none takes part from now on.
    fn send(&mut self, at: Ticks, seen: &Observed) {
        let window = ticks(self.spec.look_back_period_s);
        self.samples.retain(|sample| sample.at + window > at);
        let first = |index: usize| {
            let has = |sample: &&Sample| sample.running.iter().any(|(other, _)| *other == index);
            self.samples.iter().find(has).map(|sample| sample.at)
        };
        let firsts: Vec<Option<Ticks>> = seen.replicas.iter().map(|replica| first(replica.index)).collect();
        let total = |sample: &Sample| sample.queued + sample.running.iter().map(|(_, n)| n).sum::<u64>();
        let mut totals: Vec<(Ticks, u64)> =
            self.samples.iter().map(|sample| (sample.at, total(sample))).collect();
        if totals.is_empty() || firsts.contains(&None) {
            let last = self.samples.last().map_or(seen.waiting, total);
            let unseen = seen.replicas.iter().zip(&firsts).filter(|(_, first)| first.is_none());
            totals.push((at, last + unseen.map(|(replica, _)| replica.in_flight).sum::<u64>()));
        }
        let begin = totals.first().map_or(at, |(time, _)| *time);
        let since = firsts.iter().map(|first| first.unwrap_or(at)).fold(begin, Ticks::max);
        self.report = Report { totals, since };
    }

    /// Applies the factors to a change (`_apply_scaling_factors`).
    fn scaled(&self, running: u64, desired: f64) -> u64 {
        let current = running as f64;
        let missing = desired - current;
        let factor = if missing > 0.0 { self.spec.upscaling_factor } else { self.spec.downscaling_factor };
        let scaled = (current + factor * missing).ceil().max(0.0) as u64;
        if desired.ceil() < current && scaled == running { scaled - 1 } else { scaled }
    }

    /// Applies the delays to a change: each decision since `since` has asked for the same direction, and the last one
    /// decides how far (`_apply_delay_logic`).
    fn delayed(&mut self, at: Ticks, wanted: u64, desired: u64) -> u64 {
        if desired == wanted {
            self.since = None;
            return wanted;
        }
        let rises = desired > wanted;
        if rises != self.rises {
            self.since = None;
        }
        self.rises = rises;
        let (delay, desired) = if rises {
            (self.spec.upscale_delay_s, desired)
        } else if wanted == 1 {
            (self.spec.downscale_to_zero_delay_s.unwrap_or(self.spec.downscale_delay_s), desired)
        } else {
            (self.spec.downscale_delay_s, desired.max(1))
        };
        let since = *self.since.get_or_insert(at);
        if at < since + ticks(delay) {
            return wanted;
        }
        self.since = None;
        desired
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed::seen;
    use super::*;

    fn rule(keys: &str) -> RayServe {
        let text = format!(
            "rule = \"ray-serve\"\ntarget_ongoing_requests = 10\nmax_replicas = 20\nstartup_s = 0\n{keys}"
        );
        let mut rule = RayServe::new(&toml::from_str(&text).unwrap());
        rule.begin(Ticks::ZERO);
        rule
    }

    /// Number of replicas wanted when `seconds` are over, for a load on one replica that starts none.
    fn until(rule: &mut RayServe, wanted: &mut u64, seconds: f64, loads: &[u64]) -> u64 {
        while rule.due() <= ticks(seconds) {
            *wanted = rule.decide(&seen(*wanted, loads));
        }
        *wanted
    }

    /// Samples at 0.1, 6.1, … s and reports at 0.1, 10.1, … s. The load is 10 to 25 s and 70 after it. The report at 30.1 s
    /// knows the samples at 0.1 excluded, 6.1, 12.1, 18.1, 24.1 (10 each) and 30.1 (70): at 30.1 s the mean is 10, because the
    /// last sample holds for a millisecond: (24 × 10 + 0.001 × 70)/24.001 = 10.0025, so that 2 are desired from 30.1 s
    /// on. 30 s later, at 60.1 s, the report has samples from 30.1 (excluded) to 60.1 s, all of 70: 7 replicas start at once.
    #[test]
    fn the_last_decision_sets_how_many_start() {
        let mut rule = rule("");
        let mut wanted = 1;
        assert_eq!(until(&mut rule, &mut wanted, 25.0, &[10]), 1);
        assert_eq!(until(&mut rule, &mut wanted, 60.05, &[70]), 1);
        assert_eq!(until(&mut rule, &mut wanted, 60.15, &[70]), 7);
    }

    /// Ten minutes at 5 of 10 wanted, then one minute without a request: the delay began with the first
    /// decision and ends with the last, which wants none; only the last of several replicas may go to zero, so one stays.
    #[test]
    fn ten_minutes_of_few_requests_and_one_of_none_stop_all_but_one() {
        let mut rule = rule("");
        let loads = [5; 10];
        let mut wanted = 10;
        assert_eq!(until(&mut rule, &mut wanted, 560.0, &loads), 10);
        assert_eq!(until(&mut rule, &mut wanted, 600.05, &[0; 10]), 10);
        assert_eq!(until(&mut rule, &mut wanted, 600.15, &[0; 10]), 1);
    }

    /// Factor 0.5: of 10 to 4 goes half the way, 7; of 10 to 9.4, half the way is 9.7, rounded up 10, one fewer by the rule
    /// for small steps only if the desire rounded up is below: ⌈9.4⌉ = 10 is not, ⌈8.9⌉ = 9 is: 9.45, 10, 9. Upwards
    /// from 10 to 13, factor 2: 16.
    #[test]
    fn factors_by_hand() {
        let rule = rule("[ray-serve]\ndownscaling_factor = 0.5\nupscaling_factor = 2");
        let scaled = [4.0, 9.4, 8.9, 13.0].map(|desired| rule.scaled(10, desired));
        assert_eq!(scaled, [7, 10, 9, 16]);
    }

    /// A mean of 10 for 6 s and 40 for 2 s: (60 + 80)/8 = 17.5; from the second total on, 40.
    #[test]
    fn means_are_weighted_by_time() {
        let totals = vec![(ticks(0.0), 10), (ticks(6.0), 40)];
        let report = |since: f64| Report { totals: totals.clone(), since: ticks(since) };
        assert!((report(0.0).mean(ticks(8.0)) - 17.5).abs() < 1e-12);
        assert!((report(6.0).mean(ticks(8.0)) - 40.0).abs() < 1e-12);
    }

    /// A request that waits from 0.3 s on finds no replica. The report that it causes repeats the sample of 0.1 s, in which
    /// none waited; the sample at 6.1 s counts it, and the report at 10.1 s reaches the controller.
    #[test]
    fn a_request_starts_the_first_replica_after_a_sample_and_a_report() {
        let mut rule = rule("min_replicas = 0");
        let mut until = |seconds: f64, waiting: u64| {
            let mut wanted = 0;
            while rule.due() <= ticks(seconds) {
                wanted = rule.decide(&Observed { waiting, arrived: waiting, ..seen(0, &[]) });
            }
            wanted
        };
        assert_eq!([until(0.25, 0), until(10.05, 1), until(10.15, 1)], [0, 0, 1]);
    }
}
