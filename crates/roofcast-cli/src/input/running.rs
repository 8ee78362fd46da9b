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
use roofcast::spec::settings::{Setting, get};
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
