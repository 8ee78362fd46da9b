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
        Arrivals::Sessions { rate: Some(rate), .. } => format!("{} conversations/s", significant(*rate)),
        Arrivals::Sessions { concurrency, .. } => {
            format!("{} conversations at a time", grouped(concurrency.unwrap_or(0)))
        }
        arrivals => match arrivals.rate() {
            Some(rate) => format!("{} requests/s", significant(rate)),
            None => "requests as they were recorded".to_owned(),
        },
    }
}

/// The start of the users of a closed loop in words; `None` for other arrivals and a single user.
pub(super) fn users(workload: &Workload) -> Option<String> {
    match &workload.arrivals {
        Arrivals::ClosedLoop { concurrency: 2.., ramp_s, .. } => {
            Some(match ramp_s.filter(|seconds| *seconds > 0.0) {
                Some(seconds) => format!(
                    "begin one after another over {} s; requests sent until then are not judged",
                    significant(seconds)
                ),
                None => "all begin at once, as in a benchmark".to_owned(),
            })
        }
        _ => None,
    }
}

/// The lengths in words, as in `1000 prompt and 200 output tokens on average`.
pub(super) fn lengths(workload: &Workload) -> String {
    let [input, output] = [workload.input_mean(), workload.output_mean()];
    format!("{input:.0} prompt and {output:.0} output tokens on average")
}

/// The parts of load and SLO that are defaults, as in `prompt lengths, TTFT bound: not given`; `None` if there are none.
pub(super) fn defaults(names: &[&str]) -> Option<(&'static str, String)> {
    (!names.is_empty()).then(|| ("defaults", format!("{}: not given", names.join(", "))))
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
