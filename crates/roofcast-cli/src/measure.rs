//! Measurement of this machine.
//!
//! Knows: how a rate is measured: every thread repeats a unit of work, a turn, between two moments; this is repeated,
//! and the spread is kept. The work is in [`memory`] and [`compute`], the machine's description in [`machine`], its
//! GPUs in [`gpu`]. Knows nothing about the kind of work.

pub(crate) mod compute;
pub(crate) mod gpu;
pub(crate) mod machine;
pub(crate) mod memory;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};

/// Durations and repeats of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Warm-up before each repeat, in which threads start and clock rates rise.
    pub(crate) warm_up: Duration,
    /// Duration of a repeat.
    pub(crate) span: Duration,
    /// Number of repeats.
    pub(crate) repeats: usize,
}

/// Rates of the repeats, per second in which the threads held a processor. The unit of work is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Spread {
    /// Median of the repeats.
    pub(crate) median: f64,
    /// Slowest repeat.
    pub(crate) min: f64,
    /// Fastest repeat.
    pub(crate) max: f64,
    /// Fraction of the time in which threads waited for a processor, if the system reports it.
    pub(crate) waited_share: Option<f64>,
}

/// Result of one repeat, of one thread or of all threads together.
#[derive(Debug, Clone, Copy)]
struct Repeat {
    rate: f64,
    waited_share: Option<f64>,
}

impl Spread {
    /// Computes the spread of at least one repeat; every rate must be a positive number.
    fn of(repeats: &[Repeat]) -> Result<Spread> {
        let mut rates: Vec<f64> = repeats.iter().map(|r| r.rate).collect();
        ensure!(rates.iter().all(|r| r.is_finite() && *r > 0.0), "a rate of {rates:?} cannot be");
        rates.sort_by(f64::total_cmp);
        let at = |i: usize| rates.get(i).copied().context("no repeat was measured");
        let last = rates.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2)?, at(rates.len() / 2)?);
        Ok(Spread { median, min: at(0)?, max: at(last)?, waited_share: mean_wait(repeats) })
    }
}

fn mean_wait(repeats: &[Repeat]) -> Option<f64> {
    let all: Option<Vec<f64>> = repeats.iter().map(|r| r.waited_share).collect();
    all.map(|shares| shares.iter().sum::<f64>() / shares.len().max(1) as f64)
}

/// `amount` in `time`, per second.
pub(crate) fn rate(amount: u64, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64()
}

/// Measures the total rate of all `workers`, each on its own thread. A call of a worker does one turn and returns the
/// amount of work done.
pub(crate) fn steady<W>(workers: &mut [W], pace: Pace) -> Result<Spread>
where
    W: FnMut() -> Result<u64> + Send,
{
    let repeats = (0..pace.repeats).map(|_| together(workers, pace)).collect::<Result<Vec<_>>>()?;
    Spread::of(&repeats)
}

/// Runs one repeat: every thread takes turns until the warm-up is over, and then counts them until `pace.span` is over.
/// The rates of the threads are added, so that a thread that ends late does not lower the rate of the others.
fn together<W>(workers: &mut [W], pace: Pace) -> Result<Repeat>
where
    W: FnMut() -> Result<u64> + Send,
{
    let open = Instant::now() + pace.warm_up;
    let each = thread::scope(|scope| {
        let threads = workers
            .iter_mut()
            .map(|w| thread::Builder::new().spawn_scoped(scope, move || alone(w, open, pace.span)))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot start a thread")?;
        let join =
            |t: thread::ScopedJoinHandle<'_, _>| t.join().map_err(|_| anyhow!("a thread broke off"))?;
        threads.into_iter().map(join).collect::<Result<Vec<Repeat>>>()
    })?;
    Ok(Repeat { rate: each.iter().map(|r| r.rate).sum(), waited_share: mean_wait(&each) })
}

/// Runs one thread's part of a repeat. Only time in which the thread held a processor counts, as far as the system
/// reports waits.
fn alone<W: FnMut() -> Result<u64>>(turn: &mut W, open: Instant, span: Duration) -> Result<Repeat> {
    turn()?;
    while Instant::now() < open {
        turn()?;
    }
    let before = machine::waited();
    let start = Instant::now();
    let mut amount = 0;
    loop {
        amount += turn()?;
        if start.elapsed() < span {
            continue;
        }
        let waited = before.zip(machine::waited()).map(|(before, now)| now.saturating_sub(before));
        let passed = start.elapsed();
        let waited_time = passed.saturating_sub(waited.unwrap_or_default());
        if waited_time >= span {
            let waited_share = waited.map(|w| w.div_duration_f64(passed));
            return Ok(Repeat { rate: rate(amount, waited_time), waited_share });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_by_hand() {
        // 1.5 GB in 100 ms = 15 GB/s; 786,432 multiply-adds of two operations in 1 ms = 1.572864 GFLOP/s.
        assert_eq!(rate(1_500_000_000, Duration::from_millis(100)), 15e9);
        assert_eq!(rate(2 * 786_432, Duration::from_millis(1)), 1.572864e9);
    }

    fn spread(rates: &[f64]) -> Result<Spread> {
        let repeat = |(i, rate): (u32, &f64)| Repeat { rate: *rate, waited_share: Some(f64::from(i) / 4.0) };
        Spread::of(&(0..).zip(rates).map(repeat).collect::<Vec<_>>())
    }

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        // Fractions waited of 0, 1/4 and 1/2: 1/4 on average.
        let odd = Spread { median: 2.0, min: 1.0, max: 3.0, waited_share: Some(0.25) };
        assert_eq!(spread(&[3.0, 1.0, 2.0]).unwrap(), odd);
        // The median of four is the mean of the middle two, (2 + 4) / 2. Fractions waited of 0, 1/4, 1/2, 3/4: 3/8 on
        // average.
        let even = Spread { median: 3.0, min: 1.0, max: 9.0, waited_share: Some(0.375) };
        assert_eq!(spread(&[4.0, 1.0, 2.0, 9.0]).unwrap(), even);
    }

    #[test]
    fn no_rate_and_impossible_rates_are_errors() {
        for rates in [&[][..], &[1.0, f64::NAN], &[0.0], &[f64::INFINITY]] {
            assert!(spread(rates).is_err());
        }
    }

    #[test]
    fn a_worker_that_fails_ends_the_measurement() {
        let pace = Pace { warm_up: Duration::ZERO, span: Duration::from_millis(1), repeats: 2 };
        let mut workers = vec![|| Err(anyhow!("sums differ"))];
        assert_eq!(steady(&mut workers, pace).unwrap_err().to_string(), "sums differ");
    }

    #[test]
    fn the_rates_of_threads_are_added() {
        let pace = Pace { warm_up: Duration::ZERO, span: Duration::from_millis(1), repeats: 3 };
        let mut workers = vec![|| Ok(5), || Ok(7)];
        let repeats = steady(&mut workers, pace).unwrap();
        assert!(repeats.min > 0.0 && repeats.min <= repeats.median && repeats.median <= repeats.max);
    }
}
