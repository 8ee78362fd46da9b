//! Forecasts of measured rows.
//!
//! Knows: which rows have a forecast, and the reasons why others are omitted. Knows nothing about errors over many
//! rows.

mod errors;
pub mod point;
pub mod ranking;
pub mod resolver;
pub mod run;
pub mod split;

pub use errors::{ErrorReport, ErrorStatistics, Errors, GroupErrors, Skipped, report};
pub use resolver::Resolver;

use crate::measurement::{Measurement, Metrics};
use rayon::prelude::*;
use roofcast_cost::calibration::Calibration;
use roofcast_cost::coefficients::{Band, Evidence, ends};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;

/// One measured row with its forecast, or with the reason why it has none.
#[derive(Debug, Clone)]
pub struct RowForecast<'a> {
    /// The measured row.
    pub row: &'a Measurement,
    /// Limits of the row's metrics, links included as in every view; all absent if the row was omitted before they were
    /// computed.
    pub limit: Metrics,
    /// The forecast, or the reason why the row was omitted.
    pub forecast: Result<Metrics, String>,
    /// Breakdown of the forecast's time; `None` without a forecast.
    pub parts: Option<point::TimeBreakdown>,
    /// Measurements that cover the row's deployment.
    pub evidence: Evidence,
    /// The bands of the forecast; `None` without a forecast.
    pub band: Option<Band>,
}

/// Ratio of forecast to measured step time from which unreported speculative decoding is suspected.
const DRAFTED: f64 = 1.7;

/// Reason why a row that is faster than its limit has no forecast.
const FASTER: &str = "measured faster than its limit";

/// Forecasts every row with `calibration`.
pub fn points<'a>(
    rows: &'a [Measurement],
    catalog: &Catalog,
    calibration: &Calibration,
) -> Vec<RowForecast<'a>> {
    let resolver = || Resolver::new(catalog);
    rows.par_iter().map_init(resolver, |resolver, row| point(row, resolver, calibration)).collect()
}

fn point<'a>(row: &'a Measurement, resolver: &mut Resolver, calibration: &Calibration) -> RowForecast<'a> {
    let left_out = |reason: String, limit| RowForecast {
        row,
        limit,
        forecast: Err(reason),
        parts: None,
        evidence: Evidence::Nothing,
        band: None,
    };
    let deployment = match resolver.deployment(row) {
        Ok(deployment) => deployment,
        Err(error) => return left_out(error.to_string(), Metrics::default()),
    };
    if let Err(error) = point::check_batch(row, &deployment) {
        return left_out(error.to_string(), Metrics::default());
    }
    let point::RowLimits { whole: limit, least } = point::limits(row, &deployment);
    let faster = [(row.measured.ttft_ms, least.ttft_ms), (row.measured.tpot_ms, least.tpot_ms)]
        .into_iter()
        .chain([(row.measured.e2e_ms, least.e2e_ms)])
        .any(|(measured, limit)| measured.zip(limit).is_some_and(|(m, l)| m < l));
    if faster {
        return left_out(FASTER.into(), limit);
    }
    if row.measured.all().iter().all(Option::is_none) {
        return left_out("nothing was measured".into(), limit);
    }
    let forecaster = Forecaster::new(deployment, calibration);
    let (evidence, band) = (forecaster.coefficients.evidence, forecaster.coefficients.band);
    match point::forecast_near(row, &forecaster, None) {
        Ok(point::Forecast { metrics, parts, .. }) => {
            RowForecast { row, limit, forecast: Ok(metrics), parts: Some(parts), evidence, band }
        }
        Err(error) => left_out(error.to_string(), limit),
    }
}

impl RowForecast<'_> {
    /// Forecast over measured value of metric number `index`; `None` if either is missing.
    pub fn ratio(&self, index: usize) -> Option<f64> {
        let measured = self.row.measured.all()[index].filter(|m| *m > 0.0)?;
        Some(self.forecast.as_ref().ok()?.all()[index]? / measured)
    }

    /// True if a row of disaggregated pools is so fast that it probably ran with speculative decoding, which no row
    /// declares.
    fn is_drafted(&self) -> bool {
        const TPOT: usize = 1;
        let faster = self.forecast.as_ref().is_err_and(|reason| reason == FASTER);
        self.row.pools.is_some() && (faster || self.ratio(TPOT).is_some_and(|ratio| ratio >= DRAFTED))
    }

    /// The band of metric number `index`: 10th and 90th percentile of measured over forecast.
    pub fn band(&self, index: usize) -> Option<[f64; 2]> {
        self.width(index).map(ends)
    }

    /// Width of the band of metric number `index`.
    fn width(&self, index: usize) -> Option<f64> {
        let [ttft, tpot, e2e, throughput] = self.band?.widths(self.row.kind.load()).all();
        Some([ttft, tpot, e2e, throughput, throughput][index])
    }
}
