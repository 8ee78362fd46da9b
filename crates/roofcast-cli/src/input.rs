//! Conversion of files and flags to the library's types: specs, catalogs and models, with bounded reads.

pub(crate) mod checkpoint;
mod defaults;
pub(crate) mod dimensions;
pub(crate) mod manifest;
pub(crate) mod measurements;
mod reach;
mod refused;
mod running;
pub(crate) mod scenario;
pub(crate) mod tables;
mod verdict;

use crate::args::DeploymentArgs;
use crate::host;
use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use roofcast::calibration::Calibration;
use roofcast::catalog::{ModelEntry, address};
use roofcast::model::{Quantization, config};
use roofcast::{Catalog, Deployment, Error, Model};
use scenario::{EMPTY, Source};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a text file that is read; real config.json files have up to 3 MB.
const MOST_BYTES: u64 = 64 << 20;

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The name of a file that is read from standard input.
const STANDARD_INPUT: &str = "-";

/// Context in tokens if the user gives none; a model with a shorter maximum uses its maximum.
pub(crate) const DEFAULT_CONTEXT: u64 = 4096;

/// Reads a text file of at most 64 MiB; a compressed file (`.gz`) may unpack to as many.
pub(crate) fn text(path: &Path) -> Result<String> {
    text_within(path, MOST_BYTES)
}

/// Reads a spec's file; refuses a file whose name is one of a model's or a trace's file.
pub(crate) fn spec_text(path: &Path) -> Result<String> {
    let others = ["json", "jsonl", "csv", "gz", "gguf", "safetensors"];
    if path.extension().is_some_and(|own| others.iter().any(|other| own.eq_ignore_ascii_case(other))) {
        let accepted = "a spec, which ends in .toml; a model is --model, a trace --workload";
        return Err(Error::field("arguments", "SPEC.toml", format!("{path:?}"), accepted).into());
    }
    if path.as_os_str() == "true" || path.as_os_str() == "false" {
        let accepted =
            "a spec, which ends in .toml; a switch has its value behind =, as in --enforce-eager=false";
        return Err(Error::field("arguments", "SPEC.toml", format!("{path:?}"), accepted).into());
    }
    text(path)
}

/// Opens a file. A pipe with a name is refused, because it would be waited for until a program writes to it; a shell
/// passes the output of a command under `/dev` or `/proc`.
fn opened(path: &Path) -> Result<File> {
    let place = path.display().to_string();
    let is_regular = || std::fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    if path.exists() && !path.starts_with("/dev") && !path.starts_with("/proc") && !is_regular() {
        return Err(Error::field(place, "the file", "a pipe or a device", "a regular file").into());
    }
    File::open(path).context(place)
}

/// Reads a file of at most `most` bytes.
pub(crate) fn text_within(path: &Path, most: u64) -> Result<String> {
    let place = path.display().to_string();
    let file = opened(path)?;
    let packed = path.extension().is_some_and(|e| e == "gz");
    if packed { bounded(GzDecoder::new(file), &place, most) } else { bounded(file, &place, most) }
}

/// Reads a text file that must not be empty; `accepted` describes its contents.
pub(crate) fn filled(path: &Path, accepted: &str) -> Result<String> {
    let text = text(path)?;
    match text.trim().is_empty() {
        true => Err(Error::field(path.display(), "the file", "empty", accepted).into()),
        false => Ok(text),
    }
}

/// Reads text of at most `most` bytes.
fn bounded(reader: impl Read, place: &str, most: u64) -> Result<String> {
    let mut bytes = Vec::new();
    let read = reader.take(most + 1).read_to_end(&mut bytes).with_context(|| place.to_owned())?;
    if read as u64 > most {
        bail!("{place}: larger than {} MiB; accepted: a config, spec, catalog or trace file", most >> 20);
    }
    let text = unicode(bytes).map_err(|found| Error::field(place, "the file", found, "text in UTF-8"))?;
    match in_its_place(text.as_bytes()) {
        Some((found, accepted)) => Err(Error::field(place, "the file", found, accepted).into()),
        None => Ok(text),
    }
}

/// Description of contents that are not the expected file, and the remedy: a pointer of Git LFS, or a saved web page.
fn in_its_place(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let begins = |with: &str| {
        let beginning = start.trim_ascii_start().get(..with.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(with.as_bytes()))
    };
    if begins("version https://git-lfs.github.com/") {
        return Some(("a pointer of Git LFS", "the file itself, which `git lfs pull` fetches"));
    }
    let page = ["<!doctype html", "<html"].into_iter().any(begins);
    page.then_some(("a web page", "the file itself, behind the page's link for its raw text"))
}

/// Opens a checkpoint's file; refuses a pointer of Git LFS or a saved web page.
fn fetched(path: &Path) -> Result<File> {
    let place = path.display().to_string();
    let mut start = [0; 64];
    let read = opened(path)?.read(&mut start).with_context(|| place.clone())?;
    match in_its_place(start.get(..read).unwrap_or_default()) {
        Some((found, accepted)) => Err(Error::field(place, "the file", found, accepted).into()),
        None => File::open(path).with_context(|| place),
    }
}

/// The text of standard input, or of the host's spec, with its name for errors.
fn standard_input() -> Result<(String, String)> {
    let (place, text) = match host::spec() {
        Some(text) => ("spec", text),
        None => ("standard input", bounded(std::io::stdin().lock(), "standard input", MOST_BYTES)?),
    };
    Ok((place.to_owned(), text))
}

/// The text of a file without a byte order mark, or the name of its encoding if it is not UTF-8. PowerShell's `>`
/// writes UTF-16.
fn unicode(mut bytes: Vec<u8>) -> Result<String, &'static str> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err("UTF-16");
    }
    String::from_utf8(bytes).map_err(|_| "no text in UTF-8")
}

/// The embedded catalog with the user's files on top.
pub(crate) fn catalog(files: &[PathBuf]) -> Result<Cow<'static, Catalog>> {
    let mut catalog = Cow::Borrowed(Catalog::embedded()?);
    for file in files {
        let mine = Catalog::parse(&file.display().to_string(), &text(file)?)?;
        catalog.to_mut().extend(mine);
    }
    Ok(catalog)
}

/// The catalog id of accelerator `name`. An id or alias is returned as is; for a path that ends in `.toml`, the one
/// entry of that file is added to the catalog. A relative path starts from `folder`.
pub(crate) fn accelerator(name: &str, folder: &Path, catalog: &mut Cow<'static, Catalog>) -> Result<String> {
    if name.trim().is_empty() {
        let accepted = "an accelerator, as h100-sxm, or its TOML file";
        return Err(Error::field("accelerator", "id", "empty", accepted).into());
    }
    if !name.to_lowercase().ends_with(".toml") {
        return Ok(name.to_owned());
    }
    let path = folder.join(name);
    let place = path.display().to_string();
    let mine = Catalog::parse(&place, &text(&path)?)?;
    let accelerators = mine.accelerators()?;
    let [chip] = accelerators.as_slice() else {
        bail!(
            "{place}: {} accelerators; accepted: one (--catalog takes a file of several)",
            accelerators.len()
        );
    };
    let id = chip.id.clone();
    catalog.to_mut().extend(mine);
    Ok(id)
}

/// The catalog id for a name in a row of measurements. For a path to an accelerator's `.toml` or a model's
/// `config.json`, the entry is added to the catalog; an id is returned as is.
pub(crate) fn local(name: &str, folder: &Path, catalog: &mut Cow<'static, Catalog>) -> Result<String> {
    if !name.to_lowercase().ends_with(".json") {
        return accelerator(name, folder, catalog);
    }
    let path = folder.join(name);
    let id = path.display().to_string();
    let config = serde_json::from_str(&filled(&path, CONFIG)?).with_context(|| id.clone())?;
    let source = id.clone();
    let aliases = vec![];
    let entry = ModelEntry {
        id: id.clone(),
        aliases,
        checkpoints: Vec::new(),
        source,
        published_parameters: None,
        published_total: None,
        published_active: None,
        config,
    };
    catalog.to_mut().add_model(entry);
    Ok(id)
}

/// Description of a model's file for errors.
pub(crate) const CONFIG: &str = "a Hugging Face config.json";

/// The folder from which relative paths in a spec's file start.
pub(crate) fn folder(spec: Option<&Path>) -> &Path {
    spec.and_then(Path::parent).unwrap_or(Path::new(""))
}

/// A calibration file, or the embedded calibration.
pub(crate) fn calibration(path: Option<&Path>) -> Result<Cow<'static, Calibration>> {
    match path {
        Some(path) => Ok(Cow::Owned(Calibration::parse(&path.display().to_string(), &text(path)?)?)),
        None => Ok(Cow::Borrowed(Calibration::embedded()?)),
    }
}

/// A model by catalog id, or by path: a `config.json` or its folder, a `.gguf`, a `.safetensors`.
pub(crate) fn model(name: &str, catalog: &Catalog) -> Result<Arc<Model>> {
    if name.trim().is_empty() {
        let accepted = "a catalog id, a config.json, a .gguf or .safetensors";
        return Err(Error::field("model", "name", "empty", accepted).into());
    }
    let name = &*address::repository(name)?;
    let path = Path::new(name);
    let ends = |suffix: &str| name.to_lowercase().ends_with(suffix);
    if ends(".gguf") || checkpoint::is_shards(name) || path.is_dir() {
        return Ok(Arc::new(checkpoint::read(name)?.model));
    }
    if path.exists() || ends(".json") {
        return Ok(Arc::new(config_file(name, path)?));
    }
    if path.is_absolute() || name.starts_with("./") || name.starts_with("../") {
        let accepted = "a config.json or its folder, a .gguf or .safetensors";
        return Err(Error::field("model", "path", format!("{name:?}, where nothing is"), accepted).into());
    }
    Ok(Arc::new(catalog.named(name)?.model()?))
}

/// Reads the model of a `config.json`, with NVIDIA's `hf_quant_config.json` and the bounds on images of
/// `preprocessor_config.json` if the folder has them.
fn config_file(name: &str, file: &Path) -> Result<Model> {
    checkpoint::refuse_adapter(name, file)?;
    let place = file.display().to_string();
    let mut model = config::parse(name, &place, &filled(file, CONFIG)?)?;
    let beside = file.with_file_name("hf_quant_config.json");
    if beside.exists() {
        let theirs = Quantization::read_modelopt(&beside.display().to_string(), &text(&beside)?)?;
        match (&mut model.quantization, theirs) {
            // The KV format may be stated only in `hf_quant_config.json`.
            (Some(ours), Some(theirs)) => ours.kv = ours.kv.or(theirs.kv),
            (none, theirs) => *none = none.take().or(theirs),
        }
    }
    let beside = file.with_file_name("preprocessor_config.json");
    if let Some(tower) = model.tower.as_mut().filter(|_| beside.exists()) {
        tower.bound(&beside.display().to_string(), &text(&beside)?)?;
    }
    Ok(model)
}

/// The error for a question that lacks a setting: names the flag, or the key if a spec is given.
pub(crate) fn absent(file: Option<&Path>, flag: &str, key: &str, accepted: &str) -> Error {
    match file {
        Some(file) => Error::field(file.display(), key, "missing", format!("{accepted}; or {flag}")),
        None => Error::field("arguments", flag, "missing", accepted),
    }
}

/// Prefixes an error with the spec's file, unless the error already begins with a file.
pub(crate) fn of_file(file: Option<&Path>, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let sections =
        ["engine:", "engine.", "parallelism:", "precision:", "spec:", "model:", "accelerator:", "no "];
    let error = error.into();
    let file = file.map(|file| file.display().to_string());
    let message = error.to_string();
    match file.filter(|_| sections.iter().any(|section| message.starts_with(section))) {
        Some(file) => match error.downcast::<Error>() {
            Ok(Error::Field { place, field, found, accepted }) if place == "spec" => {
                Error::field(file, field, found, accepted).into()
            }
            Ok(other) => anyhow::Error::from(other).context(file),
            Err(other) => other,
        },
        None => error,
    }
}

/// The source of a deployment that the arguments describe, before further settings are applied.
pub(crate) fn source(args: &DeploymentArgs) -> Result<Source> {
    Source::read(args.spec.as_deref(), EMPTY, &args.source, &[&args.flags.settings])
}

/// The requested context in tokens, or the default within the model's maximum. A context beyond the maximum adds a note
/// to the deployment.
pub(crate) fn context(asked: Option<u64>, deployment: &mut Deployment) -> u64 {
    let longest = deployment.model.max_context.unwrap_or(u64::MAX);
    let context = asked.unwrap_or(DEFAULT_CONTEXT.min(longest));
    if context > longest {
        deployment
            .assumptions
            .push(format!("a context of {context} tokens, beyond the {longest} that the model allows"));
    }
    context
}
