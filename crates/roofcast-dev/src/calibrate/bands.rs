//! Bands from residuals of cross-validation.
//!
//! Knows: 10th and 90th percentile of measured over forecast, by depth of evidence; each row counts with the weight
//! of its deployment. A depth with few residuals also uses the residuals of the next shallower depth. Knows nothing
//! about fitting.

use super::Residual;
use roofcast_cost::coefficients::{Band, Evidence, Factors, Load};

/// Fewest residuals of a metric that give a depth of evidence a band from its own data.
const MIN_ROWS: usize = 30;
const DEPTHS: [Evidence; 4] =
    [Evidence::Nothing, Evidence::Architecture, Evidence::Accelerator, Evidence::Engine];
/// Factors of the band of a metric without residuals.
const UNKNOWN: [f64; 2] = [0.5, 2.0];
const TTFT: usize = 0;
const TPOT: usize = 1;
const E2E: usize = 2;

/// Derives one band for each depth of evidence.
pub(super) fn of(residuals: &[Residual]) -> Vec<Band> {
    let band = |(index, depth): (usize, &Evidence)| {
        let own = |metric, load: Load| {
            // A depth that was rarely measured is widened by the residuals of shallower depths.
            (0..=index).rev().find_map(|from| {
                let within = &DEPTHS[from..=index];
                let all: Vec<&Residual> = residuals
                    .iter()
                    .filter(|r| r.metric == metric && within.contains(&r.evidence))
                    .filter(|r| r.load == load)
                    .collect();
                (all.len() >= MIN_ROWS).then(|| quantiles(&all))
            })
        };
        let factors = |load| {
            let e2e = own(E2E, load).or(own(TPOT, load)).unwrap_or(UNKNOWN);
            Factors {
                ttft: own(TTFT, load).unwrap_or(UNKNOWN),
                tpot: own(TPOT, load).unwrap_or(UNKNOWN),
                e2e,
                throughput: [rounded(1.0 / e2e[1]), rounded(1.0 / e2e[0])],
            }
        };
        let Factors { ttft, tpot, e2e, throughput } = factors(Load::Closed);
        let step = own(TPOT, Load::Step).map(|_| factors(Load::Step));
        let open_loop = own(TTFT, Load::Open).map(|_| factors(Load::Open));
        Band { evidence: *depth, ttft, tpot, e2e, throughput, step, open_loop }
    };
    DEPTHS.iter().enumerate().map(band).collect()
}

/// Rounds to three decimal places, more than the data support.
fn rounded(factor: f64) -> f64 {
    (factor * 1e3).round() / 1e3
}

/// 10th and 90th percentile of measured over forecast.
fn quantiles(residuals: &[&Residual]) -> [f64; 2] {
    let mut all: Vec<(f64, f64)> = residuals.iter().map(|r| (-r.log, r.weight)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = all.iter().map(|(_, w)| w).sum();
    let at = |share: f64| {
        let mut before = 0.0;
        let found = all.iter().find(|(_, weight)| {
            before += weight;
            before >= share * total
        });
        rounded(found.map_or(0.0, |(log, _)| *log).exp())
    };
    [at(0.1), at(0.9)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 rows of an engine with TPOT forecast at 0.6 to 1.38 times the measurement, in steps of 0.02: measured over
    /// forecast is 1/1.32 in the row with the fourth-largest forecast, and 1/0.7 in the 36th.
    #[test]
    fn bands_by_hand() {
        let residual = |i: usize| Residual {
            metric: TPOT,
            log: (0.6 + 0.02 * i as f64).ln(),
            weight: 1.0,
            evidence: Evidence::Engine,
            load: Load::Closed,
        };
        let all: Vec<Residual> = (0..40).map(residual).collect();
        let bands = of(&all);
        let engine = bands.iter().find(|b| b.evidence == Evidence::Engine).unwrap();
        assert_eq!(engine.tpot, [0.758, 1.471]);
        assert_eq!(engine.ttft, UNKNOWN);
        assert_eq!(bands[0].tpot, UNKNOWN);
    }
}
