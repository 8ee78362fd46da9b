//! The question of a verb: a spec with settings applied, resolved in one place.
//!
//! Knows: the order of layers (the spec or its default, an engine's command line, `--set`, flags, a sweep's values),
//! and the base of relative paths. The library knows the meaning of keys.

use super::defaults::{defaults, lend, without_bounds};
use super::reach::Reach;
use super::refused::{by_flag, lacking, refused, together};
use super::running::{divide_experts, drafts_by_model, names_model, note_lowered, of_ollama, running};
use super::{STANDARD_INPUT, absent, catalog, of_file, spec_text, standard_input};
use crate::args::SourceArgs;
use crate::show;
use crate::swept;
use anyhow::Result;
use roofcast::calibration::Calibration;
use roofcast::catalog::address;
use roofcast::command::{self, Longest, Ollama};
use roofcast::deployment::DeploymentOptions;
use roofcast::spec::sections::nested;
use roofcast::spec::settings::{self, Setting, lay, rooted};
use roofcast::spec::{EngineKind, Spec, quoted};
use roofcast::version::Version;
use roofcast::{Catalog, Deployment, Error, Model, resolved};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Table;

/// Default spec of a verb: its name in errors, and its text.
pub(crate) type Base = (&'static str, &'static str);

/// Versions without a number, which count as the newest.
const UNNUMBERED: [&str; 3] = ["nightly", "latest", "main"];

/// Default of verbs that need no spec.
pub(crate) const EMPTY: Base = ("arguments", "");

/// A spec file or the default, and everything that is applied over the spec.
pub(crate) struct Source {
    place: String,
    /// True if no spec is given, so that `table` is the verb's default.
    by_default: bool,
    /// Names of the lengths that the file lacks and the default spec gives.
    lent: Vec<&'static str>,
    file: Option<PathBuf>,
    text: String,
    table: Table,
    settings: Vec<Setting>,
    catalog: Cow<'static, Catalog>,
    reach: Reach,
    /// Longest sequence that the command sets, if the engine refuses one beyond the model's maximum.
    longest: Option<Longest>,
    /// Longest request that the engine's command admits, if a command is given.
    runs: Option<Bound>,
    /// Slots of the server that Ollama starts.
    ollama: Option<Ollama>,
}

/// Longest request of an engine whose command states no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// The model's maximum.
    Model,
    /// The longest that fits in memory.
    Memory,
}

impl Source {
    /// Reads the spec in `file`, else `base`, and applies the settings of `args` and then `flags`.
    pub(crate) fn read(
        file: Option<&Path>,
        base: Base,
        args: &SourceArgs,
        flags: &[&[Setting]],
    ) -> Result<Source> {
        let (place, text) = match file {
            Some(path) if path == Path::new(STANDARD_INPUT) => standard_input()?,
            Some(path) => (path.display().to_string(), spec_text(path)?),
            None => (base.0.to_owned(), base.1.to_owned()),
        };
        let (given, file) = (file.is_some(), file.filter(|path| *path != Path::new(STANDARD_INPUT)));
        let mut table: Table = match quoted::unquoted(&text).parse() {
            Ok(table) => rooted(table, super::folder(file)),
            // The library's parser reports the line, so its message is preferred.
            Err(_) => return Err(Spec::parse(&place, &text).map_or_else(Into::into, |_| unreadable(&place))),
        };
        let lent = if given { lend(&mut table, base.1) } else { Vec::new() };
        let server = running(args)?;
        let runs = server.as_ref().map(|server| if server.fits { Bound::Memory } else { Bound::Model });
        let longest = server.as_ref().and_then(|server| server.longest.clone());
        let data_parallel = server.as_ref().is_some_and(|server| server.data_parallel);
        let ollama = server.as_ref().and_then(|server| server.ollama);
        let auto_drafts = server.as_ref().is_some_and(|server| server.auto_drafts);
        let mut all = server.map(|server| server.settings).unwrap_or_default();
        all.extend(args.set.iter().map(|text| set(text)).collect::<Result<Vec<_>>>()?);
        all.extend(flags.iter().copied().flatten().cloned());
        let (file, catalog) = (file.map(Path::to_owned), catalog(&args.catalog)?);
        if data_parallel {
            divide_experts(&mut all, &table, &catalog);
        }
        if (args.from_command.is_some() || args.from_manifest.is_some())
            && !names_model(given.then_some(&table), &all)
        {
            let accepted = "one, as in vllm serve MODEL … or --model-path MODEL; or add --model";
            return Err(
                Error::field(command::PLACE, "the model", "missing: no model is named", accepted).into()
            );
        }
        if runs.is_some() {
            drafts_by_model(&mut all, &table, &catalog, auto_drafts)?;
        }
        if let Some(ollama) = &ollama {
            note_lowered(ollama, &all, &table, &catalog);
        }
        let (by_default, settings, reach) = (!given, all, Reach::Files);
        Ok(Source {
            place,
            by_default,
            lent,
            file,
            text,
            table,
            settings,
            catalog,
            reach,
            longest,
            runs,
            ollama,
        })
    }

    /// Uses `default` for `section` if the spec lacks that section.
    pub(crate) fn or(mut self, section: &str, default: Table) -> Source {
        self.table.entry(section).or_insert_with(|| default.into());
        self
    }

    /// A source from a spec that came over the network, which may not name files.
    pub(crate) fn received(table: Table, catalog: Cow<'static, Catalog>, models: Vec<Arc<Model>>) -> Source {
        let (place, text) = ("the request".to_owned(), String::new());
        let settings = Vec::new();
        let reach = Reach::Given(models);
        let (by_default, lent, file, longest, runs) = (false, Vec::new(), None, None, None);
        let ollama = None;
        Source { place, by_default, lent, file, text, table, settings, catalog, reach, longest, runs, ollama }
    }

    /// The question with the settings `more` applied last.
    pub(crate) fn scenario(&self, more: &[Setting]) -> Result<Scenario> {
        let mut settings = [&self.settings, more].concat();
        let (mut table, mut spec) = self.spec(settings.clone())?;
        if let Some(context) = self.ollama.and_then(|ollama| of_ollama(&spec, &ollama, &self.catalog)) {
            settings.push(context);
            (table, spec) = self.spec(settings.clone())?;
        }
        let defaults =
            if self.by_default { defaults(&self.table, &table, &settings) } else { self.lent.clone() };
        if let Some(name) = &mut spec.model.name {
            *name = address::repository(name)?.into_owned();
        }
        if let Some(workload) = &mut spec.workload {
            workload.load(&self.place, |trace| self.reach.trace(&self.place, trace))?;
        }
        let mut catalog = self.catalog.clone();
        let searched = spec.search.iter_mut().flat_map(|search| &mut search.accelerators);
        let fleet = &mut spec.fleet;
        let pools = [&mut fleet.prefill, &mut fleet.decode, &mut fleet.beside].into_iter().flatten();
        let pools = pools.flat_map(|pool| &mut pool.accelerator);
        for name in searched.chain(&mut spec.hardware.accelerator).chain(pools) {
            *name = self.reach.accelerator(name, &mut catalog)?;
        }
        let (place, file, reach) = (self.place.clone(), self.file.clone(), self.reach.clone());
        Ok(Scenario {
            place,
            file,
            spec,
            table,
            defaults,
            catalog,
            reach,
            longest: self.longest.clone(),
            runs: self.runs,
            by_ollama: self.ollama.is_some(),
        })
    }

    /// Applies `settings` to the file; returns the spec as a table and as a `Spec`. All invalid settings are reported
    /// together.
    fn spec(&self, mut settings: Vec<Setting>) -> Result<(Table, Spec)> {
        let mut wrong = Vec::new();
        loop {
            let mut base = self.table.clone();
            if self.by_default {
                without_bounds(&mut base, &settings);
            }
            let table = lay(base, &settings).map_err(|error| by_flag(error, &settings))?;
            let place = if settings.is_empty() { self.place.as_str() } else { "arguments" };
            match Spec::of_table(place, table.clone()) {
                Ok(spec) if wrong.is_empty() => return Ok((table, spec)),
                Ok(_) => return Err(together(wrong)),
                Err(error) => {
                    let refused = refused(&error, &settings);
                    // An error that appears only after refused values are removed may be caused by the removal.
                    if wrong.is_empty() || refused.is_some() {
                        wrong.push(self.explained(error, &settings).into());
                    }
                    match refused {
                        Some(at) => drop(settings.remove(at)),
                        None => return Err(together(wrong)),
                    }
                }
            }
        }
    }

    /// Attributes an error to the file's line, or to the flag of the setting that caused it.
    fn explained(&self, error: Error, settings: &[Setting]) -> Error {
        let of_file = Spec::parse(&self.place, &self.text).err();
        let rest_of = |error: &Error| error.to_string().split_once("`").map(|(_, rest)| rest.to_owned());
        if let Some(first) = of_file.filter(|first| settings.is_empty() || rest_of(first) == rest_of(&error))
        {
            return first;
        }
        match error {
            Error::Parse { place, mut message } => {
                if let Some(lacking) = lacking(&message, settings) {
                    return lacking;
                }
                for setting in settings {
                    let quoted = format!("`{}`", setting.path);
                    message = message.replace(&quoted, &format!("`{}`", setting.name()));
                }
                Error::Parse { place, message }
            }
            other => other,
        }
    }
}

fn unreadable(place: &str) -> anyhow::Error {
    Error::field(place, "spec", "no TOML", "a spec as TOML").into()
}

/// Reads `KEY=VALUE` of `--set`.
fn set(text: &str) -> Result<Setting> {
    let accepted = "KEY=VALUE, as engine.watermark=0.01; `roofcast keys` lists them";
    let wrong = || Error::field("arguments", "--set", format!("{text:?}"), accepted);
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let path = settings::path(name.trim()).ok_or_else(wrong)?;
    Ok(Setting::new(&path, swept::setting(&path, value.trim())))
}

/// A question: the spec with all settings, and the catalog to resolve it with.
pub(crate) struct Scenario {
    /// Name of the spec in errors.
    pub(crate) place: String,
    file: Option<PathBuf>,
    /// The spec, with the traces that it names loaded.
    pub(crate) spec: Spec,
    table: Table,
    /// Names of the parts of load and SLO that are the verb's defaults, because nothing sets them.
    pub(crate) defaults: Vec<&'static str>,
    pub(crate) catalog: Cow<'static, Catalog>,
    reach: Reach,
    longest: Option<Longest>,
    pub(super) runs: Option<Bound>,
    /// True if Ollama starts the engine.
    pub(super) by_ollama: bool,
}

impl Scenario {
    /// Prefixes an error with the spec's file, unless the error already names a file.
    pub(crate) fn told(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        of_file(self.file.as_deref(), error)
    }

    /// True if `[fleet]` configures routing, rather than only the link for caches.
    pub(crate) fn is_routed(&self) -> bool {
        let fleet = self.table.get("fleet").and_then(toml::Value::as_table);
        fleet.is_some_and(|fleet| fleet.keys().any(|key| key != "link"))
    }

    /// The error for a missing key; a question that came over the network has no flags.
    fn absent(&self, flag: &str, key: &str, accepted: &str) -> Error {
        match self.reach {
            Reach::Files => absent(self.file.as_deref(), flag, key, accepted),
            Reach::Given(_) => Error::field(&self.place, key, "missing", accepted),
        }
    }

    /// Name of the model that the question is about.
    pub(crate) fn model_name(&self) -> Result<String> {
        let model = &self.spec.model;
        let accepted = "a catalog id, a config.json, a .gguf or .safetensors";
        let path = model.path.as_ref().map(|path| path.display().to_string());
        let files = matches!(self.reach, Reach::Files);
        if let Some(path) = path.as_ref().filter(|path| !files || !Path::new(path).exists()) {
            let missing_path = format!("{path:?}, where nothing is");
            let accepted = "a config.json or its folder, a .gguf or .safetensors";
            return Err(Error::field(&self.place, "model.path", missing_path, accepted).into());
        }
        let named = path.or_else(|| model.name.clone());
        Ok(named.ok_or_else(|| self.absent("--model", "model.name", accepted))?)
    }

    /// The model that the question is about.
    pub(crate) fn model(&self) -> Result<Arc<Model>> {
        let model = self.reach.model(&self.model_name()?, &self.catalog).map_err(|e| self.told(e))?;
        self.reaches(&model)?;
        Ok(model)
    }

    /// Refuses a command with sequences beyond the model's maximum, if the engine itself refuses it.
    fn reaches(&self, model: &Model) -> Result<()> {
        let Some(longest) = &self.longest else { return Ok(()) };
        let limit = model.max_context.filter(|most| longest.tokens > *most);
        match limit.filter(|_| self.spec.engine.max_model_len == Some(longest.tokens)) {
            Some(limit) => {
                let accepted =
                    format!("at most the {limit} tokens of {}: the engine refuses more", model.name);
                Err(Error::field(command::PLACE, &longest.flag, longest.tokens, accepted).into())
            }
            None => Ok(()),
        }
    }

    /// Name of the accelerator that decodes; an error if the question has none.
    fn hardware<'a>(&self, named: Option<&'a str>) -> Result<&'a str> {
        let accepted = "an accelerator, as h100-sxm, or its TOML file";
        let lacking = || self.absent("--hardware", "hardware.accelerator", accepted);
        Ok(named.ok_or_else(lacking)?)
    }

    /// Resolves the deployment; the only place where this is done. Errors of model, accelerator and engine are reported
    /// together.
    pub(crate) fn deployment(&self) -> Result<Deployment> {
        let [prompts, hardware] = self.spec.fleet.accelerators(self.spec.hardware.accelerator.as_deref());
        let chip =
            self.hardware(hardware).and_then(|name| self.catalog.accelerator(name).map_err(|e| self.told(e)));
        let (model, chip) = match (self.model(), chip, self.engine()) {
            (Ok(model), Ok(chip), Ok(())) => (model, chip),
            (model, chip, engine) => {
                return Err(together([model.err(), chip.err(), engine.err()].into_iter().flatten()));
            }
        };
        let mut options = DeploymentOptions::of(&self.spec);
        let speculative = options.engine.speculative.as_ref();
        let draft = speculative.and_then(|s| s.draft_model.as_ref());
        options.draft = draft.map(|name| self.reach.model(name, &self.catalog)).transpose()?;
        let convention = self.spec.hardware.convention;
        if let Some(name) = prompts {
            let other = self.catalog.accelerator(name).map_err(|e| self.told(e))?;
            let (_, other) = options.clone().counted(convention, other);
            options.other = (other.id != chip.id).then(|| Arc::new(other));
        }
        let (options, chip) = options.counted(convention, chip);
        Deployment::resolve(model, Arc::new(chip), &options).map_err(|e| self.told(e))
    }

    /// Refuses an unknown engine, which is probably a typing error, and a version that has no place in the order of
    /// releases.
    fn engine(&self) -> Result<()> {
        let ordered =
            |version: &String| Version::parse(version).is_some() || UNNUMBERED.contains(&version.as_str());
        if let Some(version) = self.spec.engine.version.as_ref().filter(|version| !ordered(version)) {
            let accepted = format!("one version as 0.11.2, no range, or {}", UNNUMBERED.join(", "));
            return Err(self.told(Error::field(
                &self.place,
                "engine.version",
                format!("{version:?}"),
                accepted,
            )));
        }
        let Some(name) = &self.spec.engine.name else { return Ok(()) };
        let known: BTreeSet<&str> = Calibration::embedded()?.engine_names().collect();
        if known.contains(name.as_str()) {
            return Ok(());
        }
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let unknown = || format!("{known}; a version behind the name as in vllm==0.11.2, or engine.version");
        let accepted = EngineKind::in_place_of(name).map_or_else(unknown, str::to_owned);
        Err(self.told(Error::field(&self.place, "engine.name", format!("{name:?}"), accepted)))
    }

    /// The spec of a deployment that a plan found: this spec without its search and without the keys `dropped`,
    /// overridden by the keys of `found`.
    pub(crate) fn deployed(&self, found: &Table, dropped: &[&str]) -> String {
        let mut table = nested(absolute(self.table.clone()));
        for key in dropped {
            let (section, key) = key.split_once('.').unwrap_or((key, ""));
            if let Some(section) = table.get_mut(section).and_then(toml::Value::as_table_mut) {
                section.remove(key);
            }
        }
        for section in ["search", "parallelism"] {
            table.remove(section);
        }
        if let Some(hardware) = table.get_mut("hardware").and_then(toml::Value::as_table_mut) {
            hardware.remove("count");
        }
        overlay(&mut table, found);
        table.to_string()
    }

    /// Prints the whole spec as TOML, after a comment `roofcast VERB SPEC.toml` that holds the flags for settings
    /// without a key.
    pub(crate) fn dump(
        &self,
        verb: &str,
        deployment: Option<&Deployment>,
        sections: &resolved::Sections,
    ) -> Result<()> {
        let table = absolute(self.table.clone());
        let text = resolved::text(table, &self.spec, deployment, sections)?;
        show::text(&format!("# roofcast {verb}\n\n{text}"))
    }
}

/// Overrides the keys of `table` with those in `over`, section by section.
fn overlay(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key).and_then(toml::Value::as_table_mut), value.as_table()) {
            (Some(inner), Some(value)) => overlay(inner, value),
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

/// Makes the paths in a table absolute, so that the table may be written to any folder.
fn absolute(table: Table) -> Table {
    std::env::current_dir().map_or_else(|_| table.clone(), |folder: PathBuf| rooted(table.clone(), &folder))
}
