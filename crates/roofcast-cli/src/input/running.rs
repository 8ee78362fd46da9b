//! Deployment that an engine's command line, or a cluster's manifest, describes.
//!
//! Knows: which arguments hold it, and that flags without effect on a forecast are reported on stderr. The library
//! knows the meaning of flags.

use super::{STANDARD_INPUT, filled, manifest, standard_input};
use crate::args::SourceArgs;
use crate::host;
use anyhow::Result;
use roofcast::catalog::address;
use roofcast::command::{self, Command, Ollama};
use roofcast::model::Model;
use roofcast::spec::Spec;
use roofcast::spec::settings::{Setting, get};
use roofcast::units::Bytes;
use roofcast::{Catalog, Error};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
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
    remark(&remarks);
    Ok(command)
}

/// Reports how a command was read.
fn remark(lines: &str) {
    if !host::noted(lines) {
        // If stderr is closed, only these notes are lost.
        drop(std::io::stderr().write_all(lines.as_bytes()));
    }
}

/// The model of `settings`, or else of the file's `table`.
fn model_of(settings: &[Setting], table: &Table, catalog: &Catalog) -> Option<Arc<Model>> {
    let keys = ["model.name", "model.path"];
    let by_setting = settings.iter().rev().find(|setting| keys.contains(&setting.path.as_str()));
    let of_file = || keys.iter().find_map(|key| get(table, key));
    let name = by_setting.map(|setting| &setting.value).or_else(of_file).and_then(toml::Value::as_str);
    // A model that cannot be read is reported where it is resolved.
    name.and_then(|name| super::model(&address::repository(name).ok()?, catalog).ok())
}

/// Turns whole copies of a model with experts into data-parallel ranks, which divide its experts.
pub(super) fn divide_experts(settings: &mut [Setting], table: &Table, catalog: &Catalog) {
    let model = model_of(settings, table, catalog);
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

/// Families whose checkpoints have multi-token-prediction layers that their configs do not count.
const UNCOUNTED_AHEAD: [&str; 2] = ["qwen3_next", "longcat_flash"];

/// Settles what an engine's command leaves to the model: the number of SGLang's drafts if `auto`, which is reported, and
/// whether the model has layers that draft.
///
/// # Errors
/// Refuses drafts by the model's own layers if it has none.
pub(super) fn drafts_by_model(
    settings: &mut Vec<Setting>,
    table: &Table,
    catalog: &Catalog,
    auto: bool,
) -> Result<()> {
    let Some(model) = model_of(settings, table, catalog) else { return Ok(()) };
    let by_layers = settings
        .iter()
        .any(|setting| setting.path == "engine.speculative.method" && setting.value.as_str() == Some("mtp"));
    let counted = UNCOUNTED_AHEAD.iter().any(|family| model.architecture.starts_with(family));
    if by_layers && model.layer_ahead().is_none() && !counted {
        let engine = settings.iter().find(|setting| setting.path == "engine.name");
        let [flag, value, drafter] = match engine.and_then(|setting| setting.value.as_str()) {
            Some("sglang") => [
                "--speculative-algorithm",
                "NEXTN, or EAGLE without a drafter",
                "--speculative-draft-model-path",
            ],
            Some("llama.cpp") => ["--spec-type", "draft-mtp", "-md or -hfd"],
            _ => ["--speculative-config", "method mtp", "\"model\" in --speculative-config"],
        };
        let accepted = format!(
            "a model with multi-token-prediction layers, which {} has not; or a drafter: {drafter}",
            model.name
        );
        return Err(Error::field(command::PLACE, flag, value, accepted).into());
    }
    if auto {
        let (count, note) = command::auto_drafts(&model.architecture);
        settings.push(Setting::new("engine.speculative.num_speculative_tokens", count));
        remark(&format!("roofcast: {}: {note}\n", command::PLACE));
    }
    Ok(())
}

/// Reports a context of Ollama's slots that is longer than the model's, which Ollama lowers.
pub(super) fn note_lowered(ollama: &Ollama, settings: &[Setting], table: &Table, catalog: &Catalog) {
    let longest = model_of(settings, table, catalog).and_then(|model| model.max_context);
    if let Some((asked, longest)) = ollama.context.zip(longest).filter(|(asked, longest)| asked > longest) {
        remark(&format!(
            "roofcast: {}: OLLAMA_CONTEXT_LENGTH={asked} is lowered to the model's {longest} tokens, as Ollama does \
             (\"requested context size too large for model\")\n",
            command::PLACE
        ));
    }
}

/// The context of all slots of Ollama, at most the model's for each: the stated one, or else the one by the memory of the
/// question's accelerators, of several the smallest. `None` if the question states another context, or names no known
/// accelerator.
pub(super) fn of_ollama(spec: &Spec, ollama: &Ollama, catalog: &Catalog) -> Option<Setting> {
    let stated = ollama.context.map(|tokens| tokens.saturating_mul(ollama.slots));
    if spec.engine.llama_cpp.n_ctx != stated || spec.engine.max_model_len.is_some() {
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
    let by_memory = || Some(command::ollama_context(named.filter_map(memory).min()?));
    let context = ollama.context.or_else(by_memory)?;
    let name = spec.model.name.as_ref();
    let model = name.and_then(|name| super::model(&address::repository(name).ok()?, catalog).ok());
    let longest = model.and_then(|model| model.max_context).unwrap_or(u64::MAX);
    let tokens = i64::try_from(context.min(longest).saturating_mul(ollama.slots)).ok()?;
    Some(Setting::new("engine.n_ctx", tokens))
}
