//! Features in pairs: each pair runs or is refused by name. `docs/pairs.md` is the table that these runs write.

use super::support::{catalog, model};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::simulate::{self, Simulation, simulate};
use roofcast::{Forecaster, Spec};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use toml::{Table, Value};

/// A feature: its name in the table, the keys that use it, and keys with which it is present and changes nothing.
struct Feature {
    name: &'static str,
    keys: &'static str,
    idle: Option<&'static str>,
}

const fn feature(name: &'static str, keys: &'static str, idle: Option<&'static str>) -> Feature {
    Feature { name, keys, idle }
}

const FAR: &str = "fleet.failures = { restart_s = 1, events = [{ replica = 0, at_s = 1e9 }] }";

const FEATURES: [Feature; 29] = [
    feature("expert parallelism", "parallelism.ep = 4\nparallelism.tp = 4", None),
    feature("data-parallel attention", "parallelism.attention_dp = 4\nparallelism.ep = 4", None),
    feature("pipeline stages", "parallelism.pp = 2", None),
    feature(
        "decode context parallelism",
        "engine.decode_context_parallel_size = 2\nparallelism.tp = 8",
        None,
    ),
    feature("sliding windows", "model.name = \"openai/gpt-oss-20b\"", None),
    feature("recurrent layers", "model.name = \"ibm-granite/granite-4.0-h-tiny\"", None),
    feature("weights on the host", "engine.cpu_offload_gb = 1", None),
    feature(
        "LoRA adapters",
        "engine.enable_lora = true\nengine.max_loras = 2\nworkload.adapters.count = 3",
        Some("engine.enable_lora = true"),
    ),
    feature(
        "drafts",
        "engine.speculative = { num_speculative_tokens = 2, method = \"eagle3\", draft_cost = 0.02, acceptance_rate = 0.6 }",
        Some("engine.speculative = { num_speculative_tokens = 0 }"),
    ),
    feature("asynchronous scheduling", "engine.async_scheduling = true", None),
    feature("host tier", "engine.kv_offloading_size = 8", None),
    feature(
        "priorities",
        "engine.policy = \"priority\"\nworkload.priorities = [1, 1]",
        Some("engine.policy = \"priority\""),
    ),
    feature("prompts in every second step", "engine.prefill_schedule_interval = 2", None),
    feature("queue limits", "engine.max_num_queued_reqs = 4", Some("engine.max_num_queued_reqs = 1000")),
    feature(
        "rate limits",
        "fleet.rate_limit = { requests_per_s = 5, request_burst = 4 }",
        Some("fleet.rate_limit = { requests_per_s = 1000 }"),
    ),
    feature("prefill and decode pools", "fleet = { link = \"nvlink\", prefill = {}, decode = {} }", None),
    feature(
        "autoscaling",
        "fleet.autoscale = { target_in_flight = 2, max_replicas = 2, startup_s = 0.1, idle_s = 1 }",
        Some(
            "fleet.autoscale = { target_in_flight = 2, min_replicas = 1, max_replicas = 1, startup_s = 0, idle_s = 1 }",
        ),
    ),
    feature(
        "a schedule of replicas",
        "fleet.schedule = { interval_s = 1, replicas = [1, 2] }",
        Some("fleet.schedule = { interval_s = 1000, replicas = [1] }"),
    ),
    feature(
        "failures",
        "fleet.failures = { restart_s = 0.2, events = [{ replica = 0, at_s = 0.5 }] }",
        Some(FAR),
    ),
    feature(
        "slow replicas",
        "fleet.slow = { replicas = 1, factor = 1.5 }",
        Some("fleet.slow = { replicas = 1, factor = 1 }"),
    ),
    feature("replicas of another kind", "fleet.beside = { accelerator = \"h100-sxm\" }", None),
    feature("late KV events", "fleet.router = \"kvaware\"\nfleet.routing.event_delay_s = 0.1", None),
    feature(
        "images",
        "model.name = \"Qwen/Qwen3-VL-30B-A3B-Instruct\"\nworkload.images = { width = 640, height = 480 }",
        None,
    ),
    feature("shared prefixes", "workload.prefix = { length = 200 }", None),
    feature(
        "sessions",
        "workload.arrivals = { kind = \"sessions\", rate = 20, turns = 3, think_s = 0.1 }",
        None,
    ),
    feature("a trace", "workload.arrivals = { kind = \"trace\", path = \"t.csv\" }", None),
    feature("SGLang", "engine.name = \"sglang\"", None),
    feature("TensorRT-LLM", "engine.name = \"tensorrt-llm\"", None),
    feature("llama.cpp", "engine.name = \"llama.cpp\"", None),
];

const BASE: &str = "model.name = \"Qwen/Qwen3-30B-A3B\"\nhardware.accelerator = \"h200-sxm\"\nengine.num_gpu_blocks = 4000\n\
    engine.max_num_seqs = 8\nworkload.requests = 12\nworkload.input_len = 150\nworkload.output_len = 20\n\
    workload.arrivals = { kind = \"poisson\", rate = 20 }\n";

/// Adds the keys of `other` to `table`; a key that both have takes the value of `other`.
fn merge(table: &mut Table, other: Table) {
    for (key, value) in other {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(other)) if !inner.contains_key("kind") => {
                merge(inner, other)
            }
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// True if both have a key of `[model]`, `[engine]` or of the arrivals with different values.
fn exclude(one: &Table, other: &Table) -> bool {
    let name =
        |table: &Table, section: &str, key: &str| Some(table.get(section)?.as_table()?.get(key)?.clone());
    let keys = [("model", "name"), ("engine", "name"), ("workload", "arrivals")];
    keys.iter().any(|(section, key)| match (name(one, section, key), name(other, section, key)) {
        (Some(a), Some(b)) => a != b,
        _ => false,
    })
}

fn run(keys: &[&str]) -> roofcast::Result<Simulation> {
    let mut table: Table = BASE.parse().unwrap();
    keys.iter().for_each(|keys| merge(&mut table, keys.parse().unwrap()));
    let of_llama = table["engine"].get("name").is_some_and(|name| name.as_str() == Some("llama.cpp"));
    if of_llama {
        // Its cache has the cells of its slots, in place of blocks.
        table["engine"].as_table_mut().unwrap().remove("num_gpu_blocks");
    }
    let replays = table["workload"]["arrivals"]["kind"].as_str() == Some("trace");
    if replays {
        // A trace has lengths of its own.
        let workload = table["workload"].as_table_mut().unwrap();
        for key in ["input_len", "output_len"] {
            workload.remove(key);
        }
    }
    let mut spec = Spec::parse("spec", &toml::to_string(&table).unwrap())?;
    if let Some(workload) = &mut spec.workload {
        let rows: String = (0..12).map(|n| format!("{},150,20\n", f64::from(n) * 0.05)).collect();
        workload
            .load("spec", |_| Ok::<_, roofcast::Error>(format!("arrival_s,input_len,output_len\n{rows}")))?;
    }
    let own = spec.hardware.accelerator.as_deref();
    let [other, serving] = spec
        .fleet
        .accelerators(own)
        .map(|name| Arc::new(catalog().accelerator(name.unwrap()).unwrap().clone()));
    let other = (other.id != serving.id).then_some(other);
    let options = DeploymentOptions { other, ..DeploymentOptions::of(&spec) };
    let name = table["model"]["name"].as_str().unwrap();
    let deployment = Deployment::resolve(model(name), serving, &options)?;
    let options = simulate::RunOptions { leap: true, records: true, ..simulate::RunOptions::default() };
    simulate(&Forecaster::embedded(deployment)?, &spec, "spec", options)
}

/// Outcome of a pair.
enum Cell {
    Works,
    /// The pair is of two values of one key.
    Excluded,
    Refused(String),
}

/// Runs a pair; both features must serve or refuse every request.
fn tried(one: &Feature, other: &Feature) -> Cell {
    let tables: [Table; 2] = [one, other].map(|feature| feature.keys.parse().unwrap());
    if exclude(&tables[0], &tables[1]) {
        return Cell::Excluded;
    }
    match run(&[one.keys, other.keys]) {
        Ok(run) => {
            assert_eq!(run.records.len(), 12, "{} and {}", one.name, other.name);
            unchanged_by_idle(one, other);
            unchanged_by_idle(other, one);
            Cell::Works
        }
        Err(error) => Cell::Refused(error.to_string()),
    }
}

/// Asserts that a run with `feature` does not change if `idle` is present without effect.
fn unchanged_by_idle(feature: &Feature, idle: &Feature) {
    // TensorRT-LLM's overlap scheduler is simulated for queues in order of arrival alone.
    let Some(keys) = idle.idle.filter(|_| [feature.name, idle.name] != ["TensorRT-LLM", "priorities"]) else {
        return;
    };
    let [with, without] = [run(&[feature.keys, keys]), run(&[feature.keys])].map(Result::unwrap);
    let ends = |run: &Simulation| run.records.iter().map(|r| (r.first_token, r.finished)).collect::<Vec<_>>();
    assert_eq!(ends(&with), ends(&without), "{} beside {} without effect", idle.name, feature.name);
}

/// The chapter, from a run of every pair.
fn chapter() -> String {
    let mut text = String::from(
        "# Features together\n\nWhich features run together? A test runs every pair of these features through `simulate` and writes this page: \
         `yes` runs, and equals the feature alone where the other one is present without effect; a number is refused, with \
         the reason below; `·` are two values of one key. The model is Qwen3-30B-A3B on H200s under vLLM, or one that has the feature. \
         Requests of a trace are replayed with its lengths.\n\n",
    );
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let numbers: Vec<String> = (1..=FEATURES.len()).map(|n| n.to_string()).collect();
    writeln!(text, "| | feature | {} |", numbers.join(" | ")).unwrap();
    writeln!(text, "|---|---|{}", "---|".repeat(FEATURES.len())).unwrap();
    let mut counts = [0, 0];
    for (row, one) in FEATURES.iter().enumerate() {
        let mut cells = Vec::new();
        for other in &FEATURES[..row] {
            cells.push(match tried(one, other) {
                Cell::Works => {
                    counts[0] += 1;
                    "yes".to_owned()
                }
                Cell::Excluded => "·".to_owned(),
                Cell::Refused(reason) => {
                    counts[1] += 1;
                    let number = *reasons.entry(reason.clone()).or_insert_with(|| {
                        order.push(reason);
                        order.len()
                    });
                    format!("({number})")
                }
            });
        }
        cells.resize(FEATURES.len(), String::new());
        writeln!(text, "| {} | {} | {} |", row + 1, one.name, cells.join(" | ")).unwrap();
    }
    let [works, refused] = counts;
    writeln!(text, "\n{works} pairs run, {refused} are refused:\n").unwrap();
    for (number, reason) in order.iter().enumerate() {
        writeln!(text, "{}. {}", number + 1, reason.replace('|', "\\|")).unwrap();
    }
    text.push_str("\nThe keys of each feature:\n\n| feature | keys |\n|---|---|\n");
    for Feature { name, keys, .. } in &FEATURES {
        writeln!(text, "| {name} | `{}` |", keys.replace('\n', "`, `")).unwrap();
    }
    text
}

#[test]
fn every_pair_runs_or_is_refused() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pairs.md");
    let fresh = chapter();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let stale = fresh.lines().zip(kept.lines()).find(|(fresh, kept)| fresh != kept);
    assert!(kept == fresh, "docs/pairs.md is stale, UPDATE_DOCS=1 writes it: {stale:?}");
}
