//! `roofcast simulate --measured-tpot`: a short answer to the question if a server is as fast as it should be.

use super::About;
use crate::show::number::significant;
use crate::show::table;
use crate::verbs::question;
use roofcast::Spec;
use roofcast::simulate::{TpotComparison, TpotVerdict};

pub(super) fn people(about: &About, spec: &Spec, b: &TpotComparison) -> String {
    let ms = |ms: f64| format!("TPOT {} ms", significant(ms));
    let band = b.band_ms.map_or_else(String::new, |band| {
        let [low, high] = band.map(significant);
        format!(", 80 % interval {low} to {high}")
    });
    let load = spec.workload.as_ref().map(|workload| ("load", question::load(workload)));
    let facts = [
        ("measured", ms(b.tpot_ms)),
        ("forecast", format!("{}{band}", ms(b.forecast_ms))),
        ("limit", ms(b.limit_ms)),
        ("verdict", verdict(b)),
    ];
    about.title() + &table::pairs(&load.into_iter().chain(facts).collect::<Vec<_>>())
}

fn verdict(b: &TpotComparison) -> String {
    let times = format!(
        "{} times the forecast, {} times the limit",
        significant(b.over_forecast),
        significant(b.over_limit)
    );
    let verdict = match b.verdict {
        TpotVerdict::BelowLimit => {
            "faster than the limit: model, hardware, formats or load are not as described"
        }
        TpotVerdict::Fast => "faster than 9 of 10 measured servers against their forecast",
        TpotVerdict::AsForecast if b.band_ms.is_none() => "not faster than the limit",
        TpotVerdict::AsForecast => "as forecast: 8 of 10 measured servers are within the band",
        TpotVerdict::Slow => "slower than 9 of 10 measured servers against their forecast",
    };
    format!("{verdict}; {times}")
}
