//! The files that start and check a plan's best, in one folder.
//!
//! Knows: their names. What is in them is the library's.

use super::{Answer, SPEC};
use crate::show::target::Target;
use anyhow::Result;
use roofcast::Error;
use std::path::{Path, PathBuf};

/// The folder, where it is one or can be made.
pub(super) fn checked(path: &Path) -> Result<PathBuf> {
    let refused = |found: String| {
        let place = format!("{:?}, {found}", path.display().to_string());
        Error::field("arguments", "--launch-dir", place, "a folder, or a name that is free in one")
    };
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(path.to_owned()),
        Ok(_) => Err(refused("a file".to_owned()).into()),
        Err(_) if path.parent().is_some_and(|p| p.as_os_str().is_empty() || p.is_dir()) => {
            Ok(path.to_owned())
        }
        Err(error) => Err(refused(error.to_string()).into()),
    }
}

/// Writes what there is of a plan with a best.
pub(super) fn write(folder: &Path, answer: &Answer) -> Result<()> {
    let mut files: Vec<(String, String)> = Vec::new();
    let starts = |engine| answer.plan.launch.iter().any(|l| l.engine == engine && l.command.is_some());
    for launch in answer.plan.launch.iter().filter(|launch| starts(launch.engine)) {
        let name = format!("{}.sh", launch.engine);
        let role = super::table::word(launch.role);
        let line = match (&launch.command, &launch.note) {
            (Some(command), _) => format!("# {role}: start {} of it\n{command}\n", launch.replicas),
            (None, note) => format!("# {role}: {}\n", note.as_deref().unwrap_or_default()),
        };
        match files.iter_mut().find(|(known, _)| *known == name) {
            Some((_, text)) => text.push_str(&line),
            None => files.push((name, format!("#!/bin/sh\n{line}"))),
        }
    }
    let manifests = answer.plan.manifests.iter();
    files.extend(manifests.filter_map(|m| Some((format!("{}.yaml", m.kind), m.text.clone()?))));
    files.extend(answer.spec.clone().map(|spec| (SPEC.to_owned(), spec)));
    files.extend(answer.bench.as_ref().map(|line| ("bench.sh".to_owned(), format!("#!/bin/sh\n{line}\n"))));
    if files.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    for (name, text) in files {
        Target::of("--launch-dir", &folder.join(name))?.text(&text)?;
    }
    Ok(())
}
