//! Models that draft from another model's hidden states: EAGLE, EAGLE-3 and DFlash.
//!
//! Knows: the matrices of a drafter outside its layers, and which of the model's ends it shares. Layers are described by
//! the drafter's own config. Knows nothing about steps.
//!
//! Source: vLLM 0.33, `model_executor/models/llama_eagle.py`, `llama_eagle3.py` and `qwen3_dflash.py`.

use super::{Mixer, Model, OperatorKind, Split, Tensor, TensorRole};

/// Hidden states of the model that a drafter reads for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Features {
    /// The last layer's, next to the token's embedding; lm_head is the model's (EAGLE).
    Last,
    /// Hidden states of three layers, joined; each layer of the drafter reads them next to the embedding (EAGLE-3).
    Three,
    /// Hidden states of this many layers, joined; lm_head is the model's (DFlash).
    Layers(u64),
}

impl Model {
    /// Returns the drafter of a model of width `hidden`: the layers of this config, and in front of the layers the matrix
    /// that joins hidden states.
    pub fn drafting(&self, features: Features, hidden: u64) -> Model {
        let mut drafter = self.clone();
        let joined = match features {
            Features::Last => 2 * hidden,
            Features::Three => 3 * hidden,
            Features::Layers(layers) => layers * hidden,
        };
        let project = |rows, columns, name| {
            Tensor::linear(name, OperatorKind::ProjectIn, rows, columns, Split::Replicated)
        };
        drafter.outer.push(project(self.hidden, joined, "fc"));
        if features == Features::Three {
            for layer in &mut drafter.layers {
                let Mixer::Attention(attention) = &layer.mixer else { continue };
                let rows = (attention.heads + attention.kv_heads) * attention.head_dim
                    + attention.kv_heads * attention.v_head_dim;
                // Queries, keys and values come from the embedding and the hidden state side by side.
                layer.extra.push(Tensor::linear(
                    "self_attn.qkv_of_states",
                    OperatorKind::QkvProj,
                    rows,
                    self.hidden,
                    Split::Even,
                ));
                layer.norms += self.hidden;
            }
        }
        drafter
    }

    /// Returns the part of a drafter that is in memory in addition to its model. The embedding is the model's, and lm_head too,
    /// except for EAGLE-3, which has a vocabulary of its own.
    pub fn without_shared(&self, features: Features) -> Model {
        let mut bare = self.clone();
        let shared = |role| match role {
            TensorRole::Embedding => true,
            TensorRole::Head => features != Features::Three,
            _ => false,
        };
        bare.outer.retain(|tensor| !shared(tensor.role));
        bare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_layer() -> Model {
        let config = serde_json::json!({
            "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4096, "intermediate_size": 14_336,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "draft_vocab_size": 32_000
        });
        crate::model::config::read("eagle", "config.json", &config).unwrap()
    }

    /// EAGLE-3 of Llama-3.1-8B: attention 2 · 4096² + 2 · 4096 · 1024 = 41.9 M and again 25.2 M for the states next to the
    /// embedding, an MLP of 3 · 4096 · 14,336 = 176.2 M, 12,288 · 4096 = 50.3 M that join three states, 32,000 rows of
    /// lm_head, and norms: three of the layer and the last one.
    #[test]
    fn an_eagle_3_by_hand() {
        let drafter = one_layer().drafting(Features::Three, 4096).without_shared(Features::Three);
        let attention = 2 * 4096 * 4096 + 2 * 4096 * 1024 + (4096 + 2 * 1024) * 4096;
        let matrices = attention + 3 * 4096 * 14_336 + 3 * 4096 * 4096 + 32_000 * 4096;
        assert_eq!(drafter.parameters().total, matrices + 4 * 4096);
    }

    /// EAGLE and DFlash have neither embedding nor lm_head of their own.
    #[test]
    fn shared_ends_are_not_in_memory() {
        let layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336 + 3 * 4096;
        for (features, joined) in [(Features::Last, 2), (Features::Layers(5), 5)] {
            let drafter = one_layer().drafting(features, 4096).without_shared(features);
            assert_eq!(drafter.parameters().total, layer + joined * 4096 * 4096, "{features:?}");
        }
    }
}
