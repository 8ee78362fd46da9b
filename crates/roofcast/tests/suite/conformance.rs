//! vLLM's own decisions, step for step.

use super::support::shared;
use roofcast::conformance::{compare, parse};

#[test]
fn every_recorded_step_of_vllm_is_reproduced() {
    let Some(root) = shared("conformance/vllm-0.32") else { return };
    let mut count = 0;
    for folder in ["public", "async"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
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
    }
    assert_eq!(count, 23);
}
