//! Settings applied to a spec: keys set by flags, by sweeps and by command lines of other programs.
//!
//! Knows: the effects of a setting on other keys; for example, a rate turns closed-loop arrivals into open ones. Knows
//! nothing about valid values, which are checked when a spec is parsed.

use super::keys::{self, KEYS, SpecKey};
use super::sections::spell;
use crate::spec::{AutoscaleRule, EngineKind, Routing};
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use std::path::Path;
use toml::{Table, Value};

/// A key of a spec, with its new value.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Dotted path of the key.
    pub path: String,
    /// New value of the key.
    pub value: Value,
}

impl Setting {
    /// `path` set to `value`.
    pub fn new(path: &str, value: impl Into<Value>) -> Setting {
        Setting { path: path.to_owned(), value: value.into() }
    }

    /// Name of the key for users: its flag if it has one, else its path.
    pub fn name(&self) -> String {
        let flag = keys::at(&self.path).and_then(|key| key.flag);
        flag.map_or_else(|| self.path.clone(), |flag| format!("--{flag}"))
    }
}

/// Value that removes a bound.
pub const NO_BOUND: &str = "none";

/// Applies the settings to `table` in the order of [`KEYS`]; if two settings set one key, the later one applies. A
/// whole section, as `workload.arrivals`, comes before its keys.
pub fn lay(mut table: Table, settings: &[Setting]) -> Result<Table> {
    let within =
        |key: &str, section: &str| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
    let rank = |s: &&Setting| {
        let listed_key = keys::at(&s.path);
        let key_place = listed_key.and_then(|listed_key| KEYS.iter().position(|key| key == listed_key));
        let of_section = KEYS.iter().position(|key| within(key.path, &s.path));
        (key_place.or(of_section).unwrap_or(KEYS.len()), key_place.is_some())
    };
    let mut ordered: Vec<&Setting> = settings.iter().collect();
    ordered.sort_by_key(rank);
    for setting in ordered {
        let value = setting.value.clone();
        match (setting.path.as_str(), value.as_str()) {
            ("engine.name", Some(name)) => engine(&mut table, name)?,
            ("parallelism.replicas", Some(pools)) => split(&mut table, pools)?,
            ("workload.preset", Some(traffic)) => workload(&mut table, traffic)?,
            (bound, Some(NO_BOUND)) if bound.starts_with("slo.") => {
                let key = bound.trim_start_matches("slo.");
                section(&mut table, "slo")?.remove(key);
            }
            ("fleet.autoscale.rule", Some(name)) => {
                // Keys that the new rule does not read stand for the rule of the file.
                let rule = AutoscaleRule::ALL.into_iter().find(|rule| rule.name() == name);
                section(&mut table, "fleet.autoscale")?
                    .retain(|key, _| rule.is_none_or(|rule| rule.reads(key)));
                put(&mut table, &setting.path, value)?;
            }
            ("fleet.router", Some(_)) => {
                put(&mut table, &setting.path, value)?;
                routing(&mut table);
            }
            ("slo.tpot_p99_ms" | "slo.tokens_per_s_user", _) => {
                // Two keys set this bound, in different units.
                section(&mut table, "slo")?
                    .retain(|key, _| !["tpot_p99_ms", "tokens_per_s_user"].contains(&key));
                put(&mut table, &setting.path, value)?;
            }
            ("model.name" | "model.path", _) => {
                section(&mut table, "model")?.clear();
                put(&mut table, &setting.path, value)?;
            }
            _ => match setting.path.strip_prefix("workload.arrivals.") {
                Some(key) => arrivals(&mut table, key, value)?,
                None => {
                    rename(&mut table, &setting.path);
                    put(&mut table, &setting.path, value)?;
                }
            },
        }
    }
    Ok(table)
}

/// Removes the keys of `[fleet.routing]` that none of the fleet's routers reads: they stand for the router of the file.
fn routing(table: &mut Table) {
    let paths = ["fleet.router", "fleet.prefill.router", "fleet.beside.router"];
    let names: Vec<&str> = paths.iter().filter_map(|path| get(table, path)?.as_str()).collect();
    let routers: Vec<Routing> =
        Routing::ALL.into_iter().filter(|router| names.contains(&router.name())).collect();
    if let Some(Value::Table(section)) = get_mut(table, "fleet.routing") {
        section.retain(|key, _| routers.iter().any(|router| router.reads(key)));
    }
}

/// Removes the key at `path` under its other path, if one engine has the key.
fn rename(table: &mut Table, path: &str) {
    let Some(key) = keys::at(path).filter(|key| key.owner().is_some()) else { return };
    let flat = key.flat();
    let other = if path == flat { key.path } else { &flat };
    let (section, name) = other.rsplit_once('.').unwrap_or(("", other));
    if let Some(Value::Table(section)) = get_mut(table, section) {
        section.remove(name);
    }
}

/// Sets the value at a dotted path, replacing any existing one.
pub(crate) fn put(table: &mut Table, path: &str, value: Value) -> Result<()> {
    let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
    section(table, sections)?.insert(last.to_owned(), value);
    Ok(())
}

/// The value at a dotted path.
pub fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut inner = table;
    for name in sections.split('.').filter(|name| !name.is_empty()) {
        inner = inner.get(name)?.as_table()?;
    }
    inner.get(last)
}

/// The section at a dotted path, created if it is missing.
fn section<'a>(table: &'a mut Table, path: &str) -> Result<&'a mut Table> {
    let mut inner = table;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let next = inner.entry(name).or_insert_with(|| Table::new().into());
        let accepted = "a key within sections, as engine.max_num_seqs";
        let single = || Error::field("arguments", path, format!("within `{name}`, a single value"), accepted);
        inner = next.as_table_mut().ok_or_else(single)?;
    }
    Ok(inner)
}

/// Sets the engine by name and removes the file's scheduler; another setting may set a scheduler again.
fn engine(table: &mut Table, name: &str) -> Result<()> {
    let engine = section(table, "engine")?;
    if EngineKind::pinned(name).is_some() {
        engine.remove("version");
    }
    engine.insert("name".into(), name.into());
    spelled(engine);
    let kind = engine.get("name").and_then(Value::as_str).map(EngineKind::of);
    if kind.is_some_and(|kind| kind.scheduler().is_some()) {
        engine.remove("scheduler");
    }
    Ok(())
}

/// Replaces the name of `[engine]` by its spelling in specs, and moves a version that is written after the name into
/// its own key, unless the section has that key.
fn spelled(engine: &mut Table) {
    let Some(Value::String(name)) = engine.get_mut("name") else { return };
    *name = name.trim().to_lowercase();
    let pinned = EngineKind::pinned(name).map(|(name, version)| (name.to_owned(), version.to_owned()));
    if let Some((name, version)) = pinned.filter(|_| !engine.contains_key("version")) {
        engine.insert("name".into(), name.into());
        engine.insert("version".into(), version.into());
    }
    let known = engine.get("name").and_then(Value::as_str).and_then(EngineKind::spelled);
    if let Some(known) = known {
        engine.insert("name".into(), known.into());
    }
}

/// Parses `4` as a number of replicas, and `3P1D` as three prefill replicas and one decode replica, with the network as
/// link if none is set.
fn split(table: &mut Table, text: &str) -> Result<()> {
    let count = |s: &str| s.parse::<i64>().ok().filter(|n| (1..=65_536).contains(n));
    let lower = text.trim().to_lowercase();
    let pools = lower.strip_suffix('d').and_then(|rest| rest.split_once('p'));
    let fleet = section(table, "fleet")?;
    for pool in ["prefill", "decode"] {
        if let Some(Value::Table(pool)) = fleet.get_mut(pool) {
            pool.remove("replicas");
        }
        if fleet.get(pool).and_then(Value::as_table).is_some_and(Table::is_empty) {
            fleet.remove(pool);
        }
    }
    match (count(&lower), pools.and_then(|(p, d)| Some((count(p)?, count(d)?)))) {
        (Some(replicas), _) => put(table, "parallelism.replicas", replicas.into()),
        (None, Some((prefill, decode))) => {
            section(table, "parallelism")?.remove("replicas");
            section(table, "fleet")?.entry("link").or_insert_with(|| "network".into());
            put(table, "fleet.prefill.replicas", prefill.into())?;
            put(table, "fleet.decode.replicas", decode.into())
        }
        (None, None) => {
            let accepted = "1 to 65536 replicas, or as 3P1D: three that compute prompts, one that decodes";
            Err(Error::field("arguments", "parallelism.replicas", format!("{text:?}"), accepted))
        }
    }
}

/// Sets the traffic of a preset or a trace file. It replaces the lengths and, if it has arrivals, the arrivals.
fn workload(table: &mut Table, traffic: &str) -> Result<()> {
    let workload = section(table, "workload")?;
    for key in ["preset", "input_len", "output_len", "prefix", "rate"] {
        workload.remove(key);
    }
    let lower = traffic.to_lowercase();
    let recorded = [".json", ".jsonl", ".csv", ".gz"].iter().any(|suffix| lower.ends_with(suffix));
    if recorded {
        let mut arrivals = Table::new();
        arrivals.insert("kind".into(), "trace".into());
        arrivals.insert("path".into(), traffic.into());
        workload.insert("arrivals".into(), arrivals.into());
        workload.remove("requests");
        return Ok(());
    }
    if traffic.contains(['/', '\\']) || lower.ends_with(".toml") {
        let accepted = "a workload of the catalog, or a trace whose name ends in .csv, .json, .jsonl or .gz";
        return Err(Error::field("arguments", "workload.preset", format!("{traffic:?}"), accepted));
    }
    let preset = Catalog::embedded()?.workload(traffic)?;
    if preset.rate.is_some() {
        workload.remove("arrivals");
    }
    // A recording's profile is whole with as many requests as the recording.
    if preset.profile.is_some() {
        workload.remove("requests");
    }
    workload.insert("preset".into(), traffic.into());
    Ok(())
}

/// Sets a key of `[workload.arrivals]`, and changes the kind of arrivals to one that has this key.
fn arrivals(table: &mut Table, key: &str, value: Value) -> Result<()> {
    let workload = section(table, "workload")?;
    let of_preset = workload.contains_key("preset") && !workload.contains_key("arrivals");
    if of_preset && key == "rate" {
        workload.insert("rate".into(), value);
        return Ok(());
    }
    let rate = workload.remove("rate");
    let old = workload.remove("arrivals").and_then(|a| a.as_table().cloned()).unwrap_or_default();
    let kind = old.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = kind.as_str();
    let has = |kinds: &[&str]| kinds.contains(&kind);
    let (kind, drops): (&str, &[&str]) = match key {
        "rate" if has(&["poisson", "constant", "gamma", "profile"]) => {
            (kind, &["concurrency", "think_s", "ramp_s", "turn_round_s"])
        }
        "rate" if kind == "sessions" => (kind, &["concurrency"]),
        "rate" if kind == "trace" => (kind, &["scale", "concurrency", "think_s", "ramp_s", "turn_round_s"]),
        "concurrency" if kind == "trace" => (kind, &["rate", "burstiness"]),
        "turns" if kind == "trace" => return Err(of_trace("turns", &value)),
        "rate" => ("poisson", ALL),
        "concurrency" if kind == "sessions" => (kind, &["rate"]),
        "concurrency" if kind == "closed_loop" => (kind, &[]),
        "concurrency" => ("closed_loop", ALL),
        "burstiness" if kind == "trace" => (kind, &[]),
        "burstiness" => ("gamma", &["concurrency", "think_s", "ramp_s", "turn_round_s", "turns", "counts"]),
        "counts" => ("profile", &["burstiness"]),
        "turns" => ("sessions", &["burstiness"]),
        _ => (kind, &[]),
    };
    let mut new: Table = old.into_iter().filter(|(name, _)| !drops.contains(&name.as_str())).collect();
    if !kind.is_empty() {
        new.insert("kind".into(), kind.into());
    }
    if let Some(rate) = rate.filter(|_| !new.contains_key("concurrency") && key != "concurrency") {
        new.insert("rate".into(), rate);
    }
    new.insert(key.to_owned(), value);
    workload.insert("arrivals".into(), new.into());
    Ok(())
}

/// The error for a key of `[workload.arrivals]` over a trace, which is replayed.
fn of_trace(key: &str, value: &Value) -> Error {
    let accepted =
        "omitted over a trace, whose requests and sessions are replayed: rate or concurrency set their pace";
    Error::field("arguments", format!("workload.arrivals.{key}"), value, accepted)
}

/// Keys that neither open nor closed loops have, and that are removed when the kind of arrivals changes.
const ALL: &[&str] = &[
    "rate",
    "concurrency",
    "burstiness",
    "turns",
    "think_s",
    "ramp_s",
    "turn_round_s",
    "from",
    "to",
    "over_s",
    "size",
    "every_s",
    "counts",
    "path",
    "format",
    "scale",
];

/// `table` with one name for each key, and with paths relative to `folder` instead of the working directory.
pub fn rooted(mut table: Table, folder: &Path) -> Table {
    for (other, name) in [("max_running_requests", "max_num_seqs"), ("page_size", "block_size")] {
        if let Some(Value::Table(engine)) = table.get_mut("engine")
            && !engine.contains_key(name)
            && let Some(value) = engine.remove(other)
        {
            engine.insert(name.into(), value);
        }
    }
    if let Some(Value::Table(engine)) = table.get_mut("engine") {
        spelled(engine);
    }
    spell(&mut table);
    let join = |text: &mut String| *text = folder.join(&*text).display().to_string();
    for path in
        ["model.path", "workload.arrivals.path", "workload.input_len.path", "workload.output_len.path"]
    {
        if let Some(Value::String(text)) = get_mut(&mut table, path) {
            join(text);
        }
    }
    let named = |text: &str| text.to_lowercase().ends_with(".toml");
    for path in [
        "hardware.accelerator",
        "fleet.prefill.accelerator",
        "fleet.decode.accelerator",
        "fleet.beside.accelerator",
    ] {
        if let Some(Value::String(text)) = get_mut(&mut table, path)
            && named(text)
        {
            join(text);
        }
    }
    if let Some(Value::Array(chips)) = get_mut(&mut table, "search.accelerators") {
        for chip in chips {
            match chip {
                Value::String(text) if named(text) => join(text),
                _ => {}
            }
        }
    }
    table
}

fn get_mut<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut inner = table;
    for name in sections.split('.').filter(|name| !name.is_empty()) {
        inner = inner.get_mut(name)?.as_table_mut()?;
    }
    inner.get_mut(last)
}

/// The dotted path of the key called `name`: the name of a flag, or a path that contains a point.
pub fn path(name: &str) -> Option<String> {
    if !name.contains('.') {
        return keys::find(name).map(SpecKey::flat);
    }
    // The section of an engine in another spelling, as in `engine.trtllm`.
    let parts = name.strip_prefix("engine.").and_then(|rest| rest.split_once('.'));
    let sectioned = parts.and_then(|(section, key)| {
        Some(format!("engine.{}.{key}", EngineKind::of(EngineKind::spelled(section)?).section()))
    });
    Some(sectioned.unwrap_or_else(|| name.to_owned()))
}

#[cfg(test)]
mod tests;
