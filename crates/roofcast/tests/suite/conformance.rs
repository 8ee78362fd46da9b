//! Recorded decisions of vLLM's and SGLang's own schedulers, reproduced step for step.

use super::support::{data, shared};
use roofcast::conformance::{compare, parse};
use std::path::Path;

/// Replays every trace in a folder; returns the number of traces.
fn replayed(folder: &Path) -> usize {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "json"));
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
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn every_recorded_step_of_vllm_is_reproduced() {
    let root = shared("conformance/vllm-0.32");
    assert_eq!(replayed(&root.join("public")) + replayed(&root.join("async")), 23);
}

/// Recordings of vLLM 0.33: four of the basic ones differ from 0.32 by its rules; others have windows, groups,
/// adapters, a prefill interval and drafts.
#[test]
fn every_recorded_step_of_the_newest_vllm_is_reproduced() {
    assert_eq!(replayed(&data("conformance/vllm-0.33")), 15);
}

/// The smaller recordings of both schedulers, which are in the repository.
#[test]
fn smaller_recordings_are_reproduced() {
    assert_eq!(replayed(&data("conformance/vllm-0.32")), 15);
    assert_eq!(replayed(&data("conformance/sglang-0.5.23")), 15);
}

/// Scenarios that no recording covers (pages with mixed batches, the overlap loop, retraction and preemption, without a
/// radix tree, older versions), decided by `scripts/sglang_rules.py`. The script implements the rules a second time,
/// token by token, and agrees with the 23 recordings, too. On 2,859 random scenarios both implementations agree.
#[test]
fn scenarios_of_the_rules_written_twice_are_reproduced() {
    assert_eq!(replayed(&data("conformance/sglang-rules")), 15);
}

/// A decision that was changed by hand is found, with its step and field.
#[test]
fn a_changed_decision_is_found() {
    let text = include_str!("../data/conformance/sglang-0.5.23/p02_tiny_retract.json");
    let changed = text.replacen("\"kv\":[156,0]", "\"kv\":[155,1]", 1);
    assert_ne!(text, changed);
    let difference = compare(&parse("changed", &changed).unwrap()).unwrap();
    assert_eq!((difference.step, difference.fields), (3, vec!["kv", "kv_end"]));
    let unknown = text.replacen("sglang-sched-trace/1", "sglang-sched-trace/9", 1);
    let error = parse("changed", &unknown).unwrap_err().to_string();
    assert!(error.contains("sglang-sched-trace/9") && error.contains("vllm-sched-trace/1"), "{error}");
    let wrong = text.replacen("\"page_size\":1", "\"page_size\":0", 1);
    let error = parse("changed", &wrong).unwrap_err().to_string();
    assert!(error.contains("config.page_size"), "{error}");
}

/// A host-tier event that was changed by hand is found: a load of one token less, and a copy that begins elsewhere.
#[test]
fn a_changed_move_between_tiers_is_found() {
    let text = include_str!("../data/conformance/sglang-0.5.23-hicache/c01_tiny.json");
    for (from, to, step, field) in [
        ("\"loads\":[[\"r0003\",0,79]]", "\"loads\":[[\"r0003\",0,78]]", 30, "loads"),
        ("\"stores\":[[1,64,5]]", "\"stores\":[[1,63,5]]", 5, "stores"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed);
        let difference = compare(&parse("changed", &changed).unwrap()).unwrap();
        assert_eq!((difference.step, difference.fields), (step, vec![field]));
    }
    let wrong = text.replacen("\"hicache_ratio\":3.0", "\"hicache_ratio\":-1.0", 1);
    let error = parse("changed", &wrong).unwrap_err().to_string();
    assert!(error.contains("config.hicache_ratio"), "{error}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn every_recorded_step_of_sglang_is_reproduced() {
    let root = shared("conformance/sglang-0.5.23");
    assert_eq!(replayed(&root.join("public")), 23);
}

/// Recordings with HiCache's host tier: three write policies, both loops, pages of 16, a host pool smaller than the
/// device's.
#[test]
fn every_recorded_step_of_hicache_is_reproduced() {
    assert_eq!(replayed(&data("conformance/sglang-0.5.23-hicache")), 8);
}

/// vLLM's decisions with the OffloadingConnector's host tier: LRU and ARC, chunks of several blocks, synchronous loads,
/// asynchronous scheduling, slow stores, groups of layers with and without a window.
#[test]
fn every_recorded_step_of_vllms_host_tier_is_reproduced() {
    assert_eq!(replayed(&data("conformance/vllm-0.33-tier")), 13);
}
