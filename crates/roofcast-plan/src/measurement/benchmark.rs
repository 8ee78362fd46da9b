//! A run as one measured point: the deployment, the load, and the records of its requests.
//!
//! Knows: what a run must have to be a point. Results of clients are read in [`super::results`].

use super::{Lengths, Measurement, MeasurementKind, Metrics, TpotMean};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::Slo;
use roofcast_ask::summary::RunSummary;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::record::{Outcome, Record, RecordFormat, Records};

/// Largest fraction of failed requests in a run that is accepted.
const MOST_FAILED: f64 = 0.01;

/// Most requests in flight, and most tokens of one request, that are accepted.
const MOST_USERS: u64 = 100_000;
const MOST_TOKENS: u64 = 10_000_000;

/// Deployment on which a run was measured, as far as the caller knows it; a result may state the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subject {
    /// Hugging Face id or catalog id of the model; empty if unknown.
    pub model: String,
    /// Catalog id of the accelerator; empty if unknown.
    pub hardware: String,
    /// Degrees of parallelism.
    pub parallelism: RequestedParallelism,
    /// Name of the engine, as in `vllm`; empty if unknown, which is vLLM unless a result states another.
    pub engine: String,
    /// Version of the engine; empty if unknown.
    pub version: String,
    /// Weight format; empty for the checkpoint's own.
    pub weights: String,
    /// KV-cache format; empty for the engine's default.
    pub kv: String,
    /// True if the engine drafts tokens.
    pub drafts: bool,
    /// Prompt tokens of a request, for results that do not state them.
    pub input_len: Option<Lengths>,
    /// Output tokens of a request, for results that do not state them.
    pub output_len: Option<Lengths>,
}

/// Load that a client puts on the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientLoad {
    /// Closed loop with this many requests in flight.
    Users(u64),
    /// Requests per second, and the client's limit of requests in flight, if any.
    Rate(f64, Option<u64>),
    /// Burst of this many requests at one time.
    AtOnce(u64),
}

impl ClientLoad {
    /// Kind, requests in flight or at once, and rate of the load.
    pub(super) fn parts(self) -> (MeasurementKind, Option<u64>, Option<f64>) {
        match self {
            ClientLoad::Users(n) => (MeasurementKind::ClosedLoop, Some(n), None),
            ClientLoad::Rate(rate, cap) => (MeasurementKind::OpenLoop, cap, Some(rate)),
            ClientLoad::AtOnce(n) => (MeasurementKind::BurstAllAtOnce, Some(n), None),
        }
    }
}

/// Converts a run's records (JSON Lines), measured under `load`, to a measured point; `place` names the file in
/// errors.
pub fn of_records(place: &str, text: &str, subject: &Subject, load: ClientLoad) -> Result<Measurement> {
    let records =
        Records::new(place, text.as_bytes(), RecordFormat::JsonLines).collect::<Result<Vec<Record>>>()?;
    let summary = RunSummary::of(&records, &Slo::default());
    let completed = summary.completed as f64;
    check_counts(place, completed, summary.failed as f64)?;
    let done = || records.iter().filter(|r| r.outcome == Outcome::Completed);
    let input: Vec<u64> = done().map(|r| r.input_len).collect();
    let output: Vec<u64> = done().map(|r| r.output_len).collect();
    let lengths = [
        around(summary.total_input_tokens as f64 / completed, &input),
        around(summary.total_output_tokens as f64 / completed, &output),
    ];
    let measured = Metrics {
        ttft_ms: Some(summary.ttft.mean),
        tpot_ms: Some(summary.tpot.mean),
        e2e_ms: Some(summary.e2el.mean),
        ..Metrics::default()
    };
    point(place, subject, load, lengths, measured)
}

/// Refuses runs without results, and runs with too many failures.
pub(super) fn check_counts(place: &str, completed: f64, failed: f64) -> Result<()> {
    if completed < 1.0 {
        return Err(Error::field(place, "completed", completed, "a run in which requests completed"));
    }
    if failed > MOST_FAILED * (completed + failed) {
        return Err(Error::field(place, "failed", failed, "at most 1 % of the requests"));
    }
    Ok(())
}

/// Widest range of lengths that is symmetric around `mean` and within the minimum and maximum of `lengths`.
pub(super) fn around(mean: f64, lengths: &[u64]) -> Lengths {
    // Failed requests have a length of 0.
    let came = || lengths.iter().copied().filter(|n| *n > 0);
    let shortest = came().min().map_or(mean, |n| (n as f64).min(mean));
    let longest = came().max().map_or(mean, |n| (n as f64).max(mean));
    let reach = (mean - shortest).min(longest - mean);
    let tokens = |n: f64| n.round().max(1.0) as u64;
    Lengths { min: tokens(mean - reach), max: tokens(mean + reach) }
}

fn point(
    place: &str,
    subject: &Subject,
    load: ClientLoad,
    [input, output]: [Lengths; 2],
    measured: Metrics,
) -> Result<Measurement> {
    let needed = [("--model", &subject.model), ("--hardware", &subject.hardware)];
    if let Some((flag, _)) = needed.into_iter().find(|(_, name)| name.is_empty()) {
        return Err(Error::field(place, flag, "missing", "it: records do not say what ran"));
    }
    let (kind, concurrency, request_rate) = load.parts();
    let lengths = [Some(input), Some(output)];
    let measured = check_point(place, concurrency, lengths, measured)?;
    let engine = if subject.engine.is_empty() { "vllm" } else { &subject.engine };
    Ok(Measurement {
        pools: None,
        id: place.to_owned(),
        source: "own run".to_owned(),
        kind,
        model: subject.model.clone(),
        hardware: subject.hardware.clone(),
        parallelism: RequestedParallelism { tp: subject.parallelism.tp.or(Some(1)), ..subject.parallelism },
        engine: engine.to_owned(),
        version: subject.version.clone(),
        weights: subject.weights.clone(),
        kv: subject.kv.clone(),
        input: Some(input),
        output: Some(output),
        context: None,
        concurrency,
        request_rate,
        measured,
        median: false,
        tpot_mean: TpotMean::Requests,
        workload: None,
        notes: Vec::new(),
        settings: super::RowSettings::default(),
    })
}

/// Metrics of a point without zeros that stand for no measurement: without streaming there is no first token, and with
/// one output token no time per further token. Refuses points beyond any server, and points without metrics.
pub(super) fn check_point(
    place: &str,
    concurrency: Option<u64>,
    lengths: [Option<Lengths>; 2],
    measured: Metrics,
) -> Result<Metrics> {
    if let Some(users) = concurrency.filter(|n| !(1..=MOST_USERS).contains(n)) {
        return Err(Error::field(place, "requests in flight", users, format!("1 to {MOST_USERS}")));
    }
    if let Some(tokens) = lengths.into_iter().flatten().map(|l| l.max).find(|n| *n > MOST_TOKENS) {
        return Err(Error::field(place, "tokens of a request", tokens, format!("at most {MOST_TOKENS}")));
    }
    let known = |ms: Option<f64>| ms.filter(|ms| *ms > 0.0);
    let measured = Metrics {
        ttft_ms: known(measured.ttft_ms),
        tpot_ms: known(measured.tpot_ms),
        e2e_ms: known(measured.e2e_ms),
        ..measured
    };
    if measured == Metrics::default() {
        let accepted = "a time above 0, or mean_tpot_ms or mean_e2el_ms";
        return Err(Error::field(place, "mean_ttft_ms", "missing", accepted));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject { model: "llama-3.1-8b".into(), hardware: "h100-sxm".into(), ..Subject::default() }
    }

    /// TTFT 5 and 7 ms, mean 6; E2EL 11 and 16 ms, mean 13.5; TPOT (11 − 5)/(3 − 1) = 3 and (16 − 7)/(4 − 1) = 3 ms.
    #[test]
    fn records_are_a_point_under_their_load() {
        let line = |id: u64, input: u64, output: u64, first: u64, end: u64| {
            format!(
                r#"{{"id":{id},"outcome":"completed","input_len":{input},"output_len":{output},"scheduled_ms":0,"sent_ms":0,"first_token_ms":{first},"finished_ms":{end}}}"#
            )
        };
        let text = format!("{}\n{}\n", line(0, 10, 3, 5, 11), line(1, 30, 4, 7, 16));
        let row = of_records("r.jsonl", &text, &subject(), ClientLoad::Users(2)).unwrap();
        assert_eq!(
            (row.measured.ttft_ms, row.measured.tpot_ms, row.measured.e2e_ms),
            (Some(6.0), Some(3.0), Some(13.5))
        );
        assert_eq!(row.input, Some(Lengths { min: 10, max: 30 }));
        // Outputs of 3 and 4 tokens are 3.5 ± 0.5.
        assert_eq!(row.output, Some(Lengths { min: 3, max: 4 }));
        let rated = of_records("r.jsonl", &text, &subject(), ClientLoad::Rate(0.5, None)).unwrap();
        assert_eq!((rated.kind, rated.request_rate), (MeasurementKind::OpenLoop, Some(0.5)));
        let error =
            of_records("r.jsonl", "\n{\"id\":0}", &subject(), ClientLoad::Users(1)).unwrap_err().to_string();
        assert!(error.contains("r.jsonl:2") && error.contains("outcome"), "{error}");
        let none = of_records("r.jsonl", "", &subject(), ClientLoad::Users(1)).unwrap_err().to_string();
        assert!(none.contains("completed"), "{none}");
    }
}
