//! Rows that cannot be what they say they are, and are judged but not fitted.
//!
//! Knows: a row 100 times over its limit has a wrong unit, and of two rows that agree in every column and differ by more than
//! 1.8 times the slower one is of another model, or was disturbed. Knows nothing about forecasts.

use super::Fitted;
use super::levels::targets;
use crate::measurement::Measurement;
use std::collections::BTreeMap;

/// Times of its limit above which a row's unit is wrong.
const UNIT: f64 = 100.0;
/// Times of the fastest of the same rows above which a row is something else; repeated runs differ by 1.14 (p90, TTFT).
const OTHER: f64 = 1.8;

/// For each row whether it contradicts its limit or another row.
pub(super) fn contradicted(rows: &[Fitted]) -> Vec<bool> {
    let mut fastest: BTreeMap<(String, usize), f64> = BTreeMap::new();
    for fitted in rows {
        let said = said(fitted.row);
        for (metric, time) in times(fitted) {
            let least = fastest.entry((said.clone(), metric)).or_insert(time);
            *least = least.min(time);
        }
    }
    let wrong = |fitted: &Fitted| {
        let said = said(fitted.row);
        times(fitted).any(|(metric, time)| {
            let slow = |least: &f64| time > OTHER * least;
            time > UNIT || fastest.get(&(said.clone(), metric)).is_some_and(slow)
        })
    };
    rows.iter().map(wrong).collect()
}

/// Times of the limit that the row takes, by metric.
fn times<'a>(fitted: &'a Fitted) -> impl Iterator<Item = (usize, f64)> + 'a {
    /// From which metric on more is faster.
    const THROUGHPUT: usize = 3;
    targets(fitted.row).into_iter().filter_map(|(metric, _)| {
        let (measured, limit) = fitted.row.measured.all()[metric].zip(fitted.limit.all()[metric])?;
        let times = if metric < THROUGHPUT { measured / limit } else { limit / measured };
        (times.is_finite() && times > 0.0).then_some((metric, times))
    })
}

/// Everything that a row says but what was measured, its name and the page it stands on.
fn said(row: &Measurement) -> String {
    format!(
        "{} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        row.group(),
        row.kind,
        row.parallelism,
        row.version,
        [row.input, row.output],
        [row.context, row.concurrency],
        (&row.kv, row.request_rate),
        row.settings,
    )
}
