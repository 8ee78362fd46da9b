//! Sets of modules, given by the names and patterns of checkpoints.
//!
//! Knows: the tensors that a name, a glob or a regular expression covers, and the names of checkpoints for the
//! model's modules. Knows nothing about formats.

use super::values;
use crate::error::Result;
use crate::model::keys::Keys;
use std::collections::BTreeSet;

/// Set of modules, as names and patterns.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Modules {
    pub(super) names: BTreeSet<String>,
    pub(super) globs: Vec<String>,
    /// True if every linear layer is covered.
    pub(super) everything: bool,
}

impl Modules {
    /// Reads the lists under `names` and joins them.
    pub(super) fn read(section: &Keys, names: &[&str]) -> Result<Modules> {
        let mut modules = Modules::default();
        for name in names {
            values::modules(section, name)?.into_iter().for_each(|entry| modules.add(entry));
        }
        Ok(modules)
    }

    /// Adds a name, a pattern with `*`, or a regular expression (`re:…`).
    pub(super) fn add(&mut self, entry: &str) {
        let entry = bare(entry);
        match entry.strip_prefix("re:") {
            // Regular expressions in use contain only `.*`, escaped dots and (a|b), which globs can express.
            Some(regex) => {
                let plain = regex.replace(".*", "*").replace("\\.", ".").replace(['^', '$'], "");
                let open = alternatives(&plain);
                self.globs.extend(open.iter().map(|g| format!("*{}*", g.trim_matches('*'))));
            }
            None if entry.contains('*') => self.globs.push(entry.to_owned()),
            None => drop(self.names.insert(entry.to_owned())),
        }
    }

    /// True if no name or pattern is listed.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.globs.is_empty()
    }

    /// True if a name or pattern covers `path`; a name covers every path that contains the name's components in
    /// sequence.
    pub(super) fn cover(&self, path: &str) -> bool {
        self.globs.iter().any(|glob| glob_covers(glob, path)) || self.name(path)
    }

    fn name(&self, path: &str) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let dots = || path.match_indices('.').map(|(at, _)| at);
        let starts = std::iter::once(0).chain(dots().map(|at| at + 1));
        let mut from = starts.map(|start| (start, dots().filter(move |at| *at > start).chain([path.len()])));
        from.any(|(start, mut ends)| ends.any(|end| self.names.contains(&path[start..end])))
    }
}

/// Lists `pattern` with each choice of its first group `(a|b)`.
fn alternatives(pattern: &str) -> Vec<String> {
    let group = pattern.find('(').and_then(|open| {
        let close = open + pattern[open..].find(')')?;
        Some((&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]))
    });
    match group {
        Some((before, inner, after)) => {
            inner.split('|').take(64).map(|choice| format!("{before}{choice}{after}")).collect()
        }
        None => vec![pattern.to_owned()],
    }
}

/// Removes the prefixes of a module name that differ between loaders.
fn bare(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) =
        ["model.", "language_model.", "backbone."].iter().find_map(|p| name.strip_prefix(p))
    {
        name = rest;
    }
    name
}

/// True if `glob` matches `path` or a module that contains it; `*` stands for any text.
fn glob_covers(glob: &str, path: &str) -> bool {
    let mut pieces = glob.split('*');
    let Some(first) = pieces.next() else { return false };
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let mut last = first;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
        last = piece;
    }
    last.is_empty() || rest.is_empty() || rest.starts_with('.')
}

/// Names of one module in checkpoints; `path` is the name in llama's scheme.
pub(super) fn aliases(path: String) -> Vec<String> {
    const OTHERS: &[(&str, &str)] = &[
        (".mlp.", ".block_sparse_moe."),
        (".gate_proj", ".w1"),
        (".up_proj", ".w3"),
        (".down_proj", ".w2"),
        (".shared_experts.", ".shared_expert."),
        (".shared_experts.", ".share_expert."),
        (".in_proj_qkv", ".in_proj_qkvz"),
        (".o_a_proj", ".wo_a"),
        (".o_b_proj", ".wo_b"),
        (".self_attn.", ".mixer."),
        (".mlp.", ".mixer."),
        (".mamba.", ".mixer."),
    ];
    let mut all = vec![path];
    for (ours, theirs) in OTHERS {
        let renamed: Vec<String> =
            all.iter().filter(|p| p.contains(ours)).map(|p| p.replace(ours, theirs)).collect();
        all.extend(renamed);
    }
    all
}
