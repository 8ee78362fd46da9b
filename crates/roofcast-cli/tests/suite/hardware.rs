//! `hardware measure` and the accelerator file that it writes. No test checks how fast the machine is.

use crate::support::{self, file, json, roofcast, run};
use serde_json::Value;

/// Measures with --quick; returns the answer, and the written file with its temporary folder.
fn measured() -> (Value, tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my-machine.toml").display().to_string();
    let (answer, code) = json(&format!("hardware measure --quick --output {path}"));
    assert_eq!(code, 0);
    (answer, folder, path)
}

fn positive(value: &Value) -> f64 {
    let found = value.as_f64().unwrap_or_else(|| panic!("{value}"));
    assert!(found.is_finite() && found > 0.0, "{found}");
    found
}

fn spread(rate: &Value) -> f64 {
    let [min, median, max] = ["min", "median", "max"].map(|key| positive(&rate[key]));
    assert!(min <= median && median <= max, "{rate}");
    max
}

#[test]
fn a_measured_machine_is_an_accelerator() {
    let (answer, _folder, path) = measured();
    assert_eq!(answer["schema"], "roofcast/hardware-measure/1");
    let list = |key: &str| answer[key].as_array().unwrap().clone();
    // The entry's rates are the fastest reading, and the fastest repeat of each format.
    let read =
        list("memory").into_iter().filter(|r| r["operation"] == "read").map(|r| spread(&r["bytes_per_s"]));
    let read = read.fold(0.0, f64::max);
    let chip = &answer["accelerator"];
    assert_eq!(positive(&chip["bandwidth_bytes_per_s"]), read.round());
    for dtype in ["fp32", "bf16", "int8"] {
        let rates = list("compute").into_iter().filter(|r| r["dtype"] == dtype);
        let most = rates.map(|r| spread(&r["operations_per_s"])).fold(0.0, f64::max);
        assert_eq!(positive(&chip["peak_flops"][dtype]), most.round(), "{dtype}");
    }
    // `limits` and `simulate` accept the file by its path, and step times follow from its rates.
    let (limits, code) =
        json(&format!("limits --model qwen2.5-0.5b --hardware {path} --context 512 --weights bf16"));
    assert_eq!((code, &limits["hardware"]), (0, &chip["id"]));
    let decode = &limits["decode"];
    let weights: f64 =
        decode["operators"].as_array().unwrap().iter().map(|o| o["weight_bytes"].as_f64().unwrap()).sum();
    let by_hand = weights / read.round() * 1e3;
    let found = positive(&decode["terms"]["weights_ms"]);
    assert!((found / by_hand - 1.0).abs() < 1e-6, "{found} ms for {weights} bytes at {read}, not {by_hand}");
    let (plan, _) = json(&format!("plan --model qwen2.5-0.5b --hardware {path}"));
    assert_eq!(plan["schema"], "roofcast/plan/3");
}

#[test]
fn a_table_names_every_rate() {
    let run = roofcast("hardware measure --quick --threads 1");
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    for what in ["read, small pages, threads: 1", "copy, small pages", "fp32", "bf16", "int8", "--output"] {
        assert!(run.out.contains(what), "{what}: {}", run.out);
    }
}

#[test]
fn impossible_wishes_are_refused_before_anything_is_measured() {
    for (arguments, words) in [
        ("--threads 0", "accepted: 1 to 1024"),
        ("--threads many", "accepted: 1 to 1024"),
        ("--threads 1024", "accepted: 1 to"),
        ("--output machine.json", "accepted: a file that ends in .toml"),
        ("--output no/such/folder/machine.toml", "no/such/folder, which is no folder"),
    ] {
        let run = roofcast(&format!("hardware measure {arguments}"));
        assert!(run.code == 2 && run.err.contains(words), "{arguments}: {} {}", run.code, run.err);
    }
}

const ROUND: &str = r#"
        [[accelerator]]
        id = "round"
        name = "Round"
        vendor = "cpu"
        architecture = "x86"
        memory_bytes = 16_000_000_000
        usable_bytes = 16_000_000_000
        bandwidth_bytes_per_s = 1e12
        node_size = 1
        peak_flops = { bf16 = 100e12, int8 = 400e12 }
    "#;

/// A processor multiplies blocks of 8 bits with activations of 8 bits: at 400 T/s, not at bf16's 100, unless the user
/// sets another format. Llama-3.2-1B's gate and up of a token: 2 · 16 layers · 2 · 2048 · 8192 = 1.073741824e9
/// operations, which are 16 layers of 167.77216 ns at 400 T/s. A prompt of 4096 tokens takes 4096 times as long,
/// 10.995116 ms, and is compute-bound.
#[test]
fn quantized_blocks_compute_in_int8_on_a_processor() {
    let (_folder, path) = file("round.toml", ROUND.as_bytes());
    let gate_up = |flags: &str| {
        let (answer, _) = json(&format!(
            "limits --model llama-3.2-1b --hardware {path} --weights q8_0 --context 4096 {flags}"
        ));
        let operators = answer["prefill"]["operators"].as_array().unwrap().clone();
        let found = operators.into_iter().find(|o| o["name"] == "gate_up_proj").unwrap();
        found["limit_ms"].as_f64().unwrap()
    };
    let int8 = 4096.0 * 2.0 * 16.0 * 2.0 * 2048.0 * 8192.0 / 400e12 * 1e3;
    assert!((gate_up("") / int8 - 1.0).abs() < 1e-6);
    assert!((gate_up("--activations bf16") / (4.0 * int8) - 1.0).abs() < 1e-6);
    let run =
        roofcast(&format!("limits --model llama-3.2-1b --hardware {path} --weights q8_0 --activations fp8"));
    assert!(run.code == 2 && run.err.contains("fp8"), "{}", run.err);
}

/// Rows may name an accelerator and a model by files in the rows' folder.
#[test]
fn rows_name_machines_and_models_by_path() {
    let (folder, _) = file("round.toml", ROUND.as_bytes());
    let config = support::root().join("examples/own-model/config.json");
    std::fs::copy(config, folder.path().join("config.json")).unwrap();
    let header = "kind,model,hardware,engine,weights,input_len,output_len,concurrency,ttft_ms,tpot_ms\n";
    let rows = |hardware: &str| {
        let row =
            |users: u64| format!("closed_loop,config.json,{hardware},llama.cpp,q8_0,64,32,{users},900,300\n");
        format!("{header}{}{}", row(1), row(2))
    };
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, rows("round.toml")).unwrap();
    let fitted = folder.path().join("fitted.toml");
    let (answer, code) = json(&format!("calibrate {} --out {}", path.display(), fitted.display()));
    assert_eq!((code, answer["rows"].as_u64()), (0, Some(2)), "{answer}");
    // There is one source: if it is held out, forecasts use the priors.
    assert_eq!(answer["left_out"]["source"]["tpot_ms"]["n"], 2, "{answer}");
    let (answer, code) = json(&format!("validate {} --calibration {}", path.display(), fitted.display()));
    assert_eq!((code, answer["predicted"].as_u64()), (0, Some(2)), "{answer}");
    assert!(answer["hardware"]["round"].is_object(), "{answer}");

    std::fs::write(&path, rows("square.toml")).unwrap();
    let run = run(["validate", &path.display().to_string()]);
    assert!(run.code == 2 && run.err.contains("square.toml"), "{} {}", run.code, run.err);
}

#[test]
fn an_accelerator_file_holds_one() {
    let one = ROUND;
    let (folder, path) = file("round.toml", one.as_bytes());
    let (answer, code) = json(&format!("limits --model llama-3.2-1b --hardware {path}"));
    assert_eq!((code, answer["hardware"].as_str()), (0, Some("round")));
    // In a spec, the path is relative to the spec's folder.
    let spec = folder.path().join("spec.toml");
    std::fs::write(&spec, "[model]\nname = \"llama-3.2-1b\"\n[hardware]\naccelerator = \"round.toml\"\n")
        .unwrap();
    let (answer, _) = json(&format!("limits {}", spec.display()));
    assert_eq!(answer["hardware"], "round");

    for (text, words) in [
        (one.repeat(2).replacen("round", "square", 1), "2 accelerators; accepted: one"),
        (String::new(), "0 accelerators; accepted: one"),
        ("[[accelerator]]\nid = 1".into(), "round.toml:2"),
    ] {
        let (_folder, path) = file("round.toml", text.as_bytes());
        let run = run(["limits", "--model", "llama-3.2-1b", "--hardware", &path]);
        assert!(run.code == 2 && run.err.contains(words) && run.err.contains("round.toml"), "{}", run.err);
    }
    let run = roofcast("limits --model llama-3.2-1b --hardware no-such.toml");
    assert!(run.code == 2 && run.err.contains("no-such.toml"), "{}", run.err);
}
