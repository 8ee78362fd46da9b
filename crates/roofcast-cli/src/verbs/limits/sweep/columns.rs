//! The columns of a sweep's table: their titles, their keys in CSV, their cells.

use super::point::Point;
use crate::input::dimensions::word;
use crate::show::number::{grouped, ms, significant};
use roofcast::units::Picoseconds;
use toml::Value;

/// A column of the table.
pub(super) struct Column {
    /// Title in the table.
    pub(super) title: &'static str,
    /// Name in the CSV.
    pub(super) key: &'static str,
    /// True if the column applies to a point.
    pub(super) is: fn(&Point) -> bool,
    pub(super) people: fn(&Point) -> String,
    pub(super) plain: fn(&Point) -> String,
}

macro_rules! time {
    ($title:literal, $key:literal, $of:expr) => {
        Column {
            title: $title,
            key: $key,
            is: |_| true,
            people: |p| {
                let figure: fn(&Point) -> f64 = $of;
                time(figure(p))
            },
            plain: |p| {
                let figure: fn(&Point) -> f64 = $of;
                figure(p).to_string()
            },
        }
    };
}

pub(super) const COLUMNS: &[Column] = &[
    time!("no links", "limit_ms", |p| p.limit_ms),
    time!("weights", "weights_ms", |p| p.weights_ms),
    time!("KV", "kv_ms", |p| p.kv_ms),
    time!("FLOPs", "flops_ms", |p| p.flops_ms),
    time!("links", "communication_ms", |p| p.communication_ms),
    time!("limit ms", "limit_with_communication_ms", |p| p.limit_with_communication_ms),
    time!("forecast ms", "forecast_ms", |p| p.forecast_ms),
    time!("p10", "forecast_p10_ms", |p| p.forecast_band_ms[0]),
    time!("p90", "forecast_p90_ms", |p| p.forecast_band_ms[1]),
    Column { title: "bound", key: "bound", is: |_| true, people: bound, plain: bound },
    Column {
        title: "limit tok/s",
        key: "tokens_per_s",
        is: |_| true,
        people: |p| grouped(p.tokens_per_s as u64),
        plain: |p| p.tokens_per_s.to_string(),
    },
    Column {
        title: "forecast tok/s",
        key: "forecast_tokens_per_s",
        is: |_| true,
        people: |p| grouped(p.forecast_tokens_per_s as u64),
        plain: |p| p.forecast_tokens_per_s.to_string(),
    },
    Column {
        title: "MFU",
        key: "mfu",
        is: |_| true,
        people: |p| significant(p.mfu),
        plain: |p| p.mfu.to_string(),
    },
    Column {
        title: "MBU",
        key: "mbu",
        is: |_| true,
        people: |p| significant(p.mbu),
        plain: |p| p.mbu.to_string(),
    },
    Column {
        title: "fits",
        key: "fits",
        is: |p| !p.fits,
        people: |p| if p.fits { "yes" } else { "no" }.to_owned(),
        plain: |p| p.fits.to_string(),
    },
    Column {
        title: "$/M tokens",
        key: "usd_per_million_tokens",
        is: |p| p.usd_per_million_tokens.is_some(),
        people: |p| p.usd_per_million_tokens.map(significant).unwrap_or_default(),
        plain: |p| p.usd_per_million_tokens.map(|v| v.to_string()).unwrap_or_default(),
    },
    Column {
        title: "evicted",
        key: "evicted_tokens_per_step",
        is: |p| p.evicted_tokens_per_step.is_some(),
        people: |p| p.evicted_tokens_per_step.map(significant).unwrap_or_default(),
        plain: |p| p.evicted_tokens_per_step.map(|v| v.to_string()).unwrap_or_default(),
    },
];

fn time(milliseconds: f64) -> String {
    ms(Picoseconds::from_seconds(milliseconds / 1e3))
}

fn bound(p: &Point) -> String {
    p.bound.name().to_owned()
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
