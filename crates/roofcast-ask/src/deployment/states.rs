//! Number format of recurrent states, and layout of sparse attention's rows.
//!
//! Knows: FlashMLA's rows of 8 bits have scales; llama.cpp keeps states, and the inputs that convolutions keep, in 32 bits; other engines keep them as the
//! model's config states, or as `mamba_ssm_dtype` requests.

use crate::spec::{EngineKind, EngineSpec, StateDtype};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Mixer, Model};
use std::sync::Arc;

/// Returns `model` with rows of 8 bits as FlashMLA's sparse attention keeps them, which vLLM and SGLang run on Hopper, and vLLM
/// on Blackwell without tensor memory (`_canonicalize_sparse_mla_kv_cache_dtype` of `mla_attention.py` and
/// `_get_backend_priorities` of `platforms/cuda.py` in vLLM 0.33; `kv_cache_configurator.py` of SGLang 0.5.23). Rows on
/// other chips are plain.
pub(super) fn with_rows(model: Arc<Model>, engine: Option<EngineKind>, chip: &Accelerator) -> Arc<Model> {
    let is_scaled = matches!(
        (engine, chip.architecture.as_str()),
        (Some(EngineKind::Vllm | EngineKind::Sglang), "hopper")
            | (Some(EngineKind::Vllm), "blackwell-rtx" | "blackwell-soc")
    );
    let is_sparse = |mixer: &Mixer| matches!(mixer, Mixer::Latent(latent) if latent.indexer.is_some());
    if !is_scaled || !model.layers.iter().any(|layer| is_sparse(&layer.mixer)) {
        return model;
    }
    let mut scaled = Model::clone(&model);
    for layer in &mut scaled.layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.scaled_rows = true;
        }
    }
    Arc::new(scaled)
}

/// Returns `model` with recurrent states in the format in which `engine` stores them.
pub(super) fn stored(model: Arc<Model>, engine: &EngineSpec) -> Result<Arc<Model>> {
    if engine.kind() == EngineKind::LlamaCpp {
        return Ok(with_singles(model));
    }
    with_states(model, engine.mamba_ssm_dtype.unwrap_or_default())
}

/// Returns `model` with recurrent states, and the inputs that convolutions keep, in 32 bits, as llama.cpp keeps them.
fn with_singles(model: Arc<Model>) -> Arc<Model> {
    if model.layers.iter().all(|layer| layer.mixer.state().is_none()) {
        return model;
    }
    let mut singles = Model::clone(&model);
    singles.layers.iter_mut().for_each(|layer| layer.mixer.set_singles());
    Arc::new(singles)
}

/// Returns `model` with recurrent states in `dtype`.
fn with_states(model: Arc<Model>, dtype: StateDtype) -> Result<Arc<Model>> {
    let Some(bytes) = dtype.bytes() else { return Ok(model) };
    let mut other = Model::clone(&model);
    if !other.set_state_element(bytes) {
        let accepted = format!("omitted: {} keeps no recurrent state whose dtype is chosen", model.name);
        return Err(Error::field("engine", "mamba_ssm_dtype", dtype.name(), accepted));
    }
    Ok(Arc::new(other))
}
