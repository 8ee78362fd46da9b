//! The files that a command line names, to read or to write, which must differ.
//!
//! Knows: which flags write a file, that other values may name a file, and that a spec names files itself. Knows
//! nothing about the contents of files.

use clap::ArgMatches;
use clap::parser::ValueSource;
use roofcast::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments that name a file to write. Verbs that write a folder check its files themselves.
const WRITTEN: [&str; 9] =
    ["svg", "html", "records", "series", "trace", "per_row", "curves", "out", "measurements"];

/// Longest spec in bytes that is searched for file names; a longer file is not a spec.
const LONGEST_SPEC: u64 = 1 << 20;

/// The files of one command line.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Each flag that writes, with its file.
    written: Vec<(String, PathBuf)>,
    read: Vec<PathBuf>,
}

impl Files {
    /// The files in the arguments of a verb. A flag called `output` names a file unless it is a switch.
    pub(crate) fn of(found: &ArgMatches) -> Files {
        let mut verb = found;
        while let Some((_, inner)) = verb.subcommand() {
            verb = inner;
        }
        let mut files = Files::default();
        for id in verb.ids().map(clap::Id::as_str) {
            if verb.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let Ok(Some(values)) = verb.try_get_raw(id) else { continue };
            if WRITTEN.contains(&id) || id == "output" {
                files.written.extend(values.map(|value| (flag(id), value.into())));
            } else {
                files.read.extend(values.flat_map(read));
            }
        }
        files
    }

    /// Refuses a written file that would overwrite a file to read, or another written file.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (index, (flag, path)) in self.written.iter().enumerate() {
            let refused = |found: String| {
                let use_of_file = format!("{:?}, {found}", path.display().to_string());
                Error::field("arguments", flag, use_of_file, "a file of its own")
            };
            let Some(file) = place(path) else { continue };
            let other = self.written[..index].iter().find(|(_, other)| place(other).as_ref() == Some(&file));
            if let Some((other, _)) = other {
                return Err(refused(format!("which {other} writes")));
            }
            if self.read.iter().any(|read| place(read).as_ref() == Some(&file) || holds(read, &file)) {
                return Err(refused("which is read".to_owned()));
            }
        }
        Ok(())
    }
}

/// The flag of the argument `id`, for errors.
fn flag(id: &str) -> String {
    if id == "out" { "--output".to_owned() } else { format!("--{}", id.replace('_', "-")) }
}

/// The files that a value names: the value itself and, if it is a spec, the files that the spec names.
fn read(value: &OsStr) -> Vec<PathBuf> {
    let path = PathBuf::from(value);
    let is_spec = path.extension().is_some_and(|ending| ending == "toml");
    let mut files = match path.metadata() {
        Ok(found) if is_spec && found.len() <= LONGEST_SPEC => of_spec(&path),
        Ok(_) => Vec::new(),
        Err(_) => return Vec::new(),
    };
    files.push(path);
    files
}

/// The files that the values of a spec name, relative to its folder. An unreadable spec gives none, because its reader
/// refuses it later.
fn of_spec(path: &Path) -> Vec<PathBuf> {
    let table: Option<toml::Table> = fs::read_to_string(path).ok().and_then(|text| text.parse().ok());
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files = Vec::new();
    let mut values: Vec<toml::Value> = table.map(toml::Value::from).into_iter().collect();
    while let Some(value) = values.pop() {
        match value {
            toml::Value::Table(inner) => values.extend(inner.into_iter().map(|(_, value)| value)),
            toml::Value::Array(inner) => values.extend(inner),
            // A bare name is relative to the working directory, a path to the spec's folder; here both are tried.
            toml::Value::String(text) => {
                files.extend([folder.join(&text), text.into()].into_iter().filter(|p: &PathBuf| p.exists()));
            }
            _ => {}
        }
    }
    files
}

/// True if `file` lies in `folder`, which is read as a whole, as a checkpoint's folder is.
fn holds(folder: &Path, file: &Path) -> bool {
    file.exists() && folder.is_dir() && folder.canonicalize().ok().as_deref() == file.parent()
}

/// Canonical path of a file, whether or not it exists yet; `None` for a device or pipe, which cannot be overwritten.
fn place(path: &Path) -> Option<PathBuf> {
    match path.metadata() {
        Ok(found) if !found.is_file() && !found.is_dir() => None,
        Ok(_) => path.canonicalize().ok(),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
        }
    }
}
