//! A run as its client reports it, before the deployment is known.
//!
//! Knows: how a client's load becomes a kind of measurement. Knows nothing about a client's keys.

use super::super::benchmark::{ClientLoad, Subject, around, check_counts, check_point};
use super::super::{Lengths, Measurement, MeasurementKind, Metrics, RowSettings, TpotMean};
use super::stated::Stated;
use roofcast_ask::workload::Workload;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;

/// A run of a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientRun {
    pub(super) stated: Stated,
    pub(super) kind: MeasurementKind,
    pub(super) concurrency: Option<u64>,
    pub(super) request_rate: Option<f64>,
    /// Prompt tokens of a request; `None` if the file does not say.
    pub(super) input: Option<Lengths>,
    pub(super) output: Option<Lengths>,
    /// Context of each sequence of a decode step.
    pub(super) context: Option<u64>,
    pub(super) measured: Metrics,
    pub(super) tpot_mean: TpotMean,
    /// Settings of client and server, as a cell of the column `settings`.
    pub(super) settings: String,
    /// The load itself, if the file carries it.
    pub(super) workload: Option<Box<Workload>>,
    /// Sentences on how the file was read.
    pub(super) notes: Vec<String>,
}

impl ClientRun {
    /// A run under `load`, of which nothing else is known yet.
    pub(super) fn under(load: ClientLoad) -> ClientRun {
        let (kind, concurrency, request_rate) = load.parts();
        ClientRun {
            stated: Stated::default(),
            kind,
            concurrency,
            request_rate,
            input: None,
            output: None,
            context: None,
            measured: Metrics::default(),
            tpot_mean: TpotMean::Requests,
            settings: String::new(),
            workload: None,
            notes: Vec::new(),
        }
    }

    /// Sets the lengths from totals over `completed` requests, and from the lists of single requests if there are any.
    pub(super) fn totals(
        &mut self,
        place: &str,
        [completed, failed]: [f64; 2],
        [input, output]: [(f64, &[u64]); 2],
    ) -> Result<()> {
        check_counts(place, completed, failed)?;
        let lengths = |(total, list): (f64, &[u64])| (total > 0.0).then(|| around(total / completed, list));
        self.input = lengths(input);
        self.output = lengths(output);
        Ok(())
    }

    /// Adds a setting of client or server.
    pub(super) fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        if !self.settings.is_empty() {
            self.settings.push(';');
        }
        self.settings += &format!("{key}={value}");
    }

    /// The measured point, with what `subject` adds to the file.
    pub(super) fn point(mut self, place: &str, subject: &Subject, catalog: &Catalog) -> Result<Measurement> {
        let subject = self.stated.with(place, subject, catalog, &mut self.notes)?;
        let single = matches!(self.kind, MeasurementKind::Prefill | MeasurementKind::DecodeStep);
        let input = self.input.or(subject.input_len);
        let output = self.output.or(subject.output_len);
        let lacking = [("--input-len", input), ("--output-len", output)];
        if let Some((flag, _)) = lacking.into_iter().find(|(_, length)| !single && length.is_none()) {
            let accepted = "it in tokens: the file does not say how long requests were";
            return Err(roofcast_facts::error::Error::field(place, flag, "missing", accepted));
        }
        let measured = check_point(place, self.concurrency, [input, output], self.measured)?;
        Ok(Measurement {
            pools: None,
            id: place.to_owned(),
            source: "own run".to_owned(),
            kind: self.kind,
            model: subject.model,
            hardware: subject.hardware,
            parallelism: subject.parallelism,
            engine: subject.engine,
            version: subject.version,
            weights: subject.weights,
            kv: subject.kv,
            input,
            output,
            context: self.context,
            concurrency: self.concurrency,
            request_rate: self.request_rate,
            measured,
            median: false,
            tpot_mean: self.tpot_mean,
            workload: self.workload,
            notes: self.notes,
            settings: RowSettings::read(place, &self.settings)?,
        })
    }
}
