//! Numbers as people write them on a command line: `8k`, `1e4`, `1_000`, `50ms`, `2s`.
//!
//! Knows: suffixes and units of numbers. Knows nothing about which numbers a key accepts.

/// Unit of a key that holds a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds, for keys that end in `_ms`.
    Milliseconds,
    /// Seconds, for keys that end in `_s`.
    Seconds,
}

roofcast_facts::named! { Unit {
    Milliseconds: "milliseconds",
    Seconds: "seconds",
} }

impl Unit {
    /// Unit of the key at `path`; `None` if the key holds no time.
    pub fn of_key(path: &str) -> Option<Unit> {
        if path.ends_with("_ms") {
            return Some(Unit::Milliseconds);
        }
        (path.ends_with("_s") && !path.ends_with("gb_s")).then_some(Unit::Seconds)
    }

    fn seconds(self) -> f64 {
        match self {
            Unit::Milliseconds => 1e-3,
            Unit::Seconds => 1.0,
        }
    }
}

/// Suffixes of counts with their factors, as vLLM reads them: lower case is decimal, upper case is binary.
const COUNTS: [(char, f64); 6] =
    [('k', 1e3), ('m', 1e6), ('g', 1e9), ('K', 1024.0), ('M', 1_048_576.0), ('G', 1_073_741_824.0)];

/// Units of time, in seconds. A unit that ends in the name of another unit comes first.
const TIMES: [(&str, f64); 8] = [
    ("ms", 1e-3),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ns", 1e-9),
    ("min", 60.0),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Largest accepted number; above this, a 64-bit float cannot represent every integer.
const LARGEST: f64 = 9.0e15;

/// A whole number: `4096`, `1_000`, `1e4`, `8k` (8,000), `8K` (8,192).
pub fn whole(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(plain) = digits(text)?.parse::<i64>() {
        return Some(plain);
    }
    let (number, factor) =
        match COUNTS.iter().find_map(|(mark, factor)| Some((text.strip_suffix(*mark)?, factor))) {
            Some((number, factor)) => (number, *factor),
            None => (text, 1.0),
        };
    let scaled = plain(number.trim_end())? * factor;
    // 25.6 × 1000 is not a whole number in 64-bit floats; the difference is smaller than any that a person writes.
    let nearest = scaled.round();
    let is_whole = (scaled - nearest).abs() <= 1e-9 * nearest.abs();
    (is_whole && nearest.abs() <= LARGEST).then_some(nearest as i64)
}

/// A number: `0.5`, `1_000`, `1e4`, `1.5k`.
pub fn real(text: &str) -> Option<f64> {
    let text = text.trim();
    plain(text).or_else(|| whole(text).map(|n| n as f64))
}

/// A time in `unit`, as in `50ms`, `2s` or `1.5min`; a number without a unit is in `unit`.
pub fn time(text: &str, unit: Unit) -> Option<f64> {
    let text = text.trim();
    if let Some(number) = plain(text) {
        return Some(number);
    }
    let (number, seconds) =
        TIMES.iter().find_map(|(name, seconds)| Some((text.strip_suffix(name)?, seconds)))?;
    // Compute in this order, so that 50 ms is exactly 50 and 2 s is exactly 2000.
    let factor = seconds / unit.seconds();
    plain(number.trim_end())
        .map(|n| if factor < 1.0 { n / (1.0 / factor).round() } else { n * factor.round() })
}

/// A finite number without suffix.
fn plain(text: &str) -> Option<f64> {
    digits(text)?.parse().ok().filter(|v: &f64| v.is_finite())
}

/// Text of a number with the underscores between digits removed; `None` if there are underscores elsewhere.
fn digits(text: &str) -> Option<String> {
    let between = |(at, _): (usize, &str)| {
        let digit =
            |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
        digit(at.checked_sub(1)) && digit(at.checked_add(1))
    };
    text.match_indices('_').all(between).then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        for (text, number) in [
            ("4096", 4096),
            (" -1 ", -1),
            ("1_000", 1000),
            ("1e4", 10_000),
            ("1000.0", 1000),
            ("8k", 8000),
            ("8K", 8192),
            ("25.6k", 25_600),
            ("1.5K", 1536),
            ("2m", 2_000_000),
            ("1G", 1 << 30),
        ] {
            assert_eq!(whole(text), Some(number), "{text}");
        }
        for wrong in
            ["", "x", "1.5", "1__0", "_1", "1_", "k", "8kk", "1e99", "nan", "inf", "8 k b", "0.0001k"]
        {
            assert_eq!(whole(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_in_the_unit_of_their_key() {
        let ms = Unit::Milliseconds;
        let s = Unit::Seconds;
        for (text, unit, number) in [
            ("50", ms, 50.0),
            ("50ms", ms, 50.0),
            ("2s", ms, 2000.0),
            ("1.5 s", ms, 1500.0),
            ("250us", ms, 0.25),
            ("2min", ms, 120_000.0),
            ("500ms", s, 0.5),
            ("2s", s, 2.0),
            ("5m", s, 300.0),
            ("1h", s, 3600.0),
            ("1e3", s, 1000.0),
        ] {
            assert_eq!(time(text, unit), Some(number), "{text}");
        }
        for wrong in ["", "ms", "s", "2d", "2 s s", "nans"] {
            assert_eq!(time(wrong, ms), None, "{wrong}");
        }
        assert_eq!(Unit::of_key("slo.ttft_p99_ms"), Some(ms));
        assert_eq!(Unit::of_key("workload.arrivals.think_s"), Some(s));
        assert_eq!(Unit::of_key("hardware.host_bandwidth_gb_s"), None);
        assert_eq!(Unit::of_key("engine.max_num_seqs"), None);
    }
}
