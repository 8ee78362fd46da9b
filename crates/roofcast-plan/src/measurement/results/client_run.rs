//! A run as its client reports it, before the deployment is known.
//!
//! Knows: how a client's load becomes a kind of measurement. Knows nothing about a client's keys.

use super::super::benchmark::{ClientLoad, Subject, around, check_counts, check_point};
use super::super::{Lengths, Measurement, MeasurementKind, Metrics, RowSettings, TpotMean};
use super::document::Document;
use super::stated::Stated;
use roofcast_ask::workload::Workload;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};

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
    /// Mean of prompt and output tokens of a request, if the file has no more.
    pub(super) request_tokens: Option<f64>,
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

/// Statistics of a token count over requests, as far as a file has them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct TokenCount {
    mean: f64,
    min: Option<f64>,
    max: Option<f64>,
    /// Half of the width of the uniform distribution that has the file's deviation or quartiles.
    reach: Option<f64>,
}

impl TokenCount {
    /// A count of which only the mean is known.
    pub(super) fn of_mean(mean: f64) -> TokenCount {
        TokenCount { mean, ..TokenCount::default() }
    }

    /// Statistics under `path`, with the client's names of the mean and of the standard deviation. A uniform distribution
    /// reaches √3 deviations from its mean, and as far as its quartiles are apart.
    pub(super) fn read(document: &Document, path: &str, [mean, deviation]: [&str; 2]) -> Result<TokenCount> {
        let number = |key: &str| document.number(&format!("{path}/{key}"));
        let quartiles = number("p25")?.zip(number("p75")?).map(|(low, high)| high - low);
        Ok(TokenCount {
            mean: number(mean)?.unwrap_or(0.0),
            min: number("min")?,
            max: number("max")?,
            reach: number(deviation)?.map(|deviation| deviation * 3f64.sqrt()).or(quartiles),
        })
    }

    /// The uniform distribution of these statistics; `None` without a mean.
    fn lengths(self) -> Option<Lengths> {
        let min = self.min.unwrap_or(self.mean);
        let max = self.max.unwrap_or(self.mean);
        let reach = self.reach.unwrap_or(f64::INFINITY).min(self.mean - min).min(max - self.mean).max(0.0);
        let tokens = |n: f64| n.round().max(1.0) as u64;
        (self.mean > 0.0).then(|| Lengths { min: tokens(self.mean - reach), max: tokens(self.mean + reach) })
    }
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
            request_tokens: None,
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

    /// Sets the lengths from statistics over `completed` requests.
    pub(super) fn spread(
        &mut self,
        place: &str,
        [completed, failed]: [f64; 2],
        [input, output]: [TokenCount; 2],
    ) -> Result<()> {
        check_counts(place, completed, failed)?;
        self.input = input.lengths();
        self.output = output.lengths();
        Ok(())
    }

    /// Adds a setting of client or server.
    pub(super) fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        if !self.settings.is_empty() {
            self.settings.push(';');
        }
        self.settings += &format!("{key}={value}");
    }

    /// Lengths of prompts and answers, of the file or else of `subject`.
    fn lengths(&self, place: &str, subject: &Subject) -> Result<[Option<Lengths>; 2]> {
        let mut lengths = [self.input.or(subject.input_len), self.output.or(subject.output_len)];
        let Some(tokens) = self.request_tokens else { return Ok(lengths) };
        let rest = |given: Lengths| {
            let tokens = (tokens - given.mean()).round().max(1.0) as u64;
            Lengths { min: tokens, max: tokens }
        };
        match lengths {
            [Some(input), None] => lengths[1] = Some(rest(input)),
            [None, Some(output)] => lengths[0] = Some(rest(output)),
            [Some(input), Some(output)] if (input.mean() + output.mean() - tokens).abs() > 1.0 => {
                let given = format!("{} + {}", input.mean(), output.mean());
                let accepted = format!("{tokens:.1} tokens a request, as the file says");
                return Err(Error::field(place, "--input-len + --output-len", given, accepted));
            }
            _ => {}
        }
        Ok(lengths)
    }

    /// The measured point, with what `subject` adds to the file.
    pub(super) fn point(mut self, place: &str, subject: &Subject, catalog: &Catalog) -> Result<Measurement> {
        let subject = self.stated.with(place, subject, catalog, &mut self.notes)?;
        let single = matches!(self.kind, MeasurementKind::Prefill | MeasurementKind::DecodeStep);
        let [input, output] = self.lengths(place, &subject)?;
        let lacking = [("--input-len", input), ("--output-len", output)];
        if let Some((flag, _)) = lacking.into_iter().find(|(_, length)| !single && length.is_none()) {
            let accepted = "it in tokens: the file does not say how long requests were";
            return Err(Error::field(place, flag, "missing", accepted));
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
