//! Valid values of flags.
//!
//! Knows: the range of each kind of value and its name in errors. Knows nothing about flags.

use roofcast::spec::number::{self, Unit};
#[cfg(feature = "network")]
use std::net::{IpAddr, Ipv4Addr};

/// Parser of a count from 1 to 2^30.
pub(crate) fn positive() -> fn(&str) -> Result<u64, String> {
    |text| match whole(text) {
        Some(n) if (1..=1 << 30).contains(&n) => Ok(n),
        _ => Err("accepted: a whole number from 1 to 2^30, as 4096 or 8k".into()),
    }
}

/// Parses a number of requests: `5000`, `500k`, `2M`. Requests have no binary units.
pub(super) fn requests(text: &str) -> Result<u64, String> {
    match whole(&text.to_lowercase()) {
        Some(n) if (1..=1 << 40).contains(&n) => Ok(n),
        _ => Err("accepted: a number of requests from 1 to 2^40, as 5000, 500k or 2M".into()),
    }
}

/// Parser of a count from `least` to `most`.
pub(super) fn within(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| match whole(text) {
        Some(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("accepted: {least} to {most}")),
    }
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    within(1, 1024)(text).map(|n| n as usize)
}

/// Shortest time in milliseconds that a bound of this metric may have without a unit. A shorter number is more likely
/// meant in seconds.
fn shortest_ms(metric: &str) -> f64 {
    match metric.split('_').next() {
        Some("ttft" | "e2el") => 10.0,
        Some("tpot" | "itl") => 1.0,
        _ => 0.0,
    }
}

/// True if `text` is a bound of a latency without a unit that is too short to be meant in milliseconds; `name` is the
/// bound's key, as in `ttft_p99_ms`.
pub(super) fn lacks_unit(name: &str, text: &str, ms: f64) -> bool {
    number::real(text).is_some() && ms > 0.0 && ms < shortest_ms(name)
}

fn whole(text: &str) -> Option<u64> {
    number::whole(text).and_then(|n| u64::try_from(n).ok())
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 1.0 => Ok(v),
        _ => Err("accepted: a number above 0, at most 1".into()),
    }
}

/// Parses a fraction from 0 to 1, both included.
#[cfg(feature = "network")]
pub(super) fn share_or_none(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.0..=1.0).contains(&v) => Ok(v),
        _ => Err("accepted: 0 to 1".into()),
    }
}

/// Parses a percentage as a number from 0 to 100.
#[cfg(feature = "network")]
pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.0..=100.0).contains(&v) => Ok(v),
        _ => Err("accepted: 0 to 100".into()),
    }
}

pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match number::real(text) {
        Some(v) if (0.01..=1000.0).contains(&v) => Ok(v),
        _ => Err("accepted: 0.01 to 1000".into()),
    }
}

/// Speed of a clock, where 0 stops it.
pub(super) fn time_scale(text: &str) -> Result<f64, String> {
    match number::real(text) {
        Some(0.0) => Ok(0.0),
        _ => factor(text).map_err(|accepted| format!("{accepted}, or 0 for a stopped clock")),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match number::real(text) {
        Some(v) if (1e-6..=1e6).contains(&v) => Ok(v),
        _ => Err("accepted: requests a second from 0.000001 to 10^6".into()),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match number::time(text, Unit::Seconds) {
        Some(v) if (0.001..=1e6).contains(&v) => Ok(v),
        _ => Err("accepted: seconds from 0.001 to 10^6, or a time as 50ms or 2min".into()),
    }
}

/// Parses `2/8`: the index of a shard and the number of shards.
#[cfg(feature = "parquet")]
pub(super) fn shard(text: &str) -> Result<(usize, usize), String> {
    let number = |s: &str| s.trim().parse::<usize>().ok();
    match text.split_once('/').and_then(|(shard, of)| Some((number(shard)?, number(of)?))) {
        Some((shard, of)) if (1..=of).contains(&shard) && of <= 1_000_000 => Ok((shard, of)),
        _ => Err("accepted: I/N as 2/8, I from 1 to N, N at most 1000000".into()),
    }
}

pub(super) fn milliseconds(text: &str) -> Result<f64, String> {
    match number::time(text, Unit::Milliseconds) {
        Some(v) if v > 0.0 && v <= 1e9 => Ok(v),
        _ => Err("accepted: milliseconds above 0, or a time as 2s".into()),
    }
}

/// Parser of a bound of `metric` in milliseconds.
#[cfg(feature = "network")]
pub(super) fn bound(metric: &'static str) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| match milliseconds(text) {
        Ok(ms) if lacks_unit(metric, text, ms) => {
            Err("accepted: a time this short with its unit, as 1s or 1ms".into())
        }
        found => found,
    }
}

/// Parses the address that a server listens on; `localhost` is the loopback interface.
#[cfg(feature = "network")]
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => {
            text.parse().map_err(|_| "accepted: localhost, or an address as 127.0.0.1, 0.0.0.0 or ::1".into())
        }
    }
}

/// A range with both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    from: f64,
    to: f64,
    /// The number, if it is given alone.
    pub(crate) alone: Option<f64>,
}

impl Range {
    /// True if `value` is within the range.
    pub(crate) fn holds(self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }
}

/// Parses GiB as `80`, `24..`, `..24` or `24..80`; a number alone is the minimum.
pub(super) fn gibibytes(text: &str) -> Result<Range, String> {
    let accepted = "accepted: GiB at least as 80, or a range as 24..80";
    let (from, to) = text.split_once("..").unwrap_or((text, ""));
    let alone = text.trim().parse().ok();
    range(from, to).map(|range| Range { alone, ..range }).ok_or_else(|| accepted.to_owned())
}

/// Parses dollars as `2`, `1..`, `..2` or `1..2.5`; a number alone is the maximum.
pub(super) fn usd(text: &str) -> Result<Range, String> {
    let accepted = "accepted: dollars an hour at most as 2.5, or a range as 1..2.5";
    let (from, to) = text.split_once("..").unwrap_or(("", text));
    range(from, to).ok_or_else(|| accepted.to_owned())
}

/// The range between two bounds, of which one may be empty.
fn range(from: &str, to: &str) -> Option<Range> {
    let bound = |text: &str, none: f64| match text.trim() {
        "" => Some(none),
        text => text.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0),
    };
    let range = Range { from: bound(from, 0.0)?, to: bound(to, f64::MAX)?, alone: None };
    let some = !(from.trim().is_empty() && to.trim().is_empty());
    (some && range.from <= range.to).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_as_they_are_written() {
        assert_eq!((positive()("8k"), positive()("8K")), (Ok(8000), Ok(8192)));
        assert_eq!((positive()("1e4"), positive()("1_000")), (Ok(10_000), Ok(1000)));
        assert_eq!((seconds("500ms"), milliseconds("2s"), rate("1e2")), (Ok(0.5), Ok(2000.0), Ok(100.0)));
        assert_eq!((within(1, 5)("5"), threads("4")), (Ok(5), Ok(4)));
        assert!(positive()("0").is_err() && positive()("1.5").is_err() && within(1, 5)("6").is_err());
        assert!(seconds("0").is_err() && milliseconds("-1s").is_err());
    }

    #[cfg(feature = "network")]
    #[test]
    fn servers_listen_on_this_machine_by_its_name() {
        assert_eq!(address("localhost").unwrap().to_string(), "127.0.0.1");
        assert_eq!(address("::1").unwrap().to_string(), "::1");
        assert!(address("example.com").unwrap_err().contains("accepted: localhost"));
    }

    #[test]
    fn ranges_leave_bounds_out() {
        assert_eq!(gibibytes("80"), Ok(Range { from: 80.0, to: f64::MAX, alone: Some(80.0) }));
        assert_eq!(gibibytes("..24"), Ok(Range { from: 0.0, to: 24.0, alone: None }));
        assert_eq!(usd("2.5"), Ok(Range { from: 0.0, to: 2.5, alone: None }));
        assert_eq!(usd("1..2.5"), Ok(Range { from: 1.0, to: 2.5, alone: None }));
        for wrong in ["", "..", "x", "-1", "3..2", "nan", "1..x"] {
            assert!(gibibytes(wrong).is_err() && usd(wrong).is_err(), "{wrong}");
        }
    }
}
