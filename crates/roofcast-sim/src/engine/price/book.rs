//! Prices that several runs share.
//!
//! Knows: the properties of a deployment on which the prices of its steps depend. Knows nothing about the runs.

use super::StepPrices;
use crate::scheduler::config::EngineConfig;
use roofcast_ask::spec::CostKind;
use roofcast_cost::coefficients::Coefficients;
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::step::StepModel;
use roofcast_facts::encoder::PromptImages;
use roofcast_facts::error::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Most deployments whose prices a [`PriceBook`] keeps.
const KEPT: usize = 32;

/// Prices of the deployments that several runs simulate: a run finds what an earlier one computed. Deployments with the same
/// coefficients ([`Forecaster::reshaped`]) may differ in the work of their steps alone.
#[derive(Debug, Default)]
pub struct PriceBook {
    /// Prices of the latest deployments, the oldest first.
    known: Mutex<Vec<(Priced, StepPrices)>>,
}

/// Properties of a pool's replicas on which the prices of their steps depend.
#[derive(Debug, Clone)]
struct Priced {
    coefficients: Arc<Coefficients>,
    cost: CostKind,
    /// Work of a step of one replica.
    model: StepModel,
    images: Option<PromptImages>,
    /// True if the steps are those of a data-parallel rank.
    ranked: bool,
}

impl PartialEq for Priced {
    fn eq(&self, other: &Priced) -> bool {
        let properties = |priced: &Priced| (priced.cost, priced.images, priced.ranked);
        Arc::ptr_eq(&self.coefficients, &other.coefficients)
            && properties(self) == properties(other)
            && self.model == other.model
    }
}

impl PriceBook {
    /// Prices of the steps of `forecaster`'s replicas with the settings of `config`.
    pub(in crate::engine) fn prices(
        &self,
        forecaster: &Forecaster,
        config: &EngineConfig,
    ) -> Result<StepPrices> {
        let mut model = StepModel::compile(&forecaster.deployment);
        model.parallelism.replicas = 1;
        let priced = Priced {
            coefficients: Arc::clone(&forecaster.coefficients),
            cost: config.cost,
            model,
            images: config.images,
            ranked: config.ranks.is_some(),
        };
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |known: &[(Priced, StepPrices)]| {
            known.iter().find(|(other, _)| *other == priced).map(|(_, prices)| prices.clone())
        };
        if let Some(prices) = find(&known()) {
            return Ok(prices);
        }
        // Computed without the lock, so that runs do not wait for each other.
        let images = config.images.map(|images| forecaster.encoder(images, config.cost)).transpose()?;
        let timing = forecaster.timing(config.cost).encoding(images);
        let prices = StepPrices::new(if priced.ranked { timing.of_rank() } else { timing });
        let mut known = known();
        if let Some(prices) = find(&known) {
            return Ok(prices);
        }
        if known.len() == KEPT {
            known.remove(0);
        }
        known.push((priced, prices.clone()));
        Ok(prices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::{Deployment, DeploymentOptions};
    use roofcast_ask::parallelism::RequestedParallelism;
    use roofcast_ask::spec::EngineSpec;
    use roofcast_facts::catalog::Catalog;

    fn deployment(tp: u64, replicas: u64, seqs: u64) -> Deployment {
        let catalog = Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = roofcast_facts::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
        let chip = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        let parallelism = RequestedParallelism {
            tp: Some(tp),
            replicas: Some(replicas),
            ..RequestedParallelism::default()
        };
        let engine = EngineSpec { max_num_seqs: Some(seqs), ..EngineSpec::default() };
        let options = DeploymentOptions { parallelism, engine, ..DeploymentOptions::default() };
        Deployment::resolve(Arc::new(model), chip, &options).unwrap()
    }

    /// Runs on one replica and on four have one price list, whose step of eight decodes is computed once; a split replica, one
    /// whose captured graphs are smaller, a slower machine and the limit have others.
    #[test]
    fn runs_on_equal_replicas_share_prices() {
        let book = PriceBook::default();
        let forecaster = Forecaster::embedded(deployment(1, 1, 256)).unwrap();
        let prices = |forecaster: &Forecaster, cost: CostKind| {
            let (config, _) = EngineConfig::resolve(&forecaster.deployment, 1000, false).unwrap();
            let mut prices = book.prices(forecaster, &EngineConfig { cost, ..config }).unwrap();
            std::ptr::from_ref(prices.decode(8))
        };
        let step = prices(&forecaster, CostKind::Forecast);
        assert_eq!(prices(&forecaster.reshaped(deployment(1, 4, 256)), CostKind::Forecast), step);
        assert_ne!(prices(&forecaster.reshaped(deployment(2, 1, 256)), CostKind::Forecast), step);
        assert_ne!(prices(&forecaster.reshaped(deployment(1, 1, 8)), CostKind::Forecast), step);
        assert_ne!(prices(&forecaster, CostKind::Limit), step);
        assert_ne!(prices(&forecaster.clone().slowed(2.0), CostKind::Forecast), step);
        assert_eq!(book.known.lock().unwrap().len(), 5);
    }
}
