//! The table of a simulation's classes of requests.
//!
//! Knows: latencies and cost of each class. Knows nothing about how costs are divided.

use crate::show::number::{grouped, percent, significant};
use crate::show::table;
use roofcast::simulate::{ClassResults, Simulation};
use roofcast::summary::Statistics;

/// Requests, latencies and cost of each class; empty without classes.
pub(super) fn people(s: &Simulation) -> String {
    let counts_of = |class: &ClassResults| [class.refused, class.rejected];
    let shown = [0, 1].map(|which| s.classes.iter().any(|class| counts_of(class)[which] > 0));
    let row = |class: &ClassResults| {
        let summary = &class.summary;
        let good = class.good.filter(|_| class.requests > 0);
        let good = good.map(|good| percent(good as f64 / class.requests as f64));
        let shown_figure = |s: &Statistics, figure: fn(&Statistics) -> f64| {
            s.figure(figure).map_or("–".to_owned(), significant)
        };
        let both = |s: &Statistics| [shown_figure(s, |s| s.median), shown_figure(s, |s| s.p99)];
        let latencies = [&summary.ttft, &summary.tpot, &summary.e2el].into_iter().flat_map(both);
        let counts = [class.name.clone(), grouped(class.requests)];
        let unserved = counts_of(class).into_iter().zip(shown).filter(|(_, shown)| *shown);
        let unserved = unserved.map(|(count, _)| grouped(count));
        let counts = counts.into_iter().chain(unserved).chain([good.unwrap_or("–".to_owned())]);
        let each = class.expense.dollars_per_request.map(|usd| significant(usd * 1e3));
        let money = [percent(class.expense.share), each.unwrap_or("–".to_owned())];
        counts.chain(latencies).chain(money).collect::<Vec<_>>()
    };
    let rows: Vec<_> = s.classes.iter().map(row).collect();
    let unserved = ["refused", "rejected"].into_iter().zip(shown).filter(|(_, shown)| *shown);
    let counts = ["class", "requests"].into_iter().chain(unserved.map(|(name, _)| name));
    let figures = ["good", "TTFT p50", "p99", "TPOT p50", "p99", "E2EL p50", "p99", "cost", "$/1,000"];
    let header: Vec<&str> = counts.chain(figures).collect();
    if rows.is_empty() {
        return String::new();
    }
    let unseen = s.classes.iter().filter(|class| class.requests == 0).map(|class| unseen(&class.name));
    table::table(&header, &rows, 1) + &unseen.collect::<String>()
}

/// A note on a class without a request.
pub(super) fn unseen(name: &str) -> String {
    table::line(&format!("NOTE: class {name} had no request: its SLO is not judged; accepted: more requests"))
}
