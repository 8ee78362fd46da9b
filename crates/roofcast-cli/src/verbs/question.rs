//! The question in the words of an answer: the load and the SLO.
//!
//! Knows: how to describe arrivals, lengths and bounds in a line each. Knows nothing about the results.

use crate::show::number::{grouped, percent, significant};
use roofcast::spec::{Slo, SloBound};
use roofcast::workload::{Arrivals, Workload};

/// The load in words, as in `10 requests/s, 1000 prompt and 200 output tokens on average`.
pub(super) fn load(workload: &Workload) -> String {
    format!("{}, {}", arrivals(workload), lengths(workload))
}

/// The load and the SLO in words, as in `10 requests/s, 1000 prompt and 200 output tokens on average; SLO: TPOT p99 ≤
/// 50 ms`.
pub(super) fn asked(workload: Option<&Workload>, bounds: &Slo) -> String {
    let load = workload.map(|workload| load(workload) + "; ").unwrap_or_default();
    format!("{load}SLO: {}", slo(bounds))
}

/// The arrivals in words, as in `10 requests/s`.
pub(super) fn arrivals(workload: &Workload) -> String {
    match &workload.arrivals {
        Arrivals::ClosedLoop { concurrency, .. } => {
            format!("{} requests always in flight", grouped(*concurrency))
        }
        Arrivals::Sessions { .. } => "conversations".to_owned(),
        arrivals => match arrivals.rate() {
            Some(rate) => format!("{} requests/s", significant(rate)),
            None => "requests as they were recorded".to_owned(),
        },
    }
}

/// The lengths in words, as in `1000 prompt and 200 output tokens on average`.
pub(super) fn lengths(workload: &Workload) -> String {
    let [input, output] = [workload.input_mean(), workload.output_mean()];
    format!("{input:.0} prompt and {output:.0} output tokens on average")
}

/// The SLO in words, as in `TTFT p99 ≤ 2000 ms, TPOT p99 ≤ 50 ms`, or a text that there is none.
pub(super) fn slo(slo: &Slo) -> String {
    let share = slo.goodput.map(|share| format!("for {} of the requests", percent(share)));
    let bound = |b: SloBound| match slo.goodput {
        Some(_) => format!("{} ≤ {} ms", b.metric.name(), b.ms),
        None => format!("{} ≤ {} ms", b.name(), b.ms),
    };
    let all: Vec<_> = slo.bounds().map(bound).chain(share).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
