//! Sweeps computed in shards: cells kept in a folder, and merged into the bytes of a single run.

use crate::support::{roofcast, root};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SWEEP: &str = "--requests 60 --sweep tp=1,2 --sweep rate=2,4,8";

/// Standard error of a command that must be refused as bad input.
fn bad(arguments: &str) -> String {
    let run = roofcast(arguments);
    assert_eq!(run.code, 2, "{arguments}: {}", run.out);
    run.err
}

fn kept(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|e| e == "parquet")).count()
}

/// The JSON that one process prints about its part of the cells.
fn share(asked: &str, folder: &Path) -> serde_json::Value {
    let run = roofcast(&format!("simulate {asked} --cells {} --json", folder.display()));
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn shares_merge_into_the_bytes_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let cells = folder.path().join("cells");
    let merge = format!("simulate {SWEEP} --cells {} --merge", cells.display());
    // There are six cells; the first of four shards has cells 0 and 4.
    let first = share(&format!("{SWEEP} --shard 1/4"), &cells);
    assert_eq!((&first["cells"], &first["asked"], &first["ran"]), (&6.into(), &2.into(), &2.into()));
    let missing: serde_json::Value =
        serde_json::from_str(&roofcast(&format!("{merge} --missing")).out).unwrap();
    assert_eq!(missing["missing"], serde_json::json!([1, 2, 3, 5]));
    let error = bad(&merge);
    assert!(
        error.contains("4 of 6 cells missing, the first is parallelism.tp = 1, workload.arrivals.rate = 4"),
        "{error}"
    );
    let partial: serde_json::Value =
        serde_json::from_str(&roofcast(&format!("{merge} --partial")).out).unwrap();
    assert_eq!(partial["interrupted"], true);
    assert_eq!(partial["points"].as_array().unwrap().len(), 2);
    for asked in ["--shard 2/4", "--shard 3/4 --threads 1", "--numbers 3,5"] {
        share(&format!("{SWEEP} {asked}"), &cells);
    }
    let one = |form: &str| roofcast(&format!("simulate {SWEEP} {form}")).out;
    assert_eq!(roofcast(&format!("{merge} --json")).out, one("--json"));
    assert_eq!(roofcast(&format!("{merge} --csv")).out, one("--csv"));
    assert_eq!(roofcast(&merge).out, one("--json"));
}

#[test]
fn what_is_kept_is_not_run_again_and_the_space_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let all = share(SWEEP, folder.path());
    assert_eq!((&all["kept"], &all["ran"]), (&0.into(), &6.into()));
    let files = kept(folder.path());
    assert_eq!(share(SWEEP, folder.path())["kept"], 6);
    assert_eq!(kept(folder.path()), files);
    // The keys are in another order and there is one value more: 6 of 8 cells are known.
    let wider = "--requests 60 --sweep rate=2,4,8,9 --sweep tp=2,1";
    let more = share(wider, folder.path());
    assert_eq!((&more["kept"], &more["ran"]), (&6.into(), &2.into()));
    let merged =
        roofcast(&format!("simulate {wider} --cells {} --merge --json", folder.path().display())).out;
    assert_eq!(merged, roofcast(&format!("simulate {wider} --json")).out);
    // Another seed makes other cells.
    assert_eq!(share(&format!("{SWEEP} --seed 9"), folder.path())["kept"], 0);
    assert_eq!(share(&format!("{SWEEP} --no-leap"), folder.path())["kept"], 0);
}

#[test]
fn a_share_that_is_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    // Serving the last value step by step takes minutes; the others end at once and are kept at most a second later.
    let sweep = "--no-leap --sweep requests=20,40,60,2000000 --threads 2";
    let mut killed = Command::new(env!("CARGO_BIN_EXE_roofcast"));
    let arguments = format!("simulate {sweep} --cells {}", folder.path().display());
    let mut killed = killed
        .args(arguments.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut waited = 0;
    while kept(folder.path()) == 0 && waited < 600 {
        std::thread::sleep(Duration::from_millis(100));
        waited += 1;
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let run = roofcast(&format!("{arguments} --cell-time-limit 0.5 --json"));
    let again: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert!(again["kept"].as_u64().unwrap() >= 1, "{again}");
    assert_eq!(again["late"], serde_json::json!([3]));
    assert_eq!(run.code, 3);
}

/// A disk that is full ends a share with exit code 2 and the file's name, and leaves no part of a file; with room again all cells
/// are run.
#[test]
fn a_full_disk_leaves_no_part_of_a_cell() {
    let folder = tempfile::tempdir().unwrap();
    let limited = format!(
        "ulimit -f 1; exec {} simulate {SWEEP} --cells {}",
        env!("CARGO_BIN_EXE_roofcast"),
        folder.path().display()
    );
    let refused = Command::new("bash").args(["-c", &limited]).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(".parquet") && said.contains("File too large"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let again = share(SWEEP, folder.path());
    assert_eq!((&again["kept"], &again["ran"]), (&0.into(), &6.into()));
}

#[test]
fn shares_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cells = format!("--cells {}", folder.path().display());
    let file = root().join("README.md");
    for (arguments, told) in [
        (format!("simulate {SWEEP} --shard 1/2"), "--cells"),
        (format!("simulate {SWEEP} {cells} --shard 3/2"), "`--shard` is \"3/2\"; accepted: I/N as 2/8"),
        (format!("simulate {SWEEP} {cells} --numbers 6"), "`--numbers` is 6; accepted: numbers below 6"),
        (format!("simulate {SWEEP} {cells} --csv"), "`--csv` is together with --cells"),
        (format!("simulate {SWEEP} --cells {}", file.display()), "a file; accepted: a folder"),
        (format!("simulate {SWEEP} --merge"), "--cells <FOLDER>"),
        (format!("simulate {SWEEP} {cells} --merge --svg x.svg"), "--svg"),
        (format!("simulate {SWEEP} {cells} --missing"), "--merge"),
    ] {
        let error = bad(&arguments);
        assert!(error.contains(told), "{arguments}: {error}");
    }
    std::fs::write(folder.path().join("x.parquet"), "PAR1").unwrap();
    let error = bad(&format!("simulate {SWEEP} {cells}"));
    assert!(error.contains("x.parquet"), "{error}");
}
