//! Recorded sessions of agents: published files read whole, and replayed on replicas.

use super::fleets::{deployment, holds};
use super::support::shared;
use roofcast::parallelism::RequestedParallelism;
use roofcast::router::Routing;
use roofcast::simulate::Simulation;
use roofcast::spec::{EngineSpec, FleetSpec};
use roofcast::workload::{Trace, Workload};
use roofcast::{Error, Spec};

const WEKA: &str = "traces/agentic/weka";

/// The workload that replays `text` with `concurrency` sessions in progress.
fn replayed(text: &str, concurrency: u64) -> Workload {
    let keys = format!(
        "[workload]\narrivals = {{ kind = \"trace\", path = \"t.jsonl\", concurrency = {concurrency} }}\n"
    );
    let mut workload = Spec::parse("test", &keys).unwrap().workload.unwrap();
    workload.load("test", |_| Ok::<_, Error>(text.to_owned())).unwrap();
    let requests = Trace::parse("t", text, None).unwrap().requests.len() as u64;
    Workload { requests: Some(requests), ..workload }
}

fn served(workload: &Workload, replicas: u64, router: Routing) -> Simulation {
    let engine = EngineSpec { num_gpu_blocks: Some(200_000), ..EngineSpec::default() };
    let parallelism = RequestedParallelism { replicas: Some(replicas), ..RequestedParallelism::default() };
    holds(&deployment(parallelism, engine), workload, FleetSpec { router, ..FleetSpec::default() })
}

/// Counts, and the hit rate of an unlimited cache, as other code computed them from the files (`weka_summary.csv`):
/// requests, sub-agents, prompt tokens, output tokens, fraction of prompt blocks found.
#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn published_sessions_are_read_whole_and_find_what_they_repeat() {
    let published = [
        ("trace_0274.json", 105, 3, 5_990_912, 48_868, 0.9527),
        ("trace_0277.json", 53, 4, 2_576_410, 31_862, 0.8735),
        ("trace_0291.json", 32, 2, 2_254_119, 19_504, 0.8976),
    ];
    for (file, requests, sub_agents, input, output, hits) in published {
        let path = shared(&format!("{WEKA}/{file}"));
        let text = std::fs::read_to_string(path).unwrap();
        let trace = Trace::parse(file, &text, None).unwrap();
        assert_eq!(trace.sessions.iter().filter(|session| session.spawned).count(), sub_agents, "{file}");
        let sums = trace
            .requests
            .iter()
            .fold((0, 0), |(i, o), r| (i + u64::from(r.input_len), o + u64::from(r.output_len)));
        assert_eq!((trace.requests.len(), sums), (requests, (input, output)), "{file}");
        let run = served(&replayed(&text, 1), 1, Routing::RoundRobin);
        // Blocks of 16 tokens find slightly more than the file's blocks of 64, and the last token of a prompt is always
        // computed.
        let found = run.activity.cached_tokens as f64 / input as f64;
        assert!((found - hits).abs() < 0.01, "{file}: {found} found, {hits} published");
        assert_eq!(run.sessions.unwrap().completed, 1);
    }
}

/// Two sessions of two turns; the second turns begin 4 s and 2 s after the answers before them.
const TURNS: &str = r#"{"session_id":"a","input_length":1024,"output_length":20,"hash_ids":[0,1],"timestamp":0}
{"session_id":"a","input_length":100,"output_length":20,"delay":4000}
{"session_id":"b","input_length":1024,"output_length":20,"hash_ids":[0,2],"timestamp":0}
{"session_id":"b","input_length":100,"output_length":20,"delay":2000}
"#;

/// One session is in progress at a time: it lasts its waits and its answers, and the second begins when the first ends.
/// A second turn finds the shared block 0 and everything said before, 1024 + 20 of 1144 tokens, less the last partial
/// block; b's first turn finds 512 tokens.
#[test]
fn a_task_lasts_its_waits_and_its_answers() {
    let run = served(&replayed(TURNS, 1), 1, Routing::RoundRobin);
    let sessions = run.sessions.unwrap();
    assert_eq!(sessions.completed, 2);
    let answers: f64 = run.records.iter().map(|r| (r.finished.0 - r.sent.0) as f64 / 1e12).sum();
    assert!((sessions.mean_task_s - (4.0 + 2.0 + answers) / 2.0).abs() < 1e-3, "{sessions:?} {answers}");
    // 1044 tokens fill 65 blocks of 16, 1040 tokens; the last generated token is never in the cache.
    let found: Vec<u64> = run.records.iter().map(|r| r.cached_tokens).collect();
    assert_eq!(found, [0, 1040, 512, 1040]);
}

/// Several sessions on two replicas: leaping equals stepping, and routing a session to one replica finds more cached
/// tokens.
#[test]
fn sessions_that_stay_find_more() {
    let text: String = (0..12)
        .map(|n| TURNS.replace("\"a\"", &format!("\"a{n}\"")).replace("\"b\"", &format!("\"b{n}\"")))
        .collect();
    let workload = replayed(&text, 5);
    let [turns, sticky] =
        [Routing::RoundRobin, Routing::SessionSticky].map(|router| served(&workload, 2, router));
    assert_eq!([&turns, &sticky].map(|s| s.sessions.unwrap().completed), [24, 24]);
    assert!(sticky.activity.cached_tokens >= turns.activity.cached_tokens);
}

#[test]
fn sessions_take_no_lengths_and_no_pauses_of_users() {
    let refused = |keys: &str, text: &str| {
        let mut workload = Spec::parse("test", keys).unwrap().workload.unwrap();
        let loaded = workload.load("test", |_| Ok::<_, Error>(text.to_owned()));
        let checked = loaded.and_then(|()| roofcast::workload::Traffic::new(&workload, "test").map(drop));
        checked.unwrap_err().to_string()
    };
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t\" }\ninput_len = 5\noutput_len = 5\n";
    assert!(refused(keys, TURNS).contains("no input_len"));
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t\", concurrency = 3, think_s = 1 }\n";
    assert!(refused(keys, TURNS).contains("workload.arrivals.think_s"));
}
