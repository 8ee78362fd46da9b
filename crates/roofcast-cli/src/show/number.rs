//! Numbers formatted for people.

use roofcast::units::Picoseconds;

/// Formats a number with groups of three digits, as in `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats milliseconds with three significant digits or more: `4.56`, `0.0123`, `1234`.
pub(crate) fn ms(time: Picoseconds) -> String {
    significant(time.ms())
}

/// Formats a number with at least three significant digits and no exponent.
pub(crate) fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v == 0.0 || v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        _ => 5,
    };
    format!("{value:.digits$}")
}

/// Formats a large number with a unit prefix, as in `8.03B` or `463.9M`.
pub(crate) fn count(n: u64) -> String {
    roofcast::units::human(n as f64, 1e3, &["", "k", "M", "B", "T"]).replace(' ', "")
}

/// Formats a number of things, as in `1 replica` or `2 replicas`.
pub(crate) fn counted(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Formats a fraction as whole percents, as in `62 %`, or below one percent as `0.4 %`: a small fraction is not zero.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.05 => "< 0.1 %".to_owned(),
        p if p > 0.0 && p < 0.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Formats dollars; a dash for `None`.
pub(crate) fn dollars(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |v| format!("{v:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([grouped(7), grouped(1234), grouped(1_234_567)], ["7", "1,234", "1,234,567"]);
        assert_eq!(
            [significant(4.5607), significant(0.01234), significant(1234.5)],
            ["4.56", "0.0123", "1234"]
        );
        assert_eq!(count(8_030_261_248), "8.03B");
        let shares = [0.0, 0.0004, 0.0041, 0.0096, 0.624, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "< 0.1 %", "0.4 %", "1 %", "62 %", "100 %"]);
    }
}
