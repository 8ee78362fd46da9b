//! Arrivals at a rate that changes as counts of a recording do: a Poisson process within each interval.
//!
//! Knows: the time at which an expected number of arrivals is reached. Knows nothing about where counts come from.

use roofcast_facts::error::{Error, Result};

/// Most intervals of a profile.
const MOST_INTERVALS: usize = 100_000;

/// A recording's counts, repeated without end.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// Number of requests up to the end of each interval.
    through: Vec<f64>,
    /// Seconds of an interval.
    interval_s: f64,
}

impl Profile {
    /// The profile of `counts` whose mean rate is `rate` per second.
    pub(super) fn new(counts: &[u32], rate: f64) -> Profile {
        let through: Vec<f64> = counts
            .iter()
            .scan(0.0, |sum, count| {
                *sum += f64::from(*count);
                Some(*sum)
            })
            .collect();
        let total = through.last().copied().unwrap_or(0.0);
        Profile { interval_s: total / counts.len().max(1) as f64 / rate, through }
    }

    /// Seconds until the expected number of arrivals is `sum`.
    pub(super) fn time_s(&self, sum: f64) -> f64 {
        let total = self.through.last().copied().unwrap_or(1.0);
        let rounds = (sum / total).floor();
        let rest = sum - rounds * total;
        let index = self.through.partition_point(|through| *through <= rest).min(self.through.len() - 1);
        let before = index.checked_sub(1).map_or(0.0, |last| self.through[last]);
        let share = (rest - before) / (self.through[index] - before);
        (rounds * self.through.len() as f64 + index as f64 + share) * self.interval_s
    }
}

/// The squared coefficient of variation of the gaps. In units of an interval, the gaps within one of n requests have a mean
/// square of 2/n², and z empty intervals in a row are one gap of z.
pub(super) fn cv2(counts: &[u32]) -> f64 {
    let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let within: f64 = counts.iter().filter(|count| **count > 0).map(|count| 2.0 / f64::from(*count)).sum();
    let pauses: f64 = counts.split(|count| *count > 0).map(|empty| (empty.len() as f64).powi(2)).sum();
    let mean = counts.len() as f64 / total;
    (within + pauses) / total / (mean * mean) - 1.0
}

/// Refuses counts without a request, and more intervals than a profile has.
pub(super) fn check(place: &str, counts: &[u32]) -> Result<()> {
    if counts.iter().any(|count| *count > 0) && counts.len() <= MOST_INTERVALS {
        return Ok(());
    }
    let accepted = format!("1 to {MOST_INTERVALS} whole numbers, one of them above 0");
    Err(Error::field(place, "workload.arrivals.counts", format!("{} counts", counts.len()), accepted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts 2, 0, 6 at 4 a second: 8 requests in 2 s, an interval of 2/3 s. The first request is half through the first
    /// interval; the third is a sixth through the last one, after the empty one; the tenth begins the second round with 2.
    #[test]
    fn an_expected_number_is_reached_within_its_interval() {
        let profile = Profile::new(&[2, 0, 6], 4.0);
        let close = |sum: f64, time: f64| assert!((profile.time_s(sum) - time).abs() < 1e-12, "{sum}");
        close(1.0, 1.0 / 3.0);
        close(3.0, 2.0 / 3.0 * (2.0 + 1.0 / 6.0));
        close(9.0, 2.0 + 1.0 / 3.0);
        close(10.0, 2.0 + 2.0 / 3.0 * 2.0);
    }

    /// Equal counts n give 2/n² over the squared mean 1/n², less 1: that of a Poisson process. Of 2, 0, 2 in units of an
    /// interval: 2/2 + 2/2 for the gaps within and 1 for the pause, 3/4 over (3/4)², less 1.
    #[test]
    fn even_counts_are_a_poisson_process() {
        assert!((cv2(&[5, 5, 5]) - 1.0).abs() < 1e-12);
        assert!((cv2(&[2, 0, 2]) - (0.75 / 0.5625 - 1.0)).abs() < 1e-12);
    }

    #[test]
    fn counts_without_a_request_are_refused() {
        assert!(check("t", &[0, 0]).is_err() && check("t", &[]).is_err() && check("t", &[0, 1]).is_ok());
    }
}
