//! Results of aiperf and of its predecessor genai-perf.
//!
//! Knows: the keys of `profile_export_aiperf.json` (aiperf 0.13, `common/models/export_models.py`, `config/phases.py`,
//! `config/dataset/config.py`; 0.2 and 0.5, `common/config/loadgen_config.py` and `input_config.py`) and of
//! `profile_export_genai_perf.json` (genai-perf 0.0.16, `config/input/config_input.py` and `config_perf_analyzer.py`). In
//! both, `inter_token_latency` is (request latency − TTFT) / (output tokens − 1) of a request, which is vLLM's TPOT, and
//! its mean is over requests. Knows nothing about files of prompts: which of them share tokens is not in the result.

use super::super::Metrics;
use super::super::benchmark::ClientLoad;
use super::client_run::{ClientRun, TokenCount};
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
    vec![genai_perf_load(document).and_then(|(load, arrivals)| run(document, load, arrivals))]
}

fn run(document: &Document, load: ClientLoad, arrivals: Option<String>) -> Result<ClientRun> {
    for (key, accepted) in [("was_cancelled", "a run to its end"), ("is_complete", "a run to its end")] {
        if document.at(key) == Some(&Value::Bool(key == "was_cancelled")) {
            return document.refuse(key, accepted);
        }
    }
    let mean = |metric: &str| document.number(&format!("{metric}/avg"));
    let completed = mean("request_count")?.unwrap_or(0.0);
    let failed = mean("error_request_count")?.unwrap_or(0.0);
    let mut run = ClientRun::under(load);
    let input = tokens(document, "input_sequence_length", "total_isl", completed)?;
    let output = tokens(document, "output_sequence_length", "total_osl", completed)?;
    run.spread(document.place, [completed, failed], [input, output])?;
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
    run.stated = stated(document);
    prompts(document, &mut run)?;
    Ok(run)
}

/// Statistics of a token count, or its mean from the total over all requests.
fn tokens(document: &Document, metric: &str, total: &str, completed: f64) -> Result<TokenCount> {
    let count = TokenCount::read(document, metric, ["avg", "std"])?;
    match document.number(&format!("{total}/avg"))? {
        Some(total) if document.at(metric).is_none() => Ok(TokenCount::of_mean(total / completed.max(1.0))),
        _ => Ok(count),
    }
}

/// Mean of a metric in milliseconds, by the unit that it names.
fn milliseconds(document: &Document, metric: &str) -> Result<Option<f64>> {
    let to_ms = document.milliseconds_per_unit(metric)?;
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

/// Keys of a phase, or of the older `loadgen`, that change the load in a way that is not forecast.
const UNFORECAST: [(&str, &str); 15] = [
    ("concurrency_ramp", "null: a ramp of users whose requests are judged is not forecast"),
    ("concurrency_ramp_duration", "null: a ramp of users whose requests are judged is not forecast"),
    ("rate_ramp", "null: a ramp of the rate is not forecast"),
    ("request_rate_ramp_duration", "null: a ramp of the rate is not forecast"),
    ("rate_series", "null: a series of rates is not forecast"),
    ("prefill_concurrency", "null: a bound on prompts in progress is not forecast"),
    ("prefill_ramp", "null: a bound on prompts in progress is not forecast"),
    ("adaptive_scale", "false: a load that is adapted during the run is not forecast"),
    ("timing_mode", "null: only users and rates are forecast"),
    ("cancellation", "null: cancelled requests are not forecast"),
    ("request_cancellation_rate", "null: cancelled requests are not forecast"),
    ("users", "null: rates of single users are not forecast"),
    ("num_users", "null: rates of single users are not forecast"),
    ("user_centric_rate", "null: rates of single users are not forecast"),
    ("fixed_schedule", "false: the times of a trace are not in the file"),
];

/// Load of the measured phase, and its arrivals as a setting: from `phases`, else from `loadgen`. If a rate is given,
/// the number of users is only a bound.
fn aiperf_load(document: &Document) -> Result<(ClientLoad, Option<String>)> {
    let phases = document.at("input_config/phases").and_then(Value::as_array);
    let phases = phases.map(Vec::as_slice).unwrap_or_default();
    let measured = |phase: &&Value| phase["kind"] == "profiling" || phase["name"] == "profiling";
    if phases.iter().filter(measured).count() > 1 {
        return document.refuse("/input_config/phases", "one phase that is measured: its figures are of all");
    }
    let phase = phases.iter().find(measured).or(phases.last());
    let older = document.at("input_config/loadgen");
    let Some(Value::Object(keys)) = phase.or(older) else {
        return document.refuse("/input_config/phases", "phases, or loadgen, with concurrency or a rate");
    };
    let place = format!("{}, input_config", document.place);
    let phase = Document { place: &place, keys };
    let schedule = document.at("input_config/input").and_then(Value::as_object);
    for part in [Some(keys), schedule].into_iter().flatten() {
        refuse_set(&Document { place: &place, keys: part }, &UNFORECAST)?;
    }
    let kinds = ["type", "arrival_pattern", "request_rate_mode"];
    let kind = kinds.into_iter().find_map(|key| phase.text(key)).unwrap_or("poisson");
    let arrivals = match kind {
        "constant" => Some("constant".to_owned()),
        "gamma" => {
            let smoothness = phase.number("smoothness")?.or(phase.number("arrival_smoothness")?);
            smoothness.map(|shape| format!("gamma(burstiness={shape})"))
        }
        "poisson" | "concurrency" | "concurrency_burst" | "request_rate" => None,
        _ => return phase.refuse("type", "concurrency, poisson, gamma or constant"),
    };
    let users = phase.count("concurrency")?;
    let load = match phase.number("rate")?.or(phase.number("request_rate")?).filter(|rate| *rate > 0.0) {
        Some(rate) => ClientLoad::Rate(rate, users),
        None => match users {
            Some(users) => ClientLoad::Users(users),
            // The default of the type that has no rate.
            None if kind == "concurrency" => ClientLoad::Users(1),
            None => return phase.refuse("concurrency", "concurrency, or a rate"),
        },
    };
    Ok((load, arrivals.filter(|_| matches!(load, ClientLoad::Rate(..)))))
}

/// Refuses the first of `keys` that has a value other than 0 or false.
fn refuse_set(document: &Document, keys: &[(&str, &str)]) -> Result<()> {
    let unset = |value: &Value| value.as_f64() == Some(0.0) || *value == Value::Bool(false);
    match keys.iter().find(|(key, _)| document.at(key).is_some_and(|value| !unset(value))) {
        Some((key, accepted)) => document.refuse(key, accepted),
        None => Ok(()),
    }
}

/// The largest number of a setting: of itself, or of its mean or value.
fn size(setting: Option<&Value>) -> f64 {
    let mean = setting.map(|value| value.get("mean").or(value.get("value")).unwrap_or(value));
    mean.and_then(Value::as_f64).unwrap_or(0.0)
}

/// Reads the prompts: refuses conversations and shared prefixes, whose cached tokens the statistics do not show, and
/// pictures and sound, which a forecast from token counts leaves out.
fn prompts(document: &Document, run: &mut ClientRun) -> Result<()> {
    const TURNS: [&str; 3] = ["/turns", "/conversation/turn/mean", "/sessions/turns/mean"];
    const PREFIXES: [&str; 3] = ["/prefix_prompts", "/prefix_prompt", "/prompt/prefix_prompt"];
    const SHARED: [&str; 3] = ["shared_system_length", "shared_system_prompt_length", "user_context_length"];
    let listed = document.at("input_config/datasets").and_then(|all| all.get(0));
    let parts = [listed, document.at("input_config/dataset"), document.at("input_config/input")];
    for dataset in parts.into_iter().flatten() {
        if TURNS.iter().any(|turns| size(dataset.pointer(turns)) > 1.0) {
            let accepted = "1 turn: cached tokens of conversations are not in the file";
            return document.refuse("/input_config", accepted);
        }
        let shared = |prefix: &Value| {
            let pool = prefix.get("pool_size").or(prefix.get("num"));
            let pooled = size(prefix.get("length")) > 0.0 && pool.is_none_or(|pool| size(Some(pool)) > 0.0);
            pooled || SHARED.iter().any(|key| size(prefix.get(*key)) > 0.0)
        };
        if PREFIXES.iter().filter_map(|path| dataset.pointer(path)).any(shared) {
            let accepted = "no prefix prompts: cached tokens are not in the file";
            return document.refuse("/input_config", accepted);
        }
        for media in ["image", "images", "audio", "video"] {
            let sizes = ["width", "height", "length", "duration"];
            let part = dataset.get(media);
            if part.is_some_and(|part| sizes.iter().any(|key| size(part.get(*key)) > 0.0)) {
                return document
                    .refuse("/input_config", &format!("text alone: {media} is not forecast here"));
            }
        }
        file_of_prompts(document, dataset, run)?;
    }
    Ok(())
}

/// Reads the name of a published dataset or of a file's format; refuses the formats of traces and conversations.
fn file_of_prompts(document: &Document, dataset: &Value, run: &mut ClientRun) -> Result<()> {
    let named = |key: &str| dataset.get(key).and_then(Value::as_str);
    let published = named("public_dataset").or(named("dataset"));
    let format = named("custom_dataset_type").or(named("format").filter(|_| dataset.get("path").is_some()));
    match (published, format) {
        (Some("sharegpt"), _) => run.set("dataset", "sharegpt"),
        (Some(name), _) => {
            run.notes.push(format!("lengths of dataset {name} are taken by mean and deviation"))
        }
        (None, Some("single_turn" | "random_pool")) => {
            run.notes
                .push("prompts of a file are taken as different, with lengths by mean and deviation".into());
        }
        (None, Some(_)) => {
            let accepted =
                "prompts of one turn: which tokens a trace or conversation shares is not in the file";
            return document.refuse("/input_config", accepted);
        }
        (None, None) => {}
    }
    Ok(())
}

/// Load of genai-perf: the stimulus of the server. Gaps of a rate are equal, the default of `perf_analyzer`'s
/// `--request-distribution`, which genai-perf does not set.
fn genai_perf_load(document: &Document) -> Result<(ClientLoad, Option<String>)> {
    let path = "input_config/perf_analyzer/stimulus";
    if let Some(users) = document.count(&format!("{path}/concurrency"))? {
        return Ok((ClientLoad::Users(users), None));
    }
    match document.number(&format!("{path}/request_rate"))?.filter(|rate| *rate > 0.0) {
        Some(rate) => Ok((ClientLoad::Rate(rate, None), Some("constant".to_owned()))),
        None => document.refuse(path, "concurrency or request_rate"),
    }
}
