//! Measured points for people and as CSV.

use super::baseline::Baseline;
use super::{Beside, Point, Subject};
use crate::args::BenchArgs;
use crate::bench::classes::ClassReport;
use crate::bench::energy::Energy;
use crate::bench::report::Report;
use crate::bench::scrape::ServerMetrics;
use crate::bench::slices::Slice;
use crate::show::column::{Column, Columns, Figure};
use crate::show::number::{grouped, percent, significant};
use crate::show::{self, table};
use crate::verbs::assumed;
use anyhow::Result;
use roofcast::bands::Span;
use roofcast::measurement::results::KEYS;
use roofcast::summary::Statistics;

/// Columns of one run or several.
pub(super) const COLUMNS: &[Column<Point>] = &[
    Column::csv("completed", |p| Figure::Count(p.report.summary.completed)),
    Column::csv("failed", |p| Figure::Count(p.report.summary.failed)),
    Column::csv("valid", |p| Figure::Flag(p.report.valid)),
    Column::new("req/s", "request_throughput", |p| Figure::Number(p.report.summary.request_throughput())),
    Column::new("out tok/s", "output_throughput", |p| Figure::Number(p.report.summary.output_throughput())),
    Column::new("in flight", "achieved_concurrency", |p| Figure::Number(p.report.achieved_concurrency)),
    Column::csv("mean_ttft_ms", |p| known(&p.report.summary.ttft, |s| s.mean)),
    Column::new("TTFT p50", "p50_ttft_ms", |p| known(&p.report.summary.ttft, |s| s.median)),
    Column::new("p99", "p99_ttft_ms", |p| known(&p.report.summary.ttft, |s| s.p99)),
    Column::csv("mean_tpot_ms", |p| known(&p.report.summary.tpot, |s| s.mean)),
    Column::new("TPOT p50", "p50_tpot_ms", |p| known(&p.report.summary.tpot, |s| s.median)),
    Column::new("p99", "p99_tpot_ms", |p| known(&p.report.summary.tpot, |s| s.p99)),
    Column::csv("p99_e2el_ms", |p| known(&p.report.summary.e2el, |s| s.p99)),
    Column::csv("client_lag_ms_p99", |p| Figure::Number(p.report.client.lag_ms_p99)),
    Column::new("limit", "limit_tpot_ms", |p: &Point| {
        Figure::known(p.beside.limit.as_ref().and_then(|l| l.tpot_ms))
    })
    .only(decodes),
    Column::new("forecast", "forecast_tpot_ms", |p: &Point| {
        Figure::known(p.beside.forecast.as_ref().and_then(|f| f.median_tpot_ms))
    })
    .only(decodes),
    Column::new("TTFT limit", "limit_ttft_ms", |p: &Point| {
        Figure::known(p.beside.limit.as_ref().map(|l| l.ttft_ms))
    })
    .only(prefills),
    Column::new("forecast", "forecast_ttft_ms", |p: &Point| {
        Figure::known(p.beside.forecast.as_ref().map(|f| f.median_ttft_ms))
    })
    .only(prefills),
    Column::shown("lag p99", |p| Figure::Number(p.report.client.lag_ms_p99)),
    Column::shown("", |p| Figure::Word(if p.report.valid { "" } else { "INVALID" }.to_owned())),
];

/// True if answers have more tokens than one, or nothing is known of the machine.
fn decodes(point: &Point) -> bool {
    !prefills(point)
}

/// True if the run measured prompts alone on a known machine.
fn prefills(point: &Point) -> bool {
    point.beside.limit.as_ref().is_some_and(|limit| limit.tpot_ms.is_none())
}

fn known(statistics: &Statistics, figure: fn(&Statistics) -> f64) -> Figure {
    Figure::known(statistics.figure(figure))
}

/// Prints one run as CSV.
pub(super) fn csv(point: &Point) -> Result<()> {
    let columns = Columns::of(COLUMNS, std::iter::once(point), true);
    show::csv(&columns.names().collect::<Vec<_>>(), &[columns.row(point).collect()])
}

/// Prints runs that differ in `key`.
pub(super) fn show(args: &BenchArgs, subject: &Subject, key: &str, points: &[(f64, &Point)]) -> Result<()> {
    let csv = args.output.csv;
    let columns = Columns::of(COLUMNS, points.iter().map(|(_, point)| *point), csv);
    let header: Vec<&str> = [key].into_iter().chain(columns.names()).collect();
    let value = |value: f64| match value {
        value if csv => value.to_string(),
        value if value.fract() == 0.0 => grouped(value as u64),
        value => significant(value),
    };
    let row =
        |(swept, point): &(f64, &Point)| [value(*swept)].into_iter().chain(columns.row(point)).collect();
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    if csv {
        return show::csv(&header, &rows);
    }
    show::text(&(title(subject) + &table::fitted(&header, &rows, 0, &[3, 10])))
}

pub(super) fn title(subject: &Subject) -> String {
    let server = format!("{} at {}{}\n", subject.model_id, subject.url, subject.endpoint);
    server + &assumed(subject.assumptions) + "\n"
}

/// One run in text for people.
pub(super) fn people(point: &Point, baselines: &[Baseline]) -> String {
    let r = &point.report;
    let mut text = table::pairs(&pairs(r));
    let scheduled = [("ttft*", &r.ttft_from_schedule), ("e2el*", &r.e2el_from_schedule)];
    let rows = r.summary.metrics().into_iter().chain(scheduled).map(|(name, s)| {
        let figures = [s.mean, s.median, s.p90, s.p95, s.p99];
        let figures = figures.map(|v| if s.count > 0 { significant(v) } else { "–".to_owned() });
        [name.to_uppercase()].into_iter().chain(figures).collect::<Vec<_>>()
    });
    text += &table::table(&["ms", "mean", "p50", "p90", "p95", "p99"], &rows.collect::<Vec<_>>(), 1);
    text += "* from the scheduled time\n\n";
    text += &by_class(&r.classes);
    text += &r.slices.as_deref().map_or_else(String::new, by_slice);
    text += &beside(&point.beside, r);
    if let Some(energy) = &point.energy {
        text += &table::line(&drawn(energy));
        text.push('\n');
    }
    if let Some(server) = &point.server {
        text += &metrics(server);
    }
    for baseline in baselines {
        text += &compared(baseline, r);
    }
    for (kind, failures) in &r.failures {
        text += &table::line(&format!("{} × {}: {}", failures.count, kind.name(), failures.first));
    }
    for warning in &r.warnings {
        text += &table::line(&format!("NOTE: {warning}"));
    }
    for reason in &r.invalid_because {
        text += &table::line(&format!("INVALID: {reason}"));
    }
    text
}

/// Table of a run by classes of requests; empty without any.
fn by_class(classes: &[ClassReport]) -> String {
    let row = |class: &ClassReport| {
        let s = &class.summary;
        let shown = |statistics: &Statistics, figure: fn(&Statistics) -> f64| {
            if statistics.count > 0 { significant(figure(statistics)) } else { "–".to_owned() }
        };
        let [mean, p99]: [fn(&Statistics) -> f64; 2] = [|s| s.mean, |s| s.p99];
        let figures = [shown(&s.ttft, mean), shown(&s.ttft, p99), shown(&s.tpot, mean), shown(&s.tpot, p99)];
        let good = class.goodput().map_or("–".to_owned(), percent);
        let counts = [class.name.clone(), grouped(class.requests)];
        counts.into_iter().chain(figures).chain([shown(&s.e2el, p99), good]).collect::<Vec<_>>()
    };
    if classes.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = classes.iter().map(row).collect();
    let header = ["class", "requests", "TTFT mean", "p99", "TPOT mean", "p99", "E2EL p99", "met its SLO"];
    table::table(&header, &rows, 1)
}

/// Table of a run by intervals.
fn by_slice(slices: &[Slice]) -> String {
    let shown = |ms: Option<f64>| ms.map_or("–".to_owned(), significant);
    let row = |slice: &Slice| {
        let times =
            [slice.mean_ttft_ms, slice.p99_ttft_ms, slice.mean_tpot_ms, slice.mean_e2el_ms].map(shown);
        let span = format!("{} to {}", significant(slice.start_s), significant(slice.end_s));
        let rate = significant(slice.output_throughput);
        [span, grouped(slice.completed)].into_iter().chain(times).chain([rate]).collect::<Vec<_>>()
    };
    let rows: Vec<_> = slices.iter().map(row).collect();
    table::table(&["sent at s", "completed", "TTFT mean", "p99", "TPOT", "E2EL", "out tok/s"], &rows, 1)
}

fn pairs(r: &Report) -> Vec<(&'static str, String)> {
    let s = &r.summary;
    let c = &r.client;
    let good = s.request_goodput().map_or(String::new(), |g| format!(", {}/s met the SLO", significant(g)));
    let requests = format!(
        "{} in {} s: {}/s{good}",
        grouped(s.completed),
        significant(s.duration),
        significant(s.request_throughput())
    );
    let throughput = format!(
        "{} output tok/s, {} including prompts",
        significant(s.output_throughput()),
        significant(s.total_token_throughput())
    );
    let client = format!(
        "lag {} ms (p99), sent {} ms late (p99), {} CPU-s per 1,000 tokens",
        significant(c.lag_ms_p99),
        significant(c.send_delay_ms_p99),
        significant(c.cpu_s_per_1k_tokens)
    );
    let mut pairs =
        vec![("requests", requests), ("throughput", throughput), ("load", load(r)), ("client", client)];
    if let Some(ms) = r.network_latency_ms {
        pairs.push(("network", format!("{} ms are taken off TTFT and E2EL", significant(ms))));
    }
    if let Some(exact) = r.exact_prompts {
        pairs.push(("prompts", format!("{} of exactly the requested length", percent(exact))));
    }
    pairs
}

fn load(r: &Report) -> String {
    let reached = significant(r.achieved_concurrency);
    let concurrency = match r.requested.concurrency {
        Some(users) => format!("{reached} of {users} requests in flight"),
        None => format!("{reached} requests in flight"),
    };
    match (r.requested.rate, r.scheduled_rate, r.achieved_rate) {
        (Some(mean), Some(drawn), Some(achieved)) => {
            let [mean, drawn, achieved] = [mean, drawn, achieved].map(significant);
            format!("{achieved} of {drawn} requests/s sent (workload mean {mean}), {concurrency}")
        }
        _ => concurrency,
    }
}

/// Table of measured values, limit and forecast side by side.
fn beside(beside: &Beside, r: &Report) -> String {
    let (Some(limit), Some(forecast)) = (&beside.limit, &beside.forecast) else { return String::new() };
    let row_of = |name: &str,
                  measured: &Statistics,
                  limit: Option<f64>,
                  share: Option<f64>,
                  forecast: Option<f64>,
                  band: Option<Span>| {
        let shown = |ms: Option<f64>| ms.map_or("–".to_owned(), significant);
        let share = share.map_or("–".to_owned(), percent);
        let range = band.zip(forecast).map_or([None, None], |(band, ms)| {
            band.factors.map(|f| Some((ms * f).max(limit.unwrap_or(0.0).min(ms))))
        });
        let range = range.map(shown);
        let row =
            [name.to_owned(), shown(measured.figure(|s| s.median)), shown(limit), share, shown(forecast)];
        row.into_iter().chain(range).collect::<Vec<_>>()
    };
    let tpot = forecast.bands.as_ref().and_then(|b| b.tpot_ms);
    let ttft = forecast.bands.as_ref().map(|b| b.ttft_ms);
    let s = &r.summary;
    let rows = [
        row_of("TPOT", &s.tpot, limit.tpot_ms, limit.tpot_share, forecast.median_tpot_ms, tpot),
        row_of("TTFT", &s.ttft, Some(limit.ttft_ms), limit.ttft_share, Some(forecast.median_ttft_ms), ttft),
    ];
    let header = [limit.hardware.as_str(), "measured p50", "limit", "reached", "forecast", "p10", "p90"];
    let served = if forecast.of_served { "; the forecast uses the served lengths" } else { "" };
    format!("{}{}{served}\n\n", table::table(&header, &rows, 1), limit.advice)
}

/// The energy in words: `energy: 1200 J, 300 W in the mean, 0.6 J an output token, by …`.
fn drawn(energy: &Energy) -> String {
    let token = energy.joules_per_output_token;
    let token = token.map_or(String::new(), |joules| format!(", {} J per output token", significant(joules)));
    let memory = energy.memory_used_bytes;
    let memory =
        memory.map_or(String::new(), |bytes| format!(", {} GB of memory in use", significant(bytes / 1e9)));
    let joules = significant(energy.joules);
    let watts = significant(energy.mean_w);
    format!("energy: {joules} J, mean {watts} W{token}{memory}, by {}", energy.meter)
}

/// The server's own metrics, without metrics that stayed at zero.
fn metrics(server: &ServerMetrics) -> String {
    let gauges = server.gauges.iter().filter(|(_, level)| level.max > 0.0);
    let gauges =
        gauges.map(|(name, l)| [name.clone(), significant(l.mean), significant(l.max), String::new()]);
    let counters = server.counters.iter().filter(|(_, grown)| grown.is_none_or(|grown| grown > 0.0));
    let increase = |grown: &Option<f64>| grown.map_or("–".to_owned(), significant);
    let counters =
        counters.map(|(name, grown)| [name.clone(), String::new(), String::new(), increase(grown)]);
    let rows: Vec<_> = gauges.chain(counters).map(Vec::from).collect();
    let drafts = server.drafts.as_ref().map(|drafts| ("drafts", drafts.words()));
    let transfers = server.transfers.as_ref().map(|transfers| ("KV cache", transfers.words()));
    let words: Vec<_> = drafts.into_iter().chain(transfers).collect();
    let words = if words.is_empty() { String::new() } else { table::pairs(&words) };
    words + &table::table(&["/metrics", "mean", "max", "increase"], &rows, 1) + "\n"
}

/// Table of measured values and an earlier run's side by side.
fn compared(baseline: &Baseline, r: &Report) -> String {
    let ours = serde_json::to_value(r).unwrap_or_default();
    let rows: Vec<Vec<String>> = KEYS
        .iter()
        .filter_map(|key| {
            let now = ours.get(key)?.as_f64()?;
            let then = *baseline.metrics.get(*key)?;
            let ratio = if then > 0.0 { significant(now / then) } else { "–".to_owned() };
            Some(vec![key.to_string(), significant(now), significant(then), ratio])
        })
        .collect();
    table::table(&["", "now", baseline.source, "ratio"], &rows, 1)
}
