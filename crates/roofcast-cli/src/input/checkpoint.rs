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
    if !(lower.ends_with(".gguf") || lower.ends_with(".safetensors") || Path::new(name).is_dir()) {
        return Ok(None);
    }
    Ok(Some(read(name)?).filter(|c| !c.tensors.is_empty()))
}

/// Reads the checkpoint at `name`.
pub(crate) fn read(name: &str) -> Result<Checkpoint> {
    let path = Path::new(name);
    let (mut model, tensors) = if name.to_lowercase().ends_with(".gguf") {
        gguf_file(name, path)?
    } else {
        // A missing path is reported first, rather than a missing file in it.
        path.metadata().with_context(|| path.display().to_string())?;
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

/// Reads a GGUF: the model from the `config.json` in its folder if there is one, else from the file's own metadata,
/// with the formats of the file's tensors.
fn gguf_file(name: &str, path: &Path) -> Result<(Model, Vec<Stored>)> {
    let place = path.display().to_string();
    let file = fetched(path)?;
    let header = gguf::header(&place, BufReader::new(file))?;
    let model = gguf::model(name, &place, &header)?;
    let beside = path.with_file_name("config.json");
    if !beside.exists() {
        return Ok((model, header.tensors));
    }
    let by_config = config::parse(name, &beside.display().to_string(), &text(&beside)?)?;
    Ok((Model { stored: model.stored, ..by_config }, header.tensors))
}

/// The model of the `config.json` in `folder`, which is `path` or holds it.
fn config_of(name: &str, path: &Path, folder: &Path) -> Result<Model> {
    let file = folder.join("config.json");
    if !file.exists() {
        refuse_adapter(name, &folder.join(ADAPTER))?;
        let accepted = "a folder with config.json, which describes the tensors";
        let found = if path == folder { "missing" } else { "missing in its folder" };
        return Err(Error::field(path.display(), "config.json", found, accepted).into());
    }
    config_file(name, &file)
}

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
