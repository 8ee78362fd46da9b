//! Measured points for people and as CSV.

use super::baseline::{Baseline, KEYS};
use super::{Beside, Point, Subject};
use crate::args::BenchArgs;
use crate::bench::energy::Energy;
use crate::bench::report::Report;
use crate::bench::scrape::ServerMetrics;
use crate::show::number::{grouped, percent, significant};
use crate::show::{self, table};
use crate::verbs::assumed;
use anyhow::Result;
use roofcast::bands::Span;
use roofcast::summary::Statistics;

/// Columns of the CSV, for one run or several.
pub(super) const HEADER: [&str; 16] = [
    "completed",
    "failed",
    "valid",
    "request_throughput",
    "output_throughput",
    "achieved_concurrency",
    "mean_ttft_ms",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p50_tpot_ms",
    "p99_tpot_ms",
    "p99_e2el_ms",
    "client_lag_ms_p99",
    "limit_tpot_ms",
    "forecast_tpot_ms",
];

/// The CSV row of a run.
pub(super) fn row(point: &Point) -> Vec<String> {
    let r = &point.report;
    let s = &point.report.summary;
    let known = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    vec![
        s.completed.to_string(),
        s.failed.to_string(),
        r.valid.to_string(),
        s.request_throughput().to_string(),
        s.output_throughput().to_string(),
        r.achieved_concurrency.to_string(),
        known(s.ttft.figure(|s| s.mean)),
        known(s.ttft.figure(|s| s.median)),
        known(s.ttft.figure(|s| s.p99)),
        known(s.tpot.figure(|s| s.mean)),
        known(s.tpot.figure(|s| s.median)),
        known(s.tpot.figure(|s| s.p99)),
        known(s.e2el.figure(|s| s.p99)),
        r.client.lag_ms_p99.to_string(),
        known(point.beside.limit.as_ref().map(|l| l.tpot_ms)),
        known(point.beside.forecast.as_ref().map(|f| f.median_tpot_ms)),
    ]
}

/// Prints runs that differ in `key`.
pub(super) fn show(args: &BenchArgs, subject: &Subject, key: &str, points: &[(f64, &Point)]) -> Result<()> {
    if args.output.csv {
        let header: Vec<_> = [key].into_iter().chain(HEADER).collect();
        let rows = points.iter().map(|(v, p)| [v.to_string()].into_iter().chain(row(p)).collect());
        return show::csv(&header, &rows.collect::<Vec<_>>());
    }
    let header = [
        key,
        "req/s",
        "out tok/s",
        "in flight",
        "TTFT p50",
        "p99",
        "TPOT p50",
        "p99",
        "limit",
        "forecast",
        "lag p99",
        "",
    ];
    let rows: Vec<Vec<String>> = points.iter().map(|(value, point)| brief(*value, point)).collect();
    show::text(&(title(subject) + &table::fitted(&header, &rows, 0, &[3, 10])))
}

fn brief(value: f64, point: &Point) -> Vec<String> {
    let r = &point.report;
    let s = &point.report.summary;
    let known = |v: Option<f64>| v.map_or("–".to_owned(), significant);
    let valid = if r.valid { String::new() } else { "INVALID".to_owned() };
    let figures = [s.request_throughput(), s.output_throughput(), r.achieved_concurrency];
    let mut row = vec![if value.fract() == 0.0 { grouped(value as u64) } else { significant(value) }];
    row.extend(figures.map(significant));
    row.extend(
        [&s.ttft, &s.tpot].into_iter().flat_map(|s| [s.figure(|s| s.median), s.figure(|s| s.p99)].map(known)),
    );
    row.push(known(point.beside.limit.as_ref().map(|l| l.tpot_ms)));
    row.push(known(point.beside.forecast.as_ref().map(|f| f.median_tpot_ms)));
    row.extend([significant(r.client.lag_ms_p99), valid]);
    row
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
                  limit: f64,
                  share: Option<f64>,
                  forecast: f64,
                  band: Option<Span>| {
        let measured = measured.figure(|s| s.median).map_or("–".to_owned(), significant);
        let share = share.map_or("–".to_owned(), percent);
        let range = band.map_or(["–".to_owned(), "–".to_owned()], |b| {
            b.factors.map(|f| significant((forecast * f).max(limit.min(forecast))))
        });
        let row = [name.to_owned(), measured, significant(limit), share, significant(forecast)];
        row.into_iter().chain(range).collect::<Vec<_>>()
    };
    let tpot = forecast.bands.as_ref().map(|b| b.tpot_ms);
    let ttft = forecast.bands.as_ref().map(|b| b.ttft_ms);
    let s = &r.summary;
    let rows = [
        row_of("TPOT", &s.tpot, limit.tpot_ms, limit.tpot_share, forecast.median_tpot_ms, tpot),
        row_of("TTFT", &s.ttft, limit.ttft_ms, limit.ttft_share, forecast.median_ttft_ms, ttft),
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
    let counters = server.counters.iter().filter(|(_, grown)| **grown > 0.0);
    let counters =
        counters.map(|(name, grown)| [name.clone(), String::new(), String::new(), significant(*grown)]);
    let rows: Vec<_> = gauges.chain(counters).map(Vec::from).collect();
    table::table(&["/metrics", "mean", "max", "increase"], &rows, 1) + "\n"
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
