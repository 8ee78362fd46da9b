//! Results of evalscope's `perf`: the summary of one run.
//!
//! Knows: the keys of `benchmark_summary.json` (evalscope 1.14, `perf/utils/perf_constants.py`; 0.17 to 1.0,
//! `perf/utils/benchmark_util.py`, in seconds). A rate of −1 is none; without `--open-loop` the number of users bounds a
//! rate (`perf/core/strategies/closed_loop.py`), with it the number is −1. The mean TPOT is over requests, since 1.1 over
//! those with more than one token. Knows nothing about percentiles, which are in another file.

use super::super::Metrics;
use super::super::benchmark::ClientLoad;
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::{Error, Result};
use serde_json::{Map, Value};

/// Tokens a chunk above which drafts are likely; rounding and last chunks explain less.
const DRAFTED: f64 = 1.1;

/// Names of the keys in a version.
struct Names {
    users: &'static str,
    completed: &'static str,
    failed: &'static str,
    input: &'static str,
    output: &'static str,
    ttft: &'static str,
    tpot: &'static str,
    latency: &'static str,
    /// Milliseconds of a unit of TTFT and TPOT.
    unit_ms: f64,
}

const NAMES: Names = Names {
    users: "Concurrency",
    completed: "Success Requests",
    failed: "Failed Requests",
    input: "Avg Input Tokens",
    output: "Avg Output Tokens",
    ttft: "Avg TTFT (ms)",
    tpot: "Avg TPOT (ms)",
    latency: "Avg Latency (s)",
    unit_ms: 1.0,
};

const OLDER_NAMES: Names = Names {
    users: "Number of concurrency",
    completed: "Succeed requests",
    failed: "Failed requests",
    input: "Average input tokens per request",
    output: "Average output tokens per request",
    ttft: "Average time to first token (s)",
    tpot: "Average time per output token (s)",
    latency: "Average latency (s)",
    unit_ms: 1e3,
};

fn names(keys: &Map<String, Value>) -> Option<&'static Names> {
    let has = |names: &&Names| keys.contains_key(names.completed) && keys.contains_key(names.latency);
    [&NAMES, &OLDER_NAMES].into_iter().find(has)
}

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    names(keys).is_some()
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![run(document)]
}

/// False if all answers came whole: the time to the first token is then that of the whole answer.
pub(super) fn streamed(document: &Document) -> bool {
    let above = |key: &str| document.keys.get(key).and_then(Value::as_f64).is_some_and(|n| n > 0.0);
    above("Stream Requests") || !above("Non-Stream Requests")
}

fn run(document: &Document) -> Result<ClientRun> {
    let names = names(document.keys).unwrap_or(&NAMES);
    let completed = document.key(names.completed)?.unwrap_or(0.0);
    let failed = document.key(names.failed)?.unwrap_or(0.0);
    let above = |key: &str| document.keys.get(key).and_then(Value::as_f64).filter(|n| *n > 0.0);
    let load = match (above("Request Rate (req/s)"), above(names.users)) {
        (Some(rate), users) => ClientLoad::Rate(rate, users.map(|users| users as u64)),
        (None, Some(users)) => ClientLoad::Users(users as u64),
        (None, None) => ClientLoad::AtOnce(completed as u64),
    };
    for (key, least) in [("Avg Turns/Request", 1.0), ("KV Cache Hit Rate (%)", 0.0)] {
        if let Some(value) = above(key).filter(|n| *n > least) {
            let accepted =
                "a run without conversations and cached tokens: which are shared is not in the file";
            return Err(Error::field(document.place, key, value, accepted));
        }
    }
    let mut run = ClientRun::under(load);
    let total = |key: &str| Ok(document.key(key)?.unwrap_or(0.0) * completed);
    let totals: [Result<f64>; 2] = [total(names.input), total(names.output)];
    let [input, output] = totals;
    run.totals(document.place, [completed, failed], [(input?, &[]), (output?, &[])])?;
    run.set("num_prompts", completed as u64);
    let streamed = streamed(document);
    let time = |key: &str| Ok(document.key(key)?.filter(|time| *time > 0.0));
    let times: [Result<Option<f64>>; 3] = [time(names.ttft), time(names.tpot), time(names.latency)];
    let [ttft, tpot, latency] = times;
    run.measured = Metrics {
        ttft_ms: ttft?.filter(|_| streamed).map(|time| time * names.unit_ms),
        tpot_ms: tpot?.filter(|_| streamed).map(|time| time * names.unit_ms),
        e2e_ms: latency?.map(|seconds| seconds * 1e3),
        ..Metrics::default()
    };
    if document.keys.contains_key(OLDER_NAMES.users) {
        run.notes.push("this version of evalscope does not say if --rate was given: none is assumed".into());
    }
    let key = "Avg Decoded Tok/Iter";
    let drafts =
        above(key).filter(|tokens| *tokens > DRAFTED).map(|tokens| (key.to_owned(), tokens.to_string()));
    run.stated = Stated { drafts, ..Stated::default() };
    Ok(run)
}
