//! NVIDIA Dynamo's planner for aggregated workers.
//!
//! Knows: the planner's arithmetic in Dynamo 1.6.1: thresholds on the use of KV caches
//! (`dynamo/planner/core/load_scaling.py`, `_agg_easy_decision`), and the predicted rate over a replica's capacity
//! (`core/throughput_scaling.py`, `core/load/predictors.py`). While replicas start, a decision can only cancel starts;
//! none is made while replicas stop. Knows nothing about the planner's model of an engine: the spec states the capacity.

use super::observed::{Bounds, Observed, ticks};
use roofcast_ask::spec::{AutoscaleSpec, DynamoSpec, DynamoTarget, LoadPredictor};
use roofcast_facts::clock::Ticks;

/// The planner with its state.
#[derive(Debug, Clone)]
pub(super) struct Dynamo {
    spec: DynamoSpec,
    bounds: Bounds,
    next: Ticks,
    /// Number of requests that had arrived at the last decision.
    arrived: u64,
    predictor: Predictor,
}

impl Dynamo {
    pub(super) fn new(spec: &AutoscaleSpec) -> Dynamo {
        let keys = spec.dynamo.unwrap_or_default();
        let predictor = Predictor::new(&keys);
        Dynamo { spec: keys, bounds: Bounds::of(spec), next: Ticks::NEVER, arrived: 0, predictor }
    }

    pub(super) fn begin(&mut self, at: Ticks) {
        self.next = at + self.interval();
    }

    pub(super) fn due(&self) -> Ticks {
        self.next
    }

    fn interval(&self) -> Ticks {
        ticks(match self.spec.optimization_target {
            DynamoTarget::Sla => self.spec.throughput_adjustment_interval_seconds,
            _ => self.spec.load_adjustment_interval_seconds,
        })
    }

    pub(super) fn decide(&mut self, seen: &Observed) -> u64 {
        self.next += self.interval();
        let desired = match self.spec.optimization_target {
            DynamoTarget::Sla => Some(self.by_prediction(seen)),
            _ => self.by_caches(seen),
        };
        let ready = seen.ready();
        let Some(desired) = desired.map(|desired| desired.clamp(self.bounds.min, self.bounds.max)) else {
            return seen.wanted;
        };
        let refused = seen.stopping > 0 || (seen.starting > 0 && desired > ready);
        if refused { seen.wanted } else { desired }
    }

    /// Use of a KV cache above which a replica is added, and below which one is removed.
    fn thresholds(&self) -> [f64; 2] {
        let rate = |rate: Option<f64>| rate.unwrap_or_default() / 100.0;
        match self.spec.optimization_target {
            DynamoTarget::Latency => [0.4, 0.1],
            DynamoTarget::Load => {
                [rate(self.spec.decode_scale_up_kv_rate), rate(self.spec.decode_scale_down_kv_rate)]
            }
            _ => [1.0, 0.6],
        }
    }

    /// One replica more or fewer by the use of the KV caches; `None` for no change.
    fn by_caches(&self, seen: &Observed) -> Option<u64> {
        let ready = seen.ready();
        let [up, down] = self.thresholds();
        let reaches = self.spec.optimization_target == DynamoTarget::Load;
        let uses = || seen.replicas.iter().map(|replica| replica.kv_use);
        if uses().any(|used| used > up || (reaches && used == up)) {
            return Some(ready + 1);
        }
        let low = uses().all(|used| used < down || (reaches && used == down));
        if ready == 0 || !low || (ready == 1 && seen.starting == 0) {
            return None;
        }
        let fewer = (ready - 1).max(self.bounds.min);
        // A replica whose load would make the others add one again stays.
        let fullest = uses().fold(0.0, f64::max);
        let returns = fewer > 0 && fewer < ready && fullest * ready as f64 / fewer as f64 >= up;
        Some(if returns { ready } else { fewer })
    }

    /// Predicted rate over a replica's capacity, in steps of a bounded number of replicas.
    fn by_prediction(&mut self, seen: &Observed) -> u64 {
        let requests = seen.arrived - self.arrived;
        self.arrived = seen.arrived;
        self.predictor.observe(requests as f64);
        let rate = self.predictor.forecast() / self.spec.throughput_adjustment_interval_seconds;
        let desired = (rate / self.spec.engine_rps.unwrap_or(1.0)).ceil() as u64;
        let step = self.spec.max_throughput_scaling_replicas;
        let ready = seen.ready();
        desired.max(self.bounds.min).clamp(ready.saturating_sub(step), ready.saturating_add(step))
    }
}

/// A predictor of the next interval's requests. Intervals before the first request do not count.
#[derive(Debug, Clone)]
struct Predictor {
    /// Noise of level, trend and observation; `None` if the last interval is the prediction.
    noise: Option<[f64; 3]>,
    min_points: u64,
    points: u64,
    last: f64,
    state: [f64; 2],
    covariance: [[f64; 2]; 2],
    /// True if the state is already the next interval's.
    ahead: bool,
}

impl Predictor {
    fn new(spec: &DynamoSpec) -> Predictor {
        let kalman = spec.load_predictor == Some(LoadPredictor::Kalman);
        Predictor {
            noise: kalman.then_some([spec.kalman_q_level, spec.kalman_q_trend, spec.kalman_r]),
            min_points: spec.kalman_min_points,
            points: 0,
            last: 0.0,
            state: [0.0; 2],
            covariance: [[1000.0, 0.0], [0.0, 1000.0]],
            ahead: false,
        }
    }

    /// Adds the requests of an interval.
    fn observe(&mut self, requests: f64) {
        if self.points == 0 && requests == 0.0 {
            return;
        }
        self.points += 1;
        self.last = requests;
        let Some(noise) = self.noise else { return };
        if self.points == 1 {
            self.state = [requests, 0.0];
        } else {
            self.advance(noise);
            self.correct(requests, noise);
        }
        self.ahead = false;
    }

    /// Requests of the next interval.
    fn forecast(&mut self) -> f64 {
        let Some(noise) = self.noise.filter(|_| self.points >= self.min_points.max(1)) else {
            return self.last;
        };
        self.advance(noise);
        self.state[0].max(0.0)
    }

    /// Advances the state by an interval, once: the level grows by the trend.
    fn advance(&mut self, noise: [f64; 3]) {
        if std::mem::replace(&mut self.ahead, true) {
            return;
        }
        let [[level, both], [also, trend]] = self.covariance;
        self.state[0] += self.state[1];
        self.covariance =
            [[level + both + also + trend + noise[0], both + trend], [also + trend, trend + noise[1]]];
    }

    /// Corrects the state by an observation.
    fn correct(&mut self, requests: f64, noise: [f64; 3]) {
        let [[level, both], [also, trend]] = self.covariance;
        let gains = [level, also].map(|of| of / (level + noise[2]));
        let error = requests - self.state[0];
        self.state = [self.state[0] + gains[0] * error, self.state[1] + gains[1] * error];
        self.covariance = [
            [(1.0 - gains[0]) * level, (1.0 - gains[0]) * both],
            [also - gains[1] * level, trend - gains[1] * both],
        ];
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed::seen;
    use super::*;

    fn planner(keys: &str) -> Dynamo {
        let text = format!("rule = \"dynamo\"\nmax_replicas = 20\nstartup_s = 0\n[dynamo]\n{keys}");
        let mut planner = Dynamo::new(&toml::from_str(&text).unwrap());
        planner.begin(Ticks::ZERO);
        planner
    }

    /// Loads are per cent of a KV cache. One above 100: one more. All below 60: one fewer, unless the fullest times
    /// n/(n − 1) reaches 100: 59 × 3/2 = 88.5 of three, 59 × 2/1 = 118 of two. While a replica starts: no further start, but
    /// three low ones take it back; a lone low one too.
    #[test]
    fn one_replica_at_a_time_by_the_caches() {
        let mut planner = planner("");
        let mut wanted = |wanted: u64, loads: &[u64]| planner.decide(&seen(wanted, loads));
        assert_eq!([wanted(2, &[101, 20]), wanted(2, &[100, 20]), wanted(1, &[5])], [3, 2, 1]);
        assert_eq!([wanted(3, &[59, 50, 10]), wanted(3, &[60, 5, 5]), wanted(2, &[59, 50])], [2, 3, 2]);
        assert_eq!([wanted(3, &[150, 150]), wanted(4, &[40, 40, 40]), wanted(2, &[5])], [3, 2, 1]);
        let stopping = Observed { stopping: 1, ..seen(2, &[150, 150]) };
        assert_eq!(planner.decide(&stopping), 2);
    }

    /// `load` compares with "at least" and "at most": 80 adds, 30 of each removes (30 × 2/1 = 60 is below 80).
    #[test]
    fn own_thresholds_include_their_values() {
        let keys =
            "optimization_target = \"load\"\ndecode_scale_up_kv_rate = 80\ndecode_scale_down_kv_rate = 30";
        let mut planner = planner(keys);
        assert_eq!([planner.decide(&seen(2, &[80, 1])), planner.decide(&seen(2, &[30, 30]))], [3, 1]);
    }

    /// 180 s with 3,600 requests are 20/s; a replica sustains 3/s: ⌈6.67⌉ = 7. The next interval has 9,000: 50/s, ⌈16.7⌉
    /// = 17, but at most 8 more than the 7 that are ready.
    #[test]
    fn requests_over_those_that_a_replica_sustains() {
        let keys = "optimization_target = \"sla\"\nload_predictor = \"constant\"\nengine_rps = 3";
        let mut planner = planner(keys);
        let arrived = |arrived, ready: usize| Observed { arrived, ..seen(ready as u64, &vec![1; ready]) };
        let first = planner.decide(&arrived(3600, 1));
        assert_eq!([first, planner.decide(&arrived(12_600, 7))], [7, 15]);
    }

    /// Level 10, then an observation of 20. Ahead: variance of the level 1000 + 1000 + 1 = 2001, of both 1000, of the trend
    /// 1000.1. Gains 2001/2011 and 1000/2011: level 10 + 9.95027 = 19.95027, trend 4.97265, the next level 24.92292.
    #[test]
    fn a_step_of_the_filter_by_hand() {
        let keys = "load_predictor = \"kalman\"\nkalman_min_points = 2";
        let mut predictor = planner(keys).predictor;
        predictor.observe(0.0);
        predictor.observe(10.0);
        assert!((predictor.forecast() - 10.0).abs() < 1e-12);
        predictor.observe(20.0);
        let expected = 10.0 + 10.0 * (2001.0 + 1000.0) / 2011.0;
        assert!((predictor.forecast() - expected).abs() < 1e-9 && (expected - 24.92292).abs() < 1e-5);
        assert!((predictor.forecast() - expected).abs() < 1e-9, "a second look does not advance the filter");
    }
}
