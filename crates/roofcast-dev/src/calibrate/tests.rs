use super::*;
use roofcast_plan::measurement;

const HEADER: &str = "id,source,kind,model,hardware,gpus,tp,engine,engine_version,weights,input_len,output_len,context_len,concurrency,tpot_ms\n";

/// Decode steps of an 8B model on an H100 under vLLM, measured at `factor` times their forecast.
fn rows(factor: f64, calibration: &Calibration) -> Vec<Measurement> {
    let catalog = Catalog::embedded().unwrap();
    let row = |i: u64, tpot: f64| {
        format!(
            "r{i},s,decode_step,meta-llama/Llama-3.1-8B-Instruct,h100-sxm,1,1,vllm,0.20.0,bf16,,,1024,{i},{tpot}\n"
        )
    };
    let read = |ms: &dyn Fn(u64) -> f64| {
        let text: String = (1..=8).map(|i| row(i, ms(i))).collect();
        measurement::read("rows", &format!("{HEADER}{text}")).unwrap()
    };
    let plain = read(&|_| 100.0);
    let forecast: Vec<f64> =
        points(&plain, catalog, calibration).iter().map(|p| 100.0 * p.ratio(1).unwrap()).collect();
    read(&|i| factor * forecast[i as usize - 1])
}

/// Rows measured exactly as forecast with the priors change no number; rows 5 % slower move numbers within their
/// bounds and are then forecast more closely.
#[test]
fn a_fit_goes_towards_its_rows() {
    let catalog = Catalog::embedded().unwrap();
    let mut prior = Calibration::embedded().unwrap().clone();
    prior.engines.iter_mut().flat_map(|e| e.times.values_mut()).for_each(|c| c.us = c.prior);
    let fitted = |factor| {
        let rows = rows(factor, &prior);
        let fit = Fit::new(&rows, catalog, &prior, &|| true).unwrap().unwrap();
        let ratio = points(&rows, catalog, &fit.calibration)[0].ratio(1).unwrap();
        (fit, ratio)
    };
    let (slower, ratio) = fitted(1.05);
    // Forecast over measured is 1/1.05 before the fit.
    assert!((0.953..1.0).contains(&ratio), "{ratio}");
    let (_, ratio) = fitted(1.0);
    assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    for number in slower.numbers() {
        let Constant { us, least, most, .. } = number.constant;
        assert!((least..=most).contains(&us), "{number:?}");
    }
    let left_out = slower.left_out(LeaveOut::Source);
    assert_eq!(left_out.len(), 8);
}

#[test]
fn older_versions_have_numbers_of_their_own() {
    let at = Calibration::embedded().unwrap();
    let mut row = rows(1.0, at).remove(0);
    let numbers = places(at);
    let place = |row: &Measurement| held(at, &numbers, row, "step").map(|n| numbers[n].0);
    let newest = place(&row);
    row.version = "0.9.0".into();
    assert_ne!(place(&row), newest);
    assert!(numbers.len() <= 40, "{}", numbers.len());
}
