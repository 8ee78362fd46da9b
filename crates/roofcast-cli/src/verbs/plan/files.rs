//! The files that start and check a plan's best deployment, in one folder.
//!
//! Knows: their names, and by a checksum of each file if somebody has edited it since: an edited file is never
//! overwritten. The library defines their contents.

use super::{Answer, SPEC};
use crate::show::target::Target;
use anyhow::{Context, Result};
use roofcast::Error;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Names of all files that a plan may write: engines' commands, manifests, the spec and the benchmark.
const NAMES: [&str; 9] = [
    "vllm.sh",
    "sglang.sh",
    "tensorrt-llm.sh",
    "llama.cpp.sh",
    "kubernetes.yaml",
    "llm-d.yaml",
    "dynamo.yaml",
    SPEC,
    BENCH,
];
/// The file with the benchmark command.
const BENCH: &str = "bench.sh";
/// The file of checksums: one line for each file that a plan wrote, as `sha256sum` prints them.
const SUMS: &str = ".roofcast-plan";

/// Checks that files can be written to the folder `path`, or that it can be created, and that no edited file would be
/// lost.
pub(super) fn checked(path: &Path) -> Result<PathBuf> {
    let refused = |found: String| {
        let place = format!("{:?}, {found}", path.display().to_string());
        Error::field("arguments", "--launch-dir", place, "a folder, or a name that is free in one")
    };
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            NAMES.iter().try_for_each(|name| Target::of("--launch-dir", &path.join(name)).map(drop))?;
            unedited(path)?;
        }
        Ok(_) => return Err(refused("a file".to_owned()).into()),
        // Creating the folder and removing it again shows that it can be created. It is created for good only when the
        // plan has an answer.
        Err(_) => std::fs::create_dir(path)
            .and_then(|()| std::fs::remove_dir(path))
            .map_err(|error| refused(error.to_string()))?,
    }
    Ok(path.to_owned())
}

/// Writes the files of the best deployment, and removes files of an earlier plan that this plan does not write, because
/// they would start something else. Returns the names of the removed files.
pub(super) fn write(folder: &Path, answer: &Answer) -> Result<Vec<String>> {
    let mut files: Vec<(String, String)> = Vec::new();
    let starts = |engine| answer.plan.launch.iter().any(|l| l.engine == engine && l.command.is_some());
    for launch in answer.plan.launch.iter().filter(|launch| starts(launch.engine)) {
        let name = format!("{}.sh", launch.engine);
        let role = super::table::word(launch.role);
        let others = launch.on_others.as_ref().map_or_else(String::new, |command| {
            format!("# on each other node, RANK being its number from 1:\n# {command}\n")
        });
        let first = match &launch.on_others {
            Some(_) => format!(", on the first of its {} nodes, whose address is LEADER", launch.nodes),
            None => String::new(),
        };
        let line = match (&launch.command, &launch.note) {
            (Some(command), _) => {
                format!("# {role}: start {} of it{first}\n{command}\n{others}", launch.replicas)
            }
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
    files.extend(answer.bench.as_ref().map(|line| (BENCH.to_owned(), format!("#!/bin/sh\n{line}\n"))));
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let place = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(place)?;
    for (name, text) in &files {
        Target::of("--launch-dir", &folder.join(name))?.text(text)?;
    }
    let sums: String =
        files.iter().map(|(name, text)| format!("{}  {name}\n", sum(text.as_bytes()))).collect();
    Target::of("--launch-dir", &folder.join(SUMS))?.text(&sums)?;
    let mut removed = Vec::new();
    for name in NAMES.iter().filter(|name| !files.iter().any(|(written, _)| written == *name)) {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
            removed.push((*name).to_owned());
        }
    }
    Ok(removed)
}

/// Refuses a folder with a file that was edited after a plan wrote it.
fn unedited(folder: &Path) -> Result<()> {
    let sums = std::fs::read_to_string(folder.join(SUMS)).unwrap_or_default();
    for name in NAMES {
        let path = folder.join(name);
        let Ok(bytes) = std::fs::read(&path) else { continue };
        if !sums.lines().any(|line| line == format!("{}  {name}", sum(&bytes))) {
            let shown_path =
                format!("{:?}, which a plan did not write as it is now", path.display().to_string());
            let accepted = "another folder; or this one without that file, whose edits would be lost";
            return Err(Error::field("arguments", "--launch-dir", shown_path, accepted).into());
        }
    }
    Ok(())
}

/// SHA-256 hash of a file's contents, in hexadecimal.
fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
