//! The largest value of a setting with which the SLO is met.
//!
//! Knows: the values that are tried. Starting at the upper end, each value is half of the one before, until one meets
//! the SLO; the range from this value to the last miss is bisected by ratio. A value below a miss is therefore found
//! only if it is within a factor of two of a tried value, and smaller values are not assumed to be better. Knows
//! nothing about the setting, or about how a value is judged.

use roofcast_facts::error::Result;

/// The bisection ends when its ends differ by at most this factor, or are neighbouring whole numbers.
const CLOSE: f64 = 1.01;

/// The range of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The smallest value that may be tried.
    pub low: f64,
    /// The largest value, which is tried first.
    pub high: f64,
    /// True if only whole numbers are valid.
    pub whole: bool,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Largest {
    /// The largest value that meets the SLO; `None` if none does.
    pub best: Option<f64>,
    /// The smallest tried value above `best` that misses the SLO; `None` if the upper end meets it.
    pub missed: Option<f64>,
}

impl Range {
    /// The value to try next. `bad` is the smallest value known to miss the SLO, and `good` the largest below it known
    /// to meet the SLO.
    fn next(self, good: Option<f64>, bad: f64) -> Option<f64> {
        let Some(good) = good else {
            let half = if self.whole { (bad / 2.0).floor() } else { bad / 2.0 };
            return (bad > self.low).then_some(half.max(self.low));
        };
        if bad / good <= CLOSE || self.whole && bad - good <= 1.0 {
            return None;
        }
        let middle = (good * bad).sqrt();
        Some(if self.whole { middle.round().clamp(good + 1.0, bad - 1.0) } else { middle })
    }

    /// Finds the largest value of the range with which `keeps` returns true: the SLO is met. `keeps` returns `None` to
    /// end the search.
    pub fn largest(self, keeps: &mut dyn FnMut(f64) -> Result<Option<bool>>) -> Result<Largest> {
        let mut largest = Largest { best: None, missed: None };
        let mut next = Some(self.high);
        while let Some(value) = next {
            match keeps(value)? {
                None => break,
                Some(true) => largest.best = Some(value),
                Some(false) => largest.missed = Some(value),
            }
            next = largest.missed.and_then(|bad| self.next(largest.best, bad));
        }
        Ok(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(range: Range, keeps: impl Fn(f64) -> bool) -> (Largest, Vec<f64>) {
        let mut tried = Vec::new();
        let largest = range.largest(&mut |value| {
            tried.push(value);
            Ok(Some(keeps(value)))
        });
        (largest.unwrap(), tried)
    }

    #[test]
    fn halves_down_then_bisects_up() {
        let users = Range { low: 1.0, high: 64.0, whole: true };
        // 64, 32 and 16 miss the SLO, 8 meets it; √(8·16) = 11.3; √(11·16) = 13.3; √(11·13) = 11.96.
        let (found, values) = tried(users, |n| n <= 11.0);
        assert_eq!(found, Largest { best: Some(11.0), missed: Some(12.0) });
        assert_eq!(values, [64.0, 32.0, 16.0, 8.0, 11.0, 13.0, 12.0]);
        // Between 2 and 2.0001…: rates are found within 1 %.
        let rate = Range { low: 0.5, high: 8.0, whole: false };
        let (found, _) = tried(rate, |n| n <= 3.0);
        let best = found.best.unwrap();
        let missed = found.missed.unwrap();
        assert!(best <= 3.0 && 3.0 < missed && missed / best <= CLOSE, "{found:?}");
    }

    #[test]
    fn ends_of_the_range() {
        let range = Range { low: 3.0, high: 20.0, whole: true };
        assert_eq!(tried(range, |_| true), (Largest { best: Some(20.0), missed: None }, vec![20.0]));
        // 20, 10 and 5 are tried; 2 is below the range.
        let (found, values) = tried(range, |_| false);
        assert_eq!((found, values), (Largest { best: None, missed: Some(3.0) }, vec![20.0, 10.0, 5.0, 3.0]));
    }

    /// A token budget that is too small also misses a bound: smaller values are not assumed to be better.
    #[test]
    fn small_values_may_miss_as_well() {
        let range = Range { low: 1.0, high: 4096.0, whole: true };
        let (found, _) = tried(range, |n| (700.0..=1100.0).contains(&n));
        let best = found.best.unwrap();
        let missed = found.missed.unwrap();
        assert!((1089.0..=1100.0).contains(&best) && missed > 1100.0 && missed <= best * CLOSE, "{found:?}");
    }

    #[test]
    fn a_search_that_is_ended_keeps_what_it_knows() {
        let range = Range { low: 1.0, high: 8.0, whole: true };
        let mut left = 2;
        let largest = range.largest(&mut |value| {
            left -= 1;
            Ok((left > 0).then_some(value < 5.0))
        });
        assert_eq!(largest.unwrap(), Largest { best: None, missed: Some(8.0) });
    }
}
