//! Azure's public traces (github.com/Azure/AzurePublicDataset): `TIMESTAMP,ContextTokens,GeneratedTokens`, with times
//! as dates like `2023-11-16 18:17:03.9799600`, with or without an offset like `+00:00`; the trace of multimodal requests
//! has `NumImages`.

use super::{Recording, csv, plain};
use roofcast_facts::error::Result;
use roofcast_facts::units::Picoseconds;

const COLUMNS: [&str; 4] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens", "NumImages"];
/// Most images of a request.
const MOST_IMAGES: u64 = 1000;
const TENTHS_OF_MICROSECONDS: i64 = 10_000_000;

pub(super) fn read(text: &str, recording: &mut Recording) -> Result<()> {
    let mut first = None;
    csv::rows(text, &COLUMNS, 3, recording, |row, recording| {
        let written = row.text(0).unwrap_or_default();
        let Some(time) = date(written) else {
            let shown: String = written.chars().take(40).collect();
            let message =
                format!("`TIMESTAMP` is {shown:?}; accepted: a time as 2023-11-16 18:17:03.9799600");
            return Err(recording.error(row.line, row.column(0), message));
        };
        let since = time - *first.get_or_insert(time);
        // A time before the first row's is out of order, which is reported as an error of the column.
        let Ok(ticks) = u64::try_from(since) else {
            let message = format!("`TIMESTAMP` is {written}, before the first row; expected times in order");
            return Err(recording.error(row.line, row.column(0), message));
        };
        recording.seconds(
            row.line,
            row.column(0),
            "TIMESTAMP",
            ticks as f64 / TENTHS_OF_MICROSECONDS as f64,
        )?;
        let at = Picoseconds(ticks * 100_000);
        if row.text(3).is_some() {
            recording.images += row.value::<u64>(3, "a number of images", recording)?.min(MOST_IMAGES);
        }
        let request = plain(at, row.tokens(1, recording)?, row.tokens(2, recording)?);
        recording.add(row.line, request)
    })
}

/// Seconds since 1970 of a date with a time; `None` for other text.
pub(super) fn seconds(text: &str) -> Option<f64> {
    date(text.strip_suffix('Z').unwrap_or(text)).map(|ticks| ticks as f64 / TENTHS_OF_MICROSECONDS as f64)
}

/// Tenths of microseconds since 1970; `None` for text that is not a date.
fn date(text: &str) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let (day, clock) = text.split_once([' ', 'T'])?;
    let mut parts = day.splitn(3, '-').map(|part| whole(part, 4));
    let year = parts.next()??;
    let month = parts.next()??;
    let day = parts.next()??;
    let (clock, offset) = split_offset(clock)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.splitn(3, ':').map(|part| whole(part, 2));
    let hour = parts.next()??;
    let minute = parts.next()??;
    let second = parts.next()??;
    let valid = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(seconds * TENTHS_OF_MICROSECONDS + ticks(fraction)?)
}

/// The time of day, and its offset from UTC in seconds.
fn split_offset(clock: &str) -> Option<(&str, i64)> {
    let clock = clock.strip_suffix('Z').unwrap_or(clock);
    let Some(at) = clock.find(['+', '-']) else { return Some((clock, 0)) };
    let (time, offset) = clock.split_at(at);
    let (hours, minutes) = offset[1..].split_once(':')?;
    let seconds = whole(hours, 2)? * 3600 + whole(minutes, 2)? * 60;
    Some((time, if offset.starts_with('-') { -seconds } else { seconds }))
}

/// Digits after the decimal point, as tenths of microseconds; further digits are cut.
fn ticks(fraction: &str) -> Option<i64> {
    let digits = whole(fraction.get(..7).unwrap_or(fraction), 7)?;
    let finer = fraction.get(7..).unwrap_or_default();
    let plain = finer.len() <= 12 && finer.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits * 10_i64.pow(7 - fraction.len().min(7) as u32))
}

/// The value of a text of 1 to `most` digits; `None` for other texts.
fn whole(text: &str, most: usize) -> Option<i64> {
    let digits = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_hand() {
        assert_eq!((days(1970, 1, 1), days(1970, 12, 31), days(1971, 1, 1)), (0, 364, 365));
        // 30 years with the leap years 1972 to 1996: 30 · 365 + 7 = 10957. From January to March of 2000 there are 31 +
        // 29 days.
        assert_eq!((days(2000, 1, 1), days(2000, 2, 29), days(2000, 3, 1)), (10_957, 11_016, 11_017));
        // One day and 1.5 s.
        assert_eq!(date("1970-01-02 00:00:01.5"), Some(864_015_000_000));
        assert_eq!(date("1970-01-02T01:00:01.5000000+01:00"), Some(864_015_000_000));
        for bad in
            ["", "1970-01-02", "1970-13-02 00:00:00", "1970-01-02 24:00:00", "1970-01-02 00:00:00.x", "é"]
        {
            assert_eq!(date(bad), None, "{bad}");
        }
    }
}
