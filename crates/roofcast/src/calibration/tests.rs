//! Tests of the calibration.

use super::*;
use crate::spec::EngineSpec;
use std::collections::BTreeSet;

#[test]
fn every_file_is_embedded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog/calibration");
    let mut on_disk: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    on_disk.sort();
    assert_eq!(on_disk, FILES.iter().map(|(path, _)| *path).collect::<Vec<_>>());
}

#[test]
fn what_is_written_is_read_back() {
    let calibration = Calibration::embedded().unwrap();
    assert_eq!(&Calibration::parse("written", &calibration.to_toml()).unwrap(), calibration);
}

/// A chip's products of bf16 count for fp16, too, and for formats that nobody timed; a format that was timed has its own,
/// and experts that nobody timed have those of all chips.
#[test]
fn products_that_nobody_timed_are_those_of_16_bits() {
    let chip = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
    let engine = EngineSpec::default();
    let share = |weights, coefficient| {
        let place = Place { accelerator: chip, engine: &engine, weights };
        Calibration::embedded().unwrap().base(&place).get(coefficient)
    };
    let product = |weights| share(weights, Coefficient::GemmCompute);
    assert_eq!([product("fp16"), product("q8_0")], [product("bf16"); 2]);
    assert_ne!(product("fp8"), product("bf16"));
    let first = &Calibration::embedded().unwrap().levels[0].coefficients;
    assert_eq!(share("q8_0", Coefficient::ExpertCompute), first[&Coefficient::ExpertCompute]);
}

#[test]
fn wrong_calibrations_are_refused() {
    let good = Calibration::embedded().unwrap().to_toml();
    for (from, to, says) in [
        ("evidence = \"nothing\"", "evidence = \"all\"", "nothing"),
        ("[[level]]", "[[level]]\nweight = 1", "weight"),
        ("gemm_memory = ", "gemm_memory = -", "gemm_memory"),
    ] {
        let error = Calibration::parse("mine.toml", &good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains(says), "{error}");
    }
}

/// The chip's own kernels go before its generation's, those before the first level; factors multiply either; what is not
/// quantized takes the kernels of 16 bits.
#[test]
fn the_closest_kernels_stand_below_the_factors() {
    let mut calibration = Calibration::embedded().unwrap().clone();
    calibration.levels.truncate(1);
    let level = |at: Selector, kernels: bool, value: f64| Level {
        at,
        kernels: kernels.then(|| "by hand".to_owned()),
        source: None,
        versions: Vec::new(),
        rows: 1,
        median_error: 0.0,
        p90_error: 0.0,
        coefficients: BTreeMap::from([(Coefficient::GemmCompute, value)]),
    };
    let kernels = |accelerator: Option<&str>, weights: &str| Selector {
        architecture: accelerator.is_none().then(|| "hopper".to_owned()),
        accelerator: accelerator.map(str::to_owned),
        weights: Some(weights.into()),
        ..Selector::default()
    };
    calibration.levels.push(level(kernels(Some("h100-sxm"), "fp8"), true, 0.6));
    calibration.levels.push(level(kernels(None, "fp8"), true, 0.4));
    calibration.levels.push(level(kernels(None, "bf16"), true, 0.7));
    calibration.levels.push(level(Selector { served: Some(true), ..Selector::default() }, false, 0.5));
    let compute = |chip: &str, weights: &str| {
        let accelerator = crate::Catalog::embedded().unwrap().accelerator(chip).unwrap();
        let engine = EngineSpec { served: Some(true), ..EngineSpec::default() };
        let coefficients = calibration.coefficients(&Place { accelerator, engine: &engine, weights });
        [coefficients.values, coefficients.unquantized].map(|f| f.get(Coefficient::GemmCompute))
    };
    assert_eq!(compute("h100-sxm", "fp8"), [0.6 * 0.5, 0.7 * 0.5]);
    assert_eq!(compute("h200-sxm", "fp8"), [0.4 * 0.5, 0.7 * 0.5]);
    let everywhere = calibration.levels[0].coefficients[&Coefficient::GemmCompute];
    assert_eq!(compute("a100-sxm-80gb", "fp16"), [everywhere * 0.5; 2]);
}

/// AWQ's kernel computes half of the peak whatever a fit says of others; what it unpacks is multiplied as in 16 bits.
#[test]
fn a_kernel_has_shares_of_its_own() {
    let accelerator = crate::Catalog::embedded().unwrap().accelerator("rtx-4090").unwrap();
    let compute = |version: &str| {
        let engine = EngineSpec { version: Some(version.into()), ..EngineSpec::default() };
        let place = Place { accelerator, engine: &engine, weights: "awq-int4" };
        let coefficients = Calibration::embedded().unwrap().coefficients(&place);
        [coefficients.values, coefficients.unquantized].map(|f| f.get(Coefficient::GemmCompute))
    };
    let [own, unpacked] = compute("0.4.2");
    assert!(own == 0.5 && unpacked > 0.5, "{own} {unpacked}");
    assert_ne!(compute("0.6.0")[0], 0.5);
}

/// No kernel tells the 16-bit formats apart, and neither does a forecast of today's engines. Rows in fp16 are of older ones:
/// what they say beyond bf16 holds there.
#[test]
fn fp16_is_forecast_as_bf16() {
    let chip = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
    let equal = |name: &str, version: Option<&str>| {
        let version = version.map(str::to_owned);
        let engine = EngineSpec { name: Some(name.into()), version, ..EngineSpec::default() };
        let [fp16, bf16] = ["fp16", "bf16"].map(|weights| {
            Calibration::embedded()
                .unwrap()
                .values(&Place { accelerator: chip, engine: &engine, weights }, true)
        });
        fp16 == bf16
    };
    assert!(
        equal("vllm", None)
            && equal("vllm", Some("0.9.0"))
            && equal("tensorrt-llm", Some("1.0.0"))
            && equal("sglang", None)
    );
    assert!(
        !equal("vllm", Some("0.8.5"))
            && !equal("vllm", Some("0.5.0"))
            && !equal("tensorrt-llm", Some("0.11.0"))
    );
}

#[test]
fn who_knows_less_is_never_given_a_narrower_band() {
    let calibration = Calibration::embedded().unwrap();
    let depths = [Evidence::Engine, Evidence::Accelerator, Evidence::Architecture, Evidence::Nothing];
    let bands = depths.map(|known| *calibration.band(known).unwrap());
    for pair in bands.windows(2) {
        for open_loop in [false, true] {
            let of = |b: &Band| {
                let f = b.factors(open_loop);
                [f.ttft, f.tpot, f.e2e, f.throughput]
            };
            for (narrow, wide) in of(&pair[0]).into_iter().zip(of(&pair[1])) {
                assert!(wide[0] <= narrow[0] && narrow[1] <= wide[1], "{narrow:?} {wide:?}");
            }
        }
    }
}

/// What nobody measured of a chip is what others reach: the geometric mean over those whose 16-bit kernels were.
#[test]
fn the_first_level_is_the_mean_of_measured_chips() {
    let levels = &Calibration::embedded().unwrap().levels;
    let measured = levels.iter().filter(|l| {
        let at = &l.at;
        let plain = at.weights.as_deref().is_none_or(|w| w == "bf16");
        l.kernels.is_some() && at.accelerator.is_some() && at.engine.is_none() && plain
    });
    let mut logs: BTreeMap<Coefficient, Vec<f64>> = BTreeMap::new();
    for (coefficient, value) in measured.flat_map(|l| &l.coefficients) {
        logs.entry(*coefficient).or_default().push(value.ln());
    }
    let means = logs.into_iter().filter(|(coefficient, logs)| coefficient.is_share() && logs.len() >= 5);
    let mut compared = 0;
    for (coefficient, logs) in means {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        let first = levels[0].coefficients[&coefficient];
        assert!((first / mean - 1.0).abs() < 0.005, "{coefficient:?}: {first} for a mean of {mean}");
        compared += 1;
    }
    assert_eq!(compared, 10);
}

/// A level of one row that multiplies every step.
fn level(at: Selector, factor: f64) -> Level {
    Level {
        at,
        kernels: None,
        source: None,
        versions: Vec::new(),
        rows: 1,
        median_error: 0.0,
        p90_error: 0.0,
        coefficients: BTreeMap::from([(Coefficient::Step, factor)]),
    }
}

/// A level of bf16 holds for every product of a model in bf16; what an fp8 checkpoint leaves in 16 bits has none of it.
#[test]
fn a_level_of_16_bits_holds_for_models_in_16_bits() {
    let mut calibration = Calibration::embedded().unwrap().clone();
    calibration.levels.truncate(1);
    calibration.levels.push(level(Selector { weights: Some("bf16".into()), ..Selector::default() }, 2.0));
    let accelerator = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
    let once = calibration.levels[0].coefficients[&Coefficient::Step];
    let steps = |weights| {
        let coefficients =
            calibration.coefficients(&Place { accelerator, engine: &EngineSpec::default(), weights });
        [coefficients.values, coefficients.unquantized].map(|f| f.get(Coefficient::Step) / once)
    };
    assert_eq!(["bf16", "fp8"].map(steps), [[2.0; 2], [1.0; 2]]);
}

#[test]
fn levels_multiply_where_they_match() {
    let mut calibration = Calibration::embedded().unwrap().clone();
    calibration.levels.truncate(1);
    let at = |accelerator: &str, engine: &str| Selector {
        accelerator: Some(accelerator.into()),
        engine: Some(engine.into()),
        ..Selector::default()
    };
    calibration.levels.push(level(at("h100-sxm", "vllm"), 2.0));
    calibration.levels.push(level(at("h100-sxm", "sglang"), 5.0));
    calibration.levels.push(level(Selector { engine: Some("vllm".into()), ..Selector::default() }, 3.0));
    let chip = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
    let engine = EngineSpec::default();
    let place = Place { accelerator: chip, engine: &engine, weights: "bf16" };
    let once = calibration.levels[0].coefficients[&Coefficient::Step];
    // 2 for vllm on this chip, 3 for vllm anywhere; nothing of sglang's.
    assert_eq!(calibration.coefficients(&place).values.get(Coefficient::Step), once * 2.0 * 3.0);
    assert_eq!(calibration.evidence(&place), Evidence::Engine);
}

/// Every accelerator, engine, version and weight format that the embedded calibration names: without a server nothing is
/// slower.
#[test]
fn a_server_only_ever_adds() {
    let calibration = Calibration::embedded().unwrap();
    let all = |key: &dyn Fn(&Selector) -> &Option<String>| -> BTreeSet<String> {
        calibration.levels.iter().filter_map(|l| key(&l.at).clone()).collect()
    };
    let (chips, formats) = (all(&|s| &s.accelerator), all(&|s| &s.weights));
    let mut compared = 0;
    for engine in all(&|s| &s.engine) {
        let of_engine = |l: &&Level| l.at.engine.as_ref() == Some(&engine);
        let named = calibration.levels.iter().filter(of_engine).filter_map(|l| l.at.version.clone());
        let versions: BTreeSet<Option<String>> = named.map(Some).chain([None]).collect();
        for (chip, weights, version) in chips.iter().flat_map(|c| {
            formats.iter().flat_map(|w| versions.iter().map(move |v| (c, w, v))).collect::<Vec<_>>()
        }) {
            let accelerator = crate::Catalog::embedded().unwrap().accelerator(chip).unwrap();
            let of = |served| {
                let name = Some(engine.clone());
                let engine = EngineSpec { name, version: version.clone(), served, ..EngineSpec::default() };
                calibration.values(&Place { accelerator, engine: &engine, weights }, true)
            };
            let (offline, server) = (of(Some(false)), of(Some(true)));
            for coefficient in Coefficient::ALL {
                let [without, with] = [offline, server].map(|v| v.get(coefficient));
                let slower = if coefficient.is_share() { without < with } else { without > with };
                assert!(
                    !slower,
                    "{coefficient:?} of {engine} {version:?} on {chip}, {weights}: {without} {with}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// A first level says what it lacks: calibrations of an earlier version lack the coefficients that are new.
#[test]
fn an_incomplete_first_level_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Calibration)| {
        let mut calibration = Calibration::embedded().unwrap().clone();
        change(&mut calibration);
        calibration.check("own.toml").unwrap_err().to_string()
    };
    let message = refused(&|c| {
        c.levels[0].coefficients.retain(|c, _| !matches!(c, Coefficient::DecodePairs | Coefficient::Layer));
    });
    assert!(message.contains("own.toml: `level[0]` is without layer, decode_pairs;"), "{message}");
    let message = refused(&|c| c.levels[0].at.engine = Some("vllm".into()));
    assert!(message.contains("`level[0]` is of engine vllm;"), "{message}");
    assert!(refused(&|c| c.levels.clear()).contains("`level[0]` is missing;"));
}

/// No level without its data: files, sources and rows, or tables with engine and version.
#[test]
fn every_level_names_its_data() {
    let calibration = Calibration::embedded().unwrap();
    for level in &calibration.levels {
        let named = level.kernels.as_ref().or(level.source.as_ref());
        let parts: Vec<&str> = named.iter().flat_map(|n| n.split("; ")).collect();
        let whole = |part: &&str| match part.split_once(": ") {
            Some((file, of)) => (file.contains(".csv") || file.ends_with(".parquet")) && of.len() > 3,
            None => part.contains('/'),
        };
        assert!(!parts.is_empty() && parts.iter().all(whole), "{}: {named:?}", level.at.name());
        assert!(level.rows > 0, "{}", level.at.name());
    }
    assert!(calibration.source.contains(".csv"), "{}", calibration.source);
}

/// A level of a version holds for it and those before it; the newest, an unnamed and a newer one have none of them, and one
/// without an order has its own.
#[test]
fn an_unknown_version_takes_its_nearest() {
    let mut calibration = Calibration::embedded().unwrap().clone();
    calibration.levels.truncate(1);
    for (version, factor) in [("0.6.3", 2.0), ("0.11.2", 3.0), ("nightly", 5.0)] {
        let (engine, version) = (Some("vllm".to_owned()), Some(version.to_owned()));
        calibration.levels.push(level(Selector { engine, version, ..Selector::default() }, factor));
    }
    let accelerator = crate::Catalog::embedded().unwrap().accelerator("h100-sxm").unwrap();
    let step = |version: Option<&str>| {
        let engine = EngineSpec { version: version.map(str::to_owned), ..EngineSpec::default() };
        let place = Place { accelerator, engine: &engine, weights: "bf16" };
        calibration.coefficients(&place).values.get(Coefficient::Step)
            / calibration.levels[0].coefficients[&Coefficient::Step]
    };
    // The increments from the newest back: 3 to 0.11.2, another 2 to 0.6.3.
    let asked = ["0.4", "0.6.3", "0.10.1", "0.11.2", "0.19", "nightly"].map(|v| step(Some(v)).round());
    assert_eq!((asked, step(None)), ([6.0, 6.0, 3.0, 3.0, 1.0, 5.0], 1.0));
}

#[test]
fn evidence_in_words() {
    let calibration = Calibration::embedded().unwrap();
    let words = |chip: &str, name: &str, version: Option<&str>| {
        let accelerator = crate::Catalog::embedded().unwrap().accelerator(chip).unwrap();
        let (name, version) = (Some(name.to_owned()), version.map(str::to_owned));
        let engine = EngineSpec { name, version, ..EngineSpec::default() };
        calibration.rests_on(&Place { accelerator, engine: &engine, weights: "bf16" })
    };
    assert_eq!(
        words("h100-sxm", "vllm", Some("0.11.2")),
        "vllm 0.11.2 on h100-sxm, kernel times of vllm 0.24.0 on h100-sxm"
    );
    assert_eq!(words("m2-ultra", "vllm", None), "another engine on m2-ultra");
    assert_eq!(
        words("h20", "vllm", None),
        "a sibling chip of h20 (hopper), kernel times of a sibling chip (hopper)"
    );
    assert_eq!(words("tpu-v5e", "vllm", None), "the datasheet of tpu-v5e only");
}
