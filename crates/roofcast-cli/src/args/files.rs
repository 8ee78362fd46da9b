//! The files that a command line names, read or written, which must differ.
//!
//! Knows: which flags write a file, that other values may name one, and that a spec names files itself. Does not
//! know: the contents of files.

use clap::ArgMatches;
use clap::parser::ValueSource;
use roofcast::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments whose file is written; verbs that write folders check existing files themselves.
const WRITTEN: [&str; 9] =
    ["svg", "html", "records", "series", "trace", "per_row", "curves", "out", "measurements"];

/// Longest spec whose values are searched for file names, in bytes; longer files are no specs.
const LONGEST_SPEC: u64 = 1 << 20;

/// The files of one command line.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Each flag with its file.
    written: Vec<(String, PathBuf)>,
    read: Vec<PathBuf>,
}

impl Files {
    /// The files in the arguments of the verb; flags called `output` are included unless they are switches.
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

    /// Refuses a file that would overwrite one that is read, or another that is written.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (index, (flag, path)) in self.written.iter().enumerate() {
            let refused = |found: String| {
                let found = format!("{:?}, {found}", path.display().to_string());
                Error::field("arguments", flag, found, "a file of its own")
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

/// The flag of an argument that names a written file.
fn flag(id: &str) -> String {
    if id == "out" { "--output".to_owned() } else { format!("--{}", id.replace('_', "-")) }
}

/// The files that a value names: the value itself, and the files in it if it is a spec.
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

/// The files that the values of a spec name, relative to its folder. Unreadable files are refused later, by their
/// reader.
fn of_spec(path: &Path) -> Vec<PathBuf> {
    let table: Option<toml::Table> = fs::read_to_string(path).ok().and_then(|text| text.parse().ok());
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files = Vec::new();
    let mut values: Vec<toml::Value> = table.map(toml::Value::from).into_iter().collect();
    while let Some(value) = values.pop() {
        match value {
            toml::Value::Table(inner) => values.extend(inner.into_iter().map(|(_, value)| value)),
            toml::Value::Array(inner) => values.extend(inner),
            // A name is relative to the working directory, a path to the spec's folder.
            toml::Value::String(text) => {
                files.extend([folder.join(&text), text.into()].into_iter().filter(|p: &PathBuf| p.exists()));
            }
            _ => {}
        }
    }
    files
}

/// True if `file` is in the folder that is read, as a checkpoint's files are.
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
