//! Every key of a spec is in the table, once.

use super::*;
use crate::spec::Spec;

/// The keys that a section accepts, taken from the error message about an unknown key.
fn accepted(section: &str, with: &str) -> Vec<String> {
    let text = format!("[{section}]\nno_such_key = 1\n{with}");
    let message = toml::from_str::<Spec>(&text).unwrap_err().message().to_owned();
    let (_, list) = message.split_once("expected").unwrap_or_else(|| panic!("{section}: {message}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_a_spec_is_here() {
    // Other names of max_num_seqs and block_size, and keys that are sections.
    let others = [
        "max_running_requests",
        "page_size",
        "speculative",
        "length_prediction",
        "vllm",
        "sglang",
        "tensorrt-llm",
        "llama-cpp",
        "target_ongoing_requests",
    ];
    let sections = [
        "experts",
        "arrivals",
        "adapters",
        "images",
        "prefix",
        "prefill",
        "decode",
        "beside",
        "autoscale",
        "hpa",
        "scale_up",
        "scale_down",
        "keda",
        "ray-serve",
        "dynamo",
        "schedule",
        "failures",
        "slow",
        "rate_limit",
        "routing",
    ];
    let mut count = 0;
    for (section, with) in [
        ("model", ""),
        ("hardware", ""),
        ("precision", ""),
        ("parallelism", ""),
        ("engine", ""),
        ("engine.speculative", ""),
        ("engine.experts", ""),
        ("engine.vllm", ""),
        ("engine.sglang", ""),
        ("engine.tensorrt-llm", ""),
        ("engine.llama-cpp", ""),
        ("workload", ""),
        ("workload.prefix", "length = 1\n"),
        ("workload.adapters", "count = 1\n"),
        ("workload.images", ""),
        ("fleet", ""),
        ("fleet.prefill", ""),
        ("fleet.decode", ""),
        ("fleet.beside", ""),
        ("fleet.autoscale", ""),
        ("fleet.autoscale.hpa", ""),
        ("fleet.autoscale.hpa.scale_up", ""),
        ("fleet.autoscale.hpa.scale_down", ""),
        ("fleet.autoscale.keda", ""),
        ("fleet.autoscale.ray-serve", ""),
        ("fleet.autoscale.dynamo", ""),
        ("fleet.schedule", ""),
        ("fleet.failures", ""),
        ("fleet.slow", ""),
        ("fleet.rate_limit", ""),
        ("fleet.routing", ""),
        ("slo", ""),
        ("search", ""),
    ] {
        for name in accepted(section, with) {
            if others.contains(&name.as_str()) || sections.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{section}.{name}");
            // `fleet.beside.router` is refused, because one router serves all replicas.
            if path == "fleet.beside.router" {
                continue;
            }
            assert!(KEYS.iter().any(|key| key.path == path), "{path} is not in KEYS");
            count += 1;
        }
    }
    assert!(count > 90, "{count}");
}

#[test]
fn flags_are_unique_but_for_a_plans_lists() {
    for key in KEYS {
        let same = KEYS.iter().filter(|k| k.path == key.path).count();
        assert_eq!(same, 1, "{}", key.path);
        let Some(flag) = key.flag else { continue };
        let owners = KEYS.iter().filter(|k| k.flag == Some(flag) && k.section() != "search").count();
        assert!(owners <= 1, "--{flag}");
    }
    assert_eq!(find("max_num_seqs").unwrap().path, "engine.max_num_seqs");
    assert_eq!(find("engine.max_num_seqs").unwrap().path, "engine.max_num_seqs");
    assert_eq!(find("tp").unwrap().path, "parallelism.tp");
    assert_eq!(find("nothing"), None);
}
