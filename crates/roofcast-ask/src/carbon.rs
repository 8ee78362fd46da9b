//! Carbon: emissions of the electricity that accelerators use.
//!
//! Knows: grams of CO2 equivalent = kWh of the accelerators × PUE × grams per kWh of the grid. Both factors come from the
//! spec, because they are facts about a site. Knows nothing about how energy is counted, and nothing about emissions of
//! manufacture.

use crate::spec::HardwareSpec;
use serde::Serialize;

/// Joules of a kilowatt-hour.
const JOULES_PER_KWH: f64 = 3.6e6;

/// The electricity of a site.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    g_per_kwh: f64,
    pue: f64,
}

/// Emissions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Carbon {
    /// Grams of CO2 equivalent: kWh of the accelerators × PUE × grams per kWh of the grid.
    pub grams: f64,
    /// Grams of CO2 equivalent per million output tokens; `None` without output tokens.
    pub grams_per_million_output_tokens: Option<f64>,
    /// Grams of CO2 equivalent per kWh of the grid.
    pub grid_g_per_kwh: f64,
    /// Power usage effectiveness: energy of the site over energy of its machines.
    pub pue: f64,
}

impl Grid {
    /// The electricity that `hardware` names; `None` without a grid.
    pub fn of(hardware: &HardwareSpec) -> Option<Grid> {
        hardware.grid_g_per_kwh.map(|g_per_kwh| Grid { g_per_kwh, pue: hardware.pue.unwrap_or(1.0) })
    }

    /// Grams of CO2 equivalent of `joules` at the accelerators.
    pub fn grams(self, joules: f64) -> f64 {
        joules / JOULES_PER_KWH * self.pue * self.g_per_kwh
    }

    /// Emissions of a run that takes `joules` joules, and `each` joules per output token.
    pub fn emitted(self, joules: f64, each: Option<f64>) -> Carbon {
        Carbon {
            grams: self.grams(joules),
            grams_per_million_output_tokens: each.map(|each| self.grams(each * 1e6)),
            grid_g_per_kwh: self.g_per_kwh,
            pue: self.pue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 7.2 MJ are 2 kWh; a PUE of 1.5 makes them 3 kWh, at 400 g/kWh 1200 g. A million tokens of 1.8 J are 0.5 kWh and 300 g.
    #[test]
    fn grams_by_hand() {
        let hardware = |pue| HardwareSpec { grid_g_per_kwh: Some(400.0), pue, ..HardwareSpec::default() };
        let site = Grid::of(&hardware(Some(1.5))).unwrap().emitted(7.2e6, Some(1.8));
        assert_eq!((site.grams, site.grams_per_million_output_tokens), (1200.0, Some(300.0)));
        // Without a PUE the machines' own energy counts: 800 g.
        let emitted = Grid::of(&hardware(None)).unwrap().emitted(7.2e6, None);
        assert_eq!((emitted.grams, emitted.grams_per_million_output_tokens, emitted.pue), (800.0, None, 1.0));
        assert_eq!(Grid::of(&HardwareSpec::default()), None);
    }
}
