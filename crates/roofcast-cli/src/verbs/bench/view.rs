//! Data for the page about a measured run: the answer, and latencies as cumulative distributions.

use super::{Answer, SCHEMA};
use crate::show::Document;
use crate::show::distribution::Distribution;
use roofcast::fleet::results::Sample;
use roofcast::record::{Outcome, Record};
use serde::Serialize;

/// The view's data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct View<'a> {
    report: Document<&'a Answer<'a>>,
    distributions: Vec<Distribution>,
}

impl<'a> View<'a> {
    pub(super) fn of(answer: &'a Answer<'a>, records: &[Record]) -> View<'a> {
        let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
        let distributions = vec![
            Distribution::of("ttft", &done().filter_map(Record::ttft).collect::<Sample>()),
            Distribution::of("tpot", &done().filter_map(Record::tpot).collect::<Sample>()),
            Distribution::of("e2el", &done().map(Record::e2el).collect::<Sample>()),
        ];
        View { report: Document { schema: SCHEMA, body: answer }, distributions }
    }
}
