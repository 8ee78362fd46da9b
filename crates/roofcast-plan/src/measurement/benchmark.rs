//! A benchmark run as one measured point: from a result document of vLLM's client, or from the records of a run.
//!
//! Knows: the keys for load and results. The documents do not record the deployment, which the caller passes. Source
//! of the keys: `vllm/benchmarks/serve.py`, which writes the file of `vllm bench serve --save-result`.

use super::{Lengths, Measurement, MeasurementKind, Metrics, check_engine};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::Slo;
use roofcast_ask::summary::RunSummary;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::record::{Outcome, Record, RecordFormat, Records};
use serde_json::{Map, Value};

/// Largest fraction of failed requests in a run that is accepted.
const MOST_FAILED: f64 = 0.01;

/// Most requests in flight, and most tokens of one request, that are accepted.
const MOST_USERS: u64 = 100_000;
const MOST_TOKENS: u64 = 10_000_000;

/// Deployment on which a run was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Hugging Face id or catalog id of the model.
    pub model: String,
    /// Catalog id of the accelerator.
    pub hardware: String,
    /// Degrees of parallelism.
    pub parallelism: RequestedParallelism,
    /// Name of the engine, as in `vllm`.
    pub engine: String,
    /// Version of the engine; empty if unknown.
    pub version: String,
    /// Weight format; empty for the checkpoint's own.
    pub weights: String,
    /// KV-cache format; empty for the engine's default.
    pub kv: String,
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

/// Converts a result document of vLLM's client, or of roofcast's, to a measured point; `place` names the file in
/// errors.
pub fn of_result(place: &str, text: &str, subject: &Subject) -> Result<Measurement> {
    let parsed = serde_json::from_str(text)
        .map_err(|e| Error::Parse { place: place.into(), message: e.to_string() })?;
    let Value::Object(keys) = &parsed else {
        let accepted = "the JSON object that `vllm bench serve --save-result` writes";
        return Err(Error::field(place, "document", "no object", accepted));
    };
    let document = Document { place, keys };
    if keys.get("valid") == Some(&Value::Bool(false)) {
        return Err(Error::field(place, "valid", false, "a valid run"));
    }
    let completed = document.needed("completed")?;
    counts(place, completed, document.number("failed")?.unwrap_or(0.0))?;
    let lengths = |total: &str, list: &str| -> Result<Lengths> {
        Ok(around(document.needed(total)? / completed, &document.list(list)?))
    };
    let measured = Metrics {
        ttft_ms: document.number("mean_ttft_ms")?,
        tpot_ms: document.number("mean_tpot_ms")?,
        e2e_ms: document.number("mean_e2el_ms")?,
        ..Metrics::default()
    };
    let input = lengths("total_input_tokens", "input_lens")?;
    let output = lengths("total_output_tokens", "output_lens")?;
    point(place, subject, document.load(completed)?, [input, output], measured)
}

/// Converts a run's records (JSON Lines), measured under `load`, to a measured point; `place` names the file in
/// errors.
pub fn of_records(place: &str, text: &str, subject: &Subject, load: ClientLoad) -> Result<Measurement> {
    let records =
        Records::new(place, text.as_bytes(), RecordFormat::JsonLines).collect::<Result<Vec<Record>>>()?;
    let summary = RunSummary::of(&records, &Slo::default());
    let completed = summary.completed as f64;
    counts(place, completed, summary.failed as f64)?;
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
fn counts(place: &str, completed: f64, failed: f64) -> Result<()> {
    if completed < 1.0 {
        return Err(Error::field(place, "completed", completed, "a run in which requests completed"));
    }
    if failed > MOST_FAILED * (completed + failed) {
        return Err(Error::field(place, "failed", failed, "at most 1 % of the requests"));
    }
    Ok(())
}

/// Widest range of lengths that is symmetric around `mean` and within the minimum and maximum of `lengths`.
fn around(mean: f64, lengths: &[u64]) -> Lengths {
    // Failed requests have a length of 0.
    let came = || lengths.iter().copied().filter(|n| *n > 0);
    let least = came().min().map_or(mean, |n| (n as f64).min(mean));
    let most = came().max().map_or(mean, |n| (n as f64).max(mean));
    let reach = (mean - least).min(most - mean);
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
    check_engine(place, "engine", &subject.engine)?;
    let (kind, concurrency, request_rate) = match load {
        ClientLoad::Users(n) => (MeasurementKind::ClosedLoop, Some(n), None),
        ClientLoad::Rate(rate, cap) => (MeasurementKind::OpenLoop, cap, Some(rate)),
        ClientLoad::AtOnce(n) => (MeasurementKind::BurstAllAtOnce, Some(n), None),
    };
    if let Some(users) = concurrency.filter(|n| !(1..=MOST_USERS).contains(n)) {
        return Err(Error::field(place, "requests in flight", users, format!("1 to {MOST_USERS}")));
    }
    if let Some(tokens) = [input.max, output.max].into_iter().find(|n| *n > MOST_TOKENS) {
        return Err(Error::field(place, "tokens of a request", tokens, format!("at most {MOST_TOKENS}")));
    }
    // Without streaming there is no first token, and with one output token no time per further token: the document
    // has 0.
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
    Ok(Measurement {
        pools: None,
        id: place.to_owned(),
        source: "own run".to_owned(),
        kind,
        model: subject.model.clone(),
        hardware: subject.hardware.clone(),
        parallelism: subject.parallelism,
        engine: subject.engine.clone(),
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
        settings: super::RowSettings::default(),
    })
}

/// Keys of the document that are read.
struct Document<'a> {
    place: &'a str,
    keys: &'a Map<String, Value>,
}

impl Document<'_> {
    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(n) if (0.0..=1e12).contains(&n) => Ok(Some(n)),
                _ => Err(Error::field(self.place, key, value, "a number from 0 to 10^12")),
            },
        }
    }

    fn needed(&self, key: &str) -> Result<f64> {
        let accepted = "a number: the JSON that `vllm bench serve --save-result` writes";
        self.number(key)?.ok_or_else(|| Error::field(self.place, key, "missing", accepted))
    }

    /// Token counts by request; empty if the document has no list under `key`.
    fn list(&self, key: &str) -> Result<Vec<u64>> {
        let wrong = |found: &Value| Error::field(self.place, key, found, "a list of token counts");
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(|n| n.as_u64().ok_or_else(|| wrong(n))).collect(),
            Some(other) => Err(wrong(other)),
        }
    }

    /// Load of the run: a rate, a number of requests in flight, or a burst.
    fn load(&self, completed: f64) -> Result<ClientLoad> {
        let users = self.number("max_concurrency")?;
        if let Some(wrong) = users.filter(|n| *n < 1.0 || n.fract() != 0.0) {
            return Err(Error::field(self.place, "max_concurrency", wrong, "a whole number from 1, or null"));
        }
        let rate = match self.keys.get("request_rate") {
            Some(Value::String(text)) if text == "inf" => None,
            Some(Value::String(text)) => {
                return Err(Error::field(self.place, "request_rate", text, "a number or \"inf\""));
            }
            _ => self.number("request_rate")?.filter(|r| *r > 0.0),
        };
        match (users, rate) {
            (Some(users), None) => Ok(ClientLoad::Users(users as u64)),
            (cap, Some(rate)) => Ok(ClientLoad::Rate(rate, cap.map(|n| n as u64))),
            (None, None) => Ok(ClientLoad::AtOnce(self.number("num_prompts")?.unwrap_or(completed) as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject {
            model: "llama-3.1-8b".into(),
            hardware: "h100-sxm".into(),
            parallelism: RequestedParallelism { tp: Some(2), ..RequestedParallelism::default() },
            engine: "vllm".into(),
            version: "0.19.0".into(),
            weights: "fp8".into(),
            kv: String::new(),
        }
    }

    const RESULT: &str = r#"{"completed": 3, "failed": 0, "num_prompts": 3, "request_rate": "inf", "max_concurrency": 2,
        "total_input_tokens": 900, "total_output_tokens": 30, "input_lens": [100, 200, 600], "output_lens": [10, 10, 10],
        "mean_ttft_ms": 20.5, "mean_tpot_ms": 4.0, "mean_e2el_ms": 56.5}"#;

    #[test]
    fn a_result_is_a_closed_loop_of_its_users() {
        let row = of_result("c2.json", RESULT, &subject()).unwrap();
        assert_eq!(
            (row.kind, row.concurrency, row.request_rate),
            (MeasurementKind::ClosedLoop, Some(2), None)
        );
        // The mean is 900/3 = 300; 300 − 100 = 200 is less than 600 − 300, so the range is 100 to 500.
        assert_eq!(row.input, Some(Lengths { min: 100, max: 500 }));
        assert_eq!(row.output, Some(Lengths { min: 10, max: 10 }));
        let [ttft, tpot, e2e, output, total] = row.measured.all();
        assert_eq!((ttft, tpot, e2e, output, total), (Some(20.5), Some(4.0), Some(56.5), None, None));
        assert_eq!((row.options(None).parallelism.tp, row.median), (Some(2), false));
    }

    #[test]
    fn a_rate_is_an_open_loop_and_neither_is_a_burst() {
        let load = |from: &str, to: &str| of_result("x", &RESULT.replace(from, to), &subject()).unwrap();
        let capped = load(r#""inf""#, "2.5");
        assert_eq!(
            (capped.kind, capped.concurrency, capped.request_rate),
            (MeasurementKind::OpenLoop, Some(2), Some(2.5))
        );
        let open = load(r#""inf", "max_concurrency": 2"#, r#"2.5, "max_concurrency": null"#);
        assert_eq!(
            (open.kind, open.concurrency, open.request_rate),
            (MeasurementKind::OpenLoop, None, Some(2.5))
        );
        let burst = load(r#""max_concurrency": 2,"#, "");
        assert_eq!((burst.kind, burst.concurrency), (MeasurementKind::BurstAllAtOnce, Some(3)));
        // Without lists of lengths, only the means are known: 900/3 and 30/3.
        let bare = load(r#""input_lens": [100, 200, 600], "output_lens": [10, 10, 10],"#, "");
        assert_eq!(bare.input, Some(Lengths { min: 300, max: 300 }));
    }

    #[test]
    fn wrong_results_name_file_and_field() {
        for (from, to, says) in [
            (r#""completed": 3"#, r#""completed": 0"#, "completed"),
            (r#""completed": 3"#, r#""completed": "3""#, "completed"),
            (r#""failed": 0"#, r#""failed": 1"#, "1 %"),
            (r#""max_concurrency": 2"#, r#""max_concurrency": 100001"#, "100000"),
            (r#""max_concurrency": 2"#, r#""max_concurrency": 0.5"#, "max_concurrency"),
            ("900", "90000003", "10000000"),
            ("900", "null", "total_input_tokens"),
            ("[10, 10, 10]", "[10, -1]", "output_lens"),
            (r#""inf""#, r#""fast""#, "request_rate"),
            (r#"{"completed""#, r#"{"valid": false, "completed""#, "valid"),
            (
                r#""mean_ttft_ms": 20.5, "mean_tpot_ms": 4.0, "mean_e2el_ms": 56.5"#,
                r#""a": 1"#,
                "mean_ttft_ms",
            ),
            (r#"{"completed""#, r#"{"completed"#, "line 1"),
        ] {
            let error =
                of_result("r.json", &RESULT.replacen(from, to, 1), &subject()).unwrap_err().to_string();
            assert!(error.contains("r.json") && error.contains(says), "{to}: {error}");
        }
        assert!(of_result("r.json", "[]", &subject()).unwrap_err().to_string().contains("r.json"));
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
