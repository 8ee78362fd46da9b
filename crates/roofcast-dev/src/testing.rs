//! Entry points for fuzzers and the corpus test: each parser, followed by all code that its input can reach.
//!
//! Knows: inputs that reach every parser. Results are dropped, because a fuzzer looks for panics, hangs and excessive
//! memory. Knows nothing about right answers.

use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::spec::Spec;
use roofcast_ask::workload::request::OWN_SEGMENTS;
use roofcast_ask::workload::trace::TraceFormat;
use roofcast_ask::workload::{Trace, Traffic};
use roofcast_cost::calibration::Calibration;
use roofcast_cost::capacity::{self, capacity};
use roofcast_cost::cost::Utilization;
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::limits::{self, limits};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Error;
use roofcast_facts::model::{ImageSize, Quantization, config as reader};
use roofcast_facts::record::{self, Records, csv};
use roofcast_plan::measurement::benchmark::{self, ClientLoad, Subject};
use roofcast_plan::measurement::{self, results};
use roofcast_plan::plan::{PlanQuestion, Trial, plan};
use std::sync::Arc;

/// Reads `text` as a `config.json`; if it is a valid model, computes every kind of answer.
pub fn config(text: &str) {
    drop(Quantization::read_modelopt("fuzz", text));
    let (Ok(model), Ok(catalog)) = (reader::parse("fuzz", "fuzz", text), Catalog::embedded()) else { return };
    let Ok(chip) = catalog.accelerator("h100-sxm") else { return };
    let deployment =
        Deployment::resolve(Arc::new(model), Arc::new(chip.clone()), &DeploymentOptions::default());
    if let Ok(deployment) = deployment {
        let question =
            limits::LimitsQuestion { batch: 7, context: 1000, prefill: 1000, utilization: Utilization::FULL };
        let forecaster = Forecaster::ideal(deployment.clone());
        drop(limits(&forecaster, &question));
        let question = capacity::CapacityQuestion {
            context: 1000,
            batch: 7,
            oversubscription_percent: 200,
            users: Some(9),
        };
        drop(capacity(&deployment, &question));
    }
}

/// Reads `text` as bounds on images (`mm_processor_kwargs`, `preprocessor_config.json`) of every tower in the catalog; if they
/// are valid, sizes images and videos.
pub fn processor(text: &str) {
    let Ok(catalog) = Catalog::embedded() else { return };
    for name in [
        "Qwen/Qwen3-VL-2B-Instruct",
        "google/gemma-4-31B-it",
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    ] {
        let model = catalog.model(name).and_then(|entry| reader::read(&entry.id, "catalog", &entry.config));
        let Some(mut tower) = model.ok().and_then(|model| model.tower) else { continue };
        if tower.bound("fuzz", text).is_ok() {
            for size in [
                ImageSize::Pixels(1, 1),
                ImageSize::Pixels(100_000, 700),
                ImageSize::Frames(1280, 720, 10_000),
            ] {
                std::hint::black_box(tower.exceeds(size));
                std::hint::black_box(tower.tokens_of(size));
            }
        }
    }
}

/// Reads `text` as a spec and plans it, with few accelerators and simulations of few requests.
pub fn spec(text: &str) {
    let (Ok(mut spec), Ok(catalog)) = (Spec::parse("fuzz", text), Catalog::embedded()) else { return };
    let Ok(entry) = catalog.model("meta-llama/Llama-3.1-8B") else { return };
    let Ok(model) = reader::read(&entry.id, "catalog", &entry.config) else { return };
    let search = spec.search.get_or_insert_default();
    search.max_accelerators = Some(search.max_accelerators.map_or(2, |n| n.min(2)));
    let runner = |trials: &[Trial]| trials.iter().map(few).collect();
    drop(plan(
        &spec,
        &Arc::new(model),
        catalog,
        &PlanQuestion { runner: &runner, ..PlanQuestion::default() },
    ));
}

/// Simulates a trial with few requests.
fn few(trial: &Trial) -> roofcast_facts::Result<roofcast_sim::simulate::Simulation> {
    let mut trial = trial.clone();
    trial.spec.workload.iter_mut().for_each(|workload| workload.requests = Some(10));
    trial.run()
}

/// Reads `text` as a catalog file.
pub fn catalog(text: &str) {
    if let Ok(catalog) = Catalog::parse("fuzz", text) {
        for entry in catalog.models().unwrap_or_default() {
            drop(reader::read(&entry.id, "fuzz", &entry.config));
        }
        for chip in catalog.accelerators().unwrap_or_default() {
            drop((chip.sizes(64), chip.torus_shape(48)));
        }
    }
}

/// Reads `text` as a recorded scheduling trace and, if it is short, replays it.
pub fn trace(text: &str) {
    use crate::conformance::RecordedTrace;
    let Ok(trace) = crate::conformance::parse("fuzz", text) else { return };
    let (tokens, room, last) = match &trace {
        RecordedTrace::Vllm(trace) => {
            let tokens =
                trace.requests.iter().map(|r| r.output_len + r.prompt.iter().map(|p| p.2).sum::<u64>());
            let last = trace.requests.iter().map(|r| r.arrival_step).max();
            (tokens.sum::<u64>(), u64::from(trace.config.num_gpu_blocks), last)
        }
        RecordedTrace::Sglang(trace) => {
            let tokens =
                trace.requests.iter().map(|r| r.output_len + r.prompt.iter().map(|p| p.2).sum::<u64>());
            let last = trace.requests.iter().map(|r| r.arrival_step).max();
            (tokens.sum::<u64>(), trace.config.max_total_tokens, last)
        }
    };
    if tokens < 5000 && room < 10_000 && last.is_none_or(|last| last < 1000) {
        drop(crate::conformance::compare(&trace));
    }
}

/// Reads `text` as records, as JSON lines and as CSV, and writes them again.
pub fn records(text: &str) {
    for format in [record::RecordFormat::JsonLines, record::RecordFormat::Csv] {
        for one in Records::new("fuzz", text.as_bytes(), format).map_while(Result::ok) {
            drop((one.to_line(), csv::line(&one)));
        }
    }
}

/// Reads `text` as recorded traffic in every format, and as a workload, of which it draws the first requests.
pub fn workload(text: &str) {
    for format in TraceFormat::ALL.map(Some).into_iter().chain([None]) {
        if let Ok(trace) = Trace::parse("fuzz", text, format) {
            let _ = (trace.rate(), trace.cv2());
        }
    }
    let Ok(Spec { workload: Some(mut workload), .. }) = Spec::parse("fuzz", text) else { return };
    drop(workload.load("fuzz", |_| Ok::<_, Error>("arrival_s,input_len,output_len\n1,2,3\n".to_owned())));
    let Ok(mut traffic) = Traffic::new(&workload, "fuzz") else { return };
    for segment in 0..100 {
        let Some(request) = traffic.next() else { return };
        traffic.completed(request.user, request.at, OWN_SEGMENTS + segment);
    }
}

/// Reads `text` as measured rows, as a benchmark's result or records, as a calibration and as a recorded run.
pub fn measured(text: &str) {
    drop(
        measurement::read("fuzz", text).map(|rows| rows.iter().map(|r| r.options(None)).collect::<Vec<_>>()),
    );
    let subject = Subject::default();
    if let Ok(catalog) = Catalog::embedded() {
        drop(results::read("fuzz", text, &subject, catalog));
    }
    drop(benchmark::of_records("fuzz", text, &subject, ClientLoad::Users(2)));
    if let Ok(calibration) = Calibration::parse("fuzz", text) {
        drop(Calibration::parse("again", &calibration.to_toml()));
    }
}

/// Reads `bytes` as the start of a GGUF file and of a safetensors file.
pub fn checkpoint(bytes: &[u8]) {
    if let Ok(profiles) = roofcast_cost::profile::Profiles::read("fuzz", bytes) {
        for section in &profiles.sections {
            drop((section.curve(0), section.nearest(|shape| Some(f64::from(shape[0])))));
        }
    }
    if let Ok(header) = roofcast_facts::checkpoint::gguf::header("fuzz", bytes) {
        drop(roofcast_facts::checkpoint::gguf::model("fuzz", "fuzz", &header));
    }
    drop(roofcast_facts::checkpoint::safetensors::header("fuzz", bytes.len() as u64, bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(roofcast_facts::checkpoint::safetensors::shards("fuzz", text));
    }
}
