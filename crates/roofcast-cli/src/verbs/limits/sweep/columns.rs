//! The columns of a sweep's table.

use super::point::Point;
use crate::input::dimensions::word;
use crate::show::column::{Column, Figure};
use crate::show::number::{grouped, ms};
use roofcast::units::Picoseconds;
use toml::Value;

pub(super) const COLUMNS: &[Column<Point>] = &[
    Column::new("no links", "limit_ms", |p| Figure::Number(p.limit_ms)),
    Column::new("weights", "weights_ms", |p| Figure::Number(p.weights_ms)),
    Column::new("KV", "kv_ms", |p| Figure::Number(p.kv_ms)),
    Column::new("FLOPs", "flops_ms", |p| Figure::Number(p.flops_ms)),
    Column::new("links", "communication_ms", |p| Figure::Number(p.communication_ms)),
    Column::new("limit ms", "limit_with_communication_ms", |p| Figure::Number(p.limit_with_communication_ms)),
    Column::new("forecast ms", "forecast_ms", |p| Figure::Number(p.forecast_ms)),
    Column::new("p10", "forecast_p10_ms", |p| Figure::Number(p.forecast_band_ms[0])),
    Column::new("p90", "forecast_p90_ms", |p| Figure::Number(p.forecast_band_ms[1])),
    Column::new("bound", "bound", |p| Figure::Word(p.bound.name().to_owned())),
    Column::new("limit tok/s", "tokens_per_s", |p| Figure::Rate(p.tokens_per_s)),
    Column::new("forecast tok/s", "forecast_tokens_per_s", |p| Figure::Rate(p.forecast_tokens_per_s)),
    Column::new("MFU", "mfu", |p| Figure::Number(p.mfu)),
    Column::new("MBU", "mbu", |p| Figure::Number(p.mbu)),
    Column::new("fits", "fits", |p: &Point| Figure::Flag(p.fits)).only(|p| !p.fits),
    Column::new("$/M output", "usd_per_million_tokens", |p: &Point| Figure::known(p.usd_per_million_tokens))
        .only(|p| p.usd_per_million_tokens.is_some()),
    Column::new("evicted", "evicted_tokens_per_step", |p: &Point| Figure::known(p.evicted_tokens_per_step))
        .only(|p| p.evicted_tokens_per_step.is_some()),
];

fn time(milliseconds: f64) -> String {
    ms(Picoseconds::from_seconds(milliseconds / 1e3))
}

/// Cells of the swept values, which begin a row.
pub(super) fn values(p: &Point, csv: bool) -> Vec<String> {
    let cell = |value: &Value| match value.as_integer().and_then(|n| u64::try_from(n).ok()) {
        Some(whole) if !csv => grouped(whole),
        _ => word(value),
    };
    p.values.iter().map(cell).collect()
}

/// Row of a point in a comparison of settings.
pub(super) fn compared(p: &Point, csv: bool) -> Vec<String> {
    let cell = |ms: f64| if csv { ms.to_string() } else { time(ms) };
    values(p, csv).into_iter().chain(p.compared.iter().map(|c| cell(c.forecast_ms))).collect()
}
