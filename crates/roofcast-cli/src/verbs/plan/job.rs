//! An offline job with a deadline, as a load: so many requests evenly over the time that there is.
//!
//! Knows: a job bounds no latency by itself, and a fleet that carries its mean rate ends in time. Knows nothing about the
//! search.

use crate::args::PlanArgs;
use crate::show::number::{dollars, grouped, percent, significant};
use roofcast::plan::Choice;
use roofcast::spec::settings::{NO_BOUND, Setting};
use serde::Serialize;

/// Seconds of an hour.
const HOUR_S: f64 = 3600.0;

/// Number of requests that are run of a larger job.
const RUN: u64 = 1000;

/// An offline job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Job {
    /// Number of requests.
    requests: u64,
    /// Seconds until the deadline.
    within_s: f64,
}

impl Job {
    /// The job of `--batch` and `--within`; `None` without one.
    pub(super) fn asked(args: &PlanArgs) -> Option<Job> {
        Some(Job { requests: args.batch?, within_s: args.within? })
    }

    /// The load as settings; without a spec and a bound among `given`, no latency is bounded.
    pub(super) fn settings(self, given: &[Setting], by_default: bool) -> Vec<Setting> {
        let load = [
            Setting::new("workload.arrivals.kind", "constant"),
            Setting::new("workload.arrivals.rate", self.requests as f64 / self.within_s),
        ];
        let few = (self.requests < RUN).then(|| Setting::new("workload.requests", self.requests as i64));
        let bounded = !by_default || given.iter().any(|setting| setting.path.starts_with("slo."));
        let unbounded = ["slo.ttft_p99_ms", "slo.tpot_p99_ms"].map(|path| Setting::new(path, NO_BOUND));
        load.into_iter().chain(few).chain(unbounded.into_iter().filter(|_| !bounded)).collect()
    }

    /// The job in words.
    pub(super) fn question(self) -> String {
        format!("{} requests within {} h", grouped(self.requests), significant(self.within_s / HOUR_S))
    }

    /// When `best` ends the job and for how many dollars; `None` if its highest rate is unknown.
    pub(super) fn done(self, best: &Choice) -> Option<String> {
        let hours = self.requests as f64 / best.max_requests_per_s? / HOUR_S;
        let spared = 1.0 - hours * HOUR_S / self.within_s;
        Some(format!(
            "done in {} h at its highest rate, {} before the deadline, for ${}; in the whole time for ${}",
            significant(hours),
            percent(spared),
            dollars(best.cost_per_hour.map(|usd| usd * hours)),
            dollars(best.cost_per_hour.map(|usd| usd * self.within_s / HOUR_S)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2,000,000 requests in 12 h are 2,000,000 / 43,200 = 46.296 a second.
    #[test]
    fn a_job_is_a_rate_without_bounds_of_its_own() {
        let job = Job { requests: 2_000_000, within_s: 43_200.0 };
        let settings = job.settings(&[], true);
        let rate = settings[1].value.as_float().unwrap();
        assert!((rate - 46.296_296).abs() < 1e-6, "{rate}");
        assert_eq!(settings.iter().filter(|s| s.value.as_str() == Some(NO_BOUND)).count(), 2);
        let bounded = job.settings(&[Setting::new("slo.e2el_p99_ms", 6e4)], true);
        assert_eq!((bounded.len(), job.settings(&[], false).len()), (2, 2));
    }
}
