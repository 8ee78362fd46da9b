//! The sweep as a picture: latencies with what the SLO allows, then throughput.

use super::{Run, about, word};
use roofcast::report::sweep::{Curve, Look, Panel, Quantity, Sweep, Values};
use roofcast::simulate::Simulation;
use roofcast::summary::Summary;

pub(super) fn of(key: &str, runs: &[Run]) -> Sweep {
    let names: Vec<String> = runs.iter().map(|r| about(&r.deployment, &r.simulation).name()).collect();
    let same = names.iter().all(|name| Some(name) == names.first());
    let short = key.rsplit('.').next().unwrap_or(key);
    let numbers: Option<Vec<f64>> = runs.iter().map(|run| number(&run.value)).collect();
    let values = match numbers {
        Some(numbers) => Values::Numbers(numbers),
        None => Values::Names(runs.iter().map(|run| word(&run.value)).collect()),
    };
    let limit = curve(runs, "limit of a step", 7, Look::Limit, |s| Some(s.limit_tpot_ms));
    let mut tpot = latency(runs, |s| [s.tpot.median, s.tpot.p99]);
    tpot.push(limit);
    let rates =
        vec![curve(runs, "output tokens/s", 0, Look::Points, |s| Some(s.summary.output_throughput()))];
    let requests = vec![
        curve(runs, "served", 0, Look::Points, |s| Some(s.summary.request_throughput())),
        curve(runs, "within the SLO", 1, Look::Dashed, |s| s.summary.request_goodput()),
    ];
    let slo = |of: fn(&roofcast::spec::Slo) -> Option<f64>, name: &str| {
        let bounds: Option<Vec<f64>> = runs.iter().map(|run| of(&run.slo)).collect();
        let bounds = bounds.filter(|all| all.iter().all(|v| Some(v) == all.first()))?;
        bounds.first().map(|most| (*most, format!("SLO: p99 {name} {most} ms")))
    };
    let panel =
        |title: &str, quantity, curves, most| Panel { title: title.to_owned(), quantity, curves, most };
    Sweep {
        title: if same { names.first().cloned().unwrap_or_default() } else { format!("Sweep of {short}") },
        note: "simulated".to_owned(),
        key: key.to_owned(),
        values,
        panels: vec![
            panel(
                "time to first token",
                Quantity::Time,
                latency(runs, |s| [s.ttft.median, s.ttft.p99]),
                slo(|s| s.ttft_p99_ms, "TTFT"),
            ),
            panel("time per output token", Quantity::Time, tpot, slo(|s| s.tpot_p99_ms, "TPOT")),
            panel("requests a second", Quantity::Count, requests, None),
            panel("output tokens a second", Quantity::Count, rates, None),
        ],
    }
}

fn number(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

fn curve(runs: &[Run], name: &str, series: usize, look: Look, of: fn(&Simulation) -> Option<f64>) -> Curve {
    Curve::new(name, series, look, runs.iter().map(|run| of(&run.simulation)))
}

/// Median and 99th percentile.
fn latency(runs: &[Run], of: fn(&Summary) -> [f64; 2]) -> Vec<Curve> {
    let at = |index: usize| runs.iter().map(move |run| Some(of(&run.simulation.summary)[index]));
    vec![Curve::new("p50", 0, Look::Points, at(0)), Curve::new("p99", 1, Look::Dashed, at(1))]
}
