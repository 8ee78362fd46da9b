//! Replays the inputs that fuzzers kept, for every parser.

use roofcast::testing;
use std::path::Path;

fn replay(target: &str, run: fn(&str)) {
    replay_bytes(target, |bytes| run(&String::from_utf8_lossy(bytes)));
}

fn replay_bytes(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        run(&bytes);
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn configs() {
    replay("config", testing::config);
}

#[test]
fn processors() {
    replay("processor", testing::processor);
}

#[test]
fn specs() {
    replay("spec", testing::spec);
}

#[test]
fn catalogs() {
    replay("catalog", testing::catalog);
}

#[test]
fn traces() {
    replay("trace", testing::trace);
}

#[test]
fn records() {
    replay("records", testing::records);
}

#[test]
fn workloads() {
    replay("workload", testing::workload);
}

#[test]
fn measured() {
    replay("measured", testing::measured);
}

#[test]
fn checkpoints() {
    replay_bytes("checkpoint", testing::checkpoint);
}
