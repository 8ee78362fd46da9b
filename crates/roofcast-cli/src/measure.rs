//! Measuring the machine that this runs on.
//!
//! Knows: how a rate is taken: turns of work on every thread between two moments, repeated, with the spread. Does not
//! know what is measured ([`memory`], [`compute`]), what machine this is ([`machine`]) or which GPUs it has ([`gpu`]).

pub(crate) mod compute;
pub(crate) mod gpu;
pub(crate) mod machine;
pub(crate) mod memory;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Before anything counts: threads start, clocks rise.
    pub(crate) warm_up: Duration,
    /// What counts.
    pub(crate) span: Duration,
    /// How many such spans.
    pub(crate) repeats: usize,
}

/// Rates of the repeats, per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle one.
    pub(crate) median: f64,
    /// The slowest.
    pub(crate) min: f64,
    /// The fastest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one rate; every rate must be a positive number.
    pub(crate) fn of(mut rates: Vec<f64>) -> Result<Spread> {
        ensure!(rates.iter().all(|r| r.is_finite() && *r > 0.0), "a rate of {rates:?} cannot be");
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        let at = |i: usize| rates.get(i).copied().context("no repeat was measured");
        let median = if rates.len().is_multiple_of(2) {
            (at(middle.wrapping_sub(1))? + at(middle)?) / 2.0
        } else {
            at(middle)?
        };
        Ok(Spread { median, min: at(0)?, max: at(rates.len() - 1)? })
    }
}

/// `amount` in `time`, per second.
pub(crate) fn rate(amount: u64, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64()
}

/// The rate of all `workers` together, each on a thread of its own. A worker's turn says how much it did.
pub(crate) fn steady<W>(workers: &mut [W], pace: Pace) -> Result<Spread>
where
    W: FnMut() -> Result<u64> + Send,
{
    let rates = (0..pace.repeats).map(|_| together(workers, pace)).collect::<Result<Vec<_>>>()?;
    Spread::of(rates)
}

/// One repeat: every thread takes turns until the warm-up is over, and then counts them until the span is. Their own
/// rates are added, so that a thread that ends late is not charged to the others.
fn together<W>(workers: &mut [W], pace: Pace) -> Result<f64>
where
    W: FnMut() -> Result<u64> + Send,
{
    let open = Instant::now() + pace.warm_up;
    thread::scope(|scope| {
        let threads = workers
            .iter_mut()
            .map(|w| thread::Builder::new().spawn_scoped(scope, move || alone(w, open, pace.span)))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot start a thread")?;
        threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a measuring thread broke off"))?).sum()
    })
}

fn alone<W: FnMut() -> Result<u64>>(turn: &mut W, open: Instant, span: Duration) -> Result<f64> {
    turn()?;
    while Instant::now() < open {
        turn()?;
    }
    let start = Instant::now();
    let mut amount = 0;
    loop {
        amount += turn()?;
        let passed = start.elapsed();
        if passed >= span {
            return Ok(rate(amount, passed));
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

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let odd = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        // Between the two in the middle: (2 + 4) / 2.
        let even = Spread::of(vec![4.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (3.0, 1.0, 9.0));
    }

    #[test]
    fn no_rate_and_impossible_rates_are_errors() {
        for rates in [vec![], vec![1.0, f64::NAN], vec![0.0], vec![f64::INFINITY]] {
            assert!(Spread::of(rates).is_err());
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
        let found = steady(&mut workers, pace).unwrap();
        assert!(found.min > 0.0 && found.min <= found.median && found.median <= found.max);
    }
}
