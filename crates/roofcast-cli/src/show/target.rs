//! A file to write: checked before any work is done, and replaced whole or not at all.
//!
//! Knows: the kinds of files that a path may lead to. A regular file is replaced by a rename and keeps its mode and
//! owner; behind a symbolic link its target is replaced and the link stays; a device, pipe or socket is written in
//! place. Knows nothing about contents.

mod rights;

use crate::host;
use anyhow::{Context, Result};
use roofcast::Error;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Extensions of picture formats that are not written, for a helpful error.
const PICTURES: [&str; 6] = ["png", "jpg", "jpeg", "pdf", "webp", "gif"];

/// Maximum number of symbolic links that are followed, as on Linux.
const MOST_LINKS: usize = 40;

/// A path that has been checked and can be written.
#[derive(Debug)]
pub(crate) struct Target {
    /// The path as given; devices and pipes are opened by this name.
    given: PathBuf,
    way: Way,
}

/// Ways to write the bytes.
#[derive(Debug)]
enum Way {
    /// Writing directly into an existing device or pipe.
    Through,
    /// Writing into a temporary file, which is then renamed to this path.
    Replace(PathBuf),
    /// Passing the contents to the program that runs roofcast.
    Host,
}

impl Target {
    /// The target at `path`, or an error that names `flag` if it cannot be written.
    pub(crate) fn of(flag: &str, path: &Path) -> Result<Target> {
        if host::draws(path) {
            return Ok(Target { given: path.to_owned(), way: Way::Host });
        }
        let refused = |found: String| {
            let place = format!("{:?}, {found}", path.display().to_string());
            Error::field("arguments", flag, place, "a file that can be written")
        };
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
        if matches!(flag, "--svg" | "--curves") && PICTURES.contains(&ending.as_str()) {
            let shown_path = format!("{:?}", path.display().to_string());
            let accepted = "a file that ends with .svg (rsvg-convert makes other formats of it)";
            return Err(Error::field("arguments", flag, shown_path, accepted).into());
        }
        let way = way(path).map_err(refused)?;
        Ok(Target { given: path.to_owned(), way })
    }

    /// The target that `flag` names, if the flag is given.
    pub(crate) fn asked(flag: &str, path: Option<&PathBuf>) -> Result<Option<Target>> {
        path.map(|path| Target::of(flag, path)).transpose()
    }

    /// Writes text.
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        if matches!(self.way, Way::Host) && host::drawn(text) {
            return Ok(());
        }
        self.write(|out| out.write_all(text.as_bytes()))
    }

    /// Writes lines.
    pub(crate) fn lines(&self, mut lines: impl Iterator<Item = String>) -> Result<()> {
        self.write(|out| lines.try_for_each(|line| writeln!(out, "{line}")))
    }

    /// Writes the output of `write`; if it fails, a regular file keeps its old contents.
    pub(crate) fn write(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let written = match &self.way {
            Way::Through => through(&self.given, write),
            Way::Replace(file) => replace(file, write),
            Way::Host => Err(io::Error::other("the calling program accepts text only")),
        };
        // A closed reader is ignored only for standard output; here it is an error.
        let named = |e: io::Error| match e.kind() {
            ErrorKind::BrokenPipe => io::Error::other("its reader has gone"),
            _ => e,
        };
        written.map_err(named).with_context(|| self.given.display().to_string())
    }
}

/// The way to write `path`, or a description of the thing there that cannot be written.
fn way(path: &Path) -> Result<Way, String> {
    let metadata = match path.metadata() {
        Ok(found) => Some(found),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(e.to_string()),
    };
    match &metadata {
        Some(m) if m.is_dir() => return Err("a folder".to_owned()),
        Some(m) if rights::is_socket(m) => return Err("a socket".to_owned()),
        Some(m) if !m.is_file() => {
            return rights::may_write(path).map(|()| Way::Through).map_err(|e| e.to_string());
        }
        // The superuser could write such a file, but a file without the write bit is meant to be kept.
        Some(m) if rights::is_read_only(m) => return Err("a read-only file".to_owned()),
        Some(_) => rights::may_write(path).map_err(|e| e.to_string())?,
        None => {}
    }
    let file = followed(path)?;
    if file.file_name().is_none_or(OsStr::is_empty) || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err("no file's name".to_owned());
    }
    let folder = folder(&file);
    if !folder.is_dir() {
        return Err(format!("in {}, which is no folder", folder.display()));
    }
    rights::may_add(folder).map_err(|e| format!("in {}: {e}", folder.display()))?;
    Ok(Way::Replace(file))
}

/// The path to which the symbolic links at `path` lead; nothing needs to exist there.
fn followed(path: &Path) -> Result<PathBuf, String> {
    let mut file = path.to_owned();
    for _ in 0..MOST_LINKS {
        match file.read_link() {
            Ok(next) => file = folder(&file).join(next),
            Err(_) => return Ok(file),
        }
    }
    Err("a circle of symbolic links".to_owned())
}

fn folder(file: &Path) -> &Path {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn through(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
    write(&mut out)?;
    out.flush()
}

fn replace(file: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    // The temporary file has a unique name, so that it overwrites no file, and is removed if anything fails.
    let mut part = tempfile::Builder::new();
    part.prefix(".roofcast-");
    if let Some(new) = rights::new() {
        part.permissions(new);
    }
    let part = part.tempfile_in(folder(file))?;
    let mut out = BufWriter::new(part.as_file().try_clone()?);
    write(&mut out)?;
    out.flush()?;
    match file.metadata() {
        Ok(old) => rights::keep(part.as_file(), &old)?,
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    part.persist(file)?;
    Ok(())
}
