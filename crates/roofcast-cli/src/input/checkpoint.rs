//! Checkpoints on disk: a `.gguf`, a `.safetensors`, or a folder with a `config.json` and perhaps shards.
//!
//! Knows: only headers are read. A difference between files and config is added to the model's assumptions, and listed
//! tensor by tensor by `capacity --explain`. Knows nothing about the values of tensors.

use super::{config_file, fetched, text};
use anyhow::{Context, Result};
use roofcast::checkpoint::compare::{Difference, differences};
use roofcast::checkpoint::{Stored, gguf, safetensors};
use roofcast::model::config;
use roofcast::{Error, Model};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// A model with the tensors of its files; no tensors if there is only a config.
pub(crate) struct Checkpoint {
    /// Model that the config or the header describes.
    pub(crate) model: Model,
    /// Tensors in the files, with their formats.
    pub(crate) tensors: Vec<Stored>,
    /// Differences between the model and the files.
    pub(crate) differences: Vec<Difference>,
}

/// Reads the checkpoint that `name` is the path of; `None` for a catalog entry or a lone config.
pub(crate) fn asked(name: &str) -> Result<Option<Checkpoint>> {
    let lower = name.to_lowercase();
    if !(lower.ends_with(".gguf") || is_shards(&lower) || Path::new(name).is_dir()) {
        return Ok(None);
    }
    Ok(Some(read(name)?).filter(|c| !c.tensors.is_empty()))
}

/// True for the name of a safetensors file or of an index of such files.
pub(crate) fn is_shards(name: &str) -> bool {
    let name = name.to_lowercase();
    name.ends_with(".safetensors") || name.ends_with(INDEX)
}

/// Reads the checkpoint at `name`.
pub(crate) fn read(name: &str) -> Result<Checkpoint> {
    let path = Path::new(name);
    if !path.exists() {
        return Err(missing(path).into());
    }
    // An index stands for its folder, and a folder of GGUF files for the first of them.
    let path = match path.parent().filter(|_| name.to_lowercase().ends_with(INDEX)) {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder.unwrap_or(path),
    };
    let first = if path.is_dir() { only_gguf(path)? } else { None };
    let (mut model, tensors) = if name.to_lowercase().ends_with(".gguf") {
        gguf_file(name, path)?
    } else if let Some(first) = first {
        gguf_file(name, &first)?
    } else {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let model = config_of(name, path, folder)?;
        let files = if path.is_dir() { shards(folder)? } else { vec![path.to_owned()] };
        let tensors = files.iter().map(|file| header(file)).collect::<Result<Vec<_>>>()?;
        (model, tensors.concat())
    };
    let differences = if tensors.is_empty() { Vec::new() } else { differences(&model, &tensors) };
    if let Some(first) = differences.first() {
        let more = if differences.len() > 1 {
            format!(" and {} more places", differences.len() - 1)
        } else {
            String::new()
        };
        model.assumptions.push(format!(
            "the config is taken, though the file differs in {}{more}: {} parameters there, {} by the config (capacity --explain shows tensors)",
            first.place, first.file, first.config
        ));
    }
    Ok(Checkpoint { model, tensors, differences })
}

/// Most files of a folder that an error lists.
const MOST_LISTED: usize = 5;

/// The error for a path where nothing is: it names files of the path's kind in its folder, and the answer without a file.
fn missing(path: &Path) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kind = path.extension();
    let files = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut alike: Vec<String> = files
        .filter(|file| kind.is_some() && file.extension() == kind)
        .filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()))
        .collect();
    alike.sort();
    alike.truncate(MOST_LISTED);
    let there = if !folder.is_dir() {
        format!("a path that exists: there is no folder {}", folder.display())
    } else if alike.is_empty() {
        "a path that exists".to_owned()
    } else {
        format!("a path that exists: its folder has {}", alike.join(", "))
    };
    let accepted = format!(
        "{there}; or without a file the name of its model and format, as in Qwen/Qwen3-8B-GGUF:Q4_K_M"
    );
    Error::field(path.display(), "the file", "missing: nothing is there", accepted)
}

/// Reads a GGUF: the model from the `config.json` in its folder if there is one, else from the file's own metadata,
/// with the formats of the file's tensors.
fn gguf_file(name: &str, path: &Path) -> Result<(Model, Vec<Stored>)> {
    let place = path.display().to_string();
    let file = fetched(path)?;
    let header = gguf::header(&place, BufReader::new(file))?;
    let header = joined(path, header)?;
    let beside = path.with_file_name("config.json");
    let model = if beside.exists() {
        let by_config = config::parse(name, &beside.display().to_string(), &text(&beside)?)?;
        gguf::holding(by_config, &header)
    } else {
        gguf::model(name, &place, &header)?
    };
    Ok((model, header.tensors))
}

/// GGUF file of a folder without safetensors files: the only one, or a part of the only model.
fn only_gguf(folder: &Path) -> Result<Option<PathBuf>> {
    if folder.join("model.safetensors").exists() || folder.join("model.safetensors.index.json").exists() {
        return Ok(None);
    }
    let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let files = folder.read_dir().with_context(|| folder.display().to_string())?;
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort();
    // Files of several models, or of several formats of one.
    let model = |path: &PathBuf| name(path).map(|name| gguf::model_of(&name).to_owned());
    let Some(first) = files.first().cloned() else { return Ok(None) };
    if files.iter().any(|file| model(file) != model(&first)) {
        if folder.join("config.json").exists() {
            return Ok(None);
        }
        let names = files.iter().filter_map(name).collect::<Vec<_>>().join(", ");
        return Err(Error::field(
            folder.display(),
            "model",
            "several GGUF models",
            format!("one of {names}"),
        )
        .into());
    }
    Ok(Some(first))
}

/// The header of a model in several files (`split.count`), of which `path` is any: the metadata of the first file
/// and the tensors of all.
fn joined(path: &Path, header: gguf::Header) -> Result<gguf::Header> {
    let Some(count) = header.parts() else { return Ok(header) };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = gguf::stem(name, count).ok_or_else(|| {
        let accepted = format!("a name that ends in -00001-of-{count:05}.gguf, beside the other parts");
        Error::field(path.display(), "split.count", format!("{count} in {name:?}"), accepted)
    })?;
    let mut parts = Vec::new();
    for number in 1..=count {
        let part = path.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf"));
        if !part.exists() {
            let accepted = format!("all {count} parts in one folder");
            return Err(Error::field(part.display(), "split.count", "a missing part", accepted).into());
        }
        parts.push(gguf::header(&part.display().to_string(), BufReader::new(fetched(&part)?))?);
    }
    Ok(gguf::Header::join(parts).unwrap_or(header))
}

/// The model of the `config.json` in `folder`, which is `path` or holds it.
fn config_of(name: &str, path: &Path, folder: &Path) -> Result<Model> {
    let file = folder.join("config.json");
    if !file.exists() {
        refuse_adapter(name, &folder.join(ADAPTER))?;
        let accepted = "a folder with config.json, which describes the tensors";
        let state = if path == folder { "missing" } else { "missing in its folder" };
        return Err(Error::field(path.display(), "config.json", state, accepted).into());
    }
    config_file(name, &file)
}

/// End of the name of an index of safetensors files.
const INDEX: &str = ".safetensors.index.json";

/// File in which PEFT names the base model of a LoRA adapter.
const ADAPTER: &str = "adapter_config.json";

/// Refuses a LoRA adapter given as a model, which shows in the name of `file`.
pub(super) fn refuse_adapter(name: &str, file: &Path) -> Result<()> {
    if file.file_name().is_none_or(|own| own != ADAPTER) || !file.exists() {
        return Ok(());
    }
    let place = file.display().to_string();
    let config: serde_json::Value = serde_json::from_str(&text(file)?).with_context(|| place)?;
    let model = match config["base_model_name_or_path"].as_str() {
        Some(base) => format!("its model, --model {base}"),
        None => "the model that it adapts".to_owned(),
    };
    let accepted = format!("{model}; `roofcast emulate --enable-lora` serves adapters with it");
    Err(Error::field("model", "name", format!("{name:?}, a LoRA adapter"), accepted).into())
}

/// The safetensors files of a folder: as its index lists them, or the only file; empty if there are no weights.
fn shards(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        let names = safetensors::shards(&index.display().to_string(), &text(&index)?)?;
        return Ok(names.into_iter().map(|name| folder.join(name)).collect());
    }
    let single = folder.join("model.safetensors");
    Ok(if single.exists() { vec![single] } else { Vec::new() })
}

fn header(path: &Path) -> Result<Vec<Stored>> {
    let place = path.display().to_string();
    let file = fetched(path)?;
    let length = file.metadata().with_context(|| place.clone())?.len();
    Ok(safetensors::header(&place, length, BufReader::new(file))?)
}
