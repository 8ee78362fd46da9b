//! Comments and names as a reader meets them: the list of files, which is made of their first sentences, few marks of a
//! private dialect, and locals that are called by what they are, by the rules in CONTRIBUTING.md.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The crates whose comments are checked.
const CRATES: [&str; 11] = [
    "roofcast-facts",
    "roofcast-ask",
    "roofcast-cost",
    "roofcast-sim",
    "roofcast-plan",
    "roofcast-dev",
    "roofcast",
    "roofcast-http",
    "roofcast-emulate",
    "roofcast-cli",
    "roofcast-py",
];

/// The source files below `folder` in order of their paths, without files of tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The first sentence of a file's head; `None` without a head.
fn first_sentence(text: &str) -> Option<String> {
    let head = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph = head.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    (!paragraph.is_empty()).then(|| paragraph[..end].to_owned())
}

/// `docs/files.md`: one line a file.
fn list() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::from(
        "# Files\n\nThe first sentence of each source file. `UPDATE_FILES=1 cargo test -p roofcast --test main list_of_files` \
         writes this page; [ARCHITECTURE.md](../ARCHITECTURE.md) is the map.\n",
    );
    for name in CRATES {
        let source = crates.join(name).join("src");
        write!(text, "\n## {name}\n\n| file | content |\n|---|---|\n").unwrap();
        for file in files(&source) {
            let Some(sentence) = first_sentence(&std::fs::read_to_string(&file).unwrap()) else { continue };
            let path = file.strip_prefix(&source).unwrap().with_extension("");
            writeln!(text, "| `{}` | {} |", path.display(), sentence.replace('|', "\\|")).unwrap();
        }
    }
    text
}

#[test]
fn the_list_of_files_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/files.md");
    let text = list();
    if std::env::var_os("UPDATE_FILES").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(
        text == written,
        "{differs:?}: UPDATE_FILES=1 cargo test -p roofcast --test main list_of_files writes docs/files.md"
    );
}

/// The doc comments of a file, a block as one text.
fn comments(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        let line = line.trim_start();
        match line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            Some(comment) => block.push(comment.trim()),
            None if block.is_empty() => {}
            None => blocks.push(std::mem::take(&mut block).join(" ")),
        }
    }
    blocks
}

/// Words with which a sentence fragment begins.
const FRAGMENTS: [&str; 13] = [
    "Of", "Whether", "Where", "Those", "Whose", "What", "How", "Which", "Its", "Beside", "From", "None",
    "Nothing",
];
/// Pairs of words that point at another comment, or stand for a noun.
const PAIRS: [(&str, &str); 10] = [
    ("none", "where"),
    ("nothing", "where"),
    ("those", "of"),
    ("those", "that"),
    ("those", "which"),
    ("that", "of"),
    ("of", "it"),
    ("of", "them"),
    ("so", "many"),
    ("so", "much"),
];
/// Words for which the field has others.
const WORDS: [&str; 5] = ["told", "tells", "beside", "besides", "dearer"];

/// True if a comment probably needs a second reading.
fn is_marked(comment: &str) -> bool {
    let fragment = comment
        .split_whitespace()
        .next()
        .is_some_and(|first| FRAGMENTS.contains(&first) && !comment.ends_with('?'));
    let lower = comment.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let pair = words.windows(2).any(|two| PAIRS.contains(&(two[0], two[1])));
    fragment || pair || words.iter().any(|word| WORDS.contains(word))
}

/// At most a tenth of a file's doc comments are marked, or one in a short file.
#[test]
fn comments_stand_by_themselves() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for name in CRATES {
        for file in files(&crates.join(name).join("src")) {
            let comments = comments(&std::fs::read_to_string(&file).unwrap());
            let marked: Vec<&String> = comments.iter().filter(|comment| is_marked(comment)).collect();
            if marked.len() > (comments.len() / 10).max(1) {
                wrong.push(format!(
                    "{}: {} of {}: {marked:#?}",
                    file.display(),
                    marked.len(),
                    comments.len()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        is_marked("What few rows cost beyond their share.")
            && is_marked("Its number, of which there is no other.")
    );
    assert!(is_marked("Bytes of those that wait.") && is_marked("None where absent."));
    assert!(!is_marked("Extra cost of small-M GEMMs, in rows.") && !is_marked("Unique request id."));
}

/// Names of locals that say nothing about them.
const VAGUE: [&str; 11] =
    ["found", "own", "asked", "most", "of", "one", "held", "kept", "told", "least", "said"];
/// Most locals with such a name in all crates; the number may only fall.
const MOST_VAGUE: usize = 30;
/// Most statements that bind several names to a tuple of as many values in all crates; the number may only fall.
const MOST_TUPLES: usize = 50;

/// The statement that a line begins, if it binds locals: the part after `let`.
fn bound(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("let ")?;
    Some(rest.strip_prefix("mut ").unwrap_or(rest))
}

fn is_vague(line: &str) -> bool {
    let name = |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    bound(line).and_then(name).is_some_and(|name| VAGUE.contains(&name.as_str()))
}

fn is_tuple(line: &str) -> bool {
    bound(line).is_some_and(|rest| rest.starts_with('(') && rest.contains(") = ("))
}

/// A local has a noun for its name, and a statement binds one name.
#[test]
fn locals_are_called_by_what_they_are() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut vague, mut tuples) = (Vec::new(), Vec::new());
    for file in CRATES.iter().flat_map(|name| files(&crates.join(name).join("src"))) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let place = || format!("{}:{}: {}", file.display(), number + 1, line.trim());
            vague.extend(is_vague(line).then(place));
            tuples.extend(is_tuple(line).then(place));
        }
    }
    assert!(vague.len() <= MOST_VAGUE, "{} locals, at most {MOST_VAGUE}: {vague:#?}", vague.len());
    assert!(tuples.len() <= MOST_TUPLES, "{} tuples, at most {MOST_TUPLES}: {tuples:#?}", tuples.len());
    assert!(is_vague("    let mut found = Vec::new();") && !is_vague("let found_blocks = 1;"));
    assert!(is_tuple("let (a, b) = (1, 2);") && !is_tuple("let (a, b) = pair;"));
}
