//! Classes of requests, by the programs: results by class, the search by their SLOs, and the verbs that refuse them.

use crate::support::{file, json, roofcast};

const SPEC: &str = "model.name = \"llama-3.1-8b\"\nhardware.accelerator = \"h100-sxm\"\n[workload]\nrequests = 400\n\
                    output_len = 50\narrivals = { kind = \"poisson\", rate = 4 }\n\
                    [[workload.classes]]\nname = \"chat\"\nshare = 3\ninput_len = 200\n\
                    slo = { e2el_p99_ms = 100000 }\n\
                    [[workload.classes]]\nname = \"report\"\nshare = 1\ninput_len = 4000\n";

#[test]
fn results_are_by_class() {
    let (_folder, path) = file("classes.toml", SPEC.as_bytes());
    let (run, code) = json(&format!("simulate {path}"));
    let [chat, report] = run["classes"].as_array().unwrap().as_slice() else { panic!("{run}") };
    assert_eq!((code, &chat["name"], &report["name"]), (0, &"chat".into(), &"report".into()));
    let sum = |key: &str| chat[key].as_u64().unwrap() + report[key].as_u64().unwrap();
    for key in ["completed", "total_input_tokens", "total_output_tokens"] {
        assert_eq!(Some(sum(key)), run[key].as_u64(), "{key}");
    }
    // 200 and 4000 prompt tokens a request.
    let tokens = |class: &serde_json::Value, each: u64| {
        (class["total_input_tokens"].as_u64(), class["requests"].as_u64().map(|n| n * each))
    };
    for (class, each) in [(chat, 200), (report, 4000)] {
        let (found, expected) = tokens(class, each);
        assert_eq!(found, expected);
    }
    assert!(report["mean_ttft_ms"].as_f64() > chat["mean_ttft_ms"].as_f64());
    assert_eq!((&chat["good"], &report["good"]), (&chat["requests"], &serde_json::Value::Null));
    assert!(chat["mean_itl_ms"].is_null(), "{chat}");
    let said = roofcast(&format!("simulate {path}")).out;
    assert!(said.contains("class   requests") && said.contains("report"), "{said}");
}

/// 4000 tokens of an 8 B model are 64 TFLOP, more than 60 ms at the 989 TFLOP/s of an H100: reports have no first token
/// within 30 ms at any rate.
#[test]
fn every_class_must_keep_its_slo() {
    let (_folder, path) = file("classes.toml", SPEC.as_bytes());
    let (met, code) = json(&format!("simulate {path} --find rate=1..2"));
    assert_eq!((code, &met["best"], &met["at_least"]), (0, &2.0.into(), &true.into()), "{met}");
    assert_eq!(met["points"][0]["classes"][0]["name"], "chat", "{met}");
    let strict = format!("{SPEC}slo = {{ ttft_p50_ms = 30 }}\n");
    let (_folder, path) = file("strict.toml", strict.as_bytes());
    let (missed, code) = json(&format!("simulate {path} --find rate=1..2"));
    let because = missed["missed"]["because"].as_str().unwrap();
    assert!(code == 4 && because.starts_with("report: TTFT p50"), "{missed}");
}

#[test]
fn a_verb_that_cannot_judge_classes_refuses_them() {
    let (_folder, path) = file("classes.toml", SPEC.as_bytes());
    let rows = format!("bench --url http://127.0.0.1:1 --assume-tokens --measurements {path}.csv");
    for (verb, found) in [("plan", "a slo of the class \"chat\""), (rows.as_str(), "2 classes")] {
        let run = roofcast(&format!("{verb} {path}"));
        let named = run.err.contains("workload.classes") && run.err.contains(found);
        assert!(run.code == 2 && run.out.is_empty() && named, "{verb}: {}{}", run.out, run.err);
    }
}

/// The parts of all classes are the whole cost, in a run and in a plan, where classes have no bounds of their own.
#[test]
fn a_class_has_its_part_of_the_cost() {
    let unbounded = SPEC.replace("slo = { e2el_p99_ms = 100000 }\n", "");
    let (_folder, path) = file("classes.toml", unbounded.as_bytes());
    let (run, _) = json(&format!("simulate {path}"));
    let dollars = |class: &serde_json::Value| {
        let each = class["expense"]["dollars_per_request"].as_f64().unwrap();
        each * class["completed"].as_f64().unwrap()
    };
    let classes: f64 = run["classes"].as_array().unwrap().iter().map(dollars).sum();
    let whole =
        run["expense"]["dollars_per_hour"].as_f64().unwrap() * run["duration"].as_f64().unwrap() / 3600.0;
    assert!((classes / whole - 1.0).abs() < 1e-9, "{classes} {whole}");
    let (planned, code) = json(&format!("plan {path} --hardware h100 --max-accelerators 1 --requests 400"));
    let best = &planned["best"];
    let shares = best["classes"].as_array().unwrap().iter().map(|class| class["share"].as_f64().unwrap());
    assert!(code == 0 && (shares.sum::<f64>() - 1.0).abs() < 1e-9, "{best}");
    let said = roofcast(&format!("plan {path} --hardware h100 --max-accelerators 1 --requests 400")).out;
    assert!(said.contains("by class") && said.contains("of the cost, $"), "{said}");
}
