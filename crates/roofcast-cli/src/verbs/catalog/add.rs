//! `roofcast catalog add`: makes a model's entry from its `config.json`.

use crate::args::AddArgs;
use crate::input;
use crate::show::number::count;
use crate::show::target::Target;
use crate::show::{self};
use anyhow::{Result, bail};
use roofcast::{Catalog, Error};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(args: &AddArgs) -> Result<ExitCode> {
    let file = if args.config.is_dir() { args.config.join("config.json") } else { args.config.clone() };
    let place = file.display().to_string();
    if file.extension().is_some_and(|own| own == "gguf" || own == "safetensors") {
        let accepted =
            format!("a config.json; `roofcast capacity --model {place}` reads this file by itself");
        return Err(Error::field(place, "the file", "a checkpoint", accepted).into());
    }
    let beside = file.with_file_name("hf_quant_config.json");
    let quantization = if beside.exists() { Some(input::text(&beside)?) } else { None };
    let config = roofcast::catalog::read_config(
        &place,
        &input::filled(&file, input::CONFIG)?,
        quantization.as_deref(),
    )?;
    let id = match &args.id {
        Some(id) => id.trim().to_owned(),
        None => own_id(&config, &file),
    };
    if id.is_empty() || id.chars().any(char::is_whitespace) {
        return Err(
            Error::field("arguments", "--id", format!("{id:?}"), "an id, as in my-org/my-model").into()
        );
    }
    let source = args.source.as_deref().unwrap_or(&place);
    let entry = roofcast::catalog::write_entry(&id, source, &config)?;
    let model = Catalog::parse(&place, &entry)?.named(&id)?.model()?;
    let Some(output) = &args.output else {
        show::text(&entry)?;
        return Ok(ExitCode::SUCCESS);
    };
    Target::of("--output", output)?.text(&behind(output, &id, &entry)?)?;
    let p = model.parameters();
    let path = output.display();
    let mut report = format!("{id}: {} parameters, {} active\n", count(p.total), count(p.active));
    for assumption in &model.assumptions {
        report.push_str(&format!("assumed: {assumption}\n"));
    }
    show::text(&format!(
        "{report}in {path}: roofcast capacity --catalog {path} --model {id} --hardware h100-sxm\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The model's id in the config if it looks like a Hugging Face id, otherwise the name of its folder.
fn own_id(config: &serde_json::Value, file: &Path) -> String {
    let named = config["_name_or_path"].as_str().unwrap_or_default();
    if named.matches('/').count() == 1 && !named.starts_with(['/', '.']) && !named.ends_with('/') {
        return named.to_owned();
    }
    let folder = file.parent().and_then(|f| std::fs::canonicalize(f).ok()).unwrap_or_default();
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The text of the file `output` with the entry appended, or the entry alone if there is no file yet.
fn behind(output: &Path, id: &str, entry: &str) -> Result<String> {
    if !output.exists() {
        return Ok(entry.to_owned());
    }
    let place = output.display().to_string();
    let mut text = input::text(output)?;
    let there = Catalog::parse(&place, &text)?;
    if there.model_names().any(|name| name.eq_ignore_ascii_case(id)) {
        bail!("{place}: has a model {id:?} already; accepted: another --id, or another file");
    }
    if !text.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    Ok(text + entry)
}
