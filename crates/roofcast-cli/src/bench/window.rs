//! The part of a run that counts, and the load that was actually offered in it.
//!
//! Knows: which records are warm-up and cool-down, the number of requests in flight, and their rate. Pure.

use roofcast::record::{Outcome, Record};
use roofcast::units::Picoseconds;
use serde::Serialize;
use std::collections::BTreeMap;

/// Warm-up and cool-down: requests at either end of a run that do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Window {
    /// Requests excluded at the start.
    pub(crate) warmup: u64,
    /// Requests excluded at the end.
    pub(crate) cooldown: u64,
    /// Seconds of the schedule excluded at the start.
    pub(crate) warmup_s: f64,
    /// Seconds of the schedule excluded at the end.
    pub(crate) cooldown_s: f64,
}

impl Window {
    /// The records that count, out of `records`, which are in order of the schedule.
    pub(super) fn of<'a>(&self, records: &'a [Record]) -> &'a [Record] {
        let first = records.first().map_or(0.0, |r| r.scheduled.seconds()) + self.warmup_s;
        let end = records.last().map_or(0.0, |r| r.scheduled.seconds()) - self.cooldown_s;
        let early = records.partition_point(|r| r.scheduled.seconds() < first);
        let inside = records.partition_point(|r| r.scheduled.seconds() <= end);
        let last = records.len().saturating_sub(self.cooldown as usize).min(inside);
        records.get((self.warmup as usize).max(early)..last).unwrap_or_default()
    }
}

/// Time in flight of a request: from its sending to the end of its answer, which may be later than its last token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flown {
    pub(super) sent: Picoseconds,
    pub(super) ended: Picoseconds,
}

/// Mean number of requests in flight while all `users` were active: from the time by which each user had sent a request,
/// and not before `warmup_s` seconds of the run, to the sending of the last request. If this interval is empty, the peak.
pub(super) fn concurrency(flown: &[Flown], users: u64, warmup_s: f64) -> f64 {
    let mut sent: Vec<u64> = flown.iter().map(|f| f.sent.0).collect();
    sent.sort_unstable();
    let users = (users as usize).clamp(1, sent.len().max(1));
    let (Some(&from), Some(&to)) = (sent.get(users - 1), sent.last()) else { return 0.0 };
    let warm = sent.first().map_or(0, |first| first + Picoseconds::from_seconds(warmup_s).0);
    let from = from.max(warm);
    if to <= from {
        return peak_concurrency(flown) as f64;
    }
    let overlap = |f: &Flown| f.ended.0.min(to).saturating_sub(f.sent.0.max(from));
    let busy: u128 = flown.iter().map(|f| u128::from(overlap(f))).sum();
    busy as f64 / (to - from) as f64
}

/// Peak number of requests in flight.
pub(super) fn peak_concurrency(flown: &[Flown]) -> u64 {
    // An end sorts before a start at an equal time, so that back-to-back requests do not overlap.
    let ends = flown.iter().map(|f| (f.ended.0, -1));
    let mut turns: Vec<(u64, i64)> = flown.iter().map(|f| (f.sent.0, 1)).chain(ends).collect();
    turns.sort_unstable();
    let mut now = 0;
    let mut peak = 0;
    for (_, step) in turns {
        now += step;
        peak = peak.max(now);
    }
    peak as u64
}

/// Largest number of chunks with tokens that were read within one second of the run.
pub(super) fn peak_tokens_per_s(records: &[Record]) -> u64 {
    const SECOND: u64 = 1_000_000_000_000;
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    for record in records {
        let Some(first) = record.first_token else { continue };
        let mut at = first.0;
        *seconds.entry(at / SECOND).or_default() += 1;
        for gap in &record.itl {
            at = at.saturating_add(gap.0);
            *seconds.entry(at / SECOND).or_default() += 1;
        }
    }
    seconds.into_values().max().unwrap_or(0)
}

/// Gaps between chunks at one range of positions in the answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Position {
    /// First gap of the range; gaps of an answer count from 1.
    pub(crate) from: u64,
    /// Number of the last gap.
    pub(crate) to: u64,
    /// Number of gaps.
    pub(crate) gaps: u64,
    /// Mean of the gaps in milliseconds.
    pub(crate) mean_ms: f64,
}

/// Gaps by their position in the answers, in at most 32 ranges.
pub(super) fn by_position(records: &[Record]) -> Vec<Position> {
    const MOST_PARTS: usize = 32;
    let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
    let width = done().map(|r| r.itl.len()).max().unwrap_or(0).div_ceil(MOST_PARTS).max(1);
    let mut parts: Vec<(u64, u128)> = Vec::new();
    for record in done() {
        for (index, gaps) in record.itl.chunks(width).enumerate() {
            if parts.len() == index {
                parts.push((0, 0));
            }
            if let Some((count, sum)) = parts.get_mut(index) {
                *count += gaps.len() as u64;
                *sum += gaps.iter().map(|g| u128::from(g.0)).sum::<u128>();
            }
        }
    }
    let part = |(index, (gaps, sum)): (usize, (u64, u128))| Position {
        from: (index * width) as u64 + 1,
        to: ((index + 1) * width) as u64,
        gaps,
        mean_ms: sum as f64 / gaps as f64 / 1e9,
    };
    parts.into_iter().enumerate().map(part).collect()
}

/// Requests per second between the first and the last `time`; `None` if these are equal.
pub(super) fn rate(records: &[Record], time: impl Fn(&Record) -> Picoseconds) -> Option<f64> {
    let first = records.iter().map(&time).min()?;
    let last = records.iter().map(&time).max()?;
    let span = last.seconds() - first.seconds();
    (span > 0.0).then(|| (records.len() - 1) as f64 / span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u64, sent: u64, finished: u64) -> Record {
        let line = format!(
            r#"{{"id":{id},"outcome":"completed","input_len":1,"output_len":1,"scheduled_ms":{sent},"sent_ms":{sent},"finished_ms":{finished}}}"#
        );
        Record::from_line("test", &line).unwrap()
    }

    #[test]
    fn concurrency_by_hand() {
        // Two users, with requests 0–10 then 10–30, and 0–20 then 25–30. Both have sent at 0; the last request is sent
        // at 25. In these 25 the users are busy for 10 + 15 and 20 + 0.
        let flown = [(0, 10), (0, 20), (10, 30), (25, 30)]
            .map(|(sent, ended)| Flown { sent: Picoseconds(sent), ended: Picoseconds(ended) });
        assert!((concurrency(&flown, 2, 0.0) - 45.0 / 25.0).abs() < 1e-9);
        // After a warm-up of 15 ps they are busy for 10 and 5 of 10.
        assert!((concurrency(&flown, 2, 15e-12) - 1.5).abs() < 1e-9);
        assert_eq!(peak_concurrency(&flown), 2);
        // All requests are sent at one time, so the interval is empty.
        assert_eq!(concurrency(&flown[..2], 2, 0.0), 2.0);
        assert_eq!((concurrency(&[], 2, 0.0), peak_concurrency(&[])), (0.0, 0));
        // 3 gaps in 25 ms.
        let records = [record(0, 0, 10), record(1, 0, 20), record(2, 10, 30), record(3, 25, 30)];
        assert!((rate(&records, |r| r.sent).unwrap() - 120.0).abs() < 1e-9);
        assert_eq!(rate(&records[..2], |r| r.sent), None);
    }

    #[test]
    fn tokens_of_a_second() {
        let mut late = record(0, 0, 2500);
        // At 0.9, 0.95, 1.1, 1.2 and 1.3 s: two chunks in the first second, three in the next.
        late.first_token = Some(Picoseconds(900_000_000_000));
        late.itl = [50, 150, 100, 100].map(|ms| Picoseconds(ms * 1_000_000_000)).to_vec();
        assert_eq!(peak_tokens_per_s(&[record(1, 0, 1), late]), 3);
    }

    #[test]
    fn gaps_along_the_answers() {
        let with = |gaps: &[u64]| {
            let mut record = record(0, 0, 1);
            record.itl = gaps.iter().map(|ms| Picoseconds(ms * 1_000_000_000)).collect();
            record
        };
        // The mean of the first gaps is (1 + 3)/2, of the second (2 + 6)/2; only one answer has a third.
        let short_answers = by_position(&[with(&[1, 2]), with(&[3, 6, 9])]);
        assert_eq!(
            short_answers.iter().map(|p| (p.from, p.gaps, p.mean_ms)).collect::<Vec<_>>(),
            [(1, 2, 2.0), (2, 2, 4.0), (3, 1, 9.0)]
        );
        // 33 gaps give 16 ranges of two and one of one.
        let positions = by_position(&[with(&(0..33).collect::<Vec<_>>())]);
        assert_eq!(
            (positions.len(), positions[16].from, positions[16].gaps, positions[16].mean_ms),
            (17, 33, 1, 32.0)
        );
        assert_eq!(by_position(&[]), []);
    }

    #[test]
    fn the_ends_are_cut_off() {
        let records: Vec<_> = (0..5).map(|id| record(id, id, id + 1)).collect();
        let ids = |warmup, cooldown| {
            Window { warmup, cooldown, ..Window::default() }
                .of(&records)
                .iter()
                .map(|r| r.id)
                .collect::<Vec<_>>()
        };
        // Scheduled at 0, 1, 2, 3 and 4 ms: the warm-up of 1.5 ms removes two, the cool-down of 1 ms the last.
        let timed = Window { warmup_s: 0.0015, cooldown_s: 0.001, ..Window::default() };
        assert_eq!(timed.of(&records).iter().map(|r| r.id).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((ids(1, 2), ids(0, 0).len(), ids(4, 1), ids(9, 9)), (vec![1, 2], 5, vec![], vec![]));
    }
}
