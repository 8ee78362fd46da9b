//! Number format of recurrent states.
//!
//! Knows: llama.cpp keeps states, and the inputs that convolutions keep, in 32 bits; other engines keep them as the
//! model's config states, or as `mamba_ssm_dtype` requests.

use crate::spec::{EngineKind, EngineSpec, StateDtype};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use std::sync::Arc;

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
