//! The book and the binary: output of roofcast shown in a chapter is the binary's output, and its commands run.
//!
//! Knows: a block between `<!-- generated: roofcast … -->` and `<!-- end -->` is a verb's text in a fence.
//! `UPDATE_DOCS=1` rewrites the blocks; read the changes before you commit them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests too

use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str = "<!-- generated: roofcast ";
const END: &str = "<!-- end -->";
/// Most characters in a line of a generated block.
const WIDTH: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `roofcast` with the words of `arguments`; returns its standard output and exit code.
fn roofcast(arguments: &str) -> (String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_roofcast"))
        .args(arguments.split_whitespace())
        .current_dir(root())
        .output()
        .unwrap();
    let code = output.status.code().unwrap_or(-1);
    // Exit code 4 is an answer, too: the deployment does not fit.
    assert!(code == 0 || code == 4, "roofcast {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), code)
}

/// The chapters of the book, by path, with their texts.
fn chapters() -> Vec<(PathBuf, String)> {
    let files = std::fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<_> = files
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
        .map(|p| (p.clone(), std::fs::read_to_string(p).unwrap()))
        .collect();
    all.sort();
    all
}

/// Replaces every generated block in `text` by the binary's present output; returns the new text and the number of
/// blocks.
fn regenerated(place: &Path, text: &str) -> (String, usize) {
    let mut out = String::new();
    let mut rest = text;
    let mut blocks = 0;
    while let Some(start) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(start);
        let line = from.lines().next().unwrap_or_default();
        let command = line.strip_prefix(BEGIN).and_then(|c| c.strip_suffix(" -->"));
        let command = command.unwrap_or_else(|| panic!("{}: {line}", place.display()));
        let end = from.find(END).unwrap_or_else(|| panic!("{}: no {END} after {line}", place.display()));
        out.push_str(&format!("{before}{line}\n```text\n{}\n```\n{END}", roofcast(command).0.trim_end()));
        rest = &from[end + END.len()..];
        blocks += 1;
    }
    (out + rest, blocks)
}

#[test]
fn generated_blocks_are_what_the_binary_prints() {
    let mut blocks = 0;
    for (path, text) in chapters() {
        let (now, count) = regenerated(&path, &text);
        blocks += count;
        if now == text {
            continue;
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, now).unwrap();
            continue;
        }
        let (found, expected) =
            text.lines().zip(now.lines()).find(|(a, b)| a != b).unwrap_or(("", "another number of lines"));
        panic!("{}: `{found}` should be `{expected}`; UPDATE_DOCS=1 rewrites it", path.display());
    }
    assert!(blocks >= 4, "only {blocks} generated blocks");
}

#[test]
fn the_readmes_picture_of_a_plan_is_what_the_command_draws() {
    let (path, folder) = (root().join("docs/plan.svg"), tempfile::tempdir().unwrap());
    let drawn = folder.path().join("plan.svg");
    roofcast(&format!("plan --svg {}", drawn.display()));
    let now = std::fs::read_to_string(drawn).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == now, "docs/plan.svg: UPDATE_DOCS=1 draws it anew");
}

#[test]
fn every_seed_has_a_chapter_with_its_table() {
    let chapters = chapters();
    for seed in ["000", "001", "003", "004"] {
        let begin = format!("{BEGIN}seeds {seed} -->");
        let chapter = chapters.iter().find(|(_, text)| text.contains(&begin));
        let (path, _) = chapter.unwrap_or_else(|| panic!("no chapter shows `roofcast seeds {seed}`"));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with(&format!("seed-{seed}-")), "{name}");
    }
}

#[test]
fn commands_of_the_seed_chapters_run() {
    let mut count = 0;
    for (path, text) in chapters() {
        if !path.file_name().unwrap().to_string_lossy().starts_with("seed-") {
            continue;
        }
        let mut shell = false;
        for line in text.lines() {
            match line {
                "```sh" => shell = true,
                "```" => shell = false,
                _ if shell => {
                    let command = line.split('#').next().unwrap_or_default().trim();
                    let arguments = command.strip_prefix("roofcast ");
                    let arguments = arguments.unwrap_or_else(|| panic!("{}: {line}", path.display()));
                    assert!(!roofcast(arguments).0.is_empty(), "{command}");
                    count += 1;
                }
                _ => {}
            }
        }
    }
    assert!(count >= 12, "only {count} commands");
}

/// Runs a shell line in `folder`, which contains `study.toml`; returns its output.
fn in_a_shell(line: &str, folder: &Path, variables: &[(&str, &str)]) -> String {
    let here = Path::new(env!("CARGO_BIN_EXE_roofcast")).parent().unwrap().display().to_string();
    let path = format!("{here}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("PATH", path).env("HOME", folder).current_dir(folder);
    let output = shell.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The roofcast commands in a chapter's shell blocks, with continued lines joined, without comments and pipes.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines =
        blocks.flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>());
    let own = lines.filter(|line| line.starts_with("roofcast "));
    own.map(|line| line.split(" #").next().unwrap().split(" | ").next().unwrap().trim().to_owned()).collect()
}

/// With `--help` appended, the binary prints help only if it accepts every flag and value before it. So commands are
/// checked without running them.
#[test]
fn every_command_of_the_book_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (path, text) in chapters() {
        for command in commands(&text) {
            let help = in_a_shell(&format!("{command} --help"), folder.path(), &[]);
            assert!(help.contains("Usage: "), "{}: {command}", path.display());
            count += 1;
        }
    }
    assert!(count >= 50, "only {count} commands");
}

#[test]
fn commands_that_need_no_file_of_the_readers_own_run() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    for chapter in ["attention.md", "extending.md", "simulate.md"] {
        let text = std::fs::read_to_string(root().join("docs").join(chapter)).unwrap();
        let commands = commands(&text);
        assert!(!commands.is_empty(), "{chapter}");
        for command in commands {
            assert!(!in_a_shell(&command, folder.path(), &[]).is_empty(), "{command}");
        }
    }
}

#[test]
fn commands_of_the_chapter_on_studies_run_and_merge() {
    let text = std::fs::read_to_string(root().join("docs/studies.md")).unwrap();
    let block = |begin: &str| text.split_once(begin).unwrap().1.split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shell: Vec<&str> = block("```sh\n").lines().filter(|line| line.starts_with("roofcast ")).collect();
    let printed: Vec<String> = shell.iter().map(|line| in_a_shell(line, folder.path(), &[])).collect();
    let one = shell[2].replace(" --cells study --merge", "");
    assert_eq!(printed[2], in_a_shell(&one, folder.path(), &[]));
    // Tasks of Slurm count from 1, pods from 0. Here they are the third of 64 tasks over 1280 runs, and the first of 64
    // over 64 runs.
    let spec = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[workload]\nrequests = 20\n\
                input_len = 100\noutput_len = 20\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0\n";
    std::fs::write(folder.path().join("study.toml"), spec).unwrap();
    let script = block("## Slurm\n\n```text\n");
    let task = [("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_TASK_COUNT", "64")];
    assert!(
        in_a_shell(script, folder.path(), &task).starts_with("20 of 1,280 cells: 0 were kept before, 20 ran")
    );
    let pod = text.lines().find_map(|line| line.trim().strip_prefix("args: [\"")).unwrap();
    let pod = pod.strip_suffix("\"]").unwrap().replace("/study/", &format!("{}/", folder.path().display()));
    let said = in_a_shell(&pod, folder.path(), &[("JOB_COMPLETION_INDEX", "0")]);
    assert!(said.starts_with("1 of 64 cells: 0 were kept before, 1 ran"), "{said}");
}

#[test]
fn seeds_are_readable_in_100_columns() {
    let (text, code) = roofcast("seeds");
    assert_eq!(code, 0);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

#[test]
fn seeds_speak_json_and_csv() {
    let (json, _) = roofcast("seeds --json");
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["schema"], "roofcast/seeds/1");
    let ids: Vec<_> = answer["seeds"].as_array().unwrap().iter().map(|s| s["seed"].clone()).collect();
    assert_eq!(ids, ["000", "001", "003", "004"]);
    // A header, and one row for each claim.
    let claims: usize =
        answer["seeds"].as_array().unwrap().iter().map(|s| s["claims"].as_array().unwrap().len()).sum();
    let (csv, _) = roofcast("seeds --csv");
    assert_eq!(csv.lines().count(), claims + 1);
}
