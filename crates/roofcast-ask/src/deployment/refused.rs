//! Resolved deployments that are refused: kernels and adapters without code for the chip or the ranks.
//!
//! Knows: which chips and models a kernel has code for. Knows nothing about engines on chips ([`super::support`]).

use super::{Deployment, Mixer};
use crate::parallelism::Parallelism;
use crate::quantized_kernel;
use crate::spec::AttentionBackend;
use roofcast_facts::error::{Error, Result};

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

    /// Refuses LoRA adapters on ranks for which vLLM has no kernels of adapters: of expert parallelism
    /// (`FusedMoEWithLoRA`), and of data-parallel attention.
    pub(super) fn adapters(&self) -> Result<()> {
        let Parallelism { ep, attention_dp, .. } = self.parallelism;
        if self.engine.lora.is_none() || ep == 1 && attention_dp == 1 {
            return Ok(());
        }
        let layout = format!("set with ep = {ep} and attention_dp = {attention_dp}");
        let accepted = "with ep and attention_dp 1: vLLM divides experts with adapters by tp alone";
        Err(Error::field("engine", "enable_lora", layout, accepted))
    }
}
