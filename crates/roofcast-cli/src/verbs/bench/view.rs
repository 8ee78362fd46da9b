//! What the page shows of a measured run: the answer, and latencies as cumulative shares.

use super::{Answer, SCHEMA};
use crate::show::Document;
use roofcast::record::{Outcome, Record};
use serde::Serialize;

/// Shares that a curve is drawn through.
const SHARES: usize = 200;

/// The view's data.
#[derive(Serialize)]
pub(super) struct View<'a> {
    report: Document<&'a Answer<'a>>,
    distributions: Vec<Curve>,
}

/// A latency as cumulative shares of the requests.
#[derive(Serialize)]
struct Curve {
    metric: &'static str,
    ms: Vec<f64>,
    shares: Vec<f64>,
}

impl<'a> View<'a> {
    pub(super) fn of(answer: &'a Answer<'a>, records: &[Record]) -> View<'a> {
        let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
        let distributions = vec![
            Curve::of("ttft", done().filter_map(|r| Some(r.ttft()?.ms())).collect()),
            Curve::of("tpot", done().filter_map(|r| Some(r.tpot()?.ms())).collect()),
            Curve::of("e2el", done().map(|r| r.e2el().ms()).collect()),
        ];
        View { report: Document { schema: SCHEMA, body: answer }, distributions }
    }
}

impl Curve {
    /// Through at most [`SHARES`] of the values.
    fn of(metric: &'static str, mut values: Vec<f64>) -> Curve {
        values.sort_by(f64::total_cmp);
        let count = SHARES.min(values.len());
        let at = |step: usize| (step * values.len()).div_ceil(count).saturating_sub(1);
        let ms = (1..=count).filter_map(|step| values.get(at(step)).copied()).collect();
        let shares = (1..=count).map(|step| step as f64 / count as f64).collect();
        Curve { metric, ms, shares }
    }
}
