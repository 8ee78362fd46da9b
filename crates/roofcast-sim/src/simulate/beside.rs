//! Comparison of a measured TPOT with a simulated one, to judge whether a server is as fast as expected.
//!
//! Knows: a forecast has a band that contained 8 of 10 measurements from sources that no fit saw, and no measurement is
//! below the limit. Knows nothing about how the TPOT was measured.

use super::Simulation;
use serde::Serialize;

/// A measured mean TPOT with forecast, limit and verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TpotComparison {
    /// Measured mean TPOT in milliseconds.
    pub tpot_ms: f64,
    /// Forecast mean TPOT in milliseconds.
    pub forecast_ms: f64,
    /// 10th and 90th percentile of the forecast in milliseconds; `None` if steps are priced at the limit.
    pub band_ms: Option<[f64; 2]>,
    /// Limit of the TPOT in milliseconds, at the mean batch and context of the run.
    pub limit_ms: f64,
    /// Measured over forecast TPOT.
    pub over_forecast: f64,
    /// Measured TPOT over its limit.
    pub over_limit: f64,
    /// Verdict on the measured TPOT.
    pub verdict: TpotVerdict,
}

/// Position of a measured time relative to limit and band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TpotVerdict {
    /// Below the limit, so that the deployment or the load differs from the description.
    BelowLimit,
    /// Below the band of the forecast.
    Fast,
    /// Within the band; also if there is no band.
    AsForecast,
    /// Above the band of the forecast.
    Slow,
}

impl TpotComparison {
    /// Comparison of the mean TPOT `tpot_ms` with `run`; `None` if no request of the run has a TPOT.
    pub fn of(run: &Simulation, tpot_ms: f64) -> Option<TpotComparison> {
        let forecast_ms = run.summary.tpot.figure(|tpot| tpot.mean)?;
        // A run's mean TPOT may itself be below the limit of its mean step.
        let limit_ms = run.limit_tpot_ms.min(forecast_ms);
        let band_ms = run.bands.as_ref().and_then(|bands| Some(bands.tpot_ms?.range));
        let verdict = match band_ms {
            _ if tpot_ms < limit_ms => TpotVerdict::BelowLimit,
            Some([low, _]) if tpot_ms < low => TpotVerdict::Fast,
            Some([_, high]) if tpot_ms > high => TpotVerdict::Slow,
            _ => TpotVerdict::AsForecast,
        };
        let over_forecast = tpot_ms / forecast_ms;
        let over_limit = tpot_ms / limit_ms;
        Some(TpotComparison { tpot_ms, forecast_ms, band_ms, limit_ms, over_forecast, over_limit, verdict })
    }
}
