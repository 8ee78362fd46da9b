//! vLLM's own decisions, step for step.

use super::support::{data, shared};
use roofcast::conformance::{compare, parse};
use std::path::Path;

/// Replays every trace of a folder; how many there were.
fn replayed(folder: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let place = path.display().to_string();
        let trace = parse(&place, &std::fs::read_to_string(&path).unwrap()).unwrap();
        if let Some(d) = compare(&trace) {
            panic!(
                "{}: step {}: {:?}\nrecorded {:?}\nreplayed {:?}",
                trace.name, d.step, d.fields, d.recorded, d.replayed
            );
        }
        count += 1;
    }
    count
}

#[test]
fn every_recorded_step_of_vllm_is_reproduced() {
    let Some(root) = shared("conformance/vllm-0.32") else { return };
    assert_eq!(replayed(&root.join("public")) + replayed(&root.join("async")), 23);
}

/// The same of the few traces that a clone carries.
#[test]
fn recorded_steps_beside_the_tests_are_reproduced() {
    assert_eq!(replayed(&data("conformance/vllm-0.32")), 4);
}
