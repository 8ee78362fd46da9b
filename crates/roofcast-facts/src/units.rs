//! Units as types: bytes, operations, rates and time.
//!
//! Knows: how quantities are divided by one another, and how they are printed for people. Knows nothing about models
//! or machines. Decimal (GB) and binary (GiB) sizes exist only in text: all values are in bytes.

use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

/// Size in bytes. Arithmetic saturates at 2^64 bytes, more than any machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// Rounds a computed size to whole bytes; negative sizes become 0.
    pub fn from_f64(bytes: f64) -> Bytes {
        Bytes(bytes.max(0.0).round() as u64)
    }

    /// Returns the difference, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// Returns the size times `numerator / denominator`, rounded up, without intermediate overflow.
    pub fn scale(self, numerator: u64, denominator: u64) -> Bytes {
        let scaled = (u128::from(self.0) * u128::from(numerator)).div_ceil(u128::from(denominator.max(1)));
        Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Returns the size as a float, for rates.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Text in decimal units, as in `16.06 GB`.
    pub fn gb(self) -> String {
        human(self.as_f64(), 1e3, &["B", "kB", "MB", "GB", "TB", "PB"])
    }

    /// Text in binary units, as in `14.96 GiB`.
    pub fn gib(self) -> String {
        human(self.as_f64(), 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, times: u64) -> Bytes {
        Bytes(self.0.saturating_mul(times))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// Number of floating-point (or integer) operations; a multiply-add counts as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Flops(pub u128);

impl Flops {
    /// No operations.
    pub(crate) const ZERO: Flops = Flops(0);

    /// Returns the count as a float, for rates.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Text with a decimal prefix, as in `29.7 TFLOP`.
    pub fn human(self) -> String {
        human(self.as_f64(), 1e3, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"])
    }
}

impl Add for Flops {
    type Output = Flops;
    fn add(self, other: Flops) -> Flops {
        Flops(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Flops {
    fn add_assign(&mut self, other: Flops) {
        *self = *self + other;
    }
}

impl Mul<u64> for Flops {
    type Output = Flops;
    fn mul(self, times: u64) -> Flops {
        Flops(self.0.saturating_mul(u128::from(times)))
    }
}

impl Sum for Flops {
    fn sum<I: Iterator<Item = Flops>>(iter: I) -> Flops {
        iter.fold(Flops::ZERO, Add::add)
    }
}

/// Rate of memory or of a link, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ByteRate(pub f64);

/// Rate of arithmetic, in operations per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct FlopRate(pub f64);

/// Span of time in whole picoseconds, so that sums are exact and independent of their order.
///
/// Arithmetic saturates at 2^64 ps, which is 213 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Picoseconds(pub u64);

impl Picoseconds {
    /// Span of no time.
    pub const ZERO: Picoseconds = Picoseconds(0);

    /// Converts seconds, rounded to the nearest picosecond.
    pub fn from_seconds(seconds: f64) -> Picoseconds {
        Picoseconds((seconds.max(0.0) * 1e12).round() as u64)
    }

    /// Returns the time of moving `bytes` at `rate`.
    pub fn moving(bytes: Bytes, rate: ByteRate) -> Picoseconds {
        Picoseconds::from_seconds(bytes.as_f64() / rate.0)
    }

    /// Time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Time in milliseconds, the unit of reports.
    pub fn ms(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Picoseconds {
    type Output = Picoseconds;
    fn add(self, other: Picoseconds) -> Picoseconds {
        Picoseconds(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Picoseconds {
    fn add_assign(&mut self, other: Picoseconds) {
        *self = *self + other;
    }
}

impl Mul<u64> for Picoseconds {
    type Output = Picoseconds;
    fn mul(self, times: u64) -> Picoseconds {
        Picoseconds(self.0.saturating_mul(times))
    }
}

impl Sum for Picoseconds {
    fn sum<I: Iterator<Item = Picoseconds>>(iter: I) -> Picoseconds {
        iter.fold(Picoseconds::ZERO, Add::add)
    }
}

impl Serialize for Picoseconds {
    /// Writes milliseconds, the unit of reports; no other place rounds.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.ms())
    }
}

impl<'de> Deserialize<'de> for Picoseconds {
    /// Reads milliseconds, the unit of records.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Picoseconds, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        if (0.0..=1e13).contains(&ms) {
            return Ok(Picoseconds::from_seconds(ms / 1e3));
        }
        Err(serde::de::Error::custom(format!("{ms} is not a time in milliseconds from 0 to 10^13")))
    }
}

/// Text of `value` with three to four significant digits in the largest fitting unit of `names`, of which each is
/// `step` times the previous one.
pub fn human(value: f64, step: f64, names: &[&str]) -> String {
    let mut value = value;
    let mut index = 0;
    while value.abs() >= step && index + 1 < names.len() {
        value /= step;
        index += 1;
    }
    let digits = match value.abs() {
        _ if index == 0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", names.get(index).copied().unwrap_or_default())
}

/// Converts a 64-bit number to the nearest float. Converting a signed integer is one instruction, so numbers below
/// 2^63 take that path.
#[inline]
pub fn number(word: u64) -> f64 {
    i64::try_from(word).map_or_else(|_| word as f64, |signed| signed as f64)
}

/// Converts a 128-bit number to the nearest float. Converting 64 bits is one instruction, 128 bits a function call.
pub fn float(whole: u128) -> f64 {
    #[cold]
    #[inline(never)]
    fn wide(whole: u128) -> f64 {
        whole as f64
    }
    i64::try_from(whole).map_or_else(|_| wide(whole), |narrow| narrow as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number with its highest bit set has no signed equivalent: 2⁶³ is a float, and 2⁶⁴ is the float nearest to
    /// 2⁶⁴ − 1.
    #[test]
    fn words_become_the_nearest_floats() {
        assert_eq!([0, 7, 1 << 63, u64::MAX].map(number), [0.0, 7.0, 2f64.powi(63), 2f64.powi(64)]);
        assert_eq!(number((1 << 53) + 1), 2f64.powi(53));
    }

    #[test]
    fn decimal_and_binary_sizes_differ_in_name_and_value() {
        // 24 GiB = 24 * 2^30 = 25,769,803,776 bytes = 25.8 GB.
        let size = Bytes(24 << 30);
        assert_eq!((size.gb().as_str(), size.gib().as_str()), ("25.8 GB", "24.0 GiB"));
    }

    #[test]
    fn time_is_exact_in_picoseconds() {
        // 1.5 GB at 1.5 TB/s = 1 ms = 10^9 ps.
        assert_eq!(Picoseconds::moving(Bytes(1_500_000_000), ByteRate(1.5e12)), Picoseconds(1_000_000_000));
    }

    #[test]
    fn sizes_saturate_instead_of_wrapping() {
        assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
        assert_eq!(Bytes(u64::MAX).scale(3, 2), Bytes(u64::MAX));
        assert_eq!(Bytes(10).scale(1, 3), Bytes(4));
    }
}
