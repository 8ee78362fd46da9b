//! Simulated time: integer ticks of 2⁻⁸ ps, so that a sum over steps is exact however it is grouped.
//!
//! A picosecond would be exact too, but one token of a small model's KV cache takes about 100 ps to read, so that
//! rounding to whole picoseconds would be a visible error.

use crate::units::Picoseconds;
use std::ops::{Add, AddAssign, Sub};

/// Ticks per picosecond.
pub const TICKS_PER_PS: f64 = 256.0;
const BITS: u32 = 8;

/// Total of `steps` steps in ticks: the first takes `first`, each later one `growth` more than the step before. `steps`
/// is below 2³², so that the number of pairs of steps fits one 64-bit word.
#[inline]
pub fn sum_of_run(first: u64, growth: u64, steps: u64) -> u128 {
    let pairs = steps * steps.saturating_sub(1) / 2;
    u128::from(first) * u128::from(steps) + u128::from(growth) * u128::from(pairs)
}

/// A point in time or a duration, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticks(pub u128);

impl Ticks {
    /// Zero duration.
    pub const ZERO: Ticks = Ticks(0);
    /// A time later than any other.
    pub const NEVER: Ticks = Ticks(u128::MAX);

    /// Time in whole picoseconds, rounded down.
    pub fn picoseconds(self) -> Picoseconds {
        Picoseconds(u64::try_from(self.0 >> BITS).unwrap_or(u64::MAX))
    }

    /// Ticks as one 64-bit word; durations above 20 hours saturate.
    pub fn narrow(self) -> u64 {
        u64::try_from(self.0).unwrap_or(u64::MAX)
    }

    /// Time in milliseconds, the unit of reports.
    pub fn ms(self) -> f64 {
        self.0 as f64 / (TICKS_PER_PS * 1e9)
    }

    /// Time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / (TICKS_PER_PS * 1e12)
    }
}

impl std::ops::Div<u64> for Ticks {
    type Output = Ticks;
    fn div(self, parts: u64) -> Ticks {
        // Division of one word is many times faster than division of two.
        match u64::try_from(self.0) {
            Ok(narrow) => Ticks::from(narrow / parts),
            Err(_) => Ticks(self.0 / u128::from(parts)),
        }
    }
}

impl std::ops::Div for Ticks {
    type Output = u128;
    fn div(self, part: Ticks) -> u128 {
        match (u64::try_from(self.0), u64::try_from(part.0)) {
            (Ok(narrow), Ok(part)) => u128::from(narrow / part),
            _ => self.0 / part.0,
        }
    }
}

impl From<Picoseconds> for Ticks {
    fn from(time: Picoseconds) -> Ticks {
        Ticks(u128::from(time.0) << BITS)
    }
}

impl From<u64> for Ticks {
    fn from(ticks: u64) -> Ticks {
        Ticks(u128::from(ticks))
    }
}

impl Add for Ticks {
    type Output = Ticks;
    fn add(self, other: Ticks) -> Ticks {
        Ticks(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Ticks) {
        *self = *self + other;
    }
}

impl Sub for Ticks {
    type Output = Ticks;
    fn sub(self, other: Ticks) -> Ticks {
        Ticks(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::sum_of_run;

    /// 10 + 12 + 14; one step; no step; the longest run of the longest steps: (2³² − 1) (2⁶⁴ − 1).
    #[test]
    fn runs_by_hand() {
        assert_eq!([(10, 2, 3), (10, 2, 1), (10, 2, 0)].map(|(f, g, n)| sum_of_run(f, g, n)), [36, 10, 0]);
        let largest = u64::from(u32::MAX);
        assert_eq!(sum_of_run(u64::MAX, 0, largest), u128::from(u64::MAX) * u128::from(largest));
        // 0 + 1 + … + (n − 1).
        assert_eq!(sum_of_run(0, 1, largest), u128::from(largest) * u128::from(largest - 1) / 2);
    }
}
