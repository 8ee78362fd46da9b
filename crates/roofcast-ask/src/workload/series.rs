//! Arrivals at a rate that changes linearly from one point of a series to the next.
//!
//! Knows: the time at which an expected number of arrivals is reached, and the files of such series: aiperf 0.13's
//! `--request-rate-series` (`config/rate_series.py`), and a CSV of the columns `time_s` and `rate`. After its last point the
//! rate stays. Knows nothing about requests.

use super::trace::MOST_SECONDS;
use roofcast_facts::error::{Error, Result, shown};
use serde_json::Value;
use std::sync::Arc;

/// Seconds and requests per second at each point.
pub type Points = Arc<[[f64; 2]]>;

/// Most points of a series.
const MOST_POINTS: usize = 100_000;

/// Most requests per second at a point.
const MOST_RATE: f64 = 1e9;

/// A series with the number of arrivals that are expected up to each point.
#[derive(Debug, Clone)]
pub(super) struct Series {
    points: Points,
    through: Vec<f64>,
}

impl Series {
    pub(super) fn new(points: &Points) -> Series {
        let mut sum = 0.0;
        let mut through = vec![0.0];
        for pair in points.windows(2) {
            let [[from_s, from], [to_s, to]] = [pair[0], pair[1]];
            sum += (to_s - from_s) * f64::midpoint(from, to);
            through.push(sum);
        }
        Series { points: Arc::clone(points), through }
    }

    /// Seconds until the expected number of arrivals is `sum`.
    pub(super) fn time_s(&self, sum: f64) -> f64 {
        let next = self.through.partition_point(|through| *through <= sum);
        let last = next.saturating_sub(1).min(self.points.len() - 1);
        let [from_s, from] = self.points[last];
        let rest = sum - self.through[last];
        match self.points.get(last + 1) {
            // The rate rises from `from` by `slope` per second: from·t + slope·t²/2 = rest.
            Some([to_s, to]) => {
                let slope = (to - from) / (to_s - from_s);
                let root = (from * from + 2.0 * slope * rest).max(0.0).sqrt();
                from_s + 2.0 * rest / (from + root)
            }
            None => from_s + rest / from,
        }
    }

    /// Number of arrivals that are expected up to the last point.
    pub(super) fn total(&self) -> f64 {
        self.through.last().copied().unwrap_or(0.0)
    }
}

/// Mean requests per second from the first point to the last.
pub(super) fn mean(points: &Points) -> f64 {
    let lasts = points.last().map_or(0.0, |last| last[0]);
    let first = points.first().map_or(0.0, |first| first[1]);
    if lasts > 0.0 { Series::new(points).total() / lasts } else { first }
}

/// Number of requests up to the last point; `None` for one point, whose rate has no end.
pub(super) fn expected(points: &Points) -> Option<u64> {
    (points.len() > 1).then(|| Series::new(points).total().round() as u64)
}

/// Most requests, at least 1, that come before a run has lasted as long as it may.
pub(super) fn most_requests(points: &Points) -> u64 {
    let [last_s, rate] = points.last().copied().unwrap_or_default();
    ((Series::new(points).total() + rate * (MOST_SECONDS - 1.0 - last_s)) as u64).max(1)
}

/// Refuses a series that does not begin at 0, does not go forward, or ends without requests.
pub(super) fn check(place: &str, points: &Points) -> Result<()> {
    let sane = |[time, rate]: &[f64; 2]| {
        time.is_finite() && *time <= MOST_SECONDS && (0.0..=MOST_RATE).contains(rate)
    };
    let begins = points.first().is_some_and(|first| first[0] == 0.0);
    let forward = points.windows(2).all(|pair| pair[0][0] < pair[1][0]);
    let ends = points.last().is_some_and(|last| last[1] > 0.0);
    if begins && forward && ends && points.len() <= MOST_POINTS && points.iter().all(sane) {
        return Ok(());
    }
    let accepted = format!(
        "1 to {MOST_POINTS} points [seconds up to 10^7, requests per second up to 10^9], the first at 0 s, each later than the \
         one before, the last rate above 0"
    );
    Err(refusal(place, points, "", &accepted))
}

/// Refuses a series that takes longer than a run may for `requests` requests.
pub(super) fn check_end(place: &str, points: &Points, requests: u64) -> Result<()> {
    if Series::new(points).time_s(requests as f64) <= MOST_SECONDS {
        return Ok(());
    }
    Err(refusal(place, points, "", &format!("all {requests} requests within {MOST_SECONDS} s")))
}

/// Refuses a series that brings no request up to its last point, or more than `most`.
pub(super) fn check_expected(place: &str, points: &Points, most: u64) -> Result<()> {
    check(place, points)?;
    if expected(points).is_none_or(|count| (1..=most).contains(&count)) {
        return Ok(());
    }
    let brings = format!(", which brings {} requests", shown(Series::new(points).total()));
    let accepted = format!("1 to {most} requests up to the last point, or `workload.requests`");
    Err(refusal(place, points, &brings, &accepted))
}

fn refusal(place: &str, points: &Points, reason: &str, accepted: &str) -> Error {
    let pairs: Vec<String> =
        points.iter().take(3).map(|[time, rate]| format!("[{}, {}]", shown(*time), shown(*rate))).collect();
    let more = if points.len() > 3 { ", …" } else { "" };
    let value = format!("[{}{more}]{reason}", pairs.join(", "));
    Error::field(place, "workload.arrivals.points", value, accepted)
}

/// Reads the points of a file: JSON as aiperf writes it, or a CSV; `place` names the file in errors.
///
/// # Errors
/// The text has neither form, or is no series.
pub fn read(place: &str, text: &str) -> Result<Points> {
    let points = match serde_json::from_str::<Value>(text) {
        Ok(value) => of_json(&value),
        Err(_) => of_csv(text),
    };
    let accepted = "[{\"time_s\": 0, \"qps\": 5}, …], the same under \"points\", or a CSV of time_s,rate";
    let wrong = || Error::field(place, "series", text.lines().next().unwrap_or_default(), accepted);
    let points: Points = points.ok_or_else(wrong)?.into();
    check(place, &points)?;
    Ok(points)
}

fn of_json(value: &Value) -> Option<Vec<[f64; 2]>> {
    let list = value.get("points").unwrap_or(value).as_array()?;
    let point = |point: &Value| match point {
        Value::Array(pair) => {
            Some([pair.first()?.as_f64()?, pair.get(1).filter(|_| pair.len() == 2)?.as_f64()?])
        }
        _ => Some([point.get("time_s")?.as_f64()?, point.get("qps").or(point.get("rate"))?.as_f64()?]),
    };
    list.iter().map(point).collect()
}

fn of_csv(text: &str) -> Option<Vec<[f64; 2]>> {
    let mut lines = text.trim_start_matches('\u{feff}').lines().filter(|line| !line.trim().is_empty());
    let header: Vec<&str> = lines.next()?.split(',').map(str::trim).collect();
    let column = |names: [&str; 2]| header.iter().position(|name| names.contains(name));
    let [time, rate] = [column(["time_s", "t"])?, column(["rate", "qps"])?];
    let point = |line: &str| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        Some([cells.get(time)?.parse().ok()?, cells.get(rate)?.parse().ok()?])
    };
    lines.map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 1/s to 3/s over 10 s, 20 arrivals, and down to 1/s over 10 s, 20 more. By 5 s there are 7.5, by 15 s 20 + 12.5;
    /// after 20 s one a second.
    #[test]
    fn a_series_by_hand() {
        let points: Points = [[0.0, 1.0], [10.0, 3.0], [20.0, 1.0]].into();
        let series = Series::new(&points);
        for (sum, time) in [(7.5, 5.0), (20.0, 10.0), (32.5, 15.0), (40.0, 20.0), (43.0, 23.0)] {
            assert!((series.time_s(sum) - time).abs() < 1e-9, "{sum}: {}", series.time_s(sum));
        }
        assert_eq!((mean(&points), mean(&[[0.0, 4.0]].into())), (2.0, 4.0));
        // A pause: nothing comes between 10 s and 20 s.
        let pause = Series::new(&[[0.0, 1.0], [10.0, 0.0], [20.0, 0.0], [30.0, 2.0]].into());
        assert!((pause.time_s(5.0 + 2.5) - (20.0 + 25_f64.sqrt())).abs() < 1e-9, "{}", pause.time_s(7.5));
    }

    /// A ramp is a series of two points. From 1/s to 3/s over 10 s, 20 arrivals are expected in that time, of which 1·5 + 0.2·25/2 =
    /// 7.5 by 5 s; from 3/s to 1/s 12.5 by 5 s; from 0, t²/2 · 0.1 = 0.2 at 2 s.
    #[test]
    fn a_ramp_by_hand() {
        let ramp = |from, to, sum| Series::new(&[[0.0, from], [10.0, to]].into()).time_s(sum);
        for (time, expected) in [
            (ramp(1.0, 3.0, 7.5), 5.0),
            (ramp(1.0, 3.0, 20.0), 10.0),
            (ramp(1.0, 3.0, 26.0), 12.0),
            (ramp(3.0, 1.0, 12.5), 5.0),
            (ramp(0.0, 1.0, 0.2), 2.0),
        ] {
            assert!((time - expected).abs() < 1e-12, "{time} {expected}");
        }
    }

    /// 5 requests at 10^-9/s take 5·10^9 s. From 0 to 10^-4/s in half a second come 2.5·10^-5 requests; at 10^9/s in
    /// 10 s 10^10.
    #[test]
    fn series_without_an_end_or_a_request_are_refused() {
        let series = |points: &[[f64; 2]]| Points::from(points);
        for (points, requests) in
            [(&[[0.0, 1e-9]][..], 5), (&[[0.0, 1e-300]], 1), (&[[0.0, 1.0], [10.0, 1e-9]], 11)]
        {
            let message = check_end("test", &series(points), requests).unwrap_err().to_string();
            assert!(
                message.contains("arrivals.points") && message.contains("within 10000000 s"),
                "{message}"
            );
        }
        assert!(check_end("test", &series(&[[0.0, 1.0], [10.0, 1e-9]]), 5).is_ok());
        for points in [
            &[[0.0, 0.0], [0.5, 0.0], [1.0, 1e-4]][..],
            &[[0.0, 1e9], [10.0, 1e9]],
            &[[0.0, f64::INFINITY], [10.0, 5.0]],
            &[[0.0, 1e308], [10.0, 1e308]],
            &[[0.0, 0.0], [1e308, 1.0]],
        ] {
            let message = check_expected("test", &series(points), 1_000_000_000).unwrap_err().to_string();
            assert!(message.contains("arrivals.points") && message.len() < 400, "{message}");
        }
        assert!(check_expected("test", &series(&[[0.0, 1.0], [1.0, 1.0]]), 10).is_ok());
    }

    #[test]
    fn files_of_series() {
        let expected: Points = [[0.0, 5.0], [60.0, 20.0]].into();
        for text in [
            r#"[{"time_s": 0, "qps": 5}, {"time_s": 60, "qps": 20}]"#,
            r#"{"points": [{"time_s": 0, "qps": 5.0}, {"time_s": 60.0, "qps": 20}]}"#,
            "[[0, 5], [60, 20]]",
            "time_s,rate\n0,5\n60,20\n",
            "rate, time_s\n5, 0\n20, 60\n",
        ] {
            assert_eq!(read("f", text).unwrap(), expected, "{text}");
        }
        for wrong in [
            "",
            "{}",
            "a,b\n1,2",
            "[[0, 1, 2]]",
            "[[1, 5]]",
            "[[0, 5], [0, 6]]",
            "[[0, 5], [9, 0]]",
            "[[0, -1]]",
        ] {
            let error = read("f.json", wrong).unwrap_err().to_string();
            assert!(error.contains("f.json"), "{wrong}: {error}");
        }
    }
}
