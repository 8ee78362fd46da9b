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
            assert_eq!(
                (leaping.kv_cache, leaping.activity),
                (stepping.kv_cache, stepping.activity),
                "{engine}"
            );
        }
    }
}

/// Requests of which a preemption dropped the cache wait when their replica fails: the tokens are not recomputed, with and
/// without leaps.
#[test]
fn dropped_tokens_of_lost_requests_are_not_recomputed() {
    let workload =
        "requests = 400\ninput_len = 600\noutput_len = 300\narrivals = { kind = \"poisson\", rate = 20 }";
    for engine in ["", "scheduler = \"vllm-v0\"", "scheduler = \"tensorrt-llm-max-utilization\""] {
        for seed in 0..3 {
            let keys =
                failing(&format!("mtbf_s = 5\nrestart_s = 1\n[engine]\nnum_gpu_blocks = 300\n{engine}"));
            let workload = format!("{workload}\nseed = {seed}");
            let [leaping, stepping] = [true, false].map(|leap| run(6, &workload, &keys, leap).unwrap());
            assert!(
                leaping.activity.preemptions > 0 && leaping.fleet.failures.unwrap().retried > 0,
                "{engine}"
            );
            assert_eq!(
                (leaping.kv_cache, leaping.activity),
                (stepping.kv_cache, stepping.activity),
                "{engine}"
            );
        }
    }
}

/// Two prompts of 1000 tokens in blocks of 16 decode 200 tokens. Their replica fails in the middle of a leap, and they are
/// lost: the account of the KV cache is that of the steps until then.
#[test]
fn a_cut_leap_is_accounted() {
    for engine in ["", "[engine]\nscheduler = \"vllm-v0\"", "[engine]\nscheduler = \"orca\""] {
        let keys = failing(&format!("restart_s = 3\nevents = [{{ replica = 0, at_s = 0.5 }}]\n{engine}"));
        let [leaping, stepping] = [true, false].map(|leap| run(1, TWO, &keys, leap).unwrap());
        assert_eq!((leaping.kv_cache, leaping.activity), (stepping.kv_cache, stepping.activity), "{engine}");
    }
    // Nothing but the failed attempt is left: a block of 16 slots for each context c wastes ⌈c/16⌉ · 16 − c.
    let one = TWO.replace("requests = 2", "requests = 1");
    let keys = failing("restart_s = 3\nretry = false\nevents = [{ replica = 0, at_s = 0.5 }]");
    for leap in [true, false] {
        let found = run(1, &one, &keys, leap).unwrap();
        assert!(found.kv_cache.internal_fragmentation > 0.0, "{:?}", found.kv_cache);
    }
}

/// A request of about 10 s is not answered by a replica that fails every second: it survives exp(−10) of its attempts.
/// One that is lost is not sent again without a retry, so that such a run ends by itself.
#[test]
fn requests_longer_than_their_replicas_live_end_the_run() {
    let long =
        "requests = 20\ninput_len = 16\noutput_len = 1500\narrivals = { kind = \"poisson\", rate = 3 }";
    let keys = |retry: bool| failing(&format!("mtbf_s = 1\nrestart_s = 1\nretry = {retry}"));
    for leap in [true, false] {
        let message = run(1, long, &keys(true), leap).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("100 failures") && message.contains("`fleet.failures.mtbf_s`"), "{message}");
    }
    let lost = run(1, long, &keys(false), true).unwrap();
    assert_eq!(lost.summary.completed + lost.summary.failed, 20);
}

/// The run ends with its last answer or loss: a replica that fails then and returns later was not down in the run.
#[test]
fn availability_is_a_fraction() {
    let short =
        "requests = 60\ninput_len = 16\noutput_len = 300\narrivals = { kind = \"poisson\", rate = 3 }";
    for seed in 0..8 {
        let workload = format!("{short}\nseed = {seed}");
        for (mtbf_s, restart_s) in [(1, 5), (2, 5), (20, 100)] {
            let keys = failing(&format!("mtbf_s = {mtbf_s}\nrestart_s = {restart_s}\nretry = false"));
            let failures = run(1, &workload, &keys, true).unwrap().fleet.failures.unwrap();
            assert!((0.0..=1.0).contains(&failures.availability), "{failures:?}");
        }
    }
    // One request that is lost after half a second: the run ends there, and its replica was up until then.
    let one = TWO.replace("requests = 2", "requests = 1");
    let keys = failing("restart_s = 5\nretry = false\nevents = [{ replica = 0, at_s = 0.5 }]");
    let failures = run(1, &one, &keys, true).unwrap().fleet.failures.unwrap();
    assert_eq!((failures.lost, failures.down_s, failures.availability), (1, 0.0, 1.0));
    // One replica is down from 0.5 s on, the other one serves the second request, of `whole` seconds, alone.
    let whole = at_the_limit(2, TWO, "").summary.e2el.mean / 1e3;
    let failures = at_the_limit(2, TWO, &keys).fleet.failures.unwrap();
    assert!((failures.down_s - (whole - 0.5)).abs() < 1e-9);
    assert!((failures.availability - (1.0 - (whole - 0.5) / (2.0 * whole))).abs() < 1e-9);
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
