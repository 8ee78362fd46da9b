//! A run by intervals of its time, and whether its latencies have settled.
//!
//! Knows: records in order of their sending. Pure. Knows nothing about how requests were sent.

use roofcast::record::{Outcome, Record};
use roofcast::sampling::BatchMeans;
use roofcast::summary::Statistics;
use roofcast::units::Picoseconds;
use serde::Serialize;

/// Most intervals of a run.
const MOST: u64 = 10_000;

/// The requests that were sent in one interval of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Slice {
    /// Begin of the interval, in seconds from the start of the run.
    pub(crate) start_s: f64,
    /// End of the interval.
    pub(crate) end_s: f64,
    /// Number of requests that were sent in it and completed.
    pub(crate) completed: u64,
    /// Mean time to first token in milliseconds; `null` without one.
    pub(crate) mean_ttft_ms: Option<f64>,
    /// 99th percentile of the time to first token in milliseconds.
    pub(crate) p99_ttft_ms: Option<f64>,
    /// Mean time per output token in milliseconds.
    pub(crate) mean_tpot_ms: Option<f64>,
    /// Mean end-to-end latency in milliseconds.
    pub(crate) mean_e2el_ms: Option<f64>,
    /// Output tokens of the answers that ended in the interval, per second.
    pub(crate) output_throughput: f64,
}

/// `records` by intervals of `length_s` seconds.
pub(super) fn slices(records: &[Record], length_s: f64) -> Vec<Slice> {
    let end = records.iter().map(|r| r.finished.seconds()).fold(0.0, f64::max);
    let count = ((end / length_s).ceil() as u64).min(MOST);
    let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
    let slice = |index: u64| {
        let [start_s, end_s] = [index, index + 1].map(|n| n as f64 * length_s);
        let within = |at: Picoseconds| (start_s..end_s).contains(&at.seconds());
        let sent: Vec<&Record> = done().filter(|r| within(r.sent)).collect();
        let of = |time: fn(&Record) -> Option<Picoseconds>| {
            Statistics::of(&mut sent.iter().filter_map(|r| Some(time(r)?.ms())).collect::<Vec<_>>())
        };
        let ttft = of(Record::ttft);
        let tokens: u64 = done().filter(|r| within(r.finished)).map(|r| r.output_len).sum();
        Slice {
            start_s,
            end_s,
            completed: sent.len() as u64,
            mean_ttft_ms: ttft.figure(|s| s.mean),
            p99_ttft_ms: ttft.figure(|s| s.p99),
            mean_tpot_ms: of(Record::tpot).figure(|s| s.mean),
            mean_e2el_ms: of(|r| Some(r.e2el())).figure(|s| s.mean),
            output_throughput: tokens as f64 / length_s,
        }
    };
    (0..count).map(slice).collect()
}

/// A time of a request, if it has one.
type TimeOfRecord = fn(&Record) -> Option<Picoseconds>;

/// Remarks on the sampling error of `records`: means that so few requests leave open, a change over the run, a 99th percentile that
/// rests on few values.
pub(super) fn remarks(records: &[Record]) -> Vec<String> {
    let done: Vec<&Record> = records.iter().filter(|r| r.outcome == Outcome::Completed).collect();
    let metrics: [(&str, TimeOfRecord); 3] =
        [("TTFT", Record::ttft), ("TPOT", Record::tpot), ("E2EL", |r| Some(r.e2el()))];
    let mut remarks = Vec::new();
    let mut tails = Vec::new();
    for (name, time) in metrics {
        let times: Vec<Picoseconds> = done.iter().filter_map(|r| time(r)).collect();
        let mut batches = BatchMeans::of(times.len() as u64);
        (0..).zip(&times).for_each(|(number, time)| batches.add(number, time.0));
        let mut sorted: Vec<f64> = times.iter().map(|time| time.ms()).collect();
        sorted.sort_by(f64::total_cmp);
        let statistics = Statistics::of(&mut sorted.clone());
        let quantile = |share: f64| {
            let rank = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
            sorted.get(rank).copied().unwrap_or(0.0)
        };
        let Some(error) = batches.error(&statistics, quantile) else { continue };
        if !batches.settled() {
            let halves = times.split_at(times.len() / 2);
            let mean = |part: &[Picoseconds]| {
                part.iter().map(|time| time.ms()).sum::<f64>() / part.len().max(1) as f64
            };
            remarks.push(format!(
                "{name} has not settled: {:.1} ms on average in the first half of the requests, {:.1} in the second; more \
                 requests, or a --warmup, tell what lasts",
                mean(halves.0),
                mean(halves.1)
            ));
        } else if let Some(requests) = error.requests_for_p99 {
            tails.push((requests, name, error.tail(|ms| format!("{ms:.1}"))));
        }
    }
    if let Some((requests, name, tail)) = tails.into_iter().max_by_key(|(requests, ..)| *requests) {
        remarks.push(format!(
            "too short for its 99th percentiles: that of {name} would be {tail} in 8 of 10 such runs; about \
             {requests} requests give it within 10 %"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests once a second, whose first token comes after `ttft` ms and whose ten further tokens after 100 ms more.
    fn records(ttft: impl Fn(u64) -> u64, count: u64) -> Vec<Record> {
        let ms = |ms: u64| Picoseconds(ms * 1_000_000_000);
        let record = |id: u64| Record {
            id,
            outcome: Outcome::Completed,
            input_len: 10,
            output_len: 11,
            scheduled: ms(1000 * id),
            sent: ms(1000 * id),
            first_token: Some(ms(1000 * id + ttft(id))),
            finished: ms(1000 * id + ttft(id) + 100),
            itl: Vec::new(),
            cached_tokens: 0,
            preemptions: 0,
            replica: 0,
            error: None,
        };
        (0..count).map(record).collect()
    }

    /// Ten requests, one a second, in intervals of 4 s: four, four and two; the last answer ends at 9.15 s. Eleven tokens each: 44, 44
    /// and 22 tokens in 4 s are 11, 11 and 5.5 a second.
    #[test]
    fn a_run_is_divided_by_the_time_of_sending() {
        let slices = slices(&records(|_| 50, 10), 4.0);
        assert_eq!(slices.iter().map(|s| s.completed).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(slices.iter().map(|s| s.output_throughput).collect::<Vec<_>>(), [11.0, 11.0, 5.5]);
        let last = &slices[2];
        assert_eq!((last.start_s, last.end_s, last.mean_ttft_ms), (8.0, 12.0, Some(50.0)));
        assert_eq!((last.mean_tpot_ms, last.mean_e2el_ms), (Some(10.0), Some(150.0)));
    }

    #[test]
    fn a_run_that_grows_has_not_settled() {
        let grows = remarks(&records(|id| 50 + id, 200));
        assert!(
            grows[0].starts_with("TTFT has not settled: 99.5 ms on average in the first half"),
            "{grows:?}"
        );
        assert_eq!(remarks(&records(|_| 50, 200)), Vec::<String>::new());
    }
}
