//! Runs the commands that README shows.

use crate::support::{roofcast, root};
use std::path::Path;
use std::process::Command;

/// The commands in README, without comments.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let shell = text.split("```sh\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines());
    let own = shell.filter(|line| line.starts_with("roofcast "));
    own.map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

#[test]
fn every_command_of_the_readme_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    let (url, _) = crate::scripted::start(|_, stream| crate::scripted::good(stream));
    let here = Path::new(env!("CARGO_BIN_EXE_roofcast")).parent().unwrap().display().to_string();
    let path = format!("{here}:{}", std::env::var("PATH").unwrap_or_default());
    let commands = commands();
    // Servers run until they are stopped; the tests of these verbs start them.
    let serves = |c: &str| c.starts_with("roofcast emulate") || c.starts_with("roofcast serve");
    for command in commands.iter().filter(|c| !serves(c)) {
        let measures = command.starts_with("roofcast bench");
        // The scripted server stands in for a live one. It is faster than the client, so the run may be invalid.
        let line = if measures {
            command.replace("http://127.0.0.1:8000", &url) + " --requests 8 --assume-tokens --max-lag 100000"
        } else {
            command.clone()
        };
        let run =
            Command::new("sh").args(["-c", &line]).env("PATH", &path).current_dir(folder.path()).output();
        let run = run.unwrap();
        let code = run.status.code().unwrap();
        assert!(code == 0 || measures && code == 3, "{line}: {}", String::from_utf8_lossy(&run.stderr));
        assert!(!run.stdout.is_empty(), "{line}");
    }
    assert!(commands.len() >= 15, "{commands:?}");
    for written in ["pareto.svg", "sweep.svg", "run.svg", "run.json", "my-machine.toml"] {
        assert!(folder.path().join(written).is_file(), "{written}");
    }
}

/// The commands of the first block name a model and an accelerator of the catalog, and no file.
#[test]
fn the_first_screen_needs_no_file() {
    let first: Vec<String> = commands().into_iter().take(3).collect();
    let verbs: Vec<&str> = first.iter().filter_map(|c| c.split(' ').nth(1)).collect();
    assert_eq!(verbs, ["plan", "simulate", "limits"]);
    for command in first {
        assert!(!command.contains(".toml") && !command.contains("examples/"), "{command}");
    }
}

#[test]
fn verbs_take_the_flags_that_the_readme_says() {
    let takes =
        |verb: &str, flag: &str| roofcast(&format!("{verb} --help")).out.contains(&format!(" --{flag}"));
    let asked = ["limits", "capacity", "plan", "simulate", "bench"];
    for verb in asked.into_iter().chain(["seeds", "catalog"]) {
        assert!(takes(verb, "json") && takes(verb, "csv"), "{verb}");
    }
    for verb in ["conformance", "validate", "calibrate", "hardware measure"] {
        assert!(takes(verb, "json"), "{verb}");
    }
    for verb in ["limits", "plan", "simulate", "bench", "validate"] {
        assert!(takes(verb, "svg"), "{verb}");
    }
    for verb in asked {
        assert!(takes(verb, "dump-spec") && takes(verb, "from-command"), "{verb}");
    }
}
