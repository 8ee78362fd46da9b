//! A model's architecture: its layers in order, and every tensor in them.
//!
//! Knows: dimensions, parameter counts, and the cache and state that each layer keeps per token. Knows nothing about
//! machines or parallelism; [`config`] reads a `config.json`, [`quantization`] number formats.

pub mod config;
mod drafter;
pub(crate) mod ffn;
mod keys;
pub mod mixer;
mod operator_kind;
pub(crate) mod quantization;
pub(crate) mod tensor;
mod tower;

pub(crate) use keys::brief;

pub use drafter::Features;
pub use ffn::{Dense, Experts, Ffn, largest_deviate};
pub use mixer::{Attention, Indivisible, Latent, Mixer};
pub use operator_kind::{Family, OperatorKind};
pub use quantization::Quantization;
pub use tensor::{Split, Tensor, TensorRole};
pub use tower::ImageSize;
pub use tower::{ImageTokens, Tower};

use crate::precision::{Dtype, Format, KvFormat};
use crate::units::Bytes;
use std::collections::BTreeMap;

/// A decoder-only language model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Hugging Face id or path, as given by the user.
    pub name: String,
    /// `model_type` of the config.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Size of the vocabulary in tokens.
    pub vocab: u64,
    /// Longest context in tokens that the config allows.
    pub max_context: Option<u64>,
    /// Number format of unquantized weights and of activations.
    pub dtype: Dtype,
    /// True if lm_head shares the embedding's weights.
    pub tied: bool,
    /// Layers that a token passes, from first to last.
    pub layers: Vec<Layer>,
    /// Number of passes of a token through one set of weights (Ouro), each with a separate KV cache. `layers` lists
    /// the layers of every pass, pass after pass.
    pub passes: u64,
    /// Tensors outside the layers: embeddings, final norm, lm_head.
    pub outer: Vec<Tensor>,
    /// Quantization of the checkpoint; `None` if its weights are unquantized.
    pub quantization: Option<Quantization>,
    /// Quantization of published checkpoints with these weights in other formats, by checkpoint id.
    pub published: Vec<(String, Quantization)>,
    /// Format of each tensor, if the file itself records it (GGUF); overrides `quantization`.
    pub stored: Option<StoredFormats>,
    /// Relation between `name` and the checkpoint that the weights come from.
    pub checkpoint: Checkpoint,
    /// Vision tower that is loaded along with the text model.
    pub tower: Option<Tower>,
    /// Number of multi-token-prediction layers of the checkpoint, which `layers` does not have.
    pub ahead: u64,
    /// Assumptions about values that the config does not state, as sentences for reports.
    pub assumptions: Vec<String>,
}

/// Relation between the name of a model and the checkpoint of its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checkpoint {
    /// The name is the id of the checkpoint.
    #[default]
    Named,
    /// The name is the id of an unquantized checkpoint; the format was given separately.
    Unquantized,
    /// The name is the id of another model with an equal shape.
    OfItsShape,
}

/// Formats of the tensors of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredFormats {
    /// Kind of file, for reports: `gguf`.
    pub name: &'static str,
    /// Format of each tensor, by module path, as in `layers.3.self_attn.q_proj`.
    pub formats: BTreeMap<String, Format>,
    /// Format of tensors that the file does not name: norms and biases.
    pub other: Format,
    /// Bytes of all tensors of the files together.
    pub bytes: Bytes,
}

/// One transformer block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layer {
    /// Token mixer: attention, a recurrence, or a convolution.
    pub mixer: Mixer,
    /// Feed-forward part, which transforms each token independently.
    pub ffn: Ffn,
    /// Number of weights in the norms around mixer and feed-forward part.
    pub(crate) norms: u64,
    /// True if attention and feed-forward part run in parallel on one input and share one all-reduce (GPT-J, NeoX,
    /// Falcon).
    pub parallel: bool,
    /// Tensors of neither mixer nor feed-forward part: hyper-connections, per-layer inputs, a linear layer in place
    /// of either.
    pub(crate) extra: Vec<Tensor>,
}

impl Layer {
    /// Lists every tensor of the layer.
    pub fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let mut tensors = self.mixer.tensors(hidden);
        tensors.extend(self.ffn.tensors(hidden));
        tensors.push(Tensor::vector("norms", OperatorKind::Norms, self.norms, Split::Replicated));
        tensors.extend(&self.extra);
        tensors
    }
}

/// Parameter counts of a model, without multi-token-prediction layers and vision towers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameters {
    /// Number of all weights; tied weights are counted once.
    pub total: u64,
    /// Parameters that one token reads: all except routed experts that it does not choose, and except an untied input
    /// embedding, of which it reads one row. Makers count this way: gpt-oss-20b 3.6B, Nemotron-3-Nano 3.2B. lm_head
    /// counts; in dense models all parameters are active.
    pub active: u64,
    /// Parameters of the input embedding.
    pub embedding: u64,
    /// Parameters of lm_head; if tied, equal to the embedding and not counted twice in `total`.
    pub lm_head: u64,
}

impl Model {
    /// Layer in place of each multi-token-prediction layer, with the index of the layer that it copies: the last one
    /// with attention, of compressed attention its window alone. `None` if the checkpoint has none.
    pub fn layer_ahead(&self) -> Option<(usize, Layer)> {
        let attends = |layer: &Layer| {
            matches!(layer.mixer, Mixer::Attention(_) | Mixer::Latent(_) | Mixer::Compressed(_))
        };
        let index = self.held_layers().iter().rposition(attends).filter(|_| self.ahead > 0)?;
        let mut layer = self.layers.get(index)?.clone();
        if let Mixer::Compressed(attention) = &mut layer.mixer {
            attention.ratio = None;
            attention.indexer = None;
        }
        Some((index, layer))
    }

    /// Sentence for reports on the parameters of a model with towers.
    pub(crate) const WITHOUT_TOWERS: &'static str =
        "parameters of the text model alone: towers for images or sound are not among them";

    /// Sentence for reports on multi-token-prediction layers that are left out.
    pub fn without_ahead(ahead: u64) -> String {
        format!("{ahead} multi-token-prediction layers are not counted")
    }

    /// Sets the bytes per element of every recurrent state. Returns true if the model has such a state.
    pub fn set_state_element(&mut self, bytes: u64) -> bool {
        let set = self.layers.iter_mut().map(|layer| layer.mixer.set_state_element(bytes));
        set.filter(|set| *set).count() > 0
    }

    /// Layers whose weights are stored: the layers of one pass.
    pub fn held_layers(&self) -> &[Layer] {
        let count = self.layers.len() / self.passes.max(1) as usize;
        &self.layers[..count]
    }

    /// Most pipeline stages: one per layer; 1 if tokens pass the weights several times, because every stage would
    /// need all weights.
    pub fn most_stages(&self) -> u64 {
        if self.passes > 1 { 1 } else { self.layers.len() as u64 }
    }

    /// Counts parameters tensor by tensor.
    pub fn parameters(&self) -> Parameters {
        let mut total = 0_u128;
        let mut idle = 0_u128;
        for layer in self.held_layers() {
            for tensor in layer.tensors(self.hidden) {
                total += tensor.elements();
            }
            if let Ffn::Experts(experts) = &layer.ffn {
                idle += experts.idle_elements(self.hidden);
            }
        }
        let outer = |role: TensorRole| {
            self.outer.iter().filter(|t| t.role == role).map(Tensor::elements).sum::<u128>()
        };
        total += self.outer.iter().map(Tensor::elements).sum::<u128>();
        if self.tied {
            total -= outer(TensorRole::Head);
        }
        if idle > 0 && !self.tied {
            idle += outer(TensorRole::Embedding);
        }
        let count = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        Parameters {
            total: count(total),
            active: count(total.saturating_sub(idle)),
            embedding: count(outer(TensorRole::Embedding)),
            lm_head: count(outer(TensorRole::Head)),
        }
    }

    /// Names of the formats of the checkpoint as published, ordered by the number of weights, most first.
    pub fn weight_formats(&self) -> Vec<&'static str> {
        match (&self.stored, &self.quantization) {
            (Some(stored), _) => vec![stored.name],
            (None, Some(q)) => {
                q.mix().map_or_else(|| q.formats().iter().map(|f| f.name).collect(), |m| vec![m.name()])
            }
            (None, None) => vec![self.unquantized().name],
        }
    }

    /// KV-cache format that the checkpoint requests, else 16 or 32 bits by its dtype.
    pub fn kv_format(&self) -> KvFormat {
        let named_format = self.quantization.as_ref().and_then(|q| q.kv);
        named_format.unwrap_or(match self.dtype {
            Dtype::Fp32 => KvFormat::FP32,
            Dtype::Fp16 => KvFormat::FP16,
            _ => KvFormat::BF16,
        })
    }

    fn unquantized(&self) -> Format {
        match self.dtype {
            Dtype::Fp32 => Format::FP32,
            Dtype::Fp16 => Format::FP16,
            _ => Format::BF16,
        }
    }

    /// Bytes of the weights in the formats of `quantization`; tied weights are counted once.
    pub fn weight_bytes(&self) -> Bytes {
        let bytes = |tensor: &Tensor, layer: Option<usize>| {
            let format = self.quantization.as_ref().and_then(|q| q.format(tensor, layer));
            format.unwrap_or_else(|| self.unquantized()).width.bytes(tensor.elements())
        };
        let layers = self.held_layers().iter().enumerate();
        let inner: Bytes = layers
            .map(|(index, layer)| layer.tensors(self.hidden).iter().map(|t| bytes(t, Some(index))).sum())
            .sum();
        let outer = self.outer.iter().filter(|t| !(self.tied && t.role == TensorRole::Head));
        inner + outer.map(|t| bytes(t, None)).sum::<Bytes>()
    }

    /// True if any layer routes tokens to experts.
    pub fn is_moe(&self) -> bool {
        self.layers.iter().any(|l| matches!(l.ffn, Ffn::Experts(_)))
    }

    /// Bytes of cache and state of one sequence of `context` tokens on one unsharded accelerator: keys and values in
    /// the format `kv`, sliding windows up to their size, index keys and recurrent states in their own formats.
    pub fn kv_bytes_per_sequence(&self, kv: KvFormat, context: u64) -> Bytes {
        self.layers.iter().map(|l| l.mixer.sequence_bytes(kv, context)).sum()
    }

    /// Bytes that one further token adds at `context` tokens: the marginal size, without states and full windows. If
    /// several tokens share an entry (DeepSeek-V4), the mean over the tokens of the entry.
    pub fn kv_bytes_per_token(&self, kv: KvFormat, context: u64) -> Bytes {
        let (context, span) = self.last_entry(context);
        let before = self.kv_bytes_per_sequence(kv, context - span);
        self.kv_bytes_per_sequence(kv, context).saturating_sub(before).scale(1, span)
    }

    /// Returns the context, at least one token, and the number of last tokens that share a cache entry in some layer.
    fn last_entry(&self, context: u64) -> (u64, u64) {
        let ratio = |layer: &Layer| match &layer.mixer {
            Mixer::Compressed(c) => c.ratio.unwrap_or(1),
            Mixer::Latent(l) => l.indexer.as_ref().map_or(1, |i| i.pool),
            Mixer::Attention(a) => {
                a.index.as_ref().and_then(|i| i.means.as_ref()).map_or(1, |m| 4 * m.stride)
            }
            _ => 1,
        };
        let context = context.max(1);
        (context, self.layers.iter().map(ratio).max().unwrap_or(1).clamp(1, context))
    }

    /// KV elements of one sequence at `context` tokens, summed over layers.
    pub fn kv_elements_per_sequence(&self, context: u64) -> u128 {
        self.layers.iter().map(|l| l.mixer.kv_elements(context)).sum()
    }

    /// KV elements that the last of `context` tokens added; layers whose window is full add none.
    pub fn kv_elements_per_token(&self, context: u64) -> u64 {
        let (context, span) = self.last_entry(context);
        let before = self.kv_elements_per_sequence(context - span);
        let added = self.kv_elements_per_sequence(context).saturating_sub(before);
        u64::try_from(added.div_ceil(u128::from(span))).unwrap_or(u64::MAX)
    }
}
