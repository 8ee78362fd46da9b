//! The date of a run, in the format of vLLM's client.
//!
//! Knows: the civil calendar. Dates are in UTC, whatever the machine's time zone.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Formats a date and time, as in `20261121-022750`.
pub(super) fn of(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let (year, month, day) = civil(seconds / DAY);
    let hour = seconds % DAY / 3600;
    let minute = seconds % 3600 / 60;
    let second = seconds % 60;
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of the date `day` days after 1970-01-01.
fn civil(mut day: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    let leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_days() {
        for (seconds, date) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_735_689_600, "20250101-000000"),
            (1_795_228_070, "20261121-022750"),
        ] {
            assert_eq!(of(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }
}
