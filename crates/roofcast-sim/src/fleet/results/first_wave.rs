//! The first request of each user of a closed loop whose users all begin at once.
//!
//! Knows: how many of these requests ended, within the SLO or not, and their times to first token. Knows nothing about
//! later requests.

use roofcast_facts::clock::Ticks;

/// Results of the first request of each user, if all users begin at once.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FirstWave {
    /// Number of these requests that were completed.
    pub completed: u64,
    /// Number of these requests that met the SLO; `None` without an SLO.
    pub good: Option<u64>,
    /// Mean time to first token in milliseconds.
    pub mean_ttft_ms: f64,
}

/// Counts of the first wave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Number of requests of the wave, which have the lowest numbers of the run; 0 without a wave.
    users: u64,
    completed: u64,
    good: u64,
    /// Sum of the times to first token, in ticks.
    ttft: u128,
}

impl Counts {
    /// Empty counts of the first requests of `users` users.
    pub(super) fn of(users: u64) -> Counts {
        Counts { users, ..Counts::default() }
    }

    /// Counts the completed request `number`, if it belongs to the wave.
    #[inline(always)]
    pub(super) fn add(&mut self, number: u64, ttft: Ticks, good: bool) {
        if number < self.users {
            self.completed += 1;
            self.good += u64::from(good);
            self.ttft += ttft.0;
        }
    }

    /// The results; `None` if no request of a wave was completed. `bounded` is true if there is an SLO.
    pub(super) fn results(&self, bounded: bool) -> Option<FirstWave> {
        let mean = Ticks(self.ttft / u128::from(self.completed.max(1)));
        let good = bounded.then_some(self.good);
        let Counts { completed, .. } = *self;
        (completed > 0).then_some(FirstWave { completed, good, mean_ttft_ms: mean.ms() })
    }
}
