//! Failures of replicas and slow replicas: times by hand, and no request is forgotten.

use super::support::{catalog, model};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::record::Outcome;
use roofcast::simulate::{RunOptions, Simulation, simulate};
use roofcast::{Forecaster, Spec};
use std::sync::Arc;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";
/// Two requests at one time.
const TWO: &str = "requests = 2\ninput_len = 1000\noutput_len = 200\narrivals = { kind = \"offline\" }";

/// Simulates the keys `workload` on `replicas` H100s, or on as many as `keys` say if it is 0, with further `keys`.
fn run(replicas: u64, workload: &str, keys: &str, leap: bool) -> roofcast::Result<Simulation> {
    let replicas = if replicas > 0 { format!("replicas = {replicas}") } else { String::new() };
    let text = format!(
        "[model]\nname = \"{LLAMA}\"\n[hardware]\naccelerator = \"h100-sxm\"\n[parallelism]\n{replicas}\n\
         [workload]\n{workload}\n{keys}"
    );
    let spec = Spec::parse("test", &text)?;
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let deployment = Deployment::resolve(model(LLAMA), accelerator, &DeploymentOptions::of(&spec))?;
    let options = RunOptions { leap, records: true, ..RunOptions::default() };
    simulate(&Forecaster::serving(deployment)?, &spec, "test", options)
}

fn at_the_limit(replicas: u64, workload: &str, keys: &str) -> Simulation {
    run(replicas, workload, &format!("{keys}\n[engine]\ncost = \"limit\""), true).unwrap()
}

/// Milliseconds are equal within the picosecond to which records are rounded.
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-8, "{found} is not {expected}");
}

fn failing(keys: &str) -> String {
    format!("[fleet.failures]\n{keys}")
}

/// One request that takes T alone. Its replica fails after half a second and returns 10 s later: the request begins anew
/// at 10.5 s, so that its times are 10.5 s longer, and the replica was down for 10 s of 10.5 s + T.
#[test]
fn a_request_begins_anew_when_its_replica_returns() {
    let one = TWO.replace("requests = 2", "requests = 1");
    let alone = at_the_limit(1, &one, "");
    let whole = alone.summary.e2el.mean;
    assert!(whole > 500.0, "the failure is within the request: {whole}");
    let failed = at_the_limit(1, &one, &failing("restart_s = 10\nevents = [{ replica = 0, at_s = 0.5 }]"));
    assert!((failed.summary.e2el.mean - (10_500.0 + whole)).abs() < 1e-6);
    assert!((failed.summary.ttft.mean - (10_500.0 + alone.summary.ttft.mean)).abs() < 1e-6);
    let found = failed.fleet.failures.unwrap();
    assert_eq!((found.count, found.retried, found.lost, found.down_s), (1, 1, 0, 10.0));
    assert!((found.availability - (1.0 - 10.0 / (10.5 + whole / 1e3))).abs() < 1e-9);
    assert_eq!((failed.summary.completed, failed.summary.failed), (1, 0));
}

/// A scaled fleet of one replica fails as a fixed one does: the replica is still wanted, so that none starts in its place. Where
/// two are always up the other one serves the request from the failure on, after the 0.5 s; a failure of a replica that
/// does not run is none. Availability is of the replicas that are paid for.
#[test]
fn failures_of_scaled_replicas_by_hand() {
    let one = TWO.replace("requests = 2", "requests = 1");
    let whole = at_the_limit(1, &one, "").summary.e2el.mean;
    let scaled = |min: u64, replica: u64| {
        let autoscale = format!(
            "[fleet.autoscale]\ntarget_in_flight = 1\nmin_replicas = {min}\nmax_replicas = 2\nstartup_s = 1\nidle_s = 1000\n"
        );
        let events = format!("restart_s = 10\nevents = [{{ replica = {replica}, at_s = 0.5 }}]");
        at_the_limit(0, &one, &format!("{autoscale}{}", failing(&events)))
    };
    let alone = scaled(1, 0);
    assert!((alone.summary.e2el.mean - (10_500.0 + whole)).abs() < 1e-6);
    let found = alone.fleet.failures.unwrap();
    assert_eq!((found.count, found.retried, found.down_s), (1, 1, 10.0));
    assert!((found.availability - (1.0 - 10.0 / (10.5 + whole / 1e3))).abs() < 1e-9);
    let beside = scaled(2, 0);
    assert!((beside.summary.e2el.mean - (500.0 + whole)).abs() < 1e-6);
    assert_eq!(beside.records[0].replica, 1);
    let absent = scaled(1, 1);
    assert_eq!((absent.fleet.failures.unwrap().count, absent.summary.e2el.mean), (0, whole));
    let planned = format!(
        "[fleet.schedule]\ninterval_s = 1000\nreplicas = [1]\n{}",
        failing("restart_s = 10\nevents = [{ replica = 0, at_s = 0.5 }]")
    );
    assert_eq!(at_the_limit(0, &one, &planned).summary.e2el.mean, alone.summary.e2el.mean);
}

/// Each of two replicas has one request. Replica 0 fails after half a second: its request is sent to replica 1 or lost.
#[test]
fn requests_of_a_failed_replica_are_sent_again_or_lost() {
    let events = "restart_s = 100\nevents = [{ replica = 0, at_s = 0.5 }]";
    let alone = at_the_limit(2, TWO, "");
    let again = at_the_limit(2, TWO, &failing(events));
    let [first, second] = again.records.as_slice() else { panic!("{:?}", again.records) };
    assert_eq!((first.replica, second.replica, again.summary.completed), (1, 1, 2));
    // The request that moved waits for its prompt's step; the other one's decodes go on beside it.
    assert!(first.ttft().unwrap().ms() > 500.0 && first.e2el().ms() > 500.0 + alone.summary.e2el.mean);
    close(second.ttft().unwrap().ms(), alone.summary.ttft.mean);
    let lost = at_the_limit(2, TWO, &failing(&format!("{events}\nretry = false")));
    let [first, second] = lost.records.as_slice() else { panic!("{:?}", lost.records) };
    assert_eq!(
        (first.outcome, first.finished.ms(), second.outcome),
        (Outcome::Disconnected, 500.0, Outcome::Completed)
    );
    let found = lost.fleet.failures.unwrap();
    assert_eq!((found.retried, found.lost, lost.summary.completed, lost.summary.failed), (0, 1, 1, 1));
    close(second.e2el().ms(), alone.summary.e2el.mean);
}

/// Under every kind of engine, with failures every few seconds, all requests are answered, and leaps change nothing.
#[test]
fn no_request_is_forgotten() {
    let workload = "requests = 150\ninput_len = 600\noutput_len = 150\nprefix = { length = 300 }\n\
                    arrivals = { kind = \"poisson\", rate = 6 }";
    let users = "requests = 100\ninput_len = 300\noutput_len = 150\narrivals = { kind = \"sessions\", concurrency = 5, turns = 3 }";
    let autoscale = "[fleet.autoscale]\ntarget_in_flight = 3\nmax_replicas = 3\nstartup_s = 1\nidle_s = 2";
    let schedule = "[fleet.schedule]\ninterval_s = 4\nreplicas = [1, 3, 2]";
    for (workload, count) in [(workload, 150), (users, 100)] {
        for (replicas, engine) in [
            (2, "[engine]"),
            (2, "[engine]\nscheduler = \"sglang\""),
            (2, "[engine]\nscheduler = \"tensorrt-llm\""),
            (2, "[engine]\nscheduler = \"vllm\"\npolicy = \"priority\""),
            (0, autoscale),
            (0, schedule),
        ] {
            let keys = failing(&format!("mtbf_s = 4\nrestart_s = 1.5\n{engine}"));
            let runs = [true, false].map(|leap| run(replicas, workload, &keys, leap).unwrap());
            let [leaping, stepping] = &runs;
            let found = leaping.fleet.failures.unwrap();
            assert_eq!((leaping.summary.completed, leaping.summary.failed), (count, 0), "{engine}");
            assert!(found.count > 3 && found.retried > 0, "{engine}: {found:?}");
            assert_eq!(
                (leaping.fleet.failures, &leaping.records),
                (stepping.fleet.failures, &stepping.records),
                "{engine}"
            );
        }
    }
}

/// The first of two replicas takes 1.5 times as long for a step; the other one is as before.
#[test]
fn a_slow_replica_takes_its_factor() {
    let forecast = |keys: &str| run(2, TWO, keys, true).unwrap();
    let (equal, slow) = (forecast(""), forecast("[fleet.slow]\nreplicas = 1\nfactor = 1.5"));
    let decode = |run: &Simulation, index: usize| run.records[index].tpot().unwrap().ms();
    assert!(
        (decode(&slow, 0) / decode(&equal, 0) - 1.5).abs() < 0.01,
        "{} {}",
        decode(&slow, 0),
        decode(&equal, 0)
    );
    assert_eq!(decode(&slow, 1), decode(&equal, 1));
}

#[test]
fn failures_that_cannot_be_are_refused() {
    for (keys, parts) in [
        ("[fleet.failures]\nrestart_s = 1", ["fleet.failures.mtbf_s", "either mtbf_s or events"]),
        ("[fleet.failures]\nmtbf_s = 0\nrestart_s = 1", ["fleet.failures.mtbf_s", "1 to 10^12"]),
        ("[fleet.failures]\nmtbf_s = 9\nrestart_s = -1", ["fleet.failures.restart_s", "0 to 86400"]),
        (
            "[fleet.failures]\nrestart_s = 1\nevents = [{ replica = 2, at_s = 1 }]",
            ["fleet.failures.events", "0 to 1"],
        ),
        ("[fleet.slow]\nreplicas = 3\nfactor = 2", ["fleet.slow.replicas", "1 to 2"]),
        ("[fleet.slow]\nreplicas = 1\nfactor = 0.5", ["fleet.slow.factor", "1 to 100"]),
        ("[fleet.slow]\nreplicas = 1\nfactor = 2\n[engine]\ncost = \"limit\"", ["fleet.slow", "limit"]),
        (
            "[fleet.failures]\nmtbf_s = 9\nrestart_s = 1\n[fleet]\nlink = \"nvlink\"\nprefill = {}\ndecode = {}",
            ["fleet.failures", "KV caches under way"],
        ),
    ] {
        let message = run(2, TWO, keys, true).map(|_| ()).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{keys}: {message}");
    }
}
