//! Defaults of a verb that decide an answer and that the question does not give.
//!
//! Knows: the keys of load and SLO that decide an answer. Knows nothing about their meaning.

use roofcast::spec::settings::Setting;
use toml::{Table, Value};

/// Keys whose defaults an answer names, each with its name.
const DECIDING: [([&str; 2], &str); 5] = [
    (["workload", "arrivals"], "load"),
    (["workload", "input_len"], "prompt lengths"),
    (["workload", "output_len"], "output lengths"),
    (["slo", "ttft_p99_ms"], "TTFT bound"),
    (["slo", "tpot_p99_ms"], "TPOT bound"),
];

/// Removes from the default spec `base` the bounds of metrics for which `settings` have bounds: a default never refuses a
/// bound that is given.
pub(super) fn without_bounds(base: &mut Table, settings: &[Setting]) {
    let Some(slo) = base.get_mut("slo").and_then(Value::as_table_mut) else { return };
    for metric in ["ttft", "tpot", "itl", "e2el"] {
        let is_of_metric = |key: &str| {
            key.strip_prefix(metric).is_some_and(|rest| rest.starts_with("_p"))
                || metric == "tpot" && key == "tokens_per_s_user"
        };
        let given = |setting: &Setting| {
            setting.path.strip_prefix("slo.").is_some_and(is_of_metric) && setting.value.as_str().is_none()
        };
        if settings.iter().any(given) {
            slo.retain(|key, _| !is_of_metric(key));
        }
    }
}

/// Gives the `[workload]` of a spec the lengths of the default spec `base` that it lacks. Presets, traces and classes have
/// lengths of their own. Returns names of the lengths.
pub(super) fn lend(spec: &mut Table, base: &str) -> Vec<&'static str> {
    let Some(workload) = spec.get_mut("workload").and_then(Value::as_table_mut) else { return Vec::new() };
    let kind = workload.get("arrivals").and_then(|arrivals| arrivals.get("kind")).and_then(Value::as_str);
    let paced = kind.is_some() || workload.contains_key("rate");
    if !paced || kind == Some("trace") || ["preset", "classes"].iter().any(|key| workload.contains_key(*key))
    {
        return Vec::new();
    }
    let base: Table = base.parse().unwrap_or_default();
    let mut names = Vec::new();
    for (key, name) in [("input_len", "prompt lengths"), ("output_len", "output lengths")] {
        let length = base.get("workload").and_then(|workload| workload.get(key));
        if let (false, Some(length)) = (workload.contains_key(key), length) {
            workload.insert(key.to_owned(), length.clone());
            names.push(name);
        }
    }
    names
}

/// Names of the keys that a question takes from the default spec `base`; `table` is the spec with all `settings`.
pub(super) fn defaults(base: &Table, table: &Table, settings: &[Setting]) -> Vec<&'static str> {
    let at =
        |table: &Table, [section, key]: [&str; 2]| -> Option<Value> { table.get(section)?.get(key).cloned() };
    let set = |[section, key]: [&str; 2]| {
        let path = format!("{section}.{key}");
        settings.iter().any(|setting| setting.path.starts_with(&path))
    };
    let is_default =
        |keys: [&str; 2]| at(base, keys).is_some() && at(base, keys) == at(table, keys) && !set(keys);
    DECIDING.iter().filter(|(keys, _)| is_default(*keys)).map(|(_, name)| *name).collect()
}
