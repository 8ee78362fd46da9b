//! The project's rules that a compiler does not check: files and modules import one another in one direction, engines
//! are compared by kind, a key of a spec is described once, the wall clock is read for dates alone, and no file is long.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates that the rules apply to, with the name of the root module.
const CRATES: [(&str, &str); 10] = [
    ("roofcast-facts", "lib"),
    ("roofcast-ask", "lib"),
    ("roofcast-cost", "lib"),
    ("roofcast-sim", "lib"),
    ("roofcast-plan", "lib"),
    ("roofcast-dev", "lib"),
    ("roofcast", "lib"),
    ("roofcast-http", "lib"),
    ("roofcast-emulate", "lib"),
    ("roofcast-cli", "main"),
];

/// The source folder of a crate.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

type Module = Vec<String>;

/// Every source file by its module path, without comments and tests.
fn sources(folder: &Path, module: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut module = module.to_vec();
        module.push(path.file_stem().unwrap().to_string_lossy().into_owned());
        if path.is_dir() {
            sources(&path, &module, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
            found.insert(module, text.lines().map(code).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The paths of a `use` tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn paths(tree: &str, base: &[String], into: &mut Vec<Module>) {
    let (head, rest) = tree.split_once('{').unwrap_or((tree, ""));
    let own: Module = head.split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
    let base: Module = base.iter().cloned().chain(own).collect();
    if rest.is_empty() {
        into.push(base);
        return;
    }
    let (mut depth, mut from) = (0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = rest[from..at].trim();
                if !item.is_empty() {
                    paths(item, &base, into);
                }
                from = at + 1;
                if c == '}' {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// The files that `module` names, by `use` and by paths from the crate's root. A parent module and its child count as
/// one, so imports between them are left out.
fn imports(module: &Module, text: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut named = Vec::new();
    for tree in text.split("use ").skip(1) {
        paths(tree.split(';').next().unwrap_or_default(), &[], &mut named);
    }
    for path in text.split("crate::").skip(1) {
        let path = path.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next();
        paths(&format!("crate::{}", path.unwrap_or_default()), &[], &mut named);
    }
    let absolute = |path: Module| -> Option<Module> {
        let ups = path.iter().take_while(|s| *s == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some(module.iter().chain(&path[1..]).cloned().collect()),
            "super" => {
                Some(module[..module.len().saturating_sub(ups)].iter().chain(&path[ups..]).cloned().collect())
            }
            _ => None,
        }
    };
    let file =
        |path: Module| (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| all.contains_key(m));
    let apart = |other: &Module| !other.starts_with(module) && !module.starts_with(other);
    named.into_iter().filter_map(absolute).filter_map(file).filter(apart).collect()
}

/// Modules that can be reached from `from`.
fn reached(from: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Module> = edges[from].iter().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module.clone()) {
            next.extend(&edges[module]);
        }
    }
    seen
}

/// The files of a crate with root module `root`, each with the files that it imports.
fn edges(folder: &Path, root: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut all = BTreeMap::new();
    sources(folder, &[], &mut all);
    all.remove(&vec![root.to_owned()]);
    all.iter().map(|(module, text)| (module.clone(), imports(module, text, &all))).collect()
}

/// The modules directly under a crate's root, each merged with its submodules, because a circle between modules may
/// lead through different files of each.
fn modules(edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut all: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (file, imported) in edges {
        let apart = imported.iter().filter(|other| other[0] != file[0]);
        all.entry(file[..1].to_vec()).or_default().extend(apart.map(|other| other[..1].to_vec()));
    }
    all
}

fn assert_no_circles(edges: &BTreeMap<Module, BTreeSet<Module>>) {
    let circular: Vec<String> =
        edges.keys().filter(|m| reached(m, edges).contains(*m)).map(|m| m.join("/")).collect();
    assert!(circular.is_empty(), "in import circles: {}", circular.join(", "));
}

/// Imports between crates have no circles either, which cargo requires.
#[test]
fn no_file_or_module_imports_itself_through_others() {
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<Module>();
    // An import of each crate that the reader must find.
    let known = [
        ("roofcast-facts", "checkpoint", "units"),
        ("roofcast-ask", "deployment", "engine_settings"),
        ("roofcast-cost", "forecaster", "calibration"),
        ("roofcast-sim", "simulate", "fleet"),
        ("roofcast-plan", "plan/current", "measurement"),
        ("roofcast-dev", "testing", "conformance"),
        ("roofcast", "report/run", "report/chart"),
        ("roofcast-http", "server", "patient"),
        ("roofcast-emulate", "service/generation", "wire"),
        ("roofcast-cli", "bench/prompt", "bench/vocabulary"),
    ];
    for (name, root) in CRATES {
        let edges = edges(&source(name), root);
        let (_, file, imported) = known.iter().find(|known| known.0 == name).unwrap();
        assert!(edges[&module(file)].contains(&module(imported)), "{name}: {file}");
        assert_no_circles(&edges);
        let modules = modules(&edges);
        assert_no_circles(&modules);
        // Checks that submodules count: the scheduler's state, not the scheduler itself, imports the timeline.
        if name == "roofcast-sim" {
            assert!(modules[&module("scheduler")].contains(&module("timeline")));
        }
    }
}

/// True if `code` compares a value with `name` or matches on it.
fn compares(code: &str, name: &str) -> bool {
    let word = format!("\"{name}\"");
    code.match_indices(&word).any(|(at, _)| {
        let (before, after) = (code[..at].trim_end(), code[at + word.len()..].trim_start());
        let compared = before.ends_with("==") || before.ends_with("!=");
        compared || after.starts_with("==") || after.starts_with("=>") || after.starts_with("if ")
    })
}

/// Engines are compared by [`roofcast::spec::EngineKind`]. Names of engines are compared only where an engine is found
/// by its name, and in the labels of kernel tables, which are data.
#[test]
fn no_file_compares_names_of_engines() {
    let mut all = BTreeMap::new();
    for (name, _) in CRATES {
        sources(&source(name), &[name.to_owned()], &mut all);
    }
    let own = |m: &Module| m.ends_with(&["build".to_owned(), "names".to_owned()]);
    let names = roofcast::spec::EngineKind::NAMED.map(roofcast::spec::EngineKind::name);
    let compared: Vec<String> = all
        .iter()
        .filter(|(module, code)| !own(module) && names.iter().any(|name| compares(code, name)))
        .map(|(module, _)| module.join("/"))
        .collect();
    assert!(compared.is_empty(), "names of engines compared in {}", compared.join(", "));
    assert!(compares("if name == \"vllm\" {", "vllm") && compares("\"vllm\" if old => 1,", "vllm"));
    assert!(!compares("Kind::Vllm => \"vllm\",", "vllm"));
}

/// A clock that is set back or forward changes no duration: the wall clock is read where a date, a seed or the date of another machine is
/// meant, and nowhere else.
#[test]
fn the_wall_clock_is_read_for_dates_alone() {
    let mut all = BTreeMap::new();
    for (name, _) in CRATES {
        sources(&source(name), &[name.to_owned()], &mut all);
    }
    let readers: Vec<String> = all
        .iter()
        .filter(|(_, code)| code.contains("SystemTime"))
        .map(|(module, _)| module.join("/"))
        .collect();
    let dates = [
        "roofcast-cli/bench/client",            // the date of a Retry-After
        "roofcast-cli/verbs/bench/date",        // the date of a result
        "roofcast-cli/verbs/bench/setup",       // the date of a result
        "roofcast-cli/verbs/bench/speech",      // a seed
        "roofcast-emulate/kv_events/publisher", // the date of an event
        "roofcast-emulate/metrics",             // the date of the start
        "roofcast-emulate/metrics/vllm",        // the dates of counters
        "roofcast-emulate/service",             // `created` of an answer
    ];
    assert_eq!(readers, dates);
}

/// Number of lines of each source file in a folder, including its tests, the longest file first.
fn lengths(folder: &Path) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(lengths(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            found.push((lines, path.display().to_string()));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found
}

#[test]
fn every_file_has_less_than_450_lines() {
    let lengths: Vec<_> = CRATES.iter().flat_map(|(name, _)| lengths(&source(name))).collect();
    assert!(lengths.len() > 400, "{} files", lengths.len());
    for (lines, file) in lengths {
        assert!(lines < 450, "{file} has {lines} lines");
    }
}

/// A field of a spec's section has the description of its key, `#[doc = about!("engine.policy")]`; only a section within
/// a section, which is no key, has a doc comment.
#[test]
fn keys_of_a_spec_are_described_in_one_place() {
    let source = source("roofcast-ask");
    let (mut taken, mut wrong) = (BTreeSet::new(), Vec::new());
    for file in ["spec.rs", "spec/own.rs", "spec/fleet.rs", "spec/search.rs", "spec/speculative.rs"] {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        let (mut section, mut comment) = (false, false);
        for line in text.lines().map(str::trim) {
            match line.strip_prefix("pub struct ") {
                Some(name) => section = name.trim_end_matches(" {").len() > 4 && name.ends_with("Spec {"),
                None if line == "}" => section = false,
                None => {}
            }
            let field = section && line.ends_with(',') && !line.starts_with('#');
            if field && comment && !line.contains("Spec") && !line.contains("Prediction") {
                wrong.push(format!("{file}: {line}"));
            }
            if let Some(key) = line.strip_prefix("#[doc = about!(\"") {
                taken.insert(key.trim_end_matches("\")]").to_owned());
            }
            comment = line.starts_with("///") || comment && line.starts_with("#[");
        }
    }
    assert!(wrong.is_empty(), "described beside roofcast::spec::keys: {wrong:#?}");
    let keys = roofcast::spec::keys::KEYS;
    let unknown = taken.iter().filter(|key| !keys.iter().any(|known| known.path == key.as_str()));
    assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(taken.len() > 140, "{}", taken.len());
}
