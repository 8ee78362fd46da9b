//! A resolved spec, written with the keys of a spec: the given values, and defaults for the other keys.
//!
//! Knows: which defaults can be written out without a change of the answer; other defaults are written as comments.
//! Knows nothing about answers.

use crate::deployment::Deployment;
use crate::engine_settings::Profile;
use crate::spec::keys::{KEYS, SpecKey};
use crate::spec::sections::nested;
use crate::spec::settings::{get, put};
use crate::spec::written::{Absent, write};
use crate::spec::{KvLayout, SchedulerKind, Spec};
use roofcast_facts::error::Result;
use toml::{Table, Value};

/// The sections of a spec that a verb reads.
pub type Sections = [&'static str];

/// The spec of `table` as TOML with comments. Defaults of `sections` are filled in with their resolved values, and
/// common keys that are still absent are comments. A parse of the text gives equal answers.
pub fn text(
    table: Table,
    spec: &Spec,
    deployment: Option<&Deployment>,
    sections: &Sections,
) -> Result<String> {
    let mut table = nested(table);
    let mut comments = Vec::new();
    for (path, value, neutral) in defaults(spec, deployment)? {
        let section = path.split('.').next().unwrap_or_default();
        // A plan has a separate default for the number of requests.
        let planned = path == "workload.requests" && sections.contains(&"search");
        if !sections.contains(&section) || get(&table, path).is_some() || planned {
            continue;
        }
        if neutral {
            put(&mut table, path, value)?;
        } else {
            comments.push(Absent { path, holds: Some(value) });
        }
    }
    let usual = |key: &&SpecKey| !key.rare && sections.contains(&key.section());
    comments.extend(absent(&table, spec, &comments, usual));
    Ok(write(&table, &comments))
}

/// A starter spec: the keys of `table`, and every other key as a comment with its default.
pub fn starter(table: &Table, spec: &Spec) -> String {
    let table = &nested(table.clone());
    write(table, &absent(table, spec, &[], |key| key.path != "model.path"))
}

/// The keys that pass the filter and are neither in the spec nor in `said`, the list of absent keys found before.
fn absent(table: &Table, spec: &Spec, said: &[Absent], passes: impl Fn(&&SpecKey) -> bool) -> Vec<Absent> {
    let unsaid = |key: &&SpecKey| get(table, key.path).is_none() && said.iter().all(|a| a.path != key.path);
    let keys = KEYS.iter().filter(passes).filter(unsaid).filter(|key| usable(spec, key.path));
    keys.map(|key| Absent { path: key.path, holds: None }).collect()
}

/// True if a key is compatible with the other keys of its section, so that a comment may offer it.
fn usable(spec: &Spec, path: &str) -> bool {
    match path {
        "workload.preset" => spec.workload.is_none(),
        _ => !path.starts_with("workload.arrivals."),
    }
}

/// Path and default of each absent key; the flag is true if writing the default out does not change the answer.
fn defaults(spec: &Spec, deployment: Option<&Deployment>) -> Result<Vec<(&'static str, Value, bool)>> {
    let mut all = vec![
        ("engine.name", Value::from(spec.engine.name()), true),
        ("engine.scheduler", word(&spec.engine.scheduler()), true),
        ("engine.cost", word(&spec.engine.cost), true),
        ("hardware.ideal", spec.hardware.ideal.into(), false),
    ];
    if let Some(workload) = &spec.workload {
        all.push(("workload.requests", whole(workload.total()), true));
        all.push(("workload.seed", whole(workload.seed), true));
    }
    if let Some(search) = &spec.search {
        all.push(("search.confidence", search.confidence().into(), true));
        all.push(("search.minimise", word(&search.minimise), true));
    }
    if spec.fleet != Default::default() {
        all.push(("fleet.router", word(&spec.fleet.router), true));
    }
    all.extend(deployment.into_iter().flat_map(|d| of_deployment(spec, d)));
    Ok(all)
}

fn of_deployment(spec: &Spec, d: &Deployment) -> Vec<(&'static str, Value, bool)> {
    let p = d.parallelism;
    let profile = Profile::of(spec.engine.scheduler());
    // A fleet with pools, or with autoscaling, sets its own numbers of replicas.
    let alike = spec.fleet.prefill.is_none() && spec.fleet.decode.is_none() && spec.fleet.autoscale.is_none();
    // The budget of a scheduler's own default limits only its steps; written out, it would also change the memory plan.
    let budgeted =
        profile.max_num_batched_tokens.is_none() && spec.engine.scheduler() != SchedulerKind::Sglang;
    let tokens = profile.max_num_batched_tokens.unwrap_or(d.engine.max_num_batched_tokens);
    let sequences = profile.max_num_seqs.unwrap_or(d.engine.max_num_seqs);
    let bounded = profile.max_num_seqs.is_none()
        && (!profile.bounds_sequences || d.engine.max_num_seqs <= d.engine.max_num_batched_tokens);
    let mut all = vec![
        ("hardware.accelerator", Value::from(d.accelerator.id.as_str()), true),
        ("hardware.count", whole(p.count()), false),
        ("precision.weights", Value::from(d.weights.as_str()), false),
        ("precision.kv", Value::from(d.kv.name), false),
        ("parallelism.tp", whole(p.tp), true),
        ("parallelism.pp", whole(p.pp), true),
        ("parallelism.ep", whole(p.ep), true),
        ("parallelism.attention_dp", whole(p.attention_dp), true),
        ("parallelism.replicas", whole(p.replicas), alike),
        ("engine.max_num_seqs", whole(sequences), bounded),
        ("engine.max_num_batched_tokens", whole(tokens), budgeted),
        (
            "engine.block_size",
            whole(d.engine.block_size),
            spec.engine.kv_layout != Some(KvLayout::Vattention),
        ),
        ("engine.max_cudagraph_capture_size", whole(d.engine.max_cudagraph_capture_size), true),
        ("engine.gpu_memory_utilization", d.engine.gpu_memory_utilization.into(), true),
    ];
    all.extend(d.longest().map(|tokens| ("engine.max_model_len", whole(tokens), false)));
    all
}

fn whole(n: u64) -> Value {
    i64::try_from(n).unwrap_or(i64::MAX).into()
}

/// Name of an enum's value as a spec writes it.
fn word(name: &impl serde::Serialize) -> Value {
    Value::try_from(name).unwrap_or_else(|_| "".into())
}
