//! Accuracy of forecasts: evidence by accelerator, the resulting bands, and measured points by row.
//!
//! Knows: the embedded calibration, and tables of measured points. The library computes errors.

use super::work::Work;
use crate::verbs::validate::view::View;
use anyhow::Result;
use roofcast::calibration::Calibration;
use roofcast::catalog::EntryKind;
use roofcast::coefficients::{Band, Evidence};
use roofcast::deployment::DeploymentOptions;
use roofcast::measurement::{self, Measurement};
use roofcast::validate::{RowForecast, points, report};
use roofcast::{Catalog, Deployment, Forecaster};
use serde::Serialize;
use std::sync::Arc;

/// Number of rows that are forecast between two checks if the work shall go on.
const PIECE: usize = 8;
/// Most rows of a table of measured points.
const MOST_ROWS: usize = 20_000;
/// Engines whose evidence the page shows.
const ENGINES: [&str; 5] = ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers"];
/// Model of the deployments by which evidence is looked up: dense and in 16 bits, so that every table has its kernels.
const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";

/// Tables of measured points, each by the name of its file.
#[derive(Debug, Clone)]
pub(super) struct Accuracy {
    tables: Arc<Vec<(String, String)>>,
}

/// Data for the page.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "AccuracyAnswer"))]
pub(crate) struct Answer<'a> {
    pub(super) bands: Vec<Band>,
    pub(super) machines: Vec<Machine>,
    pub(super) tables: Vec<&'a str>,
    /// Measured points; `None` without a table.
    pub(super) measured: Option<View<'a>>,
}

/// Evidence for one accelerator, by engine.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Machine {
    accelerator: String,
    architecture: String,
    engines: Vec<Measured>,
}

/// Evidence for one engine on an accelerator.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MachineEvidence"))]
struct Measured {
    engine: &'static str,
    evidence: Evidence,
}

impl Accuracy {
    pub(super) fn new(tables: Vec<(String, String)>) -> Accuracy {
        Accuracy { tables: Arc::new(tables) }
    }

    /// Forecasts every row of the tables and returns the answer as JSON.
    pub(super) fn answer(&self, catalog: &Catalog, work: &Work) -> Result<String> {
        let calibration = Calibration::embedded()?;
        let mut rows: Vec<Measurement> = Vec::new();
        for (name, text) in self.tables.iter() {
            rows.extend(measurement::read(name, text)?);
        }
        rows.truncate(MOST_ROWS);
        let mut forecasts: Vec<RowForecast> = Vec::new();
        for piece in rows.chunks(PIECE) {
            if !work.at(forecasts.len() as u64, rows.len() as u64) {
                break;
            }
            forecasts.extend(points(piece, catalog, calibration));
        }
        let report = report(&forecasts);
        let answer = Answer {
            bands: bands(calibration),
            machines: machines(catalog, calibration)?,
            tables: self.tables.iter().map(|(name, _)| name.as_str()).collect(),
            measured: (!self.tables.is_empty()).then(|| View::of(&report, &forecasts)),
        };
        Ok(serde_json::to_string(&answer)?)
    }
}

/// The bands of forecasts for every depth of evidence, the deepest first.
pub(super) fn bands(calibration: &Calibration) -> Vec<Band> {
    Evidence::ALL.into_iter().rev().filter_map(|depth| calibration.band(depth).copied()).collect()
}

/// The accelerators for which the calibration has any measurement.
pub(super) fn machines(catalog: &Catalog, calibration: &Calibration) -> Result<Vec<Machine>> {
    let model = Arc::new(catalog.named(MODEL)?.model()?);
    let mut all = Vec::new();
    for listed in catalog.listing()?.iter().filter(|listed| listed.line.kind == EntryKind::Accelerator) {
        let chip = Arc::new(catalog.accelerator(&listed.line.id)?.clone());
        let known = |engine: &&'static str| {
            let mut options = DeploymentOptions::default();
            options.engine.name = Some((*engine).to_owned());
            let deployment = Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options).ok()?;
            let forecaster = Forecaster::new(deployment, calibration);
            Some(Measured { engine, evidence: forecaster.coefficients.evidence })
        };
        let engines: Vec<Measured> = ENGINES.iter().filter_map(known).collect();
        if engines.iter().any(|known| known.evidence >= Evidence::Accelerator) {
            let accelerator = listed.line.id.clone();
            let architecture = listed.line.family.clone();
            all.push(Machine { accelerator, architecture, engines });
        }
    }
    Ok(all)
}
