//! The picture of a run, simulated or measured: cumulative distributions of latencies, and requests and KV cache over
//! time.

use super::chart::{Axis, Chart, INK, LegendSample, Marker, Stroke, Unit, page, shown};
use roofcast_ask::spec::{Metric, Slo, SloBound};
use roofcast_ask::summary::Statistics;
use roofcast_facts::record::{Outcome, Record};
use roofcast_facts::units::Picoseconds;
use roofcast_sim::simulate::Simulation;
use roofcast_sim::timeline::series::SeriesPoint;

/// Number of points of a cumulative curve.
const SHARES: usize = 400;
/// Most intervals of a level over time; if a run has more, each drawn interval shows the mean and the range of several.
const INTERVALS: usize = 120;

/// Picture of a simulated run: latencies above; below, requests and KV cache of all replicas, if levels over time were
/// recorded.
pub fn svg(title: &str, question: &str, simulation: &Simulation, slo: &Slo) -> String {
    let s = &simulation.summary;
    let bounds = Metric::ALL.map(|metric| slo.of(metric).next());
    let statistics = [&s.ttft, &s.tpot, &s.e2el];
    let curve = |(((name, sample), statistics), slo): (((&str, _), _), _)| {
        let sample: &roofcast_sim::fleet::results::Sample = sample;
        Latency { name: name.to_uppercase(), shares: sample.shares(SHARES), statistics, slo }
    };
    let all = simulation.latencies.iter().map(|(name, sample)| (*name, sample));
    let curves: Vec<Latency> = all.zip(statistics).zip(bounds).map(curve).collect();
    let note =
        format!("{question}; {} simulated requests in {}", s.completed, shown(s.duration, Unit::Seconds));
    let mut charts = vec![latencies(title, &note, &curves)];
    if let Some(end) = simulation.series.iter().flatten().map(|p| p.end_ms).max_by(f64::total_cmp) {
        charts.extend([queue(simulation, end / 1e3), cache(simulation, end / 1e3)]);
    }
    page(&charts)
}

/// Picture of measured requests: latencies above, requests in flight below. `forecast` holds the forecast medians of
/// TTFT and TPOT in ms; `None` where the forecast has none.
pub fn measured(title: &str, records: &[Record], slo: &Slo, forecast: Option<[Option<f64>; 2]>) -> String {
    let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
    let latency = |name: &str, times: Vec<Option<Picoseconds>>, slo| {
        let mut ms: Vec<f64> = times.into_iter().flatten().map(Picoseconds::ms).collect();
        let statistics = Statistics::of(&mut ms);
        ms.sort_by(f64::total_cmp);
        let shares = ms.iter().enumerate().map(|(i, v)| (*v, (i + 1) as f64 / ms.len() as f64)).collect();
        (name.to_owned(), shares, statistics, slo)
    };
    let all = [
        latency("TTFT", done().map(Record::ttft).collect(), slo.of(Metric::Ttft).next()),
        latency("TPOT", done().map(Record::tpot).collect(), slo.of(Metric::Tpot).next()),
        latency("E2EL", done().map(|r| Some(r.e2el())).collect(), slo.of(Metric::E2el).next()),
    ];
    let curves: Vec<Latency> = all
        .iter()
        .map(|(name, shares, statistics, slo)| Latency {
            name: name.clone(),
            shares: Vec::clone(shares),
            statistics,
            slo: *slo,
        })
        .collect();
    let note = format!("{} measured requests, {} of them completed", records.len(), done().count());
    let mut above = latencies(title, &note, &curves);
    let forecasts = forecast.into_iter().flatten().enumerate();
    for (series, ms) in forecasts.filter_map(|(series, ms)| Some((series, ms?))) {
        above.point(
            (ms, 0.5),
            Marker::hollow(series),
            &format!("forecast {}", shown(ms, Unit::Milliseconds)),
        );
        above.label((ms, 0.5), "forecast", series);
    }
    page(&[above, in_flight(records)])
}

/// Cumulative distribution of one latency over the requests.
struct Latency<'a> {
    name: String,
    shares: Vec<(f64, f64)>,
    statistics: &'a Statistics,
    slo: Option<SloBound>,
}

/// The fraction of requests within each latency, with medians, 99th percentiles and SLO bounds.
fn latencies(title: &str, note: &str, curves: &[Latency]) -> Chart {
    let there = || curves.iter().enumerate().filter(|(_, curve)| !curve.shares.is_empty());
    // Leave room for a label left of the fastest request.
    let room = |c: &Latency| c.shares.first().map(|(ms, _)| ms / 2.0);
    let times = there()
        .flat_map(|(_, c)| c.shares.iter().map(|(ms, _)| *ms).chain(c.slo.map(|b| b.ms)).chain(room(c)));
    let x = Axis::around("latency", Unit::Milliseconds, times);
    let y = Axis::to("share of requests within a latency", Unit::Share, 1.02);
    let mut chart = Chart::new(title, note, x, y);
    for (series, curve) in there() {
        chart.steps(&curve.shares, series, Stroke::Solid);
        chart.key(LegendSample::Line(series, Stroke::Solid), &curve.name);
        if let Some(bound) = curve.slo {
            let text = format!("SLO: {} {}", bound.name(), shown(bound.ms, Unit::Milliseconds));
            chart.upright(bound.ms, &text, series);
        }
    }
    for (name, share) in [("p99", 0.99), ("p50", 0.5)] {
        for (series, curve) in there() {
            let ms = if share > 0.5 { curve.statistics.p99 } else { curve.statistics.median };
            let text = format!("{name} {}", shown(ms, Unit::Milliseconds));
            chart.point((ms, share), Marker::filled(series), &format!("{} {text}", curve.name));
            chart.label((ms, share), &text, series);
        }
    }
    chart
}

/// Chart of running and waiting requests, summed over replicas.
fn queue(simulation: &Simulation, end: f64) -> Chart {
    let sum = |of: fn(&SeriesPoint) -> f64| over_time(simulation, |points| points.iter().map(of).sum());
    let levels = [("running", sum(|p| p.running)), ("waiting", sum(|p| p.waiting))];
    over("Requests", "requests", Unit::Plain, end, None, &levels)
}

/// Chart of the fraction of KV blocks in use: mean over replicas, and the fullest replica.
fn cache(simulation: &Simulation, end: f64) -> Chart {
    let share = |blocks: f64| blocks / simulation.kv_cache.blocks as f64;
    let replicas = simulation.series.len();
    let mean =
        over_time(simulation, |points| share(points.iter().map(|p| p.blocks).sum::<f64>() / replicas as f64));
    let mut levels = vec![("mean of the replicas", mean)];
    if replicas > 1 {
        let fullest = |points: &[SeriesPoint]| share(points.iter().map(|p| p.blocks).fold(0.0, f64::max));
        levels.push(("the fullest", over_time(simulation, fullest)));
    }
    over("KV cache", "share of the blocks held", Unit::Share, end, Some(1.0), &levels)
}

/// Chart of the requests that were sent and not yet answered.
fn in_flight(records: &[Record]) -> Chart {
    let mut events: Vec<(f64, f64)> =
        records.iter().flat_map(|r| [(r.sent.seconds(), 1.0), (r.finished.seconds(), -1.0)]).collect();
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let start = events.first().map_or(0.0, |e| e.0);
    let mut level = 0.0;
    let mut spans = Vec::new();
    for (index, (at, change)) in events.iter().enumerate() {
        level += change;
        let next = events.get(index + 1).map_or(*at, |e| e.0);
        spans.push(Level { start: at - start, end: next - start, value: level });
    }
    let end = spans.last().map_or(1.0, |s| s.end);
    over("Requests", "requests in flight", Unit::Plain, end, None, &[("in flight", spans)])
}

/// A level that holds from one time to another, in seconds.
#[derive(Clone, Copy)]
struct Level {
    start: f64,
    end: f64,
    value: f64,
}

/// Draws levels over time: the mean as a line, and the range as a band if an interval of the picture has several
/// values.
fn over(
    title: &str,
    unit_title: &str,
    unit: Unit,
    end: f64,
    most: Option<f64>,
    levels: &[(&str, Vec<Level>)],
) -> Chart {
    let y = match most {
        Some(most) => Axis::to(unit_title, unit, most),
        None => {
            let highest = levels.iter().flat_map(|(_, spans)| spans).map(|s| s.value).fold(0.0, f64::max);
            Axis::to(unit_title, unit, highest * 1.06)
        }
    };
    let x = Axis::to("time since the first request", Unit::Seconds, end);
    let mut chart = Chart::new(title, "", x, y).low();
    let mut ranged = false;
    for (series, (name, spans)) in levels.iter().enumerate() {
        let bins = binned(spans, end);
        if spans.len() > INTERVALS {
            chart.band(&bins.iter().map(|b| (b.at, b.least, b.most)).collect::<Vec<_>>(), series);
            ranged = true;
        }
        chart.line(bins.iter().map(|b| (b.at, b.mean)).collect(), series, Stroke::Solid);
        chart.key(LegendSample::Line(series, Stroke::Solid), name);
    }
    if ranged {
        chart.key(LegendSample::Band(INK), "range within an interval");
    }
    chart
}

/// Mean and range of a level within an interval of the picture.
#[derive(Debug, PartialEq)]
struct Bin {
    at: f64,
    least: f64,
    mean: f64,
    most: f64,
}

/// At most [`INTERVALS`] bins up to `end`. A bin covers all levels that overlap it; its mean is weighted by the
/// overlap.
fn binned(spans: &[Level], end: f64) -> Vec<Bin> {
    let count = spans.len().clamp(1, INTERVALS);
    let width = end / count as f64;
    let mut all: Vec<(f64, f64, f64, f64)> = vec![(f64::INFINITY, 0.0, 0.0, f64::NEG_INFINITY); count];
    for span in spans {
        let bin = |t: f64| ((t / width) as usize).min(count - 1);
        for (index, entry) in all.iter_mut().enumerate().take(bin(span.end) + 1).skip(bin(span.start)) {
            let from = index as f64 * width;
            let to = (index + 1) as f64 * width;
            let part = span.end.min(to) - span.start.max(from);
            if part > 0.0 {
                entry.0 = entry.0.min(span.value);
                entry.1 += span.value * part;
                entry.2 += part;
                entry.3 = entry.3.max(span.value);
            }
        }
    }
    let bin = |(index, (least, area, time, most)): (usize, (f64, f64, f64, f64))| {
        (time > 0.0).then(|| Bin { at: (index as f64 + 0.5) * width, least, mean: area / time, most })
    };
    all.into_iter().enumerate().filter_map(bin).collect()
}

/// A level of all replicas in each interval; `of` computes it from the replicas' points.
fn over_time(simulation: &Simulation, of: impl Fn(&[SeriesPoint]) -> f64) -> Vec<Level> {
    let count = simulation.series.first().map_or(0, Vec::len);
    let interval = |index: usize| {
        let points: Vec<SeriesPoint> = simulation.series.iter().map(|replica| replica[index]).collect();
        let SeriesPoint { start_ms, end_ms, .. } = points[0];
        Level { start: start_ms / 1e3, end: end_ms / 1e3, value: of(&points) }
    };
    (0..count).map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 240 intervals of one second, 0 and 10 in turn, become 120 bins of two seconds each: range 0 to 10, mean 5.
    #[test]
    fn many_intervals_become_trend_and_range() {
        let spans: Vec<Level> = (0..240)
            .map(|i| Level { start: f64::from(i), end: f64::from(i + 1), value: f64::from(i % 2 * 10) })
            .collect();
        let bins = binned(&spans, 240.0);
        assert_eq!(bins.len(), 120);
        assert_eq!(bins[1], Bin { at: 3.0, least: 0.0, mean: 5.0, most: 10.0 });
    }

    /// 3 for one second and 7 for three: mean (3 + 21)/4 = 6. In two bins of two seconds: (3 + 7)/2 = 5, and 7.
    #[test]
    fn intervals_count_by_their_time() {
        let spans = [Level { start: 0.0, end: 1.0, value: 3.0 }, Level { start: 1.0, end: 4.0, value: 7.0 }];
        let means: Vec<f64> = binned(&spans, 4.0).iter().map(|b| b.mean).collect();
        assert_eq!(means, [5.0, 7.0]);
    }
}
