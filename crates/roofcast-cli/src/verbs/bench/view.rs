//! Data for the page about a measured run: the answer, and latencies as cumulative distributions.

use super::{Answer, SCHEMA};
use crate::show::Document;
use crate::show::curve::Curve;
use roofcast::fleet::results::Sample;
use roofcast::record::{Outcome, Record};
use serde::Serialize;

/// The view's data.
#[derive(Serialize)]
pub(super) struct View<'a> {
    report: Document<&'a Answer<'a>>,
    distributions: Vec<Curve>,
}

impl<'a> View<'a> {
    pub(super) fn of(answer: &'a Answer<'a>, records: &[Record]) -> View<'a> {
        let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
        let distributions = vec![
            Curve::of("ttft", &done().filter_map(Record::ttft).collect::<Sample>()),
            Curve::of("tpot", &done().filter_map(Record::tpot).collect::<Sample>()),
            Curve::of("e2el", &done().map(Record::e2el).collect::<Sample>()),
        ];
        View { report: Document { schema: SCHEMA, body: answer }, distributions }
    }
}
