//! `roofcast simulate` as a user meets it: files that it writes in addition to the summary.

use crate::support::{json, roofcast};
use roofcast::coefficients::Load;
use roofcast::record::{Record, RecordFormat, Records};
use roofcast::summary::RunSummary;
use std::path::{Path, PathBuf};

/// A temporary folder for a run's files, and the path of a file in it.
fn folder(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The answer for the first `requests` requests of the default workload.
fn simulate(requests: u64, flags: &str) -> serde_json::Value {
    let (answer, code) = json(&format!("simulate --requests {requests} {flags}"));
    assert_eq!(code, 0);
    answer
}

#[test]
fn records_in_either_form_are_the_same_and_add_up_to_the_summary() {
    let (_lines, jsonl) = folder("r.jsonl");
    let (_table, csv) = folder("r.csv");
    let answer = simulate(300, &format!("--records {}", jsonl.display()));
    simulate(300, &format!("--records {}", csv.display()));
    let parsed = |path: &Path, format| -> Vec<Record> {
        Records::new("r", read(path).as_bytes(), format).map(|r| r.unwrap()).collect()
    };
    let records = parsed(&jsonl, RecordFormat::JsonLines);
    assert_eq!(records, parsed(&csv, RecordFormat::Csv));
    assert_eq!(records.len(), 300);
    let summary = RunSummary::of(&records, &roofcast::spec::Slo::default());
    let near = |key: &str, expected: f64| {
        let found = answer[key].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{key}: {found} is not {expected}");
    };
    near("mean_ttft_ms", summary.ttft.mean);
    near("p99_e2el_ms", summary.e2el.p99);
    near("output_throughput", summary.output_throughput());
}

/// Examples of speculative decoding and of autoscaling show their figures; repeating a run, and simulating every step,
/// gives equal bytes.
#[test]
fn drafts_and_replicas_that_start_are_shown() {
    for (example, says) in
        [("speculative", ["drafts", "accepted"]), ("fleet-autoscale", ["running and at most", "started"])]
    {
        let command = format!("simulate examples/{example}.toml --requests 200");
        let run = roofcast(&command);
        assert_eq!(run.code, 0, "{}", run.err);
        for part in says {
            assert!(run.out.contains(part), "{part} is not in {}", run.out);
        }
        assert_eq!(run.out, roofcast(&format!("{command} --no-leap")).out);
    }
    // The draft model's weights reduce the memory for KV.
    let kv =
        |example: &str| json(&format!("capacity examples/{example}.toml")).0["kv_tokens"].as_u64().unwrap();
    assert!(kv("speculative") < kv("speculative-none"));
}

/// The columns of the files and the arguments of trace slices are documented in the chapter.
#[test]
fn every_column_is_documented() {
    let chapter = std::fs::read_to_string(crate::support::root().join("docs/simulate.md")).unwrap();
    let (_, series) = preempting("series", "s.csv", "");
    let (_, trace) = preempting("trace", "t.json", "");
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    let slice = trace["traceEvents"].as_array().unwrap().iter().find(|e| e["ph"] == "X").unwrap();
    let arguments = slice["args"].as_object().unwrap().keys().map(String::as_str);
    let columns = roofcast::record::csv::COLUMNS.into_iter().chain(series.lines().next().unwrap().split(','));
    for name in columns.chain(arguments) {
        assert!(chapter.contains(&format!("`{name}`")), "`{name}` is not in docs/simulate.md");
    }
}

#[test]
fn a_form_of_records_that_is_not_there_is_refused_before_the_run() {
    let (folder, path) = folder("r.xlsx");
    let run = roofcast(&format!("simulate --records {}", path.display()));
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    for part in ["--records", "r.xlsx", ".jsonl", ".csv", ".parquet"] {
        assert!(run.err.contains(part), "{part} is not in {}", run.err);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A workload on two replicas whose small KV cache causes preemptions.
const PREEMPTING: &str = r#"
[model]
name = "meta-llama/Llama-3.1-8B-Instruct"
[hardware]
accelerator = "h100-sxm"
[parallelism]
replicas = 2
[engine]
num_gpu_blocks = 120
[workload]
requests = 200
seed = 7
input_len = 300
output_len = 400
[workload.arrivals]
kind = "poisson"
rate = 20.0
"#;

/// The preempting workload with asynchronous scheduling, which has two batches in flight.
fn asynchronous() -> String {
    PREEMPTING.replace("num_gpu_blocks", "async_scheduling = true\nnum_gpu_blocks")
}

/// Runs [`PREEMPTING`] with `flag` writing to a file called `name`; returns the answer and the file.
fn preempting(flag: &str, name: &str, more: &str) -> (serde_json::Value, String) {
    written(PREEMPTING, flag, name, more)
}

fn written(text: &str, flag: &str, name: &str, more: &str) -> (serde_json::Value, String) {
    let (folder, path) = folder(name);
    let spec = folder.path().join("spec.toml");
    std::fs::write(&spec, text).unwrap();
    let (answer, code) = json(&format!("simulate {} --{flag} {} {more}", spec.display(), path.display()));
    assert_eq!(code, 0);
    (answer, read(&path))
}

/// The run has no server in front, because requests in that server are in no replica's series.
#[test]
fn the_series_adds_up_to_the_summary() {
    for spec in [PREEMPTING, &asynchronous()] {
        adds_up(&spec.replace("num_gpu_blocks", "served = false\nnum_gpu_blocks"));
    }
}

fn adds_up(spec: &str) {
    let (answer, text) = written(spec, "series", "s.csv", "");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<f64>> =
        lines.map(|line| line.split(',').map(|field| field.parse().unwrap()).collect()).collect();
    let of = |row: &Vec<f64>, name: &str| row[names.iter().position(|n| *n == name).unwrap()];
    let seconds = |row: &Vec<f64>| (of(row, "end_ms") - of(row, "start_ms")) / 1e3;
    assert!(rows.len() / 2 > 1000 && rows.len() / 2 <= 2000, "{}", rows.len());
    // The intervals of either replica are contiguous up to the end of the run.
    for replica in [0.0, 1.0] {
        let own: Vec<_> = rows.iter().filter(|row| of(row, "replica") == replica).collect();
        assert!(own.windows(2).all(|pair| of(pair[0], "end_ms") == of(pair[1], "start_ms")));
        assert!(own.windows(2).all(|pair| of(pair[0], "preemptions") <= of(pair[1], "preemptions")));
        assert_eq!(of(own[0], "start_ms"), 0.0);
    }
    let sum = |name: &str| rows.iter().map(|row| of(row, name) * seconds(row)).sum::<f64>();
    let near = |found: f64, expected: f64| {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
    };
    near(sum("output_tokens_per_s"), answer["total_output_tokens"].as_f64().unwrap());
    // Little's law: the number of requests in the system, integrated over time, is the sum of all latencies.
    let latencies = answer["mean_e2el_ms"].as_f64().unwrap() / 1e3 * answer["completed"].as_f64().unwrap();
    near(sum("running") + sum("waiting"), latencies);
    let last = |replica: f64| rows.iter().rfind(|row| of(row, "replica") == replica).unwrap();
    let preemptions = of(last(0.0), "preemptions") + of(last(1.0), "preemptions");
    assert!(preemptions > 0.0);
    near(preemptions, answer["activity"]["preemptions"].as_f64().unwrap());
    assert!(rows.iter().all(|row| (0.0..=1.0).contains(&of(row, "kv_usage"))));
}

/// Asserts that every span ends, that phases lie within their request, and that slices of a track do not overlap.
fn well_formed(trace: &serde_json::Value) {
    let mut open: std::collections::BTreeMap<(u64, String), Vec<String>> = Default::default();
    let mut busy: std::collections::BTreeMap<(u64, u64), f64> = Default::default();
    let mut latest = 0.0;
    for event in trace["traceEvents"].as_array().unwrap() {
        let (phase, pid) = (event["ph"].as_str().unwrap(), event["pid"].as_u64().unwrap());
        let name = event["name"].as_str().unwrap().to_owned();
        if phase == "M" {
            assert!(event["args"]["name"].is_string());
            continue;
        }
        let ts = event["ts"].as_f64().unwrap();
        assert!(ts >= latest, "{event}");
        latest = ts;
        match phase {
            "X" => {
                let end = busy.entry((pid, event["tid"].as_u64().unwrap())).or_default();
                // Microseconds as floats are rounded below a picosecond.
                assert!(ts >= *end - 1e-6, "{event} overlaps");
                *end = ts + event["dur"].as_f64().unwrap();
            }
            "C" => assert!(event["args"].as_object().unwrap().values().all(|v| v.is_u64())),
            "b" | "e" => {
                let spans = open.entry((pid, event["id"].as_str().unwrap().to_owned())).or_default();
                assert_eq!(event["cat"], "request");
                assert_eq!(spans.is_empty(), phase == "b" && name == "request", "{event}");
                if phase == "b" { spans.push(name) } else { assert_eq!(spans.pop(), Some(name), "{event}") }
            }
            other => panic!("{other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty));
}

#[test]
fn a_trace_nests_and_is_ordered() {
    let (answer, text) = preempting("trace", "t.json", "");
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    well_formed(&trace);
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str, name: &str| {
        events.iter().filter(|e| e["ph"] == phase && e["name"] == name).count() as u64
    };
    assert_eq!(trace["otherData"]["complete"], true);
    assert_eq!((count("b", "request"), count("M", "process_name")), (200, 2));
    assert_eq!(count("b", "preempted"), answer["activity"]["preemptions"].as_u64().unwrap());
    let steps = events.iter().filter_map(|e| e["args"]["steps"].as_u64()).sum::<u64>();
    assert_eq!(steps, answer["activity"]["steps"].as_u64().unwrap());
    let (answer, by_block) = written(&asynchronous(), "trace", "t.json", "");
    well_formed(&serde_json::from_str(&by_block).unwrap());
    assert!(answer["activity"]["preemptions"].as_u64().unwrap() > 0);
    // A leap over equal decode steps is one slice; without leaps each step has its own.
    let (_, stepping) = preempting("trace", "t.json", "--no-leap");
    assert!(stepping.lines().count() > 2 * text.lines().count());
}

#[test]
fn a_trace_that_is_cut_says_so_and_is_whole() {
    let (_, text) = preempting("trace", "t.json", "--trace-limit 1000");
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    well_formed(&trace);
    assert_eq!(trace["otherData"]["complete"], false);
    assert!(trace["otherData"]["cut"][1]["cut_at_us"].as_f64().unwrap() > 0.0);
    assert!(trace["traceEvents"].as_array().unwrap().len() <= 1010);
}

#[test]
fn the_picture_shows_latencies_queue_and_cache() {
    let (_, svg) = preempting("svg", "a.svg", "");
    for part in ["TTFT", "TPOT", "E2EL", "running", "waiting", "the fullest", "time since", "</svg>"] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn a_sweep_is_its_runs_whatever_the_threads() {
    let sweep = "simulate --requests 200 --sweep seed=0..5";
    for form in ["", "--csv", "--json"] {
        let [one, four] = [1, 4].map(|threads| roofcast(&format!("{sweep} {form} --threads {threads}")));
        assert_eq!((one.code, one.err.as_str()), (0, ""));
        assert_eq!(one.out, four.out, "{form}");
    }
    let (answer, _) = json(sweep);
    let points = answer["points"].as_array().unwrap();
    assert_eq!((&answer["sweep"], points.len()), (&serde_json::json!(["workload.seed"]), 6));
    let mut third = points[3].as_object().unwrap().clone();
    assert_eq!(third.shift_remove("values"), Some(serde_json::json!([3])));
    let mut alone = simulate(200, "--seed 3").as_object().unwrap().clone();
    alone.shift_remove("schema");
    assert_eq!(third, alone);
}

/// A sweep states the bands of its forecasts, once if all values have equal bands; a limit has none.
#[test]
fn a_sweep_says_how_far_off_its_forecasts_may_be() {
    let (answer, _) = json("simulate --requests 50 --cost forecast");
    let [low, high] = [0, 1].map(|end| answer["bands"]["ttft_ms"]["factors"][end].as_f64().unwrap());
    let text = roofcast("simulate --requests 50 --sweep cost=limit,forecast").out;
    let line = format!("80 % interval of the means, at forecast: TTFT x{low:.2} to x{high:.2}, ");
    assert!(text.contains(&line), "{line}\n{text}");
    let text = roofcast("simulate --requests 50 --cost forecast --sweep seed=0..2").out;
    assert_eq!(text.matches("80 % interval of the means: TTFT").count(), 1, "{text}");
}

#[test]
fn a_sweep_takes_words_ranges_and_dotted_keys() {
    let column = |sweep: &str, name: &str| -> Vec<String> {
        let run = roofcast(&format!("simulate --requests 50 --csv --sweep {sweep}"));
        assert_eq!(run.code, 0, "{sweep}: {}", run.err);
        let mut lines = run.out.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let at = lines.next().unwrap().iter().position(|column| column == name).unwrap();
        lines.map(|line| line[at].clone()).collect()
    };
    assert_eq!(column("scheduler=vllm,static", "engine.scheduler"), ["vllm", "static"]);
    assert_eq!(column("rate=1..8:x2", "workload.arrivals.rate"), ["1", "2", "4", "8"]);
    assert_eq!(column("replicas=1,2", "parallelism.replicas"), ["1", "2"]);
    // Prompts of 10, 20 and 30 tokens, 50 of each.
    let run = roofcast("simulate --json --requests 50 --sweep workload.input_len=10..30:10");
    let answer: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let inputs =
        answer["points"].as_array().unwrap().iter().map(|p| p["total_input_tokens"].as_u64().unwrap());
    assert_eq!(inputs.collect::<Vec<_>>(), [500, 1000, 1500]);
}

#[test]
fn sweeps_that_cannot_be() {
    let cases: [(&str, &[&str]); 8] = [
        ("--sweep depth=1", &["--sweep", "depth=1", "max-num-seqs"]),
        ("--sweep rate=8..1", &["--sweep", "rate=8..1", "ends before it begins", "1..512:x2"]),
        ("--sweep rate=1,,2", &["--sweep", "1,,2"]),
        ("--sweep rate=1,-1", &["with workload.arrivals.rate = -1", "a number above 0"]),
        ("--sweep engine.colour=1", &["engine.colour", "unknown field", "`roofcast keys`"]),
        ("--sweep scheduler=fifo", &["engine.scheduler = \"fifo\"", "fifo", "`orca`"]),
        ("--sweep model.name.x=1", &["model.name.x", "within `name`"]),
        ("--sweep seed=1,2 --seed 3", &["--seed", "one of the two"]),
    ];
    for (flags, says) in cases {
        let run = roofcast(&format!("simulate {flags}"));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{flags}");
        for part in says {
            assert!(run.err.contains(part), "{flags}: {part:?} is not in {:?}", run.err);
        }
    }
}

/// Bands are the mean times the calibration's factors, for an accelerator that was measured with the engine.
#[test]
fn forecasts_have_the_calibrations_bands_and_limits_have_none() {
    let calibration = roofcast::calibration::Calibration::embedded().unwrap();
    let band = calibration.band(roofcast::coefficients::Evidence::Engine).unwrap();
    // By default requests arrive at a rate; a closed loop has other widths.
    assert!(band.open_loop != band.closed_loop);
    let closed = json("simulate --requests 50 --cost forecast --concurrency 4").0;
    assert_eq!(closed["bands"]["tpot_ms"]["factors"][1].as_f64(), Some(band.closed_loop.tpot));
    let band = band.widths(Load::OpenLoop);
    let (answer, _) = json("simulate --requests 50 --cost forecast");
    assert_eq!(answer["bands"]["evidence"], "engine");
    for (key, mean, width) in [
        ("ttft_ms", "mean_ttft_ms", band.ttft),
        ("tpot_ms", "mean_tpot_ms", band.tpot),
        ("e2el_ms", "mean_e2el_ms", band.e2e),
    ] {
        let mean = answer[mean].as_f64().unwrap();
        let least = if key == "tpot_ms" { answer["limit_tpot_ms"].as_f64().unwrap().min(mean) } else { 0.0 };
        for (side, factor) in [1.0 / width, width].into_iter().enumerate() {
            let span = &answer["bands"][key];
            assert_eq!(span["factors"][side].as_f64(), Some(factor));
            // The sampling error of 50 requests makes the range wider than the factors alone.
            let wider = span["range"][side].as_f64().unwrap() / (mean * factor).max(least);
            let bounds = [0.8..=1.0 + 1e-9, 1.0 - 1e-9..=1.25];
            assert!(bounds[side].contains(&wider), "{key}: {span}");
        }
    }
    let people = roofcast("simulate --requests 50 --cost forecast").out;
    assert!(people.contains("80 % interval of the means: TTFT"), "{people}");
    let (limit, _) = json("simulate --requests 50 --cost limit");
    assert!(limit["bands"].is_null() && !answer["bands"].is_null());
    let (plan, _) = json("plan --cost forecast --hardware h100-sxm");
    let (best, factor) = (&plan["best"], band.ttft);
    let expected =
        best["ttft_ms"].as_f64().unwrap() * best["bands"]["ttft_ms"]["factors"][1].as_f64().unwrap();
    assert!(best["bands"]["evidence"] != "engine" || best["bands"]["ttft_ms"]["factors"][1] == factor);
    let wider = best["bands"]["ttft_ms"]["range"][1].as_f64().unwrap() / expected;
    assert!((1.0 - 1e-9..=1.25).contains(&wider), "{wider}");
    assert!(json("plan --cost limit --hardware h100-sxm").0["best"]["bands"].is_null());
}

/// Ten requests arrive at once, and the queue holds four.
#[test]
fn what_is_turned_away_is_counted_apart() {
    let spec = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n[workload]\nrequests = 10\n\
                input_len = 100\noutput_len = 5\narrivals = { kind = \"offline\" }\n";
    let (_folder, path) = crate::support::file("s.toml", spec.as_bytes());
    let (answer, code) = json(&format!("simulate {path} --set engine.max_num_queued_reqs=4"));
    let counts = ["completed", "rejected", "refused", "failed"].map(|key| answer[key].as_u64().unwrap());
    assert_eq!((code, counts), (0, [4, 6, 0, 6]));
    let run = roofcast(&format!("simulate {path} --set engine.max_num_queued_reqs=0"));
    assert!(run.code == 4 && run.out.contains("all 10 were rejected"), "{}", run.out);
}

/// Ten requests of 105 tokens at once, half of each class, and a bucket of tokens of one class that holds one of them, or none:
/// text, sweep, CSV, records and rows of classes count the same requests by the same word.
#[test]
fn requests_beyond_a_rate_limit_are_rejected_in_every_output() {
    let spec = "[model]\nname = \"llama-3.1-8b\"\n[hardware]\naccelerator = \"h100-sxm\"\n\
                [fleet.rate_limit.classes]\nbatch = { tokens_per_s = 1e-9, token_burst = 105 }\n[workload]\nrequests = 10\n\
                input_len = 100\noutput_len = 5\narrivals = { kind = \"offline\" }\n\
                [[workload.classes]]\nname = \"chat\"\nshare = 1\n[[workload.classes]]\nname = \"batch\"\nshare = 1\n";
    let (folder, path) = crate::support::file("s.toml", spec.as_bytes());
    let (answer, _) = json(&format!("simulate {path}"));
    let classes = answer["classes"].as_array().unwrap();
    let batch = classes[1]["requests"].as_u64().unwrap();
    let expected = batch - 1;
    assert!(expected > 0);
    assert_eq!(answer["rejected"], expected);
    assert_eq!([0, 1].map(|class| classes[class]["rejected"].as_u64().unwrap()), [0, expected]);
    let sweep = format!("simulate {path} --sweep engine.max_num_seqs=8,16");
    let table = roofcast(&sweep).out;
    assert!(table.contains("rejected"), "{table}");
    let csv = roofcast(&format!("{sweep} --csv")).out;
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    for row in rows {
        let counts = ["refused", "rejected", "failed"].map(|name| row[at(name)].parse::<u64>().unwrap());
        assert_eq!(counts, [0, expected, expected]);
    }
    let records = folder.path().join("r.jsonl");
    let run = roofcast(&format!("simulate {path} --records {}", records.display()));
    assert!(run.out.contains(&format!("{expected} rejected: queue or rate limit reached")), "{}", run.out);
    let header = run.out.lines().find(|line| line.starts_with("class")).unwrap();
    assert!(header.contains("rejected") && !header.contains("refused"), "{header}");
    let lines = std::fs::read_to_string(&records).unwrap();
    assert_eq!(lines.matches("\"outcome\":\"rejected\"").count() as u64, expected);
    assert!(!lines.contains("refused"));
    let small = roofcast(&format!(
        "simulate {path} --set fleet.rate_limit.token_burst=50 --set fleet.rate_limit.tokens_per_s=50"
    ));
    let words = small.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "all 10 were rejected: each takes more tokens than a full bucket holds (fleet.rate_limit.token_burst = 50.00, the smallest takes 105)";
    assert!(small.code == 4 && words.contains(said), "{words}");
}

/// The answer states the load and the SLO, or that there is no SLO.
#[test]
fn a_run_says_what_was_asked() {
    let base = "simulate --requests 40 --input-len 100 --output-len 20";
    let out = roofcast(&format!("{base} --rate 5")).out;
    for line in ["load  5.00 requests/s, 100 prompt and 20 output tokens each", "SLO   none"] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    assert!(!out.contains("met the SLO"), "{out}");
    let out = roofcast(&format!("{base} --users 4 --ttft-p99 2s")).out;
    for line in [
        "load   4 requests always in flight, 100 prompt and 20 output tokens each",
        "SLO    TTFT p99 ≤ 2000 ms",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    assert!(out.contains("met the SLO"), "{out}");
}

/// 300 requests arrive at about one a second and are answered at that rate, although the last answer comes after the
/// last arrival.
#[test]
fn the_drain_is_no_overload() {
    let load = "simulate --requests 300 --rate 1 --input-len 100 --output-len 2000";
    let (answer, _) = json(load);
    let offered = answer["load"]["offered_per_s"].as_f64().unwrap();
    let whole = answer["request_throughput"].as_f64().unwrap();
    assert!(answer["load"]["too_short_below"].is_null() && whole < offered, "{whole} of {offered}");
    let out = roofcast(load).out;
    let line = out.lines().find(|line| line.starts_with("requests ")).unwrap();
    let rate = |before: &str| -> f64 {
        line.split(before).nth(1).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap()
    };
    assert!((rate("/s; ") / offered - 1.0).abs() < 0.005, "{line}: {offered}");
    // The first rate is the quotient of the two numbers before it.
    assert!((rate(": ") / whole - 1.0).abs() < 0.005, "{line}: {whole}");
}
