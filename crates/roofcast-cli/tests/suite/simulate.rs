//! `roofcast simulate` as a user meets it: what it writes beside the summary.

use crate::support::{json, roofcast};
use roofcast::record::{Format, Record, Records};
use roofcast::summary::Summary;
use std::path::{Path, PathBuf};

/// A folder for a run's files, and a file of it.
fn folder(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Runs the default workload's first requests; the answer.
fn simulate(requests: u64, flags: &str) -> serde_json::Value {
    let (answer, code) = json(&format!("simulate --requests {requests} {flags}"));
    assert_eq!(code, 0);
    answer
}

#[test]
fn records_in_either_form_are_the_same_and_add_up_to_the_summary() {
    let (_lines, jsonl) = folder("r.jsonl");
    let (_table, csv) = folder("r.csv");
    let answer = simulate(300, &format!("--records {}", jsonl.display()));
    simulate(300, &format!("--records {}", csv.display()));
    let parsed = |path: &Path, format| -> Vec<Record> {
        Records::new("r", read(path).as_bytes(), format).map(|r| r.unwrap()).collect()
    };
    let records = parsed(&jsonl, Format::JsonLines);
    assert_eq!(records, parsed(&csv, Format::Csv));
    assert_eq!(records.len(), 300);
    let summary = Summary::of(&records, &roofcast::spec::Slo::default());
    let near = |key: &str, expected: f64| {
        let found = answer[key].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{key}: {found} is not {expected}");
    };
    near("mean_ttft_ms", summary.ttft.mean);
    near("p99_e2el_ms", summary.e2el.p99);
    near("output_throughput", summary.output_throughput());
}

#[test]
fn a_form_of_records_that_is_not_there_is_refused_before_the_run() {
    let (folder, path) = folder("r.xlsx");
    let run = roofcast(&format!("simulate --records {}", path.display()));
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    for part in ["--records", "r.xlsx", ".jsonl", ".csv", ".parquet"] {
        assert!(run.err.contains(part), "{part} is not in {}", run.err);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
