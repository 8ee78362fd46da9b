//! Deployment that an engine's command line, or a cluster's manifest, describes.
//!
//! Knows: which arguments hold it, and that flags without effect on a forecast are reported on stderr. The library
//! knows the meaning of flags.

use super::{STANDARD_INPUT, filled, manifest, standard_input};
use crate::args::SourceArgs;
use crate::host;
use anyhow::Result;
use roofcast::Catalog;
use roofcast::catalog::address;
use roofcast::command::{self, Command};
use roofcast::spec::Spec;
use roofcast::spec::settings::{Setting, get};
use roofcast::units::Bytes;
use std::io::Write;
use std::path::Path;
use toml::Table;

/// The command of the running deployment, if the arguments give one.
pub(super) fn running(args: &SourceArgs) -> Result<Option<Command>> {
    let Some(path) = &args.from_manifest else {
        return args.from_command.as_deref().map(|text| command("--from-command", text)).transpose();
    };
    let text = match path == Path::new(STANDARD_INPUT) {
        true => standard_input()?.1,
        false => filled(path, "YAML or JSON of a cluster")?,
    };
    let deployed = manifest::read(path, &text)?;
    let mut running = command("--from-manifest", &deployed.command)?;
    running.settings.extend(deployed.replicas.map(|n| Setting::new("parallelism.replicas", n)));
    running.settings.extend(deployed.accelerator.map(|name| Setting::new("hardware.accelerator", name)));
    Ok(Some(running))
}

/// Reads the engine's command line in `text`, given by `flag`; engine flags that a forecast does not use are reported
/// on stderr.
pub(super) fn command(flag: &str, text: &str) -> Result<Command> {
    let command = command::read(text)?;
    let list = |what: &str, flags: &[String]| match flags {
        [] => String::new(),
        flags => format!("roofcast: {flag}: {what}: {}\n", flags.join(", ")),
    };
    let notes = command.notes.iter().map(|note| format!("roofcast: {flag}: {note}\n"));
    let remarks = list("not modelled", &command.unmodelled)
        + &list("of no effect on a forecast", &command.ignored)
        + &notes.collect::<String>();
    if !host::noted(&remarks) {
        // If stderr is closed, only these notes are lost.
        drop(std::io::stderr().write_all(remarks.as_bytes()));
    }
    Ok(command)
}

/// Turns whole copies of a model with experts into data-parallel ranks, which divide its experts. The model is the one of
/// `settings`, or else of the file's `table`.
pub(super) fn divide_experts(settings: &mut [Setting], table: &Table, catalog: &Catalog) {
    let keys = ["model.name", "model.path"];
    let by_setting = settings.iter().rev().find(|setting| keys.contains(&setting.path.as_str()));
    let of_file = || keys.iter().find_map(|key| get(table, key));
    let name = by_setting.map(|setting| &setting.value).or_else(of_file).and_then(toml::Value::as_str);
    // A model that cannot be read is reported where it is resolved.
    let model = name.and_then(|name| super::model(&address::repository(name).ok()?, catalog).ok());
    let copies = settings.iter_mut().find(|setting| setting.path == "parallelism.replicas");
    if let Some(copies) = copies.filter(|_| model.is_some_and(|model| model.is_moe())) {
        copies.path = "parallelism.attention_dp".to_owned();
    }
}

/// True if the file's table or a setting names the model; a default spec does not count.
pub(super) fn names_model(table: Option<&Table>, settings: &[Setting]) -> bool {
    let keys = ["model.name", "model.path"];
    let of_file = table.and_then(|table| table.get("model")?.as_table());
    settings.iter().any(|setting| keys.contains(&setting.path.as_str()))
        || of_file.is_some_and(|model| model.contains_key("name") || model.contains_key("path"))
}

/// The context of all `slots` that Ollama chooses by the memory of the question's accelerators, of several the smallest:
/// at most the model's for each slot. `None` if the question states a context, or names no known accelerator.
pub(super) fn of_memory(spec: &Spec, slots: u64, catalog: &Catalog) -> Option<Setting> {
    if spec.engine.llama_cpp.n_ctx.is_some() || spec.engine.max_model_len.is_some() {
        return None;
    }
    let searched = spec.search.iter().flat_map(|search| &search.accelerators);
    let named = spec.hardware.accelerator.iter().chain(searched);
    let count = spec.hardware.count.unwrap_or(1);
    let memory = |name: &String| {
        let chip = catalog.accelerator(name).ok()?;
        // Ollama counts no memory of the host.
        Some(if chip.vendor == "cpu" { Bytes::ZERO } else { chip.usable_bytes * count })
    };
    let context = command::ollama_context(named.filter_map(memory).min()?);
    let model = spec.model.name.as_ref().and_then(|name| super::model(name, catalog).ok());
    let longest = model.and_then(|model| model.max_context).unwrap_or(u64::MAX);
    let tokens = i64::try_from(context.min(longest).saturating_mul(slots)).ok()?;
    Some(Setting::new("engine.n_ctx", tokens))
}
