//! Autoscaling: the number of replicas over time, and their cost.

use super::fleets::{ONE, close, deployment, holds, run, spec};
use super::runs::{same, workloads};
use proptest::prelude::*;
use roofcast::parallelism::RequestedParallelism;
use roofcast::router::Routing;
use roofcast::spec::settings::{Setting, lay};
use roofcast::spec::{AutoscaleRule, AutoscaleSpec, EngineSpec, FleetSpec};
use roofcast::units::Picoseconds;
use roofcast::{Error, Spec};

/// Requests of 100 prompt tokens, of which all share 64, and 10 output tokens, at the given times in seconds.
fn at(times: &[f64]) -> roofcast::workload::Workload {
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\ninput_len = 36\noutput_len = 10\n\
                prefix = { length = 64, count = 1, share = 1.0 }\n";
    let mut workload = Spec::parse("test", keys).unwrap().workload.unwrap();
    let rows: String = times.iter().map(|t| format!("{t},36,10\n")).collect();
    let text = format!("arrival_s,input_len,output_len\n{rows}");
    workload.load("test", |_| Ok::<_, Error>(text.clone())).unwrap();
    workload
}

/// Autoscaling that starts replicas on arrivals, with the fewest and the most replicas in `bounds`.
fn immediate(target: u64, bounds: [u64; 2], startup_s: f64, idle_s: f64) -> AutoscaleSpec {
    let [min, max] = bounds;
    let keys = format!(
        "target_in_flight = {target}\nmin_replicas = {min}\nmax_replicas = {max}\nstartup_s = {startup_s:?}\n\
         idle_s = {idle_s:?}"
    );
    toml::from_str(&keys).unwrap()
}

fn scaled(autoscale: AutoscaleSpec, router: Routing) -> FleetSpec {
    FleetSpec { autoscale: Some(autoscale), router, ..FleetSpec::default() }
}

fn seconds(time: Picoseconds) -> f64 {
    time.ms() / 1e3
}

/// A day with at most two replicas; a request takes about 50 ms.
#[test]
fn a_day_of_two_replicas() {
    let deployment = deployment(RequestedParallelism::default(), EngineSpec::default());
    let autoscale = immediate(1, [1, 3], 10.0, 5.0);
    let workload = at(&[1.0, 1.01, 9.0, 21.0, 30.0, 30.01, 42.0, 42.01, 60.0, 60.01, 72.0, 72.01]);
    let run = run(&deployment, &workload, scaled(autoscale, Routing::LeastLoaded), true);
    let records = &run.records;
    // 1.01: two requests are in flight, so the second replica starts, and is ready at 11.01; until then the first
    // serves alone. 9 and 21: one is in flight, so the first serves, and the second stops at 16.01, after 5 s without a
    // request. 30.01: two are in flight, so the second starts again, ready at 40.01. 42: one is in flight, so the first
    // serves. 42.01: the second serves, and stops 5 s after its answer. 60.01, 72 and 72.01 repeat this.
    assert!(records.iter().map(|r| r.replica).eq([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]), "{records:?}");
    // A replica loses its cache when it stops: all requests find 64 tokens, except the first after each start.
    let found = records.iter().map(|r| r.cached_tokens / 64);
    assert!(found.eq([0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0]), "{records:?}");
    let finished = |n: usize| seconds(records[n].finished);
    let end = finished(11);
    let up = (end - 1.0) + (16.01 - 1.01) + (finished(7) + 5.0 - 30.01) + (end - 60.01);
    let used = run.fleet.autoscale.unwrap();
    close(used.replica_seconds, up);
    close(used.mean_replicas, up / (end - 1.0));
    assert_eq!((used.max_replicas, used.started, used.stopped), (2, 3, 2));
    // Replicas cost while they are up, including start-up, and use busy or idle power for that time.
    let price = deployment.accelerator.price.as_ref().unwrap().usd_per_hour;
    close(run.expense.dollars_per_million_output_tokens.unwrap(), price * up / 3600.0 / 120.0 * 1e6);
    close(run.time.busy_s() + run.time.idle_s, up);
}

fn autoscales() -> impl Strategy<Value = AutoscaleSpec> {
    (1_u64..6, 1_u64..4, 0_u64..4, 0.0_f64..2.0, 0.0_f64..2.0).prop_map(
        |(target, min, more, startup_s, idle_s)| immediate(target, [min, min + more], startup_s, idle_s),
    )
}

fn routers() -> impl Strategy<Value = Routing> {
    use Routing::{LeastLoaded, PowerOfTwo, PrefixAware, RoundRobin, SessionSticky};
    proptest::sample::select(vec![RoundRobin, LeastLoaded, PowerOfTwo, PrefixAware, SessionSticky])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Stepping, leaping and a second leaping run agree, nothing is lost, and the number of replicas is within its
    /// bounds.
    #[test]
    fn scaling_loses_nothing(workload in workloads(), autoscale in autoscales(), router in routers()) {
        let engine = EngineSpec { num_gpu_blocks: Some(200), max_num_seqs: Some(8), ..EngineSpec::default() };
        let deployment = deployment(RequestedParallelism::default(), engine);
        let run = holds(&deployment, &workload, scaled(autoscale.clone(), router));
        let (used, duration) = (run.fleet.autoscale.unwrap(), run.summary.duration);
        prop_assert!(run.records.iter().all(|r| r.replica < used.max_replicas));
        prop_assert!((autoscale.min_replicas..=autoscale.max_replicas).contains(&used.max_replicas));
        prop_assert!(used.replica_seconds >= autoscale.min_replicas as f64 * duration * (1.0 - 1e-9));
        prop_assert!(used.replica_seconds <= used.max_replicas as f64 * duration * (1.0 + 1e-9));
        prop_assert!(used.max_replicas <= autoscale.min_replicas + used.started);
        prop_assert!(used.stopped <= used.started);
        let time = run.time.busy_s() + run.time.idle_s;
        prop_assert!((time - used.replica_seconds).abs() <= 1e-9 * time.max(1.0), "{time} {used:?}");
    }

    /// With equal bounds nothing starts or stops: the fleet is one of that size.
    #[test]
    fn a_fixed_number_is_a_plain_fleet(workload in workloads(), count in 1_u64..5, router in routers()) {
        let autoscale = immediate(1, [count, count], 1.0, 0.0);
        let one = deployment(RequestedParallelism::default(), EngineSpec::default());
        let fixed = deployment(RequestedParallelism { replicas: Some(count), ..RequestedParallelism::default() }, EngineSpec::default());
        let ours = run(&one, &workload, scaled(autoscale, router), true);
        let plain = run(&fixed, &workload, FleetSpec { router, ..FleetSpec::default() }, true);
        same(&ours.records, &plain.records);
        prop_assert_eq!((ours.activity, ours.kv_cache), (plain.activity, plain.kv_cache));
        let used = ours.fleet.autoscale.unwrap();
        prop_assert_eq!((used.max_replicas, used.started, used.stopped), (count, 0, 0));
        let duration = ours.summary.duration;
        prop_assert!((used.replica_seconds - count as f64 * duration).abs() <= 1e-9 * duration.max(1.0));
    }
}

/// Keys of an autoscaler with fast rules, at most four replicas and a start-up of a second.
fn ruled(rule: &str, min: u64) -> AutoscaleSpec {
    let hpa = "[hpa]\nsync_period_s = 0.5\nscale_down = { stabilization_window_seconds = 2 }\n";
    let keys = match rule {
        "hpa" => hpa.to_owned(),
        "keda" => format!("{hpa}[keda]\npolling_interval = 0.7\ncooldown_period = 1\n"),
        "ray-serve" => {
            "[ray-serve]\nlook_back_period_s = 1\nmetrics_interval_s = 0.5\nupscale_delay_s = 0.2\n\
                        downscale_delay_s = 1\n"
                .to_owned()
        }
        _ => {
            "[dynamo]\nload_adjustment_interval_seconds = 0.5\noptimization_target = \"latency\"\n".to_owned()
        }
    };
    let target = if rule == "dynamo" { "" } else { "target_in_flight = 2\n" };
    let bounds = format!("min_replicas = {min}\nmax_replicas = 4\nstartup_s = 1");
    toml::from_str(&format!("rule = \"{rule}\"\n{target}{bounds}\n{keys}")).unwrap()
}

fn rules() -> impl Strategy<Value = AutoscaleSpec> {
    let all = [("hpa", 1), ("keda", 0), ("keda", 1), ("ray-serve", 0), ("ray-serve", 1), ("dynamo", 1)];
    proptest::sample::select(all.to_vec()).prop_map(|(rule, min)| ruled(rule, min))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Under each autoscaler's rule every request is answered, no more replicas are up than allowed, their times are those
    /// of busy and idle replicas, and stepping and leaping agree.
    #[test]
    fn rules_lose_nothing(workload in workloads(), autoscale in rules(), router in routers()) {
        let engine = EngineSpec { num_gpu_blocks: Some(200), max_num_seqs: Some(8), ..EngineSpec::default() };
        let deployment = deployment(RequestedParallelism::default(), engine);
        let run = holds(&deployment, &workload, scaled(autoscale, router));
        let used = run.fleet.autoscale.unwrap();
        prop_assert!(used.max_replicas <= 4 && used.stopped <= used.started + 1);
        let time = run.time.busy_s() + run.time.idle_s;
        prop_assert!((time - used.replica_seconds).abs() <= 1e-9 * time.max(1.0), "{time} {used:?}");
    }
}

/// KEDA from zero: the first request comes at 1 s, the first poll is at 1 + 30 s, and the replica takes 10 s: its first
/// token comes 40 s after it was sent. A second request at 50 s is served by the replica that is up.
#[test]
fn a_request_waits_for_the_first_replica() {
    let deployment = deployment(RequestedParallelism::default(), EngineSpec::default());
    let keys = "rule = \"keda\"\ntarget_in_flight = 4\nmin_replicas = 0\nmax_replicas = 3\nstartup_s = 10";
    let autoscale: AutoscaleSpec = toml::from_str(keys).unwrap();
    let run = run(&deployment, &at(&[1.0, 50.0]), scaled(autoscale, Routing::LeastLoaded), true);
    let waits = |n: usize| seconds(run.records[n].first_token.unwrap()) - seconds(run.records[n].sent);
    assert!((40.0..40.2).contains(&waits(0)) && waits(1) < 0.2, "{} {}", waits(0), waits(1));
    let used = run.fleet.autoscale.unwrap();
    assert_eq!((used.max_replicas, used.started, used.stopped), (1, 1, 0));
    close(used.replica_seconds, seconds(run.records[1].finished) - 31.0);
    // Fewer requests than the threshold wait for ever: that is an error, not a run without an end.
    let keys = format!("{keys}\nkeda = {{ activation_threshold = 5 }}");
    let error = spec(&format!("{ONE}[fleet.autoscale]\n{keys}")).unwrap_err().to_string();
    for part in
        ["1 requests wait", "keda.activation_threshold` = 5", "fleet.autoscale.min_replicas", "below 1"]
    {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

/// Every rule refuses the keys of the others by name, and a rule that is set over a file leaves them out.
#[test]
fn keys_of_another_rule_are_refused() {
    let keys = [
        ("target_in_flight", "target_in_flight = 4", &["immediate", "hpa", "keda", "ray-serve"][..]),
        ("idle_s", "idle_s = 9", &["immediate"]),
        ("hpa", "hpa = { sync_period_s = 15 }", &["hpa", "keda"]),
        ("keda", "keda = { polling_interval = 30 }", &["keda"]),
        ("ray-serve", "ray-serve = { upscale_delay_s = 30 }", &["ray-serve"]),
        ("dynamo", "dynamo = { optimization_target = \"latency\" }", &["dynamo"]),
    ];
    for rule in AutoscaleRule::ALL.map(AutoscaleRule::name) {
        let own = |readers: &[&str]| readers.contains(&rule);
        let required = keys[..2].iter().filter(|(_, _, readers)| own(readers)).map(|(_, text, _)| *text);
        let base = required.collect::<Vec<_>>().join("\n");
        let section =
            format!("[fleet.autoscale]\nrule = \"{rule}\"\nmax_replicas = 2\nstartup_s = 1\n{base}\n");
        assert!(spec(&format!("{ONE}{section}")).is_ok(), "{rule}");
        for (key, text, readers) in &keys {
            let whole = if base.contains(text) { section.clone() } else { format!("{section}{text}\n") };
            let answer = spec(&format!("{ONE}{whole}"));
            if own(readers) {
                assert!(answer.is_ok(), "{rule} {key}");
                continue;
            }
            let error = answer.unwrap_err().to_string();
            assert!(error.contains(&format!("fleet.autoscale.{key}`")) && error.contains(rule), "{error}");
        }
    }
    let all = keys.map(|(_, text, _)| text).join("\n");
    let table: toml::Table = format!("[fleet.autoscale]\nmax_replicas = 2\n{all}").parse().unwrap();
    let of_dynamo = lay(table, &[Setting::new("fleet.autoscale.rule", "dynamo")]).unwrap();
    let kept: Vec<&String> = of_dynamo["fleet"]["autoscale"].as_table().unwrap().keys().collect();
    assert_eq!(kept, ["dynamo", "max_replicas", "rule"]);
}

#[test]
fn what_cannot_be_scaled_is_refused() {
    let keys = |target: &str, min: &str, max: &str, startup: &str, idle: &str| {
        format!(
            "[fleet.autoscale]\ntarget_in_flight = {target}\nmin_replicas = {min}\nmax_replicas = {max}\n\
             startup_s = {startup}\nidle_s = {idle}\n"
        )
    };
    let good = keys("4", "1", "2", "1", "1");
    let of = |rule: &str| format!("{}rule = \"{rule}\"\n", good.replace("idle_s = 1\n", ""));
    let hpa = of("hpa");
    let dynamo = of("dynamo").replace("target_in_flight = 4\n", "");
    assert!(spec(&format!("{ONE}{good}")).is_ok());
    for (text, parts) in [
        (keys("0", "1", "2", "1", "1"), ["fleet.autoscale.target_in_flight", "1 to"]),
        (keys("4", "0", "2", "1", "1"), ["fleet.autoscale.min_replicas", "1 to 2"]),
        (keys("4", "3", "2", "1", "1"), ["fleet.autoscale.min_replicas", "1 to 2"]),
        (keys("4", "1", "1025", "1", "1"), ["fleet.autoscale.max_replicas", "1 to 1024"]),
        (keys("4", "1", "2", "-1", "1"), ["fleet.autoscale.startup_s", "0 to 86400"]),
        (keys("4", "1", "2", "1", "nan"), ["fleet.autoscale.idle_s", "NaN"]),
        ("[fleet.autoscale]\ntarget_in_flight = 4\n".to_owned(), ["fleet.autoscale", "max_replicas"]),
        (good.replace("idle_s = 1\n", ""), ["fleet.autoscale.idle_s", "missing"]),
        (good.replace("target_in_flight = 4\n", ""), ["fleet.autoscale.target_in_flight", "missing"]),
        (format!("{good}rule = \"hpas\"\n"), ["hpas", "ray-serve"]),
        (
            format!("{good}rule = \"hpa\"\n").replace("min_replicas = 1", "min_replicas = 0"),
            ["min_replicas", "1 to 2"],
        ),
        (format!("{hpa}hpa = {{ tolerance = 1.5 }}\n"), ["fleet.autoscale.hpa.tolerance", "0 to below 1"]),
        (
            format!("{hpa}hpa = {{ scale_up = {{ policies = [] }} }}\n"),
            ["hpa.scale_up.policies", "at least one"],
        ),
        (
            format!("{}keda = {{ polling_interval = 0 }}\n", of("keda")),
            ["fleet.autoscale.keda.polling_interval", "0.1 to"],
        ),
        (
            format!("{}ray-serve = {{ upscaling_factor = 0 }}\n", of("ray-serve")),
            ["ray-serve.upscaling_factor", "0.001 to 1000"],
        ),
        (
            format!("{dynamo}dynamo = {{ optimization_target = \"load\" }}\n"),
            ["dynamo.decode_scale_up_kv_rate", "missing"],
        ),
        (format!("{dynamo}dynamo = {{ optimization_target = \"sla\" }}\n"), ["dynamo.engine_rps", "missing"]),
        (
            format!(
                "{dynamo}dynamo = {{ optimization_target = \"sla\", engine_rps = 2, load_predictor = \"arima\" }}\n"
            ),
            ["dynamo.load_predictor", "pmdarima"],
        ),
        (
            format!("{dynamo}dynamo = {{ engine_rps = 2 }}\n"),
            ["dynamo.engine_rps", "only with optimization_target"],
        ),
        (
            format!("{dynamo}dynamo = {{ kalman_r = 2 }}\n"),
            ["dynamo.kalman_r", "load_predictor = \"kalman\""],
        ),
        (format!("{good}patience = 1\n"), ["fleet.autoscale", "patience"]),
        (format!("{good}[fleet.prefill]\nreplicas = 1\n"), ["fleet.prefill", "omitted"]),
        (format!("{good}[parallelism]\nreplicas = 2\n"), ["replicas", "max_replicas"]),
    ] {
        let message = spec(&format!("{ONE}{text}")).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }
}
