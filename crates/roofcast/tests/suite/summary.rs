//! The library's summary of a run against vLLM's own, for one set of requests.

use super::support::shared;
use roofcast::record::{Outcome, Record};
use roofcast::spec::Slo;
use roofcast::summary::RunSummary;
use roofcast::units::Picoseconds;
use serde_json::Value;

fn seconds(v: &Value) -> f64 {
    v.as_f64().unwrap()
}

/// Records from one detailed result of vLLM's client.
fn records(run: &Value) -> Vec<Record> {
    let column = |key: &str, i: usize| run[key][i].clone();
    let start = run["start_times"].as_array().unwrap().iter().map(seconds).fold(f64::MAX, f64::min);
    (0..run["start_times"].as_array().unwrap().len())
        .map(|i| {
            let at = |t: f64| Picoseconds::from_seconds(t);
            let sent = seconds(&column("start_times", i)) - start;
            Record {
                id: i as u64,
                outcome: Outcome::Completed,
                input_len: column("input_lens", i).as_u64().unwrap(),
                output_len: column("output_lens", i).as_u64().unwrap(),
                scheduled: at(sent),
                sent: at(sent),
                first_token: Some(at(sent + seconds(&column("ttfts", i)))),
                finished: at(sent + seconds(&column("latencies", i))),
                itl: column("itls", i).as_array().unwrap().iter().map(|t| at(seconds(t))).collect(),
                cached_tokens: 0,
                preemptions: 0,
                replica: 0,
                error: None,
            }
        })
        .collect()
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn vllms_aggregates_come_out_of_its_own_requests() {
    let folder = shared("validation/vllm_bench_json");
    for name in ["c1", "c2", "c4", "c8", "c16"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let run: Value = serde_json::from_str(&text).unwrap();
        let ours = serde_json::to_value(RunSummary::of(&records(&run), &Slo::default())).unwrap();
        let mut compared = 0;
        for (key, value) in ours.as_object().unwrap() {
            // vLLM's duration also includes the start and end of its client.
            let (Some(ours), Some(theirs)) = (value.as_f64(), run[key].as_f64()) else { continue };
            let off = (ours - theirs).abs() / theirs.abs().max(1e-9);
            let most = if key == "duration" || key.ends_with("throughput") { 0.01 } else { 1e-9 };
            assert!(off <= most, "{name} {key}: {ours} against {theirs}");
            compared += 1;
        }
        assert!(compared >= 30, "{name}: only {compared} keys compared");
    }
}
