//! Keys that one engine has: in the section of the engine, in `[engine]`, in a written spec, and in a plan of two engines.

use roofcast::deployment::DeploymentOptions;
use roofcast::plan::PlanQuestion;
use roofcast::resolved;
use roofcast::scheduler::config::EngineConfig;
use roofcast::spec::keys::{KEYS, SpecKey};
use roofcast::spec::sections::nested;
use roofcast::{Catalog, Deployment, Error, Spec};
use std::sync::Arc;
use toml::{Table, Value};

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";
/// Keys that a section needs besides the key that is tested.
const NEEDS: [(&str, &str); 24] = [
    ("engine.speculative.", "engine.speculative = { num_speculative_tokens = 2, acceptance_rate = 0.5 }"),
    ("engine.length_prediction.sigma", "engine.length_prediction = { kind = \"noisy\" }"),
    ("engine.length_prediction.accuracy", "engine.length_prediction = { kind = \"proxy\" }"),
    (
        "workload.prefix.",
        "workload = { input_len = 8, output_len = 8, prefix = { length = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    (
        "workload.images.width",
        "workload = { input_len = 8, output_len = 8, images = { height = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    (
        "workload.images.frames",
        "workload = { input_len = 8, output_len = 8, images = { width = 4, height = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    (
        "workload.images.height",
        "workload = { input_len = 8, output_len = 8, images = { width = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    (
        "workload.images.frames",
        "workload = { input_len = 8, output_len = 8, images = { width = 4, height = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    (
        "workload.images.",
        "workload = { input_len = 8, output_len = 8, images = { tokens = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    (
        "workload.adapters.",
        "workload = { input_len = 8, output_len = 8, adapters = { count = 4 }, arrivals = { kind = \"offline\" } }",
    ),
    ("workload.preset", ""),
    ("workload.classes", "workload.arrivals = { kind = \"offline\" }"),
    ("fleet.failures.mtbf_s", "fleet.failures = { restart_s = 5 }"),
    ("fleet.failures.events", "fleet.failures = { restart_s = 5 }"),
    ("fleet.failures.", "fleet.failures = { mtbf_s = 100, restart_s = 5 }"),
    ("fleet.slow.", "fleet.slow = { replicas = 1, factor = 1.5 }"),
    ("workload.rate", "workload.preset = \"azure-conv-2023\""),
    ("workload.arrivals.format", ""),
    ("workload.", "workload = { input_len = 8, output_len = 8, arrivals = { kind = \"offline\" } }"),
    (
        "fleet.autoscale.",
        "fleet.autoscale = { target_in_flight = 4, max_replicas = 3, startup_s = 1.0, idle_s = 1.0 }",
    ),
    ("fleet.schedule.", "fleet.schedule = { interval_s = 60.0, replicas = [1, 2] }"),
    ("hardware.pue", "hardware.grid_g_per_kwh = 400"),
    ("slo.goodput", "slo.ttft_p99_ms = 200"),
    ("", ""),
];
/// Keys of `[workload.arrivals]`, each with a kind of arrivals that has it.
const KINDS: [&str; 10] = [
    "{ kind = \"poisson\", rate = 1.0 }",
    "{ kind = \"closed_loop\", concurrency = 2 }",
    "{ kind = \"gamma\", rate = 1.0, burstiness = 0.5 }",
    "{ kind = \"sessions\", rate = 1.0, turns = 2 }",
    "{ kind = \"sessions\", concurrency = 2, turns = 2 }",
    "{ kind = \"ramp\", from = 1.0, to = 2.0, over_s = 10.0 }",
    "{ kind = \"series\", points = [[0.0, 1.0]] }",
    "{ kind = \"burst\", size = 4, every_s = 2.0 }",
    "{ kind = \"profile\", rate = 1.0, counts = [3, 0, 4] }",
    "{ kind = \"trace\", path = \"t.jsonl\" }",
];

/// `table` with `value` at the dotted path `path`.
fn with(mut table: Table, path: &str, value: Value) -> Table {
    let (sections, name) = path.rsplit_once('.').unwrap();
    let mut inner = &mut table;
    for section in sections.split('.') {
        let entry = inner.entry(section).or_insert_with(|| Table::new().into());
        inner = entry.as_table_mut().unwrap();
    }
    inner.insert(name.to_owned(), value);
    table
}

/// Values of which a key accepts at least one: numbers, switches, lists, tables, and the words of its description.
fn candidates(key: &SpecKey) -> Vec<Value> {
    let toml = "[3, 0.5, 1.5, true, \"3\", [1, 2], [0.5], [[0.0, 5.0], [60.0, 20.0]], [true, false], [\"vllm\"], [\"round_robin\"], { h100-sxm = 2.0 }, { input = 1.0, output = 2.0 }, \
                [{ replica = 0, at_s = 60 }], [{ type = \"Pods\", value = 1, period_seconds = 9 }], { batch = { tokens_per_s = 2000 } }, [{ name = \"a\", share = 1.0, input_len = 8, output_len = 8 }]]";
    let table: Table = format!("all = {toml}").parse().unwrap();
    let words = key.about.split(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)));
    let words = words.filter(|word| !word.is_empty()).map(Value::from);
    let (all, words) = (table["all"].as_array().unwrap().clone(), words.collect::<Vec<_>>());
    let named = ["perfect", "round_robin", "azure"].map(Value::from);
    all.into_iter().chain(words).chain(named).collect()
}

/// A table that parses, in which `key` is set.
fn table_with(key: &SpecKey) -> Option<Table> {
    let needs = NEEDS.iter().find(|(prefix, _)| key.path.starts_with(prefix)).unwrap().1;
    let base: Table = needs.parse().unwrap();
    let bases: Vec<Table> = match key.path.strip_prefix("workload.arrivals.") {
        Some(_) => KINDS
            .iter()
            .map(|kind| {
                with(
                    base.clone(),
                    "workload.arrivals",
                    format!("v = {kind}").parse::<Table>().unwrap()["v"].clone(),
                )
            })
            .collect(),
        None => vec![base],
    };
    let tables = bases
        .iter()
        .flat_map(|base| candidates(key).into_iter().map(|value| with(base.clone(), key.path, value)));
    tables.into_iter().find(|table| Spec::of_table("t", table.clone()).is_ok())
}

fn owned() -> impl Iterator<Item = (&'static SpecKey, &'static str)> {
    KEYS.iter().filter_map(|key| {
        let section = key.path.strip_prefix("engine.")?.split_once('.')?.0;
        ["vllm", "sglang", "tensorrt-llm"].contains(&section).then_some((key, section))
    })
}

/// For each key of a spec: parsed, written and parsed again.
#[test]
fn every_key_is_written_and_read_back() {
    let without: Vec<&str> =
        KEYS.iter().filter(|key| table_with(key).is_none()).map(|key| key.path).collect();
    assert_eq!(without, Vec::<&str>::new());
    for key in KEYS {
        let table = table_with(key).unwrap();
        let spec = Spec::of_table("t", table.clone()).unwrap();
        let written = resolved::starter(&table, &spec);
        assert_eq!(Spec::parse("t", &written), Ok(spec), "{}: {written}", key.path);
    }
}

/// Each key of one engine may stand in `[engine]`; the spec is equal to the one with the key in the section, and is
/// written with the section.
#[test]
fn a_key_in_engine_is_the_key_in_its_section() {
    let mut count = 0;
    for (key, section) in owned() {
        let named = with(table_with(key).unwrap(), "engine.name", section.into());
        let value = named["engine"][section][key.name()].clone();
        let flat: Table = with(Table::new(), "engine.name", section.into());
        let flat = with(flat, &key.flat(), value);
        let [a, b] = [&named, &flat].map(|table| Spec::of_table("t", table.clone()).unwrap());
        assert_eq!(a, b, "{}", key.path);
        assert_eq!(Spec::parse("t", &flat.to_string()), Ok(a), "{}", key.path);
        assert_eq!(nested(flat.clone()), named);
        let written = resolved::text(flat, &b, None, &["engine"]).unwrap();
        assert!(written.contains(&format!("[engine.{section}]")), "{written}");
        count += 1;
    }
    // 25 of vLLM, 21 of SGLang and 5 of TensorRT-LLM.
    assert_eq!(count, 51);
}

fn resolved_config(table: Table) -> Result<(), Error> {
    let spec = Spec::of_table("t", table)?;
    let catalog = Catalog::embedded()?;
    let model = super::support::model(LLAMA);
    let options = DeploymentOptions::of(&spec);
    let deployment =
        Deployment::resolve(model, Arc::new(catalog.accelerator("h100-sxm")?.clone()), &options)?;
    EngineConfig::resolve(&deployment, 1000, false).map(drop)
}

/// A key of another engine is refused in `[engine]`, with the schedulers that have it, and ignored in its section.
#[test]
fn a_key_of_another_engine_counts_only_in_engine() {
    for (key, section) in owned() {
        let other = if section == "vllm" { "sglang" } else { "vllm" };
        let table = with(table_with(key).unwrap(), "engine.name", other.into());
        assert!(resolved_config(table.clone()).is_ok(), "{}", key.path);
        let value = table["engine"][section][key.name()].clone();
        let flat = with(with(Table::new(), "engine.name", other.into()), &key.flat(), value);
        let error = resolved_config(flat).unwrap_err().to_string();
        let start = format!("engine: `{}` is set; accepted: the scheduler {section}", key.name());
        assert!(error.starts_with(&start) && error.ends_with("or the key omitted"), "{error}");
    }
}

/// Keys of vLLM's two schedulers are in one section, and refused under the other scheduler.
#[test]
fn a_key_of_another_scheduler_is_refused_in_the_section_of_its_engine() {
    let text = "engine.scheduler = \"vllm-v0\"\nengine.vllm.async_scheduling = true";
    let error = resolved_config(text.parse().unwrap()).unwrap_err().to_string();
    assert_eq!(error, "engine: `async_scheduling` is set; accepted: the scheduler vllm, or the key omitted");
    let text = "engine.scheduler = \"vllm-v0\"\nengine.vllm.preemption_mode = \"swap\"";
    assert!(resolved_config(text.parse().unwrap()).is_ok());
}

/// The section of an engine that is not chosen is read, too: an unknown key or a wrong value is an error with file, line
/// and key.
#[test]
fn sections_of_other_engines_are_checked() {
    let told = |text: &str| Spec::parse("f.toml", text).unwrap_err().to_string();
    let unknown = told("[engine]\nname = \"vllm\"\n[engine.tensorrt-llm]\nhicache_ratio = 2\n");
    assert!(unknown.starts_with("f.toml:4:1: "), "{unknown}");
    for name in ["hicache_ratio", "batch_wait_timeout_iters", "attention_dp_time_out_iters"] {
        assert!(unknown.contains(name), "{unknown}");
    }
    let wrong = told("[engine.sglang]\nhicache_ratio = \"much\"\n");
    assert!(wrong.starts_with("f.toml:2:17: `engine.sglang.hicache_ratio` is \"much\""), "{wrong}");
    // A key in `[engine]` is named as it is written.
    let wrong = told("[engine]\nhicache_ratio = \"much\"\n");
    assert!(wrong.starts_with("f.toml:2:17: `engine.hicache_ratio` is \"much\""), "{wrong}");
    let twice = told("[engine]\nhicache_ratio = 2\n[engine.sglang]\nhicache_ratio = 2\n");
    assert_eq!(
        twice,
        "f.toml: `engine.sglang.hicache_ratio` is set, and so is `engine.hicache_ratio`, its other name; accepted: one of \
         the two"
    );
}

/// In a plan over two engines each has its own settings: vLLM's 8 GiB of host memory and queue, and SGLang's chunks of
/// 1024 tokens.
#[test]
fn a_plan_gives_each_engine_its_own_settings() {
    let text = "[workload]\nrequests = 100\nseed = 1\ninput_len = 200\noutput_len = 20\n\
                arrivals = { kind = \"constant\", rate = 2.0 }\n[slo]\nttft_p99_ms = 2000\n\
                [engine]\ncost = \"limit\"\n[engine.vllm]\nkv_offloading_size = 8\nmax_num_queued_reqs = 500\n\
                [engine.sglang]\nchunked_prefill_size = 1024\nschedule_conservativeness = 0.5\n\
                [search]\naccelerators = [\"h100-sxm\"]\nmax_accelerators = 1\nrequests = 100\ntp = [1]\n\
                engines = [\"vllm\", \"sglang\"]\n";
    let spec = Spec::parse("plan.toml", text).unwrap();
    let question = PlanQuestion { exhaustive: true, ..Default::default() };
    let catalog = Catalog::embedded().unwrap();
    let found = roofcast::plan::plan(&spec, &super::support::model(LLAMA), catalog, &question).unwrap();
    let of = |name: &str| found.ranked.iter().filter(|choice| choice.engine == name).collect::<Vec<_>>();
    let (vllm, sglang) = (of("vllm"), of("sglang"));
    assert!(!vllm.is_empty() && !sglang.is_empty(), "{:?}", found.left_out);
    assert!(vllm.iter().all(|choice| choice.host_tier_gib == Some(8.0)), "{vllm:?}");
    assert!(sglang.iter().all(|choice| choice.host_tier_gib.is_none()), "{sglang:?}");
    assert!(sglang.iter().all(|choice| choice.max_num_batched_tokens == 1024), "{sglang:?}");
}
