//! Results of a run by class of requests.
//!
//! Knows: each class is judged by its own SLO, with the keys of a whole run. Gaps between tokens and the client's state are
//! not kept by class. Knows nothing about how classes are drawn or sent.

use roofcast::record::Record;
use roofcast::spec::Slo;
use roofcast::summary::RunSummary;
use serde::Serialize;
use std::collections::BTreeMap;

/// A class of a workload: its name and its bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) slo: Slo,
}

/// Results of one class.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BenchClass"))]
pub(crate) struct ClassReport {
    /// Name of the class.
    pub(crate) name: String,
    /// Number of requests of the class that are counted.
    pub(crate) requests: u64,
    /// Latency bounds of the class.
    pub(crate) slo: Slo,
    /// Number of requests that met every bound of the class; `null` if the class has none.
    pub(crate) good: Option<u64>,
    /// Latencies and throughput of the class by vLLM's keys, per second from its first request to its last.
    #[serde(flatten)]
    pub(crate) summary: RunSummary,
}

/// Results of each class; `class_of` has the class of each request by its id.
pub(super) fn reports(
    classes: &[Class],
    records: &[Record],
    class_of: &BTreeMap<u64, u32>,
) -> Vec<ClassReport> {
    let report = |(number, class): (u32, &Class)| {
        let is_in_class = |record: &&Record| class_of.get(&record.id) == Some(&number);
        let records: Vec<Record> = records.iter().filter(is_in_class).cloned().collect();
        let summary = RunSummary::of(&records, &class.slo);
        let requests = records.len() as u64;
        ClassReport { name: class.name.clone(), requests, slo: class.slo, good: summary.good, summary }
    };
    (0..).zip(classes).map(report).collect()
}

impl ClassReport {
    /// True if every request of the class was answered within the bounds that the SLO sets, or as large a part as it needs.
    pub(super) fn meets(&self) -> bool {
        let s = &self.summary;
        match self.slo.needed(self.requests) {
            Some(needed) => s.good.unwrap_or(s.completed) >= needed,
            None => s.failed == 0 && self.slo.bounds().all(|bound| s.bounded(&bound) <= bound.ms),
        }
    }

    /// Fraction of the requests that met every bound; `None` if the class has no bound or no request.
    pub(crate) fn goodput(&self) -> Option<f64> {
        self.good.filter(|_| self.requests > 0).map(|good| good as f64 / self.requests as f64)
    }

    /// A note on a class without a request, whose SLO is not judged.
    pub(super) fn unseen(&self) -> Option<String> {
        (self.requests == 0).then(|| {
            format!("class {} had no request: its SLO is not judged; accepted: more requests", self.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast::record::Outcome;
    use roofcast::spec::{Metric, Percentile};
    use roofcast::units::Picoseconds;

    fn record(id: u64, ttft_ms: u64) -> Record {
        let ms = |n: u64| Picoseconds(n * 1_000_000_000);
        Record {
            id,
            outcome: Outcome::Completed,
            input_len: 10,
            output_len: 2,
            scheduled: ms(0),
            sent: ms(0),
            first_token: Some(ms(ttft_ms)),
            finished: ms(ttft_ms + 10),
            itl: Vec::new(),
            cached_tokens: 0,
            preemptions: 0,
            replica: 0,
            error: None,
        }
    }

    /// Of three chats at 10, 20 and 90 ms two are within 50 ms; a batch has no bound.
    #[test]
    fn each_class_is_judged_by_its_own_bounds() {
        let slo = Slo::default().with(Metric::Ttft, Percentile::P99, Some(50.0));
        let classes =
            [Class { name: "chat".into(), slo }, Class { name: "batch".into(), slo: Slo::default() }];
        let records = [record(0, 10), record(1, 20), record(2, 90), record(3, 500)];
        let class_of = BTreeMap::from([(0, 0), (1, 0), (2, 0), (3, 1)]);
        let reports = reports(&classes, &records, &class_of);
        let [chat, batch] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((chat.requests, chat.good, chat.summary.ttft.mean), (3, Some(2), 40.0));
        assert_eq!((batch.requests, batch.good, batch.summary.ttft.mean), (1, None, 500.0));
        assert_eq!((chat.meets(), batch.meets()), (false, true));
        assert!((chat.goodput().unwrap() - 2.0 / 3.0).abs() < 1e-12 && batch.goodput().is_none());
        let rare = ClassReport { requests: 0, good: Some(0), ..chat.clone() };
        assert_eq!((rare.goodput(), chat.unseen()), (None, None));
        assert!(rare.unseen().unwrap().contains("class chat had no request"));
    }
}
