//! The files that start and check a plan's best, in one folder.
//!
//! Knows: their names. What is in them is the library's.

use super::{Answer, SPEC};
use crate::show::target::Target;
use anyhow::{Context, Result};
use roofcast::Error;
use std::path::{Path, PathBuf};

/// Every name that a plan writes: of engines' commands, of manifests, of the spec and of its check.
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
/// The file of the line that measures.
const BENCH: &str = "bench.sh";

/// The folder, where files can be written to it or it can be made.
pub(super) fn checked(path: &Path) -> Result<PathBuf> {
    let refused = |found: String| {
        let place = format!("{:?}, {found}", path.display().to_string());
        Error::field("arguments", "--launch-dir", place, "a folder, or a name that is free in one")
    };
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            NAMES.iter().try_for_each(|name| Target::of("--launch-dir", &path.join(name)).map(drop))?;
        }
        Ok(_) => return Err(refused("a file".to_owned()).into()),
        // Whether it can be made is known when it was: it goes again, and the plan makes it when there is one.
        Err(_) => std::fs::create_dir(path)
            .and_then(|()| std::fs::remove_dir(path))
            .map_err(|error| refused(error.to_string()))?,
    }
    Ok(path.to_owned())
}

/// Writes what there is of a plan with a best, and removes what an earlier one wrote and this one does not: it would start
/// something else. Names what was removed.
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
