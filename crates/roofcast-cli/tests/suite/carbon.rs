//! Emissions of the electricity, by the programs.

use crate::support::{json, roofcast};

const RUN: &str = "simulate --model llama-3.1-8b --hardware h100-sxm --rate 2 --input-len 100 --output-len 50 --requests 100";

#[test]
fn emissions_are_energy_times_pue_times_the_grid() {
    let (plain, _) = json(RUN);
    assert!(plain["expense"].get("carbon").is_none(), "{plain}");
    let (run, code) = json(&format!("{RUN} --grid-g-per-kwh 360 --pue 1.25"));
    let number = |pointer: &str| run.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap();
    // A kWh is 3.6 MJ: 360 g/kWh are 100 g/MJ, and 125 g/MJ with a PUE of 1.25.
    let grams = number("/expense/joules") / 1e6 * 125.0;
    assert!(code == 0 && (number("/expense/carbon/grams") / grams - 1.0).abs() < 1e-12, "{run}");
    let each = number("/expense/carbon/grams_per_million_output_tokens");
    assert!((each / (number("/expense/joules_per_output_token") * 125.0) - 1.0).abs() < 1e-12, "{run}");
    assert_eq!(run["expense"]["joules"], plain["expense"]["joules"]);
    let said = roofcast(&format!("{RUN} --grid-g-per-kwh 360")).out;
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("g CO2e per million"), "{said}");
}

#[test]
fn factors_that_no_site_has_are_refused() {
    for (flags, told) in [
        ("--pue 1.2", "hardware.grid_g_per_kwh"),
        ("--grid-g-per-kwh -1", "grid_g_per_kwh"),
        ("--grid-g-per-kwh 400 --pue 0.9", "pue"),
    ] {
        let run = roofcast(&format!("{RUN} {flags}"));
        assert!(run.code == 2 && run.out.is_empty() && run.err.contains(told), "{flags}: {}", run.err);
    }
}
