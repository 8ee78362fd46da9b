//! Sliding windows of models that llama.cpp runs without them.
//!
//! Knows: which architectures of llama.cpp read no window from a file (b11549: `models/llama.cpp` and `starcoder2.cpp`
//! have no `n_swa`, which a file of the `llama` architecture with `attention.sliding_window` shows in its start-up log;
//! `phi3.cpp` switches the window of Phi-3 and Phi-3.5-MoE off). Their layers keep and read the whole context.

use crate::spec::{EngineKind, EngineSpec};
use roofcast_facts::model::{Mixer, Model};
use std::sync::Arc;

/// Values of `model_type` whose windows llama.cpp does not read: Mistral and Mixtral are files of `llama`.
const WITHOUT: [&str; 7] = ["mistral", "ministral", "mixtral", "starcoder2", "phi3", "phimoe", "qwen2"];

/// Returns `model` with the windows that `engine` gives its layers.
pub(super) fn read(model: Arc<Model>, engine: &EngineSpec) -> Arc<Model> {
    let has_window =
        |mixer: &Mixer| matches!(mixer, Mixer::Attention(attention) if attention.window.is_some());
    if engine.kind() != EngineKind::LlamaCpp
        || !WITHOUT.contains(&model.architecture.as_str())
        || !model.layers.iter().any(|layer| has_window(&layer.mixer))
    {
        return model;
    }
    let mut whole = Model::clone(&model);
    for layer in &mut whole.layers {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.window = None;
        }
    }
    Arc::new(whole)
}
