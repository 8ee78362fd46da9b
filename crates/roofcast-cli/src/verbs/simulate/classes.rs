//! The table of a simulation's classes of requests.
//!
//! Knows: latencies and cost of each class. Knows nothing about how costs are divided.

use crate::show::number::{grouped, percent, significant};
use crate::show::table;
use roofcast::simulate::{ClassResults, Simulation};
use roofcast::summary::Statistics;

/// Requests, latencies and cost of each class; empty without classes.
pub(super) fn people(s: &Simulation) -> String {
    let row = |class: &ClassResults| {
        let summary = &class.summary;
        let good = class.good.map(|good| percent(good as f64 / class.requests.max(1) as f64));
        let shown_figure = |s: &Statistics, figure: fn(&Statistics) -> f64| {
            s.figure(figure).map_or("–".to_owned(), significant)
        };
        let both = |s: &Statistics| [shown_figure(s, |s| s.median), shown_figure(s, |s| s.p99)];
        let latencies = [&summary.ttft, &summary.tpot, &summary.e2el].into_iter().flat_map(both);
        let counts = [class.name.clone(), grouped(class.requests), good.unwrap_or("–".to_owned())];
        let each = class.expense.dollars_per_request.map(|usd| significant(usd * 1e3));
        let money = [percent(class.expense.share), each.unwrap_or("–".to_owned())];
        counts.into_iter().chain(latencies).chain(money).collect::<Vec<_>>()
    };
    let rows: Vec<_> = s.classes.iter().map(row).collect();
    let header = [
        "class", "requests", "good", "TTFT p50", "p99", "TPOT p50", "p99", "E2EL p50", "p99", "cost",
        "$/1,000",
    ];
    if rows.is_empty() { String::new() } else { table::table(&header, &rows, 1) }
}
