//! Results of benchmark clients as measured points: one reader for every verb.
//!
//! Knows: which client wrote a document, and that file and caller together describe the deployment. The keys of a
//! client are in a file of its own. Knows nothing about forecasts.

mod aiperf;
mod client_run;
mod document;
mod evalscope;
mod figures;
mod guidellm;
mod inference_perf;
mod inferencex;
mod llama_bench;
mod mlperf;
mod sglang;
mod stated;
mod trtllm;
mod vllm;

use super::Measurement;
use super::benchmark::Subject;
use client_run::ClientRun;
use document::Document;
pub use figures::{Figures, KEYS};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use serde_json::{Map, Value};

/// One run of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientPoint {
    /// Name of the client.
    pub client: &'static str,
    /// The measured point, or the reason why the run is none.
    pub row: Result<Measurement>,
}

/// A client, with the functions that recognize and read its documents.
struct Client {
    name: &'static str,
    wrote: fn(&Map<String, Value>) -> bool,
    read: fn(&Document) -> Vec<Result<ClientRun>>,
    /// Figures of each run by vLLM's keys.
    figures: fn(&Document) -> Vec<Figures>,
}

/// Clients in the order in which they are tried: a later client's keys may occur in the documents of earlier ones.
const CLIENTS: [Client; 13] = [
    Client { name: "roofcast bench", wrote: vllm::is_roofcast, read: vllm::roofcast, figures: figures::vllm },
    Client { name: "SGLang", wrote: sglang::wrote, read: sglang::read, figures: figures::sglang },
    Client { name: "vLLM", wrote: vllm::wrote, read: vllm::read, figures: figures::vllm },
    Client {
        name: "vllm bench throughput",
        wrote: vllm::is_offline,
        read: vllm::offline,
        figures: figures::none,
    },
    Client {
        name: "genai-perf",
        wrote: aiperf::is_genai_perf,
        read: aiperf::genai_perf,
        figures: figures::aiperf,
    },
    Client { name: "aiperf", wrote: aiperf::wrote, read: aiperf::read, figures: figures::aiperf },
    Client { name: "guidellm", wrote: guidellm::wrote, read: guidellm::read, figures: figures::guidellm },
    Client {
        name: "inference-perf",
        wrote: inference_perf::wrote,
        read: inference_perf::read,
        figures: figures::inference_perf,
    },
    Client { name: "evalscope", wrote: evalscope::wrote, read: evalscope::read, figures: figures::evalscope },
    Client { name: "trtllm-bench", wrote: trtllm::wrote, read: trtllm::read, figures: figures::trtllm },
    Client {
        name: "InferenceX",
        wrote: inferencex::wrote,
        read: inferencex::read,
        figures: figures::inferencex,
    },
    Client {
        name: "llama-bench",
        wrote: llama_bench::wrote,
        read: llama_bench::read,
        figures: figures::none,
    },
    Client {
        name: "llama-batched-bench",
        wrote: llama_bench::is_batched,
        read: llama_bench::batched,
        figures: figures::none,
    },
];

/// Accepted documents, for errors.
const ACCEPTED: &str = "the result of vllm bench serve or throughput, SGLang's bench_serving, roofcast bench, aiperf, genai-perf, \
                        guidellm, inference-perf, evalscope, trtllm-bench, InferenceX, llama-bench, \
                        llama-batched-bench or MLPerf's LoadGen";

/// True if `text` is a document of a client, and not a table of measurements or records of requests.
pub fn recognizes(text: &str) -> bool {
    mlperf::wrote(text)
        || llama_bench::is_table(text)
        || document::objects("", text)
            .is_ok_and(|objects| objects.iter().any(|(_, keys)| client(keys).is_some()))
}

/// Reads every run of a client's document; `place` names the file in errors, and `subject` is what the caller knows of
/// the deployment, which is checked against what the file says.
///
/// # Errors
/// No client wrote the document. A run that is no measured point has an error of its own.
pub fn read(place: &str, text: &str, subject: &Subject, catalog: &Catalog) -> Result<Vec<ClientPoint>> {
    let point = |client, place: &str, run: Result<ClientRun>| ClientPoint {
        client,
        row: run.and_then(|run| run.point(place, subject, catalog)),
    };
    if mlperf::wrote(text) {
        return Ok(vec![point("MLPerf's LoadGen", place, mlperf::read(place, text))]);
    }
    if llama_bench::is_table(text) {
        let runs = llama_bench::table(place, text)?;
        return Ok(runs.into_iter().map(|(place, run)| point("llama-bench", &place, run)).collect());
    }
    let mut points = Vec::new();
    for (place, keys) in document::objects(place, text)? {
        let unknown = || Error::field(&place, "results", "of no known client", ACCEPTED);
        let client = client(&keys).ok_or_else(unknown)?;
        let document = Document { place: &place, keys: &keys };
        let runs = (client.read)(&document);
        let several = runs.len() > 1;
        for (index, run) in runs.into_iter().enumerate() {
            let place = if several { format!("{place}, run {}", index + 1) } else { place.clone() };
            points.push(point(client.name, &place, run));
        }
    }
    if points.is_empty() {
        return Err(Error::field(place, "results", "none", ACCEPTED));
    }
    Ok(points)
}

/// Figures of a client's document with one run, with the client's name; `place` names the file in errors.
///
/// # Errors
/// No client wrote the document, or it has no figures of requests, or several runs.
pub fn figures(place: &str, text: &str) -> Result<(&'static str, Figures)> {
    let refused = |found: String, accepted: &str| Err(Error::field(place, "results", found, accepted));
    if mlperf::wrote(text) || llama_bench::is_table(text) {
        return refused(
            "times of batches or by rank".to_owned(),
            "figures of requests by vLLM's definitions",
        );
    }
    let mut runs = Vec::new();
    for (place, keys) in document::objects(place, text)? {
        let unknown = || Error::field(&place, "results", "of no known client", ACCEPTED);
        let client = client(&keys).ok_or_else(unknown)?;
        let figures = (client.figures)(&Document { place: &place, keys: &keys });
        runs.extend(figures.into_iter().map(|figures| (client.name, figures)));
    }
    let count = runs.len();
    match runs.pop() {
        _ if count > 1 => refused(format!("{count} runs"), "one run"),
        Some((client, figures)) if !figures.is_empty() => Ok((client, figures)),
        _ => refused("no figures of requests".to_owned(), ACCEPTED),
    }
}

fn client(keys: &Map<String, Value>) -> Option<&'static Client> {
    CLIENTS.iter().find(|client| (client.wrote)(keys))
}

#[cfg(test)]
mod tests;
