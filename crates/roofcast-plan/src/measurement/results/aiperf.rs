//! Results of aiperf and of its predecessor genai-perf.
//!
//! Knows: the keys of `profile_export_aiperf.json` (aiperf 0.13, schema 1.0 to 1.5, `common/models/export_models.py`,
//! `config/phases.py`, `config/dataset/config.py`) and of `profile_export_genai_perf.json` (genai-perf 0.0.16). In both,
//! `inter_token_latency` is (request latency − TTFT) / (output tokens − 1) of a request, which is vLLM's TPOT, and its
//! mean is over requests.

use super::super::Metrics;
use super::super::benchmark::ClientLoad;
use super::client_run::ClientRun;
use super::document::Document;
use super::stated::Stated;
use roofcast_facts::error::Result;
use serde_json::{Map, Value};

pub(super) fn wrote(keys: &Map<String, Value>) -> bool {
    let metric = |key: &str| keys.get(key).is_some_and(|metric| metric.get("avg").is_some());
    metric("request_latency") || metric("time_to_first_token")
}

pub(super) fn is_genai_perf(keys: &Map<String, Value>) -> bool {
    wrote(keys) && keys.get("input_config").is_some_and(|config| config.get("perf_analyzer").is_some())
}

pub(super) fn read(document: &Document) -> Vec<Result<ClientRun>> {
    vec![aiperf_load(document).and_then(|(load, arrivals)| run(document, load, arrivals))]
}

pub(super) fn genai_perf(document: &Document) -> Vec<Result<ClientRun>> {
    vec![genai_perf_load(document).and_then(|load| run(document, load, None))]
}

fn run(document: &Document, load: ClientLoad, arrivals: Option<String>) -> Result<ClientRun> {
    let mean = |metric: &str| document.number(&format!("{metric}/avg"));
    let completed = mean("request_count")?.unwrap_or(0.0);
    let tokens = |total: &str, each: &str| -> Result<f64> {
        Ok(mean(total)?.unwrap_or(mean(each)?.unwrap_or(0.0) * completed))
    };
    let mut run = ClientRun::under(load);
    let totals =
        [tokens("total_isl", "input_sequence_length")?, tokens("total_osl", "output_sequence_length")?];
    let failed = mean("error_request_count")?.unwrap_or(0.0);
    run.totals(document.place, [completed, failed], [(totals[0], &[]), (totals[1], &[])])?;
    run.set("num_prompts", completed as u64);
    if let Some(arrivals) = arrivals {
        run.set("arrivals", arrivals);
    }
    run.measured = Metrics {
        ttft_ms: milliseconds(document, "time_to_first_token")?,
        tpot_ms: milliseconds(document, "inter_token_latency")?,
        e2e_ms: milliseconds(document, "request_latency")?,
        ..Metrics::default()
    };
    if document.at("was_cancelled") == Some(&Value::Bool(true)) {
        return document.refuse("/was_cancelled", "a run to its end");
    }
    run.stated = stated(document);
    Ok(run)
}

/// Mean of a metric in milliseconds, by the unit that it names.
fn milliseconds(document: &Document, metric: &str) -> Result<Option<f64>> {
    let to_ms = document.milliseconds_per_unit(metric);
    Ok(document.number(&format!("{metric}/avg"))?.map(|value| value * to_ms))
}

fn stated(document: &Document) -> Stated {
    let lists = ["input_config/models", "input_config/model_names", "input_config/endpoint/model_names"];
    let name = |path: &&str| {
        let names = document.at(path)?;
        let list = names.get("items").unwrap_or(names);
        let first = list.get(0).unwrap_or(list);
        first.as_str().or_else(|| first.get("name")?.as_str()).map(str::to_owned)
    };
    let model = lists.iter().find_map(name).map(|model| ("input_config.model_names", model));
    let drafted = document.at("pooled_spec_decode_acceptance_histogram");
    let drafts =
        drafted.map(|_| ("pooled_spec_decode_acceptance_histogram".to_owned(), "present".to_owned()));
    Stated { model, drafts, ..Stated::default() }
}

/// Keys of a phase that change the load in a way that is not forecast.
const UNFORECAST: [(&str, &str); 6] = [
    ("concurrency_ramp", "null: a ramp of users whose requests are judged is not forecast"),
    ("rate_ramp", "null: a ramp of the rate is not forecast"),
    ("rate_series", "null: a series of rates is not forecast"),
    ("prefill_concurrency", "null: a bound on prompts in progress is not forecast"),
    ("cancellation", "null: cancelled requests are not forecast"),
    ("users", "null: rates of single users are not forecast"),
];

/// Load of the measured phase, and its arrivals as a setting: from `phases`, else from `loadgen`. If a rate is given,
/// the number of users is only a bound.
fn aiperf_load(document: &Document) -> Result<(ClientLoad, Option<String>)> {
    same_prompts(document)?;
    let phases = document.at("input_config/phases").and_then(Value::as_array);
    let phases = phases.map(Vec::as_slice).unwrap_or_default();
    let measured = |phase: &&Value| phase["kind"] == "profiling" || phase["name"] == "profiling";
    let phase = phases.iter().find(measured).or(phases.last());
    let older = document.at("input_config/loadgen");
    let Some(Value::Object(keys)) = phase.or(older) else {
        return document.refuse("/input_config/phases", "phases, or loadgen, with concurrency or a rate");
    };
    let place = format!("{}, input_config", document.place);
    let phase = Document { place: &place, keys };
    for (key, accepted) in UNFORECAST {
        let set =
            phase.at(key).is_some_and(|value| value.as_f64() != Some(0.0) && *value != Value::Bool(false));
        if set {
            return phase.refuse(key, accepted);
        }
    }
    let kind = phase.text("type").or(phase.text("arrival_pattern")).unwrap_or("poisson");
    let arrivals = match kind {
        "constant" => Some("constant".to_owned()),
        "gamma" => phase.number("smoothness")?.map(|shape| format!("gamma(burstiness={shape})")),
        "poisson" | "concurrency" | "concurrency_burst" | "request_rate" => None,
        _ => return phase.refuse("type", "concurrency, poisson, gamma or constant"),
    };
    let users = phase.count("concurrency")?;
    let load = match phase.number("rate")?.or(phase.number("request_rate")?).filter(|rate| *rate > 0.0) {
        Some(rate) => ClientLoad::Rate(rate, users),
        None => match users {
            Some(users) => ClientLoad::Users(users),
            None => return phase.refuse("concurrency", "concurrency, or a rate"),
        },
    };
    Ok((load, arrivals))
}

/// Refuses conversations and shared prefixes, whose cached tokens the statistics do not show.
fn same_prompts(document: &Document) -> Result<()> {
    let listed = document.at("input_config/datasets").and_then(|all| all.get(0));
    let single = document.at("input_config/dataset");
    let older = document.at("input_config/input");
    for dataset in [listed, single, older].into_iter().flatten() {
        let more = |value: &Value, than: f64| {
            let mean = value.get("mean").or(value.get("value")).unwrap_or(value);
            mean.as_f64().is_some_and(|n| n > than)
        };
        let turns = [dataset.get("turns"), dataset.pointer("/conversation/turn/mean")];
        if turns.into_iter().flatten().any(|turns| more(turns, 1.0)) {
            return document
                .refuse("/input_config", "1 turn: cached tokens of conversations are not in the file");
        }
        let prefixes = ["prefix_prompts", "prefix_prompt"].map(|key| dataset.get(key));
        let prefixes = prefixes.into_iter().flatten().chain(dataset.pointer("/prompt/prefix_prompt"));
        let sizes = prefixes.flat_map(|prefix| ["length", "shared_system_length"].map(|key| prefix.get(key)));
        if sizes.flatten().any(|length| more(length, 0.0)) {
            return document.refuse("/input_config", "no prefix prompts: cached tokens are not in the file");
        }
    }
    Ok(())
}

/// Load of genai-perf: the stimulus of the server.
fn genai_perf_load(document: &Document) -> Result<ClientLoad> {
    same_prompts(document)?;
    let path = "input_config/perf_analyzer/stimulus";
    if let Some(users) = document.count(&format!("{path}/concurrency"))? {
        return Ok(ClientLoad::Users(users));
    }
    match document.number(&format!("{path}/request_rate"))?.filter(|rate| *rate > 0.0) {
        Some(rate) => Ok(ClientLoad::Rate(rate, None)),
        None => document.refuse(path, "concurrency or request_rate"),
    }
}
