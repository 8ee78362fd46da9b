//! The keys that a deployment adds to the plan's spec.
//!
//! Knows: the keys of a spec that a search sets, and how they are written. Knows nothing about the search.

use roofcast_ask::spec::Spec;
use roofcast_facts::model::{Checkpoint, Model};
use serde::Serialize;

/// The keys of `spec` that turn `base` into the deployment, as sections of TOML. The model's name becomes its
/// checkpoint's id, because a server answers to that id and a benchmark must use it.
pub(super) fn sections(base: &Spec, spec: &Spec, model: Option<&Model>) -> toml::Table {
    let mut all = toml::Table::new();
    let mut put = |section: &str, key: &str, value: Option<toml::Value>| {
        let (outer, inner) = section.split_once('.').unwrap_or((section, ""));
        let Some(value) = value else { return };
        let entry = all.entry(outer).or_insert_with(|| toml::Table::new().into());
        let Some(mut table) = entry.as_table_mut() else { return };
        if !inner.is_empty() {
            let entry = table.entry(inner).or_insert_with(|| toml::Table::new().into());
            let Some(nested) = entry.as_table_mut() else { return };
            table = nested;
        }
        table.insert(key.to_owned(), value);
    };
    let count = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok()).map(toml::Value::from);
    let text = |t: &Option<String>| t.clone().map(toml::Value::from);
    let written_name = base.model.name.as_ref();
    let served =
        model.filter(|m| m.checkpoint == Checkpoint::Named && written_name.is_some_and(|n| *n != m.name));
    put("model", "name", served.map(|m| m.name.clone().into()));
    put("hardware", "accelerator", text(&spec.hardware.accelerator));
    put("precision", "weights", text(&spec.precision.weights));
    put("precision", "kv", text(&spec.precision.kv));
    let p = spec.parallelism;
    for (key, n) in
        [("tp", p.tp), ("pp", p.pp), ("ep", p.ep), ("attention_dp", p.attention_dp), ("replicas", p.replicas)]
    {
        put("parallelism", key, count(n));
    }
    put("engine", "max_num_batched_tokens", count(spec.engine.max_num_batched_tokens));
    put("engine", "max_num_seqs", count(spec.engine.max_num_seqs));
    let search = base.search.clone().unwrap_or_default();
    if !search.engines.is_empty() {
        put("engine", "name", text(&spec.engine.name));
        put("engine", "scheduler", word(spec.engine.scheduler()));
    }
    put("engine", "enable_chunked_prefill", spec.engine.enable_chunked_prefill.map(toml::Value::from));
    put("engine", "enable_prefix_caching", spec.engine.enable_prefix_caching.map(toml::Value::from));
    let tier = spec.engine.vllm.kv_offloading_size.filter(|_| !search.kv_offloading_size.is_empty());
    put("engine.vllm", "kv_offloading_size", tier.map(toml::Value::from));
    if spec.fleet.router != base.fleet.router {
        put("fleet", "router", word(spec.fleet.router));
    }
    let ramp = spec.workload.as_ref().map(|w| w.arrivals.ramped().seconds()).filter(|s| *s > 0.0);
    put("workload.arrivals", "ramp_s", ramp.map(toml::Value::from));
    put("workload", "requests", count(spec.workload.as_ref().and_then(|w| w.requests)));
    put("fleet", "link", spec.fleet.link.map(|link| link.name().into()));
    let fleet = &spec.fleet;
    put("fleet", "beside_weight", fleet.beside_weight.map(toml::Value::from));
    let pools =
        [("fleet.prefill", &fleet.prefill), ("fleet.decode", &fleet.decode), ("fleet.beside", &fleet.beside)];
    for (section, pool) in pools {
        let Some(pool) = pool else { continue };
        put(section, "accelerator", text(&pool.accelerator));
        for (key, n) in [
            ("replicas", pool.replicas),
            ("tp", pool.tp),
            ("pp", pool.pp),
            ("ep", pool.ep),
            ("attention_dp", pool.attention_dp),
        ] {
            put(section, key, count(n));
        }
    }
    all
}

/// Keys of `base` that `spec` lacks.
pub(super) fn dropped(base: &Spec, spec: &Spec) -> Vec<&'static str> {
    let gone = [
        ("engine.version", base.engine.version.is_some() && spec.engine.version.is_none()),
        ("engine.speculative", base.engine.speculative.is_some() && spec.engine.speculative.is_none()),
    ];
    gone.into_iter().filter(|(_, gone)| *gone).map(|(key, _)| key).collect()
}

/// A unit variant as a spec writes it.
fn word(value: impl Serialize) -> Option<toml::Value> {
    toml::Value::try_from(value).ok()
}
