//! The deployment of a draft model, on the ranks of its model.
//!
//! Knows: a draft model of its own runs in its own formats; a drafter that reads hidden states shares the ends of the
//! model. Knows nothing about acceptance.

use super::{Deployment, DeploymentOptions};
use crate::parallelism::{Parallelism, RequestedParallelism};
use crate::spec::EngineSpec;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use std::sync::Arc;

impl Deployment {
    /// Resolves the draft model, and notes that its memory is counted beside the model's.
    pub(super) fn add_drafter(&mut self) -> Result<()> {
        self.draft = self.drafter()?.map(Box::new);
        self.assumptions.extend(self.draft.as_ref().map(|draft| {
            format!(
                "drafter {}: {} of weights and {} B of KV cache per token, in addition to the model's",
                draft.model.name,
                draft.weight_bytes.gb(),
                draft.model.kv_bytes_per_token(draft.kv, 1).0
            )
        }));
        Ok(())
    }

    /// Resolves the deployment of the draft model, in its own formats.
    fn drafter(&self) -> Result<Option<Deployment>> {
        // Adapters change the model that verifies.
        let plain = |mut draft: Deployment| {
            draft.engine.lora = None;
            Some(draft)
        };
        let Some(model) = &self.asked.draft else { return Ok(None) };
        let Parallelism { tp, pp, attention_dp, replicas, .. } = self.parallelism;
        let place = "engine.speculative";
        if pp > 1 || attention_dp > 1 {
            let accepted = "draft_cost where there are pipeline stages or data-parallel attention";
            return Err(Error::field(place, "draft_model", &model.name, accepted));
        }
        let parallelism = RequestedParallelism {
            tp: Some(tp),
            replicas: Some(replicas),
            ..RequestedParallelism::default()
        };
        let mut engine = EngineSpec {
            speculative: None,
            decode_context_parallel_size: None,
            ..self.asked.engine.on_accelerator()
        };
        // Bounds on images are the model's.
        engine.vllm.mm_processor_kwargs = None;
        let options = DeploymentOptions { parallelism, engine, ..DeploymentOptions::default() };
        let resolve = |model: Arc<Model>| {
            let chip = Arc::clone(&self.accelerator);
            Deployment::resolve(model, chip, &options).map_err(|e| e.within(place))
        };
        let method = self.engine.speculative.as_ref().and_then(|spec| spec.method);
        let features = method.and_then(|method| method.features(model.layers.len() as u64));
        let Some(features) = features else { return resolve(Arc::clone(model)).map(plain) };
        let drafting = model.drafting(features, self.model.hidden);
        let resolved = resolve(Arc::new(drafting.without_shared(features)))?;
        let mut draft = resolve(Arc::new(drafting))?;
        // A step computes the shared ends, too; in memory they are the model's.
        draft.weight_bytes = resolved.weight_bytes;
        for (stage, resolved) in draft.stages.iter_mut().zip(resolved.stages) {
            stage.weight_bytes = resolved.weight_bytes;
        }
        Ok(plain(draft))
    }
}
