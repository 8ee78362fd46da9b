//! Settings applied to a table: what they replace and what they remove.

use super::*;

fn laid(text: &str, settings: &[(&str, Value)]) -> Table {
    let settings: Vec<Setting> = settings.iter().map(|(p, v)| Setting::new(p, v.clone())).collect();
    lay(text.parse().unwrap(), &settings).unwrap()
}

#[test]
fn a_rate_and_users_choose_the_arrivals() {
    let open = "workload.arrivals = { kind = \"poisson\", rate = 1.0 }";
    let closed = "workload.arrivals = { kind = \"closed_loop\", concurrency = 4 }";
    let rate = ("workload.arrivals.rate", 5.into());
    let users = ("workload.arrivals.concurrency", 8.into());
    let turns = ("workload.arrivals.turns", 3.into());
    for (text, settings, expected) in [
        (open, vec![rate.clone()], "kind = \"poisson\"\nrate = 5"),
        (closed, vec![rate.clone()], "kind = \"poisson\"\nrate = 5"),
        ("", vec![rate.clone()], "kind = \"poisson\"\nrate = 5"),
        (open, vec![users.clone()], "concurrency = 8\nkind = \"closed_loop\""),
        (open, vec![turns.clone(), users.clone()], "concurrency = 8\nkind = \"sessions\"\nturns = 3"),
        (open, vec![turns.clone()], "kind = \"sessions\"\nrate = 1.0\nturns = 3"),
        (
            open,
            vec![("workload.arrivals.burstiness", 0.5.into())],
            "burstiness = 0.5\nkind = \"gamma\"\nrate = 1.0",
        ),
    ] {
        let table = laid(text, &settings);
        let arrivals = table["workload"]["arrivals"].as_table().unwrap();
        assert_eq!(arrivals, &expected.parse::<Table>().unwrap(), "{text} {settings:?}");
    }
}

#[test]
fn traffic_brings_its_lengths_and_its_rate_where_it_has_one() {
    let base =
        "[workload]\ninput_len = 1\noutput_len = 2\n[workload.arrivals]\nkind = \"poisson\"\nrate = 1.0";
    let preset = |id: &str| ("workload.preset", Value::from(id));
    let table = laid(base, &[preset("azure-conv-2023")]);
    assert_eq!(table["workload"], Value::Table("preset = \"azure-conv-2023\"".parse().unwrap()));
    let rate = ("workload.arrivals.rate", 5.into());
    let table = laid(base, &[rate.clone(), preset("azure-conv-2023")]);
    assert_eq!(table["workload"], Value::Table("preset = \"azure-conv-2023\"\nrate = 5".parse().unwrap()));
    // ShareGPT has no times, so the arrivals stay.
    let table = laid(base, &[preset("sharegpt")]);
    assert_eq!(table["workload"]["arrivals"]["rate"], 1.0.into());
    // A trace stays a trace at another rate.
    let table = laid(base, &[preset("t.jsonl"), rate]);
    assert_eq!(table["workload"]["arrivals"]["kind"], "trace".into());
    assert_eq!(table["workload"]["arrivals"]["path"], "t.jsonl".into());
}

#[test]
fn replicas_are_alike_or_split() {
    let split = |text: &str| laid("", &[("parallelism.replicas", Value::from(text))]);
    assert_eq!(split("4")["parallelism"]["replicas"], 4.into());
    let table = split("3P1D");
    assert_eq!(table["fleet"]["prefill"]["replicas"], 3.into());
    assert_eq!(table["fleet"]["decode"]["replicas"], 1.into());
    assert_eq!(table["fleet"]["link"], "network".into());
    assert!(lay(Table::new(), &[Setting::new("parallelism.replicas", "3p")]).is_err());
}

/// A sweep sets one key of a section that `--set` gives as a whole.
#[test]
fn a_section_comes_before_its_keys() {
    let arrivals: Table = "kind = 'poisson'\nrate = 20.0".parse().unwrap();
    let whole = Setting::new("workload.arrivals", arrivals);
    for settings in [
        [whole.clone(), Setting::new("workload.arrivals.rate", 5)],
        [Setting::new("workload.arrivals.rate", 5), whole],
    ] {
        let table = lay(Table::new(), &settings).unwrap();
        let expected = "[workload.arrivals]\nkind = 'poisson'\nrate = 5".parse::<Table>().unwrap();
        assert_eq!(table, expected);
    }
}

#[test]
fn an_engine_brings_its_scheduler_unless_one_is_named() {
    let file = "engine.scheduler = \"orca\"";
    let table = laid(file, &[("engine.name", "sglang".into())]);
    assert_eq!(table["engine"].get("scheduler"), None);
    // The engines spell themselves vLLM and SGLang.
    let table = laid(file, &[("engine.name", "vLLM".into())]);
    assert_eq!((table["engine"].get("scheduler"), &table["engine"]["name"]), (None, &"vllm".into()));
    // A version after the name replaces the file's version; a separate setting of the version replaces both.
    let table = laid("engine.version = \"0.9\"", &[("engine.name", "vllm==0.11.2".into())]);
    assert_eq!((&table["engine"]["name"], &table["engine"]["version"]), (&"vllm".into(), &"0.11.2".into()));
    let table = laid("", &[("engine.version", "0.12".into()), ("engine.name", "vllm:0.11.2".into())]);
    assert_eq!((&table["engine"]["name"], &table["engine"]["version"]), (&"vllm".into(), &"0.12".into()));
    let file_of_its_own = rooted("engine.name = \"vLLM==0.11.2\"".parse().unwrap(), Path::new("dir"));
    assert_eq!(file_of_its_own["engine"]["version"], "0.11.2".into());
    let file_of_its_own = rooted("engine.name = \"SGLang\"".parse().unwrap(), Path::new("dir"));
    assert_eq!(file_of_its_own["engine"]["name"], "sglang".into());
    let table = laid(file, &[("engine.name", "transformers".into())]);
    assert_eq!(table["engine"]["scheduler"], "orca".into());
    let table = laid("", &[("engine.scheduler", "sarathi".into()), ("engine.name", "vllm".into())]);
    assert_eq!(table["engine"]["scheduler"], "sarathi".into());
}

#[test]
fn paths_count_from_the_specs_folder() {
    let text =
        "model.path = \"a\"\nhardware.accelerator = \"h100-sxm\"\nsearch.accelerators = [\"x.toml\", \"l4\"]";
    let table = rooted(text.parse().unwrap(), Path::new("dir"));
    assert_eq!(table["model"]["path"], "dir/a".into());
    assert_eq!(table["hardware"]["accelerator"], "h100-sxm".into());
    assert_eq!(table["search"]["accelerators"][0], "dir/x.toml".into());
    assert_eq!(table["search"]["accelerators"][1], "l4".into());
}
/// A flag sets a key of one engine in `[engine]`, and replaces the file's value in the section; a dotted path sets it in
/// the section, in any spelling of the section's name.
#[test]
fn a_key_of_one_engine_is_set_once() {
    let file = "engine.sglang.hicache_ratio = 3.0\nengine.vllm.max_num_queued_reqs = 4";
    let flag = path("hicache-ratio").unwrap();
    assert_eq!(flag, "engine.hicache_ratio");
    let table = laid(file, &[(&flag, 2.0.into())]);
    let expected = "hicache_ratio = 2.0\nsglang = {}\nvllm.max_num_queued_reqs = 4";
    assert_eq!(table["engine"], Value::Table(expected.parse().unwrap()));
    let dotted = path("engine.SGLang.hicache_ratio").unwrap();
    assert_eq!(dotted, "engine.sglang.hicache_ratio");
    let table = laid("engine.hicache_ratio = 3.0", &[(&dotted, 2.0.into())]);
    assert_eq!(table["engine"], Value::Table("sglang.hicache_ratio = 2.0".parse().unwrap()));
    let named = rooted("engine.trtllm.batch_wait_timeout_iters = 2".parse().unwrap(), Path::new("dir"));
    assert_eq!(named["engine"]["tensorrt-llm"]["batch_wait_timeout_iters"], 2.into());
}
