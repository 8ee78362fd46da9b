//! Replicas over time: schedules of a fleet, and the schedule that a plan finds.

use crate::support::model;
use roofcast::catalog::Catalog;
use roofcast::plan::{OverTime, Plan, PlanQuestion, plan, step_band};
use roofcast::simulate::{RunOptions, simulate};
use roofcast::{Deployment, Error, Forecaster, Spec, deployment};
use std::fmt::Write as _;
use std::sync::Arc;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

/// Requests of 1000 prompt and 100 output tokens, `per_s[k]` in each second of minute `k`.
fn minutes(per_s: &[u64]) -> String {
    let mut text = "arrival_s,input_len,output_len\n".to_owned();
    for (minute, rate) in per_s.iter().enumerate() {
        for n in 0..rate * 60 {
            let _ = writeln!(text, "{},1000,100", minute as f64 * 60.0 + n as f64 / *rate as f64);
        }
    }
    text
}

fn spec(trace: &str, rest: &str) -> Spec {
    let text = format!("workload.arrivals = {{ kind = \"trace\", path = \"t.csv\" }}\n{rest}");
    let mut spec = Spec::parse("plan.toml", &text).unwrap();
    let workload = spec.workload.as_mut().unwrap();
    workload.load("plan.toml", |_| Ok::<_, Error>(trace.to_owned())).unwrap();
    spec
}

fn planned(trace: &str, search: &str) -> Result<Plan, Error> {
    let search = format!(
        "slo = {{ ttft_p99_ms = 1000, tpot_p99_ms = 40 }}\n[search]\naccelerators = [\"l40s\"]\ntp = [1]\n\
         max_num_batched_tokens = [8192]\nconfidence = 0\n{search}\n"
    );
    plan(&spec(trace, &search), &model(LLAMA), Catalog::embedded()?, &PlanQuestion::default())
}

fn over_time(trace: &str, search: &str) -> OverTime {
    planned(trace, search).unwrap().over_time.unwrap()
}

/// A busy minute between two quiet ones: the schedule follows the load and meets the SLO.
#[test]
fn replicas_follow_the_load_and_the_whole_keeps_the_slo() {
    let trace = minutes(&[1, 16, 1]);
    let found = over_time(&trace, "interval_s = 60\nstartup_s = 0");
    let replicas: Vec<u64> = found.intervals.iter().map(|i| i.replicas).collect();
    let [quiet, busy, after] = replicas[..] else { panic!("{replicas:?}") };
    assert!(quiet == 1 && busy > 1 && after < busy && found.meets, "{found:?}");
    assert_eq!(found.intervals.iter().map(|i| i.requests).collect::<Vec<_>>(), [60, 960, 60]);
    for interval in &found.intervals {
        assert!(interval.alone.unwrap() <= interval.replicas, "{interval:?}");
        assert!(interval.bounds.iter().all(|bound| bound.ms <= bound.most_ms), "{interval:?}");
    }
    assert_eq!(found.peak_accelerators, busy);
    // At most the peak's replicas all the time; at least the replicas that accept requests for 180 s. The rest is the
    // time of the last answers.
    let hours = replicas.iter().sum::<u64>() as f64 * 60.0 / 3600.0;
    assert!(found.accelerator_hours > 0.95 * hours && found.accelerator_hours < 1.1 * hours, "{found:?}");
    assert!(found.accelerator_hours < found.constant_accelerator_hours);
}

/// At the default confidence of 80 % steps take the 80th percentile of measured over forecast times. Its normal deviate
/// is 0.8416, that of the band's 90th percentile 1.2816. The quiet minutes keep their replica, the busy one does not.
#[test]
fn a_schedule_has_the_confidence_of_the_plan() {
    let trace = minutes(&[1, 16]);
    let sure = planned(&trace, "interval_s = 60\nmax_accelerators = 32").unwrap();
    let replicas = |found: &OverTime| found.intervals.iter().map(|i| i.replicas).collect::<Vec<_>>();
    let likely = "interval_s = 60\nmax_accelerators = 32";
    let text = "slo = { ttft_p99_ms = 1000, tpot_p99_ms = 40 }\n[search]\naccelerators = [\"l40s\"]\ntp = [1]\n\
                max_num_batched_tokens = [8192]\n";
    let spec = spec(&trace, &format!("{text}{likely}\n"));
    let found = plan(&spec, &model(LLAMA), Catalog::embedded().unwrap(), &PlanQuestion::default()).unwrap();
    let (asked, sure) = (found.over_time.unwrap(), sure.over_time.unwrap());
    assert_eq!((sure.slower, sure.confidence, asked.confidence), (1.0, 0.0, 0.8));
    let chip = Arc::new(Catalog::embedded().unwrap().accelerator("l40s").unwrap().clone());
    let deployment =
        Deployment::resolve(model(LLAMA), chip, &deployment::DeploymentOptions::of(&spec)).unwrap();
    let [fast, slow] = step_band(&Forecaster::embedded(deployment).unwrap()).unwrap().map(f64::ln);
    let slower = (fast.midpoint(slow) + 0.8416 / 1.2816 * (slow - fast) / 2.0).exp();
    assert!((asked.slower - slower).abs() < 1e-3, "{} {slower}", asked.slower);
    assert!(
        replicas(&asked)[1] > replicas(&sure)[1] && asked.meets,
        "{:?} {:?}",
        replicas(&asked),
        replicas(&sure)
    );
}

/// The last minute of a trace has requests for its first 15 s alone.
#[test]
fn the_last_interval_ends_with_the_arrivals() {
    let rows = (0..75).map(|n| format!("{n},1000,100\n")).collect::<String>();
    let found = over_time(&format!("arrival_s,input_len,output_len\n{rows}"), "interval_s = 60");
    let spans: Vec<_> = found.intervals.iter().map(|i| (i.from_s, i.to_s, i.requests)).collect();
    assert_eq!(spans, [(0.0, 60.0, 60), (60.0, 74.0, 15)]);
}

/// Each replica except the first starts 20 s earlier than it is needed, and costs 20 s more.
#[test]
fn a_start_up_is_paid_for() {
    let trace = minutes(&[1, 16, 1]);
    let [at_once, slow] =
        ["startup_s = 0", "startup_s = 20"].map(|s| over_time(&trace, &format!("interval_s = 60\n{s}")));
    let replicas = |found: &OverTime| found.intervals.iter().map(|i| i.replicas).collect::<Vec<_>>();
    assert_eq!(replicas(&at_once), replicas(&slow));
    let started = (replicas(&slow)[1] - replicas(&slow)[0]) as f64;
    let more = (slow.accelerator_hours - at_once.accelerator_hours) * 3600.0;
    assert!((more - started * 20.0).abs() < 1e-6, "{more} s, {started} started");
}

/// Without a given time, a start is that of a replica whose weights come from a network volume: 16.06 GB at 1.05 GB/s are
/// 15.3 s, and vLLM takes 58.1 s more.
#[test]
fn a_start_takes_the_time_of_a_replica_by_default() {
    let found = over_time(&minutes(&[1, 2]), "interval_s = 60");
    assert!((found.startup_s - 73.4).abs() < 0.1, "{}", found.startup_s);
}

/// The plan's schedule, simulated by itself, meets the SLO; with two replicas less at the peak it does not.
#[test]
fn a_schedule_is_simulated() {
    let trace = minutes(&[1, 16, 1]);
    let found = over_time(&trace, "interval_s = 60\nstartup_s = 0");
    let mut replicas: Vec<u64> = found.intervals.iter().map(|i| i.replicas).collect();
    let run = |replicas: &[u64]| {
        let rest = format!(
            "engine.max_num_batched_tokens = 8192\nfleet.schedule = {{ interval_s = 60, replicas = {replicas:?} }}\n\
             slo = {{ ttft_p99_ms = 1000, tpot_p99_ms = 40 }}\n"
        );
        let spec = spec(&trace, &rest);
        let chip = Arc::new(Catalog::embedded().unwrap().accelerator("l40s").unwrap().clone());
        let deployment =
            Deployment::resolve(model(LLAMA), chip, &deployment::DeploymentOptions::of(&spec)).unwrap();
        let options = RunOptions { leap: true, records: true, ..RunOptions::default() };
        simulate(&Forecaster::embedded(deployment).unwrap(), &spec, "t", options).unwrap()
    };
    let whole = run(&replicas);
    assert!(whole.summary.ttft.p99 <= 1000.0 && whole.summary.tpot.p99 <= 40.0);
    let used = whole.fleet.autoscale.unwrap();
    assert_eq!(used.replica_seconds / 3600.0, found.accelerator_hours);
    assert_eq!(used.started, replicas[1] - replicas[0]);
    // In the first minute only the first replica serves requests.
    let first = whole.records.iter().filter(|r| r.sent.seconds() < 60.0);
    assert!(first.map(|r| r.replica).all(|replica| replica < replicas[0]));
    replicas[1] = replicas[1].saturating_sub(2).max(1);
    let fewer = run(&replicas).summary;
    assert!(fewer.ttft.p99 > 1000.0 || fewer.tpot.p99 > 40.0, "{fewer:?}");
}

#[test]
fn questions_over_time_that_cannot_be() {
    let trace = minutes(&[1]);
    let refused = |search: &str| planned(&trace, search).unwrap_err().to_string();
    assert!(refused("startup_s = 3").contains("search.interval_s"));
    assert!(refused("interval_s = 0").contains("0.001 to 86400 seconds"));
    assert!(refused("interval_s = 0.01").contains("at most 2000"));
    assert!(refused("interval_s = 60\ndisaggregated = true").contains("equal replicas"));
    let schedule = |text: &str| {
        let spec = spec(&trace, &format!("fleet.schedule = {text}"));
        let chip = Arc::new(Catalog::embedded().unwrap().accelerator("l40s").unwrap().clone());
        let deployment =
            Deployment::resolve(model(LLAMA), chip, &deployment::DeploymentOptions::of(&spec)).unwrap();
        simulate(&Forecaster::embedded(deployment).unwrap(), &spec, "t", RunOptions::default())
    };
    let told = |text: &str| schedule(text).unwrap_err().to_string();
    assert!(told("{ interval_s = 60, replicas = [] }").contains("fleet.schedule.replicas"));
    assert!(told("{ interval_s = 60, replicas = [0] }").contains("1 to 1024"));
}
