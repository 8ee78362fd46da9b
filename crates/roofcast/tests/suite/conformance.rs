//! vLLM's and SGLang's own decisions, step for step.

use super::support::shared;
use roofcast::conformance::{compare, parse};
use std::path::Path;

/// Replays every trace of a folder; how many there were.
fn replayed(folder: &Path) -> usize {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        let place = path.display().to_string();
        let trace = parse(&place, &std::fs::read_to_string(path).unwrap()).unwrap();
        if let Some(d) = compare(&trace) {
            let show =
                |s: &Option<serde_json::Value>| s.as_ref().map(ToString::to_string).unwrap_or_default();
            panic!(
                "{}: step {}: {:?}\nrecorded {}\nreplayed {}",
                trace.name(),
                d.step,
                d.fields,
                show(&d.recorded),
                show(&d.replayed)
            );
        }
    }
    paths.len()
}

#[test]
fn every_recorded_step_of_vllm_is_reproduced() {
    let Some(root) = shared("conformance/vllm-0.32") else { return };
    assert_eq!(replayed(&root.join("public")) + replayed(&root.join("async")), 23);
}

#[test]
fn every_recorded_step_of_sglang_is_reproduced() {
    let Some(root) = shared("conformance/sglang-0.5.23") else { return };
    assert_eq!(replayed(&root.join("public")), 23);
}
