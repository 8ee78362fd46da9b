//! Resolved deployments that are refused: kernels and adapters without code for the chip or the ranks.
//!
//! Knows: which chips and models a kernel has code for. Knows nothing about engines on chips ([`super::support`]).

use super::{Deployment, Mixer};
use crate::parallelism::Parallelism;
use crate::quantized_kernel;
use crate::spec::{All2AllBackend, AttentionBackend};
use roofcast_facts::error::{Error, Result};

/// First version of vLLM whose expert-parallel ranks have adapters (`_ep_check`).
const ADAPTED_RANKS_SINCE: &str = "0.21.0";

impl Deployment {
    /// Refuses kernels that do not run on this chip.
    pub(super) fn kernels(&self) -> Result<()> {
        let engine = &self.engine;
        let named = engine.quantization_kernel.as_deref();
        quantized_kernel::kernel(&engine.release, named, &self.weights, &self.accelerator)?;
        let Some(backend) = engine.attention_backend else { return Ok(()) };
        let refused =
            |accepted: String| Err(Error::field("engine", "attention_backend", backend.name(), accepted));
        let grouped = self
            .model
            .layers
            .iter()
            .any(|layer| matches!(layer.mixer, Mixer::Attention(_) | Mixer::Both(..)));
        if !grouped {
            return refused(format!(
                "none: {} has no attention over keys and values of heads",
                self.model.name
            ));
        }
        let chip = &self.accelerator;
        if backend == AttentionBackend::FlashAttention && chip.flash_multiprocessors().is_none() {
            let why = match chip.multiprocessors {
                Some(_) => "FlashAttention 2 has no kernel for Metal".to_owned(),
                None => format!("{} has no `multiprocessors` in the catalog", chip.id),
            };
            return refused(format!("naive, flash-decoding: {why}"));
        }
        Ok(())
    }

    /// Refuses LoRA adapters on ranks for which vLLM has no kernels of adapters (`lora/layers/fused_moe.py`), and on
    /// data-parallel ranks that share nothing.
    pub(super) fn adapters(&self) -> Result<()> {
        let Parallelism { ep, attention_dp, .. } = self.parallelism;
        let Some(lora) = self.engine.lora.filter(|_| ep > 1 || attention_dp > 1) else { return Ok(()) };
        let refused = |field: &str, found: &str, accepted: &str| {
            let layout = format!("{found} with ep = {ep} and attention_dp = {attention_dp}");
            Err(Error::field("engine", field, layout, accepted))
        };
        let other_exchange = |backend: &All2AllBackend| *backend != All2AllBackend::AllgatherReducescatter;
        if !self.model.is_moe() {
            let accepted = "with attention_dp 1, and parallelism.replicas: ranks of a model without experts are engines of \
                            their own";
            refused("enable_lora", "set", accepted)
        } else if !self.engine.is_since(ADAPTED_RANKS_SINCE) {
            let accepted = "with ep and attention_dp 1, or vLLM from 0.21 on: before, experts with adapters are divided by tp \
                            alone";
            refused("enable_lora", "set", accepted)
        } else if lora.fully_sharded && ep > 1 {
            refused("fully_sharded_loras", "true", "false, or ep 1: both divide the same ranks")
        } else if ep > 1 && self.experts.backend.as_ref().is_some_and(other_exchange) {
            let accepted = "allgather_reducescatter with enable_lora, the one exchange that carries adapters";
            refused("experts.all2all_backend", "another", accepted)
        } else {
            Ok(())
        }
    }
}
