//! Generates `web/src/generated.ts`: the TypeScript types of the server's answers, derived from the Rust structs that
//! are serialized.
//!
//! Knows: each struct reports its name, keys and values as it is serialized, so that renamed, flattened and skipped
//! keys appear as the page receives them. The questions are chosen so that every optional key is present in one answer
//! and absent from another.

mod shape;

use super::accuracy;
use super::api::Listing;
use super::measure;
use super::question::MeasureAsked;
use crate::args::StepArgs;
use crate::input::scenario::{Scenario, Source};
use crate::verbs::{capacity, limits, plan, simulate, validate};
use roofcast::calibration::Calibration;
use roofcast::capacity::CapacityQuestion;
use roofcast::cost::Utilization;
use roofcast::limits::LimitsQuestion;
use roofcast::simulate::RunOptions;
use roofcast::{Catalog, Forecaster};
use shape::{Object, Shape};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

fn scenario(spec: &str) -> Scenario {
    source(spec).scenario(&[]).unwrap()
}

fn of_limits(spec: &str) -> Shape {
    let forecaster = Forecaster::embedded(scenario(spec).deployment().unwrap()).unwrap();
    let question = LimitsQuestion { batch: 8, context: 1024, prefill: 1024, utilization: Utilization::FULL };
    let found = roofcast::limits::limits(&forecaster, &question);
    let capacity = limits::view::capacity_of(&forecaster.deployment, &question);
    Shape::of(&limits::view::View::of(&forecaster.deployment, &question, &found, &capacity))
}

fn source(spec: &str) -> Source {
    Source::received(spec.parse().unwrap(), Cow::Borrowed(Catalog::embedded().unwrap()), Vec::new())
}

fn of_capacity(spec: &str, users: Option<u64>) -> Shape {
    let deployment = scenario(spec).deployment().unwrap();
    let question = CapacityQuestion { context: 1024, batch: 8, oversubscription_percent: 100, users };
    let found = roofcast::capacity::capacity(&deployment, &question);
    Shape::of(&capacity::view::View::of(&deployment, &question, &found))
}

fn of_limits_sweep(spec: &str, sweep: &str) -> Shape {
    let sweep = [sweep.to_owned()];
    let step = StepArgs::of(None, None, None);
    let question = limits::sweep::Question { sweep: &sweep, step: &step, given: &[] };
    Shape::of(&limits::sweep::Swept::of(&question, &source(spec), &|_, _| true).unwrap().view())
}

fn of_simulate_sweep(spec: &str, sweep: &str) -> Shape {
    let space = simulate::sweep::Space::received(source(spec), sweep).unwrap();
    Shape::of(&simulate::sweep::Swept::of(space, &|_, _| {}, &|_| true).unwrap().view())
}

fn of_run(spec: &str) -> Shape {
    let scenario = scenario(spec);
    let forecaster = Forecaster::embedded(scenario.deployment().unwrap()).unwrap();
    let options = RunOptions { leap: true, series: true, trace: Some(2000), ..RunOptions::default() };
    let run = roofcast::simulate::simulate(&forecaster, &scenario.spec, "spec", options).unwrap();
    Shape::of(&simulate::view::View::of(&forecaster.deployment, &run, &scenario.spec))
}

fn of_plan(spec: &str, why: Option<&str>) -> Shape {
    let scenario = scenario(spec);
    let model = scenario.model().unwrap();
    let question = roofcast::plan::PlanQuestion { why, ..roofcast::plan::PlanQuestion::default() };
    let found = roofcast::plan::plan(&scenario.spec, &model, &scenario.catalog, &question).unwrap();
    Shape::of(&plan::view::View::of(&scenario, &model, &found))
}

fn of_curves(spec: &str) -> Shape {
    let scenario = scenario(spec);
    let model = scenario.model().unwrap();
    let question = roofcast::plan::PlanQuestion::default();
    let found = roofcast::plan::curves(&scenario.spec, &model, &scenario.catalog, &question).unwrap();
    Shape::of(&plan::curves::View::of(&scenario, &model, &found))
}

fn all(shapes: impl IntoIterator<Item = Shape>) -> Shape {
    shapes
        .into_iter()
        .reduce(|mut all, one| {
            all.or(&one);
            all
        })
        .unwrap()
}

const ROWS: &str = "id,source,kind,model,hardware,gpus,tp,engine,weights,input_len,output_len,concurrency,request_rate,ttft_ms,tpot_ms
a,x,closed_loop,meta-llama/Llama-3.1-8B-Instruct,h100-sxm,1,1,vllm,bf16,100,10,2,,90,9
b,x,open_loop,meta-llama/Llama-3.1-8B-Instruct,h100-sxm,1,1,vllm,bf16,100,10,,1,0.0001,9
";

const RESULT: &str = r#"{"completed": 4, "failed": 0, "num_prompts": 4, "request_rate": "inf", "max_concurrency": 2, "total_input_tokens": 400,
    "total_output_tokens": 40, "mean_ttft_ms": 90, "mean_tpot_ms": 9, "mean_e2el_ms": 180}"#;

const LLAMA: &str = "model.name = 'meta-llama/Llama-3.1-8B-Instruct'\n";
const LOAD: &str =
    "workload = {requests = 30, arrivals = {kind = 'poisson', rate = 5}, input_len = 200, output_len = 20}\n";
const USERS: &str = "workload = {requests = 30, arrivals = {kind = 'closed_loop', concurrency = 4}, input_len = 200, output_len = 20}\n";
const BOUNDS: &str = "slo = {ttft_p99_ms = 2000, tpot_p99_ms = 50, e2el_p99_ms = 9000}\n";

/// A spec of Llama on `hardware`, with further keys in `rest`.
fn on(hardware: &str, rest: &str) -> String {
    format!("{LLAMA}hardware.accelerator = '{hardware}'\n{rest}")
}

fn limits() -> Shape {
    let moe = "model.name = 'deepseek-ai/DeepSeek-V3'\nhardware = {accelerator = 'h200-sxm', count = 8}\n";
    let small = "model.name = 'meta-llama/Llama-3.1-70B-Instruct'\nhardware.accelerator = 'rtx-4090'";
    let torus = on("tpu-v5e", "hardware.count = 4");
    let tight = on("h100-sxm", "engine.gpu_memory_utilization = 0.42");
    let states =
        "model.name = 'Qwen/Qwen3.6-27B-FP8'\nhardware.accelerator = 'h200-sxm'\nengine.name = 'sglang'";
    all([&on("h100-sxm", ""), &torus, moe, small, &tight, states].map(of_limits))
}

fn capacities() -> Shape {
    let small = "model.name = 'meta-llama/Llama-3.1-70B-Instruct'\nhardware.accelerator = 'rtx-4090'";
    let torus = on("tpu-v5e", "hardware.count = 4");
    let tiered = on("h100-sxm", "engine.kv_offloading_size = 32.0");
    let staged = "model.name = 'kipply/52b'\nhardware = {accelerator = 'a100-sxm-40gb', count = 3}\nprecision.weights = 'w8'";
    let moe = "model.name = 'deepseek-ai/DeepSeek-V3'\nhardware = {accelerator = 'h200-sxm', count = 8}\n";
    all([
        of_capacity(staged, None),
        of_capacity(moe, None),
        of_capacity(&on("h100-sxm", "engine.gpu_memory_utilization = 0.42"), Some(100)),
        of_capacity(&on("l4", "hardware.count = 2\nparallelism.replicas = 2\nparallelism.tp = 1"), None),
        of_capacity(small, None),
        of_capacity(&torus, None),
        of_capacity(&tiered, None),
    ])
}

fn limits_sweeps() -> Shape {
    let priced = of_limits_sweep(&on("h100-sxm", ""), "batch=1,2");
    let moe = "model.name = 'deepseek-ai/DeepSeek-V3'\nhardware = {accelerator = 'h200-sxm', count = 8}\n";
    all([
        priced,
        of_limits_sweep(moe, "batch=1"),
        of_limits_sweep(&on("tpu-v7", ""), "precision.weights=bf16,fp8"),
    ])
}

fn simulate_sweeps() -> Shape {
    let judged = of_simulate_sweep(&on("h100-sxm", &format!("{LOAD}{BOUNDS}")), "rate=5,10");
    all([judged, of_simulate_sweep(&on("h100-sxm", LOAD), "weights=bf16,fp8")])
}

fn runs() -> Shape {
    let apart = "fleet = {link = 'nvlink', prefill = {replicas = 1}, decode = {replicas = 1}}\n";
    let drafts =
        "engine.speculative = {num_speculative_tokens = 2, acceptance_rate = 0.7, draft_cost = 0.1}\n";
    let scaled = "fleet.autoscale = {target_in_flight = 4, max_replicas = 2, startup_s = 1, idle_s = 9}\n";
    let beside =
        "fleet.beside = {accelerator = 'l40s', replicas = 1}\nslo = {tpot_p90_ms = 50, goodput = 0.9}\n";
    let crowd = LOAD.replace("rate = 5", "rate = 500").replace("30", "2000");
    all([
        of_run(&on("h100-sxm", &format!("{LOAD}{BOUNDS}{drafts}engine.kv_layout = 'paged'"))),
        of_run(&on("h100-sxm", &format!("{LOAD}{apart}"))),
        of_run(&on("h100-sxm", &format!("{USERS}engine.cost = 'limit'"))),
        of_run(&on("rtx-4090", &format!("{crowd}{BOUNDS}"))),
        of_run(&on("a100-sxm-80gb", &format!("{LOAD}{scaled}"))),
        of_run(&on("h100-sxm", &format!("{LOAD}{beside}"))),
    ])
}

fn plans() -> Shape {
    let search = "search = {accelerators = ['h100-sxm', 'rtx-4090'], max_accelerators = 4, requests = 200}\n";
    let none =
        "search = {accelerators = ['l4'], max_accelerators = 1, requests = 200}\nslo.tpot_p99_ms = 1\n";
    let apart = "search = {accelerators = ['h100-sxm'], weights = ['fp8'], max_accelerators = 3, disaggregated = true, engines = ['vllm', 'sglang'], requests = 200}";
    let mixed =
        "search = {accelerators = ['h100-sxm', 'l40s'], max_accelerators = 2, mixed = true, requests = 200}";
    let search = search.replace("requests = 200", "requests = 200, interval_s = 5");
    all([
        of_plan(&format!("{LLAMA}{LOAD}{BOUNDS}{search}"), Some("accelerator=rtx-4090 tp=1")),
        of_plan(&format!("{LLAMA}{USERS}{none}"), None),
        of_plan(&format!("{LLAMA}{LOAD}{BOUNDS}{apart}"), None),
        of_plan(&format!("{LLAMA}{LOAD}{BOUNDS}{mixed}"), None),
    ])
}

fn curves() -> Shape {
    let priced = "search = {accelerators = ['h100-sxm', 'rtx-4090'], max_accelerators = 1}\n";
    let bare = "search = {accelerators = ['tpu-v7'], max_accelerators = 1}\n";
    let limit = "engine.cost = 'limit'\nslo.tpot_p99_ms = 1\n";
    let large = LLAMA.replace("8B", "70B");
    all([
        of_curves(&format!("{LLAMA}{LOAD}{BOUNDS}{priced}")),
        of_curves(&format!("{LLAMA}{LOAD}{limit}{bare}")),
        of_curves(&format!("{large}{LOAD}{priced}")),
    ])
}

fn measured(catalog: &Catalog) -> Shape {
    let asked = MeasureAsked {
        name: "r.json".to_owned(),
        text: RESULT.to_owned(),
        model: "meta-llama/Llama-3.1-8B-Instruct".to_owned(),
        hardware: "h100-sxm".to_owned(),
        tp: None,
        count: None,
        engine: None,
        engine_version: None,
        weights: None,
        kv: None,
    };
    let open = MeasureAsked {
        text: RESULT.replace("\"inf\", \"max_concurrency\": 2", "0.5").replace("90", "0.01"),
        ..asked.clone()
    };
    all([asked, open].map(|asked| Shape::of(&measure::found(&asked, catalog, &[]).unwrap())))
}

/// The top-level types, each with the merged shape of several answers.
fn roots() -> Vec<(&'static str, Shape)> {
    let catalog = Catalog::embedded().unwrap();
    let calibration = Calibration::embedded().unwrap();
    let rows = roofcast::measurement::read("rows.csv", ROWS).unwrap();
    let points = roofcast::validate::points(&rows, catalog, calibration);
    let report = roofcast::validate::report(&points);
    let validated = || validate::view::View::of(&report, &points);
    let answer = |measured| accuracy::Answer {
        bands: accuracy::bands(calibration),
        machines: accuracy::machines(catalog, calibration).unwrap(),
        tables: vec!["rows.csv"],
        measured,
    };
    vec![
        ("CatalogAnswer", Shape::of(&Listing::of(catalog).unwrap())),
        ("LimitsAnswer", limits()),
        ("LimitsSweepAnswer", limits_sweeps()),
        ("CapacityAnswer", capacities()),
        ("RunAnswer", runs()),
        ("RunSweepAnswer", simulate_sweeps()),
        ("PlanAnswer", plans()),
        ("CurvesAnswer", curves()),
        ("MeasureAnswer", measured(catalog)),
        ("ValidateAnswer", Shape::of(&validated())),
        ("AccuracyAnswer", all([Shape::of(&answer(None)), Shape::of(&answer(Some(validated())))])),
    ]
}

/// Types by name, collected from all answers.
#[derive(Default)]
struct Types(BTreeMap<String, Object>);

impl Types {
    /// Collects the structs in `shape`, merging the shapes of a struct that occurs in several places.
    fn collect(&mut self, shape: &Shape) {
        for inner in [&shape.list, &shape.map].into_iter().flatten() {
            self.collect(inner);
        }
        let Some(object) = &shape.object else { return };
        object.fields.iter().for_each(|(_, field, _)| self.collect(field));
        if let Some(name) = object.name {
            let mut whole = Shape { object: Some(object.clone()), ..Shape::default() };
            if let Some(known) = self.0.get(name) {
                let known = Shape { object: Some(known.clone()), ..Shape::default() };
                whole.or(&known);
            }
            self.0.extend(whole.object.map(|object| (name.to_owned(), object)));
        }
    }
}

fn written(shape: &Shape, indent: usize) -> String {
    let mut any = Vec::new();
    any.extend(shape.string.then(|| "string".to_owned()));
    any.extend(shape.number.then(|| "number".to_owned()));
    any.extend(shape.boolean.then(|| "boolean".to_owned()));
    any.extend(shape.object.as_ref().map(|object| match object.name {
        Some(name) => name.to_owned(),
        None => body(object, indent),
    }));
    any.extend(shape.list.as_ref().map(|item| match written(item, indent) {
        item if item.contains('|') && !item.starts_with('{') => format!("({item})[]"),
        item => format!("{item}[]"),
    }));
    any.extend(shape.map.as_ref().map(|value| format!("Record<string, {}>", written(value, indent))));
    if any.is_empty() {
        return "unknown".to_owned();
    }
    any.extend(shape.null.then(|| "null".to_owned()));
    any.join(" | ")
}

fn body(object: &Object, indent: usize) -> String {
    let mut text = "{\n".to_owned();
    for (key, shape, always) in &object.fields {
        let optional = if *always { "" } else { "?" };
        writeln!(text, "{}{key}{optional}: {};", " ".repeat(indent + 2), written(shape, indent + 2)).unwrap();
    }
    text + &" ".repeat(indent) + "}"
}

fn text() -> String {
    let mut text = "// Written by `UPDATE_TYPES=1 cargo test -p roofcast-cli types_of_the_page` from the structs that answer; do not edit.\n".to_owned();
    let mut types = Types::default();
    let mut roots = roots();
    for (name, shape) in &mut roots {
        let object = shape.object.as_mut().unwrap();
        // A top-level type of one answer may be part of another answer; it keeps the name from there.
        object.name = None;
        types.collect(shape);
        writeln!(text, "\nexport interface {name} {}", body(shape.object.as_ref().unwrap(), 0)).unwrap();
    }
    for (name, object) in &types.0 {
        writeln!(text, "\nexport interface {name} {}", body(object, 0)).unwrap();
    }
    text
}

#[test]
fn types_of_the_page_are_those_of_the_answers() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/generated.ts");
    let now = text();
    if std::env::var_os("UPDATE_TYPES").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let first = kept.lines().zip(now.lines()).find(|(a, b)| a != b);
    assert!(kept == now, "web/src/generated.ts: {first:?}; UPDATE_TYPES=1 writes it anew");
}
