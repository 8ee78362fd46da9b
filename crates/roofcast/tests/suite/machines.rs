//! The catalog's accelerators: measured rows resolve to the right entry, entries are plausible, and rates agree with
//! the printed ones.

use crate::support::{catalog, model, shared};
use roofcast::Forecaster;
use roofcast::accelerator::Accelerator;
use roofcast::batch::Batch;
use roofcast::cost::{Bottleneck, Utilization, cost};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::precision::Dtype;
use roofcast::spec::EngineSpec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rate in tera-operations per second; 0 if the accelerator lacks the format.
fn tera(chip: &Accelerator, dtype: Dtype) -> f64 {
    chip.peak_flops.get(&dtype).map_or(0.0, |rate| rate.0 / 1e12)
}

fn near(found: f64, printed: f64, tolerance: f64) -> bool {
    (found / printed - 1.0).abs() <= tolerance
}

#[test]
#[cfg_attr(not(shared_data), ignore = "../shared is absent")]
fn every_measured_row_names_an_accelerator_of_the_catalog() {
    for file in ["measurements.csv", "measurements-2.csv", "disaggregated.csv"] {
        let path = shared(&format!("validation/{file}"));
        let mut reader = csv::Reader::from_path(&path).unwrap();
        let column = reader.headers().unwrap().iter().position(|h| h == "hardware").unwrap();
        let names: BTreeSet<String> = reader.records().map(|r| r.unwrap()[column].to_owned()).collect();
        assert!(names.len() > 4, "{file}: {names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| catalog().accelerator(name).is_err()).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn what_people_type_finds_the_machine() {
    for (typed, id) in [
        ("3090", "rtx-3090"),
        ("RTX3090", "rtx-3090"),
        ("3060ti", "rtx-3060-ti"),
        ("4070-ti-super", "rtx-4070-ti-super"),
        ("rtx-4060ti-16gb", "rtx-4060-ti-16gb"),
        ("5090-laptop", "rtx-5090-laptop"),
        ("a6000", "rtx-a6000"),
        ("rtx-6000-ada-generation", "rtx-6000-ada"),
        ("mi300", "mi300x"),
        ("7900-xtx", "rx-7900-xtx"),
        ("7900xtx", "rx-7900-xtx"),
        ("ryzen-ai-max+-395", "strix-halo"),
        ("b580", "arc-b580"),
        ("orin-nano", "jetson-orin-nano-8gb"),
        ("m3-max", "m3-max"),
        ("M4-Max-64GB", "m4-max-64gb"),
        ("trn2", "trainium2"),
    ] {
        assert_eq!(catalog().accelerator(typed).map(|a| a.id.as_str()).ok(), Some(id), "{typed}");
    }
}

#[test]
fn entries_are_plausible() {
    // Google prints decimal sizes for these accelerators.
    let decimal = ["tpu-v5e", "tpu-v5p", "tpu-v6e"];
    for chip in catalog().accelerators().unwrap() {
        let id = &chip.id;
        assert!(!chip.sources.is_empty() && !chip.name.is_empty(), "{id}: no source");
        let known = |url: &str| url.starts_with("https://") || url == "scripts/gpu-figures.py";
        assert!(chip.sources.iter().all(|s| known(&s.url)), "{id}: a source without a page");
        assert!(chip.memory_options.is_empty(), "{id}: an option is no entry");
        let gib = chip.memory_bytes.as_f64() / 2_f64.powi(30);
        assert!((4.0..=1024.0).contains(&gib), "{id}: {gib} GiB");
        assert!(gib.fract() == 0.0 || decimal.contains(&id.as_str()), "{id}: {gib} GiB is no whole number");
        let usable = chip.usable_bytes.as_f64() / chip.memory_bytes.as_f64();
        // macOS lets the GPU use two thirds of the memory, Strix Halo's firmware three quarters.
        let least = if ["apple", "amd"].contains(&chip.vendor.as_str()) { 0.66 } else { 0.89 };
        assert!((least..=1.0).contains(&usable), "{id}: {usable} of the memory is usable");
        let bandwidth = chip.bandwidth_bytes_per_s.0 / 1e9;
        assert!((60.0..=10_000.0).contains(&bandwidth), "{id}: {bandwidth} GB/s");
        let sweep = chip.memory_bytes.as_f64() / chip.bandwidth_bytes_per_s.0;
        assert!((0.008..=3.0).contains(&sweep), "{id}: {sweep} s to read the whole memory");
        if let Some(link) = &chip.link {
            assert!(link.bytes_per_s.0 < chip.bandwidth_bytes_per_s.0, "{id}: a link faster than the memory");
        }
    }
}

#[test]
fn fewer_bits_are_no_slower() {
    // NVIDIA reduced the int8 units of B300 and GB300.
    let cut = ["b300-sxm", "gb300"];
    // CPUs compute formats without instructions in a wider format, as engines do on the P40, whose fp16 is slower than
    // its fp32.
    let has_sixteen = |chip: &&&Accelerator| chip.vendor != "cpu" && chip.id != "p40";
    for chip in catalog().accelerators().unwrap().iter().filter(has_sixteen) {
        let id = &chip.id;
        let rate = |dtype| tera(chip, dtype);
        let sixteen = rate(Dtype::Fp16).max(rate(Dtype::Bf16));
        assert!(sixteen >= rate(Dtype::Fp32) && rate(Dtype::Tf32) <= sixteen, "{id}");
        assert!(sixteen > 0.0, "{id}: nothing of 16 bits");
        for (wide, narrow) in [(sixteen, Dtype::Fp8), (sixteen, Dtype::Int8), (rate(Dtype::Fp8), Dtype::Fp4)]
        {
            let skipped = rate(narrow) == 0.0 || (narrow == Dtype::Int8 && cut.contains(&id.as_str()));
            assert!(skipped || rate(narrow) >= wide, "{id}: {narrow} slower than wider formats");
        }
        assert!(rate(Dtype::Int4) == 0.0 || rate(Dtype::Int4) >= rate(Dtype::Int8), "{id}");
        assert!((1.0..=20_000.0).contains(&sixteen), "{id}: {sixteen} TFLOP/s");
    }
}

/// Rates are cores times clock. NVIDIA prints them as AI TOPS: sparse int8 on Ada, sparse fp4 on Blackwell, so twice
/// the dense rate.
#[test]
fn ai_tops_of_geforce_are_the_printed_ones() {
    for (id, dtype, tops) in [
        ("rtx-4060", Dtype::Int8, 242.0),
        ("rtx-4060-ti", Dtype::Int8, 353.0),
        ("rtx-4070", Dtype::Int8, 466.0),
        ("rtx-4070-super", Dtype::Int8, 568.0),
        ("rtx-4070-ti", Dtype::Int8, 641.0),
        ("rtx-4070-ti-super", Dtype::Int8, 706.0),
        ("rtx-4080", Dtype::Int8, 780.0),
        ("rtx-4080-super", Dtype::Int8, 836.0),
        ("rtx-4090", Dtype::Int8, 1321.0),
        ("rtx-5050", Dtype::Fp4, 421.0),
        ("rtx-5060", Dtype::Fp4, 614.0),
        ("rtx-5060-ti", Dtype::Fp4, 759.0),
        ("rtx-5070", Dtype::Fp4, 988.0),
        ("rtx-5070-ti", Dtype::Fp4, 1406.0),
        ("rtx-5080", Dtype::Fp4, 1801.0),
        ("rtx-5090", Dtype::Fp4, 3352.0),
    ] {
        let chip = catalog().accelerator(id).unwrap();
        assert!(near(2.0 * tera(chip, dtype), tops, 0.005), "{id}: {} {tops}", 2.0 * tera(chip, dtype));
    }
}

/// Dense fp32, fp16 with fp32 accumulation, and int8, as in the tables of NVIDIA's architecture papers (Turing, GA102,
/// Ada).
#[test]
fn rates_are_those_of_the_architecture_papers() {
    for (id, fp32, fp16, int8) in [
        ("rtx-2080-ti", 14.2, 56.9, 227.7),
        ("titan-rtx", 16.3, 130.5, 261.0),
        ("quadro-rtx-8000", 16.3, 130.5, 261.0),
        ("rtx-3070", 20.3, 40.6, 162.6),
        ("rtx-3080", 29.8, 59.5, 238.0),
        ("rtx-a6000", 38.7, 154.8, 309.7),
        ("a40", 37.4, 149.7, 299.3),
        ("rtx-4080", 48.7, 97.5, 389.9),
        ("rtx-6000-ada", 91.1, 364.2, 728.5),
    ] {
        let chip = catalog().accelerator(id).unwrap();
        for (dtype, printed) in [(Dtype::Fp32, fp32), (Dtype::Fp16, fp16), (Dtype::Int8, int8)] {
            assert!(near(tera(chip, dtype), printed, 0.005), "{id}: {dtype} {} {printed}", tera(chip, dtype));
        }
    }
}

#[test]
fn memory_options_differ_in_memory_alone() {
    let large = catalog().accelerator("m4-max").unwrap();
    let small = catalog().accelerator("m4-max-64gb").unwrap();
    assert_eq!(small.name, "Apple M4 Max (40-core GPU, 64 GB)");
    assert_eq!(small.memory_bytes.0, 64 << 30);
    // The GPU may use three quarters of 64 GiB.
    assert_eq!(small.usable_bytes.0, 48 << 30);
    let sized = Accelerator {
        id: large.id.clone(),
        name: large.name.clone(),
        aliases: large.aliases.clone(),
        memory_bytes: large.memory_bytes,
        usable_bytes: large.usable_bytes,
        ..small.clone()
    };
    assert_eq!(&sized, large);
    // Two thirds of 16 GiB are the 10,922.67 MiB that llama.cpp prints.
    let m1 = catalog().accelerator("m1").unwrap();
    assert!((m1.usable_bytes.as_f64() / 2_f64.powi(20) - 10_922.67).abs() < 0.01);
}

#[test]
fn a_power_limit_lowers_energy_and_clock_but_not_bandwidth() {
    let chip = Arc::new(catalog().accelerator("rtx-4090").unwrap().clone());
    let model = crate::support::model("meta-llama/Llama-3.1-8B");
    let limited = |watts| {
        let options = DeploymentOptions { power_limit_w: Some(watts), ..DeploymentOptions::default() };
        Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options)
    };
    // 450 W on the board, 0.18 · 450 = 81 of them idle: at 265.5 W half of the other 369 W are left, and the clock is
    // the cube root of a half.
    let deployment = limited(265.5).unwrap();
    assert_eq!(deployment.accelerator.power_limit_w, Some(265.5));
    assert_eq!(deployment.accelerator.power_w, chip.power_w);
    assert_eq!(deployment.accelerator.bandwidth_bytes_per_s, chip.bandwidth_bytes_per_s);
    for (dtype, rate) in &deployment.accelerator.peak_flops {
        assert!((rate.0 / chip.peak_flops[dtype].0 - 0.5_f64.cbrt()).abs() < 1e-12, "{dtype}");
    }
    assert_eq!(deployment.accelerator.held_back(), chip.held_back());
    // A variation of a limited deployment is not limited again, and the board's own power is no limit.
    let varied = deployment.varied(|options| options.engine.max_num_seqs = Some(8)).unwrap();
    assert_eq!(varied.accelerator.peak_flops, deployment.accelerator.peak_flops);
    assert_eq!(limited(450.0).unwrap().accelerator.peak_flops, chip.peak_flops);
    for watts in [0.0, -1.0, 1.0, 81.0, f64::NAN, 451.0] {
        let message = limited(watts).unwrap_err().to_string();
        assert!(message.contains("above 81 (idle), at most 450"), "{message}");
    }
    let m3 = catalog().accelerator("m3").unwrap();
    let message = m3.limited(20.0).unwrap_err().to_string();
    assert!(message.contains("m3 has no `power_w`"), "{message}");
}

/// Google prints 918 TFLOP/s in bf16 and 1836 TOP/s in int8 for a v6e, 459 and 918 for a v5p; fp8 runs at the bf16
/// rate.
#[test]
fn the_list_shows_the_faster_of_the_8_bit_rates() {
    for (id, rate) in [("tpu-v6e", 1836e12), ("tpu-v5p", 918e12), ("h100-sxm", 1978.9e12)] {
        let chip = catalog().accelerator(id).unwrap();
        assert_eq!(roofcast::catalog::EntryLine::accelerator(chip).eight_bit, Some(rate), "{id}");
    }
}

/// A decode step of one sequence reads each matrix once, at most at the fraction of the bandwidth at which the chip was
/// measured: no operator that waits for memory is forecast nearer to its limit, whatever chip its kernel was timed on.
#[test]
fn no_operator_reads_faster_than_the_chip() {
    let mut read = 0;
    for chip in catalog().accelerators().unwrap() {
        let Some(sustained) = chip.sustained_bandwidth else { continue };
        for engine in ["vllm", "sglang", "llama.cpp"] {
            let engine = EngineSpec { name: Some(engine.into()), ..EngineSpec::default() };
            let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
            let name = model("meta-llama/Llama-3.2-1B-Instruct");
            let Ok(deployment) = Deployment::resolve(name, Arc::new(chip.clone()), &options) else {
                continue;
            };
            let forecaster = Forecaster::embedded(deployment).unwrap();
            for operator in cost(&forecaster, &Batch::decode(1, 8192), Utilization::FULL).operators {
                let share = operator.limit.ms() / operator.forecast.ms();
                if operator.bound == Bottleneck::Memory && operator.limit.ms() > 0.0 {
                    read += 1;
                    assert!(share < sustained + 1e-4, "{} {:?}: {share}", chip.id, operator.name);
                }
            }
        }
    }
    assert!(read > 100, "{read}");
}
