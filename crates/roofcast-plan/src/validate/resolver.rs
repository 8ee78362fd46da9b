//! The deployment on which a row was measured. A row proves that its deployment runs: a label that a plan would refuse
//! is read as engines run it.
//!
//! Knows: which cells of a row engines interpret differently from flags. Knows nothing about forecasts.

use crate::measurement::Measurement;
use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_cost::memory::Memory;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::{self, Catalog};
use roofcast_facts::error::Result;
use roofcast_facts::model::Model;
use roofcast_facts::precision::{Dtype, WeightFormat};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Resolves rows to deployments; each model is read once.
pub struct Resolver<'a> {
    catalog: &'a Catalog,
    models: BTreeMap<String, Result<Arc<Model>>>,
    chips: BTreeMap<String, Result<Arc<Accelerator>>>,
}

impl<'a> Resolver<'a> {
    /// A resolver with the entries of `catalog`.
    pub fn new(catalog: &'a Catalog) -> Resolver<'a> {
        Resolver { catalog, models: BTreeMap::new(), chips: BTreeMap::new() }
    }

    /// The deployment on which `row` was measured.
    pub fn deployment(&mut self, row: &Measurement) -> Result<Deployment> {
        row.check_engine()?;
        let catalog = self.catalog;
        let model = self
            .models
            .entry(row.model.clone())
            .or_insert_with(|| Ok(Arc::new(catalog.named(&row.model)?.model()?)));
        let chip = self
            .chips
            .entry(row.hardware.clone())
            .or_insert_with(|| Ok(Arc::new(catalog.accelerator(&row.hardware)?.clone())));
        let mut model = model.clone()?;
        let chip = chip.clone()?;
        // The measured server had a raised maximum length (VLLM_ALLOW_LONG_MAX_MODEL_LEN or similar).
        let longest = row.longest();
        if model.max_context.is_some_and(|most| most < longest) {
            Arc::make_mut(&mut model).max_context = Some(longest);
        }
        let mut options = row.options(model.quantization.as_ref().map(|q| q.format.name));
        read_weights(&mut options, &chip);
        let deployment = Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options)?;
        // A static batch must fit in memory with all its sequences.
        let together = row.batch().unwrap_or(1).div_ceil(deployment.parallelism.replicas);
        if Memory::of(&deployment).sequences(longest) >= together {
            return Ok(deployment);
        }
        // The measured server had memory for its load, so its engine used more memory than by default.
        options.engine.gpu_memory_utilization = Some(1.0);
        let roomy = Deployment::resolve(model, chip, &options);
        Ok(roomy.ok().filter(|roomy| Memory::of(roomy).sequences(longest) >= together).unwrap_or(deployment))
    }
}

/// Sets the weight format from words in a checkpoint's id (`FP8-dynamic`). A format for which `chip` has no unit
/// becomes weight-only, as engines run it (vLLM's `marlin_utils_fp8.py` and `marlin_utils_fp4.py`, 0.11).
fn read_weights(options: &mut DeploymentOptions, chip: &Accelerator) {
    let precision = &mut options.precision;
    let Some(words) = &precision.weights else { return };
    let known = words.parse::<WeightFormat>();
    if let (Err(_), Some((weights, activations))) = (&known, catalog::formats_of(words)) {
        precision.activations = activations;
        precision.weights = Some(weights.to_owned());
    }
    let format = precision.weights.as_deref().map(str::parse::<WeightFormat>);
    if let Some(Ok(WeightFormat::Uniform(format))) = format
        && precision.activations.or(format.compute).is_some_and(|dtype| !chip.has(dtype))
    {
        precision.activations = Some(Dtype::Bf16);
    }
}
