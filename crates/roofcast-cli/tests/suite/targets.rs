//! Output files: no other file is replaced by surprise, and a file that cannot be written is reported before any work.

use crate::support::{Run, roofcast, root};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const LIMITS: &str = "limits --model llama-3.1-8b --hardware h100-sxm --svg";

fn drawn(path: &Path) -> Run {
    roofcast(&format!("{LIMITS} {}", path.display()))
}

fn is_picture(text: &str) -> bool {
    text.starts_with("<svg") && text.ends_with("</svg>\n")
}

/// Asserts exit code 2, nothing on stdout, and `says` in the message.
fn refused(path: &Path, says: &str) {
    let run = drawn(path);
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{}: {}", path.display(), run.err);
    for part in ["--svg", says, "accepted: a file that can be written"] {
        assert!(run.err.contains(part), "{part} is not in {}", run.err);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_pipe_is_written_through_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    let run = drawn(&pipe);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(is_picture(&reader.join().unwrap()));
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(names(folder.path()), ["pipe"]);
}

#[test]
fn devices_stay_devices() {
    assert_eq!(drawn(Path::new("/dev/null")).code, 0);
    let full = drawn(Path::new("/dev/full"));
    assert_eq!((full.code, full.out.as_str()), (2, ""));
    assert!(full.err.contains("/dev/full: No space left"), "{}", full.err);
    for device in ["/dev/null", "/dev/full"] {
        assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
    }
    // /dev/stdout is a link to the pipe that the test reads.
    let out = drawn(Path::new("/dev/stdout"));
    assert_eq!(out.code, 0, "{}", out.err);
    let (picture, table) = out.out.split_once("</svg>\n").unwrap();
    assert!(picture.starts_with("<svg") && table.contains("prefill:"), "{table}");
}

#[test]
fn links_stay_links() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("kept")).unwrap();
    fs::write(at("kept/old.svg"), "old").unwrap();
    symlink("kept/old.svg", at("second")).unwrap();
    symlink("second", at("first")).unwrap();
    symlink("kept/new.svg", at("dangling")).unwrap();
    symlink("circle", at("circle")).unwrap();
    for (link, file) in [("first", "kept/old.svg"), ("dangling", "kept/new.svg")] {
        assert_eq!(drawn(&at(link)).code, 0);
        assert!(fs::symlink_metadata(at(link)).unwrap().file_type().is_symlink(), "{link}");
        assert!(is_picture(&fs::read_to_string(at(file)).unwrap()), "{file}");
    }
    refused(&at("circle"), "symbolic links");
}

#[test]
fn modes_are_kept_and_new_files_follow_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    fs::write(at("old.svg"), "old").unwrap();
    fs::set_permissions(at("old.svg"), fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(drawn(&at("old.svg")).code, 0);
    assert_eq!(mode("old.svg"), 0o604);
    let line = format!("umask 027; {} {LIMITS} {}", env!("CARGO_BIN_EXE_roofcast"), at("new.svg").display());
    assert!(Command::new("sh").args(["-c", &line]).output().unwrap().status.success());
    assert_eq!(mode("new.svg"), 0o640);
}

#[test]
fn a_read_only_file_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.svg");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    refused(&path, "read-only");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    refused(folder.path(), "a folder");
    refused(&at("absent/a.svg"), "no folder");
    refused(&at("absent/"), "no file's name");
    refused(&at("file/a.svg"), "directory");
    refused(&at("socket"), "a socket");
    assert_eq!(names(folder.path()), ["file", "socket"]);
}

#[test]
fn files_beside_the_target_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.svg.part"), "mine").unwrap();
    assert_eq!(drawn(&folder.path().join("a.svg")).code, 0);
    assert_eq!(fs::read_to_string(folder.path().join("a.svg.part")).unwrap(), "mine");
    assert_eq!(names(folder.path()), ["a.svg", "a.svg.part"]);
}

/// The other arguments are wrong, too, but the target is checked first.
#[test]
fn targets_are_checked_before_any_work() {
    let bench = "bench --url http://127.0.0.1:1 --model absent --prompts absent";
    for (verb, flag, name) in [
        ("limits absent.toml", "--svg", "a.svg"),
        ("plan absent.toml", "--svg", "a.svg"),
        ("simulate absent.toml", "--svg", "a.svg"),
        ("simulate absent.toml", "--records", "a.csv"),
        ("simulate absent.toml", "--series", "a.csv"),
        ("simulate absent.toml", "--trace", "a.json"),
        ("validate absent.csv", "--svg", "a.svg"),
        ("validate absent.csv", "--per-row", "a.csv"),
        ("calibrate absent.csv", "--out", "a.toml"),
        ("hardware measure --threads 1024", "--output", "a.toml"),
        (bench, "--records", "a.jsonl"),
        (bench, "--measurements", "a.csv"),
        (bench, "--svg", "a.svg"),
        ("validate absent.csv", "--curves", "a.svg"),
    ] {
        let run = roofcast(&format!("{verb} {flag} no/such/folder/{name}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{verb} {flag}: {}", run.err);
        for part in [flag, "no/such/folder", "no folder"] {
            assert!(run.err.contains(part), "{verb} {flag}: {}", run.err);
        }
    }
    assert!(!root().join("no").exists());
}

/// A file that is read is not overwritten, under whatever name the target has; two answers are not written to one file.
#[test]
fn outputs_are_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let config = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "intermediate_size": 128, "vocab_size": 100}"#;
    let spec = "model.path = \"config.json\"\nhardware.accelerator = \"h100-sxm\"\n[workload]\ninput_len = 10\n\
                output_len = 10\nrequests = 5\narrivals = { kind = \"poisson\", rate = 1.0 }\n";
    let points = "kind,model,hardware,tpot_ms,context_len\ndecode_step,llama-3.1-8b,h100-sxm,9.5,1000\n";
    for (name, text) in [("config.json", config), ("spec.toml", spec), ("points.csv", points)] {
        fs::write(path(name), text).unwrap();
    }
    symlink(path("spec.toml"), path("link.toml")).unwrap();
    let spec = path("spec.toml");
    let cases = [
        (format!("simulate {spec} --trace {spec}"), "--trace", "which is read"),
        (format!("simulate {spec} --trace {}", path("config.json")), "--trace", "which is read"),
        (format!("simulate {} --series {spec}", path("link.toml")), "--series", "which is read"),
        (format!("simulate {spec} --svg {0} --trace {0}", path("one.svg")), "--trace", "writes"),
        (format!("validate {0} --per-row {0}", path("points.csv")), "--per-row", "which is read"),
        (format!("calibrate {0} --out {0}", path("points.csv")), "--out", "which is read"),
        (
            format!(
                "limits --model {} --hardware h100-sxm --svg {}",
                path("config.json"),
                path("config.json")
            ),
            "--svg",
            "which is read",
        ),
    ];
    for (arguments, flag, says) in cases {
        let run = roofcast(&arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments}: {}", run.err);
        assert!(run.err.contains(flag) && run.err.contains(says), "{arguments}: {}", run.err);
    }
    assert_eq!(names(folder.path()), ["config.json", "link.toml", "points.csv", "spec.toml"]);
    assert_eq!(fs::read_to_string(path("spec.toml")).unwrap().lines().count(), 7);
    let run = roofcast(&format!("simulate {spec} --svg /dev/null --trace /dev/null"));
    assert_eq!(run.code, 0, "{}", run.err);
}

/// By default `ulimit -f` ends a process by SIGXFSZ; the writer handles it and leaves no partial file.
#[test]
fn a_size_limit_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.jsonl");
    let script = format!(
        "ulimit -f 4; exec {} simulate --requests 2000 --records {}",
        env!("CARGO_BIN_EXE_roofcast"),
        records.display()
    );
    let run = Command::new("sh").args(["-c", &script]).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains("records.jsonl") && said.contains("File too large"), "{said}");
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

/// A sweep whose cells find no room ends and leaves no part of a cell; with room, all six cells run.
#[test]
fn a_size_limit_leaves_no_part_of_a_cell() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = format!(
        "simulate --requests 60 --sweep tp=1,2 --sweep rate=2,4,8 --cells {}",
        folder.path().display()
    );
    let script = format!("ulimit -f 1; exec {} {sweep}", env!("CARGO_BIN_EXE_roofcast"));
    let run = Command::new("sh").args(["-c", &script]).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(said.contains(".parquet") && said.contains("File too large"), "{said}");
    assert_eq!(names(folder.path()), Vec::<String>::new());
    let answer: serde_json::Value = serde_json::from_str(&roofcast(&format!("{sweep} --json")).out).unwrap();
    assert_eq!((&answer["kept"], &answer["ran"]), (&0.into(), &6.into()));
}
